# SPDX-License-Identifier: Apache-2.0
"""Replays traffic through the switch of each host: equation 3.

Pure: numpy and switch profiles; no nova, no clock, no I/O.
"""

import dataclasses

import numpy as np

__all__ = ['HostResult', 'PlacementReplay', 'carry', 'replay']

#: Sums are compared with this relative tolerance: equality happens.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class HostResult:
    """The offered and the carried traffic of one host's switch.

    :ivar overloaded: (t,) bool, whether the offered traffic exceeds the
        capacity
    :ivar offered_kbps: (t,) sum of egress and ingress
    :ivar carried_kbps: (t,) sum of egress and ingress
    """

    host: str
    profile: str
    capacity_kbps: float
    vms: int
    overloaded: np.ndarray
    offered_kbps: np.ndarray
    carried_kbps: np.ndarray
    used: bool

    @property
    def overloaded_share(self) -> float:
        """Share of the time in which the host is overloaded."""
        return float(self.overloaded.mean())


@dataclasses.dataclass(frozen=True, eq=False)
class PlacementReplay:
    """A placement evaluated on the traffic that followed.

    :ivar list_kbps: mean rate of the whole list, including refused VMs
    """

    hosts: list
    vms: int
    list_kbps: float
    live_migrations: int = 0

    def summary(self, profile=None) -> dict:
        """Return the results of all hosts, or of those with one profile.

        :param profile: name of a profile, or None for all hosts
        :returns: dictionary; shares are 0..1. ``placed_traffic_share`` and
            ``carried_traffic_share`` are shares of the whole list's traffic,
            ``lost_share`` is a share of the traffic of placed VMs.
        """
        chosen = [host for host in self.hosts
                  if profile in (None, host.profile)]
        shares = [host.overloaded_share for host in chosen]
        offered = float(sum(host.offered_kbps.mean() for host in chosen))
        carried = float(sum(host.carried_kbps.mean() for host in chosen))
        return {
            'hosts': len(chosen),
            'hosts_used': sum(host.used for host in chosen),
            'vms_placed': sum(host.vms for host in chosen),
            'overloaded_samples': int(sum(host.overloaded.sum()
                                          for host in chosen)),
            'overloaded_share_mean': float(np.mean(shares)),
            'overloaded_share_worst': max(shares),
            'lost_share': _share(offered - carried, offered),
            'placed_kbps': offered,
            'carried_kbps': carried,
            'placed_traffic_share': _share(offered, self.list_kbps),
            'carried_traffic_share': _share(carried, self.list_kbps),
        }

    @property
    def profiles(self) -> dict:
        """{name of a switch profile: capacity_kbps}, in the order of hosts."""
        return {host.profile: host.capacity_kbps for host in self.hosts}


def _share(part, whole):
    return part / whole if whole > 0 else 0.0


def carry(rates, profile) -> tuple:
    """Send the sum of the given VMs' traffic through one switch.

    :param rates: (t, 2) egress_kbps, ingress_kbps
    :returns: (overloaded, carried): (t,) bool, whether any limit is exceeded,
        and (t,) kbit/s of both directions that the tightest limit permits;
        with one limit on bandwidth this is min(sum, saturation)
    """
    offered = rates.sum(axis=1)
    kpps = offered / (8.0 * profile.typical_packet_bytes)
    load_rates = np.column_stack([rates, kpps])
    fraction = np.ones(offered.size)
    overloaded = np.zeros(offered.size, dtype=bool)
    for limit in profile.limits():
        load = load_rates @ np.asarray(limit.weights, dtype=float)
        overloaded |= load > limit.capacity * (1 + _TOLERANCE)
        # A sample without traffic is carried completely.
        fraction = np.minimum(fraction, np.divide(
            limit.capacity, load, out=np.ones(load.size), where=load > 0))
    return overloaded, offered * fraction


def replay(placements, rates, hosts, profiles, moves=()):
    """Replay traffic over a placement and its live migrations.

    :param placements: {uuid: host} of the admitted VMs
    :param rates: {uuid: (t, 2) egress_kbps, ingress_kbps} of all VMs, also of
        refused VMs
    :param hosts: [(host, profile name)]
    :param profiles: {profile name: SwitchProfile}
    :param moves: [(sample, uuid, host)] in the order of time: from this sample
        on, the VM is on the host
    :returns: PlacementReplay, with the hosts in the given order
    """
    periods = len(next(iter(rates.values())))
    totals = {host: np.zeros((periods, 2)) for host, _ in hosts}
    counts, used = dict.fromkeys(totals, 0), set()
    stays = {uuid: [(0, host)] for uuid, host in placements.items()}
    for sample, uuid, host in moves:
        stays[uuid].append((sample, host))
    for uuid, vm_stays in stays.items():
        ends = [first for first, _ in vm_stays[1:]] + [periods]
        for (first, host), end in zip(vm_stays, ends):
            totals[host][first:end] += rates[uuid][first:end]
            used.add(host)
        counts[vm_stays[-1][1]] += 1
    results = []
    for host, name in hosts:
        overloaded, carried = carry(totals[host], profiles[name])
        results.append(HostResult(
            host, name, profiles[name].bandwidth_kbps(), counts[host],
            overloaded, totals[host].sum(axis=1), carried, host in used))
    list_kbps = sum(vm_rates.sum(axis=1).mean() for vm_rates in rates.values())
    return PlacementReplay(results, len(rates), float(list_kbps), len(moves))
