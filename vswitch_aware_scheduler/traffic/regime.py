# SPDX-License-Identifier: Apache-2.0
"""When the fleet as a whole is busy: what instances have in common.

Office hours, backups and batches make many instances carry more at the same
time, and a sum of independent models understates how often they meet.
:class:`FleetLoad` adds up how much more than usual the instances carry, slot
of time by slot of time; the :data:`BUSY_SHARE` of the slots with the most is
the busy regime, and laws are kept for each regime. :class:`ProjectLoads`
limits how much one project counts in that. Pure.

Derivation: reference/model.rst, "Regimes".
"""

import collections
import zlib

import numpy as np

from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import shares

__all__ = ['BUSY_SHARE', 'MIN_INSTANCES', 'MOST_OF_FLEET', 'MOST_OF_USUAL',
           'SLOT_SECONDS', 'FleetLoad', 'ProjectLoads', 'Regimes', 'slots_of',
           'usual_load']

#: Regimes are told for slots of time of this length.
SLOT_SECONDS = 300.0

#: Share of the slots that are busy.
BUSY_SHARE = float(model.REGIME_SHARES[model.REGIMES.index('busy')])

#: What fewer instances have in common cannot be told from chance.
MIN_INSTANCES = 20

#: In a slot, a project counts with at most so many times what is usual for it,
#: or with so much of what is usual for the fleet, if that is more.
MOST_OF_USUAL = 2.0
MOST_OF_FLEET = 0.05

#: Projects with fewer of the instances share the groups of small projects.
_LARGE_SHARE = 0.01
_SMALL_GROUPS = 32


def slots_of(times):
    """Return the int64 slot of each time in seconds UTC."""
    return np.floor(np.asarray(times) / SLOT_SECONDS).astype(np.int64)


def _load(rates):
    # The root keeps the few largest instances from being the fleet.
    return np.sqrt(rates[:, 0] + rates[:, 1])


def usual_load(rates):
    """Return the mean load of an instance.

    :param rates: (n, 3) of a RateSeries
    """
    return float(_load(rates).mean()) if len(rates) else 0.0


class Regimes:
    """Which slots of time were busy.

    :param first_slot: of ``busy``
    :param busy: (n,) int8: 1 busy, 0 calm, -1 not known
    """

    def __init__(self, first_slot, busy):
        self._first_slot = first_slot
        self._busy = busy

    def of_slots(self, slots):
        """Return the (n,) regime of slots: its number, or -1."""
        at = np.asarray(slots, dtype=np.int64) - self._first_slot
        inside = (at >= 0) & (at < self._busy.size)
        found = np.full(at.shape, -1, dtype=np.int8)
        found[inside] = self._busy[at[inside]]
        return found


class FleetLoad:
    """How much more than usual the fleet carries, slot by slot.

    The load of an instance is the root of its bandwidth; that of the fleet is
    the sum over the instances that were measured in a slot, over the sum of
    what these carry on average.

    :ivar instances: uuids of those whose series were added
    """

    def __init__(self):
        self.instances = set()
        self._first = 0
        self._carried = np.zeros(0)
        self._usual = np.zeros(0)

    @classmethod
    def of(cls, slots, sums, instances):
        """Return the load that was told by :meth:`by_slot` before.

        :param instances: uuids of those whose series are in it
        """
        load = cls()
        load.instances.update(instances)
        if len(slots):
            load._reach(int(slots[0]), int(slots[-1]))
            at = np.asarray(slots) - load._first
            load._carried[at], load._usual[at] = np.transpose(sums)
        return load

    def by_slot(self):
        """Return the slots of which something is known, and what.

        :returns: (n,) int64 slots, increasing, and (n, 2): the sum of the
            loads in the slot, and the sum of what is usual of those measured
        """
        known = np.flatnonzero(self._usual > 0)
        return self._first + known, np.stack(
            [self._carried[known], self._usual[known]], axis=1)

    def add(self, series, usual=None):
        """Add the samples of one instance.

        :param series: RateSeries
        :param usual: mean load of the instance, of a longer time than that of
            the series; None: that of the series
        """
        if not len(series):
            return
        self.instances.add(series.instance_uuid)
        slots = slots_of(series.times)
        at = slots - self._reach(int(slots[0]), int(slots[-1]))
        np.add.at(self._carried, at, _load(series.rates))
        np.add.at(self._usual, at,
                  usual_load(series.rates) if usual is None else usual)

    def add_sums(self, slots, sums, instances):
        """Add what :meth:`by_slot` of another load returns.

        :param instances: uuids of those whose series are in it
        """
        self.instances.update(instances)
        if len(slots):
            at = slots - self._reach(int(slots.min()), int(slots.max()))
            np.add.at(self._carried, at, sums[:, 0])
            np.add.at(self._usual, at, sums[:, 1])

    def usual_of_one(self):
        """Return the mean load that is usual for an instance, 0: not known."""
        known = self._usual[self._usual > 0]
        return known.max(initial=0.0) / max(len(self.instances), 1)

    def usual_in(self, slots):
        """Return the (n,) sums of what is usual in slots; 0 where unknown."""
        at = slots - self._first
        inside = (at >= 0) & (at < self._usual.size)
        found = np.zeros(len(slots))
        found[inside] = self._usual[at[inside]]
        return found

    def _reach(self, first, last):
        """Make room for the slots from first to last; return the first."""
        if not self._carried.size:
            self._first = first
        start = min(first, self._first)
        end = max(last + 1, self._first + self._carried.size)
        if end - start > self._carried.size:
            for name in ('_carried', '_usual'):
                old = getattr(self, name)
                new = np.zeros(end - start)
                new[self._first - start:self._first - start + old.size] = old
                setattr(self, name, new)
            self._first = start
        return self._first

    def regimes(self):
        """Return the Regimes of all slots so far.

        Nothing is known of slots without samples, and of none where the
        fleet is of fewer than :data:`MIN_INSTANCES`.
        """
        busy = np.full(self._carried.size, -1, dtype=np.int8)
        known = np.flatnonzero(self._usual > 0)
        if len(self.instances) >= MIN_INSTANCES:
            load = self._carried[known] / self._usual[known]
            busiest = np.argsort(load, kind='stable')[
                known.size - int(known.size * BUSY_SHARE + 0.5):]
            busy[known] = 0
            busy[known[busiest]] = 1
        return Regimes(self._first, busy)


class ProjectLoads:
    """Adds the samples of instances to a FleetLoad, project by project.

    Where two projects or more are known, a project counts by the number of
    its instances, however large their traffic, and in no slot with much more
    than what is usual for it. Where four or more are measured, none counts
    more than a quarter.

    :param load: FleetLoad that samples are added to
    :param projects: {instance uuid: id of its project, or None}
    Derivation: reference/model.rst, "Regimes".
    """

    def __init__(self, load, projects):
        self._load = load
        self._projects = projects
        counts = collections.Counter(projects.values())
        least = _LARGE_SHARE * len(projects)
        self._large = {project for project, count in counts.items()
                       if count >= least}
        self._several = len(counts.keys() - {None}) > 1
        self._groups = {}        # group -> [FleetLoad, sum of usual loads]

    def add(self, series, usual=None):
        """Add the samples of one instance; arguments as of FleetLoad."""
        if not self._several:
            self._load.add(series, usual)
            return
        if not len(series):
            return
        if usual is None:
            usual = usual_load(series.rates)
        project = self._projects.get(series.instance_uuid)
        group = project if project in self._large else zlib.crc32(
            str(project).encode()) % _SMALL_GROUPS
        found = self._groups.setdefault(group, [FleetLoad(), 0.0])
        found[0].add(series, usual)
        found[1] += usual

    def finish(self):
        """Add to the load of the fleet what each project counts."""
        if not self._groups:
            return
        loads, usual = zip(*self._groups.values())
        usual = np.array(usual)
        counts = np.array([len(load.instances) for load in loads])
        others = counts.sum() - counts
        of_one = np.where(
            others > 0, (usual.sum() - usual) / np.maximum(others, 1),
            self._load.usual_of_one() or np.inf)
        amounts = shares.limited(np.minimum(usual, counts * of_one))
        factors = amounts / np.where(usual > 0, usual, 1.0)
        told = [load.by_slot() for load in loads]
        slots = np.unique(np.concatenate([slots for slots, _ in told]))
        sums = np.zeros((len(loads), slots.size, 2))
        for number, (some, values) in enumerate(told):
            sums[number, np.searchsorted(slots, some)] = (
                factors[number] * values)
        fleet = sums[:, :, 1].sum(axis=0) + self._load.usual_in(slots)
        most = np.maximum(MOST_OF_USUAL * sums[:, :, 1],
                          MOST_OF_FLEET * fleet)
        sums[:, :, 0] = np.minimum(sums[:, :, 0], most)
        self._load.add_sums(slots, sums.sum(axis=0), set().union(
            *(load.instances for load in loads)))
        self._groups = {}
