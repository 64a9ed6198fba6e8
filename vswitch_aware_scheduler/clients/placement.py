# SPDX-License-Identifier: Apache-2.0
"""Asks Placement what hosts have. The only place that knows its API."""

import dataclasses
import math
import typing

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack

__all__ = ['CLASSES', 'Shape', 'free_amounts', 'used_amounts']

#: Forbidden traits since 1.22, all that a summary needs since 1.29.
_VERSION = {'microversion': '1.29'}

#: Summaries without traits, and with the requested class only.
_SHORT = {'microversion': '1.16'}

#: Resource classes of an instance, in the order of amounts.
CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@dataclasses.dataclass(frozen=True)
class Shape:
    """The resources and traits of an instance in Placement.

    :ivar traits: sorted tuple of required traits such as HW_CPU_X86_AVX, or !X
        for forbidden ones
    """

    vcpus: int
    memory_mib: int
    disk_gib: int
    traits: tuple[str, ...] = ()

    @property
    def amounts(self) -> tuple[int, int, int]:
        """(VCPU, MEMORY_MB, DISK_GB)."""
        return self.vcpus, self.memory_mib, self.disk_gib


def free_amounts(access: http.Access, shape: Shape,
                 **sleep: typing.Any) -> dict[str, tuple[float, ...]]:
    """Return the free resources of the compute nodes where an instance fits.

    :returns: {uuid of a compute node: free amounts of :data:`CLASSES`},
        infinite if the node does not limit a class
    :raises TelemetryError: if Placement does not answer
    """
    resources = ','.join(f'{name}:{amount}' for name, amount
                         in zip(CLASSES, shape.amounts) if amount)
    required = ','.join([*shape.traits, '!COMPUTE_STATUS_DISABLED'])
    return _candidates(access, _free_amounts, _VERSION, sleep,
                       resources=resources, required=required)


def used_amounts(access: http.Access, name: str,
                 **sleep: typing.Any) -> dict[str, tuple[int, int]]:
    """Return {uuid of a compute node: (capacity, used)} of a resource class.

    Compute nodes on which nothing of it is free are absent.

    :param name: one of :data:`CLASSES`
    :raises TelemetryError: if Placement does not answer
    """
    return _candidates(access, lambda answer: {
        uuid: (summary['resources'][name]['capacity'],
               summary['resources'][name]['used'])
        for uuid, summary in answer['provider_summaries'].items()
        if name in summary['resources']}, _SHORT, sleep,
        resources=f'{name}:1')


def _candidates(access, read, version, sleep, **query):
    with openstack.SdkClient(access, f'placement {access.where()}',
                             'placement', **sleep) as client:
        return client.json(
            'allocation candidates', 'GET', '/allocation_candidates',
            'allocation candidates', read, params=query, **version)[0]


def _free_amounts(answer):
    candidates = {uuid for request in answer['allocation_requests']
                  for uuid in request['allocations']}
    return {uuid: tuple(
        resources[name]['capacity'] - resources[name]['used']
        if name in resources else math.inf for name in CLASSES)
        for uuid, resources in (
            (uuid, summary['resources'])
            for uuid, summary in answer['provider_summaries'].items())
        if uuid in candidates}
