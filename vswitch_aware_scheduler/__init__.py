# SPDX-License-Identifier: Apache-2.0
"""Places instances on hosts whose virtual switch can carry their traffic."""
