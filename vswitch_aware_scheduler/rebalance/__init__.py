# SPDX-License-Identifier: Apache-2.0
"""Which live migrations keep hosts within their limit on overload.

:mod:`.budget` counts what each host may still be overloaded; :mod:`.relief`
chooses moves for a host that has overspent, exactly on joint samples of the
last days. Pure: arrays in, arrays out; no clock, no configuration, no store.

Derivation: reference/rebalance.rst.
"""
