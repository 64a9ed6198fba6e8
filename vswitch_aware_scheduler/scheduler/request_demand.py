# SPDX-License-Identifier: Apache-2.0
"""Reads what a RequestSpec states about its instance.

:func:`demand_of` passes the facts of the request to
:func:`.demand.of_instance`, which decides.
"""

from __future__ import annotations

import collections
from collections import abc
import typing

from nova import objects
from nova.scheduler import utils as scheduler_utils

from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments
from vswitch_aware_scheduler.vswitch import guarantee

__all__ = ['Statements', 'attachments_of', 'attachments_of_instance',
           'demand_of', 'instance_uuid_of', 'is_pinned', 'is_rebuild_on',
           'read']

# Values of network_id in Nova that are not the id of a network.
_AUTO, _NO_NETWORK = 'auto', 'none'

#: Maximum number of instances whose statements are stored.
_MOST_STATEMENTS = 100_000


class Statements:
    """What claims state about instances and Nova's record does not show.

    It also applies after the claim has ended, until the inventory of the store
    has it.

    :ivar guarantees: {instance uuid: (egress_kbps, ingress_kbps, kpps)} of the
        instances with a guarantee above 0
    """

    def __init__(self) -> None:
        self.guarantees = {}
        self._of = collections.OrderedDict()  # uuid -> (rates, attachments)

    def add(self, instance_uuid: str, guaranteed: demand_rules.Rates | None,
            attachments: vswitch_attachments.Attachments | None) -> bool:
        """Store what a claim states; None keeps it. Returns a change."""
        stored = self._of.pop(instance_uuid, (None, None))
        statement = (stored[0] if guaranteed is None else guaranteed,
                     stored[1] if attachments is None else attachments)
        self._of[instance_uuid] = statement
        self.guarantees.pop(instance_uuid, None)
        if any(statement[0] or ()):
            self.guarantees[instance_uuid] = statement[0]
        if len(self._of) > _MOST_STATEMENTS:
            self.guarantees.pop(self._of.popitem(last=False)[0], None)
        return statement != stored

    def attachments(
            self, instance_uuid: str
    ) -> vswitch_attachments.Attachments | None:
        """Return the Attachments that the claims state, or None."""
        return self._of.get(instance_uuid, (None, None))[1]


def instance_uuid_of(spec_obj: objects.RequestSpec) -> str | None:
    """Return the uuid of the instance that a request is for, or None."""
    return read(spec_obj, 'instance_uuid')


def is_pinned(spec_obj: objects.RequestSpec) -> bool:
    """Return whether an administrator names the host of a request."""
    requested = read(spec_obj, 'requested_destination')
    return bool(read(spec_obj, 'force_hosts') or read(spec_obj, 'force_nodes')
                or requested and read(requested, 'host'))


def is_rebuild_on(spec_obj: objects.RequestSpec, host_state: typing.Any,
                  counted_on: abc.Container[str]) -> bool:
    """Return whether a request is for the rebuild of an instance on a host.

    A user with the role member can set the scheduler hint of a rebuild before
    Nova 31.3.1, 32.2.1 and 33.0.2. It only counts for an instance on the host.
    """
    if not scheduler_utils.request_is_rebuild(spec_obj):
        return False
    uuid = instance_uuid_of(spec_obj)
    return uuid is not None and (uuid in host_state.instances
                                 or host_state.host in counted_on)


def demand_of(spec_obj: objects.RequestSpec, snapshot: typing.Any,
              default_law: rate_law.RateLaw | None,
              report: aggregate_metadata.Report) -> demand_rules.Demand:
    """Return the :class:`.Demand` of a request.

    :param default_law: None if nothing is known about other instances
    """
    flavor = read(spec_obj, 'flavor')
    flavors = [] if flavor is None else [
        (read(flavor, 'name'), read(flavor, 'extra_specs') or {})]
    groups = read(spec_obj, 'requested_resources')
    return demand_rules.of_instance(
        snapshot, instance_uuid_of(spec_obj), flavors,
        read(spec_obj, 'project_id'), default_law,
        None if groups is None else guarantee.of_resources(
            read(group, 'resources') or {} for group in groups),
        report=lambda name, problem: report(f'flavor {name}', problem))


def attachments_of(
        spec_obj: objects.RequestSpec,
        previous: vswitch_attachments.Attachments | None = None
) -> vswitch_attachments.Attachments:
    """Return the Attachments of a request.

    If it does not name its networks, the previous attachments of the instance
    apply, or else :data:`.UNKNOWN`.
    """
    networks = _requested_networks(spec_obj)
    if networks is None and previous is not None:
        return previous
    pci = read(spec_obj, 'pci_requests')
    if pci is not None:
        functions = sum(
            read(item, 'count') or 0 for item in read(pci, 'requests') or ()
            if item.source == item.NEUTRON_PORT)
    else:
        functions = (previous or vswitch_attachments.UNKNOWN).virtual_functions
    if networks is None:
        return vswitch_attachments.Attachments((None,), (), functions)
    untunnelled = set(previous.others) if previous else set()
    metadata = read(spec_obj, 'network_metadata')
    if metadata is not None and not metadata.tunneled \
            and _AUTO not in networks:
        # Nova has looked up each of the networks.
        return vswitch_attachments.Attachments((), networks, functions)
    networks = [None if item == _AUTO else item for item in networks]
    return vswitch_attachments.Attachments(
        tuple(item for item in networks if item not in untunnelled),
        tuple(item for item in networks if item in untunnelled), functions)


def _requested_networks(spec_obj):
    """Return the network of each interface (None: a port's), or None."""
    requested = read(spec_obj, 'requested_networks')
    if not requested:
        return None
    networks = [read(network, 'network_id') for network in requested]
    if networks == [_NO_NETWORK]:
        return []
    return [network if network is not None or read(request, 'port_id')
            else _AUTO for network, request in zip(networks, requested)]


def attachments_of_instance(
        instance: objects.Instance | None
) -> vswitch_attachments.Attachments | None:
    """Return the Attachments of an instance; no field is loaded for it."""
    cache = instance and read(instance, 'info_cache')
    interfaces = cache and read(cache, 'network_info')
    if not interfaces:
        return None
    networks, untunnelled, functions = [], [], 0
    for interface in interfaces:
        # The network of an incomplete entry is unknown.
        network = interface['network'] or {}
        # True or False as Neutron reports it; old instances have no such key.
        tunnelled = (network.get('meta') or {}).get('tunneled')
        (untunnelled if tunnelled is False else networks).append(
            network.get('id'))
        functions += (
            interface.get('vnic_type') in vswitch_attachments.VNIC_TYPES
        )
    return vswitch_attachments.Attachments(
        tuple(networks), tuple(untunnelled), functions)


def read(obj: typing.Any, name: str) -> typing.Any:
    """Return a field of a versioned object without loading it, or None."""
    if hasattr(obj, 'obj_attr_is_set') and not obj.obj_attr_is_set(name):
        return None
    return getattr(obj, name, None)
