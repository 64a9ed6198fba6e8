# SPDX-License-Identifier: Apache-2.0
"""Hosts that are judged and never refused, and what is logged of them."""

import argparse
import time

from tests.functional import base
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.cmd.subcommands import decision as decision_rows
from vswitch_aware_scheduler.cmd.subcommands import explain
from vswitch_aware_scheduler import store


class DecisionsTestCase(base.VSwitchTestCase):
    """What the store has of requests to a real Nova."""

    HOSTS = ('host1', 'host2')

    def test_each_request_is_a_decision_as_the_log_has_it(self):
        flavor = self.of(600)
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
            line, = self.log.lines('fails the virtual switch check',
                                   f'({item["host"]}, ')
            self.assertTrue(line.endswith(item['text']), (line, item))
        line, = self.log.lines('no host passes')
        self.assertTrue(line.endswith(decision_rows.row(refused)['summary']))

    def test_several_at_once_moves_and_forced_hosts(self):
        flavor = self.of(100)
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
        lines = self.log.lines('fails the virtual switch check')
        self.log.clear()
        return lines

    def test_everything_passes_until_an_aggregate_enforces(self):
        flavor = self.of(600)
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
    HOSTS = ('host1', 'host2')

    def test_alternates_to_the_last_of_several_are_no_refusal(self):
        self.describe_hosts(1000, 1000)
        for count, boot in ((1, self.boot_many_refused),
                            (0, self.boot_many)):
            self.log.clear()
            boot(self.of(600), 2 + count)
            self.assertEqual(count, len(self.log.lines('no host passes')))


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
                for flavor in self.admin_api.get_flavors()}},
            time.time())

    def test_explain_agrees_with_the_log_of_the_scheduler(self):
        small, large = (self.on_off_flavor(f'f{rate}', rate, 0.1)
                        for rate in (600, 900))
        self.describe_hosts(1000, 1400, 899)
        for host, count in (('host1', 2), ('host2', 3)):
            self.boot_many(small, count, host=host)
        self.log.clear()
        self.boot_refused(large)
        self.store_fleet()
        answer = explain.run(argparse.Namespace(
            server=None, flavor='f900', of_project=None, networks=[],
            host=None), base.make_conf(), self.store)
        line, = self.log.lines('no host passes')
        self.assertTrue(line.endswith(answer['summary']),
                        (line, answer['summary']))
        for row in answer['hosts']:
            line, = self.log.lines('fails the virtual switch check',
                                   f'({row["host"]}, ')
            self.assertTrue(line.endswith(row['text']), (line, row['text']))
