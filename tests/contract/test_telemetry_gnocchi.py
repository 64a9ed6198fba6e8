# SPDX-License-Identifier: Apache-2.0

import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins


class RateTest(telemetry_services.GnocchiContract, testtools.TestCase):

    methods = ('mean', 'rate:mean')
    #: The first increment follows nothing that is known.
    before = 1
    server_options = {}
    options = {}

    def driver(self, traffic):
        server = self.useFixture(telemetry_stand_ins.Gnocchi(
            telemetry_counters.interfaces(traffic, self.before),
            self.methods, **self.server_options))
        return self.make(server.url, traffic, **self.options)


class LastTest(RateTest):

    methods = ('last', 'mean')
    before = 0


class MeanTest(RateTest):

    methods = ('mean',)
    before = 0


class PagesTest(RateTest):
    """Pages shorter than those asked for, and small requests."""

    server_options = {'max_limit': 2}
    options = {'points_per_request': 1}
