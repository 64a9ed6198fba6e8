# SPDX-License-Identifier: Apache-2.0
"""What the instances on hosts ask of the limits of each, together.

:class:`LimitSums` keeps the sum of the rates on each host, for each limit, as
look-up tables, and in the sampled slots where residents have classes. It
decides nothing.

Derivation: reference/model.rst, reference/admission.rst.
"""

import collections
import itertools
import typing

import numpy as np

from vswitch_aware_scheduler.admission import rows as admission_rows
from vswitch_aware_scheduler.admission import slot_sums
from vswitch_aware_scheduler.admission import sources as admission_sources
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import model

__all__ = ['ERROR', 'Load', 'LimitSums', 'SLACK']

#: Smooth tails are known up to this, relatively.
ERROR = 1e-3

#: Sums are above a capacity when they are above it by more than this.
SLACK = 1 + fourier_sum.TOLERANCE
_NEAR = fourier_sum.NEAR

#: How a sum is kept. Many rates are on no grid: the tail is smooth; many are
#: on none, but vary together by a few cells only: a finer scale is wanted; few
#: are on none, and are rounded to a finer grid; all are on the grid of the
#: tables; all are on a finer grid, and the tables are as well.
_SMOOTH, _NARROW, _ROUNDED, _ON_GRID, _FINE = range(5)
_FINER = 8

#: Sums with a smaller standard deviation, in cells, are narrow.
_FEW_CELLS = 2.5

#: A host with at most so many sources is computed again when one changes.
_FEW = 20

#: LoadTable.stretch compares with no smaller capacity, relatively.
_LEAST_PLACE = 1e-3

#: Overload that there is, however seldom.
_LEAST = 1e-250

#: Up to so many sources that come and go are taken one by one.
_ONE_BY_ONE = 2

#: Laws that are kept in the units of limits.
_MOST_LAWS = 1024

#: Hosts that are computed at once.
_TOGETHER = 64


class Load(typing.NamedTuple):
    """What limits of hosts have to carry with one more instance.

    All are (h, l) arrays, of h hosts and l limits; a host with fewer limits
    has others that are infinite.
    """

    capacity: np.ndarray
    vm_peak: np.ndarray
    mean: np.ndarray
    instance_peak: np.ndarray
    overload_probability: np.ndarray
    excess: np.ndarray


class LimitSums:
    """The sums of the rates of instances on hosts.

    :param cells: cells of the look-up tables up to a capacity
    :param hosts: list of the hosts by slot, each with ``slot``, ``policy`` and
        ``residents``; the caller appends to it
    """

    def __init__(self, cells, hosts):
        self._cells = cells
        self._hosts = hosts
        self._units = {}         # (weights, packet bytes) -> unit number
        self._unit_keys = []
        self._levels = {}        # RateLaw -> Levels
        # Host -> laws that came and laws that went since somebody asked.
        self._pending = {}
        # By slot and limit, LIMITS wide: what the vectorised path reads.
        self._numbers = np.zeros((0, 0, _NUMBERS))
        self._unit = np.zeros((0, 0), dtype=np.int64)
        self._row = np.zeros((0, 0), dtype=np.int64)     # of look-up tables
        self._kept = np.zeros((0, 0), dtype=np.int64)    # row of spectra
        self._slot_row = np.zeros((0, 0), dtype=np.int64)    # of slot sums
        # By slot.
        self._stale = np.zeros(0, dtype=bool)
        # By kind.
        self._grids = [fourier_sum.grid(cells, on_grid=False),
                       fourier_sum.grid(cells, _FINER, on_grid=False),
                       fourier_sum.grid(cells, _FINER, reach=4),
                       fourier_sum.grid(cells, reach=4),
                       fourier_sum.grid(cells * _FINER, reach=4)]
        # By whether they are fine.
        self._tables = [_Tables(cells), _Tables(cells * _FINER)]
        # The mean stands behind the frequencies.
        self._spectra = admission_rows.Rows(
            complex, (self._grids[0].frequencies + 1,))
        self._slot_sums = slot_sums.SlotSums()

    def grow(self, slots, limits):
        """Make room for so many hosts, and limits of each."""
        have_slots, have_limits = self._row.shape
        if slots <= have_slots and limits <= have_limits:
            return
        size = (max(have_slots, slots + slots // 2),
                max(have_limits, limits))

        def grown(array, shape, fill):
            new = np.empty(shape, dtype=array.dtype)
            new[...] = fill
            new[tuple(slice(n) for n in array.shape)] = array
            return new

        self._numbers = grown(self._numbers, size + (_NUMBERS,), _UNLIMITED)
        self._unit = grown(self._unit, size, 0)
        self._row = grown(self._row, size, _NO_ROW)
        self._kept = grown(self._kept, size, _NO_ROW)
        self._slot_row = grown(self._slot_row, size, _NO_ROW)
        self._stale = grown(self._stale, size[:1], True)

    def set_limits(self, host):
        """Set the limits of a host to those of its policy."""
        slot, policy = host.slot, host.policy
        self.grow(0, len(policy.limits))
        self._outdate([slot])
        self._numbers[slot] = _UNLIMITED
        self._unit[slot] = 0
        for position, (weights, capacity, most) in enumerate(policy.limits):
            self._unit[slot, position] = self._unit_number(
                weights, policy.profile.typical_packet_bytes)
            self._numbers[slot, position, [_CAPACITY, _VM_PEAK]] = \
                capacity, most

    def change(self, entry, came, went):
        """Note which laws came to a host and which went."""
        if not self._stale[entry.slot]:
            pending = self._pending.setdefault(entry, ([], []))
            pending[0].extend(came)
            pending[1].extend(went)

    def with_source(self, slots, law):
        """Return the :class:`Load` of some hosts with one more instance.

        :param slots: (h,) int
        :param law: RateLaw of the instance
        """
        if self._pending:
            self._follow()
        stale = self._stale[slots]
        if stale.any():
            self._refresh(np.unique(slots[stale]))
        numbers = self._numbers[slots]              # (h, l, _NUMBERS)
        units = self._unit[slots]                   # (h, l)
        levels = self._levels_of(law)
        capacity, mean, peak, vm_peak = (
            numbers[..., i] for i in (_CAPACITY, _MEAN, _PEAK, _VM_PEAK))
        with np.errstate(over='ignore'):
            mean = mean + levels.means[units]
        peaks = levels.peaks[units]
        # Where all peaks together fit there is no overload: no table needed.
        exceeds = peak + peaks > capacity * SLACK
        probability = np.zeros(exceeds.shape)
        excess = np.zeros(exceeds.shape)
        where, limit = np.nonzero(exceeds)
        if where.size:
            at = slots[where], limit
            self._build_missing(*at)
            found = self._look_up(at, levels)
            # There is overload where not all peaks fit, however seldom.
            probability[where, limit] = np.maximum(found[:, 0], _LEAST)
            excess[where, limit] = found[:, 1]
        return Load(capacity, vm_peak, mean, peaks, probability, excess)

    def are_smooth(self, slots):
        """Return (h,) bool: which have a tail that is known to ERROR only."""
        return (self._kept[slots] >= 0).any(axis=1)

    def stretch(self, slot):
        """Return how much wider the load is than that of independent ones.

        :param slot: of a host that was described
        :returns: float >= 1: the capacity over the one that its residents, if
            they were independent, would exceed as often as they exceed the
            capacity now; the largest of all limits
        """
        self.with_source(np.array([slot]), model.SILENT)
        stretch = 1.0
        for position in np.flatnonzero(self._slot_row[slot] >= 0).tolist():
            numbers = self._numbers[slot, position]
            [[probability, _]] = self._look_up(
                (np.array([slot]), np.array([position])),
                self._levels_of(model.SILENT))
            tail = self._tables[int(numbers[_KIND] == _FINE)].values[
                self._row[slot, position]].real
            # It never rises, and is no more than that at the capacity.
            cell = int(np.argmax(tail <= probability * (1 + ERROR)))
            place = numbers[_BASE] + numbers[_STEP] * cell
            stretch = max(stretch, numbers[_CAPACITY] / max(
                place, numbers[_CAPACITY] * _LEAST_PLACE))
        return float(stretch)

    def _outdate(self, slots):
        """Drop what was computed of some hosts, until somebody asks."""
        slots = np.asarray(slots, dtype=np.int64)
        slots = slots[~self._stale[slots]]
        if not slots.size:
            return
        self._stale[slots] = True
        fine = self._numbers[slots, :, _KIND] == _FINE
        rows = self._row[slots]
        for used, store in ((rows[~fine], self._tables[False]),
                            (rows[fine], self._tables[True]),
                            (self._kept[slots], self._spectra),
                            (self._slot_row[slots], self._slot_sums)):
            store.free(used[used >= 0])
        for of in (self._row, self._kept, self._slot_row):
            of[slots] = _NO_ROW

    def _refresh(self, slots):
        """Compute what outdated hosts ask of their limits."""
        for first in range(0, slots.size, _TOGETHER):
            some = slots[first:first + _TOGETHER]
            # One array for all is made, and not copied again and again.
            for rows in (self._tables[False], self._spectra,
                         self._slot_sums):
                rows.expected = slots.size - first if first else 0
            sources = self._sources_of(some)
            for position in range(self._row.shape[1]):
                self._add_up(some, position, sources)
            self._stale[some] = False
            numbers = self._numbers[some]
            for position in range(self._row.shape[1]):
                above = numbers[:, position, _PEAK] \
                    > numbers[:, position, _CAPACITY] * SLACK
                self._build(some, position, np.flatnonzero(above), sources)

    def _sources_of(self, slots):
        """Return the Sources of some hosts: each law of a host once."""
        laws = [collections.Counter(self._hosts[slot].residents.values())
                for slot in slots.tolist()]
        return admission_sources.Sources(
            list(itertools.chain.from_iterable(laws)),
            np.repeat(np.arange(slots.size), list(map(len, laws))),
            np.array(list(itertools.chain.from_iterable(
                one.values() for one in laws)), dtype=float))

    def _add_up(self, slots, position, sources, add=False):
        """Set the sums of a limit, or with ``add`` add to them.

        :param slots: (h,) int, of different hosts
        :param sources: Sources of these
        :returns: rates of the sources
        """
        values = sources.values(self._unit_keys, self._unit[slots, position])
        # More than a float can hold is too much, whatever there is.
        with np.errstate(over='ignore', invalid='ignore'):
            sums = sources.sums(values) * sources.counts
            if slots.size == 1:
                total = sums.sum(axis=1)
            else:
                total = np.stack([np.bincount(sources.of, one, slots.size)
                                  for one in sums], axis=-1)
            if add:
                self._numbers[slots, position, _SUMS] += total
            else:
                self._numbers[slots, position, _SUMS] = total
        return values

    def _build(self, slots, position, which, sources):
        """Make the look-up tables of a limit of some hosts.

        :param slots: (h,) int, of different hosts
        :param which: (r,) int, the hosts among these
        :param sources: Sources of all of them
        """
        if not which.size:
            return
        values = sources.values(self._unit_keys, self._unit[slots, position])
        rates, masses, counts, of = sources.chosen(
            values, which, slots.size)
        numbers = self._numbers[slots[which], position]
        capacity = numbers[:, _CAPACITY]
        # Whoever is above the capacity alone is above it with others, too.
        common = fourier_sum.common_step(
            np.where(rates > capacity[of, None], 0.0, rates), of, capacity,
            self._cells * _FINER)
        kind = np.select(
            [common * self._cells >= capacity / SLACK, common > 0,
             numbers[:, _ACTIVE] <= _FEW, self._is_narrow(numbers)],
            [_ON_GRID, _FINE, _ROUNDED, _NARROW], _SMOOTH)
        cells = np.where(kind == _FINE, self._cells * _FINER, self._cells)
        unit = np.where(np.isfinite(common) & (common > 0), common, capacity)
        step = unit / np.floor(unit * cells / capacity * SLACK)
        levels = rates / step[of, None]
        numbers[:, _STEP], numbers[:, _KIND] = step, kind
        numbers[:, _OFF] = np.bincount(of, counts * _off_grid(levels),
                                       which.size)
        self._numbers[slots[which], position] = numbers
        for one in set(kind.tolist()):
            rows = kind == one
            inside, same = rows[of], None
            if rows.all():
                inside = slice(None)
                if (step == step[0]).all() and which.size > 1:
                    same = sources.same(of.size)
            self._make(slots[which[rows]], position, one, *self._grids[
                one].products(levels[inside], masses[inside], counts[inside],
                              (np.cumsum(rows) - 1)[of[inside]],
                              np.count_nonzero(rows), same))
        classed = sources.classed_hosts(slots.size)[which]
        if classed.any():
            which = which[classed]
            self._slot_row[slots[which], position] = \
                self._slot_sums.start(which.size)
            self._add_slots(slots, position, which, sources, values)

    def _add_slots(self, slots, position, which, sources, values):
        """Add sources to the sums in the sampled slots.

        :param slots: (h,) int, of different hosts
        :param which: (r,) int, increasing, the hosts among these that keep
            such sums
        :param sources: Sources of all of them
        :param values: (n, m) rates of these
        """
        if which.size:
            self._slot_sums.add(
                self._slot_row[slots[which], position],
                *sources.by_class(values, which, slots.size,
                                  self._numbers[slots, position, _CAPACITY]))

    def _is_narrow(self, numbers):
        return numbers[..., _VARIANCE] < (
            _FEW_CELLS / self._cells * numbers[..., _CAPACITY]) ** 2

    def _make(self, slots, position, kind, spectra, means):
        """Store the look-up tables, and the spectra of many sources."""
        store = self._tables[kind == _FINE]
        rows = self._row[slots, position] = store.take(slots.size)
        store.values[rows] = self._grids[kind].tables(spectra, means)
        if kind == _SMOOTH:
            kept = self._kept[slots, position] = self._spectra.take(
                slots.size)
            self._spectra.values[kept, :-1] = spectra
            self._spectra.values[kept, -1] = means

    def _follow(self):
        """Take in who came and who went: factors of what is kept.

        All hosts at once: there are many, and each is little work.
        """
        changes = [(entry, came, went)
                   for entry, (came, went) in self._pending.items()
                   if not self._stale[entry.slot]]
        self._pending.clear()
        if sum(len(came) + len(went)
               for _, came, went in changes) <= _ONE_BY_ONE:
            for entry, came, went in changes:
                if not (all(self._step(entry, law, 1.0) for law in came)
                        and all(self._step(entry, law, -1.0)
                                for law in went)):
                    self._outdate([entry.slot])
            return
        slots = np.array([one[0].slot for one in changes], dtype=np.int64)
        sources = admission_sources.Sources(
            [law for _, came, went in changes for law in (*came, *went)],
            np.repeat(np.arange(slots.size), [
                len(came) + len(went) for _, came, went in changes]),
            np.concatenate([np.repeat([1.0, -1.0], [len(came), len(went)])
                            for _, came, went in changes]))
        classed = sources.classed_hosts(slots.size)
        outdated = np.array([
            bool(went) and len({*entry.residents.values()}) <= _FEW
            for entry, _, went in changes], dtype=bool)
        for position in range(self._row.shape[1]):
            values = self._add_up(slots, position, sources, add=True)
            # A table without spectra is computed again.
            kept = self._kept[slots, position] >= 0
            numbers = self._numbers[slots, position]
            outdated |= ~kept & (self._row[slots, position] >= 0) | kept & (
                (numbers[:, _ACTIVE] <= _FEW) | self._is_narrow(numbers))
            # The first source with classes: the slots of all are wanted.
            has_slots = self._slot_row[slots, position] >= 0
            outdated |= kept & classed & ~has_slots
            self._multiply(slots, position, np.flatnonzero(
                kept & ~outdated), sources, values, outdated)
            self._add_slots(slots, position, np.flatnonzero(
                has_slots & ~outdated), sources, values)
        if outdated.any():
            self._outdate(slots[outdated])

    def _step(self, entry, law, count):
        """Take in one instance that came, or went: count 1 or -1.

        :returns: False where the host has to be computed again
        """
        if count < 0 and len({*entry.residents.values()}) <= _FEW:
            return False
        slot, levels = entry.slot, self._levels_of(law)
        for position in range(len(entry.policy.limits)):
            numbers = self._numbers[slot, position]
            unit, kept = self._unit[slot, position], self._kept[slot, position]
            numbers[_SUMS] += count * levels.sums[unit]
            if kept == _NO_ROW:
                if self._row[slot, position] != _NO_ROW:
                    return False
                continue
            cells = levels.above[unit] / numbers[_STEP]
            if np.abs(cells - np.rint(cells)).max() > _NEAR:
                numbers[_OFF] += count
            row, grid = self._spectra.values[kept], self._grids[_SMOOTH]
            product, mean = row[:-1], row[-1:]
            mean += count * (levels.masses @ cells)
            if not (numbers[_ACTIVE] > _FEW and numbers[_OFF] > 0
                    and not self._is_narrow(numbers)
                    and grid.multiply(product, cells, levels.masses,
                                      count < 0)):
                return False
            self._tables[False].values[self._row[slot, position]] = \
                grid.tables(product[None], mean.real)[0]
            if not self._step_slots(slot, position, levels, count):
                return False
        return True

    def _step_slots(self, slot, position, levels, count):
        """Take one instance in to the sums in the sampled slots.

        :returns: whether they can be kept
        """
        row = self._slot_row[slot, position]
        if row == _NO_ROW:
            return not levels.classed
        capacity = self._numbers[slot, position, _CAPACITY]
        self._slot_sums.add_one(
            row, levels.by_class(self._unit[slot, position], capacity), count,
            levels.was_high)
        return True

    def _multiply(self, slots, position, which, sources, values, outdated):
        """Multiply the spectra of a limit of some hosts, and divide them.

        :param which: (r,) int, among the hosts
        :param outdated: (h,) bool, set for hosts that have to be computed
            again
        """
        if not which.size:
            return
        rates, masses, counts, of = sources.chosen(
            values, which, outdated.size)
        at = slots[which], position
        numbers = self._numbers[at]
        levels = rates / numbers[of, _STEP, None]
        off = numbers[:, _OFF] + np.bincount(
            of, counts * _off_grid(levels), which.size)
        self._numbers[(*at, _OFF)] = off
        kept, grid = self._kept[at], self._grids[_SMOOTH]
        if kept.size == 1:
            # A view, where one row is worth it.
            kept = slice(kept[0], kept[0] + 1)
        spectra, means = grid.products(levels, masses, counts, of, which.size)
        row = self._spectra.values[kept]
        spectra *= row[:, :-1]
        means += row[:, -1].real
        row[:, :-1], row[:, -1] = spectra, means
        self._spectra.values[kept] = row
        self._tables[False].values[self._row[at]] = grid.tables(spectra, means)
        # NaN as well.
        outdated[which] |= (off <= 0) | ~(
            np.abs(spectra) > fourier_sum.LEAST_PRODUCT).all(axis=1)

    def _unit_number(self, weights, packet_bytes):
        key = (tuple(weights), packet_bytes if weights[2] else None)
        number = self._units.get(key)
        if number is None:
            number = self._units[key] = len(self._unit_keys)
            self._unit_keys.append(key)
        return number

    def _look_up(self, at, levels):
        """Return what one more source makes of some limits of some hosts.

        :param at: (f,) slots and (f,) positions
        :param levels: Levels of the source
        :returns: (f, 2): P(more than the capacity), mean excess
        """
        numbers, slot_rows = self._numbers[at], self._slot_row[at]
        found = np.empty((slot_rows.size, 2))
        classed = slot_rows >= 0
        if classed.any():
            classed[classed] = self._slot_sums.classed(slot_rows[classed])
        fine = numbers[:, _KIND] == _FINE
        # Of one kind mostly: no copies then.
        kinds = 2 * fine + classed
        for kind in [int(kinds[0])] if (kinds == kinds[0]).all() \
                else np.unique(kinds).tolist():
            some = np.flatnonzero(kinds == kind)
            found[some] = self._look_up_kind(
                self._tables[kind >= 2], self._row[at][some], numbers[some],
                levels.values[self._unit[at][some]], levels,
                slot_rows[some] if kind % 2 else None)
        return found

    def _look_up_kind(self, tables, rows, numbers, values, levels, slot_rows):
        """Return what :meth:`_look_up` does, of limits of one kind.

        :param tables: _Tables that have all of them
        :param rows: (f,) int, of these tables
        :param values: (f, n) rates of the source
        :param slot_rows: (f,) int, of the slot sums, or None
        """
        states = levels.masses.size
        step, capacity = numbers[:, _STEP], numbers[:, _CAPACITY]
        base = numbers[:, _BASE] / step
        # Hosts last, so that loops are long.
        places = (capacity - values.T) / step - base
        if slot_rows is not None:
            of_slots, wider = self._slot_sums.with_source(
                slot_rows, slot_sums.class_moments(
                    values / capacity[:, None], levels.shares), levels.high)
            of_slots *= capacity / step
            of_slots -= base
            places = np.concatenate([places, of_slots])
        tail, excess = tables.look_up(
            rows, places, states, numbers[:, _KIND] <= _ROUNDED)
        found = np.stack([levels.masses @ tail[:states],
                          levels.masses @ excess[:states]], axis=1)
        if slot_rows is not None:
            # Never less than what independent instances have.
            wider *= excess[states:]
            np.maximum(found, np.stack([
                slot_sums.GROUP_SHARES @ tail[states:],
                slot_sums.GROUP_SHARES @ wider], axis=1), out=found)
        found[:, 1] *= step
        return found

    def _build_missing(self, slots, limits):
        """Make the look-up tables that these limits of these hosts lack."""
        lacking = self._row[slots, limits] == _NO_ROW
        if not lacking.any():
            return
        for position in np.unique(limits[lacking]).tolist():
            some = np.unique(slots[lacking & (limits == position)])
            for first in range(0, some.size, _TOGETHER):
                part = some[first:first + _TOGETHER]
                self._build(part, position, np.arange(part.size),
                            self._sources_of(part))

    def _levels_of(self, law):
        """Return the Levels of a law, in all units."""
        found = self._levels.get(law)
        if found is None or found.units < len(self._unit_keys):
            if len(self._levels) >= _MOST_LAWS:
                self._levels.clear()
            found = self._levels[law] = admission_sources.Levels(
                law, self._unit_keys)
        return found


class _Tables(admission_rows.Rows):
    """Look-up tables of sums, as :meth:`.fourier_sum.Grid.tables` makes them.

    :param cells: up to the capacity
    """

    def __init__(self, cells):
        self._last = fourier_sum.table_cells(cells) - 1
        super().__init__(complex, (self._last + 1,))

    def look_up(self, rows, places, exact, smooth):
        """Return by how much sums exceed thresholds.

        :param rows: (f,) int, of the sums
        :param places: (n, f) thresholds, in cells
        :param exact: so many of the n, the first ones, are wanted exactly and
            are within the capacity; others are interpolated linearly
        :param smooth: (f,) bool: whether the tail is not one of steps
        :returns: P(sum > threshold) and E[(sum - threshold)+], both (n, f),
            the latter in cells
        """
        below = np.floor(places + _NEAR)
        np.maximum(below, 0.0, out=below)
        np.minimum(below, self._last - 1, out=below)
        part = places - below
        np.minimum(part, 1.0, out=part)
        at = below.astype(np.int64)
        at += rows * (self._last + 1)
        flat = self.values.reshape(-1)
        lower = flat.take(at)
        at += 1
        rise = flat.take(at)
        rise -= lower
        tail = rise.real * part
        tail += lower.real
        excess = rise.imag * part
        excess += lower.imag
        # On the grid the tail has steps. Else it is a parabola between two
        # cells, of the mean that the excess says, and within their tails.
        lower, rise = lower[:exact], rise[:exact]
        # Thresholds far below 0 are set apart below.
        line = np.maximum(part[:exact], 0.0) * smooth
        bend = -6.0 * line * (1.0 - line) * (
            lower.real + 0.5 * rise.real + rise.imag)
        tail[:exact] = lower.real + np.clip(
            rise.real * line + bend, rise.real, 0.0)
        # Below any sum that there is.
        deep = part < -_NEAR
        if deep.any():
            tail[deep] = 1.0
            excess[deep] = flat.take(at[deep] - 1).imag - part[deep]
        return tail, excess


def _off_grid(levels):
    """Return which sources have levels that are no whole numbers."""
    return (np.abs(levels - np.rint(levels)) > _NEAR).any(axis=1)


# Columns of LimitSums._numbers.
(_CAPACITY, _VM_PEAK, _BASE, _PEAK, _MEAN, _ACTIVE, _VARIANCE, _STEP, _OFF,
 _KIND, _NUMBERS) = range(11)
_SUMS = slice(_BASE, _VARIANCE + 1)
_UNLIMITED = (np.inf, np.inf, *(0.0,) * 8)
_NO_ROW = -1
