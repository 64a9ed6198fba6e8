# SPDX-License-Identifier: Apache-2.0
"""Measures the capacity of a machine's virtual switch."""
