# SPDX-License-Identifier: Apache-2.0
"""Laws of rates as arrays in the units of limits. Pure; numpy only."""

import functools

import numpy as np

from vswitch_aware_scheduler.admission import slot_sums
from vswitch_aware_scheduler.traffic import model

__all__ = ['Levels', 'Sources']


class Levels:
    """What one law is in each of some units.

    :ivar units: how many
    :ivar values: (u, n) rates of its states
    :ivar masses: (n,) probabilities of its states
    :ivar means: (u,)
    :ivar peaks: (u,)
    :ivar classed: whether it has classes
    """

    def __init__(self, law, unit_keys):
        self._law = law
        self.units = len(unit_keys)
        self.masses = law.probabilities
        self.values = np.array([law.values(*key) for key in unit_keys]
                               or [np.zeros(self.masses.size)])
        self.means = self.values @ self.masses
        self.peaks = self.values.max(axis=1)
        self.classed = law.has_classes

    @functools.cached_property
    def above(self):
        """(u, n) rates above the least one."""
        return self.values - self.values.min(axis=1)[:, None]

    @functools.cached_property
    def sums(self):
        """(u, 5) as of :meth:`Sources.sums`."""
        square = self.above * self.above @ self.masses \
            - (self.above @ self.masses) ** 2
        least = self.peaks - self.above.max(axis=1)
        return np.array([least, self.peaks, self.means,
                         least < self.peaks, square]).T

    @functools.cached_property
    def was_high(self):
        """(504,) float32, 1 for slots in which it was high, or None."""
        return self._law.high.astype(np.float32) if self.classed else None

    @functools.cached_property
    def high(self):
        """Sorted numbers of the slots in which it was high, or None."""
        return np.flatnonzero(self._law.high) if self.classed else None

    @functools.cached_property
    def shares(self):
        """(3, 1, n) as of :func:`.slot_sums.class_shares`.

        (1, 1, n) where it has no classes.
        """
        if not self.classed:
            return self.masses[None, None]
        return slot_sums.class_shares(
            self.masses[None], np.array([self._law.low_states]))

    def by_class(self, unit, capacity):
        """Return moments as of :func:`.slot_sums.class_moments`, of one."""
        return slot_sums.class_moments(
            self.values[unit][None] / capacity, self.shares)


class Sources:
    """The laws of many instances in one array.

    A law of fewer states than others has its last one again, never.

    :param laws: list of RateLaw
    :param of: (n,) int, increasing: of which host each is
    :param counts: (n,) how many have it; -1: one goes that had it
    """

    def __init__(self, laws, of, counts):
        self.of, self.counts, self._laws = of, counts, laws
        packed = b''.join(laws)
        rows = np.frombuffer(packed, '<f8').reshape(-1, model.LAW_COLUMNS)
        ends = np.cumsum([len(law) for law in laws], dtype=np.int64)
        tails = np.frombuffer(packed, np.uint8)[
            (ends - model.TAIL_BYTES)[:, None]
            + np.arange(model.TAIL_BYTES)]
        self._bits, self._low_states = tails[:, :-1], tails[:, -1]
        ends //= 8 * model.LAW_COLUMNS
        sizes = np.diff(ends, prepend=0) - model.TAIL_ROWS
        states = int(sizes.max(initial=1))
        if len(rows) == (states + model.TAIL_ROWS) * len(laws):
            rows = rows.reshape(-1, states + model.TAIL_ROWS,
                                model.LAW_COLUMNS)[:, :states]
            self._masses = rows[..., 0]
        else:
            starts = ends - model.TAIL_ROWS - sizes
            place, last = np.arange(states), sizes[:, None] - 1
            rows = rows[starts[:, None] + np.minimum(place, last)]
            self._masses = rows[..., 0] * (place <= last)
        self._rates = rows[..., 1:]
        self._classed = self._low_states < np.minimum(sizes, 255)

    def values(self, unit_keys, units):
        """Return the (n, m) rates of all in the units of their hosts.

        :param units: (h,) int, which of the units, for each host
        """
        used = set(units.tolist()) if unit_keys else ()
        if len(used) == 1:
            return self._in_unit(*unit_keys[used.pop()])
        found = np.zeros(self._rates.shape[:2])
        for unit in used:
            here = units[self.of] == unit
            found[here] = self._in_unit(*unit_keys[unit])[here]
        return found

    def _in_unit(self, weights, packet_bytes):
        """Return what :meth:`.RateLaw.values` does, of all at once."""
        values = self._rates @ np.array(weights)
        if packet_bytes is not None:
            bandwidth = self._rates[..., 0] + self._rates[..., 1]
            unknown = ~self._rates[..., 2].any(axis=1)
            values[unknown] += weights[2] * bandwidth[unknown] / (
                8.0 * packet_bytes)
        return values

    def sums(self, values):
        """Return least rate, peak, mean, "do they differ" and variance.

        :returns: (5, n)
        """
        least, most = values.min(axis=1), values.max(axis=1)
        above = values - least[:, None]
        mean = (above * self._masses).sum(axis=1)
        return np.array([least, most, least + mean, most > least,
                         (above * above * self._masses).sum(axis=1)
                         - mean * mean])

    def classed_hosts(self, hosts):
        """Return (hosts,) bool: which have a source with classes."""
        found = np.zeros(hosts, dtype=bool)
        found[self.of[self._classed]] = True
        return found

    def by_class(self, values, which, hosts, capacities):
        """Return the sources of some hosts, for :meth:`.SlotSums.add`.

        :param values: (n, m) rates of all
        :param which: (r,) int, increasing, of the hosts
        :param hosts: how many hosts there are
        :param capacities: (hosts,) in the unit of the values
        :returns: (of, moments, classed, bits)
        """
        some, of = self._of_hosts(which, hosts)
        counts = self.counts[some]
        # What is above any capacity counts as the capacity.
        with np.errstate(over='ignore', invalid='ignore'):
            levels = values[some] / capacities[which][of, None]
        return (of, slot_sums.class_moments(levels, slot_sums.class_shares(
            self._masses[some], self._low_states[some])) * counts,
            counts * self._classed[some], self._bits[some])

    def _of_hosts(self, which, hosts):
        """Return the places of the sources of some hosts, and of which."""
        if which.size == hosts:
            return slice(None), self.of
        place = np.full(hosts, -1)
        place[which] = np.arange(which.size)
        of = place[self.of]
        some = np.flatnonzero(of >= 0)
        return some, of[some]

    def same(self, count):
        """Return equal numbers for equal states, if ``count`` are all."""
        if count != len(self._laws):
            return None
        numbers = {}
        return np.array([
            numbers.setdefault(law[:-model.TAIL_BYTES], len(numbers))
            for law in self._laws])

    def chosen(self, values, which, hosts):
        """Return the sources of some hosts.

        :param which: (r,) int, increasing, of the hosts
        :param hosts: how many hosts there are
        :returns: (n, m) rates above the least of each source, (n, m)
            probabilities, (n,) counts, (n,) int: which of the r hosts
        """
        some, of = self._of_hosts(which, hosts)
        values = values[some]
        return (values - values.min(axis=1, keepdims=True),
                self._masses[some], self.counts[some], of)
