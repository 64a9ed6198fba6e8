# SPDX-License-Identifier: Apache-2.0
"""The expected traffic of an instance about which little or nothing is known.

The prior of a group is the law of a randomly chosen instance of the group. If
the group has few instances, its law is shrunk towards the law of a wider
group. Groups are a flavor within a project, a flavor, a project, and the whole
fleet. Pure; no clock, no configuration, no I/O. Derivation:
reference/priors.rst.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import math
import typing

import numpy as np
from numpy import typing as npt

from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['FLEET', 'MIN_PEERS', 'MOST_LEFT_OUT', 'OWN_CONSTANT',
           'Pool', 'credibility_constant', 'cut', 'group_pools', 'levels_of',
           'scaled', 'share_above']

#: Key of a group: names of a flavor and of a project.
Key: typing.TypeAlias = tuple[str | None, str | None]

#: Limit of one instance or of all: weights of egress, ingress and packets,
#: packet_bytes, and the limit; see :meth:`.RateLaw.values`.
Limit: typing.TypeAlias = tuple[tuple[float, ...], float, float]

_Names: typing.TypeAlias = abc.Sequence[str | None]

#: With fewer instances there is no prior.
MIN_PEERS = 20

#: Smallest credibility constant: a group with one instance has at most the
#: weight 1 / _LEAST_CONSTANT relative to its parent.
_LEAST_CONSTANT = 1.0

#: Number of members at which a project's own instances have the same weight as
#: all others. It is a constant if there are several projects, because one
#: project could influence an estimate.
OWN_CONSTANT = 20.0

#: A law is not cut if more than this share would be removed.
MOST_LEFT_OUT = 0.5

#: Shares of time that differ by less are equal.
_SAME_SHARE = 1e-9

_PACKETS_PER_KILO = 1000.0

#: An Ethernet frame has at least 64 bytes.
_SMALLEST_PACKET_KILOBITS = 0.512

#: Key of the widest group. Others are (flavor, project), (flavor, None) and
#: (None, project).
FLEET: Key = (None, None)


def levels_of(flavor: str | None, project: str | None) -> list[Key]:
    """Return the keys of the groups of an instance, the narrowest first."""
    keys = [(flavor, project), (flavor, None), (None, project), FLEET]
    return list(dict.fromkeys(keys))


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """The law of a randomly chosen instance of a group, by rate bin.

    :ivar members: number of instances, each counted once regardless of its
        number of samples; a deleted instance counts as less than one
    :ivar bins: (m,) int64, increasing, see :func:`.estimate.rate_bin`
    :ivar shares: (m,) share of time in each bin
    :ivar amounts: (m, 3) share multiplied by the rate, for each column
    """

    members: float
    bins: np.ndarray
    shares: np.ndarray
    amounts: np.ndarray

    @classmethod
    def of_counts(
            cls, counts: abc.Sequence[estimate.TransitionCounts]) -> Pool:
        """Return the pool of instances with TransitionCounts."""
        return cls._of(
            len(counts), np.concatenate([history.bins for history in counts]),
            np.concatenate([history.samples / history.total_samples
                            for history in counts]),
            np.concatenate([history.totals / history.total_samples
                            for history in counts]))

    @classmethod
    def _of_rows(cls, members, rows, weights):
        """Return the pool of the rows of the given laws."""
        shares, rates = rows[:, 0] * weights, rows[:, 1:]
        return cls._of(members, estimate.rate_bin(rates[:, 0] + rates[:, 1]),
                       shares, shares[:, None] * rates)

    @classmethod
    def _of(cls, members, bins, shares, amounts):
        """Return the pool of states in any order, combined by their bins."""
        kept, where = np.unique(bins, return_inverse=True)

        def gathered(values: np.ndarray) -> np.ndarray:
            return np.bincount(where, weights=values, minlength=kept.size)

        return cls(members, kept, gathered(shares) / shares.sum(),
                   np.stack([gathered(column) for column in amounts.T],
                            axis=1) / shares.sum())

    def mixed(self, other: Pool, weight: float) -> Pool:
        """Return the weighted mean of this pool and another one."""
        if weight >= 1:
            return self
        other_weight = 1 - weight
        return Pool._of(
            self.members, np.concatenate([self.bins, other.bins]),
            np.concatenate([weight * self.shares,
                            other_weight * other.shares]),
            np.concatenate([weight * self.amounts,
                            other_weight * other.amounts]))

    def shrunk(self, parent: Pool, constant: float) -> Pool:
        """Return the mean of this pool and the pool of a wider group.

        Derivation: reference/priors.rst, "Shrinkage".

        :param constant: number of members at which both pools have the same
            weight; if it is infinite, this pool has no weight
        """
        return self.mixed(parent, self.members / (self.members + constant))

    @property
    def law(self) -> rate_law.RateLaw:
        """The RateLaw, with one state for each bin, and mean rates.

        An instance without a model of its own is independent of others.
        """
        has_share = self.shares > 0
        return rate_law.RateLaw.from_arrays(
            self.shares[has_share],
            self.amounts[has_share] / self.shares[has_share, None])


def credibility_constant(values: np.ndarray, groups: np.ndarray) -> float:
    """Return the number of members at which group and fleet count equally.

    The constant is the ratio of the variance within groups to the variance
    between groups, both estimated without bias (Buhlmann and Straub). It is
    infinite if groups do not differ more than by chance. Derivation:
    reference/priors.rst, "The constant".

    :returns: float >= 1
    """
    sizes = np.bincount(groups)
    means = np.bincount(groups, weights=values) / np.maximum(sizes, 1)
    count = np.count_nonzero(sizes)
    free = len(values) - count
    if free <= 0:
        return math.inf
    # Number of members that a draw of a group is worth.
    spread = len(values) - (sizes[groups] / len(values)).sum()
    if spread <= 1e-9 * len(values):
        return math.inf
    within = ((values - means[groups]) ** 2).sum() / free
    apart = ((means[groups] - values.mean()) ** 2).sum()
    between = (apart - within * (count - 1)) / spread
    if between <= 0:
        return math.inf
    return max(float(within / between), _LEAST_CONSTANT)


def group_pools(flavors: _Names, projects: _Names,
                laws: abc.Sequence[rate_law.RateLaw],
                weights: npt.ArrayLike | None = None) -> dict[Key, Pool]:
    """Return the shrunk pools of all groups of a fleet.

    If two or more projects are known, each project has the same weight in the
    pool of the fleet and in that of each flavor, regardless of its number of
    instances, and counts at each rate at most like the most demanding other
    project. Flavors that a single project uses have no pool of their own.
    Derivation: reference/priors.rst, "Every project weighs the same" and "What
    one project adds".

    :param laws: list of n RateLaws, including those of idle instances
    :param weights: list of n numbers in (0, 1], the weight of each instance;
        None: all have weight 1
    :returns: {key of :func:`levels_of`: Pool}; empty if there are fewer
        instances than :data:`MIN_PEERS`. With fewer than two projects, groups
        that do not differ from the wider group more than by chance are
        omitted.
    """
    if len(laws) < MIN_PEERS:
        return {}
    members = _Members(
        flavors, projects, laws,
        np.ones(len(laws)) if weights is None else np.array(weights, float))
    project_count = len(set(projects) - {None})
    return members.by_project() if project_count > 1 else members.by_instance()


class _Members:
    """The instances of which pools are computed."""

    def __init__(self, flavors, projects, laws, weights):
        self._flavors = flavors
        self._projects = projects
        self._weights = weights
        laws = [law.independent() for law in laws]
        self._sizes = np.fromiter(map(len, laws), np.int64, len(laws)) \
            // rate_law.ROW_BYTES
        self._rows = np.frombuffer(b''.join(laws), '<f8').reshape(
            -1, rate_law.LAW_COLUMNS)

    def _pool(self, weights: np.ndarray) -> Pool:
        return Pool._of_rows(self._weights.sum(), self._rows,
                             np.repeat(weights, self._sizes))

    def by_instance(self) -> dict[Key, Pool]:
        """Return the pools in which each instance has the same weight."""
        bandwidth = self._rows[:, 0] * (
            self._rows[:, 1] + self._rows[:, 2])
        # The square root limits the influence of a few large instances on the
        # variance.
        load = np.sqrt(np.add.reduceat(
            bandwidth, np.cumsum(self._sizes) - self._sizes))
        fleet = self._pool(self._weights)
        pools = {FLEET: fleet}
        numbers, keys = _numbered(
            None if flavor is None else (flavor, None)
            for flavor in self._flavors)
        has_flavor = numbers >= 0
        constant = credibility_constant(
            load[has_flavor], numbers[has_flavor])
        if math.isfinite(constant):
            pools.update(
                (key, pool.shrunk(fleet, constant)) for key, pool in zip(
                    keys, self._groups(numbers, self._weights)))
        return pools

    def by_project(self) -> dict[Key, Pool]:
        """Return the pools in which each project has the same weight."""
        projects, ids = _numbered(self._projects)
        everyone = np.zeros(len(projects), dtype=np.int64)
        weights, (total,) = self._by_project(everyone, projects)
        (fleet,) = self._groups(everyone, weights, projects)
        pools = {FLEET: fleet}
        flavors, names = _numbered(self._flavors)
        weights, using = self._by_project(flavors, projects)
        for name, pool, share in zip(
                names, self._groups(flavors, weights, projects),
                using.tolist()):
            if pool is not None:
                # One project then has less than 2 / total of the weight.
                pools[name, None] = pool.mixed(
                    fleet, share / max(total, share + 1.0))
        for key, pool in zip(ids, self._groups(projects, self._weights)):
            pools[None, key] = pool.shrunk(fleet, OWN_CONSTANT)
        numbers, keys = _numbered(
            None if None in pair else pair
            for pair in zip(self._flavors, self._projects))
        for key, pool in zip(keys, self._groups(numbers, self._weights)):
            pools[key] = pool.shrunk(
                pools.get((key[0], None), fleet), OWN_CONSTANT)
        return pools

    def _by_project(self, groups, projects):
        """Return weights that give projects the same weight in each group.

        A project whose instances are all deleted has the largest weight of its
        instances. Instances without a known project have the weight of a
        project of average size, or less if they are fewer.

        :param groups: (n,) int64 from 0, -1: in no group
        :param projects: (n,) int64 from 0, -1: unknown
        :returns: ((n,) weights, (g,) sum of the weights in each group)
        """
        weights = np.zeros(groups.size)
        inside = np.flatnonzero(groups >= 0)
        pairs = np.stack([groups[inside], projects[inside]])
        (of, project), number = np.unique(pairs, axis=1, return_inverse=True)
        number = number.reshape(-1)
        sums = np.bincount(number, weights=self._weights[inside])
        shares = np.zeros(sums.size)
        np.maximum.at(shares, number, self._weights[inside])
        has_project = project >= 0
        count = int(groups.max(initial=-1)) + 1
        mean = np.bincount(of[has_project], weights=sums[has_project],
                           minlength=count) / np.maximum(
            np.bincount(of[has_project], minlength=count), 1)
        usual = np.where(mean[of] > 0, mean[of], sums)
        shares[~has_project] = np.minimum(shares, sums / usual)[~has_project]
        weights[inside] = (shares / sums)[number] * self._weights[inside]
        return weights, np.bincount(of, weights=shares, minlength=count)

    def _groups(self, numbers, weights, projects=None):
        """Yield the pools of the groups 0, 1, ... of instances.

        :param numbers: (n,) int64 from 0, the group of each instance, -1: in
            no group
        :param projects: (n,) int64 from 0, -1: unknown; if given, no project
            counts more than another one, and the pool of a group with one
            project is None
        """
        of_row = np.repeat(numbers, self._sizes)
        order = np.argsort(of_row, kind='stable')
        rows = self._rows[order]
        of_row = of_row[order]
        weights = np.repeat(weights, self._sizes)[order]
        count = int(numbers.max(initial=-1)) + 1
        ends = np.searchsorted(of_row, np.arange(count + 1))
        members = np.bincount(
            numbers[numbers >= 0], minlength=count,
            weights=self._weights[numbers >= 0])
        if projects is not None:
            projects = np.repeat(projects, self._sizes)[order]
        for number in range(count):
            some = slice(ends[number], ends[number + 1])
            of_group: tuple[np.ndarray, np.ndarray] | None = (
                rows[some], weights[some])
            if projects is not None:
                of_group = _supported(rows[some], weights[some],
                                      projects[some])
            yield of_group and Pool._of_rows(
                float(members[number]), *of_group)


def _supported(rows, weights, projects):
    """Return the rows of laws without traffic that only one project has.

    No project then exceeds any egress, ingress, bandwidth or packet rate with
    a larger probability than the most demanding other project, within the
    width of a rate bin. The rows of a project that does are scaled down in
    part. Derivation: reference/priors.rst, "What one project adds".

    :returns: ((m, 4) rows, (m,) weights), or None if there is one project
        only
    """
    ids, projects = np.unique(projects, return_inverse=True)
    if ids.size < 2:
        return None
    for values_of in _DIMENSIONS:
        values, known = values_of(rows)
        bins = estimate.rate_bin(values)
        count = int(bins.max()) + 1
        tails: np.ndarray = np.bincount(
            projects * count + bins, weights=rows[:, 0] * weights,
            minlength=ids.size * count).reshape(ids.size, count)
        tails = tails[:, ::-1].cumsum(axis=1)[:, ::-1]
        tails = tails / tails[:, :1]
        second, largest = np.partition(tails, ids.size - 2, axis=0)[-2:]
        # Only the most demanding project of a bin exceeds the second one.
        beyond = tails > second + _SAME_SHARE
        for project in np.flatnonzero(beyond.any(axis=1)):
            its_tails = tails[project]
            of_others = np.where(beyond[project], second, largest)
            masses = its_tails - np.append(its_tails[1:], 0.0)
            kept = np.clip((of_others - its_tails + masses) / np.maximum(
                masses, _SAME_SHARE), 0.0, 1.0)
            # Largest bin that another project reaches as often.
            reached = np.searchsorted(
                -of_others, _SAME_SHARE - its_tails, side='right') - 1
            above = np.flatnonzero(
                (projects == project) & beyond[project][bins] & known)
            its_bins = bins[above]
            lowered = rows[above]
            lowered[:, 0] *= 1 - kept[its_bins]
            lowered[:, 1:] *= np.where(
                reached > 0, 10 ** (reached / estimate.BINS_PER_DECADE)
                * (1 - _SAME_SHARE), 0.0)[its_bins, None] \
                / values[above, None]
            rows = np.concatenate([rows, lowered])
            rows[above, 0] *= kept[its_bins]
            weights, projects, bins, values, known = (
                np.append(column, column[above])
                for column in (weights, projects, bins, values, known))
    return rows, weights


def _packets(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return packets/s, at most, and where they are known.

    An unknown packet rate is at most that of the smallest packets.
    """
    bandwidth, kpps = rows[:, 1] + rows[:, 2], rows[:, 3]
    unknown = (kpps == 0) & (bandwidth > 0)
    return _PACKETS_PER_KILO * np.where(
        unknown, bandwidth / _SMALLEST_PACKET_KILOBITS, kpps), ~unknown


#: Functions that return (values, whether they are known) of rows of laws.
_DIMENSIONS = (
    lambda rows: (rows[:, 1], np.ones(len(rows), dtype=bool)),
    lambda rows: (rows[:, 2], np.ones(len(rows), dtype=bool)),
    lambda rows: (rows[:, 1] + rows[:, 2], np.ones(len(rows), dtype=bool)),
    _packets)


def _numbered(keys):
    """Return ((n,) number of each key, -1 for None; the keys in order)."""
    numbers_by_key: dict[typing.Any, int] = {}
    numbers = np.fromiter(
        (-1 if key is None
         else numbers_by_key.setdefault(key, len(numbers_by_key))
         for key in keys), np.int64)
    return numbers, list(numbers_by_key)


def share_above(law: rate_law.RateLaw,
                capacities: abc.Iterable[Limit]) -> float:
    """Return the share of a law that is above the capacity of a host."""
    return float(law.probabilities[_above(law, capacities)].sum())


def _above(law, capacities):
    """Return the (m,) states that are above the capacity of a host."""
    above = np.zeros(len(law.rates), dtype=bool)
    for weights, packet_bytes, most in capacities:
        # A capacity of 0 means a closed switch: remove no states.
        if most <= model.LEAST_CAPACITY:
            continue
        above |= law.values(weights, packet_bytes) > most * (
            1 + fourier_sum.TOLERANCE)
    return above


def cut(law: rate_law.RateLaw, limits: abc.Iterable[Limit],
        capacities: abc.Iterable[Limit],
        group: rate_law.RateLaw | None = None) -> rate_law.RateLaw:
    """Return a law, cut to what one instance may have on a host.

    States above a capacity of the host are removed: an instance in such a
    state overloads every such host alone, which no placement can avoid. From
    the prior of the instance's own traffic, only the share that its group has
    in such states is removed, so that the observed traffic remains. If more
    than :data:`MOST_LEFT_OUT` would be removed, all states remain. The
    remaining states are scaled down to the limits on one instance. Derivation:
    reference/priors.rst, "Peaks".

    :param limits: iterable of (weights, packet_bytes, limit) on one instance,
        see :meth:`.RateLaw.values`
    :param capacities: the same for the capacities of all instances on the host
    :param group: RateLaw of the group, if ``law`` is the prior of the
        instance's own traffic; None if ``law`` is the prior of a group
    """
    above = _above(law, capacities)
    if not above.any():
        return scaled(law, limits)
    shares = law.probabilities.copy()
    of_group = law if group is None else group
    most = of_group.probabilities[_above(of_group, capacities)].sum()
    own_share = shares[above].sum()
    if 0 < most <= MOST_LEFT_OUT and own_share > 0:
        shares[above] *= max(1 - most / own_share, 0.0)
        shares /= shares.sum()
    kept = shares > 0
    return scaled(rate_law.RateLaw.from_arrays(
        shares[kept], law.rates[kept]), limits)


def scaled(law: rate_law.RateLaw,
           limits: abc.Iterable[Limit]) -> rate_law.RateLaw:
    """Return a law with its states scaled down to the limits.

    Each state keeps its probability. Limits of :data:`.LEAST_CAPACITY` or less
    are ignored: they refuse all traffic, and the law has to stay above them.
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
    return rate_law.RateLaw.from_arrays(
        law.probabilities, law.rates * factor[:, None], law.at_instants)
