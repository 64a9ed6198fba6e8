# SPDX-License-Identifier: Apache-2.0
"""Converts a profile to options of Nova or Neutron, for Placement.

Pure: a SwitchProfile as input, plain values and text as output. Placement
counts whole kbit/s and kilo-packets/s, each resource separately; numbers are
rounded down. Derivation: admin/discovery.rst, "What Placement can hold".
"""

from collections import abc
import dataclasses
import math
import re
import typing

import yaml

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['FORMATS', 'Inventory', 'TUNNELLED', 'inventory', 'neutron_options',
           'provider_config', 'render']

#: Formats of the text: provider.yaml of nova-compute, and options of the
#: agents of Open vSwitch, SR-IOV and OVN.
FORMATS = ('provider', 'neutron-ovs', 'neutron-sriov', 'neutron-ovn')

#: Neutron's default name for the bandwidth of tunnelled networks.
TUNNELLED = 'rp_tunnelled'

# Group in the agent's configuration file; ML2/OVN reads its options from the
# OVS database.
_GROUPS = {'neutron-ovs': 'ovs', 'neutron-sriov': 'sriov_nic'}

# The largest integer of Placement.
_MOST = 2 ** 31 - 1

_NAME = checks.Kind('letters, digits, "_", "." and "-"',
                    re.compile(r'[A-Za-z0-9_.-]+').fullmatch)


@dataclasses.dataclass(frozen=True)
class Inventory:
    """The capacity of a switch in whole units; None: no limit stated.

    :ivar egress_kbps: largest egress rate; the sum with ``ingress_kbps`` never
        exceeds the capacity for both together
    :ivar ingress_kbps: largest ingress rate
    :ivar bandwidth_kbps: largest sum of egress and ingress
    :ivar packets_kpps: largest packet rate of both directions, at the typical
        packet size
    :ivar max_kbps: largest rate of one VM, both directions together
    """

    egress_kbps: int | None
    ingress_kbps: int | None
    bandwidth_kbps: int | None
    packets_kpps: int | None
    max_kbps: int | None


def inventory(profile: switch_profile.SwitchProfile) -> Inventory:
    """Return the :class:`Inventory` of a SwitchProfile."""
    size = profile.typical_packet_bytes
    both = profile.bandwidth_kbps()
    saturation = profile.saturation_kbps_at()
    limits = dict.fromkeys(('egress', 'ingress'),
                           profile.line_rate_kbps or math.inf)
    if saturation is not None and profile.saturation_dimension in limits:
        limits[profile.saturation_dimension] = min(
            limits[profile.saturation_dimension], saturation)
    egress, ingress = limits['egress'], limits['ingress']
    if both < math.inf:
        # As equal as the separate limits permit.
        egress = min(egress, max(both / 2, both - ingress))
        ingress = min(ingress, both - egress)
    packets = [rate for rate in (
        profile.packet_rate_kpps,
        both / (8 * size) if profile.packet_cost_us is not None
        or profile.byte_cost_ns is not None
        or profile.saturation_by_packet_bytes is not None else None)
        if rate is not None]
    return Inventory(*(_whole(rate) for rate in (
        egress, ingress, both, min(packets, default=None),
        profile.vm_peak_kbps
        if profile.saturation_dimension == 'bandwidth' else None)))


def _whole(rate: float | None) -> int | None:
    if rate is None or rate == math.inf:
        return None
    # Tolerance for rounding errors of whole numbers.
    return min(math.floor(rate * (1 + 1e-12)), _MOST)


def provider_config(
        profile: switch_profile.SwitchProfile) -> dict[str, typing.Any]:
    """Return the content of a provider.yaml file of nova-compute.

    Nova only accepts custom resource classes and traits, which never conflict
    with those that Neutron reports.
    """
    stated = inventory(profile)
    classes = {}
    for name, total in (
            ('EGR_KILOBIT_PER_SEC', stated.egress_kbps),
            ('IGR_KILOBIT_PER_SEC', stated.ingress_kbps),
            ('KILOBIT_PER_SEC', stated.bandwidth_kbps),
            ('KILOPACKET_PER_SEC', stated.packets_kpps),
            ('TUNNEL', profile.max_tunnels
             if profile.tunnel_unit in ('instances', 'interfaces') else None),
            ('VIRTUAL_FUNCTION', profile.max_virtual_functions)):
        if not total:
            continue
        max_unit = total
        if name.endswith('KILOBIT_PER_SEC') and stated.max_kbps:
            max_unit = min(total, stated.max_kbps)
        classes[f'CUSTOM_VSWITCH_{name}'] = {
            'total': min(total, _MOST), 'reserved': 0, 'min_unit': 1,
            'max_unit': min(max_unit, _MOST), 'step_size': 1,
            'allocation_ratio': 1.0}
    trait = re.sub('[^A-Z0-9_]', '_', profile.name.upper())
    return {'meta': {'schema_version': '1.0'}, 'providers': [{
        'identification': {'uuid': '$COMPUTE_NODE'},
        'inventories': {'additional': [{key: value} for key, value
                                       in classes.items()]},
        'traits': {'additional': [f'CUSTOM_VSWITCH_{trait}']}}]}


def neutron_options(profile: switch_profile.SwitchProfile,
                    devices: abc.Sequence[str], hypervisor: str = '',
                    directions: bool = False,
                    packets: bool = True) -> dict[str, str]:
    """Return {name of an option: value} for an agent of Neutron.

    :param devices: list of bridges or network devices that share the bandwidth
        equally
    :param hypervisor: name of the hypervisor of the devices and of packet
        processing; '' means the agent's host
    :param directions: whether packets are counted in each direction, as for a
        switch that is offloaded to hardware
    :raises InvalidInput: if a name is not permitted in such an option
    """
    for name in (*devices, *([hypervisor] if hypervisor else [])):
        checks.check('a bridge, device or hypervisor', name, _NAME)
    stated, options = inventory(profile), {}
    both = (stated.egress_kbps, stated.ingress_kbps)
    if any(both):
        shares = [None if rate is None else rate // len(devices)
                  for rate in both]
        options['resource_provider_bandwidths'] = ','.join(
            ':'.join([device, *('' if rate is None else str(rate)
                                for rate in shares)]) for device in devices)
        max_unit = min(rate for rate in (stated.max_kbps, *shares) if rate)
        options['resource_provider_inventory_defaults'] = (
            f'allocation_ratio:1.0,min_unit:1,max_unit:{max_unit},step_size:1,'
            f'reserved:0')
        if hypervisor:
            options['resource_provider_hypervisors'] = ','.join(
                f'{device}:{hypervisor}' for device in devices)
    if packets and stated.packets_kpps:
        name = 'resource_provider_packet_processing_'
        half = stated.packets_kpps // 2
        if directions:
            options[name + 'with_direction'] = f'{hypervisor}:{half}:{half}'
        else:
            options[name + 'without_direction'] = \
                f'{hypervisor}:{stated.packets_kpps}'
    return options


def render(profile: switch_profile.SwitchProfile, form: str,
           devices: abc.Sequence[str] = (), hypervisor: str = '',
           directions: bool = False) -> str:
    """Return a profile as text for a configuration file or a command.

    :raises InvalidInput: if the profile states nothing for the format, or if
        an argument is missing
    """
    head = f'# Switch profile {profile.name}\n'
    if form == 'provider':
        return head + yaml.safe_dump(provider_config(profile),
                                     sort_keys=False)
    tunnelled = profile.encapsulation != 'none' and form != 'neutron-sriov'
    if not devices and tunnelled:
        devices = (TUNNELLED,)
    if not devices:
        raise exceptions.InvalidInput(
            thing='--device', value=None, expected='the bridge or network '
            f'device for the format {form}')
    if form == 'neutron-ovn' and not hypervisor:
        raise exceptions.InvalidInput(
            thing='--hypervisor', value=None, expected='the name of the '
            'compute host in Placement: ML2/OVN reports only devices with a '
            'hypervisor')
    if tunnelled and TUNNELLED not in devices:
        head += (f'# Networks of {profile.encapsulation} use the bandwidth of '
                 f'{TUNNELLED}, which is no device here\n')
    options = neutron_options(profile, devices, hypervisor, directions,
                              packets=form == 'neutron-ovs')
    if not options:
        raise exceptions.InvalidInput(
            thing=f'profile {profile.name}', seen=f'no limit for {form}',
            expected='a limit on bandwidth or packets')
    if form == 'neutron-ovn':
        text = ','.join(f'{name}={value.replace(",", ";")}'
                        for name, value in options.items())
        return (f'{head}# To be added, after a comma, to '
                f'external-ids:ovn-cms-options of Open_vSwitch\n{text}\n')
    return head + f'[{_GROUPS[form]}]\n' + ''.join(
        f'{name} = {value}\n' for name, value in options.items())
