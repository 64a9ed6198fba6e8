# SPDX-License-Identifier: Apache-2.0
"""Student's distribution. Pure; no configuration, no I/O."""

import bisect
import functools
import math

from vswitch_aware_scheduler.common import exceptions

__all__ = ['quantile']

_STEPS = 2 ** 52


@functools.lru_cache(maxsize=256)
def quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's distribution.

    Uses the closed form of the distribution (Abramowitz and Stegun, Handbook
    of Mathematical Functions, 26.7.3 and 26.7.4), inverted by bisection.

    :param probability: 0.5 <= p < 1
    :param freedom: whole degrees of freedom; 0 gives infinity
    :raises InvalidModel: if the probability is out of range
    """
    if not .5 <= probability < 1:
        raise exceptions.InvalidModel(
            f'probability: {probability!r}; expected a number from 0.5 to '
            f'below 1')
    if freedom < 1:
        return math.inf
    # An angle of (0, pi / 2), in the smallest steps that a float resolves.
    angle = math.pi / 2 / _STEPS * bisect.bisect_left(
        range(_STEPS), probability,
        key=lambda step: _student(math.pi / 2 * step / _STEPS, freedom))
    return math.tan(angle) * math.sqrt(freedom)


def _student(angle, freedom):
    """Return P(X <= tan(angle) * sqrt(freedom))."""
    cosine = math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine ** 2 * (k - 1) / k
        total += term
    total *= math.sin(angle)
    if odd:
        return .5 + (angle + total * (freedom > 1)) / math.pi
    return .5 + total / 2
