# SPDX-License-Identifier: Apache-2.0
"""Measuring what the switch of a machine carries."""
