# SPDX-License-Identifier: Apache-2.0
"""What to expect of an instance of which little or nothing is known.

The law of an instance that is picked at random among its peers, shrunk towards
that of a wider group as far as its peers are few: priors of a flavor within a
project, of a flavor, of a project and of the whole fleet. Pure; no clock, no
configuration, no I/O.

Derivation: reference/priors.rst.
"""

import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model

__all__ = ['FLEET', 'MIN_PEERS', 'Pool', 'credibility_constant', 'cut',
           'group_pools', 'levels_of']

#: Fewer instances than these say nothing of the next one.
MIN_PEERS = 20

#: A group of one is at most given this many times the weight of its parent.
_LEAST_CONSTANT = 1.0

#: Key of the widest group. Others are (flavor, project), (flavor, None) and
#: (None, project).
FLEET = (None, None)

_REGIMES = len(model.REGIMES)


def levels_of(flavor, project):
    """Return the keys of the groups of an instance, the narrowest first.

    :param flavor: name, or None when not known
    :param project: id, or None when not known
    """
    keys = [(flavor, project), (flavor, None), (None, project), FLEET]
    return list(dict.fromkeys(keys))


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """The law of an instance picked at random, rate bin by rate bin.

    :ivar members: how many instances it is the mean of, each with the same
        weight, however many samples
    :ivar bins: (m,) int64, increasing, see :func:`.estimate.rate_bin`
    :ivar by_regime: (2, m) share of time in each bin in each regime
    :ivar shares: (m,) share of all time
    :ivar amounts: (m, 3) share times rate of each column
    """

    members: float
    bins: np.ndarray
    by_regime: np.ndarray
    shares: np.ndarray
    amounts: np.ndarray

    @classmethod
    def of_counts(cls, counts):
        """Return the pool of instances of which TransitionCounts are given.

        :param counts: non-empty list
        """
        shares = [one.samples / one.total_samples for one in counts]
        laws = [estimate.law_by_regime(one) for one in counts]
        return cls._of(
            len(counts), np.concatenate([one.bins for one in counts]),
            np.concatenate([
                np.broadcast_to(share, (_REGIMES, share.size))
                if law is None else law
                for share, law in zip(shares, laws)], axis=1),
            np.concatenate(shares),
            np.concatenate([one.totals / one.total_samples
                            for one in counts]))

    @classmethod
    def of_laws(cls, laws):
        """Return the pool of instances of which RateLaws are given.

        :param laws: non-empty list
        """
        return cls._of_rows(len(laws), np.concatenate(
            [np.frombuffer(law, '<f8').reshape(-1, model.LAW_COLUMNS)
             for law in laws]))

    @classmethod
    def _of_rows(cls, members, rows):
        by_regime, rates = rows[:, :-3].T, rows[:, -3:]
        shares = model.REGIME_SHARES @ by_regime
        return cls._of(members,
                       estimate.rate_bin(rates[:, 0] + rates[:, 1]),
                       by_regime, shares, shares[:, None] * rates)

    @classmethod
    def _of(cls, members, bins, by_regime, shares, amounts):
        """Gather states of any order by their bins."""
        kept, where = np.unique(bins, return_inverse=True)

        def gathered(values):
            return np.bincount(where, weights=values, minlength=kept.size)

        law = np.stack([gathered(row) for row in by_regime])
        return cls(members, kept, law / law.sum(axis=1, keepdims=True),
                   gathered(shares) / shares.sum(),
                   np.stack([gathered(column) for column in amounts.T],
                            axis=1) / shares.sum())

    def mixed(self, other, weight):
        """Return the pool of which a share is this one, the rest another.

        :param weight: 0..1, of this one
        :returns: Pool with the members of this one
        """
        if weight >= 1:
            return self
        rest = 1 - weight
        return Pool._of(
            self.members, np.concatenate([self.bins, other.bins]),
            np.concatenate([weight * self.by_regime, rest * other.by_regime],
                           axis=1),
            np.concatenate([weight * self.shares, rest * other.shares]),
            np.concatenate([weight * self.amounts, rest * other.amounts]))

    def shrunk(self, parent, constant):
        """Return the pool shrunk towards that of a wider group.

        :param parent: Pool
        :param constant: number of members at which both weigh the same;
            infinite: this one weighs nothing
        Derivation: reference/priors.rst, "Shrinkage".
        """
        return self.mixed(parent, self.members / (self.members + constant))

    @property
    def law(self):
        """The RateLaw: a state for each bin, with its mean rates."""
        there = self.shares > 0
        return model.RateLaw.from_arrays(
            self.by_regime[:, there],
            self.amounts[there] / self.shares[there, None])


def credibility_constant(values, groups, parents):
    """Return how many members a group needs to weigh as much as its parent.

    The ratio of the variance within groups to that between the groups of one
    parent, both estimated without bias (Buhlmann and Straub); infinite where
    groups differ no more than chance makes them.

    :param values: (n,) a figure of each instance
    :param groups: (n,) int64 from 0, the group of each instance
    :param parents: (n,) int64 from 0, the group above; a group has one
    :returns: float >= 1
    Derivation: reference/priors.rst, "The constant".
    """
    sizes = np.bincount(groups)
    means = np.bincount(groups, weights=values) / np.maximum(sizes, 1)
    parent_sizes = np.bincount(parents)
    parent_means = np.bincount(parents, weights=values) / np.maximum(
        parent_sizes, 1)
    free = len(values) - np.count_nonzero(sizes)
    if free <= 0:
        return math.inf
    # How many members a draw of a group is worth, per parent.
    spread = len(values) - (sizes[groups] / parent_sizes[parents]).sum()
    if spread <= 1e-9 * len(values):
        return math.inf
    within = float(((values - means[groups]) ** 2).sum() / free)
    apart = float(((means[groups] - parent_means[parents]) ** 2).sum())
    between = (apart - within * (np.count_nonzero(sizes) - np.count_nonzero(
        parent_sizes))) / spread
    if between <= 0:
        return math.inf
    return max(within / between, _LEAST_CONSTANT)


def group_pools(flavors, projects, laws):
    """Return the shrunk pools of all groups of a fleet.

    :param flavors: n names, None where not known
    :param projects: n ids, None where not known
    :param laws: n RateLaws, those of silent instances among them
    :returns: {key of :func:`levels_of`: Pool}, without the groups that
        differ from the wider ones no more than chance makes them; empty with
        fewer instances than :data:`MIN_PEERS`
    """
    if len(laws) < MIN_PEERS:
        return {}
    sizes = np.fromiter(map(len, laws), np.int64, len(laws)) // (
        8 * model.LAW_COLUMNS)
    rows = np.frombuffer(b''.join(laws), '<f8').reshape(
        -1, model.LAW_COLUMNS)
    bandwidth = (model.REGIME_SHARES @ rows[:, :-3].T) * (
        rows[:, -3] + rows[:, -2])
    # As the load of the fleet: else a few large ones are all the variance.
    load = np.sqrt(np.add.reduceat(bandwidth, np.cumsum(sizes) - sizes))
    fleet = Pool._of_rows(len(laws), rows)
    pools = {FLEET: fleet}
    everyone = np.zeros(len(laws), dtype=np.int64)

    def add(keys, parents):
        numbers, keys = _numbered(keys)
        known = numbers >= 0
        constant = credibility_constant(
            load[known], numbers[known], parents[known])
        if math.isfinite(constant):
            for key, (members, some) in zip(
                    keys, _by_group(numbers, sizes, rows)):
                pools[key] = Pool._of_rows(members, some).shrunk(
                    pools.get((key[0], None), fleet), constant)

    add([None if flavor is None else (flavor, None) for flavor in flavors],
        everyone)
    add([None if project is None else (None, project)
         for project in projects], everyone)
    # Within its flavor, where that tells anything.
    parents, _ = _numbered(
        key if key in pools else FLEET
        for key in ((flavor, None) for flavor in flavors))
    add([None if None in pair else pair for pair in zip(flavors, projects)],
        parents)
    return pools


def _numbered(keys):
    """Return ((n,) number of each key, -1 for None; the keys in order)."""
    found = {}
    numbers = np.fromiter(
        (-1 if key is None else found.setdefault(key, len(found))
         for key in keys), np.int64)
    return numbers, list(found)


def _by_group(numbers, sizes, rows):
    """Yield (members, rows of their laws) of group 0, 1, ..."""
    of_row = np.repeat(numbers, sizes)
    order = np.argsort(of_row, kind='stable')
    ordered = rows[order]
    count = int(numbers.max()) + 1
    ends = np.searchsorted(of_row[order], np.arange(count + 1))
    members = np.bincount(numbers[numbers >= 0], minlength=count)
    for number in range(count):
        yield int(members[number]), ordered[ends[number]:ends[number + 1]]


def cut(law, limits):
    """Return a law whose rates are within what one instance may have.

    A state above a limit is scaled down to it; its probability stays. So it
    is taken to load the switch fully for all that time. A limit that closes
    the switch (:data:`.model.LEAST_CAPACITY` or less) cuts nothing, so that
    the law stays above it.

    :param law: RateLaw
    :param limits: iterable of (weights, packet_bytes, most): see
        :meth:`.model.RateLaw.values`
    """
    factor = np.ones(len(law.rates))
    for weights, packet_bytes, most in limits:
        if most <= model.LEAST_CAPACITY:
            continue
        values = law.values(weights, packet_bytes)
        over = values > most
        factor[over] = np.minimum(factor[over], most / values[over])
    if (factor == 1).all():
        return law
    return model.RateLaw.from_arrays(law.by_regime,
                                     law.rates * factor[:, None])
