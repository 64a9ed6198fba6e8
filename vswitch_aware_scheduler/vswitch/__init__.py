# SPDX-License-Identifier: Apache-2.0
"""What a switch can carry: profiles of virtual switches, the catalogue."""
