# SPDX-License-Identifier: Apache-2.0
"""Asks Placement where instances fit. The only place that knows its API."""

from collections.abc import Sequence
import math
import typing

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack

__all__ = ['CLASSES', 'free_amounts']

#: Forbidden traits since 1.22, all that a summary needs since 1.29.
_VERSION: dict[str, typing.Any] = {'microversion': '1.29'}

#: Resource classes of an instance, in the order of amounts.
CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


def free_amounts(access: http.Access, amounts: Sequence[float],
                 traits: Sequence[str], **sleep: typing.Any
                 ) -> dict[str, tuple[float, ...]]:
    """Return the free resources of the compute nodes where an instance fits.

    :param amounts: of :data:`CLASSES` that the instance needs
    :param traits: required traits such as HW_CPU_X86_AVX, or !X for forbidden
        ones
    :returns: {uuid of a compute node: free amounts of :data:`CLASSES`},
        infinite if the node does not limit a class
    :raises TelemetryError: if Placement does not answer
    """
    resources = ','.join(f'{name}:{amount}' for name, amount
                         in zip(CLASSES, amounts) if amount)
    required = ','.join([*traits, '!COMPUTE_STATUS_DISABLED'])
    with openstack.SdkClient(access, f'placement {access.where()}',
                             'placement', **sleep) as client:
        return client.json(
            'allocation candidates', 'GET', '/allocation_candidates',
            'allocation candidates', _free_amounts,
            params={'resources': resources, 'required': required},
            **_VERSION)[0]


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
