# SPDX-License-Identifier: Apache-2.0
"""Selects moves that empty whole hosts within the error budgets of others.

Hosts with the fewest instances come first. A host is emptied only if all its
instances fit on other hosts in use. Pure. Derivation:
reference/rebalance.rst, "Consolidation".
"""

import numpy as np

from vswitch_aware_scheduler.rebalance import relief

__all__ = ['SHARE', 'plan']

#: A destination has at most this share of its limit over the samples. Budgets
#: earn the same share, so that no destination gets into debt if its traffic
#: stays the same.
SHARE = 0.6

#: A host takes part if at least this share of its samples is present.
_KNOWN = 0.5

#: Maximum number of placements of an instance that are tried for a host.
_MOST_TRIED = 500

_TOLERANCE = 1e-9


def plan(loads, balance, terms, constraints, sampled, most_moves, costs=None):
    """Return the moves that empty hosts.

    After each move, the overload of the destination is at most the share
    :data:`SHARE` of its limit. The budget of a destination is at least what a
    host earns in one day. A host that receives an instance is not emptied by
    the same plan.

    :param loads: :class:`.relief.Loads`; not changed
    :param balance: (h,) budget of each host in seconds of overload
    :param terms: list of h :class:`.budget.Terms`
    :param constraints: :class:`.relief.Constraints`; not changed
    :param sampled: (n,) bool, whether the rates of an instance are known
    :param most_moves: maximum number of moves
    :param costs: as in :func:`.relief.plan`; a move with a cost is not made
    :returns: list of :class:`.relief.Move`, host after host
    """
    known_slots = np.count_nonzero(loads.known, axis=1)
    limit = SHARE * known_slots * (1 + _TOLERANCE) * np.array(
        [host_terms.overload_probability for host_terms in terms])
    used = (loads.sizes > 0) & ~constraints.closed & (
        known_slots >= max(_KNOWN * loads.slots, 1))
    takes = used & (np.asarray(balance)
                    >= [host_terms.day for host_terms in terms])
    free = constraints.movable & sampled
    sizes = loads.sizes
    # The instances of other hosts were not read.
    sources = np.flatnonzero(used & (loads.unread == 0)
                             & (np.asarray(balance) >= 0))
    loads, moves = loads.copy(), []
    for source in sorted(sources.tolist(),
                         key=lambda host: (sizes[host], host)):
        own = np.flatnonzero(loads.hosts == source)
        if len(own) != sizes[source] or not free[own].all() \
                or len(moves) + len(own) > most_moves:
            continue
        takers = np.flatnonzero(takes)
        search = _Search(loads, limit, source, takers[takers != source],
                         costs)
        # Large instances fit on few hosts.
        order = own[np.argsort(-loads.rates[:, own].sum(axis=(0, 2)),
                               kind='stable')]
        if search.place(order.tolist(), constraints):
            moves += search.moves
            constraints = search.constraints
            takes[source] = False
    return moves


class _Search:
    """Searches hosts for all instances of a host, by backtracking.

    :param loads: Loads, changed if hosts are found
    :param limit: (h,) maximum number of slots of overload
    :param source: number of the host
    :param takers: numbers of the hosts that may receive instances
    :param costs: as in :func:`plan`
    :ivar moves: list of Move that were found
    :ivar constraints: Constraints after these moves
    """

    def __init__(self, loads, limit, source, takers, costs):
        self._loads = loads
        self._limit = limit
        self._source = source
        self._takers = takers
        self._costs = costs
        self._tried = 0
        self.moves = []
        self.constraints = None

    def place(self, instances, constraints):
        """Place some instances. Return whether all have a host.

        :param instances: list of rows
        :param constraints: Constraints after the moves so far
        """
        if not instances:
            self.constraints = constraints
            return True
        instance, *remaining = instances
        for host in self._fitting(instance, constraints):
            self._tried += 1
            if self._tried > _MOST_TRIED:
                return False
            after = constraints.copy()
            after.put(instance, self._source, host)
            self._loads.put(instance, host)
            self.moves.append(relief.Move(instance, self._source, host, 0.0))
            if self.place(remaining, after):
                return True
            self.moves.pop()
            self._loads.put(instance, self._source)
        return False

    def _fitting(self, instance, constraints):
        """Return the hosts that bear an instance, the fullest first."""
        if not self._takers.size:
            return []
        loads, takers = self._loads, self._takers
        fits = constraints.allowed([instance], takers)[0]
        takers = takers[fits]
        if not takers.size:
            return []
        fits = loads.joined([instance], takers)[0] <= self._limit[takers]
        peaks = loads.rates[:, instance].max(axis=1)
        fits &= (peaks[:, None] <= loads.most[:, takers]).all(axis=0)
        if self._costs is not None:
            fits &= self._costs(self._source, np.array([instance]),
                                takers)[0] <= 0
        takers = takers[fits]
        share = np.nan_to_num(
            loads.sums[:, takers] / loads.most[:, takers, None]).mean(
                axis=2).max(axis=0, initial=0.0)
        return takers[np.argsort(-share, kind='stable')].tolist()
