# SPDX-License-Identifier: Apache-2.0
"""Computes how many VMs a server can carry, and what a fleet costs.

There are three methods, from "Towards a Method Integrating Virtual Switch
Performance Into Data Centre Design": Figure 1 (cores and memory), Figure 9
(also mean rates and tunnels), and the overlay of probabilities that the paper
proposes, by which the scheduler decides. Pure. Derivation:
reference/purchase.rst.
"""

import bisect
import dataclasses
import functools
import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import sizing
from vswitch_aware_scheduler.lab.purchase import inputs
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import superposition
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['AGNOSTIC', 'FIGURE_9', 'GROWTHS', 'METHODS', 'OVERLAY',
           'ServerCapacity', 'by_technology', 'purchase']

AGNOSTIC, FIGURE_9, OVERLAY = METHODS = ('agnostic', 'figure9', 'overlay')

#: Factors of the traffic and of the limit in the sensitivity analysis.
GROWTHS = (1.0, 1.25, 1.5, 2.0, 3.0)
LIMIT_FACTORS = (0.1, 1.0, 10.0)

_DAY_SECONDS = 86400.0
_SLACK = 1 + fourier_sum.TOLERANCE

#: Names of resources by the name of the limit of a switch profile, and the
#: keys of the profile for the limit.
_LIMIT_RESOURCES = {
    'saturation': 'saturation', 'switching': 'switching',
    'packet_rate': 'packets', 'line_rate_egress': 'nic',
    'line_rate_ingress': 'nic'}
_RESOURCE_KEYS = {
    'saturation': ('saturation_kbps', 'saturation_by_packet_bytes',
                   'vm_peak_kbps'),
    'switching': ('packet_cost_us', 'byte_cost_ns'),
    'packets': ('packet_rate_kpps',), 'nic': ('line_rate_kbps',)}
_COUNT_RESOURCES = {'max_tunnels': 'tunnels',
                    'max_virtual_functions': 'virtual_functions'}


@dataclasses.dataclass(frozen=True)
class _Filled:
    """The number of VMs of the mix that a server admits, and what limits it.

    :ivar first: resource that is exhausted first; None if the mix ends or
        :data:`.MOST` is reached
    """

    vms: int
    first: str | None


class ServerCapacity:
    """A server type with one of its switches, and a limit of overload.

    :param overload_probability: limit for the overlay, 0..1
    """

    def __init__(self, server_type, profile, overload_probability: float,
                 prediction_margin: float = 1.0) -> None:
        self.type = server_type
        self.profile = profile
        self._policy = admission.HostPolicy(
            profile, overload_probability=overload_probability,
            prediction_margin=prediction_margin)
        self._uplink = None if server_type.uplink_kbps is None else \
            dataclasses.replace(
                self._policy, profile=switch_profile.SwitchProfile(
                    'uplink', line_rate_kbps=server_type.uplink_kbps))

    # VMs that an empty server accepts.

    def takes(self, vm, method: str) -> str | None:
        """Return why an empty server refuses a VM: a resource, or None."""
        for resource, need, size in (
                ('cores', vm.cores, self.type.cores),
                ('memory', vm.memory_mb, self.type.memory_mb)):
            if need > size * _SLACK:
                return resource
        if method == AGNOSTIC:
            return None
        law = self._law(vm)
        for (weights, capacity, most_of_one), limit in zip(
                self._policy.limits, self._limit_names):
            if float(law.values(weights, self.profile.typical_packet_bytes)
                     .max()) > most_of_one * _SLACK:
                return 'peak' if most_of_one < capacity else limit
        return self._fill([vm], method).first

    @functools.cached_property
    def _limit_names(self):
        """Resource of each limit of the policy; the last may be the peak."""
        names = [_LIMIT_RESOURCES[limit.name]
                 for limit in self.profile.limits()]
        return names + ['peak'] * (len(self._policy.limits) - len(names))

    def _law(self, vm):
        return _law_of(self._policy, vm)

    # Number of VMs.

    def fill(self, vms, method: str) -> _Filled:
        """Return how many VMs an empty server accepts in their order.

        :returns: _Filled; counting ends at the first VM that does not fit
        """
        return self._fill(vms[:sizing.MOST + 1], method)

    def _fill(self, vms, method):
        # Number of VMs by resource. If several are equal, the first counts.
        counts = {
            'cores': _most([vm.cores for vm in vms], self.type.cores),
            'memory': _most([vm.memory_mb for vm in vms],
                            self.type.memory_mb)}
        if method != AGNOSTIC:
            counted = self._most_counted()
            if counted is not None:
                counts[counted[0]] = counted[1]
        if method == FIGURE_9:
            for (weights, capacity, _), name in zip(
                    self._policy.limits, self._limit_names):
                count = _most([self._mean(vm, weights) for vm in vms],
                              capacity)
                counts[name] = min(count, counts.get(name, count))
            if self._uplink is not None:
                counts['uplink'] = min(_most([
                    self.type.hosts_per_uplink * float(vm.law.mean[direction])
                    for vm in vms], self.type.uplink_kbps)
                    for direction in (0, 1))
        number = min(len(vms), sizing.MOST, *counts.values())
        first = next((name for name, count in counts.items()
                      if count == number < len(vms)), None)
        if method == OVERLAY:
            number, first = self._overlaid(vms, number, first)
        return _Filled(number, first)

    def _most_counted(self):
        """Return (resource, number of VMs) of the limits on counts."""
        count_limit = self.profile.max_instances
        if count_limit is None:
            return None
        return _COUNT_RESOURCES[count_limit.key], count_limit.count

    def _mean(self, vm, weights):
        law = self._law(vm)
        return float(law.probabilities @ law.values(
            weights, self.profile.typical_packet_bytes))

    def _overlaid(self, vms, number, first):
        """Return (number, resource) that the scheduler would admit."""
        for resource, policy, copies in (
                (None, self._policy, 1),
                ('uplink', self._uplink, self.type.hosts_per_uplink)):
            if policy is None:
                continue
            fits = bisect.bisect_left(
                range(1, number + 1), True, key=lambda n: not _admits(
                    policy, [vm for vm in vms[:n]
                             for _ in range(copies)]))
            if fits < number:
                number = fits
                first = resource or self._tightest(vms[:fits + 1])
        return number, first

    def _tightest(self, vms):
        """Return the resource that some VMs most likely exceed."""
        probabilities = self.overload_by_resource(vms)
        return max(probabilities, key=probabilities.get, default=None)

    def overload_by_resource(self, vms) -> dict:
        """Return {resource: probability that some VMs exceed it}."""
        probabilities = {}
        for name in dict.fromkeys(self._limit_names):
            if name not in _RESOURCE_KEYS:
                continue
            policy = admission.HostPolicy(_only(self.profile, name))
            probabilities[name] = float(_assessed(
                policy, vms).overload_probability[0])
        return probabilities

    # The resulting state.

    def state(self, vms) -> dict:
        """Return the state of a server with some VMs, as plain data."""
        return {
            'used': self._used(vms), **self._overload(vms),
            'cpu_mhz': self._cpu_mhz(vms)}

    def _used(self, vms):
        """Return {resource: mean share that is used}."""
        used = {'cores': sum(vm.cores for vm in vms) / self.type.cores,
                'memory': (sum(vm.memory_mb for vm in vms)
                           / self.type.memory_mb)}
        for (weights, capacity, _), name in zip(
                self._policy.limits, self._limit_names):
            if capacity < math.inf:
                share = sum(self._mean(vm, weights)
                            for vm in vms) / capacity
                used[name] = max(share, used.get(name, 0.0))
        counted = self._most_counted()
        if counted is not None and counted[1]:
            used[counted[0]] = len(vms) / counted[1]
        if self._uplink is not None:
            rates = sum((vm.law.mean for vm in vms), np.zeros(3))
            used['uplink'] = (self.type.hosts_per_uplink
                              * float(rates[:2].max())
                              / self.type.uplink_kbps)
        return used

    def _overload(self, vms):
        assessed = _assessed(self._policy, vms)
        answer = {
            'overload_probability': float(assessed.overload_probability[0]),
            'loss_fraction': float(assessed.loss_fraction[0]),
            'episodes_per_day': None, 'mean_episode_seconds': None}
        if self._uplink is not None:
            answer['uplink_overload_probability'] = float(_assessed(
                self._uplink, [vm for vm in vms for _ in range(
                    self.type.hosts_per_uplink)]).overload_probability[0])
        if all(vm.model is not None for vm in vms):
            answer.update(self._episodes(vms))
        return answer

    def _episodes(self, vms):
        """Return the overload episodes of the limit that is exceeded most."""
        worst = self._tightest(vms) if vms else None
        if worst is None:
            return {'episodes_per_day': 0.0, 'mean_episode_seconds': None}
        rates = []
        for (weights, capacity, _), name in zip(
                self._policy.limits, self._limit_names):
            if name == worst:
                models = [vm.model.with_packets(
                    self.profile.typical_packet_bytes) for vm in vms]
                sum_of_all = superposition.Superposition(
                    models, capacity, weights)
                rates.append((sum_of_all.episodes_per_second(),
                              sum_of_all.overload_probability()))
        per_second, probability = max(rates)
        return {'episodes_per_day': per_second * _DAY_SECONDS,
                'mean_episode_seconds':
                probability / per_second if per_second else None}

    def _cpu_mhz(self, vms):
        rates = sum((vm.law.mean for vm in vms), np.zeros(3))
        rate_kbps = float(rates[0] + rates[1])
        packet_bytes = rate_kbps / (8.0 * rates[2]) if rates[2] else None
        return self.profile.cpu_mhz(rate_kbps, packet_bytes or None)


def _law_of(policy, vm):
    """Return the RateLaw of a VM on hosts with a policy."""
    return policy.fitting(vm.law) if vm.is_prior else vm.law


def _most(needs, room):
    """Return how many needs fit together, in their order."""
    return int(np.searchsorted(np.cumsum(needs), room * _SLACK,
                               side='right'))


def _table(policy, vms):
    """Return (LoadTable, slot) of a host with some VMs."""
    laws = {}
    table = admission.LoadTable()
    slot = table.describe('host', policy, {
        number: laws.setdefault(id(vm), _law_of(policy, vm))
        for number, vm in enumerate(vms)})
    return table, slot


def _admits(policy, vms):
    """Return whether hosts with a policy admit the last of the given VMs."""
    table, slot = _table(policy, vms[:-1])
    assessed = table.assess([slot], _law_of(policy, vms[-1]))
    return bool(assessed.admitted[0])


def _assessed(policy, vms):
    """Return the Assessment of a host with some VMs."""
    table, slot = _table(policy, vms)
    return table.assess([slot], rate_law.SILENT)


def _only(profile, resource):
    """Return a profile with only one of its limits."""
    other_limits = {key: None for name, keys in _RESOURCE_KEYS.items()
                    if name != resource for key in keys}
    return dataclasses.replace(
        profile, max_tunnels=None, max_virtual_functions=None, sources={},
        same_host_share=None, same_host_saturation_kbps=None, **other_limits)


# Fleets

def purchase(server_types, mix, overload_probability, count=None,
             progress=None, prediction_margin=1.0):
    """Return the capacity of each server type with each switch.

    :returns: list of dictionaries, in the order of types and their switches
    """
    count = mix.total if count is None else count
    pairs = [(server_type, profile) for server_type in server_types
             for profile in server_type.profiles]
    grown = {factor: mix.grown(factor) for factor in GROWTHS}
    rows = []
    for done, (server_type, profile) in enumerate(pairs):
        if progress:
            progress(done, len(pairs))
        rows.append(_row(server_type, profile, grown, overload_probability,
                         count, prediction_margin))
    if progress:
        progress(len(pairs), len(pairs))
    return rows


def by_technology(rows: list) -> list[dict]:
    """Return the cheapest row of each kind of switch, by the overlay.

    Rows that refuse VMs of the mix are ignored. Without prices, the row with
    the fewest servers is used.

    :returns: list of {switch, encapsulation, server, profile, vms, servers,
        cost}; the last five are None if every row refuses some VM
    """
    rows_of_kind = {}
    for row in rows:
        kind_rows = rows_of_kind.setdefault(
            (row['switch'], row['encapsulation']), [])
        if row[OVERLAY]['servers'] is not None \
                and not row[OVERLAY]['refused']:
            kind_rows.append(row)
    answer = []
    for (switch, encapsulation), kind_rows in rows_of_kind.items():
        best = min(kind_rows, default=None, key=lambda row: (
            row[OVERLAY]['cost'] is None, row[OVERLAY]['cost'] or 0.0,
            row[OVERLAY]['servers']))
        answer.append({
            'switch': switch, 'encapsulation': encapsulation,
            **{key: best and best[key] for key in ('server', 'profile')},
            **{key: best and best[OVERLAY][key]
               for key in ('vms', 'servers', 'cost')}})
    return answer


def _row(server_type, profile, grown, limit, count, margin):
    mix = grown[1.0]
    server = ServerCapacity(server_type, profile, limit, margin)
    return {
        'server': server_type.name, 'profile': profile.name,
        'switch': profile.switch, 'encapsulation': profile.encapsulation,
        'cores': server_type.cores, 'memory_mb': server_type.memory_mb,
        'price': server_type.price,
        **{method: _by_method(server, mix, method, count)
           for method in METHODS},
        'sensitivity': {
            'overload_probability': [
                {'overload_probability': other, **_size(
                    ServerCapacity(server_type, profile, other, margin), mix,
                    OVERLAY, count)}
                for other in sorted({min(limit * factor, 1.0)
                                     for factor in LIMIT_FACTORS})],
            'growth': [
                {'growth': factor, **_size(
                    server, other, OVERLAY, count)}
                for factor, other in grown.items()]}}


def _by_method(server, mix, method, count):
    size, filled, refused, vms = _fleet(server, mix, method, count)
    state = server.state(vms)
    return {
        **size,
        'first_to_run_out': filled.first if filled
        else next(iter(refused.values()), None),
        'refused_flavors': refused,
        'unused': {name: max(0.0, 1.0 - share)
                   for name, share in state['used'].items()},
        **state}


def _size(server, mix, method, count):
    return _fleet(server, mix, method, count)[0]


def _fleet(server, mix, method, count):
    """Return (numbers, _Filled of the first server, refusals, its VMs).

    Refusals are {flavor: the resource for which an empty server refuses it}.
    """
    refusals = {id(vm): (vm, server.takes(vm, method)) for vm in mix.kinds}
    placeable = [vm for vm in mix.vms if refusals[id(vm)][1] is None]
    # The mix represents count VMs. A server type refuses a part of them.
    placed = round(count * sum(
        vm.count for vm, resource in refusals.values() if resource is None)
        / sum(vm.count for vm, _ in refusals.values()))
    refused = {vm.flavor: resource
               for vm, resource in refusals.values() if resource}
    filled, vms_per_server = None, 0.0
    if placeable and mix.repeats:
        if refused:
            # Without the refused VMs the pattern would be too short.
            placeable = inputs.mix_of_flavors(
                [vm for vm, resource in refusals.values()
                 if resource is None], sizing.MOST + 1).vms
        filled = server.fill(placeable, method)
        vms_per_server = float(filled.vms)
    elif placeable:
        servers, at = 0, 0
        while at < len(placeable):
            next_server = server.fill(placeable[at:], method)
            filled = filled or next_server
            servers += 1
            at += next_server.vms
        vms_per_server = len(placeable) / servers
    servers = math.ceil(placed / vms_per_server * (1 - 1e-12)) \
        if vms_per_server else None
    price = server.type.price
    return {
        'vms': vms_per_server, 'servers': servers,
        'refused': count - placed,
        'cost': None if price is None or servers is None
        else servers * price,
    }, filled, refused, placeable[:filled.vms if filled else 0]
