# SPDX-License-Identifier: Apache-2.0
"""Selects moves that relieve a host, by joint samples.

Joint samples are the rates of all instances in the same time slots. For each
instance of a host and each other host, they give the overload of both hosts
that a move would have caused. Pure. Derivation: reference/rebalance.rst,
"Choice of moves".
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.rebalance import budget

__all__ = ['Constraints', 'Loads', 'Move', 'Rule', 'best_move', 'plan']

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Move:
    """One migration.

    :ivar instance: row of the instance
    :ivar source: host that the instance leaves
    :ivar destination: host that it joins
    :ivar gain: reduction of the slots of overload of both hosts, minus the
        overload of the migration
    """

    instance: int
    source: int
    destination: int
    gain: float


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
    :ivar open_days: if no other move helps, an empty host is put into use for
        a host whose debt exceeds the budget of this many days, or which was
        overloaded during all of the recent time
    :ivar open_soon_days: as ``open_days``, for a host whose present instances
        exceed the limit by far: ``open_soon_excess``
    :ivar open_soon_excess: overload over the considered past, in multiples of
        the limit
    :ivar repay_days: a host whose debt exceeds the budget of this many days is
        relieved until its balance would grow; another host is relieved until
        it meets its limit
    :ivar lowers_excess: if no single move ends the overload of any slot,
        whether to make moves that only reduce the traffic above the capacity;
        these moves go to hosts in use and add no overload there
    """

    moves: int = 3
    window_seconds: float = 7 * budget.DAY_SECONDS
    recent_seconds: float = 3600.0
    open_days: float = 5.0
    open_soon_days: float = 1.0
    open_soon_excess: float = 1.5
    repay_days: float = 20.0
    lowers_excess: bool = False


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
    :param uplinks: :class:`.Uplinks`, whose limits every move keeps; default:
        none
    """

    def __init__(self, needs, free, movable=None, closed=None, may=None,
                 groups=None, hosts=None, members=None, most_members=None,
                 uplinks=None):
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
        self._uplinks = uplinks

    def copy(self):
        """Return independent Constraints."""
        return Constraints(self._needs, self._free, self.movable, self.closed,
                           self._may, self._groups, members=self._members,
                           most_members=self._most_members,
                           uplinks=self._uplinks and self._uplinks.copy())

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
        if self._uplinks is not None:
            allowed &= self._uplinks.allowed(instances, hosts)
        return allowed

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
        if self._uplinks is not None:
            self._uplinks.put(instance, destination)


def plan(loads, balance, terms, rule, recent, constraints, empty=(),
         costs=None, accepting=None):
    """Return the moves that relieve hosts which have spent too much.

    :param loads: Loads of the time that the rule considers; not changed
    :param balance: (h,) budget of each host in seconds of overload; for an
        empty host its initial budget
    :param terms: :class:`.budget.Terms`, or a list of those of each host
    :param rule: Rule
    :param recent: number of the last slots that are recent
    :param constraints: Constraints; not changed
    :param empty: hosts that can be put into use, in this order
    :param costs: callable(source, instances, hosts), returns (m, k) slots of
        overload that each migration adds; default: none. With costs, a host in
        debt is relieved even without recent overload, because a quiet hour may
        be the right time
    :param accepting: (h,) bool, whether a host accepts instances by its
        budget; default: hosts that are not in debt. Those in debt keep to what
        they earn in place of their limit
    :returns: list of Move in the order of execution
    """
    sizes = loads.sizes
    open_hosts = np.flatnonzero((sizes > 0) & ~constraints.closed).tolist()
    hosts = [host for host in open_hosts if balance[host] < 0]
    if not hosts or not loads.slots:
        return []
    known_slots = np.count_nonzero(loads.known, axis=1) * (1 + _TOLERANCE)
    limit = _of_each(terms, 'overload_probability') * known_slots
    earned = _of_each(terms, 'rate') * known_slots
    day = _of_each(terms, 'day')
    enough = np.where(np.asarray(balance) < -rule.repay_days * day, earned,
                      limit)
    day = np.broadcast_to(day, enough.shape)
    hosts = [host for host, slots in zip(hosts, loads.overload(hosts))
             if (costs is not None or slots[-recent:].any())
             and np.count_nonzero(slots) > enough[host]]
    if not hosts:
        return []
    loads, constraints = loads.copy(), constraints.copy()
    empty, moves = list(empty), []
    last = loads.within(max(0, loads.slots - recent), None)
    in_debt = np.asarray(balance) < 0
    accepting = ~in_debt if accepting is None else accepting
    takers = [host for host in open_hosts
              if accepting[host] and host not in hosts]
    most_overload = np.where(in_debt, earned, limit)
    for source in sorted(hosts, key=lambda host: (balance[host], host)):
        opened = None
        for _ in range(rule.moves):
            overload = np.count_nonzero(loads.overload([source]))
            if overload <= enough[source]:
                break
            own = np.flatnonzero(loads.hosts == source)
            own = own[constraints.movable[own]]
            move = best_move(loads, source, takers, most_overload, own,
                             constraints, costs)
            if move is None and rule.lowers_excess:
                move = _lowering(loads, source, takers, own, constraints,
                                 costs)
            if move is not None:
                pass
            elif opened is not None:
                move = _following(
                    loads, source, opened, limit[opened], own,
                    constraints) if costs is None else None
            elif len(empty) and (
                    balance[source] < -day[source] * (
                        rule.open_soon_days
                        if overload > rule.open_soon_excess * limit[source]
                        else rule.open_days)
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


def _of_each(terms, name):
    """Return a value of Terms, or of the Terms of each host."""
    if isinstance(terms, budget.Terms):
        return getattr(terms, name)
    return np.array([getattr(host_terms, name) for host_terms in terms],
                    dtype=float)


def _excess(loads, source, instances):
    """Return (m,) how far a host exceeds its limits without each instance.

    The sum of the shares of the capacities, over slots and limits.
    """
    threshold = loads.most[:, source, None, None]
    sums = loads.sums[:, source, None] - loads.rates[:, instances]
    return (np.nan_to_num(np.maximum(sums - threshold, 0.0))
            / threshold).sum(axis=(0, 2))


def _opening(loads, source, empty, instances, constraints, costs):
    """Return the Move to an empty host with the least overload afterwards.

    If several moves are equal, the move with the least traffic above the
    capacities is returned. None if there is no such move.
    """
    if np.count_nonzero(loads.hosts == source) < 2 or not len(instances):
        return None
    allowed = constraints.allowed(instances, empty)
    overload_left = np.where(allowed.any(axis=1),
                             loads.without(source, instances), loads.slots + 1)
    if costs is not None:
        overload_left = overload_left + costs(
            source, instances, empty[:1])[:, 0]
    row = np.lexsort((_excess(loads, source, instances), overload_left))[0]
    gain = np.count_nonzero(loads.overload([source])) - overload_left[row]
    if not allowed[row].any() or costs is not None and gain <= 0:
        return None
    return Move(int(instances[row]), int(source),
                int(empty[allowed[row].argmax()]), float(gain))


def _following(loads, source, host, limit, instances, constraints):
    """Return the Move to a newly used host that reduces the excess most.

    If a host exceeds its capacity by far, it is possible that only several
    moves together end a slot of overload. The destination remains within its
    limit. None if there is no such move.
    """
    if loads.sizes[source] < 2 or not len(instances):
        return None
    fits = (loads.joined(instances, [host]) <= limit)[:, 0]
    instances = instances[fits & constraints.allowed(instances, [host])[:, 0]]
    if not len(instances):
        return None
    excess = _excess(loads, source, instances)
    row = excess.argmin()
    if excess[row] >= _excess_now(loads, source) * (1 - _TOLERANCE):
        return None
    return Move(int(instances[row]), int(source), int(host), 0.0)


def _excess_now(loads, source):
    """Return how far a host exceeds its limits; see :func:`_excess`."""
    threshold = loads.most[:, source, None]
    return (np.nan_to_num(np.maximum(loads.sums[:, source] - threshold, 0.0))
            / threshold).sum()


def _lowering(loads, source, takers, instances, constraints, costs):
    """Return the Move to a host in use that reduces the excess most, or None.

    The move adds no slot of overload to the destination, and no instance that
    exceeds its capacity alone. Of several possible destinations, the one with
    the smallest maximum load is used. A sequence of such moves cannot be
    circular, because no move adds a slot of overload and each move without a
    gain reduces the excess.
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
    excess = np.where(fits.any(axis=1), _excess(loads, source, instances),
                      np.inf)
    row = excess.argmin()
    if not excess[row] < _excess_now(loads, source) * (1 - _TOLERANCE):
        return None
    rates = loads.rates[:, instances[row], None]
    largest = np.nan_to_num((loads.sums[:, takers] + rates)
                            / loads.most[:, takers, None]).max(axis=(0, 2))
    column = np.where(fits[row], largest, np.inf).argmin()
    return Move(int(instances[row]), int(source), int(takers[column]), 0.0)


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
    if constraints is not None:
        gain[~constraints.allowed(instances, destinations)] = 0
    row, column = np.unravel_index(gain.argmax(), gain.shape)
    if gain[row, column] <= 0:
        return None
    return Move(int(instances[row]), int(source), int(destinations[column]),
                float(gain[row, column]))
