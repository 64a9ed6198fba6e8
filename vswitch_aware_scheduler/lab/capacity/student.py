# SPDX-License-Identifier: Apache-2.0
"""Student's distribution. Pure; no configuration, no I/O."""

import functools
import math

from vswitch_aware_scheduler.common import exceptions

__all__ = ['quantile']


@functools.lru_cache(maxsize=256)
def quantile(probability, freedom):
    """Return the quantile of Student's distribution.

    Uses the closed form of the distribution (Abramowitz and Stegun, Handbook
    of Mathematical Functions, 26.7.3 and 26.7.4), inverted by bisection.

    :param probability: 0.5 <= p < 1
    :param freedom: whole degrees of freedom; 0 gives infinity
    :returns: float
    :raises InvalidModel: if the probability is out of range
    """
    if not .5 <= probability < 1:
        raise exceptions.InvalidModel(
            f'probability: {probability!r}; expected a number from 0.5 to '
            f'below 1')
    if freedom < 1:
        return math.inf
    low, high = 0.0, 1.0
    while _student(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if _student(middle, freedom) < probability:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    return high


def _student(value, freedom):
    angle = math.atan(value / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = total = 1.0
    if odd:
        term = total = cosine
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine ** 2 * (k - 1) / k
        total += term
    if odd:
        inner = angle
        if freedom > 1:
            inner += math.sin(angle) * total
        return .5 + inner / math.pi
    return .5 + math.sin(angle) * total / 2
