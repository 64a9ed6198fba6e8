# SPDX-License-Identifier: Apache-2.0
"""The names and labels that exporters give to the counters of interfaces.

The manual names the origin of each. Pure.
"""

import dataclasses
import re

from vswitch_aware_scheduler.common import exceptions

__all__ = ['EXPORTERS', 'Names', 'UNUSABLE']

_SELECTOR = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)?(\{.*\})?', re.DOTALL)
_LABEL = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*')


@dataclasses.dataclass(frozen=True)
class Names:
    """Names and labels of the counters of an exporter.

    :ivar egress_query: selector of the series of bytes that instances sent
    :ivar ingress_query: selector of the series of bytes that instances
        received
    :ivar egress_packets_query: selector for sent packets, or '' to count no
        packets
    :ivar ingress_packets_query: selector for received packets, or ''
    :ivar select_label: label whose values select series
    :ivar instance_label: label that contains the uuid of the instance
    :ivar interface_labels: labels that distinguish the interfaces of an
        instance
    :ivar host_labels: labels that distinguish the hosts of an instance;
        missing labels are ignored
    :ivar identity_query: '' if ``instance_label`` is a label of the counters,
        else a selector of series with this label
    :ivar identity_labels: labels that the counters have in common with the
        series of ``identity_query``
    :raises InvalidInput: if a value is invalid
    """

    egress_query: str
    ingress_query: str
    egress_packets_query: str
    ingress_packets_query: str
    select_label: str
    instance_label: str
    interface_labels: tuple[str, ...]
    host_labels: tuple[str, ...]
    identity_query: str = ''
    identity_labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            name, value = item.name, getattr(self, item.name)
            if name.endswith('_query'):
                optional = 'packets' in name or 'identity' in name
                _require(
                    isinstance(value, str) and (value or optional)
                    and _SELECTOR.fullmatch(value), name, value,
                    'a selector of series such as name or '
                    'name{label="value"}')
                continue
            labels = [value]
            if name.endswith('_labels'):
                labels = value.split(',') if isinstance(value, str) else value
                labels = [label.strip() for label in labels]
                object.__setattr__(self, name, tuple(labels))
            for label in labels:
                _require(isinstance(label, str) and _LABEL.fullmatch(label),
                         name, label, 'the name of a label')
        _require(bool(self.egress_packets_query)
                 == bool(self.ingress_packets_query), 'ingress_packets_query',
                 self.ingress_packets_query,
                 'one if and only if egress_packets_query has one')
        _require(self.identity_labels or not self.identity_query,
                 'identity_labels', self.identity_labels,
                 'the labels that connect the series of identity_query with '
                 'the counters')

    @property
    def queries(self) -> tuple[str, ...]:
        """The selectors of all counters: bytes and, if configured, packets."""
        return tuple(filter(None, (
            self.egress_query, self.ingress_query,
            self.egress_packets_query, self.ingress_packets_query)))


def _require(is_valid, name, value, expected):
    if not is_valid:
        raise exceptions.InvalidInput(
            thing=f'telemetry driver prometheus: {name}', value=value,
            expected=expected)


_LIBVIRT = Names(
    'libvirt_domain_interface_stats_transmit_bytes_total',
    'libvirt_domain_interface_stats_receive_bytes_total',
    'libvirt_domain_interface_stats_transmit_packets_total',
    'libvirt_domain_interface_stats_receive_packets_total',
    'domain', 'instance_id', ('target_device',), ('instance',),
    'libvirt_domain_openstack_info', ('domain', 'instance'))

_CEILOMETER = Names(
    'ceilometer_network_outgoing_bytes', 'ceilometer_network_incoming_bytes',
    'ceilometer_network_outgoing_packets',
    'ceilometer_network_incoming_packets',
    # Some exporters have one resource for all interfaces of an instance.
    'resource', 'resource', ('resource', 'device'),
    ('vm_instance', 'instance'))

#: Names of exporters; the manual names their origin.
EXPORTERS = {
    # The exporter of Ceilometer's polling agent, and sg-core.
    'ceilometer': _CEILOMETER,
    # Ceilometer's publisher prometheus:// and a Pushgateway.
    'ceilometer-pushgateway': dataclasses.replace(
        _CEILOMETER, select_label='resource_id', instance_label='resource_id',
        interface_labels=('resource_id',), host_labels=('instance',), **{
            name: getattr(_CEILOMETER, name).removeprefix('ceilometer_')
            for name in ('egress_query', 'ingress_query',
                         'egress_packets_query', 'ingress_packets_query')}),
    'libvirt-inovex': _LIBVIRT,
    'libvirt-tinkoff': dataclasses.replace(
        _LIBVIRT, instance_label='uuid',
        identity_query='libvirt_domain_info_meta'),
    'libvirt-zhangjianweibj': dataclasses.replace(
        _LIBVIRT, select_label='instanceId', instance_label='instanceId',
        identity_query='', identity_labels=()),
    'libvirt-kumina': dataclasses.replace(
        _LIBVIRT, select_label='uuid', instance_label='uuid',
        identity_query='', identity_labels=()),
    'libvirtd-vexxhost': Names(
        'libvirtd_domain_net_tx_bytes', 'libvirtd_domain_net_rx_bytes',
        'libvirtd_domain_net_tx_packets', 'libvirtd_domain_net_rx_packets',
        'uuid', 'uuid', ('interface',), ('instance',)),
}


#: {exporter that cannot be used: (selector of its series, why)}
UNUSABLE = {
    'a libvirt exporter without uuids': (
        _LIBVIRT.egress_query,
        'its series have the name of the domain, but no uuid'),
    'node_exporter': (
        'node_network_transmit_bytes_total{device=~"tap.*"}',
        'its series have the name of the tap device, but no uuid'),
    'openstack-exporter': (
        'openstack_nova_server_status', 'it does not count traffic'),
    'KubeVirt': (
        'kubevirt_vmi_network_transmit_bytes_total',
        'its machines are not instances of Nova'),
    'the exporter of Ceilometer before October 2024': (
        'ceilometer_network_outgoing_bytes_total',
        'it adds each reading to the previous ones'),
}
