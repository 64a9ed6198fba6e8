# SPDX-License-Identifier: Apache-2.0
"""Which servers to buy for a mix of VMs.

``inputs`` reads server types and mixes, ``counts`` computes what a server
carries and what a fleet costs, ``picture`` draws it. Knows no store and no
configuration. Derivation: reference/purchase.rst.
"""
