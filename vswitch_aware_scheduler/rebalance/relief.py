# SPDX-License-Identifier: Apache-2.0
"""Moves that relieve a host, chosen exactly on joint samples.

Joint samples say what every instance asked for in the same slots of time.
For each instance of a host and each other host they give the overload that
both hosts would have had with the move. Pure.

Derivation: reference/rebalance.rst, "Choice of moves".
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.rebalance import budget

__all__ = ['Constraints', 'Loads', 'Move', 'Rule', 'best_move', 'plan',
           'refusing']

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Move:
    """One migration.

    :ivar instance: row of the instance
    :ivar source: host that it leaves
    :ivar destination: host that it joins
    :ivar gain: slots of overload that both hosts would have had less, less
        what the migration itself adds
    """

    instance: int
    source: int
    destination: int
    gain: float


class Loads:
    """What hosts would have carried with the instances that they have now.

    :param rates: (l, n, t) what each instance asks of each of l limits
    :param capacities: (l, h) capacity of each limit, inf where a host has
        none
    :param hosts: (n,) host of each instance, -1: on none
    :ivar sums: (l, h, t) of all instances of a host
    :ivar above: (l, h, t) how many instances are above the capacity alone
    """

    def __init__(self, rates, capacities, hosts):
        self.rates = rates
        self.hosts = np.array(hosts, dtype=np.int64)
        self.most = np.asarray(capacities, dtype=float) * (1 + _TOLERANCE)
        limits, count = self.most.shape
        self.sums = np.zeros((limits, count, rates.shape[2]))
        self.above = np.zeros(self.sums.shape, dtype=np.int16)
        for instance in np.flatnonzero(self.hosts >= 0):
            self._count(instance, self.hosts[instance], 1)

    def _count(self, instance, host, times):
        rates = self.rates[:, instance]
        self.sums[:, host] += times * rates
        self.above[:, host] += (
            times * (rates > self.most[:, host, None])).astype(np.int16)

    def put(self, instance, host):
        """Follow that an instance is on another host now, -1: on none."""
        if self.hosts[instance] >= 0:
            self._count(instance, self.hosts[instance], -1)
        if host >= 0:
            self._count(instance, host, 1)
        self.hosts[instance] = host

    def within(self, first, last, hosts=None):
        """Return a view of some slots, which follows every :meth:`put`.

        :param hosts: of the first so many hosts; default: of all
        """
        view = object.__new__(Loads)
        view.rates = self.rates[..., first:last]
        view.hosts, view.most = self.hosts, self.most[:, :hosts]
        view.sums = self.sums[:, :hosts, first:last]
        view.above = self.above[:, :hosts, first:last]
        return view

    def copy(self):
        """Return Loads with the same samples, whose hosts are their own."""
        copied = self.within(0, None)
        for name in ('hosts', 'sums', 'above'):
            setattr(copied, name, getattr(copied, name).copy())
        return copied

    @property
    def slots(self):
        """Number of slots."""
        return self.rates.shape[2]

    @property
    def sizes(self):
        """(h,) number of instances on each host."""
        return np.bincount(self.hosts[self.hosts >= 0],
                           minlength=self.most.shape[1])

    def overload(self, hosts):
        """Return (k, t) bool: avoidable overload of some hosts."""
        return ((self.sums[:, hosts] > self.most[:, hosts, None])
                & (self.above[:, hosts] == 0)).any(axis=0)

    def without(self, host, instances):
        """Return (m,) slots of overload of a host without each instance."""
        rates = self.rates[:, instances]
        most = self.most[:, host, None, None]
        sums = self.sums[:, host, None] - rates
        above = self.above[:, host, None] - (rates > most)
        return np.count_nonzero(
            ((sums > most) & (above == 0)).any(axis=0), axis=1)

    def joined(self, instances, hosts):
        """Return (m, k) slots of overload of hosts with one instance more."""
        result = np.zeros((len(instances), len(hosts)), dtype=np.int64)
        rates = self.rates[:, instances]
        largest = rates.max(axis=1)
        for column, host in enumerate(hosts):
            most = self.most[:, host, None]
            # In other slots no instance brings the host above a capacity.
            slots = np.flatnonzero(
                (self.sums[:, host] + largest > most).any(axis=0))
            some, most = rates[..., slots], most[..., None]
            sums = self.sums[:, host][:, None, slots] + some
            above = self.above[:, host][:, None, slots] + (some > most)
            result[:, column] = np.count_nonzero(
                ((sums > most) & (above == 0)).any(axis=0), axis=1)
        return result


@dataclasses.dataclass(frozen=True)
class Rule:
    """When hosts are relieved, and how far.

    :ivar moves: most moves of one host at a time
    :ivar window_seconds: how much of the past is looked at
    :ivar recent_seconds: only a host that was overloaded within this time is
        relieved
    :ivar open_days: an empty host is taken into use where no other move
        helps and the host owes more than so many days earn, or was overloaded
        all of the recent time
    :ivar repay_days: a host that owes more than so many days earn is relieved
        until it would earn, another one until it keeps to its limit
    """

    moves: int = 3
    window_seconds: float = 7 * budget.DAY_SECONDS
    recent_seconds: float = 3600.0
    open_days: float = 1.0
    repay_days: float = 20.0


class Constraints:
    """What keeps an instance from a host beside its traffic.

    :param needs: (n, r) what each instance takes of each resource
    :param left: (h, r) what each host has left of each
    :param movable: (n,) bool: which instances can move at all; default: all
    :param closed: (h,) bool: hosts that neither give nor take; default: none
    :param may: (n, h) bool: where each instance may be, by aggregates,
        traits and the like; default: anywhere
    :param groups: (n,) int, groups whose members may not share a host, -1: in
        none; default: no groups
    :param hosts: (n,) host of each instance, for the groups
    """

    def __init__(self, needs, left, movable=None, closed=None, may=None,
                 groups=None, hosts=None):
        self._needs = np.asarray(needs, dtype=float)
        self._left = np.array(left, dtype=float)
        instances, count = len(self._needs), len(self._left)
        self.movable = (np.ones(instances, dtype=bool) if movable is None
                        else np.asarray(movable, dtype=bool))
        self.closed = (np.zeros(count, dtype=bool) if closed is None
                       else np.asarray(closed, dtype=bool))
        self._may = may
        self._groups = groups
        self._hosts = None if hosts is None else np.array(hosts)

    def copy(self):
        """Return Constraints that follow moves by themselves."""
        return Constraints(self._needs, self._left, self.movable, self.closed,
                           self._may, self._groups, self._hosts)

    def allowed(self, instances, hosts):
        """Return (m, k) bool: which instance may join which host."""
        hosts = np.asarray(hosts, dtype=np.int64)
        allowed = (self._needs[instances][:, None]
                   <= self._left[hosts] * (1 + _TOLERANCE)).all(axis=2)
        allowed &= ~self.closed[hosts]
        if self._may is not None:
            allowed &= self._may[np.ix_(instances, hosts)]
        if self._groups is not None:
            for row, instance in enumerate(instances):
                group = self._groups[instance]
                if group >= 0:
                    others = self._hosts[self._groups == group]
                    allowed[row] &= ~np.isin(hosts, others)
        return allowed

    def put(self, instance, source, destination):
        """Follow that an instance went to another host."""
        self._left[source] += self._needs[instance]
        self._left[destination] -= self._needs[instance]
        if self._hosts is not None:
            self._hosts[instance] = destination


def refusing(loads, balance, terms):
    """Return (h,) bool: which hosts take no arrivals.

    A host in debt takes none, unless it would earn with the instances that it
    has now: then the debt is of instances that have left, or of other times.

    :param loads: Loads of the time that the rule looks at
    :param balance: (h,) budget of each host in seconds of overload
    :param terms: :class:`.budget.Terms`
    """
    refusing = np.asarray(balance) < 0
    hosts = np.flatnonzero(refusing)
    if hosts.size and loads.slots:
        refusing[hosts] = np.count_nonzero(
            loads.overload(hosts), axis=1) > (
                terms.rate * loads.slots * (1 + _TOLERANCE))
    return refusing


def plan(loads, balance, terms, rule, recent, constraints, empty=(),
         costs=None):
    """Return the moves that relieve hosts which have overspent.

    :param loads: Loads of the time that the rule looks at; not changed
    :param balance: (h,) budget of each host in seconds of overload; of an
        empty host, with what it would begin
    :param terms: :class:`.budget.Terms`
    :param rule: Rule
    :param recent: how many of the last slots are recent
    :param constraints: Constraints; not changed
    :param empty: hosts that can be taken into use, the first one first
    :param costs: callable(source, instances, hosts) to (m, k) slots of
        overload that each migration itself adds; default: none does. A host
        in debt then need not have been overloaded of late: a quiet hour may
        be the right one
    :returns: list of Move in the order in which to do them
    """
    sizes = loads.sizes
    open_hosts = np.flatnonzero((sizes > 0) & ~constraints.closed).tolist()
    hosts = [host for host in open_hosts if balance[host] < 0]
    if not hosts or not loads.slots:
        return []
    limit = terms.overload_probability * loads.slots * (1 + _TOLERANCE)
    enough = np.where(
        np.asarray(balance) < -rule.repay_days * terms.day,
        terms.rate * loads.slots * (1 + _TOLERANCE), limit)
    hosts = [host for host, slots in zip(hosts, loads.overload(hosts))
             if (costs is not None or slots[-recent:].any())
             and np.count_nonzero(slots) > enough[host]]
    if not hosts:
        return []
    loads, constraints = loads.copy(), constraints.copy()
    empty, moves = list(empty), []
    last = loads.within(max(0, loads.slots - recent), None)
    takers = [host for host in open_hosts if balance[host] >= 0]
    for source in sorted(hosts, key=lambda host: (balance[host], host)):
        opened = None
        for _ in range(rule.moves):
            if np.count_nonzero(loads.overload([source])) <= enough[source]:
                break
            own = np.flatnonzero(loads.hosts == source)
            own = own[constraints.movable[own]]
            move = best_move(loads, source, takers, limit, own, constraints,
                             costs)
            if move is None and opened is not None:
                move = _following(loads, source, opened, limit, own,
                                  constraints) if costs is None else None
            elif move is None and len(empty) and (
                    balance[source] < -rule.open_days * terms.day
                    or last.overload([source]).all()):
                move = _opening(loads, source, empty, own, constraints, costs)
                if move is not None:
                    opened = move.destination
                    empty.remove(opened)
                    takers.append(opened)
            if move is None:
                break
            loads.put(move.instance, move.destination)
            constraints.put(move.instance, source, move.destination)
            moves.append(move)
    return moves


def _excess(loads, source, instances):
    """Return (m,) by how much a host is above its limits without each.

    Shares of the capacities, added up over the slots and the limits.
    """
    most = loads.most[:, source, None, None]
    left = loads.sums[:, source, None] - loads.rates[:, instances] - most
    return (np.maximum(left, 0.0) / most).sum(axis=(0, 2))


def _opening(loads, source, empty, instances, constraints, costs):
    """Return the Move to an empty host that leaves least, or None.

    Least overload, then least traffic above the capacities.
    """
    if np.count_nonzero(loads.hosts == source) < 2 or not len(instances):
        return None
    allowed = constraints.allowed(instances, empty)
    left = np.where(allowed.any(axis=1), loads.without(source, instances),
                    loads.slots + 1)
    if costs is not None:
        left = left + costs(source, instances, empty[:1])[:, 0]
    row = np.lexsort((_excess(loads, source, instances), left))[0]
    gain = np.count_nonzero(loads.overload([source])) - left[row]
    if not allowed[row].any() or costs is not None and gain <= 0:
        return None
    return Move(int(instances[row]), int(source),
                int(empty[allowed[row].argmax()]), float(gain))


def _following(loads, source, host, limit, instances, constraints):
    """Return the Move to a host just opened that lowers the excess most.

    A host may be so far above its capacity that no single move ends a slot of
    overload; together they do. The host that takes them stays within the
    limit. None where there is no such move.
    """
    if np.count_nonzero(loads.hosts == source) < 2 or not len(instances):
        return None
    fits = (loads.joined(instances, [host]) <= limit)[:, 0]
    instances = instances[fits & constraints.allowed(instances, [host])[:, 0]]
    if not len(instances):
        return None
    excess = _excess(loads, source, instances)
    row = excess.argmin()
    most = loads.most[:, source, None]
    now = (np.maximum(loads.sums[:, source] - most, 0.0) / most).sum()
    if excess[row] >= now * (1 - _TOLERANCE):
        return None
    return Move(int(instances[row]), int(source), int(host), 0.0)


def best_move(loads, source, destinations, limit, instances=None,
              constraints=None, costs=None):
    """Return the move that leaves a host and one other least overload.

    :param loads: Loads
    :param source: host to relieve
    :param destinations: hosts which may take an instance
    :param limit: no destination may have more slots of overload than this,
        or than it has already
    :param instances: which instances may move; default: all of the host
    :param constraints: Constraints; default: none
    :param costs: as of :func:`plan`
    :returns: Move, or None where no move leaves less overload than there is
    """
    if instances is None:
        instances = np.flatnonzero(loads.hosts == source)
    if not len(instances) or not len(destinations):
        return None
    before = np.count_nonzero(
        loads.overload([source, *destinations]), axis=1)
    left = loads.without(source, instances)
    there = loads.joined(instances, destinations)
    gain = (before[0] - left[:, None] + before[1:] - there).astype(float)
    if costs is not None:
        gain -= costs(source, instances, destinations)
    gain[there > np.maximum(before[1:], limit)] = 0
    if constraints is not None:
        gain[~constraints.allowed(instances, destinations)] = 0
    row, column = np.unravel_index(gain.argmax(), gain.shape)
    if gain[row, column] <= 0:
        return None
    return Move(int(instances[row]), int(source), int(destinations[column]),
                float(gain[row, column]))
