# SPDX-License-Identifier: Apache-2.0
"""Proposes live migrations that keep hosts within their limit of overload.

:mod:`.budget` computes how long each host may still be overloaded.
:mod:`.relief` selects moves for a host that has spent too much, by the joint
samples of the last days. Pure: arrays in, arrays out; no clock, no
configuration, no store. Derivation: reference/rebalance.rst.
"""
