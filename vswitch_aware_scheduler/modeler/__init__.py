# SPDX-License-Identifier: Apache-2.0
"""What keeps the models fresh: one pass, and the service that repeats it."""
