# SPDX-License-Identifier: Apache-2.0
"""Replays recorded traffic through our admission and published methods.

:mod:`.trace` has traffic on a grid of time, and its part known at a moment.
:mod:`.methods` decides which instance joins which host. :mod:`.measures`
evaluates the result. :mod:`.protocols` runs all of this. No Nova, no
configuration and no store. Derivation: reference/evaluation.rst.
"""
