# SPDX-License-Identifier: Apache-2.0
"""Objects of Nova: what a scheduler knows of hosts, and what it is asked."""

import uuid

from nova import objects
from nova.scheduler import host_manager

objects.register_all()


def instance_uuid(number):
    return f'00000000-0000-4000-8000-{number:012d}'


def aggregate(name='agg', **metadata):
    """Return an aggregate; ``profile='x'`` is ``vswitch:profile``."""
    return objects.Aggregate(name=name, metadata={
        f'vswitch:{key}': value for key, value in metadata.items()})


def host_state(host, instances=(), aggregates=()):
    """Return what Nova knows of a host.

    :param instances: numbers of instances
    """
    state = host_manager.HostState(host, host, instance_uuid(0))
    state.instances = {instance_uuid(number): None for number in instances}
    state.aggregates = list(aggregates)
    state.uuid = str(uuid.uuid5(uuid.NAMESPACE_DNS, host))
    return state


def request(number=None, check_type=None, networks=None, **extra_specs):
    """Return the RequestSpec of one instance.

    :param networks: ids of those it asks for, one for each interface
    :param extra_specs: ``kpps=5`` is ``vswitch:kpps``
    """
    hints = {} if check_type is None else {'_nova_check_type': [check_type]}
    spec = objects.RequestSpec(
        scheduler_hints=hints, num_instances=1, flavor=objects.Flavor(
            name='m1.test', extra_specs={
                f'vswitch:{key}': str(value)
                for key, value in extra_specs.items()}))
    if number is not None:
        spec.instance_uuid = instance_uuid(number)
    if networks is not None:
        spec.requested_networks = objects.NetworkRequestList(objects=[
            objects.NetworkRequest(network_id=network)
            for network in networks])
        spec.pci_requests = objects.InstancePCIRequests(requests=[])
    return spec


def flavor(kbps):
    """Return a flavor that states a constant rate."""
    return objects.Flavor(name='m1', extra_specs={
        'vswitch:egress_kbps': str(kbps)})
