# SPDX-License-Identifier: Apache-2.0
"""The public API as a user of the cloud has it, by openstacksdk."""

import collections
import time

from keystoneauth1 import exceptions as ks_exceptions
import openstack

#: Longest wait for an operation, on a machine that runs a dozen services.
TIMEOUT_SECONDS = 180.0

_BLANK = [{'boot_index': 0, 'source_type': 'blank',
           'destination_type': 'local', 'delete_on_termination': True,
           'volume_size': 1}]


def await_fact(seen, what, seconds=TIMEOUT_SECONDS, pause_seconds=.2):
    """Wait until a function returns something true, and return it.

    :param what: what is waited for, or callable() that returns it
    """
    limit = time.monotonic() + seconds
    while not (result := seen()):
        if time.monotonic() > limit:
            raise TimeoutError(f'not within {seconds:g} s: '
                               f'{what() if callable(what) else what}')
        time.sleep(pause_seconds)
    return result


class Client:
    """What scenarios do.

    :param cloud: :class:`~.services.Cloud`
    """

    def __init__(self, cloud):
        self.connection = openstack.connection.Connection(
            auth=dict(cloud.openstack.auth), region_name='RegionOne')
        self.compute = self.connection.compute
        self.compute.default_microversion = '2.90'

    def flavor(self, name, **extra_specs):
        """Return a new flavor with numbers of ours."""
        flavor = self.compute.create_flavor(
            name=name, ram=64, vcpus=1, disk=0, ephemeral=1)
        self.compute.create_flavor_extra_specs(flavor, {
            f'vswitch:{key}': str(value)
            for key, value in extra_specs.items()})
        return flavor

    def image(self):
        """Return a new image of next to nothing."""
        return self.connection.image.create_image(
            name='tiny', data=b'0' * 1024, disk_format='raw',
            container_format='bare', allow_duplicates=True)

    def boot(self, name, flavor, wait=True, **more):
        """Return a server, once it is ACTIVE or ERROR."""
        server = self.compute.create_server(
            name=name, flavor_id=flavor.id, image_id='', networks='none',
            block_device_mapping=_BLANK, **more)
        return self.settled(server) if wait else server

    def get(self, server):
        try:
            return self.compute.get_server(server.id)
        except ks_exceptions.ConnectFailure:
            # The API may close a connection that was idle just then.
            return self.compute.get_server(server.id)

    def settled(self, server, *states):
        """Return a server once it has one of the states, and no task.

        :param states: those wanted; ERROR always ends the wait
        """
        ends = set(states or ('ACTIVE',)) | {'ERROR'}
        limit = time.monotonic() + TIMEOUT_SECONDS
        while True:
            server = self.get(server)
            if server.status in ends and not server.task_state:
                return server
            if time.monotonic() > limit:
                raise TimeoutError(
                    f'server {server.name}: {server.status}, task '
                    f'{server.task_state}; expected one of {sorted(ends)} '
                    f'within {TIMEOUT_SECONDS:g} s')
            time.sleep(.3)

    def all_settled(self, count):
        """Return all servers, once so many are ACTIVE or ERROR."""
        def settled():
            servers = self.servers()
            # Nova states the fault of a server after its status.
            return len(servers) == count and all(
                server.status == 'ACTIVE'
                or server.status == 'ERROR' and server.fault
                for server in servers) and servers

        return await_fact(settled, lambda: collections.Counter(
            server.status for server in self.servers()), pause_seconds=1.0)

    def servers(self):
        return list(self.compute.servers(all_projects=True))

    def delete_all(self):
        for server in self.servers():
            self.compute.delete_server(server, ignore_missing=True)
        limit = time.monotonic() + TIMEOUT_SECONDS
        while servers := self.servers():
            if time.monotonic() > limit:
                raise TimeoutError('deleted and still there: ' + ', '.join(
                    f'{server.name} on {server.compute_host} is '
                    f'{server.status}, task {server.task_state}'
                    for server in servers))
            time.sleep(.5)

    def leave_aggregate(self, name, host):
        aggregate, = [item for item in self.compute.aggregates()
                      if item.name == name]
        self.compute.remove_host_from_aggregate(aggregate, host)

    def set_aggregate(self, name, hosts, **metadata):
        """Make an aggregate of hosts with metadata of ours, or change it."""
        matching = [item for item in self.compute.aggregates()
                    if item.name == name]
        aggregate = matching[0] if matching else self.compute.create_aggregate(
            name=name)
        self.compute.set_aggregate_metadata(aggregate, {
            f'vswitch:{key}': None if value is None else str(value)
            for key, value in metadata.items()})
        for host in set(hosts) - set(aggregate.hosts or ()):
            self.compute.add_host_to_aggregate(aggregate, host)
        return aggregate
