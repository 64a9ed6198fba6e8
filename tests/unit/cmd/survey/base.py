# SPDX-License-Identifier: Apache-2.0
"""A small cloud with two days of traffic in Prometheus."""

import os
import time
import types
from unittest import mock

import numpy as np

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import nova_api
from tests.fakes import store as fake_store
from tests.fakes import whole_cloud
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.cmd import manage

HOUR, PERIOD = 3600, 300

#: Of each host, kbit/s.
CAPACITY = 1000


class SurveyTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.enterContext(whole_cloud.WholeCloud())
        self.interfaces = []
        self.prometheus = self.enterContext(stand_ins.Prometheus([]))
        # A survey of a large cloud waits between requests.
        self.enterContext(mock.patch.object(
            http.Client, '_pace', lambda client: None))
        # Nothing of this machine's user counts.
        self.environment = {**self.cloud.environment(),
                            'HOME': self.directory}
        self.now = time.time() // PERIOD * PERIOD

    def host(self, name, cores=(16, 4), memory=(65536, 8192), **metadata):
        self.cloud.host(name, **{
            'profile': 'ovs-vxlan', 'saturation_kbps': str(CAPACITY),
            'vm_peak_kbps': str(CAPACITY), **metadata})
        self.cloud.amounts[name] = {
            name: amounts for name, amounts in (
                ('VCPU', cores), ('MEMORY_MB', memory)) if amounts}

    def instance(self, number, host, kbps=None, hours=-1000.0, until=0.0,
                 flavor='small'):
        """Add an instance, and its constant traffic.

        :param hours: of its creation, from now on
        :param until: of its end, from now on; 0: it exists
        """
        at = self.now + hours * HOUR
        uuid = self.cloud.nova.put(number, host, flavor)
        server = self.cloud.nova.servers[uuid]
        server.update({
            'name': f'vm {number}', 'created': nova_api.iso(at),
            'updated': nova_api.iso(at), 'OS-EXT-STS:power_state': 1,
            'flavor': {'original_name': flavor, 'vcpus': 2, 'ram': 2048}})
        if until:
            end = nova_api.iso(self.now + until * HOUR)
            server.update({'status': 'DELETED', 'updated': end,
                           'OS-SRV-USG:terminated_at': end})
        if kbps is not None:
            self.traffic(uuid, kbps, max(hours, -50), until)
        return uuid

    def traffic(self, uuid, kbps, hours=-50.0, until=0.0):
        times = np.arange(self.now + hours * HOUR, self.now + until * HOUR
                          + 1, PERIOD)
        counters = np.zeros((len(times), 4))
        counters[:, 0] = kbps * 125 * (times - times[0])
        self.interfaces.append(types.SimpleNamespace(
            instance_uuid=uuid, times=times, counters=counters,
            resource=f'instance-{uuid}-tap0', tap='tap0'))
        self.prometheus.series += stand_ins.ceilometer_series(
            self.interfaces[-1:])

    def move(self, number, source, destination, hours, **more):
        self.cloud.move(fake_store.instance_uuid(number), source, destination,
                        self.now + hours * HOUR - nova_api.NOW, **more)

    def survey(self, *words, prometheus=True, **environment):
        """Return (status, stdout, stderr) of the command.

        :param prometheus: whether the command gets the URL of Prometheus
        """
        with mock.patch.dict(os.environ, {
                **self.environment, **environment}, clear=True):
            return commands.run(manage.main, [
                'survey', '--days', '2', *(
                    ['--prometheus', self.prometheus.url]
                    if prometheus and '--prometheus' not in words else []),
                *words])
