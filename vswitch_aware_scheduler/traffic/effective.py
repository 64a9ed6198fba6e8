# SPDX-License-Identifier: Apache-2.0
"""Effective bandwidth: one number to book for a source of varying rate.

Numbers that only have to be added, so that something that knows no traffic can
keep the sum within a limit. Pure.

Derivation: reference/strict.rst.
"""

import numpy as np

from vswitch_aware_scheduler import exceptions

__all__ = ['effective_bandwidth']


def effective_bandwidth(rates, probabilities, exponent):
    r"""Return :math:`\ln E[e^{\theta X}] / \theta` of a rate.

    Between the mean, for an exponent of 0, and the largest rate that occurs,
    for an infinite one; it grows with the exponent.

    :param rates: (n,) finite, of each state
    :param probabilities: (n,) of the states, >= 0, sum to 1
    :param exponent: >= 0, in 1 over the unit of the rates
    :returns: float in the unit of the rates
    :raises InvalidModel: when the exponent is negative or not a number
    """
    if not exponent >= 0:
        raise exceptions.InvalidModel(
            f'tail exponent is {exponent!r}, wanted a number >= 0')
    masses = np.asarray(probabilities, dtype=float)
    occurs = masses > 0
    masses, levels = masses[occurs], np.asarray(rates, dtype=float)[occurs]
    peak = levels.max()
    if exponent == 0:
        return float(masses @ levels)
    if np.isinf(exponent):
        return float(peak)
    below = exponent * (levels - peak)
    moment = masses @ np.exp(below)
    # A moment near 1 is one of small numbers, whose sum keeps them.
    log = np.log1p(masses @ np.expm1(below)) if moment > 0.5 \
        else np.log(moment)
    return float(peak + log / exponent)
