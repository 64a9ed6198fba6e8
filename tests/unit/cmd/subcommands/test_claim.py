# SPDX-License-Identifier: Apache-2.0

import dataclasses

from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.vswitch import attachments


class ClaimCommandTestCase(command_case.ManageTestCase):

    def test_list_prints_the_newest_word_on_each_instance(self):
        law = traffic_model.TrafficModel.constant(7.0).law
        assumed = store.StoredClaim(
            base.instance_uuid(1), 'one-1', store.ASSUMED, 'h1', None, law,
            True, 60.0, 'ctl:7')
        target = self.make_store()
        target.write_claims([assumed, dataclasses.replace(
            assumed, instance_uuid=base.instance_uuid(2), source='h2',
            attachments=attachments.Attachments(('red', None)))])
        target.write_claims([dataclasses.replace(
            assumed, state=store.FORGOTTEN, host=None)])
        status, output, _ = self.run_command('claim', 'list')
        self.assertEqual(0, status)
        _, first, second = commands.table(output)
        self.assertEqual([base.instance_uuid(2), 'assumed', 'h1', 'h2',
                          'ctl:7'], first[:5])
        self.assertEqual([base.instance_uuid(1), 'forgotten', '-', '-',
                          'ctl:7'], second[:5])
        for host in ('h1', 'h2'):
            self.assertEqual([base.instance_uuid(2)], [
                row['instance'] for row in self.ask(
                    'claim', 'list', '--host', host)['claims']])
        self.assertIn('2 claims', output.splitlines()[-1])
        first, second = self.ask('claim', 'list')['claims']
        self.assertEqual(('h1', 'h2', 7.0), (
            first['host'], first['source'], first['mean']['egress_kbps']))
        self.assertAlmostEqual(60.0, first['seconds_left'], delta=30.0)
        self.assertEqual((['red', None], None),
                         (first['networks'], second['networks']))
