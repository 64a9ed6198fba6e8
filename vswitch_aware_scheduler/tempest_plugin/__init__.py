# SPDX-License-Identifier: Apache-2.0
"""Tests that tempest runs against a cloud whose scheduler has the filter."""
