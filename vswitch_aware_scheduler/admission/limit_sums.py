# SPDX-License-Identifier: Apache-2.0
"""The sums of the rates of the instances on hosts, for each limit.

For each host and limit, the distribution of the sum is kept as a look-up
table. If residents were sampled at the instants, the table is adapted to their
sums there, which are kept as well. This module makes no decisions. Derivation:
reference/model.rst, reference/admission.rst.
"""

from __future__ import annotations

import collections
import functools
import typing

import numpy as np

from vswitch_aware_scheduler.admission import joint
from vswitch_aware_scheduler.admission import sources as admission_sources
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['ERROR', 'LimitLoad', 'LimitSums', 'SLACK']

#: Relative error of smooth tails.
ERROR = 1e-3

#: A sum exceeds a capacity if it is larger by this factor.
SLACK = 1 + fourier_sum.TOLERANCE

#: Kinds of look-up tables. SMOOTH: many rates that are not on a grid, so that
#: the tail is smooth. ROUGH: many whose tail has steps, because few of them
#: are large or equal, or because the sum varies by a few cells only; the tail
#: is smoothed on a finer scale. FEW: few such rates, which are rounded to a
#: finer grid. ON_GRID: all rates are on the grid of the tables. FINE: all
#: rates are on a finer grid, and the tables use that grid.
_SMOOTH, _ROUGH, _FEW, _ON_GRID, _FINE = range(5)

#: Number of grid cells in one table cell: SMOOTH; ROUGH, FEW and FINE.
_SMOOTHER, _FINER = 2, 8

#: Smoothing of ROUGH tails, in grid cells. 1 % of the capacity is 20 grid
#: cells, 8 of which a table may move a step. With a smaller number, the
#: frequencies that are missing would show in tails of 1e-9.
_SPREAD = 2.25

#: A sum with a smaller standard deviation, in cells, is ROUGH.
_FEW_CELLS = 2.5

#: Maximum number of sources of the kind FEW. Rounding moves their sum by at
#: most half a grid cell each, together 0.5 % of the capacity.
_MOST_FEW = 20

#: Smallest overload probability that is not 0.
_LEAST = 1e-250

#: Absolute error of a tail by rounding.
_NOISE = 1e-12

#: Number of hosts whose look-up tables are computed together, and for which
#: the tables are read together, so that the arrays of a request do not grow
#: with the number of hosts.
_TOGETHER = 16
_READ_TOGETHER = 1024

#: Maximum number of cached Levels of laws and of cached parts of hosts, and
#: bytes of cached transforms of each kind.
_MOST_LAWS = 1024
_MOST_PARTS = 512
_MOST_BYTES = 2 ** 24

# Rows of LimitSums._numbers and of LimitSums._places. The mean is that above
# the base, which is the sum of the smallest rates; _LARGEST is the largest
# peak of one resident.
(_CAPACITY, _VM_PEAK, _PEAK, _MEAN, _BASE, _STEP, _LARGEST,
 _NUMBERS) = range(8)
_UNLIMITED = (np.inf, np.inf, 0.0, 0.0, 0.0, 0.0, 0.0)
_UNIT, _KIND, _LINE, _SUMS_LINE, _PLACES = range(5)
_NO_LINE = -1
_NOWHERE = (0, 0, _NO_LINE, _NO_LINE)

#: (504,) probabilities of equal distance in a fixed random order.
_SHUFFLED = (np.random.RandomState(1).permutation(sampled.INSTANTS)
             + 0.5) / sampled.INSTANTS


_Rows: typing.TypeAlias = np.ndarray | slice


class LimitLoad(typing.NamedTuple):
    """The load of the limits of hosts with one more instance.

    (l, h) arrays; capacities of limits that a host does not have are inf.
    """

    capacity: np.ndarray
    vm_peak: np.ndarray
    mean: np.ndarray
    instance_peak: np.ndarray
    overload_probability: np.ndarray
    loss: np.ndarray

    def of(self, where: np.ndarray) -> LimitLoad:
        """Return a copy for some of the hosts."""
        return LimitLoad(*(values.take(where, axis=1) for values in self))


class _Limit(typing.NamedTuple):
    """A limit of a host that needs a look-up table."""

    position: int
    row: int
    kind: int
    unit: admission_sources.Unit
    step: float                  # one table cell
    parts: list[admission_sources.HostPart]
    mean: float                  # in table cells, above the smallest rates
    sampled: float               # number of residents sampled at instants
    residents: int


class LimitSums:
    """The sums of the rates of instances on hosts.

    :param hosts: by row, each with ``row``, ``policy`` and ``residents``; the
        caller appends to this list
    """

    def __init__(self, cells: int, hosts: list[typing.Any]) -> None:
        self._cells = cells
        self._hosts = hosts
        self._units = {}         # (weights, packet bytes) -> unit number
        #: The peaks given to :meth:`expect`, and those of instances for which
        #: look-up tables were computed.
        self.expected = {}
        # Arrays of the vectorised path: numbers; and the unit, the kind and
        # the lines of the look-up table and of the sums.
        self._numbers = np.zeros((_NUMBERS, 0, 0))
        self._places = np.zeros((_PLACES, 0, 0), dtype=np.int64)
        self._stale = np.zeros(0, dtype=bool)
        # By kind.
        self._grids = [fourier_sum.grid(cells, _SMOOTHER, on_grid=False),
                       fourier_sum.grid(cells, _FINER, False, _SPREAD),
                       fourier_sum.grid(cells, _FINER),
                       fourier_sum.grid(cells),
                       fourier_sum.grid(cells * _FINER)]
        # By kind, the first three together. Smooth tails need no more digits
        # than ERROR.
        self._tables = [*[_Tables(cells, np.complex64)] * 3,
                        _Tables(cells, np.complex128),
                        _Tables(cells * _FINER, np.complex128)]
        # Sums at the instants as shares of the capacity, their weights, and
        # how far they count.
        self._at_instants = admission_sources.Rows(
            ('<f4', (sampled.INSTANTS,)), ('<f4', (sampled.INSTANTS,)),
            ('<f4', ()))
        # Caches: Levels of laws, figures of laws, transforms of laws by kind,
        # and parts of hosts. None refers to this object, so that its memory is
        # freed at once.
        self._levels = functools.lru_cache(_MOST_LAWS)(
            admission_sources.Levels)
        self._figures = admission_sources.KnownLaws(4 * _MOST_LAWS)
        self._transforms = [admission_sources.KnownLaws(
            _MOST_BYTES // (16 * grid.frequencies)) for grid in self._grids]
        self._known_part = functools.lru_cache(_MOST_PARTS)(
            admission_sources.HostPart)

    def share_cache(self, other: LimitSums) -> None:
        """Use what another LimitSums has computed for single laws."""
        self._figures, self._transforms = other._figures, other._transforms

    def set_limits(self, host: typing.Any) -> None:
        """Set the limits of a host to those of its policy."""
        row, policy = host.row, host.policy
        self._grow(len(policy.limits), row + 1)
        self._free(row)
        self.outdate(host)
        self._numbers[..., row] = np.array(_UNLIMITED)[:, None]
        for position, (weights, capacity, vm_peak) in enumerate(policy.limits):
            unit = tuple(weights), (policy.profile.typical_packet_bytes
                                    if weights[2] else None)
            self._places[_UNIT, position, row] = self._units.setdefault(
                unit, len(self._units))
            self._numbers[:_PEAK, position, row] = capacity, vm_peak

    def _grow(self, limits: int, rows: int) -> None:
        """Resize the arrays for a number of limits and rows."""
        old_rows = self._stale.size
        size = (max(limits, self._numbers.shape[1]),
                old_rows if rows <= old_rows else rows + rows // 2)
        if size == self._numbers.shape[1:]:
            return

        def grown(array: np.ndarray, fill: tuple[float, ...]) -> np.ndarray:
            new = np.empty((len(array), *size), dtype=array.dtype)
            new[:] = np.array(fill)[:, None, None]
            new[:, :array.shape[1], :old_rows] = array
            return new

        self._numbers = grown(self._numbers, _UNLIMITED)
        self._places = grown(self._places, _NOWHERE)
        self._stale = np.append(self._stale,
                                np.ones(size[1] - old_rows, bool))

    def outdate(self, host: typing.Any) -> None:
        """Compute the sums of a host again when they are next used."""
        # Without limits there is nothing to compute.
        self._stale[host.row] = bool(host.policy.limits)

    def update(self, rows: np.ndarray) -> None:
        """Compute the outdated sums of the given hosts."""
        stale = self._stale.take(rows)
        if stale.any():
            # np.unique loads numpy.ma at its first call, which would make the
            # first request of a worker slow.
            self._refresh(sorted(set(rows[stale].tolist())))

    def with_source(self, rows: _Rows, law: rate_law.RateLaw) -> LimitLoad:
        """Return the :class:`LimitLoad` of hosts with one more instance.

        A host with outdated sums has overload_probability 0.

        :param rows: (h,) int, or a slice, for which less is copied
        """
        # A rate beyond the range of floats is always too much.
        with np.errstate(over='ignore', invalid='ignore'):
            return self._with_source(rows, law)

    def _with_source(self, rows: _Rows, law: rate_law.RateLaw) -> LimitLoad:
        # Copy only what is needed: allocating memory takes longer than
        # computing.
        capacity, vm_peak, peak, mean, base = _at(
            self._numbers[:_STEP], rows)
        units = _at(self._places[_UNIT], rows)
        levels = self._levels(law, tuple(self._units))
        mean = mean + base
        mean += levels.means.take(units)
        peaks = levels.peaks.take(units)
        probability, loss = np.zeros((2, *mean.shape))
        # If the sum of all peaks fits, there is no overload and no table is
        # needed.
        exceeds = peak + peaks > capacity * SLACK
        exceeds &= ~_at(self._stale, rows)
        exceeds = np.flatnonzero(exceeds)
        if exceeds.size:
            limit, at = np.divmod(exceeds, mean.shape[1])
            at = np.arange(self._stale.size)[rows][at]
            at += limit * self._stale.size
            places = self._places.reshape(_PLACES, -1).take(at, axis=1)
            lacking = at[places[_LINE] == _NO_LINE]
            if lacking.size:
                self.expect(dict(zip(self._units, levels.peaks.tolist())))
                self._refresh(sorted(
                    set((lacking % self._stale.size).tolist())))
                return self._with_source(rows, law)
            effects = self._look_up(
                self._numbers.reshape(_NUMBERS, -1).take(at, axis=1), places,
                levels)
            # If not all peaks fit, overload is possible, however rare.
            probability.flat[exceeds] = np.maximum(effects[0], _LEAST)
            # A mean far above the capacity is lost almost entirely.
            means = mean.flat[exceeds]
            loss.flat[exceeds] = np.where(
                means < fourier_sum.MOST * capacity.flat[exceeds],
                effects[1] / means, 1)
        # The limits may change later.
        return LimitLoad(capacity.copy(), vm_peak.copy(), mean, peaks,
                         probability, loss)

    def expect(self, peaks: dict[admission_sources.Unit, float]) -> None:
        """Expect instances with such peaks.

        A host whose sum of peaks with the largest of these is within the
        capacity needs no look-up table.
        """
        # Another thread may add to them meanwhile.
        for unit, peak in list(peaks.items()):
            self.expected[unit] = max(peak, self.expected.get(unit, 0.0))

    def are_smooth(self, rows: _Rows) -> np.ndarray:
        """Return which hosts have a tail that is only exact up to ERROR."""
        return ((_at(self._places[_KIND], rows) <= _FEW)
                & (_at(self._places[_LINE], rows) != _NO_LINE)).any(axis=0)

    def have_giants(self, rows: _Rows) -> np.ndarray:
        """Return which hosts have a resident that exceeds a capacity alone."""
        return np.any(_at(self._numbers[_LARGEST], rows) > _at(
            self._numbers[_CAPACITY], rows) * SLACK, axis=0)

    def _free(self, row: int) -> None:
        for places in self._places[..., row].T:
            for line, lines in zip(places[_LINE:].tolist(), (
                    self._tables[places[_KIND]], self._at_instants)):
                if line != _NO_LINE:
                    lines.free(line)
            places[_KIND:] = _NOWHERE[_KIND:]

    def _refresh(self, rows: list[int]) -> None:
        with np.errstate(over='ignore', invalid='ignore', divide='ignore'):
            for begin in range(0, len(rows), _TOGETHER):
                chunk = rows[begin:begin + _TOGETHER]
                # Allocate one array for all instead of copying it repeatedly.
                for lines in self._tables[_SMOOTH], self._at_instants:
                    lines.expected = len(rows) - begin
                self._tabulate([limit for row in chunk
                                for limit in self._sum(self._hosts[row])])
                self._stale[chunk] = False

    def _sum(self, host: typing.Any) -> list[_Limit]:
        self._free(host.row)
        limits = tuple((self._unit(places), capacity) for places, (
            _, capacity, _) in zip(self._places[..., host.row].T,
                                   host.policy.limits))
        parts = self._parts_of(host, limits)
        to_tabulate = []
        for position, sums in enumerate(sum(part.sums for part in parts)):
            unit, _ = limits[position]
            numbers = self._numbers[:, position, host.row]
            places = self._places[:, position, host.row]
            numbers[_PEAK:_STEP] = sums[:_STEP - _PEAK]
            numbers[_LARGEST] = max(part.largest[position] for part in parts)
            # Whether all peaks fit.
            if numbers[_PEAK] + self.expected.get(unit, 0.0) \
                    <= numbers[_CAPACITY] * SLACK:
                continue
            kind, step = places[_KIND], numbers[_STEP] = self._kind_and_step(
                numbers[_CAPACITY], sums, np.concatenate([
                    part.steps[position] for part in parts]))
            places[_LINE] = self._tables[kind].take()
            if sums[admission_sources.SAMPLED]:
                places[_SUMS_LINE] = self._at_instants.take()
            mean = sums[admission_sources.ROUNDED_MEAN] if kind == _FEW \
                else numbers[_MEAN]
            to_tabulate.append(_Limit(position, host.row, kind, unit, step,
                                      parts, mean / step,
                                      sums[admission_sources.SAMPLED],
                                      len(host.residents)))
        return to_tabulate

    def _parts_of(self, host, limits):
        """Return the :class:`.HostPart` objects into which a host is divided.

        Parts of many residents are cached, so that a change computes one.
        """
        counts = collections.Counter(host.residents.values()) or {
            rate_law.SILENT: 0}
        of_parts: list[typing.Any] = [counts]
        make_part: typing.Any = admission_sources.HostPart
        if len(counts) > admission_sources.MOST_IN_PART:
            of_parts, make_part = (
                admission_sources.divided(counts), self._known_part)
        return [make_part(tuple(of_part.items()), limits, self._figures,
                          self._cells * _FINER) for of_part in of_parts]

    def _unit(self, places: np.ndarray) -> admission_sources.Unit:
        return list(self._units)[places[_UNIT]]

    def _kind_and_step(self, capacity, sums, steps):
        """Return the kind of look-up table of a limit, and its cell."""
        common = 0.0
        if steps.all():
            common = float(fourier_sum.common_step(
                np.where(steps < np.inf, steps, 0.0), capacity,
                self._cells * _FINER))
        if common > 0:
            kind = _ON_GRID if common * self._cells >= capacity / SLACK \
                else _FINE
        elif sums[admission_sources.ACTIVE] <= _MOST_FEW:
            kind = _FEW
        else:
            kind = _ROUGH if sums[admission_sources.VARIANCE] < (
                _FEW_CELLS / self._cells * capacity) ** 2 else _SMOOTH
        cells = self._cells * (_FINER if kind == _FINE else 1)
        unit = common if 0 < common < np.inf else capacity
        return kind, unit / np.floor(unit * cells / capacity * SLACK)

    def _tabulate(self, to_tabulate: list[_Limit]) -> None:
        by_kind = {}
        for limit in to_tabulate:
            by_kind.setdefault(limit.kind, []).append(limit)
        for kind, limits in by_kind.items():
            tables = self._tables_of(kind, limits)
            if kind == _SMOOTH:
                tails = tables.real[:, :self._cells + 1]
                # No tail rises: beside a step, smoothing made waves.
                waves = (tails[:, 1:] - tails[:, :-1]
                         > ERROR * tails[:, 1:] + _NOISE)
                for i in np.flatnonzero(waves.any(axis=1)).tolist():
                    # The lines of both kinds of tables are the same.
                    self._places[_KIND, limits[i].position,
                                 limits[i].row] = _ROUGH
                    [tables[i]] = self._tables_of(_ROUGH, [limits[i]])
            at = [i for i, limit in enumerate(limits) if limit.sampled]
            if at:
                self._adapt([limits[i] for i in at], tables, at)
            self._tables[kind].values[0][self._lines(_LINE, limits)] = tables

    def _adapt(self, limits, tables, at):
        """Keep the sums of limits at the instants, and adapt their tables.

        :param limits: s limits of one kind with sampled residents
        :param tables: (l, n) complex, tables of independent residents; those
            of residents that depend on each other are changed
        """
        sums, weights = np.array([
            sum(part.at_instants(limit.unit, self._figures)
                for part in limit.parts) for limit in limits]).swapaxes(0, 1)
        positions, rows, steps, sampled_ones = (
            np.array(values) for values in zip(*[
                (limit.position, limit.row, limit.step, limit.sampled)
                for limit in limits]))
        sums /= steps[:, None]
        np.minimum(sums, fourier_sum.MOST, out=sums)
        weights /= sampled_ones[:, None]
        for i, limit in enumerate(limits):
            if limit.sampled < limit.residents:
                # The others are independent of them: their sum takes each
                # value for its share of the instants, in an order that says
                # nothing.
                [others] = self._tables_of(limit.kind, [limit], True)
                sums[i] += np.interp(-_SHUFFLED, -others.real,
                                     np.arange(others.size))
        capacity, base, peaks = self._numbers[[_CAPACITY, _BASE, _PEAK]][
            :, positions, rows]
        lines = self._lines(_SUMS_LINE, limits)
        kept, its_weights, trust = self._at_instants.values
        kept[lines] = sums * (steps / capacity)[:, None]
        its_weights[lines] = weights
        adapted = tables[at]
        trust[lines] = joint.adapt(adapted, sums, weights, (
            joint.LADDER * capacity[:, None] - base[:, None])
            / steps[:, None], (peaks - base) / steps,
            limits[0].kind in (_ON_GRID, _FINE))
        tables[at] = adapted

    def _lines(self, number: int, limits: list[_Limit]) -> np.ndarray:
        """Return the (l,) lines of limits: _LINE or _SUMS_LINE."""
        return self._places[number, [limit.position for limit in limits],
                            [limit.row for limit in limits]]

    def _tables_of(self, kind, limits, unsampled=False):
        """Return the look-up tables of some limits, as if of a given kind."""
        grid, known = self._grids[kind], self._transforms[kind]
        spectra = np.array([
            functools.reduce(np.multiply, (
                part.transform(grid, limit.unit, limit.step, known, unsampled)
                for part in limit.parts)) for limit in limits])
        return grid.table(spectra, np.array([limit.mean for limit in limits]))

    def _look_up(self, numbers, places, levels):
        """Return the effect of one more source on some limits of some hosts.

        :param numbers: (n, f) rows of ``_numbers`` of f limits
        :param places: (p, f) rows of ``_places`` of the same limits
        :returns: (2, f): P(sum > capacity), and mean excess
        """
        # Smooth tails have the same tables.
        kinds = 2 * np.maximum(places[_KIND], _FEW)
        if levels.at_instants is not None:
            kinds += places[_SUMS_LINE] != _NO_LINE
        if kinds.size > _READ_TOGETHER or (kinds != kinds[0]).any():
            effects = np.empty((2, kinds.size))
            for kind in np.flatnonzero(np.bincount(kinds)).tolist():
                alike = np.flatnonzero(kinds == kind)
                for begin in range(0, alike.size, _READ_TOGETHER):
                    where = alike[begin:begin + _READ_TOGETHER]
                    effects[:, where] = self._look_up(
                        numbers[:, where], places[:, where], levels)
            return effects
        step, capacity = numbers[_STEP], numbers[_CAPACITY]
        base = numbers[_BASE] / step
        # Hosts are the last axis, so that inner loops are long.
        values = levels.values.take(places[_UNIT], axis=1)
        is_joint = kinds[0] % 2
        ladder = joint.LADDER if is_joint else joint.LADDER[:1]
        thresholds = (
            (ladder[:, None, None] * capacity - values) / step - base)
        looked_up = self._tables[places[_KIND, 0]].look_up(
            places[_LINE], thresholds, places[_KIND] <= _FEW)
        effects = _average(levels.masses, looked_up[0])
        effects[1] *= step
        if is_joint:
            lines, units = places[_SUMS_LINE], places[_UNIT]
            sums, weights, its_trust = self._at_instants.values
            sums = sums[lines] + ((levels.at_instants[units] + numbers[
                _BASE][:, None]) / capacity[:, None]).astype('<f4')
            weights = np.where(levels.was_drawn, 0.0, weights[lines])
            probability, trust = joint.at_capacity(
                sums, weights, np.concatenate([effects[:1], (
                    looked_up.real[1:] * levels.masses[:, None]).sum(axis=1)]),
                its_trust[lines])
            excess = np.clip(sums - 1, 0.0, fourier_sum.MOST).mean(
                axis=1) * capacity
            effects[1] += trust * (excess - effects[1])
            effects[0] = probability
        return effects


class _Tables(admission_sources.Rows):
    """Look-up tables of sums, as :meth:`.fourier_sum.Grid.table` has them."""

    def __init__(self, cells: int, dtype: type[np.complexfloating]) -> None:
        self._last = fourier_sum.table_cells(cells) - 1
        super().__init__((dtype, (self._last + 1,)))

    def look_up(self, lines, places, smooth):
        """Return with which probability and how far sums exceed thresholds.

        :param places: (..., f) thresholds in cells
        :param smooth: (f,) bool, whether the tail is smooth and has no steps
        :returns: (..., f) complex: real part P(sum > threshold), imaginary
            part E[(sum - threshold)+] in cells
        """
        below = np.floor(places + fourier_sum.NEAR)
        np.maximum(below, 0.0, out=below)
        np.minimum(below, self._last - 1, out=below)
        part = np.subtract(places, below, out=places)
        np.minimum(part, 1.0, out=part)
        at = below.astype(np.int64)
        at += lines * (self._last + 1)
        flat = self.values[0].reshape(-1)
        lower = flat.take(at)
        at += 1
        rise = flat.take(at)
        rise -= lower
        looked_up = rise * part
        looked_up += lower
        # On the grid the tail has steps. Elsewhere it is a parabola between
        # two cells, whose mean follows from the excess and which stays between
        # their tails. Thresholds far below 0 are handled below.
        line = np.maximum(part, 0.0) * smooth
        bend = line * (line - 1.0)
        bend *= 6.0 * lower.real + 3.0 * rise.real + 6.0 * rise.imag
        bend += rise.real * line
        np.maximum(bend, rise.real, out=bend)
        np.minimum(bend, 0.0, out=bend)
        np.add(lower.real, bend, out=looked_up.real)
        # Thresholds below any possible sum.
        deep = part < -fourier_sum.NEAR
        if deep.any():
            looked_up[deep] = 1.0 + 1j * (lower.imag[deep] - np.maximum(
                part[deep], -fourier_sum.MOST))
        return looked_up


def _at(array: np.ndarray, rows: _Rows) -> np.ndarray:
    """Return some rows, (h,) or a slice, of the last axis of an array."""
    return array[..., rows] if isinstance(rows, slice) else array.take(
        rows, axis=-1)


def _average(shares: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the (2, f) weighted averages of (n, f) complex numbers.

    Not by BLAS, whose threads wait for each other on a busy machine.
    """
    numbers *= shares[:, None]
    return numbers.sum(axis=0).view(float).reshape(-1, 2).T
