# SPDX-License-Identifier: Apache-2.0

import dataclasses

from tests.fakes import store as fake_store
from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.vswitch import attachments


class ClaimCommandTestCase(command_case.ManageTestCase):

    def test_list_prints_the_latest_claim_of_each_instance(self):
        law = traffic_model.TrafficModel.constant(7.0).law
        claim = store.StoredClaim(
            base.instance_uuid(1), 'one-1', 'h1', None, law, 'flavor',
            'ctl:7', guaranteed=(5.0, 0.0, 0.0))
        target = self.make_store()
        fake_store.write_claims(target, claim, dataclasses.replace(
            claim, instance_uuid=base.instance_uuid(2), source='h2',
            attachments=attachments.Attachments(('red', None)),
            age_seconds=540.0, waited_seconds=.0123, conflicts=2,
            missed=True))
        fake_store.write_claims(target, withdrawn=[claim])
        output = self.text('claim', 'list')
        _, first, second = commands.table(output)
        self.assertEqual([base.instance_uuid(2), '-', 'claimed', 'h1', 'h2',
                          'ctl:7'], first[:6])
        self.assertEqual(['12', '2', 'yes'], first[7:10])
        self.assertEqual([base.instance_uuid(1), '-', 'withdrawn', 'h1', '-',
                          'ctl:7'], second[:6])
        self.assertEqual(['0', '0', 'no'], second[7:10])
        for host, expected in (('h1', 2), ('h2', 1)):
            self.assertEqual(expected, len(self.ask(
                'claim', 'list', '--host', host)['claims']))
        self.assertIn('2 claims', output.splitlines()[-1])
        first, second = self.ask('claim', 'list')['claims']
        self.assertEqual((7.0, 'flavor', .0123), (
            first['mean']['egress_kbps'], first['rule'],
            first['waited_seconds']))
        self.assertAlmostEqual(60.0, first['seconds_left'], delta=30.0)
        self.assertEqual((['red', None], None),
                         (first['networks'], second['networks']))
        self.assertEqual(5.0, second['guaranteed']['egress_kbps'])
