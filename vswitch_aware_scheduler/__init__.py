# SPDX-License-Identifier: Apache-2.0
"""Place instances where the virtual switch can carry their traffic."""
