# SPDX-License-Identifier: Apache-2.0
"""Effective bandwidth: one number to book for a source of varying rate.

Placement can only add numbers. If the sum of the effective bandwidths on a
host is within a limit, the overload probability of the host is also limited.
Pure. Derivation: reference/strict.rst.
"""

import numpy as np

from vswitch_aware_scheduler import exceptions

__all__ = ['effective_bandwidth']


def effective_bandwidth(rates, probabilities, exponent):
    r"""Return :math:`\ln E[e^{\theta X}] / \theta` of a rate.

    The result grows with the exponent, from the mean rate at 0 to the largest
    possible rate at infinity.

    :param rates: (n,) finite rate of each state
    :param probabilities: (n,) probability of each state, >= 0, sum 1
    :param exponent: >= 0, in the reciprocal of the unit of the rates
    :returns: float in the unit of the rates
    :raises InvalidModel: if the exponent is negative or not a number
    """
    if not exponent >= 0:
        raise exceptions.InvalidModel(
            f'tail exponent: {exponent!r}; expected a number >= 0')
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
    # If the moment is near 1, sum its small terms to keep their accuracy.
    log = np.log1p(masses @ np.expm1(below)) if moment > 0.5 \
        else np.log(moment)
    return float(peak + log / exponent)
