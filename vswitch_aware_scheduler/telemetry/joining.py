# SPDX-License-Identifier: Apache-2.0
"""Decides by values which series are readings of the same counter.

Labels do not always separate the interfaces of an instance, and do not always
connect the readings of one counter. Two series that overlap in time are
readings of the same counter (of two replicas, or of agents that alternate) if
each value is between those that the other one has up to two changes before and
after. Otherwise they are different counters. Pure: no clock, no I/O.
Derivation: reference/counters.rst, "Several series".
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import typing

import numpy as np

__all__ = ['Joined', 'PERIODS_BEFORE', 'Standstill', 'continued',
           'is_outage', 'join', 'standstills', 'usable']

#: (times in seconds UTC, values) of a counter, by time.
Column = tuple[np.ndarray, np.ndarray]

#: Smallest share of values that agree if two counters are the same, and
#: largest share if they are different.
_SAME = 0.75
_DIFFERENT = 0.25

#: A reading that follows another one after less than this share of the usual
#: interval is of another clock, and says nothing new.
_CLOSE = 0.25

#: Readings of another host continue a counter if it rises at most this
#: multiple of its rate before or after.
_CONTINUED = 2.0
#: Number of readings that show this rate.
_AROUND = 10

#: Number of instances that have to stand still together.
_TOGETHER = 3
#: A standstill is longer than this multiple of the usual time between two
#: changes of any of their counters, and follows this number of changes.
_STILL = 4.0
_CHANGES = 4
#: A standstill that has not ended yet may become one.
_MAYBE_STILL = 2.0

#: Number of periods before a reading that show whether a source stood still.
PERIODS_BEFORE = 8
#: After an outage counters rise by more than this multiple of the usual rise,
#: and differ at most by this factor from the rise that was expected.
_JUMP = 2.0


@dataclasses.dataclass(frozen=True)
class Joined:
    """The counters that several series are readings of.

    :ivar counters: list of {number of the query: (times, values)}
    :ivar same: whether several series are readings of one counter
    :ivar undecided: whether series may be of one or of several counters
    """

    counters: list[dict[int, Column]]
    same: bool = False
    undecided: bool = False


def usable(times: typing.Any, values: typing.Any) -> Column:
    """Return the readings that are numbers, sorted by time.

    Of several values at one time, and of readings that follow each other
    after a small part of the usual interval, one is returned.

    :param times: (n,) seconds UTC, in any order
    :param values: (n,) values of the counter
    """
    times, values = np.asarray(times, float), np.asarray(values, float)
    finite = np.isfinite(times) & np.isfinite(values)
    times, values = times[finite], values[finite]
    order = np.argsort(times, kind='stable')
    times, values = times[order], values[order]
    last = np.ones(times.size, dtype=bool)
    last[:-1] = times[1:] != times[:-1]
    times, values = times[last], values[last]
    if times.size > 2:
        apart = np.diff(times)
        close = apart < _CLOSE * np.quantile(apart, 0.9)
        if close.any():
            keep = np.append(True, ~close)
            times, values = times[keep], values[keep]
    return times, values


def join(columns: Mapping[int, Mapping[tuple[tuple[str, str], ...], Column]]
         ) -> Joined:
    """Return the :class:`Joined` counters of series that labels do not tell.

    :param columns: {number of the query: {labels as a sorted tuple of pairs:
        (times, values) as :func:`usable` returns them}}
    """
    if all(len(series) == 1 for series in columns.values()):
        return Joined([{number: column for number, series in columns.items()
                        for column in series.values()}])
    by_labels = {}
    varying = _varying(columns)
    for number, series in columns.items():
        for pairs, column in series.items():
            if column[0].size:
                labels = dict(pairs)
                by_labels.setdefault(tuple(
                    labels.get(name, '') for name in varying),
                    {})[number] = column
    counters, same, undecided = [], False, False
    for unit in sorted(by_labels.values(), key=_begin):
        shares = [counter.agreement(unit) for counter in counters]
        free = [counter for counter, share in zip(counters, shares)
                if share is None]
        best = max(filter(None, shares), default=0.0)
        if best >= _SAME:
            counters[shares.index(best)].add(unit)
            same = True
        elif free:
            # The series has other labels from now on.
            min(free, key=lambda counter: counter.rise(unit)).add(unit)
        else:
            undecided |= best > _DIFFERENT
            counters.append(_Counter(unit))
    return Joined([counter.columns() for counter in counters], same,
                  undecided)


def continued(hosts: Sequence[dict[int, Column]], update: float
              ) -> list[dict[int, Column]]:
    """Return the series of hosts, with those of one counter joined.

    An exporter that restarts below another address, and a second exporter of
    the same host, look like another host. The counter of another host is
    unrelated.

    :param hosts: list of {number of the query: (times, values)}
    :param update: interval at which the counters are updated, in seconds
    """
    counters = []
    for unit in sorted(filter(None, hosts), key=_begin):
        for counter in counters:
            share = counter.agreement(unit)
            if (counter.is_continued(unit, update) if share is None
                    else share >= _SAME):
                counter.add(unit)
                break
        else:
            counters.append(_Counter(unit))
    return [counter.columns() for counter in counters]


def _begin(unit):
    return min(times[0] for times, _ in unit.values())


def _varying(columns):
    """Return the names of labels that differ within one of the columns."""
    varying = set()
    for series in columns.values():
        first, *others = map(dict, series)
        for labels in others:
            varying.update(
                name for name in first.keys() | labels.keys()
                if first.get(name) != labels.get(name))
    return sorted(varying - {'__name__'})


class _Counter:
    """A counter and the series that are its readings.

    :param unit: {number of the query: (times, values)} of its first series
    """

    def __init__(self, unit):
        self._units = [unit]
        self._columns = None

    def add(self, unit):
        """Add a series.

        :param unit: as for the first one
        """
        self._units.append(unit)
        self._columns = None

    def columns(self):
        """Return {number of the query: (times, values)} of all series."""
        if self._columns is None:
            self._columns = {
                number: _merged([unit[number] for unit in self._units
                                 if number in unit])
                for number in sorted(set().union(*self._units))}
        return self._columns

    def _last(self, number):
        """Return (time, value) of the last reading of a query."""
        return max((unit[number][0][-1], unit[number][1][-1])
                   for unit in self._units if number in unit)

    def _common(self, unit):
        return sorted(set().union(*self._units) & unit.keys())

    def agreement(self, unit):
        """Return the share of values that agree; None without an overlap.

        :param unit: a series that does not begin earlier
        """
        agree, count = 0, 0
        for number in self._common(unit):
            if unit[number][0][0] > self._last(number)[0]:
                continue
            end = self.columns()[number][0][-1]
            times, values = _changes(*self.columns()[number])
            moments, level = _changes(*unit[number])
            inside = moments <= (times[-1] if times.size > 2 else end)
            if not inside.any():
                inside = moments <= end
            at = np.searchsorted(times, moments[inside])
            around = np.stack([
                values[np.clip(at + shift, 0, times.size - 1)]
                for shift in (-2, -1, 0, 1)])
            value = level[inside]
            agree += int(((around.min(axis=0) <= value)
                          & (value <= around.max(axis=0))).sum())
            count += value.size
        return agree / count if count else None

    def rise(self, unit):
        """Return by how much a later series is above the end of this one.

        :param unit: the later series
        """
        rises = [unit[number][1][0] - self._last(number)[1]
                 for number in self._common(unit)]
        return max(rises, default=0.0) if min(rises, default=0) >= 0 \
            else np.inf

    def is_continued(self, unit, update):
        """Whether a later series begins where this one ends.

        :param unit: the later series
        :param update: interval at which the counters are updated, in seconds
        """
        for number in self._common(unit):
            end, last = self._last(number)
            times, values = unit[number]
            rates, apart = [0.0], 0.0
            for at, level in (
                    [column[-_AROUND:] for column in self.columns()[number]],
                    [column[:_AROUND] for column in unit[number]]):
                if len(at) > 1:
                    rates.append((level[-1] - level[0]) / (at[-1] - at[0]))
                    apart = max(apart, (at[-1] - at[0]) / (len(at) - 1))
            if not 0 <= values[0] - last <= _CONTINUED * max(rates) * (
                    times[0] - end + 2 * update + apart):
                return False
        return bool(self._common(unit))


def _changes(times, values):
    """Return the first reading of each value: a source may repeat values."""
    changed = np.append(True, np.diff(values) != 0)
    return times[changed], values[changed]


def _merged(series):
    """Return the readings of several series of one counter as one series.

    A value below an earlier one is of a replica that is late, except where
    the series itself was reset.
    """
    if len(series) == 1:
        return series[0]
    density = sum((times.size - 1) / (times[-1] - times[0])
                  for times, _ in series if times.size > 1)
    closest = 0.5 / density if density else 0.0
    ends = list(itertools.accumulate(
        (times[-1] for times, _ in series), max, initial=-np.inf))
    times = np.concatenate([times for times, _ in series])
    values = np.concatenate([values for _, values in series])
    reset = np.concatenate([
        np.append(times[0] > end, np.diff(values) < 0)
        for (times, values), end in zip(series, ends)])
    order = np.argsort(times, kind='stable')
    keep, top, newest = [], -np.inf, -np.inf
    for at, time, value, is_reset in zip(
            order.tolist(), times[order].tolist(), values[order].tolist(),
            reset[order].tolist()):
        if is_reset or value >= top:
            if keep and not is_reset and time - newest < closest:
                # Of close readings the last one is the newest poll.
                keep[-1] = at
            else:
                keep.append(at)
                newest = time
            top = value
    return times[keep], values[keep]


class Standstill(typing.NamedTuple):
    """A time at which all counters of a source stand still.

    :ivar begin: time of the last change before, seconds UTC
    :ivar end: time of the next change, infinite if there is none yet
    :ivar usual: usual time between two changes, seconds
    :ivar instances: number of instances that changed until then
    """

    begin: float
    end: float
    usual: float
    instances: int


def standstills(series: Mapping[str, list[Column]]) -> list[Standstill]:
    """Return the times at which the counters of a source stand still.

    :param series: {instance: columns} of all instances of the source
    """
    changes = []
    for columns in series.values():
        moments = np.unique(np.concatenate([np.empty(0), *(
            _changes(*column)[0][1:] for column in columns
            if column[0].size)]))
        if moments.size > _CHANGES:
            changes.append(moments)
    if not changes:
        return []
    moments = np.unique(np.concatenate(changes))
    newest = max(times[-1] for columns in series.values()
                 for times, _ in columns if times.size)
    # How often each of them usually changes.
    usual = max(sorted(float(np.median(np.diff(each)))
                       for each in changes)[:_TOGETHER])
    apart = np.diff(np.append(moments, newest))
    ends = np.append(moments[1:], np.inf)
    found = []
    for at in np.flatnonzero(apart > np.where(
            ends < np.inf, _STILL, _MAYBE_STILL) * usual).tolist():
        # Only instances that changed shortly before are expected to change.
        begin = float(moments[at])
        steady = sum(int(((each <= begin) & (
            each > begin - 2 * _CHANGES * usual)).sum()) >= _CHANGES
            for each in changes)
        if steady:
            found.append(Standstill(begin, float(ends[at]), usual, steady))
    return found


def is_outage(still: Standstill, series: Mapping[str, list[Column]],
              polls: Sequence[Column] = ()) -> bool:
    """Return whether a source repeated its last poll, or was silent.

    A source that repeats its last poll, such as a gateway whose publisher has
    ended, looks like silence of all its instances. Where the source states the
    times of its polls, they decide: in an outage, one of them stands still as
    well. Elsewhere, several instances that stand still together are an outage,
    unless they send no more afterwards than they did before. One or two
    instances may be silent together; they were not if each of their counters
    rises at the end by as much as it would have risen in that time.

    :param polls: columns whose values are the times of the source's polls
    """
    latest = still.begin + still.usual / 2
    # Other processes may state times of theirs, now and then.
    regular = [moments for moments in (
        _changes(*column)[0][1:] for column in polls if column[0].size)
        if np.count_nonzero((moments <= latest) & (
            moments > latest - 2 * _CHANGES * still.usual)) >= _CHANGES]
    if regular:
        return any(not ((moments > latest) & (moments < still.end)).any()
                   for moments in regular)
    together = still.instances >= _TOGETHER
    if still.end == np.inf:
        return together
    columns = [column for columns in series.values() for column in columns
               if column[0].size]
    volumes = np.array([np.interp(
        [still.begin - _CHANGES * still.usual, still.begin,
         still.end + still.usual * together], *column) for column in columns])
    before, after = np.maximum(np.diff(volumes, axis=1), 0).T
    if together:
        return bool(after.sum() > 2 * _JUMP * before.sum() / _CHANGES)
    expected = before / (_CHANGES * still.usual) * (still.end - still.begin)
    return bool(expected.any() and (
        (after >= expected / _JUMP) & (after <= expected * _JUMP)).all())
