# SPDX-License-Identifier: Apache-2.0
"""The law of a sum of independent rates, up to one capacity.

Two representations with one face: :class:`AtomLaw` keeps every distinct sum
and is exact, :class:`GridLaw` keeps a fixed grid and is a bound on the side
it is asked for. Both only ever add positive numbers, never subtract, so that
small tails keep their relative accuracy; what exceeds the capacity is folded
into its mass and its mean excess. Pure; immutable.

Derivation: reference/model.rst, "Law of the sum".
"""

import numpy as np

from vswitch_aware_scheduler import exceptions

__all__ = ['AtomLaw', 'GridLaw', 'TooManyAtoms', 'tables_plus']

#: Sums closer than this, relative to the capacity or the grid step, are the
#: same sum: a sum of rates equal to the capacity is not above it, whatever
#: its rounding.
TOLERANCE = 1e-9

#: More sources than this are first added up in groups of so many, on a grid
#: so fine that all their roundings together are a tenth of the capacity.
MANY = 64
_FINE_CELLS = 10

#: How much finer the grid is on which those groups are added up.
_FINER = 8

#: Up to this many grid cells a level is added by one dense convolution.
_DENSE_CELLS = 48

#: A dense convolution makes so many products in the time in which another one
#: adds one level.
_PRODUCTS = 8192


class TooManyAtoms(Exception):
    """More distinct sums than an AtomLaw may keep; use a GridLaw."""


def require_capacity(capacity):
    """Return ``capacity`` as a float.

    :raises InvalidModel: when it is not a finite number > 0
    """
    try:
        value = float(capacity)
    except (TypeError, ValueError, OverflowError):
        value = float('nan')
    if not (np.isfinite(value) and value > 0):
        raise exceptions.InvalidModel(
            f'capacity is {capacity!r}, wanted a finite number > 0')
    return value


class AtomLaw:
    """Exact law of a sum: every distinct value up to the capacity.

    :ivar capacity: float
    :ivar overflow: P(sum > capacity)
    :ivar excess: E[(sum - capacity)+]
    """

    def __init__(self, capacity, max_atoms=4096):
        self.capacity = capacity
        self._max_atoms = max_atoms
        self._sums = np.zeros(1)
        self._masses = np.ones(1)
        self.overflow = 0.0
        self.excess = 0.0

    def plus(self, values, masses):
        """Return the law of this sum plus an independent rate.

        :param values: (m,) rates, in any order
        :param masses: (m,) their probabilities
        :raises TooManyAtoms: when the distinct sums exceed ``max_atoms``
        """
        law = AtomLaw(self.capacity, self._max_atoms)
        sums = np.add.outer(self._sums, values).ravel()
        weights = np.multiply.outer(self._masses, masses).ravel()
        tolerance = TOLERANCE * self.capacity
        above = sums > self.capacity + tolerance
        law.overflow = self.overflow + weights[above].sum()
        law.excess = (self.excess + self.overflow * (values @ masses)
                      + weights[above] @ (sums[above] - self.capacity))
        sums, weights = sums[~above], weights[~above]
        order = np.argsort(sums, kind='stable')
        sums, weights = sums[order], weights[order]
        if sums.size:
            # A thousand times finer than the comparison with the capacity,
            # so that merged sums cannot drift across it.
            new = np.diff(sums, prepend=-np.inf) > 1e-3 * tolerance
            starts = np.flatnonzero(new)
            if starts.size > self._max_atoms:
                raise TooManyAtoms()
            sums = sums[starts]
            weights = np.add.reduceat(weights, starts)
        law._sums, law._masses = sums, weights
        return law

    def tail(self, thresholds):
        """Return P(sum > threshold) for an array of thresholds <= capacity."""
        tolerance = TOLERANCE * self.capacity
        above = np.append(np.cumsum(self._masses[::-1])[::-1], 0.0)
        first = np.searchsorted(
            self._sums, np.asarray(thresholds) + tolerance, side='right')
        return np.where(np.asarray(thresholds) < -tolerance, 1.0,
                        self.overflow + above[first])

    def rounded(self, values):
        """Return the rates of a source as this law would count them."""
        return values

    def between(self, low, high):
        """Return P(low < sum <= high), high <= capacity."""
        tolerance = TOLERANCE * self.capacity
        first, last = np.searchsorted(
            self._sums, [low + tolerance, high + tolerance], side='right')
        return float(self._masses[first:last].sum())


class GridLaw:
    """Law of a sum on a grid, rounded up (a safe bound) or down.

    What every rate has at least is kept exactly; only what it has above its
    lowest level is rounded to the grid.

    :ivar capacity: float
    :ivar step: width of a grid cell, in units of the capacity
    :ivar overflow: P(sum > capacity) of the rounded sum
    :ivar excess: E[(sum - capacity)+] of the rounded sum
    """

    def __init__(self, capacity, step, round_up=True):
        self.capacity = capacity
        self.step = step
        self._round_up = round_up
        self._base = 0.0
        self._masses = np.ones(1)   # cell j: the sum is _base + j * step
        self.overflow = 0.0
        self.excess = 0.0

    def plus(self, values, masses):
        """Return the law of this sum plus an independent rate.

        :param values: (m,) rates, in any order
        :param masses: (m,) their probabilities
        """
        law = GridLaw(self.capacity, self.step, self._round_up)
        lowest = values.min()
        law._base = self._base + lowest
        cells = self._cells_above(values, lowest)
        law.overflow = self.overflow
        law.excess = self.excess + self.overflow * (
            lowest + self.step * float(cells @ masses))
        room = self.capacity - law._base
        last = law._cell(self.capacity)
        fits = cells <= last
        if fits.all():
            spread = _convolved(self._masses, cells.astype(np.int64),
                                masses)
        else:
            overflow, excess = _beyond(
                self._masses, cells[~fits], masses[~fits], self.step, room)
            law.overflow += overflow
            law.excess += excess
            spread = _convolved(self._masses, cells[fits].astype(np.int64),
                                masses[fits])
        if spread.size > last + 1:
            over = spread[last + 1:]
            j = np.arange(last + 1, spread.size)
            law.overflow += float(over.sum())
            law.excess += float(over @ (j * self.step - room))
            spread = spread[:last + 1]
        law._masses = spread
        return law

    def _cells_above(self, values, lowest):
        cells = (values - lowest) / self.step
        if self._round_up:
            return np.ceil(cells - TOLERANCE)
        return np.floor(cells + TOLERANCE)

    def rounded(self, values):
        """Return the rates of a source as :meth:`plus` counts them."""
        lowest = values.min()
        return lowest + self.step * self._cells_above(values, lowest)

    @classmethod
    def of_sources(cls, capacity, step, values, masses, starts):
        """Return the laws, rounded up, of the sum of many rates at once.

        As adding them one by one with :meth:`plus`, but faster.

        :param values: (m,) rates of all sources, one source after the other
        :param masses: (g, m) their probabilities, in each of g regimes
        :param starts: (n,) where each source begins in these, increasing
        :returns: list of g GridLaw
        """
        lowest = np.minimum.reduceat(values, starts)
        base = float(lowest.sum())
        counts = np.diff(starts, append=values.size)
        cells = np.ceil((values - np.repeat(lowest, counts)) / step
                        - TOLERANCE)
        widest = np.maximum.reduceat(cells, starts)
        # Narrow laws first: the sums stay short for most of the work.
        order = np.argsort(widest, kind='stable')
        order = order[np.searchsorted(widest[order], 0.0, side='right'):]
        found = []
        for of_regime in masses:
            law = cls(capacity, step)
            law._base = base
            means = step * np.add.reduceat(cells * of_regime, starts)
            last = law._cell(capacity)
            if last < 0:
                law._masses = np.zeros(0)
                law.overflow = 1.0
                law.excess = float(means.sum()) - (capacity - base)
            else:
                law._add(last, cells, of_regime, starts, counts, widest,
                         means, order)
            found.append(law)
        return found

    @classmethod
    def of_many(cls, capacity, step, values, masses, starts):
        """Return the laws of :meth:`of_sources`, with less rounding.

        There each source is rounded up by itself: of thousands, by more than
        there is. Here groups of them are added up on a finer grid first, and
        each group is rounded up once.

        Derivation: reference/model.rst, "Law of the sum".
        """
        if starts.size <= MANY:
            return cls.of_sources(capacity, step, values, masses, starts)
        finer = max(1, int(np.ceil(
            _FINE_CELLS * starts.size * step / capacity)))
        ends = np.append(starts[MANY::MANY], values.size)
        groups = []
        for first, end in zip(starts[::MANY], ends):
            inside = starts[(starts >= first) & (starts < end)] - first
            groups.append(_as_source(cls.of_sources(
                capacity, step / finer, values[first:end],
                masses[:, first:end], inside), step / _FINER))
        while len(groups) > 1:
            some, groups = groups[:MANY], groups[MANY:]
            groups.append(_as_source(cls.of_sources(
                capacity, step / _FINER, *_joined(some)), step / _FINER))
        return cls.of_sources(capacity, step, *_joined(groups))

    def _add(self, last, cells, masses, starts, counts, widest, means, order):
        """Add all sources in the given order to this law of nothing."""
        room, step = self.capacity - self._base, self.step
        held, overflow, excess = self._masses, 0.0, 0.0
        narrow = order[:np.searchsorted(
            widest[order], min(last, _DENSE_CELLS), side='right')]
        for kernel, mean in zip(
                _kernels(cells, masses, starts, counts, widest, narrow),
                means[narrow].tolist()):
            excess += overflow * mean
            held = np.correlate(held, kernel, 'full')
            if held.size > last + 1:
                over = held[last + 1:]
                overflow += float(over.sum())
                excess += float(over @ (
                    np.arange(last + 1, held.size) * step - room))
                held = held[:last + 1]
        for i in order[narrow.size:].tolist():
            source = slice(starts[i], starts[i] + counts[i])
            at, mass = cells[source], masses[source]
            excess += overflow * float(means[i])
            if widest[i] > last:
                fits = at <= last
                alone = _beyond(held, at[~fits], mass[~fits], step, room)
                overflow += alone[0]
                excess += alone[1]
                at, mass = at[fits], mass[fits]
            held = _convolved(held, at.astype(np.int64), mass)
            if held.size > last + 1:
                over = held[last + 1:]
                overflow += float(over.sum())
                excess += float(over @ (
                    np.arange(last + 1, held.size) * step - room))
                held = held[:last + 1]
        self._masses, self.overflow, self.excess = held, overflow, excess

    def _cell(self, threshold):
        # Last cell whose sum is not above the threshold; -1 when none is.
        cell = np.floor((threshold - self._base) / self.step + TOLERANCE)
        return int(max(cell, -1.0))

    def tail(self, thresholds):
        """Return P(sum > threshold) for an array of thresholds <= capacity."""
        above = np.append(np.cumsum(self._masses[::-1])[::-1], 0.0)
        cells = np.floor((np.asarray(thresholds, dtype=float) - self._base)
                         / self.step + TOLERANCE)
        first = np.clip(cells + 1, 0, self._masses.size).astype(np.int64)
        return np.where(cells < 0, 1.0, self.overflow + above[first])

    def between(self, low, high):
        """Return P(low < sum <= high), high <= capacity."""
        return float(self._masses[self._cell(low) + 1:
                                  self._cell(high) + 1].sum())

    def tables(self, cells):
        """Return look-up tables of the tail and the mean excess.

        Sums lie on a lattice, the first at the sum of the lowest levels; the
        capacity is ``phase`` steps above its highest point that is not above
        the capacity. Threshold number k is the lattice point c(k) = capacity
        - (phase + k) * step.

        :param cells: number of steps that cover the capacity
        :returns: (tail, excess, phase): tail and excess of shape (cells + 2,),
            tail[k] = P(sum > c) for every c in [c(k), c(k - 1)) or up to the
            capacity for k = 0, excess[k] = E[(sum - c(k))+]; phase in [0, 1)
        """
        position = (self.capacity - self._base) / self.step
        last = self._cell(self.capacity)
        phase = max(position - last, 0.0) if last >= 0 else 0.0
        tail = np.ones(cells + 2)
        if last >= 0:
            tail[0] = self.overflow
            masses = np.zeros(last + 1)
            masses[:self._masses.size] = self._masses
            np.cumsum(masses[::-1], out=masses)
            reach = min(last + 1, cells + 1)
            tail[1:reach + 1] = self.overflow + masses[:reach]
            np.minimum(tail, 1.0, out=tail)
        excess = np.empty(cells + 2)
        excess[0] = self.excess + phase * self.step * tail[0]
        np.cumsum(tail[1:] * self.step, out=excess[1:])
        excess[1:] += excess[0]
        return tail, excess, phase


def _as_source(laws, step):
    """Return (values, (g, m) masses) of a sum, from its law in each regime.

    Rounded up to another step. What is above the capacity is at its mean:
    there only the mean counts.
    """
    fine = max(law._masses.size for law in laws)
    cells = np.ceil(np.arange(fine) * (laws[0].step / step)
                    - TOLERANCE).astype(np.int64)
    size = cells[-1] + 1 if fine else 0
    values = laws[0]._base + step * np.arange(size)
    masses = np.zeros((len(laws), size + len(laws)))
    over = np.full(len(laws), laws[0]._base)
    for i, law in enumerate(laws):
        masses[i, :size] = np.bincount(
            cells[:law._masses.size], law._masses, size)
        if law.overflow > 0:
            over[i] = law.capacity + law.excess / law.overflow
            masses[i, size + i] = law.overflow
    return np.append(values, over), masses


def _joined(sources):
    """Return (values, masses, starts) of several sources together."""
    sizes = [values.size for values, _ in sources]
    return (np.concatenate([values for values, _ in sources]),
            np.concatenate([masses for _, masses in sources], axis=1),
            np.cumsum(sizes) - sizes)


def tables_plus(tails, excesses, phases, steps, values, masses):
    """Return the look-up tables of h sums that have one more source each.

    Of each threshold a sum's table is looked up as much lower as its source
    is at each of its levels: positive terms only, as everywhere here.

    :param tails: (h, k, g) of :meth:`GridLaw.tables`, in each of g regimes;
        so is ``excesses``
    :param phases: (h,) as there
    :param steps: (h,) widths of a grid cell
    :param values: (h, m) rates of the sources, in any order
    :param masses: (h, m, g) their probabilities
    :returns: (tails, excesses, phases) of the same shapes
    """
    hosts, rows, regimes = tails.shape
    lowest = values.min(axis=1)
    # A lattice moves up by the lowest level; its points that are now above
    # the capacity drop out.
    position = phases - lowest / steps
    dropped = np.maximum(np.ceil(-position - TOLERANCE), 0.0)
    cells = np.ceil((values - lowest[:, None]) / steps[:, None] - TOLERANCE)
    at = (cells + dropped[:, None])[..., None] + np.arange(rows)  # (h, m, k)
    # int64 of what is far beyond the table would overflow.
    inside = np.minimum(at, rows - 1).astype(np.int64)
    inside += np.arange(0, hosts * rows, rows)[:, None, None]
    # Below the table's end the sum is above any threshold.
    below = np.maximum(at - (rows - 1), 0.0)
    below *= steps[:, None, None]
    new_tails, new_excesses = np.empty_like(tails), np.empty_like(excesses)
    # One regime after the other, each in one piece of memory, for BLAS.
    for regime in range(regimes):
        weights = masses[:, None, :, regime]
        of_regime = tails[..., regime].ravel().take(inside)
        new_tails[..., regime] = (weights @ of_regime)[:, 0]
        of_regime = excesses[..., regime].ravel().take(inside)
        of_regime += below
        new_excesses[..., regime] = (weights @ of_regime)[:, 0]
    return (np.minimum(new_tails, 1.0), new_excesses,
            np.maximum(position + dropped, 0.0))


def tails_without(tails, rows, phases, steps, values, masses, rates):
    """Return what each of h sums exceeds at least without some sources.

    Without them a sum is above a threshold never more often than with them
    above that threshold and their lowest levels; so much is taken away of
    what the sum exceeds with them.

    :param tails: (r, k, g) of :meth:`GridLaw.tables`, in each of g regimes,
        of sources that were each rounded up by themselves
    :param rows: (h,) int, where in ``tails`` the sums are
    :param phases: (h,) as there
    :param steps: (h,) widths of a grid cell
    :param values: (h, q, m) rates of the sources that are taken out
    :param masses: (h, q, m, g) their probabilities
    :param rates: (h, n) how far thresholds are below the capacity
    :returns: (h, n, g) lower bounds of the tails at the thresholds, 0 where
        a table does not tell
    Derivation: reference/admission.rst, "Look-up tables".
    """
    hosts, taken, _ = values.shape
    _, size, regimes = tails.shape
    flat = tails.reshape(-1, regimes)
    begin, steps = (rows * size)[:, None], steps[:, None]
    lowest = values.min(axis=2)
    of_each = np.ceil((values - lowest[..., None]) / steps[..., None]
                      - TOLERANCE)
    # All that are taken out are one source.
    cells, together = of_each[:, 0], masses[:, 0]
    for i in range(1, taken):
        cells = (cells[:, :, None] + of_each[:, i, None]).reshape(hosts, -1)
        together = (together[:, :, None] * masses[:, i, None]).reshape(
            hosts, -1, regimes)
    first = np.ceil((rates - lowest.sum(axis=1)[:, None]) / steps
                    - phases[:, None] - TOLERANCE)
    last = size - 1
    with_it = flat.take(
        begin + np.clip(first, 0, last).astype(np.int64), axis=0)
    at = np.clip(first[:, :, None] + cells[:, None], 0, last)
    rests = (cells == 0)[..., None]
    by_it = np.einsum('hnmg,hmg->hng', flat.take(
        begin[..., None] + at.astype(np.int64), axis=0),
        np.where(rests, 0.0, together))
    resting = np.where(rests, together, 0.0).sum(axis=1)[:, None]
    # What rounding may have added is taken away.
    least = with_it * (1 - TOLERANCE) - by_it * (1 + TOLERANCE)
    found = np.divide(least, resting, out=np.zeros_like(least),
                      where=resting > TOLERANCE)
    # Of what is above the capacity a table tells only how much it is.
    return np.where(first[..., None] < 0, 0.0, np.maximum(found, 0.0))


def _kernels(cells, masses, starts, counts, widest, sources):
    """Yield the law of each of some narrow sources, densely and reversed.

    Reversed, as np.correlate wants it to convolve: it has less to do before
    its first multiplication than np.convolve.
    """
    if not sources.size:
        return
    width = _DENSE_CELLS + 1
    row = np.full(starts.size, -1)
    row[sources] = np.arange(sources.size)
    row = np.repeat(row, counts)
    chosen = row >= 0
    # Reversed and to the right, so that a source of w cells is the last w.
    at = (row[chosen] + 1) * width - 1 - cells[chosen].astype(np.int64)
    dense = np.bincount(at, weights=masses[chosen],
                        minlength=sources.size * width)
    for one, last in zip(dense.reshape(-1, width),
                         widest[sources].astype(np.int64).tolist()):
        yield one[width - 1 - last:]


def _beyond(held, cells, masses, step, room):
    """Return what levels that exceed the capacity by themselves add.

    :param held: (k,) masses of cells 0..k-1
    :param cells: (m,) cells of these levels, each above ``room``
    :param masses: (m,) their probabilities
    :param step: width of a grid cell
    :param room: the capacity above cell 0
    :returns: (overflow, excess) as of a GridLaw
    """
    of_levels = float(masses @ (cells * step - room))
    of_held = step * float(held @ np.arange(held.size))
    levels, here = float(masses.sum()), float(held.sum())
    return levels * here, of_levels * here + levels * of_held


def _convolved(held, cells, masses):
    """Return the masses of a sum on the grid, one source added.

    :param held: (k,) masses of cells 0..k-1
    :param cells: (m,) int64 cells of the source, in any order
    :param masses: (m,) their probabilities
    """
    if not cells.size or not held.size:
        return np.zeros(0)
    widest = int(cells.max())
    if widest <= _DENSE_CELLS or \
            held.size * widest <= _PRODUCTS * cells.size:
        return np.convolve(held, np.bincount(cells, weights=masses))
    spread = np.zeros(held.size + widest)
    for cell, mass in zip(cells.tolist(), masses.tolist()):
        spread[cell:cell + held.size] += mass * held
    return spread
