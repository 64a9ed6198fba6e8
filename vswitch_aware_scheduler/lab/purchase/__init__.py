# SPDX-License-Identifier: Apache-2.0
"""Compares servers to buy for a mix of VMs.

``inputs`` reads server types and mixes, ``counts`` computes how many VMs a
server can carry and what a fleet costs, ``picture`` draws the result. No store
and no configuration. Derivation: reference/purchase.rst.
"""
