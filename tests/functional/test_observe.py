# SPDX-License-Identifier: Apache-2.0
"""Hosts that are judged and never refused, and what is logged of them."""

import argparse
import logging
import time

from oslo_config import cfg

from tests.fakes import prometheus as fake_prometheus
from tests.functional import base
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.cmd.subcommands import decision as decision_rows
from vswitch_aware_scheduler.cmd.subcommands import explain
from vswitch_aware_scheduler.conf import opts as conf_opts
from vswitch_aware_scheduler import store


class DecisionsTestCase(base.VSwitchTestCase):
    """What the store has of requests to a real Nova."""

    HOSTS = ('host1', 'host2')

    def test_each_request_is_a_decision_as_the_log_has_it(self):
        flavor = self.flavor('f600', egress_kbps=600)
        self.describe_hosts(1000, 10)
        server = self.boot(flavor, 'host1')
        self.log.clear()
        self.boot_refused(flavor)
        placed, refused = self.decisions()
        self.assertEqual(
            (server['id'], 'f600', server['tenant_id'], store.PLACED,
             'host1', 2, 1, {'peak': 1}),
            (placed.instance_uuid, placed.flavor, placed.project,
             placed.outcome, placed.host, placed.hosts, placed.admitted,
             placed.refused))
        action, = self.admin_api.get_instance_actions(server['id'])
        self.assertEqual(action['request_id'], placed.request_id)
        self.assertEqual((store.NO_HOST, None, 0, {
            'overload probability': 1, 'peak': 1}), (
                refused.outcome, refused.host, refused.admitted,
                refused.refused))
        for item in refused.nearest:
            line, = [text for text in self.log.messages()
                     if 'fails the virtual switch check' in text
                     and f'({item["host"]}, ' in text]
            self.assertTrue(line.endswith(item['text']), (line, item))
        line, = [text for text in self.log.messages(logging.INFO)
                 if 'no host passes' in text]
        self.assertTrue(line.endswith(decision_rows.row(refused)['summary']))

    def test_several_at_once_moves_and_forced_hosts(self):
        flavor = self.flavor('f100', egress_kbps=100)
        self.describe_hosts(1000, 1000)
        servers = self.boot_many(flavor, 3)
        decisions = self.decisions()
        self.assertEqual(
            {server['id']: self.host_of(server) for server in servers},
            {decision.instance_uuid: decision.host for decision in decisions})
        self.assertEqual(
            1, len({decision.request_id for decision in decisions}))
        before = self.host_of(servers[0])
        self.confirm(self.migrate(servers[0]))
        decisions = self.decisions()
        self.assertEqual(4, len(decisions))
        self.assertEqual((servers[0]['id'], {'host1', 'host2'} - {before}), (
            decisions[3].instance_uuid, {decisions[3].host}))
        # No filter is asked about a host that is forced.
        self.boot(flavor, 'host2', az='nova:host2')
        self.assertEqual(4, len(self.decisions()))


class ObserveTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    OPTIONS = {'enforcement': 'observe', 'unknown_host_policy': 'reject'}

    def refusals(self):
        """Return the debug lines of what would have been refused."""
        lines = [text for text in self.log.messages()
                 if 'fails the virtual switch check' in text]
        self.log.clear()
        return lines

    def test_everything_passes_until_an_aggregate_enforces(self):
        flavor = self.flavor('f600', egress_kbps=600)
        # No profile at all.
        self.boot(flavor, 'host2', host='host2')
        refusal, = self.refusals()
        self.assertIn('no switch profile', refusal)
        self.assertIn('only observed', refusal)
        # Full hosts.
        self.describe_hosts(1000, 1000)
        servers = self.boot_many(flavor, 4)
        self.assertEqual({'host1', 'host2'}, {*self.hosts_of(servers)})
        decisions = self.decisions()
        self.assertEqual(5, len(decisions))
        for decision in decisions:
            # The first one found no profile, which is one check.
            refused = decision.hosts - decision.admitted
            self.assertEqual(refused, decision.observed)
            self.assertEqual(refused, sum(decision.refused.values()))
        self.assertTrue(any(decision.chosen['check'] == 'overload probability'
                            for decision in decisions))
        self.assertTrue(any('overload probability' in text
                            for text in self.refusals()))
        # One aggregate is enforced: nothing fits there, and host2 takes all.
        self.describe_host('host1', enforcement='enforce')
        self.boot_refused(flavor, host='host1')
        for _ in range(2):
            self.boot(flavor, 'host2')
        # An aggregate more that says observe makes it observed.
        trial = self.aggregate('trial', 'host1', enforcement='observe')
        self.boot(flavor, 'host1', host='host1')
        self.set_metadata(trial, enforcement='enforce')
        self.boot_refused(flavor, host='host1')


class NoHostTestCase(base.VSwitchTestCase):

    def test_a_request_that_leaves_no_host_is_one_line_of_the_log(self):
        flavor = self.flavor('f600', egress_kbps=600)
        self.describe_hosts(1000, 1000, 599)
        self.boot(flavor, host='host1')
        self.boot(flavor, host='host2')
        self.log.clear()
        self.boot_refused(flavor)
        line, = [text for text in self.log.messages(logging.INFO)
                 if 'no host passes' in text]
        self.assertIn('3 hosts: 2 overload probability, 1 peak; closest host',
                      line)
        self.assertIn('(1 > 0.01)', line)
        # Of several at once, alternates to the last one are no refusal.
        self.log.clear()
        self.describe_host('host3', saturation_kbps=1200)
        self.boot_many(flavor, 2)
        self.assertEqual([], [text for text in self.log.messages(
            logging.INFO) if 'no host passes' in text])
        self.log.clear()
        self.boot_many_refused(flavor, 2)
        self.assertEqual(1, len([text for text in self.log.messages(
            logging.INFO) if 'no host passes' in text]))


class ExplainTestCase(base.VSwitchTestCase):
    """The command, by the store, against the log of the scheduler."""

    def store_fleet(self):
        """Write to the store what a modeler would read from this Nova."""
        servers = self.admin_api.get_servers(detail=True)
        self.store.write(
            placements=[store.InstanceRecord(
                server['id'], server['OS-EXT-SRV-ATTR:host'],
                server['flavor']['original_name'], server['tenant_id'])
                for server in servers],
            inventory=store.InventoryState('nova', time.time(), time.time()))
        self.store.write_fleet({
            'host': {host: {**policy_in_force.pack(policy), 'origins': {}}
                     for host, policy in self.plugin._policies.items()},
            'uplink': {}, 'aggregate': {}, 'flavor': {
                flavor['name']: flavor['extra_specs']
                for flavor in self.flavors}},
            time.time())

    def test_explain_agrees_with_the_log_of_the_scheduler(self):
        self.flavors = [
            {'name': name, 'extra_specs': {
                'vswitch:egress_kbps': rate, 'vswitch:on_seconds': '100',
                'vswitch:off_seconds': '900'}}
            for name, rate in (('f600', '600'), ('f900', '900'))]
        small, large = (self.flavor(flavor['name'], **{
            key.removeprefix('vswitch:'): value
            for key, value in flavor['extra_specs'].items()})
            for flavor in self.flavors)
        self.describe_hosts(1000, 1400, 899)
        for _ in range(2):
            self.boot(small, 'host1', host='host1')
            self.boot(small, 'host2', host='host2')
        self.boot(small, 'host2', host='host2')
        self.log.clear()
        self.boot_refused(large)
        lines = self.log.messages()
        self.store_fleet()
        answer = explain.run(argparse.Namespace(
            server=None, flavor='f900', of_project=None, networks=[],
            host=None), self.options(), self.store)
        line, = [text for text in lines if 'no host passes' in text]
        self.assertTrue(line.endswith(answer['summary']),
                        (line, answer['summary']))
        for row in answer['hosts']:
            line, = [text for text in lines
                     if 'fails the virtual switch check' in text
                     and f'({row["host"]}, ' in text]
            self.assertTrue(line.endswith(row['text']), (line, row['text']))

    def options(self):
        conf = cfg.ConfigOpts()
        conf_opts.register_opts(conf)
        conf([], default_config_files=[])
        return conf


class MetricsTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def setUp(self):
        self.port = fake_prometheus.free_ports(1)
        self.OPTIONS = {'scheduler_metrics_port': self.port,
                        'scheduler_metrics_ports': 1}
        super().setUp()

    def test_prometheus_gets_the_numbers_of_the_worker(self):
        flavor = self.flavor('f600', egress_kbps=600)
        self.describe_hosts(1000, 10)
        self.boot(flavor, 'host1')
        self.boot_refused(flavor)
        metrics = fake_prometheus.scraped(self.port)
        self.assertEqual(
            (2, 1, 4, 1, 2, 0, 2), tuple(metrics[key] for key in (
                ('requests_judged_total',), ('requests_without_host_total',),
                ('hosts_judged_total',),
                ('hosts_refused_total', 'overload probability'),
                ('hosts_refused_total', 'peak'), ('degraded',), ('hosts',))))
        self.assertLess(metrics['record_age_seconds',], base.TIMEOUT_SECONDS)
