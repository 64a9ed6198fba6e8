# SPDX-License-Identifier: Apache-2.0
"""Stores the sums of a host over some days in few bytes.

:func:`pack` and :func:`unpack` convert the slots of one limit,
:func:`pack_day` the slots of a day for all limits. :func:`history` reads the
sums of some days from the store. No other function reads or writes anything.

For each limit, a slot takes two bytes for the sum and one bit for whether one
instance alone exceeded the capacity. Seven days with slots of five minutes are
2,016 slots: 4,284 bytes for a host with one limit. Derivation:
reference/rebalance.rst, "Packed sums".
"""

from collections.abc import Collection, Iterable
import dataclasses
import math

import numpy as np
import numpy.typing as npt

from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['STEPS', 'Slots', 'Sums', 'bytes_needed', 'history', 'of_limits',
           'pack', 'pack_day', 'slots_of_day', 'unpack']

#: Number of steps up to the capacity; the error of a sum is half a step.
STEPS = 2 ** 14

#: Slots of :func:`history` are no shorter.
_SHORTEST_SECONDS = 60.0

#: Value of an unknown slot.
_UNKNOWN = 2 ** 16 - 1

_KIND = np.dtype('<u2')


def bytes_needed(slots: int) -> int:
    """Return the number of bytes of the given slots of one limit."""
    return slots * _KIND.itemsize + (slots + 7) // 8


def pack(sums: npt.ArrayLike, alone: npt.ArrayLike, capacity: float) -> bytes:
    """Return bytes for the slots of one limit of a host.

    A sum remains on its side of the capacity: a sum that exceeds it by less
    than half a step is packed as one step above. Larger sums than four times
    the capacity are packed as this value.

    :param sums: (t,) in the unit of the capacity, NaN if unknown
    :param alone: (t,) bool, whether one instance alone exceeded the capacity
    :param capacity: above 0 and finite
    :raises InvalidInput: if the capacity or a sum is invalid
    """
    sums = np.asarray(sums, dtype=float)
    checks.check('capacity', capacity, checks.number(
        high=np.inf, above=True))
    is_known = ~np.isnan(sums)
    checks.check('sum of a host', sums[is_known].min(initial=0.0),
                 checks.number(high=np.inf))
    share = np.where(is_known, sums, 0.0) / capacity
    steps = np.rint(np.minimum(share * STEPS, _UNKNOWN - 1))
    steps = np.where(share > 1 + rules.TOLERANCE, np.maximum(steps, STEPS + 1),
                     np.minimum(steps, STEPS))
    steps = np.where(is_known, steps, _UNKNOWN).astype(_KIND)
    return steps.tobytes() + np.packbits(
        np.asarray(alone, dtype=bool)).tobytes()


def unpack(packed: bytes, slots: int,
           capacity: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (sums, alone) of bytes that :func:`pack` returned.

    :raises InvalidInput: if the number of bytes does not match
    """
    if len(packed) != bytes_needed(slots):
        raise exceptions.InvalidInput(
            thing=f'bytes of packed sums of {slots} slots', value=len(packed),
            expected=bytes_needed(slots))
    steps = np.frombuffer(packed, _KIND, slots)
    return np.where(
        steps == _UNKNOWN, np.nan, steps / STEPS * capacity), np.unpackbits(
            np.frombuffer(packed, np.uint8, offset=steps.nbytes),
            count=slots).astype(bool)


@dataclasses.dataclass(frozen=True)
class Slots:
    """Consecutive slots of time. Slot k starts k slots after 1970."""

    seconds: float
    first: int
    count: int

    @property
    def start(self) -> float:
        """Start of the first slot, seconds UTC."""
        return self.first * self.seconds

    @property
    def end(self) -> float:
        """End of the last slot, seconds UTC."""
        return (self.first + self.count) * self.seconds

    def mean(self,
             series: rate_series.RateSeries) -> tuple[np.ndarray, np.ndarray]:
        """Return (rates, measured) of a RateSeries in each slot.

        :returns: (t, 3) mean of the samples, 0 without any, and (t,) bool
        """
        at = np.floor(series.times / self.seconds).astype(int) - self.first
        inside = (at >= 0) & (at < self.count)
        at = at[inside]
        counts = np.bincount(at, minlength=self.count)
        rates = np.stack([
            np.bincount(at, column, self.count)
            for column in series.rates[inside].T], axis=1)
        return rates / np.maximum(counts, 1)[:, None], counts > 0

    def between(self, start: float, end: float) -> np.ndarray:
        """Return (t,) bool: slots that start within a period of time."""
        begins = (self.first + np.arange(self.count)) * self.seconds
        return (begins >= start) & (begins < end)


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """The sums of a host or an uplink, slot by slot.

    :ivar limits: tuple of (weights, packet bytes, capacity) of l limits
    :ivar sums: (l, t), NaN if unknown
    :ivar alone: (l, t) bool, whether one instance alone exceeded the capacity
    """

    name: str
    period_seconds: float
    first: int
    limits: tuple
    sums: np.ndarray
    alone: np.ndarray

    @property
    def slots(self) -> Slots:
        """The :class:`Slots`."""
        return Slots(self.period_seconds, self.first, self.sums.shape[1])

    @property
    def known(self) -> np.ndarray:
        """(t,) bool, whether a slot was measured."""
        return ~np.isnan(self.sums).any(axis=0)

    @property
    def overloaded(self) -> np.ndarray:
        """(t,) bool, whether a slot has avoidable overload."""
        return rules.overloaded(self.sums, self.alone, self._capacities)

    @property
    def harmed(self) -> np.ndarray:
        """(t,) bool, whether one instance overloads a slot alone."""
        return (rules.exceeds(self.sums, self._capacities)
                & self.alone).any(axis=0)

    def measured(self, begin: float, end: float) -> tuple[int, int, int]:
        """Return the number of measured slots, overloaded and unknown ones.

        Overload that one instance makes alone counts as well: the others on
        the host suffer from it. Slots after the last measured one do not
        count.

        :param begin: seconds UTC, as ``end``, which is exclusive
        """
        between = self.slots.between(begin, end)
        known = between & self.known
        between[np.flatnonzero(known).max(initial=-1) + 1:] = False
        return (int(known.sum()),
                int((known & (self.overloaded | self.harmed)).sum()),
                int((between & ~known).sum()))

    @property
    def _capacities(self):
        return [capacity for *_, capacity in self.limits]

    def part(self, first: int, end: int) -> 'Sums':
        """Return the Sums of some slots."""
        return dataclasses.replace(
            self, first=self.first + first, sums=self.sums[:, first:end],
            alone=self.alone[:, first:end])


def slots_of_day(day: int, period_seconds: float) -> tuple[int, int]:
    """Return (first, last + 1) of the slots that start within a day.

    :param day: number of days since 1970
    """
    first, end = (math.ceil(time * rules.DAY_SECONDS / period_seconds)
                  for time in (day, day + 1))
    return first, end


def pack_day(sums: Iterable, alone: Iterable,
             capacities: Iterable[float]) -> bytes:
    """Return bytes for the slots of a day, for all limits.

    :param sums: (l, t) as in :func:`pack`
    """
    return b''.join(map(pack, sums, alone, capacities))


def of_limits(stored: model_store.StoredSums | None, limits: tuple,
              slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of a day for some limits.

    :param limits: tuple of l (weights, packet bytes, capacity)
    :returns: (sums, alone), (l, t) each; slots are unknown if the day is
        missing or damaged, or has no such limit
    """
    sums = np.full((len(limits), slots), np.nan)
    alone = np.zeros(sums.shape, dtype=bool)
    size = bytes_needed(slots)
    if stored is not None and len(stored.data) == size * len(stored.limits):
        place = {limit[:2]: i for i, limit in enumerate(stored.limits)}
        for i, limit in enumerate(limits):
            at = place.get(limit[:2])
            if at is not None:
                sums[i], alone[i] = unpack(
                    stored.data[at * size:(at + 1) * size], slots,
                    stored.limits[at][2])
    return sums, alone


def history(store: model_store.Store, kind: str, now: float,
            names: Collection[str] | None = None,
            days: float = 7.0) -> dict[str, Sums]:
    """Return the sums of some days, with the same slots for all names.

    Slots are as long as the current period, but at least one minute. A slot
    has the sum that was measured in its middle, with whatever period.

    :param now: current time, seconds UTC; the last slot is the last one that
        has ended
    :returns: {name: :class:`Sums`}; a limit that no longer exists is omitted,
        and slots of damaged days are unknown
    """
    state = store.budget_state()
    if state is None:
        return {}
    period = max(state.period_seconds, _SHORTEST_SECONDS)
    end = int(now // period)
    first = end - int(days * rules.DAY_SECONDS // period)
    days_of_name = {}
    for stored in store.sum_history(kind, names, int(
            first * period // rules.DAY_SECONDS)):
        days_of_name.setdefault(stored.name, []).append(stored)
    for stored_days in days_of_name.values():
        # The limits in force are those of the current period.
        stored_days.sort(key=lambda stored: (
            stored.day, stored.period_seconds == state.period_seconds))
    return {name: _joined(name, stored_days, period, first, end)
            for name, stored_days in days_of_name.items()}


def _joined(name, stored_days, period, first, end):
    limits = stored_days[-1].limits
    sums = np.full((len(limits), end - first), np.nan)
    alone = np.zeros(sums.shape, dtype=bool)
    for stored in stored_days:
        begin, stop = slots_of_day(stored.day, stored.period_seconds)
        low, high = (int(np.clip(math.floor(
            slot * stored.period_seconds / period + 0.5), first, end))
            for slot in (begin, stop))
        if low >= high:
            continue
        day_sums, day_alone = of_limits(stored, limits, stop - begin)
        middles = period * (np.arange(low, high) + 0.5)
        at = np.clip((middles // stored.period_seconds).astype(int) - begin,
                     0, stop - begin - 1)
        is_known = ~np.isnan(day_sums[:, at])
        slots = slice(low - first, high - first)
        sums[:, slots] = np.where(is_known, day_sums[:, at], sums[:, slots])
        alone[:, slots] = np.where(is_known, day_alone[:, at],
                                   alone[:, slots])
    return Sums(name, period, first, limits, sums, alone)
