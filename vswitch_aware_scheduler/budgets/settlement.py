# SPDX-License-Identifier: Apache-2.0
"""Settles periods of error budgets: what was earned and spent, and by whom.

* Rates are not negative. If the measured instances exceed a capacity, the host
  was overloaded, whatever the others sent: spending never depends on what is
  missing. A host earns in proportion to what is measured: the share of the
  time of its instances that their samples cover.
* An instance without an interface, or that has never sent anything, counts as
  measured.
* A period waits for samples that may still arrive: of an instance that has
  recent samples but none of this period, for :data:`LATE_SECONDS`.
* The overload that a host spends is charged to the instances that made it
  (:func:`.rules.charges`).

Derivation: reference/rebalance.rst, "Error budget".
"""

import collections
import dataclasses
import itertools
import math

import numpy as np

from vswitch_aware_scheduler.budgets import deviation
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['LATE_SECONDS', 'Settlement']

#: Seconds that a period waits for samples.
LATE_SECONDS = 3600.0

#: A period of an instance is measured if samples cover this share of it.
_COVERED = 0.9


class Settlement:
    """Settles periods: what a host earned and spent in each, and by whom.

    :param newest: time of the newest sample of the fleet
    :param late_before: periods that ended before this time no longer wait for
        samples
    """

    def __init__(self, store: model_store.Store, targets_by_key: dict,
                 period: float, measured: list[model_store.Measured],
                 residents: dict, newest: float, late_before: float) -> None:
        self.targets = targets_by_key
        self.slots = 0
        self._period = period
        self._residents = residents
        self._newest = newest
        self._late_before = late_before
        self._of = collections.defaultdict(list)
        for part in measured:
            for row, uuid in enumerate(part.instances):
                self._of[uuid].append((part, row))
        self._store = store
        self._silent = store.silent_instances(self._unmeasured())
        self._charged = collections.Counter()
        self._vm_time = collections.defaultdict(lambda: np.zeros(2))

    def _unmeasured(self):
        """Return the set of the instances without recent samples."""
        uuids = set(itertools.chain.from_iterable(
            residents.active for residents in self._residents.values()))
        return {uuid for uuid in uuids if max(
            (part.last[row] for part, row in self._of[uuid]),
            default=-math.inf) < self._newest - LATE_SECONDS}

    def _gather(self, key, first, end):
        """Return what was measured of the instances of a budget.

        :returns: (uuids, active, covered, values, waits): (n, t) seconds in
            which an instance may have run, and those of them that are
            measured; (l, n, t) its mean load while it was measured; (n, t)
            bool, whether its samples may still arrive
        """
        period, limits = self._period, self.targets[key].limits
        resident = self._residents[key].active
        shape = len(resident), end - first
        active = np.array(list(resident.values())).reshape(shape)
        covered, waits = np.zeros(shape), np.zeros(shape, dtype=bool)
        values = np.zeros((len(limits), *shape))
        ends = period * np.arange(first + 1, end + 1)
        for i, uuid in enumerate(resident):
            last, is_reported = -math.inf, np.zeros(shape[1], dtype=bool)
            for part, row in self._of[uuid]:
                last = max(last, part.last[row])
                low = max(first, part.first_slot)
                high = min(end, part.first_slot + part.covered.shape[1])
                if low >= high:
                    continue
                own, its = (slice(low - begin, high - begin)
                            for begin in (first, part.first_slot))
                is_reported[own] = True
                better = part.covered[row, its] > covered[i, own]
                covered[i, own][better] = part.covered[row, its][better]
                for j, (weights, packet_bytes, _) in enumerate(limits):
                    values[j, i, own][better] = rate_law.values_of(
                        part.rates[row, its][better].astype(float), weights,
                        packet_bytes, part.packets_known[row])
            np.minimum(covered[i], active[i], out=covered[i])
            is_measured = covered[i] >= _COVERED * active[i]
            covered[i][is_measured] = active[i][is_measured]
            # Samples of an instance arrive in order. When other instances have
            # later samples, an instance that has ended gets no more samples,
            # and one without recent samples is not measured.
            later = ends <= self._newest - 2 * period
            gone = (active[i] < period) | (
                last < ends - period - LATE_SECONDS)
            # Without rates, its modeler has not yet stored them.
            waits[i] = ~is_measured & (ends > self._late_before) & (
                ~is_reported | (ends > last) & ~(later & gone))
            if uuid in self._silent:
                waits[i] = False
                # It counts as measured, unless it has samples.
                covered[i][covered[i] == 0] = active[i][covered[i] == 0]
        return list(resident), active, covered, values, waits

    def settle_all(self, budgets: dict, pending: dict) -> list:
        """Settle the pending slots of all budgets.

        :param budgets: {key: :class:`.ErrorBudget`}, changed in place
        :param pending: {key: (first slot, slot after the last)}
        """
        history = collections.defaultdict(dict)
        since = min((first for first, _ in pending.values()), default=0)
        for kind in {kind for kind, _ in pending}:
            for day_sums in self._store.sum_history(
                    kind, {name for its_kind, name in pending
                           if its_kind == kind},
                    int((since * self._period - max(rules.WINDOWS))
                        // rules.DAY_SECONDS)):
                history[kind, day_sums.name][
                    day_sums.day, day_sums.period_seconds] = day_sums
        sums = []
        for key, (first, last) in pending.items():
            budgets[key], days = self._settle(budgets[key], first, last,
                                              history[key])
            sums += days
        return sums

    def _settle(self, budget, first, end, stored):
        """Settle the periods of a budget that do not wait, in order.

        :param end: the slot after the last one that has ended
        """
        key, period, target = (budget.key, self._period,
                               self.targets[budget.key])
        uuids, active, covered, values, waits = self._gather(key, first, end)
        size = int(np.append(waits.any(axis=0), True).argmax())
        skipped = first - round(budget.until / period)
        if size <= 0 and skipped <= 0:
            return budget, []
        end = first + size
        active, covered, values = (array[..., :size] for array in (
            active, covered, values))
        total = active.sum(axis=0)
        used = total > 0
        known = np.divide(covered.sum(axis=0), total,
                          out=np.ones(size), where=used)
        loads = values * covered / period
        sums = loads.sum(axis=1)
        above = rules.exceeds(sums, target.capacities)
        alone = rules.exceeds(
            loads.max(axis=1, initial=0.0), target.capacities)
        overload = (above & ~alone).any(axis=0)
        self._charge(key, uuids, first, loads, above & ~alone)
        suffering = covered * above.any(axis=0) * ~rules.exceeds(
            loads, np.repeat(target.capacities[:, None], len(uuids), axis=1)
        ).any(axis=0)
        if key[0] == model_store.HOST:
            self._add_vm_time(uuids, first, covered, suffering)
        terms, balance = rules.Terms.of(budget), budget.balance
        measured_seconds = period * known * used
        for seconds, overloaded in zip(measured_seconds.tolist(),
                                       overload.tolist()):
            balance = float(terms.after(balance, seconds, period * overloaded))
        self.slots += size
        # Like a plan, burn rates use only periods that are known.
        is_known = (known >= _COVERED) | above.any(axis=0)
        days, burn = self._remembered(
            budget, first, np.where(is_known, sums, np.nan), alone, stored)
        begins = period * np.arange(first, end)
        changed = np.zeros(size, dtype=bool)
        for event in self._residents[key].events:
            slot = int(event // period) - first
            if event > max(budget.prediction.since, budget.until) \
                    and slot < size:
                changed[max(slot, 0)] = True
        return dataclasses.replace(
            budget, until=end * period, balance=balance,
            measured_seconds=budget.measured_seconds
            + float(measured_seconds.sum()),
            overload_seconds=budget.overload_seconds
            + period * int(overload.sum()),
            unknown_seconds=budget.unknown_seconds + period * float(
                (used * (1 - known)).sum() + max(skipped, 0)),
            unknown_why=self._unknown(uuids, active, covered, first)
            or budget.unknown_why, burn=burn,
            vm_seconds=budget.vm_seconds + float(covered.sum()),
            vm_overload_seconds=budget.vm_overload_seconds
            + float(suffering.sum()), prediction=deviation.after(
                budget.prediction, begins, period, changed,
                used & (known >= _COVERED), above.any(axis=0))), days

    def _unknown(self, uuids, active, covered, first):
        """Return which instances were not measured most recently, or None."""
        missing = (active > 0) & (covered < _COVERED * active)
        slots = np.flatnonzero(missing.any(axis=0))
        if not slots.size:
            return None
        place = slots[-1]
        number = np.count_nonzero(active[:, place])
        return (f'{number - np.count_nonzero(missing[:, place])} of {number} '
                f'instances were measured in the {self._period:g} s from '
                f'{self._period * (first + place):.0f} on; '
                f'{uuids[missing[:, place].argmax()]} was not')

    def _charge(self, key, uuids, first, loads, above):
        """Charge the instances of a budget for its avoidable overload.

        :param loads: (l, n, t) load of each instance on each limit
        :param above: (l, t) bool, where a limit is exceeded avoidably
        """
        capacities = self.targets[key].capacities
        for slot in np.flatnonzero(above.any(axis=0)).tolist():
            limit = int(np.where(above[:, slot], loads[..., slot].sum(
                axis=1) / capacities, 0.0).argmax())
            shares = rules.charges(loads[limit, :, slot], capacities[limit])
            day = int((first + slot) * self._period // rules.DAY_SECONDS)
            for i in np.flatnonzero(shares).tolist():
                self._charged[(*key, uuids[i], day)] += (
                    self._period * float(shares[i]))

    def _add_vm_time(self, uuids, first, covered, suffering):
        days = ((first + np.arange(covered.shape[1])) * self._period
                // rules.DAY_SECONDS).astype(np.int64)
        for day in set(days.tolist()):
            seconds = np.stack([covered, suffering], axis=-1)[
                :, days == day].sum(axis=1)
            for uuid, both in zip(uuids, seconds):
                self._vm_time[uuid, day] += both

    def spending(
            self, store: model_store.Store
    ) -> tuple[list[model_store.Charge], list[model_store.VMTime]]:
        """Return who spent the settled budgets."""
        if not self._vm_time:
            return [], []
        projects = {uuid: former.project for uuid, former
                    in store.former_instances().items()} | store.projects()
        of_project = collections.defaultdict(lambda: np.zeros(2))
        for (uuid, day), seconds in self._vm_time.items():
            of_project[projects.get(uuid), day] += seconds
        return [model_store.Charge(
            kind, name, uuid, day, projects.get(uuid), seconds)
            for (kind, name, uuid, day), seconds in self._charged.items()
        ], [model_store.VMTime(project, day, *seconds.tolist())
            for (project, day), seconds in of_project.items()
            if project is not None]

    def _remembered(self, budget, first, sums, exceeded, stored):
        """Return (changed StoredSums, burn rates) after a settlement."""
        period, target = self._period, self.targets[budget.key]
        end = first + sums.shape[1]
        stored = dict(stored)
        changed = []
        day = int(first * period // rules.DAY_SECONDS)
        while sums.shape[1] and packed.slots_of_day(day, period)[0] < end:
            begin, stop = packed.slots_of_day(day, period)
            day_arrays = packed.of_limits(
                stored.get((day, period)), target.limits, stop - begin)
            low, high = max(begin, first), min(stop, end)
            for target_array, source in zip(day_arrays, (sums, exceeded)):
                target_array[:, low - begin:high - begin] = source[
                    :, low - first:high - first]
            stored[day, period] = model_store.StoredSums(
                *budget.key, day, period, target.limits, packed.pack_day(
                    *day_arrays, target.capacities))
            changed.append(stored[day, period])
            day += 1
        return changed, _burn(budget, stored.values(), target, end * period)


def _burn(budget, stored, target, end):
    """Return {window: burn rate} of a budget.

    Windows of which less than half is known are omitted.

    :param stored: iterable of :class:`.StoredSums`, with any periods
    """
    begins = [max(end - window, budget.since) for window in rules.WINDOWS]
    seconds = np.zeros((len(rules.WINDOWS), 3))
    for day_sums in stored:
        period = day_sums.period_seconds
        first, stop = packed.slots_of_day(day_sums.day, period)
        sums, exceeded = packed.of_limits(day_sums, target.limits,
                                          stop - first)
        is_known = ~np.isnan(sums).any(axis=0)
        active = is_known & (sums > 0).any(axis=0)
        columns = np.array([is_known, active, active & rules.overloaded(
            sums, exceeded, target.capacities)])
        middles = period * (np.arange(first, stop) + 0.5)
        for place, begin in enumerate(begins):
            seconds[place] += period * columns[
                :, (middles > begin) & (middles < end)].sum(axis=1)
    return {
        str(window): float(rules.burn_rate(
            overloaded, active, budget.overload_probability))
        for window, begin, (known, active, overloaded) in zip(
            rules.WINDOWS, begins, seconds)
        if 2 * known >= end - begin > 0}
