# SPDX-License-Identifier: Apache-2.0
"""Selects moves that relieve a host, by joint samples.

Joint samples are the rates of all instances in the same time slots. For each
instance of a host and each other host, they give the overload of both hosts
that a move would have caused. Every move ends overloaded time of a host or of
an instance, alone or together with moves without which it would not.
:func:`advise` shortens a plan to the permitted number of moves, and explains
its length. Pure. Derivation: reference/rebalance.rst, "Choice of moves".
"""

from collections.abc import Callable, Iterable, Sequence
import copy
import dataclasses
import math
import typing

import numpy as np
import numpy.typing as npt

from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.common import plain_text

__all__ = ['Advice', 'Churn', 'Constraints', 'Loads', 'ReliefCase',
           'ReliefMove', 'Rule', 'advise', 'best_move', 'overloaded', 'plan',
           'suffered']

#: Maximum number of empty hosts that moves which end overload only together
#: put into use.
_MOST_OPENED = 3


@dataclasses.dataclass(frozen=True)
class ReliefMove:
    """One migration that relieves a host.

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

    :param rates: (l, n, t) rate of each instance that may move, for each of l
        limits
    :param capacities: (l, h) capacity of each limit, inf if a host has none
    :param hosts: (n,) host of each instance, -1: on no host
    :param sums: (l, h, t) sum of all instances of a host, NaN if unknown;
        default: computed from ``rates``. The array is used without a copy
    :param above: (l, h, t) number of instances that exceed the capacity alone,
        or 1 for one or more; used without a copy
    :param unread: (h,) number of instances of each host that are not in
        ``rates``
    :ivar most: (l, h) capacity of each limit, with a tolerance
    """

    def __init__(self, rates: np.ndarray, capacities: npt.ArrayLike,
                 hosts: npt.ArrayLike, sums: np.ndarray | None = None,
                 above: np.ndarray | None = None,
                 unread: npt.ArrayLike = 0) -> None:
        self.rates, self.sums, self.above = rates, sums, above
        self.hosts = np.array(hosts, dtype=np.int64)
        self.most = np.asarray(capacities, dtype=float) * (1 + rules.TOLERANCE)
        limits, count = self.most.shape
        self.unread = np.zeros(count, dtype=np.int64) + np.asarray(unread)
        if sums is None:
            self.sums = np.zeros((limits, count, rates.shape[2]))
            self.above = np.zeros(self.sums.shape, dtype=np.int16)
            for instance in np.flatnonzero(self.hosts >= 0):
                self.add(rates[:, instance], self.hosts[instance], 1)

    def add(self, rates: np.ndarray, host: int, times: int,
            slots: typing.Any = slice(None)) -> None:
        """Add an instance to a host in some slots, or subtract it.

        :param rates: (l, t) of the instance in these slots
        """
        # Sums may be rounded, so that a difference can be below 0.
        self.sums[:, host, slots] = np.maximum(
            self.sums[:, host, slots] + times * rates, 0.0)
        self.above[:, host, slots] = np.maximum(
            self.above[:, host, slots] + times * (
                rates > self.most[:, host, None]), 0)

    def put(self, instance: int, host: int) -> None:
        """Move an instance to another host."""
        if self.hosts[instance] >= 0:
            self.add(self.rates[:, instance], self.hosts[instance], -1)
        if host >= 0:
            self.add(self.rates[:, instance], host, 1)
        self.hosts[instance] = host

    def within(self, first: int, last: int | None,
               hosts: int | None = None) -> 'Loads':
        """Return a view of the given slots, which follows every :meth:`put`.

        :param hosts: number of the first hosts to include; None: all
        """
        view = copy.copy(self)
        view.rates = self.rates[..., first:last]
        view.most, view.unread = self.most[:, :hosts], self.unread[:hosts]
        view.sums = self.sums[:, :hosts, first:last]
        view.above = self.above[:, :hosts, first:last]
        return view

    def copy(self) -> 'Loads':
        """Return Loads with the same samples and an independent placement."""
        copied = copy.copy(self)
        copied.hosts, copied.sums, copied.above = (
            self.hosts.copy(), self.sums.copy(), self.above.copy())
        return copied

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.rates.shape[2]

    @property
    def sizes(self) -> np.ndarray:
        """(h,) number of instances on each host."""
        return self.unread + np.bincount(self.hosts[self.hosts >= 0],
                                         minlength=self.most.shape[1])

    @property
    def known(self) -> np.ndarray:
        """(h, t) bool: slots in which the sums of a host are known."""
        return ~np.isnan(self.sums).any(axis=0)

    def overload(self, hosts: typing.Any) -> np.ndarray:
        """Return (k, t) bool: avoidable overload of the given hosts."""
        return _avoidable(self.sums[:, hosts], self.above[:, hosts],
                          self.most[:, hosts, None])

    def harmed(self, hosts: typing.Any) -> np.ndarray:
        """Return (k, t) bool: whether one instance exceeds a limit alone.

        All other instances on the host suffer in these slots.
        """
        return np.any((self.sums[:, hosts] > self.most[:, hosts, None])
                      & (self.above[:, hosts] > 0), axis=0)

    def suffered(self, hosts: Iterable[int]) -> np.ndarray:
        """Return (k,) overloaded slots of the instances on the given hosts.

        A slot of a host counts once for each instance that does not exceed a
        limit alone.
        """
        sizes = self.sizes
        return np.array([suffered(
            self.sums[:, host, None], self.above[:, host, None],
            self.most[:, host, None, None], sizes[host])[0] for host in hosts])

    def without(self, host: int, instances: np.ndarray,
                count: Callable | None = None) -> np.ndarray:
        """Return (m,) slots of overload of a host without each instance.

        :param count: what to count: ``overloaded`` (default) or ``suffered``
        """
        rates, most = self.rates[:, instances], self.most[:, host, None, None]
        return (count or overloaded)(
            self.sums[:, host, None] - rates,
            self.above[:, host, None] - (rates > most), most,
            self.sizes[host] - 1)

    def joined(self, instances: np.ndarray, hosts: Sequence[int],
               count: Callable | None = None) -> np.ndarray:
        """Return (m, k) slots of overload of hosts with one more instance."""
        sizes, rates = self.sizes + 1, self.rates[:, instances]
        largest = rates.max(axis=1)
        result = np.zeros((len(instances), len(hosts)))
        for column, host in enumerate(hosts):
            most = self.most[:, host, None]
            # In the other slots no instance brings the host above a capacity.
            slots = np.flatnonzero(
                (self.sums[:, host] + largest > most).any(axis=0))
            relevant, most = rates[..., slots], most[..., None]
            result[:, column] = (count or overloaded)(
                self.sums[:, host][:, None, slots] + relevant,
                self.above[:, host][:, None, slots] + (relevant > most), most,
                sizes[host])
        return result

    def alone(self, instances: np.ndarray, hosts: Iterable[int]) -> np.ndarray:
        """Return (m, k) slots in which an instance exceeds a host's limit."""
        return np.stack([np.count_nonzero(
            (self.rates[:, instances] > self.most[:, host, None, None]).any(
                axis=0), axis=1) for host in hosts], axis=1)


# Of sums and above, (l, m, t), most, (l, m or 1, 1), and the number of
# instances on a host.

def _avoidable(sums, above, most):
    return ((sums > most) & (above == 0)).any(axis=0)


def overloaded(sums: np.ndarray, above: np.ndarray, most: np.ndarray,
               size: int) -> np.ndarray:
    return np.count_nonzero(_avoidable(sums, above, most), axis=1)


def suffered(sums: np.ndarray, above: np.ndarray, most: np.ndarray,
             size: int) -> np.ndarray:
    below = np.maximum(size - above.max(axis=0), 0)
    return (below * (sums > most).any(axis=0)).sum(axis=1).astype(float)


@dataclasses.dataclass(frozen=True)
class Rule:
    """The conditions for relieving a host, and for ending the relief.

    :ivar window_seconds: length of the considered past
    :ivar recent_seconds: only a host with overload within this time is
        relieved
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


@dataclasses.dataclass(eq=False)
class Constraints:
    """What excludes an instance from a host, besides its traffic.

    :ivar needs: (n, r) needs of each instance for each resource
    :ivar free: (h, r) free capacity of each host for each resource
    :ivar movable: (n,) bool, whether an instance can move; default: all
    :ivar closed: (h,) bool, hosts that neither give nor accept instances;
        default: none
    :ivar may: (n, h) bool, whether an instance may be on a host, by
        aggregates, traits and so on; default: anywhere
    :ivar groups: (n,) int, group whose members must not share a host, -1: no
        group; default: no groups
    :ivar members: (g, h) how many members of each group each host has
    :ivar most_members: (g,) how many members of each group a host may have
    :ivar admission: object that judges hosts as the filter does, as
        :class:`.destinations.Destinations`; a copy of the Constraints shares
        it. Default: every host passes
    """

    needs: np.ndarray
    free: np.ndarray
    movable: np.ndarray | None = None
    closed: np.ndarray | None = None
    may: np.ndarray | None = None
    groups: np.ndarray | None = None
    members: np.ndarray | None = None
    most_members: np.ndarray | None = None
    admission: typing.Any = None

    def __post_init__(self):
        self.needs = np.asarray(self.needs, dtype=float)
        self.free = np.array(self.free, dtype=float)
        for name, of_each in (('movable', self.needs), ('closed', self.free)):
            value = getattr(self, name)
            setattr(self, name, np.full(len(of_each), name == 'movable')
                    if value is None else np.asarray(value, dtype=bool))
        if self.groups is not None:
            self.members = np.array(self.members)

    def allowed(self, instances: np.ndarray,
                hosts: typing.Any) -> np.ndarray:
        """Return (m, k) bool: whether an instance may join a host."""
        hosts = np.asarray(hosts, dtype=np.int64)
        allowed = (self.needs[instances][:, None]
                   <= self.free[hosts] * (1 + rules.TOLERANCE)).all(axis=2)
        allowed &= ~self.closed[hosts]
        if self.may is not None:
            allowed &= self.may[np.ix_(instances, hosts)]
        if self.groups is not None:
            for row, instance in enumerate(instances):
                group = self.groups[instance]
                if group >= 0:
                    allowed[row] &= (self.members[group, hosts]
                                     < self.most_members[group])
        return allowed

    def admitted(self, instance: int, hosts: Sequence[int]) -> np.ndarray:
        """Return (k,) bool: whether the filter would pass hosts."""
        if self.admission is None:
            return np.ones(len(hosts), dtype=bool)
        return self.admission.admitted(instance, hosts)

    def put(self, instance: int, source: int, destination: int) -> None:
        """Move an instance to another host."""
        self.free[source] += self.needs[instance]
        self.free[destination] -= self.needs[instance]
        if self.groups is not None and self.groups[instance] >= 0:
            self.members[self.groups[instance], source] -= 1
            self.members[self.groups[instance], destination] += 1
        if self.admission is not None:
            self.admission.put(instance, source, destination)


@dataclasses.dataclass(frozen=True, eq=False)
class ReliefCase:
    """The h hosts and n instances of a plan.

    :ivar balance: (h,) budget of each host in seconds of overload; for an
        empty host its initial budget
    :ivar terms: :class:`.rules.Terms`, or a list of those of each host
    :ivar recent: number of the last slots that are recent
    :ivar empty: hosts that can be put into use, in this order
    :ivar costs: callable(source, instances, hosts), returns (m, k) slots of
        overload that each migration adds; default: none. With costs, a host in
        debt is relieved even without recent overload, because a quiet hour may
        be the right time
    :ivar accepting: (h,) bool, whether a host accepts instances by its budget;
        default: hosts that are not in debt. Those in debt keep to what they
        earn in place of their limit
    """

    loads: Loads
    balance: np.ndarray
    terms: rules.Terms | list
    recent: int
    constraints: Constraints
    empty: Sequence = ()
    costs: Callable | None = None
    accepting: np.ndarray | None = None


def plan(case: ReliefCase, rule: Rule,
         most_parted: float = math.inf) -> list[ReliefMove]:
    """Return the moves that relieve hosts which have spent too much.

    Afterwards, instances are parted from those that exceed the capacity of
    their host alone. The case is not changed, except that the ``admission`` of
    its constraints has the moves afterwards.

    :param most_parted: maximum number of moves that part instances from those
        that exceed the capacity of their host alone
    """
    loads, balance, costs = case.loads, np.asarray(case.balance), case.costs
    if not loads.slots:
        return []
    open_hosts = np.flatnonzero((loads.sizes > 0)
                                & ~case.constraints.closed).tolist()
    known_slots = np.count_nonzero(loads.known, axis=1) * (1 + rules.TOLERANCE)
    limit = _of_each(case.terms, 'overload_probability') * known_slots
    earned = _of_each(case.terms, 'rate') * known_slots
    day = np.broadcast_to(_of_each(case.terms, 'day'), limit.shape)
    enough = np.where(balance < -rule.repay_days * day, earned, limit)
    hosts = [host for host in open_hosts if balance[host] < 0]
    hosts = [host for host, slots in zip(hosts, loads.overload(hosts))
             if (costs is not None or slots[-case.recent:].any())
             and np.count_nonzero(slots) > enough[host]]
    harmed_slots = loads.harmed(slice(None))
    harmed_for = np.count_nonzero(harmed_slots, axis=1)
    harmed = [host for host in open_hosts if harmed_for[host] > limit[host]]
    if not hosts and not harmed:
        return []
    accepting = balance >= 0 if case.accepting is None else case.accepting
    relieved = {*hosts, *harmed}
    takers = [host for host in open_hosts
              if accepting[host] and host not in relieved]
    search = _Search(case, np.where(balance < 0, earned, limit), takers)
    for source in sorted(hosts, key=lambda host: (balance[host], host)):
        search.relieve(source, enough[source], rule,
                       balance[source] < -rule.open_days * day[source])
    for source in sorted(harmed, key=lambda host: -harmed_for[host]):
        if costs is not None or harmed_slots[source, -case.recent:].any():
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


class _Search:
    """Searches moves, each after those that were found before.

    :param limit: (h,) maximum number of slots of overload of a destination
    """

    def __init__(self, case, limit, takers):
        self._loads = case.loads.copy()
        self._constraints = dataclasses.replace(case.constraints)
        self._costs, self._limit = case.costs, limit
        self._takers, self._empty = takers, list(case.empty)
        self._groups = 0
        self.moves = []

    def relieve(self, source, enough, rule, may_open):
        """Find moves that end overload of a host in debt.

        :param enough: number of slots of overload with which it is relieved
        """
        loads, made = self._loads, 0
        while made < rule.moves and np.count_nonzero(
                loads.overload([source])) > enough:
            hosts = self._takers
            group = self._best(source, hosts) or self._together(
                source, hosts, rule.together)
            if not group and may_open:
                group = self._best(source, self._empty)
                for number in range(min(len(self._empty), _MOST_OPENED)):
                    group = group or self._together(
                        source, hosts + self._empty[:number + 1],
                        rule.together)
            if not group:
                return
            may_open &= not self._open(group)
            made += len(group)

    def _open(self, group):
        """Put the hosts of moves into use. Return whether any was empty."""
        opened = {move.destination for move in group}.intersection(self._empty)
        self._empty = [host for host in self._empty if host not in opened]
        self._takers = self._takers + sorted(opened)
        return bool(opened)

    def part(self, source, most, harmed):
        """Part instances from those that exceed the capacity alone.

        An instance that exceeds it goes to a host that carries it, or to a
        host that has such an instance already. Others go to hosts without
        such an instance.
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
            if self._costs is not None:
                fits &= self._costs(source, own, hosts) <= 0
            before = loads.suffered([source, *hosts])
            gain = (before[0] - loads.without(source, own, suffered)[:, None]
                    + before[1:] - loads.joined(own, hosts, suffered))
            move = _largest(
                np.where(fits & self._bears(own, hosts), gain, 0.0),
                source, own, hosts, self._constraints)
            if move is None:
                return made
            self._open(self._made([dataclasses.replace(move, parts=True)]))
        return most

    def _own(self, source):
        own = np.flatnonzero(self._loads.hosts == source)
        return own[self._constraints.movable[own]]

    def _best(self, source, hosts):
        """Make the single move that ends most overload, if there is one."""
        move = best_move(self._loads, source, hosts, self._limit[hosts],
                         self._own(source), self._constraints, self._costs)
        return move and self._made([move])

    def _bears(self, instances, hosts):
        """Return (m, k) bool: whether a host keeps its limit with each."""
        return self._loads.joined(instances, hosts) <= np.maximum(
            np.count_nonzero(self._loads.overload(hosts), axis=1),
            self._limit[hosts])

    def _together(self, source, hosts, most):
        """Make moves that end overload only together, if there are any.

        Each of them reduces the traffic above the capacity most. Those
        without which as much overload ends are omitted.
        """
        hosts, group = list(hosts), []
        after = before = self._overloaded([source, *hosts])
        while len(group) < most:
            move = self._lowering(source, hosts)
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

    def _lowering(self, source, hosts):
        """Return the move that reduces the excess most, or None.

        The move adds no slot of overload to the destination, and no instance
        that exceeds its capacity alone. Of several possible destinations, the
        one with the smallest maximum load is used.
        """
        loads, instances = self._loads, self._own(source)
        if not len(instances) or not len(hosts):
            return None
        fits = self._constraints.allowed(instances, hosts)
        fits &= loads.joined(instances, hosts) <= np.count_nonzero(
            loads.overload(hosts), axis=1)
        peaks = loads.rates[:, instances].max(axis=2)
        fits &= (peaks[:, :, None] <= loads.most[:, None, hosts]).all(axis=0)
        if self._costs is not None:
            fits &= self._costs(source, instances, hosts) <= 0
        sums, most = loads.sums[:, source, None], loads.most[:, source, None]
        excess = _excess(sums - loads.rates[:, instances], most[..., None])
        now = _excess(sums[:, 0], most) * (1 - rules.TOLERANCE)
        for row in np.argsort(excess, kind='stable').tolist():
            if excess[row] >= now:
                return None
            if fits[row].any():
                fits[row] &= self._constraints.admitted(
                    int(instances[row]), hosts)
            if not fits[row].any():
                continue
            largest = np.nan_to_num(
                (loads.sums[:, hosts] + loads.rates[:, instances[row], None])
                / loads.most[:, hosts, None]).max(axis=(0, 2))
            column = np.where(fits[row], largest, np.inf).argmin()
            return ReliefMove(int(instances[row]), int(source),
                              int(hosts[column]), 0.0)
        return None

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
        for move in group:
            if self._costs is not None:
                overload -= float(self._costs(
                    move.source, np.array([move.instance]),
                    [move.destination])[0, 0])
            self._put(move.instance, move.source, move.destination)
        overload -= self._overloaded(hosts)
        suffered -= self._loads.suffered(hosts).sum()
        group = [dataclasses.replace(
            move, gain=float(overload / len(group)),
            vm_gain=float(suffered / len(group)), group=self._groups)
            for move in group]
        self._groups += 1
        self.moves += group
        return group


def _excess(sums, most):
    """Return how far sums exceed limits.

    The sum of the shares of the capacities, over slots and limits.
    """
    return (np.nan_to_num(np.maximum(sums - most, 0.0)) / most).sum(
        axis=(0, -1))


def best_move(loads: Loads, source: int, destinations: Sequence[int],
              limit: npt.ArrayLike, instances: np.ndarray | None = None,
              constraints: Constraints | None = None,
              costs: Callable | None = None) -> ReliefMove | None:
    """Return the move with the least overload of both hosts afterwards.

    :param limit: maximum number of slots of overload of a destination, unless
        it already has more; a number, or (k,) of each destination
    :param instances: rows of the instances that may move; default: all of the
        host
    """
    if instances is None:
        instances = np.flatnonzero(loads.hosts == source)
    if not len(instances) or not len(destinations):
        return None
    before = np.count_nonzero(
        loads.overload([source, *destinations]), axis=1)
    after = loads.joined(instances, destinations)
    gain = (before[0] - loads.without(source, instances)[:, None] + before[1:]
            - after)
    if costs is not None:
        gain -= costs(source, instances, destinations)
    gain[after > np.maximum(before[1:], limit)] = 0
    return _largest(gain, source, instances, destinations, constraints)


def _largest(gain, source, instances, hosts, constraints):
    """Return the permitted move with the largest gain, or None.

    Whether the filter passes hosts is asked last and only for instances that
    are chosen, because the answer takes time.

    :param gain: (m, k), changed: 0 for moves that are not permitted
    :param constraints: Constraints or None
    """
    if constraints is not None:
        gain[~constraints.allowed(instances, hosts)] = 0
    judged = set()
    while True:
        row, column = np.unravel_index(gain.argmax(), gain.shape)
        instance = int(instances[row])
        if gain[row, column] <= 0:
            return None
        if constraints is None or row in judged:
            return ReliefMove(instance, int(source), int(hosts[column]),
                              float(gain[row, column]))
        judged.add(row)
        gain[row, ~constraints.admitted(instance, hosts)] = 0


@dataclasses.dataclass(frozen=True)
class Churn:
    """Limits on the number of moves.

    :ivar parted_share_a_week: number of moves in seven days, as a share of all
        instances, from which on a plan relieves only hosts in debt
    """

    cool_down_seconds: float = rules.DAY_SECONDS
    most_moves: int = 10
    most_share_a_week: float = 0.25
    parted_share_a_week: float = 0.03


@dataclasses.dataclass(frozen=True)
class Advice:
    """A plan and the explanation of its length.

    :ivar moves: tuple of ReliefMove in the order of execution
    """

    moves: tuple
    held_back: int
    reason: str


def advise(case: ReliefCase, rule: Rule, churn: Churn = Churn(),
           moved_at: np.ndarray | None = None, now: float = 0.0,
           lately: int | None = None) -> Advice:
    """Return the moves that are advised now.

    :param moved_at: (n,) time of the last move of each instance, seconds UTC,
        -inf: never; default: no instance was ever moved
    :param lately: number of instances of the fleet that were moved in the last
        seven days; default: by ``moved_at``
    """
    count = int(case.loads.sizes.sum())
    if not case.loads.slots:
        return Advice((), 0, 'no samples: nothing can be advised')
    if moved_at is None:
        moved_at = np.full(len(case.loads.hosts), -np.inf)
    if lately is None:
        lately = int(np.count_nonzero(
            now - moved_at < 7 * rules.DAY_SECONDS))
    case = dataclasses.replace(case, constraints=dataclasses.replace(
        case.constraints, movable=case.constraints.movable
        & (now - moved_at >= churn.cool_down_seconds)))
    moves = plan(
        case, rule, max(0, int(churn.parted_share_a_week * count) - lately))
    moves_left = max(0, min(churn.most_moves,
                            int(churn.most_share_a_week * count) - lately))
    # Moves that end overload only together are not divided.
    while moves_left and len(moves) > moves_left \
            and moves[moves_left].group == moves[moves_left - 1].group:
        moves_left -= 1
    advised = tuple(moves[:moves_left])
    return Advice(advised, len(moves) - len(advised),
                  _reason(case, advised, moves, churn, lately))


def _reason(case, advised, moves, churn, lately):
    loads = case.loads
    in_debt = np.flatnonzero((case.balance < 0) & (loads.sizes > 0))
    parted = [move.source for move in moves if move.parts]
    if not in_debt.size and not moves:
        return 'no host is in debt'
    hosts = plain_text.number_of(in_debt.size, 'host is', 'hosts are')
    if len(advised) < len(moves):
        return (f'{len(moves) - len(advised)} of {len(moves)} moves wait: at '
                f'most {churn.most_moves} at a time and '
                f'{churn.most_share_a_week:g} of the instances a week, of '
                f'which {lately} were moved')
    if parted:
        harmed = plain_text.number_of(
            len(set(parted)), 'host is', 'hosts are')
        text = f'one instance overloads each host alone: {harmed} affected'
        return f'{hosts} in debt; {text}' if in_debt.size else text
    if moves:
        return f'{hosts} in debt'
    on_them = np.isin(loads.hosts, in_debt)
    still = on_them & ~case.constraints.movable
    return (f'{hosts} in debt; none was overloaded beyond its limit lately '
            f'and has an instance whose move helps; '
            f'{np.count_nonzero(still)} of their '
            f'{np.count_nonzero(on_them)} instances may not move now')
