# SPDX-License-Identifier: Apache-2.0
"""The capacity of virtual switches: profiles and the catalogue."""
