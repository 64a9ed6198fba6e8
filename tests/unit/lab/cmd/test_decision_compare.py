# SPDX-License-Identifier: Apache-2.0

import csv
import os

from tests.fakes import store as fake_store
from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler import store

SLOTS = 120
PERIOD = 300


def chosen(check, probability, limit=.01):
    return {'check': check, 'overload_probability': probability,
            'limit': limit, 'loss_fraction': 0.0, 'utilisation': .5}


class CompareTestCase(command_case.ManageTestCase):
    """Hosts of 100 kbit/s: refused ones are overloaded, admitted are not."""

    def setUp(self):
        super().setUp()
        self.configure_profiles('small: {saturation_kbps: 100}\n',
                                'default_switch_profile = small')
        self.target = self.make_store()
        self.trace = os.path.join(self.directory, 'trace.csv')

    def fill(self, refused, admitted):
        """Put an instance on each host, and write its traffic.

        Before the decision all are overloaded.
        """
        decisions, placements, rows = [], [], []
        checks = (['overload probability'] * refused + [None] * admitted)
        for number, check in enumerate(checks, 1):
            uuid, host = base.instance_uuid(number), f'host{number}'
            placements.append(store.InstanceRecord(uuid, host))
            decisions.append(fake_store.decision(
                number, 0.0, host=host,
                chosen=chosen(check, .5 if check else .001)))
            rows += [(uuid, base.NOW + PERIOD * slot,
                      200 if slot < 0 or check and slot % 2 else 50, 0)
                     for slot in range(-5, SLOTS)]
        self.target.write(placements=placements)
        self.target.write_decisions(decisions)
        with open(self.trace, 'w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(('instance', 'time', 'egress_kbps',
                             'ingress_kbps'))
            writer.writerows(rows)

    def words(self, *more):
        return ('decision', 'compare', '--telemetry', 'file', '--path',
                self.trace, '--end', str(base.NOW + SLOTS * PERIOD), *more)

    def test_refused_hosts_that_were_overloaded_are_told_from_others(self):
        self.fill(12, 14)
        answer = self.ask(*self.words())
        refused, admitted = answer['groups']
        self.assert_holds(refused, hosts=12, overloaded_hosts=12, share=1.0)
        self.assertAlmostEqual(.5, refused['realised'], delta=.01)
        self.assertEqual(.5, refused['predicted'])
        self.assert_holds(admitted, hosts=14, overloaded_hosts=0, realised=0.0)
        self.assertLess(admitted['share_high'], refused['share_low'])
        self.assertIn('refused hosts were overloaded more often than admitted '
                      'ones: 12 of 12 and 0 of 14, confidence above 99 %',
                      answer['remarks'])
        text = self.run_command(*self.words())[1]
        self.assertIn('refused hosts were overloaded more often', text)
        self.assertIn('intervals of 95 %', text)

    def test_a_host_counts_by_its_first_refusal_and_from_then_on(self):
        self.fill(1, 0)
        for number, check, slots in ((7, None, 10), (8, 'peak', 60),
                                     (9, None, 90)):
            self.target.write_decisions([fake_store.decision(
                number, -slots * PERIOD, host='host1',
                chosen=chosen(check, .2, .02))])
        host, = self.ask(*self.words())['hosts']
        self.assertEqual('overload probability', host['check'])
        host, = self.ask(*self.words(
            '--start', str(base.NOW + PERIOD)))['hosts']
        # The slot that the decision is in does not count.
        self.assert_holds(host, group='refused', predicted=.2, limit=.02,
                          slots=59, slots_wanted=50, overloaded_slots=30)

    def test_telemetry_is_that_of_the_modeler_unless_given(self):
        self.fill(1, 0)
        self._configure('telemetry_driver = file',
                        f'telemetry_path = {self.trace}')
        answer = self.ask('decision', 'compare')
        self.assertIn(self.trace, answer['telemetry'])
