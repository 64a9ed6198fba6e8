# SPDX-License-Identifier: Apache-2.0
"""What tests put in the place of clocks, stores and services."""
