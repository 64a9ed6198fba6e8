# SPDX-License-Identifier: Apache-2.0
"""Recorded traffic on a grid of time, and its part known at a moment.

No clock and no configuration; only the telemetry driver reads files.
"""

import dataclasses
import functools

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab import stated
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['History', 'KnownTraffic', 'Trace', 'load', 'load_groups',
           'load_needs']

DAY_SECONDS = 86400
_WEEK_SECONDS = 7 * DAY_SECONDS


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """The traffic of V instances in T bins of equal length.

    Use :func:`load` or :meth:`from_series`.

    :ivar times: (T,) start of each bin, increasing; there are no bins between
        two recordings
    :ivar rates: (V, T) sum of egress and ingress in kbit/s; NaN without a
        sample
    :ivar columns: tuple of V int64 arrays, the bins of the samples
    """

    series: tuple
    period_seconds: float
    times: np.ndarray
    columns: tuple
    rates: np.ndarray

    @property
    def uuids(self) -> tuple:
        """Tuple of instance uuids in the order of the rows."""
        return tuple(recording.instance_uuid for recording in self.series)

    @classmethod
    def from_series(cls, series) -> 'Trace':
        """Return the Trace of series, from the first to the last sample.

        :raises InvalidInput: if no series has a sample
        """
        series = tuple(series)
        recorded = [recording for recording in series if len(recording)]
        if not recorded:
            raise exceptions.InvalidInput(
                f'trace of {len(series)} instances: no sample; expected at '
                'least one')
        lengths, counts = np.unique(
            [recording.period_seconds for recording in recorded],
            return_counts=True)
        period = float(lengths[np.argmax(counts)])
        start = min(recording.times[0] for recording in recorded)
        # Tolerance of a thousandth of a bin for imprecise clocks and rounding.
        columns = tuple(
            np.floor((recording.times - start) / period
                     + 1e-3).astype(np.int64)
            for recording in series)
        lengths = [max(1, round(recording.period_seconds / period))
                   for recording in series]
        bins = max(int(column[-1]) + length
                   for column, length in zip(columns, lengths) if column.size)
        rates = np.full((len(series), bins), np.nan)
        for row, (recording, column, length) in enumerate(
                zip(series, columns, lengths)):
            samples = np.bincount(column, minlength=bins)
            total = np.bincount(
                column, weights=recording.rates[:, :2].sum(axis=1),
                minlength=bins)
            filled = samples > 0
            rates[row, filled] = total[filled] / samples[filled]
            for later in range(1, length):
                following = np.flatnonzero(filled) + later
                following = following[following < bins]
                following = following[np.isnan(rates[row, following])]
                rates[row, following] = rates[row, following - later]
        return cls(series, period, start + period * np.arange(bins), columns,
                   rates)

    def thinned(self, missing_share, generator):
        """Return this trace without a random part of its samples."""
        rates, series, columns = self.rates.copy(), [], []
        for row, (recording, column) in enumerate(
                zip(self.series, self.columns)):
            kept = generator.random(column.size) >= missing_share
            rates[row, np.setdiff1d(column, column[kept])] = np.nan
            series.append(dataclasses.replace(
                recording, times=recording.times[kept],
                rates=recording.rates[kept]))
            columns.append(column[kept])
        return Trace(tuple(series), self.period_seconds, self.times,
                     tuple(columns), rates)

    def after(self, past) -> tuple:
        """Return this trace with another trace as its past.

        The other trace is moved by whole weeks, so that it keeps hours and
        weekdays, to end before this trace starts. The instances are those of
        this trace; an instance that the other trace lacks has no past.

        :returns: (Trace, number of bins of the past)
        :raises InvalidInput: if the bins differ in length
        """
        if past.period_seconds != self.period_seconds:
            raise exceptions.InvalidInput(
                f'sampling period of the training trace: '
                f'{past.period_seconds:g} s; expected {self.period_seconds:g} '
                f's as in the evaluated trace')
        overlap = past.times[-1] + past.period_seconds - self.times[0]
        moved = _WEEK_SECONDS * max(0.0, np.ceil(overlap / _WEEK_SECONDS))
        bins = past.times.size
        rows = {uuid: row for row, uuid in enumerate(past.uuids)}
        rates = np.full((len(self.series), bins + self.times.size), np.nan)
        rates[:, bins:] = self.rates
        series, columns = [], []
        for row, recording in enumerate(self.series):
            column = self.columns[row] + bins
            past_row = rows.get(recording.instance_uuid)
            if past_row is not None:
                earlier = past.series[past_row]
                rates[row, :bins] = past.rates[past_row]
                recording = rate_series.RateSeries(
                    recording.instance_uuid, recording.period_seconds,
                    np.concatenate([earlier.times - moved, recording.times]),
                    np.concatenate([earlier.rates, recording.rates]))
                column = np.concatenate([past.columns[past_row], column])
            series.append(recording)
            columns.append(column)
        times = np.concatenate([past.times - moved, self.times])
        return Trace(tuple(series), self.period_seconds, times,
                     tuple(columns), rates), bins


def load(path: str, progress=None) -> Trace:
    """Read a trace with the telemetry driver ``file``.

    :raises TelemetryError: if the trace cannot be read
    """
    return Trace.from_series(
        telemetry_file.FileDriver(path).series(progress=progress))


def load_needs(path: str, uuids: tuple) -> np.ndarray:
    """Return the cores and the memory of the instances of a trace.

    :returns: (V, 2) cores and memory in MB
    :raises InvalidInput: if a value is missing
    """
    instances = {instance.uuid: instance for instance
                 in telemetry_file.FileDriver(path).instances()}
    needs = np.zeros((len(uuids), 2))
    for row, uuid in enumerate(uuids):
        instance = instances[uuid]
        for column, (key, unit) in enumerate((('cpu_cores', 1.0),
                                              ('memory_kb', 1024.0))):
            try:
                value = float(instance.metadata.get(key))
            except (TypeError, ValueError):
                value = np.nan
            if not 0 <= value < np.inf:
                raise exceptions.InvalidInput(
                    f'instance {instance.name or uuid} of trace {path}: '
                    f'{key}: {instance.metadata.get(key)!r}; expected a '
                    f'number from 0, from a GWA-T-12 trace or from vms_X.csv '
                    f'beside X.npz. For other traces, omit --host-cores and '
                    f'--host-memory-mb')
            needs[row, column] = value / unit
    return needs


def load_groups(path: str) -> dict:
    """Return {instance uuid: (flavor, project)} of a CSV file.

    :raises InvalidInput: if the file cannot be read
    """
    place, groups = f'groups {path}', {}
    columns = ('instance', 'flavor', 'project')
    text = stated.read(path, place, 'CSV with the columns instance, flavor '
                       'and project')
    for _, row in stated.read_csv(text, place, columns[:1]):
        groups[telemetry_file.instance_uuid(row['instance'])] = tuple(
            row.get(column) or None for column in columns[1:])
    return groups


class History:
    """What becomes known of a trace as time passes.

    :param known_from: (V,) bin from which on each instance is measured
    :param known_until: (V,) bin from which on each instance is not measured
        any more; default: none ends
    :param half_life_days: age at which a sample counts half; 0: none ages
    """

    def __init__(self, trace, begin: int, known_from, known_until=None,
                 half_life_days: float = 0) -> None:
        self._trace = trace
        self._begin = begin
        self._known_from = np.maximum(known_from, begin)
        self._known_until = np.full(
            len(trace.series), trace.times.size) if known_until is None \
            else np.asarray(known_until)
        self._half_life_seconds = half_life_days * DAY_SECONDS
        self._counted = 0
        self._counts = [None] * len(trace.series)

    def until(self, end: int) -> 'KnownTraffic':
        """Return the KnownTraffic at the start of a bin.

        :param end: the bin, which has to increase from call to call
        """
        return KnownTraffic(self._trace, self._known(end),
                            functools.partial(self._counts_until, end))

    def delivered(self, longest_seconds: float) -> np.ndarray:
        """Return (V, B) rates as telemetry delivers them.

        The previous sample replaces a missing sample for some time. After
        that, and before an instance is measured, the rate is 0.

        :param longest_seconds: longest time for which a sample replaces others
        """
        bins = np.arange(self._trace.times.size)
        rates = np.where(self._known(bins.size), self._trace.rates, np.nan)
        last = np.maximum.accumulate(
            np.where(np.isnan(rates), -1, bins), axis=1)
        longest = longest_seconds / self._trace.period_seconds
        stale = (last < 0) | (bins - last > longest)
        return np.where(stale, 0.0, np.take_along_axis(
            rates, np.maximum(last, 0), axis=1))

    def _known(self, end):
        column = np.arange(end)
        return (column < self._begin) | (
            (column >= self._known_from[:, None])
            & (column < self._known_until[:, None]))

    def _counts_until(self, end):
        """Return the counts, with new samples merged into the previous counts.

        The modeler learns in the same way: it does not read the past again.
        """
        if end == self._counted:
            return tuple(self._counts)
        if end < self._counted:
            raise exceptions.InvalidInput(
                f'bin {end}: requested after bin {self._counted}; expected '
                'bins in increasing order')
        pieces = {}
        for row, recording in enumerate(self._trace.series):
            column = self._trace.columns[row]
            is_available = (column < end) & (
                (column < self._begin) | (
                    (column >= self._known_from[row])
                    & (column < self._known_until[row])))
            new = is_available & (column >= self._counted)
            if new.any():
                pieces[row] = dataclasses.replace(
                    recording, times=recording.times[new],
                    rates=recording.rates[new])
        for row, piece in zip(pieces, estimate.count_all(
                list(pieces.values()))):
            earlier = self._counts[row]
            if earlier is not None:
                if self._half_life_seconds:
                    earlier = earlier.aged(0.5 ** (
                        (piece.last_time - earlier.last_time)
                        / self._half_life_seconds))
                piece = earlier.merged(piece)
            self._counts[row] = piece
        self._counted = end
        return tuple(self._counts)


class KnownTraffic:
    """The history of V instances up to one moment.

    :param known: (V, t) bool, whether a bin is known
    :ivar times: (t,) start of each bin
    :ivar rates: (V, t) bandwidth in kbit/s, NaN if unknown
    """

    def __init__(self, trace, known, counts) -> None:
        end = known.shape[1]
        self.rates = np.where(known, trace.rates[:, :end], np.nan)
        self.period_seconds = trace.period_seconds
        self.times = trace.times[:end]
        self.uuids = trace.uuids
        #: (V, t) bool: bins in which an instance existed and was measured.
        self.present = known
        self._counts = counts
        self._derived = {}

    def derived(self, key, make):
        """Return the result of a function, cached by a key."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    @functools.cached_property
    def counts(self):
        """Tuple of V TransitionCounts, or None without a sample."""
        return self._counts()

    @functools.cached_property
    def samples(self) -> np.ndarray:
        """(V,) number of samples."""
        return np.count_nonzero(~np.isnan(self.rates), axis=1)

    @functools.cached_property
    def peak(self) -> np.ndarray:
        """(V,) largest sample; 0 without samples."""
        return np.fmax.reduce(self.rates, axis=1, initial=0.0)

    @functools.cached_property
    def mean(self) -> np.ndarray:
        """(V,) mean of the samples; 0 without samples."""
        return np.nansum(self.rates, axis=1) / np.maximum(self.samples, 1)

    @functools.cached_property
    def variance(self) -> np.ndarray:
        """(V,) variance of the samples; 0 without samples."""
        away = self.rates - self.mean[:, None]
        return np.nansum(away * away, axis=1) / np.maximum(self.samples, 1)

    @functools.cached_property
    def p99(self) -> np.ndarray:
        """(V,) smallest rate that 99 % of the samples do not exceed, or 0."""
        if not self.rates.shape[1]:
            return np.zeros(len(self.rates))
        ranked = np.sort(self.rates, axis=1)         # NaN comes last
        positions = np.ceil(0.99 * self.samples - 1e-9).astype(np.int64) - 1
        percentiles = ranked[
            np.arange(len(ranked)), np.maximum(positions, 0)]
        return np.where(self.samples > 0, percentiles, 0.0)
