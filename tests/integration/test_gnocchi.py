# SPDX-License-Identifier: Apache-2.0
"""The contract of a driver, with a real Gnocchi."""

import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.integration import base
from tests.integration import feeds
from tests.integration import servers
from vswitch_aware_scheduler.telemetry import gnocchi


class GnocchiTest(base.WithServer, telemetry_services.GnocchiContract,
                  testtools.TestCase):

    methods = ('mean', 'rate:mean')
    before = 1

    @classmethod
    def make_server(cls):
        # Pages shorter than those that are asked for.
        return servers.Gnocchi(max_limit=4)

    @classmethod
    def feed(cls, server):
        feeds.GnocchiFeed(server, cls.methods).publish(
            telemetry_counters.interfaces(telemetry_driver.sample_traffic(),
                                          cls.before))

    def make(self, url, traffic, **options):
        access = telemetry_services.access(url)
        if url.endswith(':1'):
            return super().make(url, traffic, **options)
        access.pop('url')
        access['auth'] = {'auth_type': 'gnocchi-basic', 'user': 'admin',
                          'endpoint': url}
        return gnocchi.GnocchiDriver(access, clock=self.clock(traffic),
                                     **options)

    def driver(self, traffic):
        return self.make(self.server.url, traffic)


class GnocchiLevelTest(GnocchiTest):

    methods = ('mean', 'last')
    before = 0

    def driver(self, traffic):
        return self.make(self.server.url, traffic, points_per_request=1)
