# SPDX-License-Identifier: Apache-2.0
"""From measured traffic to a host that a real Nova refuses for its debt."""

import argparse
import dataclasses
import math
import os
import time

# Before the rest of nova, as in tests.functional.base.
import nova.tests.functional  # noqa: F401

import fixtures

from tests.fakes import keystone as fake_keystone
from tests.functional import base
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.cmd.subcommands import explain
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.modeler import cloud_facts
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler.modeler import passes
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store

P = 300

#: What a day earns with E = .05.
DAY = .6 * .05 * 86400


class BudgetsTestCase(base.VSwitchTestCase):
    """Two instances on host1, which are seldom active, and then together."""

    HOSTS = ('host1', 'host2')

    def setUp(self):
        super().setUp()
        # Nova's fixture knows the administrator by this name.
        self.useFixture(fake_keystone.Keystone('admin'))
        self.telemetry = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'traffic.csv')
        access = {'url': self.admin_api.base_url, 'retries': 0,
                  'auth': {'auth_type': 'fixture'}}
        self.conf = base.make_conf(
            store_url=self.store_url, telemetry_driver='file',
            telemetry_path=self.telemetry)
        self.set_up = dataclasses.replace(
            wiring.set_up(self.conf),
            inventory=instance_sync.make_source(access=access),
            fleet=cloud_facts.CloudFacts(
                http.Access(**access),
                lambda: wiring.make_policies(self.conf[opts.GROUP])))
        for host in self.HOSTS:
            self.describe_host(host, saturation_kbps=100,
                               overload_probability=.05)
        self.tiny = self.flavor('tiny', egress_kbps=1)
        self.servers = [self.boot(self.tiny, 'host1', host='host1')
                        for _ in range(2)]
        # After they were launched.
        self.begin = P * math.ceil(time.time() / P) + P

    def run_modeler(self, period, together):
        """Make a pass when so many periods are over.

        :param together: periods in which both send 60 kbit/s
        """
        with open(self.telemetry, 'w') as file:
            file.write('instance,time,egress_kbps,ingress_kbps\n')
            for server in self.servers:
                # A fortnight, so that all instants were sampled.
                for number in range(-4032, period):
                    file.write(
                        f'{server["id"]},{self.begin + P * number},'
                        f'{60 if number in together else 0.1},0\n')
        # The inventory is known up to two minutes ago.
        self.clock.ahead = self.begin + P * period + 150 - time.time()
        problems = {}
        passes.Pass(self.set_up, self.clock, time.monotonic).run(
            problems.__setitem__)
        self.assertEqual({None}, set(problems.values()))
        self.plugin.refresh()

    def budget(self):
        return self.store.error_budgets()[store.HOST, 'host1']

    def test_a_host_in_debt_takes_no_new_instance(self):
        self.run_modeler(0, ())
        self.assertEqual(DAY, self.budget().balance)
        # Avoidable overload in ten of 40 periods.
        together = range(2, 40, 4)
        self.run_modeler(40, together)
        budget = self.budget()
        self.assertEqual((40 * P, 10 * P), (
            budget.measured_seconds, budget.overload_seconds))
        self.assertAlmostEqual(DAY + .03 * 40 * P - 10 * P, budget.balance)
        self.assertLess(budget.balance, 0)

        self.log.clear()
        server = self.boot(self.tiny, 'host2')
        refusals = self.log.lines('its error budget is overspent')
        refused, = [decision for decision in self.decisions()
                    if decision.instance_uuid == server['id']]
        self.assertEqual({'error budget': 1}, refused.refused)
        self.assertTrue(refusals[0].endswith(refused.nearest[0]['text']))
        answer = explain.run(argparse.Namespace(
            server=server['id'], flavor='tiny', of_project=None, networks=[],
            host='host1'), self.conf, self.store)
        row, = [host for host in answer['hosts'] if host['host'] == 'host1']
        self.assertEqual(('error budget', refused.nearest[0]['text']),
                         (row['check'], row['text']))

        # Without another host, the request is not refused.
        self.boot(self.tiny, 'host1', host='host1')
