# SPDX-License-Identifier: Apache-2.0
"""Selects moves that relieve a host, by joint samples.

Joint samples are the rates of all instances in the same time slots. For each
instance of a host and each other host, they give the overload of both hosts
that a move would have caused. Every move ends overloaded time of a host or of
an instance, alone or together with moves without which it would not. Pure.
Derivation: reference/rebalance.rst, "Choice of moves".
"""

import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.budgets import rules

__all__ = ['Constraints', 'Loads', 'Move', 'Rule', 'best_move', 'plan']

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9

#: Maximum number of empty hosts that moves which end overload only together
#: put into use.
_MOST_OPENED = 3


@dataclasses.dataclass(frozen=True)
class Move:
    """One migration.

    :ivar instance: row of the instance
    :ivar source: host that the instance leaves
    :ivar destination: host that it joins
    :ivar gain: reduction of the slots of avoidable overload of both hosts,
        minus the overload of the migration
    :ivar vm_gain: reduction of :meth:`Loads.suffered` of both hosts
    :ivar group: equal for moves of a plan that end overload only together,
        which share their gains equally
    :ivar parts: whether the move parts an instance from one that exceeds the
        capacity alone
    """

    instance: int
    source: int
    destination: int
    gain: float
    vm_gain: float = 0.0
    group: int = 0
    parts: bool = False


class Loads:
    """The loads that hosts would have had with their current instances.

    :param rates: (l, n, t) rate of each instance, for each of l limits
    :param capacities: (l, h) capacity of each limit, inf if a host has none
    :param hosts: (n,) host of each instance, -1: on no host
    :ivar most: (l, h) capacity of each limit, with a tolerance
    :ivar unread: (h,) number of instances whose rates are not in ``rates``
    :ivar sums: (l, h, t) sum of all instances of a host
    :ivar above: (l, h, t) number of instances that exceed the capacity alone
    """

    def __init__(self, rates, capacities, hosts):
        self.rates = rates
        self.hosts = np.array(hosts, dtype=np.int64)
        self.most = np.asarray(capacities, dtype=float) * (1 + _TOLERANCE)
        limits, count = self.most.shape
        self.unread = np.zeros(count, dtype=np.int64)
        self.sums = np.zeros((limits, count, rates.shape[2]))
        self.above = np.zeros(self.sums.shape, dtype=np.int16)
        for instance in np.flatnonzero(self.hosts >= 0):
            self._count(instance, self.hosts[instance], 1)

    @classmethod
    def of_sums(cls, rates, capacities, hosts, sums, above, unread):
        """Return Loads from the sums of hosts and the rates of some instances.

        :param rates: (l, n, t) of the instances that may move
        :param capacities: (l, h) capacity of each limit, inf if a host has
            none
        :param hosts: (n,) host of each of these instances
        :param sums: (l, h, t) of all instances of a host, NaN if unknown; the
            array is used without a copy
        :param above: (l, h, t) number of instances that exceed the capacity
            alone, or 1 for one or more; used without a copy
        :param unread: (h,) number of instances of each host that are not in
            ``rates``
        """
        loads = object.__new__(cls)
        loads.rates, loads.sums, loads.above = rates, sums, above
        loads.hosts = np.array(hosts, dtype=np.int64)
        loads.most = np.asarray(capacities, dtype=float) * (1 + _TOLERANCE)
        loads.unread = np.asarray(unread, dtype=np.int64)
        return loads

    def _count(self, instance, host, times):
        rates = self.rates[:, instance]
        self.sums[:, host] += times * rates
        self.above[:, host] += (
            times * (rates > self.most[:, host, None])).astype(np.int16)

    def put(self, instance, host):
        """Move an instance to another host.

        :param instance: row of the instance
        :param host: number of the host, -1: no host
        """
        if self.hosts[instance] >= 0:
            self._count(instance, self.hosts[instance], -1)
        if host >= 0:
            self._count(instance, host, 1)
        self.hosts[instance] = host

    def within(self, first, last, hosts=None):
        """Return a view of the given slots, which follows every :meth:`put`.

        :param first: first slot
        :param last: end of the slots, exclusive
        :param hosts: number of the first hosts to include; None: all
        """
        view = object.__new__(Loads)
        view.rates = self.rates[..., first:last]
        view.hosts, view.most = self.hosts, self.most[:, :hosts]
        view.unread = self.unread[:hosts]
        view.sums = self.sums[:, :hosts, first:last]
        view.above = self.above[:, :hosts, first:last]
        return view

    def copy(self):
        """Return Loads with the same samples and an independent placement."""
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
        return self.unread + np.bincount(self.hosts[self.hosts >= 0],
                                         minlength=self.most.shape[1])

    @property
    def known(self):
        """(h, t) bool: slots in which the sums of a host are known."""
        return ~np.isnan(self.sums).any(axis=0)

    def overload(self, hosts):
        """Return (k, t) bool: avoidable overload of the given hosts.

        :param hosts: numbers of k hosts
        """
        return ((self.sums[:, hosts] > self.most[:, hosts, None])
                & (self.above[:, hosts] == 0)).any(axis=0)

    def harmed(self, hosts):
        """Return (k, t) bool: whether one instance exceeds a limit alone.

        All other instances on the host suffer in these slots.

        :param hosts: numbers of k hosts
        """
        return ((self.sums[:, hosts] > self.most[:, hosts, None])
                & (self.above[:, hosts] > 0)).any(axis=0)

    def suffered(self, hosts):
        """Return (k,) overloaded slots of the instances on the given hosts.

        A slot of a host counts once for each instance that does not exceed a
        limit alone.

        :param hosts: numbers of k hosts
        """
        sizes = self.sizes
        return np.array([_suffered(
            self.sums[:, host, None], self.above[:, host, None], sizes[host],
            self.most[:, host, None, None])[0] for host in hosts])

    def suffered_without(self, host, instances):
        """Return (m,) :meth:`suffered` of a host without each instance.

        :param host: number of the host
        :param instances: rows of m instances
        """
        rates, most = self.rates[:, instances], self.most[:, host, None, None]
        return _suffered(
            self.sums[:, host, None] - rates,
            self.above[:, host, None] - (rates > most),
            self.sizes[host] - 1, most)

    def suffered_joined(self, instances, hosts):
        """Return (m, k) :meth:`suffered` of hosts with one more instance.

        :param instances: rows of m instances
        :param hosts: numbers of k hosts
        """
        sizes, rates = self.sizes + 1, self.rates[:, instances]
        largest = rates.max(axis=1)
        result = np.zeros((len(instances), len(hosts)))
        for column, host in enumerate(hosts):
            most = self.most[:, host, None]
            slots = np.flatnonzero(
                (self.sums[:, host] + largest > most).any(axis=0))
            relevant, most = rates[..., slots], most[..., None]
            result[:, column] = _suffered(
                self.sums[:, host][:, None, slots] + relevant,
                self.above[:, host][:, None, slots] + (relevant > most),
                sizes[host], most)
        return result

    def alone(self, instances, hosts):
        """Return (m, k) slots in which an instance exceeds a limit of a host.

        :param instances: rows of m instances
        :param hosts: numbers of k hosts
        """
        return np.stack([np.count_nonzero(
            (self.rates[:, instances] > self.most[:, host, None, None]).any(
                axis=0), axis=1) for host in hosts], axis=1)

    def without(self, host, instances):
        """Return (m,) slots of overload of a host without each instance.

        :param host: number of the host
        :param instances: rows of m instances
        """
        rates = self.rates[:, instances]
        threshold = self.most[:, host, None, None]
        sums = self.sums[:, host, None] - rates
        above = self.above[:, host, None] - (rates > threshold)
        return np.count_nonzero(
            ((sums > threshold) & (above == 0)).any(axis=0), axis=1)

    def joined(self, instances, hosts):
        """Return (m, k) slots of overload of hosts with one more instance.

        :param instances: rows of m instances
        :param hosts: numbers of k hosts
        """
        result = np.zeros((len(instances), len(hosts)), dtype=np.int64)
        rates = self.rates[:, instances]
        largest = rates.max(axis=1)
        for column, host in enumerate(hosts):
            threshold = self.most[:, host, None]
            # In the other slots no instance brings the host above a capacity.
            slots = np.flatnonzero(
                (self.sums[:, host] + largest > threshold).any(axis=0))
            relevant, threshold = rates[..., slots], threshold[..., None]
            sums = self.sums[:, host][:, None, slots] + relevant
            above = self.above[:, host][:, None, slots] + (
                relevant > threshold)
            result[:, column] = np.count_nonzero(
                ((sums > threshold) & (above == 0)).any(axis=0), axis=1)
        return result


@dataclasses.dataclass(frozen=True)
class Rule:
    """The conditions for relieving a host, and for ending the relief.

    :ivar moves: maximum number of moves of one host at a time
    :ivar window_seconds: length of the considered past
    :ivar recent_seconds: only a host with overload within this time is
        relieved
    :ivar together: maximum number of moves that end overload only together
    :ivar open_days: if no other move helps, an empty host is put into use for
        a host whose debt exceeds the budget of this many days
    :ivar repay_days: a host whose debt exceeds the budget of this many days is
        relieved until its balance would grow; another host is relieved until
        it meets its limit
    """

    moves: int = 3
    window_seconds: float = 7 * rules.DAY_SECONDS
    recent_seconds: float = 3600.0
    together: int = 10
    open_days: float = 1.0
    repay_days: float = 20.0


class Constraints:
    """What excludes an instance from a host, besides its traffic.

    :param needs: (n, r) needs of each instance for each resource
    :param free: (h, r) free capacity of each host for each resource
    :param movable: (n,) bool, whether an instance can move; default: all
    :param closed: (h,) bool, hosts that neither give nor accept instances;
        default: none
    :param may: (n, h) bool, whether an instance may be on a host, by
        aggregates, traits and so on; default: anywhere
    :param groups: (n,) int, group whose members must not share a host, -1: no
        group; default: no groups
    :param hosts: (n,) host of each instance, for the groups
    :param members: (g, h) how many members of each group each host has;
        default: those among the instances
    :param most_members: (g,) how many members of each group a host may have;
        default: 1
    :param admission: object that judges hosts as the filter does, as
        :class:`.destinations.Destinations`; a copy of the Constraints shares
        it. Default: every host passes
    """

    def __init__(self, needs, free, movable=None, closed=None, may=None,
                 groups=None, hosts=None, members=None, most_members=None,
                 admission=None):
        self._needs = np.asarray(needs, dtype=float)
        self._free = np.array(free, dtype=float)
        instances, count = len(self._needs), len(self._free)
        self.movable = (np.ones(instances, dtype=bool) if movable is None
                        else np.asarray(movable, dtype=bool))
        self.closed = (np.zeros(count, dtype=bool) if closed is None
                       else np.asarray(closed, dtype=bool))
        self._may = may
        self._groups = groups
        self._most_members = most_members
        if groups is not None and members is None:
            members = np.zeros((max(groups, default=-1) + 1, count), dtype=int)
            for group, host in zip(groups, hosts):
                if group >= 0 and host >= 0:
                    members[group, host] += 1
        self._members = None if members is None else np.array(members)
        self._admission = admission

    def copy(self):
        """Return independent Constraints."""
        return Constraints(self._needs, self._free, self.movable, self.closed,
                           self._may, self._groups, members=self._members,
                           most_members=self._most_members,
                           admission=self._admission)

    def allowed(self, instances, hosts):
        """Return (m, k) bool: whether an instance may join a host.

        :param instances: rows of m instances
        :param hosts: numbers of k hosts
        """
        hosts = np.asarray(hosts, dtype=np.int64)
        allowed = (self._needs[instances][:, None]
                   <= self._free[hosts] * (1 + _TOLERANCE)).all(axis=2)
        allowed &= ~self.closed[hosts]
        if self._may is not None:
            allowed &= self._may[np.ix_(instances, hosts)]
        if self._groups is not None:
            for row, instance in enumerate(instances):
                group = self._groups[instance]
                if group >= 0:
                    allowed[row] &= self._members[group, hosts] < (
                        1 if self._most_members is None
                        else self._most_members[group])
        return allowed

    def admitted(self, instance, hosts):
        """Return (k,) bool: whether the filter would pass hosts.

        :param instance: row of the instance
        :param hosts: numbers of k hosts
        """
        if self._admission is None:
            return np.ones(len(hosts), dtype=bool)
        return self._admission.admitted(instance, hosts)

    def put(self, instance, source, destination):
        """Move an instance to another host.

        :param instance: row of the instance
        :param source: number of the host that it leaves
        :param destination: number of the host that it joins
        """
        self._free[source] += self._needs[instance]
        self._free[destination] -= self._needs[instance]
        if self._groups is not None and self._groups[instance] >= 0:
            self._members[self._groups[instance], source] -= 1
            self._members[self._groups[instance], destination] += 1
        if self._admission is not None:
            self._admission.put(instance, source, destination)


def plan(loads, balance, terms, rule, recent, constraints, empty=(),
         costs=None, accepting=None, most_parted=math.inf):
    """Return the moves that relieve hosts which have spent too much.

    Afterwards, instances are parted from those that exceed the capacity of
    their host alone.

    :param loads: Loads of the time that the rule considers; not changed
    :param balance: (h,) budget of each host in seconds of overload; for an
        empty host its initial budget
    :param terms: :class:`.rules.Terms`, or a list of those of each host
    :param rule: Rule
    :param recent: number of the last slots that are recent
    :param constraints: Constraints; not changed, except that their
        ``admission`` has the moves afterwards
    :param empty: hosts that can be put into use, in this order
    :param costs: callable(source, instances, hosts), returns (m, k) slots of
        overload that each migration adds; default: none. With costs, a host in
        debt is relieved even without recent overload, because a quiet hour may
        be the right time
    :param accepting: (h,) bool, whether a host accepts instances by its
        budget; default: hosts that are not in debt. Those in debt keep to what
        they earn in place of their limit
    :param most_parted: maximum number of moves that part instances from those
        that exceed the capacity of their host alone
    :returns: list of Move in the order of execution
    """
    if not loads.slots:
        return []
    open_hosts = np.flatnonzero((loads.sizes > 0)
                                & ~constraints.closed).tolist()
    known_slots = np.count_nonzero(loads.known, axis=1) * (1 + _TOLERANCE)
    limit = _of_each(terms, 'overload_probability') * known_slots
    earned = _of_each(terms, 'rate') * known_slots
    day = np.broadcast_to(_of_each(terms, 'day'), limit.shape)
    balance = np.asarray(balance)
    enough = np.where(balance < -rule.repay_days * day, earned, limit)
    hosts = [host for host in open_hosts if balance[host] < 0]
    hosts = [host for host, slots in zip(hosts, loads.overload(hosts))
             if (costs is not None or slots[-recent:].any())
             and np.count_nonzero(slots) > enough[host]]
    harmed_slots = loads.harmed(slice(None))
    is_harmed = np.count_nonzero(harmed_slots, axis=1) > limit
    harmed = [host for host in open_hosts if is_harmed[host]]
    if not hosts and not harmed:
        return []
    accepting = balance >= 0 if accepting is None else accepting
    takers = [host for host in open_hosts
              if accepting[host] and host not in hosts
              and not is_harmed[host]]
    search = _Search(loads.copy(), constraints.copy(), costs,
                     np.where(balance < 0, earned, limit), takers, empty)
    for source in sorted(hosts, key=lambda host: (balance[host], host)):
        search.relieve(source, enough[source], rule,
                       balance[source] < -rule.open_days * day[source])
    for source in sorted(harmed, key=lambda host: -np.count_nonzero(
            harmed_slots[host])):
        if costs is not None or harmed_slots[source, -recent:].any():
            most_parted -= search.part(
                source, min(rule.moves, most_parted),
                [host for host in harmed
                 if host != source and accepting[host]])
    return search.moves


def _of_each(terms, name):
    """Return a value of Terms, or of the Terms of each host."""
    if isinstance(terms, rules.Terms):
        return getattr(terms, name)
    return np.array([getattr(host_terms, name) for host_terms in terms],
                    dtype=float)


def _suffered(sums, above, size, most):
    """Return (m,) :meth:`Loads.suffered` of m cases of one host.

    :param sums: (l, m, t)
    :param above: (l, m, t)
    :param size: number of instances
    :param most: (l, 1, 1)
    """
    below = np.maximum(size - above.max(axis=0), 0)
    return (below * (sums > most).any(axis=0)).sum(axis=1).astype(float)


class _Search:
    """Searches moves, each after those that were found before.

    :param loads: Loads, changed by the moves
    :param constraints: Constraints, changed by the moves
    :param costs: as in :func:`plan`
    :param limit: (h,) maximum number of slots of overload of a destination
    :param takers: list of the hosts in use that may receive instances
    :param empty: hosts that can be put into use
    :ivar moves: list of Move in the order of execution
    """

    def __init__(self, loads, constraints, costs, limit, takers, empty):
        self._loads, self._constraints = loads, constraints
        self._costs, self._limit = costs, limit
        self._takers, self._empty = takers, list(empty)
        self._groups = 0
        self.moves = []

    def relieve(self, source, enough, rule, may_open):
        """Find moves that end overload of a host in debt.

        :param source: number of the host
        :param enough: number of slots of overload with which it is relieved
        :param rule: Rule
        :param may_open: whether an empty host may be put into use
        """
        loads, made = self._loads, 0
        while made < rule.moves and np.count_nonzero(
                loads.overload([source])) > enough:
            hosts = self._takers
            group = self._best(source, hosts) or self._together(
                source, hosts, rule.together)
            if not group and may_open and self._empty:
                group = self._best(source, self._empty)
            number = 0
            while not group and may_open and number < min(
                    len(self._empty), _MOST_OPENED):
                number += 1
                group = self._together(
                    source, hosts + self._empty[:number], rule.together)
            if not group:
                return
            may_open &= not self._open(group)
            made += len(group)

    def _open(self, group):
        """Put the hosts of some moves into use. Return whether any was empty.

        :param group: list of Move
        """
        opened = {move.destination for move in group}.intersection(self._empty)
        self._empty = [host for host in self._empty if host not in opened]
        self._takers = self._takers + sorted(opened)
        return bool(opened)

    def part(self, source, most, harmed):
        """Part instances from those that exceed the capacity alone.

        An instance that exceeds it goes to a host that carries it, or to a
        host that has such an instance already. Others go to hosts without
        such an instance.

        :param source: number of the host
        :param most: maximum number of moves from this host
        :param harmed: other hosts with an instance that exceeds the capacity
        :returns: number of moves
        """
        loads = self._loads
        for made in range(most):
            own = self._own(source)
            is_large = loads.alone(own, [source])[:, 0] > self._limit[source]
            hosts = [*self._takers, *self._empty, *harmed]
            if not own.size or not hosts:
                return made
            carried = loads.alone(own, hosts) <= self._limit[hosts]
            kinds = np.repeat([0, 1, 2], [
                len(self._takers), len(self._empty), len(harmed)])
            fits = np.where(is_large[:, None], carried | (kinds == 2),
                            carried & (kinds == 0))
            before = loads.suffered([source, *hosts])
            gain = np.where(fits, (
                before[0] - loads.suffered_without(source, own)[:, None]
                + before[1:] - loads.suffered_joined(own, hosts)), 0.0)
            group = self._chosen(source, gain, own, hosts, self._costs and (
                self._costs(source, own, hosts) <= 0))
            if not group:
                return made
            self._open(group)
        return most

    def _own(self, source):
        own = np.flatnonzero(self._loads.hosts == source)
        return own[self._constraints.movable[own]]

    def _best(self, source, hosts):
        """Make the single move that ends most overload, if there is one."""
        move = best_move(self._loads, source, hosts, self._limit,
                         self._own(source), self._constraints, self._costs)
        return move and self._made([move])

    def _chosen(self, source, gain, instances, hosts, may):
        """Make the move with the most gain that does not add overload."""
        loads = self._loads
        most = np.maximum(np.count_nonzero(loads.overload(hosts), axis=1),
                          self._limit[hosts])
        gain[loads.joined(instances, hosts) > most] = 0
        if may is not None:
            gain[~may] = 0
        place = _largest(gain, instances, hosts, self._constraints)
        return place and self._made([Move(
            int(instances[place[0]]), source, int(hosts[place[1]]), 0.0,
            parts=True)])

    def _together(self, source, hosts, most):
        """Make moves that end overload only together, if there are any.

        Each of them reduces the traffic above the capacity most. Those
        without which as much overload ends are omitted.
        """
        hosts, group = list(hosts), []
        after = before = self._overloaded([source, *hosts])
        while len(group) < most:
            move = _lowering(self._loads, source, hosts, self._own(source),
                             self._constraints, self._costs)
            if move is None:
                break
            self._put(move.instance, source, move.destination)
            group.append(move)
            after = self._overloaded([source, *hosts])
            if after < before:
                for move in group[:-1]:
                    self._put(move.instance, move.destination, source)
                    if self._overloaded([source, *hosts]) > after:
                        self._put(move.instance, source, move.destination)
                    else:
                        group.remove(move)
                break
        for move in reversed(group):
            self._put(move.instance, move.destination, source)
        return self._made(group) if group and after < before else None

    def _overloaded(self, hosts):
        return np.count_nonzero(self._loads.overload(hosts))

    def _put(self, instance, source, destination):
        self._loads.put(instance, destination)
        self._constraints.put(instance, source, destination)

    def _made(self, group):
        """Make the moves of a group and return them with their gains."""
        hosts = sorted({host for move in group
                        for host in (move.source, move.destination)})
        overload = self._overloaded(hosts)
        suffered = self._loads.suffered(hosts).sum()
        cost = 0.0
        for move in group:
            if self._costs is not None:
                cost += float(self._costs(
                    move.source, np.array([move.instance]),
                    [move.destination])[0, 0])
            self._put(move.instance, move.source, move.destination)
        overload -= self._overloaded(hosts) + cost
        suffered -= self._loads.suffered(hosts).sum()
        group = [dataclasses.replace(
            move, gain=float(overload / len(group)),
            vm_gain=float(suffered / len(group)), group=self._groups)
            for move in group]
        self._groups += 1
        self.moves += group
        return group


def _excess(loads, source, instances):
    """Return (m,) how far a host exceeds its limits without each instance.

    The sum of the shares of the capacities, over slots and limits.
    """
    threshold = loads.most[:, source, None, None]
    sums = loads.sums[:, source, None] - loads.rates[:, instances]
    return (np.nan_to_num(np.maximum(sums - threshold, 0.0))
            / threshold).sum(axis=(0, 2))


def _excess_now(loads, source):
    """Return how far a host exceeds its limits; see :func:`_excess`."""
    threshold = loads.most[:, source, None]
    return (np.nan_to_num(np.maximum(loads.sums[:, source] - threshold, 0.0))
            / threshold).sum()


def _lowering(loads, source, takers, instances, constraints, costs):
    """Return the Move that reduces the excess most, or None.

    The move adds no slot of overload to the destination, and no instance that
    exceeds its capacity alone. Of several possible destinations, the one with
    the smallest maximum load is used.
    """
    if not len(instances) or not len(takers):
        return None
    takers = np.asarray(takers)
    fits = constraints.allowed(instances, takers)
    fits &= loads.joined(instances, takers) <= np.count_nonzero(
        loads.overload(takers), axis=1)
    peaks = loads.rates[:, instances].max(axis=2)
    fits &= (peaks[:, :, None] <= loads.most[:, None, takers]).all(axis=0)
    if costs is not None:
        fits &= costs(source, instances, takers) <= 0
    excess = _excess(loads, source, instances)
    now = _excess_now(loads, source) * (1 - _TOLERANCE)
    for row in np.argsort(excess, kind='stable').tolist():
        if excess[row] >= now:
            return None
        if fits[row].any():
            fits[row] &= constraints.admitted(int(instances[row]), takers)
        if not fits[row].any():
            continue
        rates = loads.rates[:, instances[row], None]
        largest = np.nan_to_num((loads.sums[:, takers] + rates)
                                / loads.most[:, takers, None]).max(axis=(0, 2))
        column = np.where(fits[row], largest, np.inf).argmin()
        return Move(int(instances[row]), int(source), int(takers[column]), 0.0)
    return None


def best_move(loads, source, destinations, limit, instances=None,
              constraints=None, costs=None):
    """Return the move with the least overload of both hosts afterwards.

    :param loads: Loads
    :param source: host to relieve
    :param destinations: hosts that may receive an instance
    :param limit: maximum number of slots of overload of a destination, unless
        it already has more; a number, or (h,) of each host
    :param instances: rows of the instances that may move; default: all of the
        host
    :param constraints: Constraints; default: none
    :param costs: as in :func:`plan`
    :returns: Move, or None if no move reduces the overload
    """
    if instances is None:
        instances = np.flatnonzero(loads.hosts == source)
    if not len(instances) or not len(destinations):
        return None
    before = np.count_nonzero(
        loads.overload([source, *destinations]), axis=1)
    source_after = loads.without(source, instances)
    destination_after = loads.joined(instances, destinations)
    gain = (before[0] - source_after[:, None] + before[1:]
            - destination_after).astype(float)
    if costs is not None:
        gain -= costs(source, instances, destinations)
    if np.ndim(limit):
        limit = limit[np.asarray(destinations)]
    gain[destination_after > np.maximum(before[1:], limit)] = 0
    place = _largest(gain, instances, destinations, constraints)
    return place and Move(
        int(instances[place[0]]), int(source), int(destinations[place[1]]),
        float(gain[place]))


def _largest(gain, instances, hosts, constraints):
    """Return (row, column) of the largest gain of a permitted move, or None.

    Whether the filter passes hosts is asked last and only for instances that
    are chosen, because the answer takes time.

    :param gain: (m, k), changed: 0 for moves that are not permitted
    :param instances: rows of m instances
    :param hosts: numbers of k hosts
    :param constraints: Constraints or None
    """
    if constraints is not None:
        gain[~constraints.allowed(instances, hosts)] = 0
    judged = set()
    while True:
        row, column = np.unravel_index(gain.argmax(), gain.shape)
        if gain[row, column] <= 0:
            return None
        if constraints is None or row in judged:
            return row, column
        judged.add(row)
        gain[row, ~constraints.admitted(int(instances[row]), hosts)] = 0
