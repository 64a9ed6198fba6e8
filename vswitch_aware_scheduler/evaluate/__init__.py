# SPDX-License-Identifier: Apache-2.0
"""Replay of recorded traffic through the code that decides, and others.

:mod:`.trace` holds traffic on a grid of time and what is known of it at a
moment; :mod:`.methods` decides who joins a host, our way and in published
ways; :mod:`.packing` judges what came of it; :mod:`.protocols` runs all of
that. Knows no Nova, no configuration and no store.

Derivation: reference/evaluation.rst.
"""
