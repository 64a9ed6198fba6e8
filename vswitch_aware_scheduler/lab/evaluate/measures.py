# SPDX-License-Identifier: Apache-2.0
"""Measures of a placement, from where each instance was in each bin.

One function, :func:`judge`, serves every protocol and every benchmark. A
*stay* is [instance, host, first bin, end of the bins, exclusive]. Pure: arrays
in, arrays out. Definitions: reference/evaluation.rst, "Measures".
"""

import dataclasses

import numpy as np

__all__ = ['FluidBound', 'Judgement', 'Migrations', 'fluid_bound', 'judge']

#: Sums and shares are compared with this relative tolerance.
TOLERANCE = 1e-9

_WEEK_SECONDS = 7 * 86400.0


@dataclasses.dataclass(frozen=True, eq=False)
class Migrations:
    """The live migrations of a replay.

    :ivar load: (hosts, T) rate that migrations add to hosts, or None
    """

    started: list = dataclasses.field(default_factory=list)
    kbit: float = 0.0
    load: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """What happened on h hosts and to v instances, in bins of equal length.

    :ivar hosts: (h,) numbers of the hosts that were in use
    :ivar bins: (h,) number of bins in which the host had an instance
    :ivar overload: (h,) number of these bins with a sum above the capacity
    :ivar avoidable: (h,) number of these bins with such a sum in which no
        instance alone exceeds the capacity
    :ivar peak_hosts: largest number of hosts in use in one bin
    :ivar vm_bins: (v,) number of bins of each instance on any host
    :ivar vm_overload: (v,) number of these bins in which the host exceeds the
        capacity although the instance itself does not
    :ivar migration_share: traffic of migrations, as a share of all traffic
    """

    bin_seconds: float
    length: int
    hosts: np.ndarray
    bins: np.ndarray
    overload: np.ndarray
    avoidable: np.ndarray
    peak_hosts: int
    vm_bins: np.ndarray
    vm_overload: np.ndarray
    loss: float
    moves: int = 0
    migration_share: float = 0.0

    @property
    def avoidable_shares(self) -> np.ndarray:
        """(h,) share of the bins of each host with avoidable overload."""
        return self.avoidable / self.bins

    def figures(self, limit: float) -> dict:
        """Return the measures as a dictionary of numbers; None: undefined."""
        shares, raw = self.avoidable_shares, self.overload / self.bins
        weekly = shares[self.bins * self.bin_seconds
                        >= _WEEK_SECONDS * (1 - TOLERANCE)]
        vm_shares = self.vm_overload / self.vm_bins
        most = limit * (1 + TOLERANCE)
        weeks = self.vm_bins.sum() * self.bin_seconds / _WEEK_SECONDS
        return {
            'hosts': self.peak_hosts,
            'hosts_mean': _ratio(self.bins.sum(), self.length) or 0.0,
            'host_hours': float(self.bins.sum()) * self.bin_seconds / 3600,
            'overload_mean': _mean(raw),
            'overload_avoidable_mean': _mean(shares),
            'overload_worst': float(raw.max(initial=0.0)),
            'hosts_above': _mean(raw > most),
            'overload_over_limit': _mean(shares) / limit,
            'overload_over_limit_weighted': (_ratio(
                self.avoidable.sum(), self.bins.sum()) or 0.0) / limit,
            'overload_all_over_limit_weighted': (_ratio(
                self.overload.sum(), self.bins.sum()) or 0.0) / limit,
            'overload_over_limit_worst':
                float(shares.max(initial=0.0)) / limit,
            'week_hosts': weekly.size,
            'week_over_limit_worst': float(
                weekly.max()) / limit if weekly.size else None,
            'week_hosts_above': _mean(weekly > most) if weekly.size else None,
            'vm_over_limit': (_ratio(
                self.vm_overload.sum(), self.vm_bins.sum()) or 0.0) / limit,
            'vm_over_limit_p99': float(np.quantile(
                vm_shares, 0.99, method='inverted_cdf')) / limit
            if vm_shares.size else None,
            'vms_above': _mean(vm_shares > most),
            'loss': self.loss,
            'moves_per_instance_week': _ratio(self.moves, weeks) or 0.0,
            'migration_share': self.migration_share,
        }


def _mean(values):
    return float(np.mean(values)) if len(values) else 0.0


def _ratio(value, of):
    return float(value) / float(of) if of else None


def _spans(stays, begin, end):
    """Yield (instance, host, first, last) of the stays within some bins."""
    for instance, host, first, last in stays:
        first, last = max(first, begin), min(last, end)
        if first < last:
            yield instance, host, first, last


def judge(stays: list, rates, capacity: float, bin_seconds: float,
          begin: int = 0, migrations=Migrations()) -> Judgement:
    """Return the :class:`Judgement` of a placement.

    A host counts in the bins in which it has an instance.

    :param stays: list of stays; the stays of an instance are in order of time
    :param rates: (V, T) kbit/s, 0 where there is no sample
    :param capacity: capacity of each host in kbit/s
    """
    most = capacity * (1 + TOLERANCE)
    end = rates.shape[1]
    spans = list(_spans(stays, begin, end))
    shape = (1 + max((host for _, host, _, _ in spans), default=-1),
             end - begin)
    load, used = np.zeros(shape), np.zeros(shape, dtype=bool)
    alone = np.zeros(shape, dtype=bool)
    if migrations.load is not None:
        load += migrations.load[:shape[0], begin:]
    for instance, host, first, last in spans:
        at, rate = (host, slice(first - begin, last - begin)), \
            rates[instance, first:last]
        load[at] += rate
        used[at] = True
        alone[at] |= rate > most
    above = load > most
    vm_bins, vm_overload = np.zeros((2, len(rates)), dtype=np.int64)
    for instance, host, first, last in spans:
        vm_bins[instance] += last - first
        vm_overload[instance] += np.count_nonzero(
            above[host, first - begin:last - begin]
            & (rates[instance, first:last] <= most))
    bins = np.count_nonzero(used, axis=1)
    hosts, vms = np.flatnonzero(bins), np.flatnonzero(vm_bins)
    carried = float(load.sum())
    started = sum(begin <= at < end for at in migrations.started)
    transferred = started * migrations.kbit / bin_seconds
    return Judgement(
        bin_seconds, shape[1], hosts, bins[hosts],
        np.count_nonzero(above & used, axis=1)[hosts],
        np.count_nonzero(above & used & ~alone, axis=1)[hosts],
        int(np.count_nonzero(used, axis=0).max(initial=0)),
        vm_bins[vms], vm_overload[vms],
        _ratio((load[above] - capacity).sum(), carried) or 0.0,
        _moves(stays, begin, end),
        _ratio(transferred, carried + transferred) or 0.0)


def _moves(stays, begin, end):
    """Return the number of stays in some bins that follow another stay."""
    seen, moves = set(), 0
    for instance, _, first, _ in stays:
        moves += instance in seen and begin <= first < end
        seen.add(instance)
    return moves


@dataclasses.dataclass(frozen=True)
class FluidBound:
    """Host-hours below which no placement can be with free migrations.

    :ivar within_limit: host-hours that keep E in all host-hours together
    :ivar without_overload: host-hours in which others overload no instance
    """

    within_limit: float
    without_overload: float


def fluid_bound(stays, rates, capacity, bin_seconds, limit, begin=0,
                needs=None, room=None):
    """Return the :class:`FluidBound` of the instances of a placement.

    Derivation: reference/evaluation.rst, "Fluid bound".

    :param needs: (V, r) needs of each instance for each resource, or None
    :param room: (r,) capacity of a host for each resource
    """
    end = rates.shape[1]
    # Instances that exceed the capacity alone can share one host.
    large = np.zeros(end - begin, dtype=bool)
    total, least = np.zeros((2, end - begin))
    used = np.zeros((end - begin, 0 if needs is None else needs.shape[1]))
    for instance, _, first, last in _spans(stays, begin, end):
        at, rate = slice(first - begin, last - begin), \
            rates[instance, first:last]
        is_large = rate > capacity * (1 + TOLERANCE)
        large[at] |= is_large
        total[at] += np.where(is_large, 0.0, rate)
        least[at] = 1.0
        if needs is not None:
            used[at] += needs[instance]
    if needs is not None:
        least = np.maximum(least, _ceil(used / room).max(axis=1, initial=0))
    needed = np.maximum(least, large + _ceil(total / capacity))
    # A host with a large instance has no avoidable overload.
    saved = np.sort(np.where(large, least, needed) - least)[::-1]
    overloaded = np.arange(saved.size + 1)
    hosts = np.where(large, least, needed).sum() - np.concatenate(
        [[0.0], np.cumsum(saved)])
    within = np.maximum(hosts, _ceil(overloaded / limit)).min()
    return FluidBound(*(float(value) * bin_seconds / 3600
                        for value in (within, needed.sum())))


def _ceil(values):
    return np.ceil(values * (1 - TOLERANCE))
