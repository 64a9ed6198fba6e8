# SPDX-License-Identifier: Apache-2.0
"""The rate series that telemetry drivers deliver and the estimator reads.

Raw samples are sorted, validated and converted to rates; rejected samples are
counted. This module does not depend on the source of the samples; pure, no
I/O.
"""

from __future__ import annotations

import dataclasses
import operator

import numpy as np
from numpy import typing as npt

from vswitch_aware_scheduler.common import exceptions

__all__ = ['MAX_RATE_KBPS', 'MAX_RATE_KPPS', 'RateSeries', 'Refused']

#: Rates above these limits are attributed to a broken counter: ten times a 400
#: GbE port, in both directions.
MAX_RATE_KBPS = 8e9
MAX_RATE_KPPS = 1.2e7

_COLUMNS = ('egress_kbps', 'ingress_kbps', 'kpps')


@dataclasses.dataclass(frozen=True)
class Refused:
    """Number of rejected samples, by reason.

    - ``missing``: the source had no value (NaN), or the traffic of a part of
      the instance is unknown and the rest is a lower bound that is too low.
    - ``negative``: the rate is below zero.
    - ``reset``: a counter decreased.
    - ``absurd``: the rate is infinite, or above :data:`MAX_RATE_KBPS`,
      :data:`MAX_RATE_KPPS` or the capacity of the instance's host.
    - ``duplicate``: there is another sample for the same time.
    - ``gap``: two readings of a counter are too far apart.
    - ``migration``: the readings come from counters of two hosts.
    - ``too_old``: the sample is older than the time from which the driver may
      use its source.
    """

    missing: int = 0
    negative: int = 0
    reset: int = 0
    absurd: int = 0
    duplicate: int = 0
    gap: int = 0
    migration: int = 0
    too_old: int = 0

    @property
    def total(self) -> int:
        """Number of all rejected samples."""
        return sum(vars(self).values())

    def aged(self, factor: float) -> Refused:
        """Return these numbers multiplied by a factor, no longer whole."""
        return Refused(*(count and count * factor
                         for count in vars(self).values()))

    def rounded(self) -> Refused:
        """Return these numbers as whole numbers."""
        return Refused(*map(round, vars(self).values()))

    def hides(self, samples: float) -> bool:
        """Return whether the traffic is unknown more often than known.

        The model of such an instance does not count, because it may have been
        busy in the meantime.
        """
        return self.missing > samples

    def __add__(self, other: Refused) -> Refused:
        return Refused(*map(operator.add, vars(self).values(),
                            vars(other).values()))

    def to_dict(self) -> dict[str, int]:
        """Return {reason: number of rejected samples}."""
        return dict(vars(self))


def _invalid(instance_uuid, name, value, expected):
    return exceptions.InvalidSeries(
        thing=f'rate series of instance {instance_uuid}: {name}', seen=value,
        expected=expected)


@dataclasses.dataclass(frozen=True, eq=False)
class RateSeries:
    """Mean rates of one instance over consecutive sampling periods.

    Use :meth:`from_samples`, which sorts samples and rejects invalid ones.
    Gaps remain gaps.

    :ivar times: (n,) float64, start of each period, seconds UTC, increasing
    :ivar rates: (n, 3) float64, finite and >= 0: egress_kbps, ingress_kbps,
        kpps. kpps is 0 throughout when the source counts no packets.
    :ivar partial: (n,) bool, or None if all are False: whether a sample is a
        lower bound, because a part of the traffic could not be measured. A
        reader uses :meth:`at_least` to decide which of these samples to use.
    :raises InvalidSeries: if an attribute is invalid
    """

    instance_uuid: str
    period_seconds: float
    times: np.ndarray
    rates: np.ndarray
    refused: Refused = Refused()
    partial: np.ndarray | None = None

    def __post_init__(self) -> None:
        times = np.array(self.times, dtype=float)
        rates = np.array(self.rates, dtype=float)
        if not (np.isfinite(self.period_seconds) and self.period_seconds > 0):
            self._fail('period_seconds', self.period_seconds,
                       'a finite number > 0')
        if times.ndim != 1:
            self._fail('the shape of times', times.shape, '(n,)')
        if rates.shape != (times.size, 3):
            self._fail('the shape of rates', rates.shape,
                       f'({times.size}, 3)')
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            self._fail('times', 'unordered or not finite',
                       'finite and strictly increasing')
        if not (np.isfinite(rates).all() and (rates >= 0).all()):
            self._fail('rates', 'negative or not finite', 'finite and >= 0')
        partial = None
        if self.partial is not None and np.any(self.partial):
            partial = np.array(self.partial, dtype=bool)
            if partial.shape != times.shape:
                self._fail('the shape of partial', partial.shape,
                           f'({times.size},)')
            partial.flags.writeable = False
        times.flags.writeable = rates.flags.writeable = False
        object.__setattr__(self, 'times', times)
        object.__setattr__(self, 'rates', rates)
        object.__setattr__(self, 'partial', partial)

    def _fail(self, name, value, expected):
        raise _invalid(self.instance_uuid, name, value, expected)

    def __len__(self) -> int:
        return self.times.size

    @property
    def follows(self) -> np.ndarray:
        """(n,) bool: whether a sample directly follows the previous one.

        This is the case if it is at most one and a half periods later. A
        change across a gap is not a transition.
        """
        follows = np.zeros(self.times.size, dtype=bool)
        follows[1:] = np.diff(self.times) <= 1.5 * self.period_seconds
        return follows

    def within(self, kbps: float) -> RateSeries:
        """Return this series without impossible rates."""
        keep = np.all(self.rates[:, :2] <= kbps * (1 + 1e-9), axis=1)
        return self if keep.all() else self._kept(
            keep, self.refused + Refused(absurd=int((~keep).sum())))

    def _kept(self, keep: np.ndarray, refused: Refused) -> RateSeries:
        return dataclasses.replace(
            self, times=self.times[keep], rates=self.rates[keep],
            partial=~self.whole[keep], refused=refused)

    @property
    def whole(self) -> np.ndarray:
        """(n,) bool: whether a sample is a full measurement, not a bound."""
        return np.ones(self.times.size, dtype=bool) \
            if self.partial is None else ~self.partial

    def since(self, start: float, refused: Refused) -> RateSeries:
        """Return the samples after a time."""
        return self._kept(self.times > start, refused)

    def at_least(self, floor_kbps: float | None = None) -> RateSeries:
        """Return the series without lower bounds that are too low.

        A lower bound is useful if it is above the load that the instance would
        count with otherwise. A lower one is rejected as missing.

        :param floor_kbps: smallest useful lower bound, sum of both directions
            in kbit/s; None: the mean of the other samples, or no lower bound
            at all if there are none
        """
        if self.partial is None:
            return self
        bandwidth = self.rates[:, :2].sum(axis=1)
        if floor_kbps is None:
            complete = bandwidth[self.whole]
            floor_kbps = complete.mean() if complete.size else np.inf
        keep = self.whole | (bandwidth >= floor_kbps)
        return dataclasses.replace(self._kept(
            keep, self.refused + Refused(missing=int((~keep).sum()))),
            partial=None)

    @classmethod
    def from_samples(cls, instance_uuid: str, period_seconds: float,
                     times: npt.ArrayLike, egress_kbps: npt.ArrayLike,
                     ingress_kbps: npt.ArrayLike,
                     kpps: npt.ArrayLike | None = None) -> RateSeries:
        """Return the series of raw rate samples, which may be in any order.

        :param times: (n,) start of each period, seconds UTC
        :param egress_kbps: (n,) kbit/s, NaN for a missing sample
        :param kpps: (n,) kilo-packets/s of both directions, or None
        :raises InvalidSeries: if lengths differ or times are not finite
        """
        times = np.asarray(times, dtype=float)
        if kpps is None:
            kpps = np.zeros(times.shape)
        columns = [np.asarray(column, dtype=float)
                   for column in (egress_kbps, ingress_kbps, kpps)]
        for name, column in zip(_COLUMNS, columns):
            if column.shape != times.shape:
                raise _invalid(
                    instance_uuid, f'the shape of {name}', column.shape,
                    f'{times.shape} as times')
        if not np.isfinite(times).all():
            raise _invalid(instance_uuid, 'a time', 'not finite',
                           'seconds UTC')
        rates = np.stack(columns, axis=1)
        # A sample counts once, under the first reason that applies.
        missing = np.isnan(rates).any(axis=1)
        # Comparisons with NaN are false. Mask the rows out in which another
        # column is NaN.
        negative = ~missing & (rates < 0).any(axis=1)
        limits = np.array([MAX_RATE_KBPS, MAX_RATE_KBPS, MAX_RATE_KPPS])
        absurd = ~missing & ~negative & (rates > limits).any(axis=1)
        keep = ~(missing | negative | absurd)
        kept_times, first = np.unique(times[keep], return_index=True)
        refused = Refused(
            missing=int(missing.sum()), negative=int(negative.sum()),
            absurd=int(absurd.sum()),
            duplicate=int(keep.sum()) - kept_times.size)
        return cls(instance_uuid, period_seconds, kept_times,
                   rates[keep][first], refused)
