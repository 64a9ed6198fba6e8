# SPDX-License-Identifier: Apache-2.0
"""Instants at which the rates of all instances are compared with each other.

Time since the epoch is divided into intervals of 40 minutes. Each interval has
one instant, the same for all instances. Of each instance, the sample at each
of the last 504 instants is kept, which are 14 days. The sum of the samples of
the residents of a host at an instant is what its switch had to carry then,
with every dependence between them, whatever the sampling period is.

The instants depend on a secret. Whoever does not know it cannot send between
the instants. In its interval, an instant moves each day by the golden section
of the interval, and by a random part of a fourteenth of it. A fortnight
therefore covers all times of the day evenly.

The 504 instants form a ring: after 14 days, an instant replaces the one at its
position. Pure; no clock, no configuration, no I/O. Derivation:
reference/model.rst, "Instances that are busy together".
"""

import functools
import hashlib

import numpy as np

__all__ = ['A_DAY', 'DRAWN', 'ENOUGH', 'INSTANTS', 'INTERVAL_SECONDS',
           'Instants', 'PUBLIC', 'drawn_rows', 'latest_numbers',
           'newest_number']

INTERVAL_SECONDS = 2400
#: Number of instants that are kept of each instance.
INSTANTS = 504
#: Number of instants in a day.
A_DAY = 86400 // INTERVAL_SECONDS
_DAYS = INSTANTS // A_DAY

#: An instance with fewer samples at instants, a day of them, counts as
#: independent of others.
ENOUGH = A_DAY

#: Added to the row of an instant without a sample: the row was drawn.
DRAWN = 128

#: Share of an interval by which its instant moves each day.
_GOLDEN = (5 ** 0.5 - 1) / 2


class Instants:
    """The instants of one secret.

    :param secret: bytes, the same in all processes that add to the same store
    """

    def __init__(self, secret: bytes) -> None:
        self._offsets = functools.lru_cache(64)(
            functools.partial(_offsets, bytes(secret)))

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """Return the times of some instants.

        :param numbers: (n,) int64, numbers of intervals since the epoch
        """
        days, of_day = np.divmod(numbers, A_DAY)
        kept, where = np.unique(days, return_inverse=True)
        offsets = np.array([self._offsets(day) for day in kept.tolist()])
        return numbers * float(INTERVAL_SECONDS) + offsets[
            where.reshape(-1), of_day]


def _offsets(secret: bytes, day: int) -> np.ndarray:
    """Return the (36,) offsets of the instants of a day in their intervals."""
    begin = _uniform(secret + b'begin', A_DAY)
    moved = _uniform(secret + str(day).encode(), A_DAY)
    return (begin + day * _GOLDEN + moved / _DAYS) % 1.0 * INTERVAL_SECONDS


def _uniform(seed: bytes, count: int) -> np.ndarray:
    """Return (count,) numbers in [0, 1), the same in every process."""
    digest = hashlib.shake_128(seed).digest(4 * count)
    return np.frombuffer(digest, '<u4') / 2.0 ** 32


#: Instants for traffic that nobody can arrange, for example recorded traffic.
PUBLIC = Instants(b'')


def newest_number(end: float | np.ndarray) -> np.ndarray:
    """Return the number of the last interval that begins before a time."""
    return np.ceil(np.asarray(end) / INTERVAL_SECONDS).astype(np.int64) - 1


def latest_numbers(newest: int) -> np.ndarray:
    """Return the numbers of the last 504 intervals, by ring position."""
    return newest - (newest - np.arange(INSTANTS)) % INSTANTS


def drawn_rows(seed: str, probabilities: np.ndarray) -> np.ndarray:
    """Return random rows for all positions, the same in every process.

    :param probabilities: (n,) probability of each row, sum 1
    """
    ends = np.cumsum(probabilities[:-1])
    return np.searchsorted(ends, _uniform(seed.encode(), INSTANTS),
                           side='right').astype(np.uint8)
