# SPDX-License-Identifier: Apache-2.0

import re

import numpy

from tests.fakes import store as fake_store
from tests.unit.cmd import commands
from tests.unit.cmd import fleet_case
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import profile

packed = fleet_case.packed

#: On a tenth of the time.
BUSY = traffic_model.TrafficModel.on_off(
    egress_kbps=600.0, on_seconds=100.0, off_seconds=900.0)

_SPECS = {'vswitch:egress_kbps': '600', 'vswitch:on_seconds': '100',
          'vswitch:off_seconds': '900'}


def switch(saturation_kbps=1000.0, **more):
    return profile.SwitchProfile('own', saturation_kbps=saturation_kbps,
                                 **more)


class ExplainTestCase(fleet_case.FleetTestCase):

    def facts(self, flavors=None, **more):
        self.modeled(flavors=flavors or {'busy': _SPECS, 'plain': {}}, **more)

    def explain(self, *words):
        """Return (answer, {host: row})."""
        answer = self.ask('explain', *words)
        return answer, {row['host']: row for row in answer['hosts']}

    def text(self, *words):
        return super().text('explain', *words)

    def checks(self, row):
        return {check['check']: check for check in row['checks']}


class HostsTestCase(ExplainTestCase):

    def setUp(self):
        super().setUp()
        self.put({'full': (1, 2), 'free': (3,)},
                 dict.fromkeys((1, 2, 3), BUSY))
        self.facts(
            full=packed(switch()), free=packed(switch(10_000.0)),
            peak=packed(switch(vm_peak_kbps=500.0)),
            unknown=packed(None, pass_unknown=False))

    def test_hosts_are_judged_as_theory_says(self):
        answer, rows = self.explain('--flavor', 'busy')
        self.assertEqual(('flavor', 600.0), (
            answer['rule'], answer['peak']['egress_kbps']))
        self.assertAlmostEqual(60.0, answer['mean']['egress_kbps'], 9)
        self.assertEqual(
            '4 hosts: 1 overload probability, 1 peak, 1 no profile; closest '
            'full (0.028 > 0.01)', answer['summary'])
        self.assertEqual(4, answer['admitted']
                         + sum(answer['refused'].values()))
        # Two of two, and two or three of three, are on at once.
        for key, value in (
                ('overload_before', .01), ('overload_after', .028),
                ('overload_limit', .01), ('utilisation_before', .12),
                ('utilisation_after', .18), ('limit', .01), ('value', .028),
                ('rules', {'model': 2}),
                ('origins', {'profile': 'aggregate rack'})):
            self.assertAlmostEqual(value, rows['full'][key], 9, msg=key)
        self.assertEqual(
            {'full': 'overload probability', 'peak': 'peak',
             'unknown': 'no profile', 'free': None},
            {host: row['check'] for host, row in rows.items()})
        self.assertTrue(rows['free']['admitted'])
        self.assertEqual(['free', 'full', 'peak', 'unknown'],
                         [row['host'] for row in answer['hosts']])

    def test_instances_that_are_busy_together_are_named(self):
        together = traffic_model.TrafficModel(
            [[0.0, 0, 0], [600.0, 0, 0]], [[0, 1], [1, 0]], [300.0, 100.0],
            (numpy.arange(504) < 126).astype(int))
        for model, differs in ((together, True), (BUSY, False)):
            self.put({'full': (1, 2)}, dict.fromkeys((1, 2), model))
            _, rows = self.explain('--flavor', 'plain', '--host', 'full')
            row, alone = rows['full'], rows['full']['if_independent']
            # Both at once: a quarter, or a tenth, of the time, squared;
            # a quarter if they are busy together.
            self.assertAlmostEqual(.0625 if differs else .01,
                                   alone['before'], 9)
            text = self.text('--flavor', 'plain', '--host', 'full')
            self.assertEqual(differs, row['overload_before'] > .1)
            self.assertEqual(differs, 'before 0.0625, after' in text)
        # A host that is not asked for and not near has no such numbers.
        self.assertIsNone(self.explain('--flavor', 'plain')[1]['unknown'][
            'if_independent'])

    def test_each_check_of_a_host_has_its_numbers(self):
        checks = self.checks(self.explain('--flavor', 'busy')[1]['full'])
        self.assertEqual({'profile', 'peak', 'average',
                          'overload probability'}, checks.keys())
        self.assertEqual((600.0, 1000.0, True), tuple(
            checks['peak'][key] for key in ('adds', 'limit', 'passes')))
        for key, value in (('before', 120.0), ('adds', 60.0),
                           ('after', 180.0), ('limit', 1000.0)):
            self.assertAlmostEqual(value, checks['average'][key], 9)
        # It is told, and does not decide.
        self.assertIsNone(checks['average']['passes'])
        self.assertIs(False, checks['overload probability']['passes'])

    def test_a_check_behind_the_one_that_refuses_is_not_said_to_pass(self):
        for most, limit, passes in ((500.0, .01, False), (500.0, .1, True),
                                    (500.0, 0.0, None), (None, .1, True),
                                    (None, .01, False)):
            self.facts(full=packed(switch(vm_peak_kbps=most),
                                   overload_probability=limit))
            _, rows = self.explain('--flavor', 'busy', '--host', 'full')
            checks = self.checks(rows['full'])
            self.assertEqual(most is None, checks['peak']['passes'])
            self.assertAlmostEqual(
                .028, checks['overload probability']['after'], 9)
            self.assertIs(passes, checks['overload probability']['passes'])

    def test_what_would_make_it_fit_does(self):
        _, rows = self.explain('--flavor', 'busy')
        texts = rows['full']['fits_if']
        # Beside one that is on it fits up to 400 of its 600 kbit/s; two that
        # are on overload the host as often as the limit allows.
        self.assertIn('overload_probability is at least 0.028', texts)
        self.assertIn('it demands at most 66.6 % of its rates', texts)
        self.assertIn('the 1 largest of its 2 instances leave', texts)
        self.assertIn('its peak is at most 0.5 Mbit/s, or one instance may '
                      'have 0.6 Mbit/s on the host', rows['peak']['fits_if'])
        self.assertIn('the host has a switch profile',
                      rows['unknown']['fits_if'][0])
        self.assertEqual([], rows['free']['fits_if'])

    def test_a_person_reads_the_words_of_the_log(self):
        text = self.text('--flavor', 'busy')
        for part in ('closest full (0.028 > 0.01)', 'It would fit on full if',
                     'flavor'):
            self.assertIn(part, text)
        header, *rows = commands.table(text)
        self.assertEqual(['full', 'own', '2', '12.0%', '18.0%', '0.01',
                          '0.028', '0.01', 'overload probability', '0.028',
                          '0.01'], rows[1])
        # A rate has its unit.
        self.assertIn(['0.6 Mbit/s', '0.5 Mbit/s'],
                      [row[-2:] for row in rows])
        text = self.text('--flavor', 'busy', '--host', 'full')
        for part in ('with it the overload probability would be 0.028, above '
                     'the limit of 0.01 (profile own, 2 instances',
                     'profile aggregate rack', 'model 2',
                     'It would fit on full if'):
            self.assertIn(part, text)
        self.assertEqual(2, len(commands.table(text)))

    def test_an_instance_is_not_counted_beside_itself(self):
        _, rows = self.explain('--server', base.instance_uuid(2))
        for key, value in (('is_there', True), ('admitted', True),
                           ('overload_before', 0.0), ('overload_after', .01)):
            self.assertAlmostEqual(value, rows['full'][key], 9, msg=key)
        self.assertFalse(rows['free']['is_there'])
        # A name will do.
        self.assertEqual(base.instance_uuid(2), self.explain(
            '--server', 'vm2')[0]['instance_uuid'])

    def test_a_refused_instance_is_described_by_its_decision(self):
        self.store.write_decisions([fake_store.decision(
            9, flavor='busy', project='q')])
        answer, rows = self.explain('--server', base.instance_uuid(9))
        self.assert_holds(answer, flavor='busy', project='q', rule='flavor',
                          remarks=[])
        self.assertAlmostEqual(.028, rows['full']['overload_after'], 9)

    def test_an_unknown_instance_counts_by_the_default(self):
        self._configure('default_egress_kbps = 600',
                        'default_ingress_kbps = 0',
                        'default_on_seconds = 100',
                        'default_off_seconds = 900')
        answer, rows = self.explain('--server', base.instance_uuid(9))
        self.assertEqual('default', answer['rule'])
        self.assertAlmostEqual(.028, rows['full']['overload_after'], 9)
        remark, = answer['remarks']
        self.assertIn(base.instance_uuid(9), remark)

    def test_what_is_wrong_with_a_flavor_is_named(self):
        for flavor, specs, rule, message in (
                ('nine', None, 'default', "'nine'"),
                ('bad', {'vswitch:egress_kbps': '-1'}, 'default',
                 "'-1'.*ignored"),
                ('bad', {**_SPECS, 'vswitch:ingres_kbps': '1'}, 'flavor',
                 "^flavor bad: flavor extra spec vswitch:ingres_kbps: '1'; "
                 '.*nearest name: vswitch:ingress_kbps')):
            self.facts(flavors={'bad': specs or {}})
            answer, _ = self.explain('--flavor', flavor)
            self.assertEqual(rule, answer['rule'])
            self.assertTrue(any(re.search(message, text)
                                for text in answer['remarks']), message)

    def test_either_a_server_or_a_flavor(self):
        self.assert_fails('one of the arguments', 'explain', status=2)
        self.assert_fails('not allowed', 'explain', '--server', 'a',
                          '--flavor', 'b', status=2)


class PoliciesTestCase(ExplainTestCase):

    def test_an_observed_host_passes_and_a_margin_raises_its_limit(self):
        self.put({'h': (1, 2)}, dict.fromkeys((1, 2), BUSY))
        self.facts(h=packed(switch(), enforced=False, prediction_margin=.5))
        answer, rows = self.explain('--flavor', 'busy')
        for key, value in (
                ('admitted', False), ('passes', True), ('enforced', False),
                ('value', .028), ('limit', .02), ('overload_limit', .02),
                ('asked_limit', .01), ('prediction_margin', .5)):
            self.assertAlmostEqual(value, rows['h'][key], 9)
        self.assertEqual({'overload probability': 1}, answer['refused'])
        self.assertIn('overload_probability is at least 0.014',
                      rows['h']['fits_if'])

    def test_averages_decide_where_the_policy_is_average(self):
        self.put({'h': (1,)}, {1: traffic_model.TrafficModel.constant(700.0)})
        self.facts(h=packed(switch(), policy=admission.AVERAGE),
                   flavors={'steady': {'vswitch:egress_kbps': '400'}})
        _, rows = self.explain('--flavor', 'steady')
        self.assertEqual(('average', 1100.0, 1000.0), tuple(
            rows['h'][key] for key in ('check', 'value', 'limit')))
        self.assertIsNone(rows['h']['overload_limit'])
        self.assertEqual(
            {'profile': True, 'peak': True, 'average': False},
            {name: check['passes']
             for name, check in self.checks(rows['h']).items()})
        texts = rows['h']['fits_if']
        # 300 of 400 kbit/s, and nobody else.
        self.assertIn('the capacity is at least 1.1 Mbit/s', texts)
        self.assertIn('it demands at most 75.0 % of its rates', texts)
        self.assertIn('the 1 largest of its 1 instances leave', texts)

    def test_tunnels_are_counted_with_the_networks_that_are_given(self):
        self.store.write(placements=[store.InstanceRecord(
            base.instance_uuid(number), 'h', 'plain', 'p',
            attachments.Attachments((network,)))
            for number, network in ((1, 'red'), (2, 'blue'))],
            inventory=store.InventoryState('nova', self.now, self.now))
        self.facts(h=packed(switch(max_tunnels=2, tunnel_unit='networks')))
        for networks, admitted, adds in ((('red',), True, 0),
                                         (('red', 'green'), False, 1),
                                         ((), False, 1)):
            _, rows = self.explain('--flavor', 'plain', *(
                word for item in networks for word in ('--network', item)))
            self.assertEqual(admitted, rows['h']['admitted'], networks)
            check = self.checks(rows['h'])['tunnels']
            self.assert_holds(check, before=2, adds=adds, limit=2)
        self.assertEqual(['the limit of 2 is at least 3 networks, or 1 fewer '
                          'are on the host'], rows['h']['fits_if'])

    def test_an_uplink_is_judged_with_all_behind_it(self):
        uplink = {'tor': policy_in_force.pack(admission.HostPolicy(
            switch(1000.0)))}
        host = {**packed(switch(10_000.0)), 'uplinks': ['tor']}
        self.put({'a': (1,), 'b': (2,)}, dict.fromkeys((1, 2), BUSY))
        self.facts(uplinks=uplink, a=host, b=host)
        answer, rows = self.explain('--flavor', 'busy')
        self.assertEqual({'uplink': 2}, answer['refused'])
        for row in rows.values():
            shown, = row['uplinks']
            self.assert_holds(shown, uplink='tor', admitted=False, instances=2,
                              overload_limit=.01)
            self.assertAlmostEqual(.01, shown['overload_before'], 9)
            self.assertAlmostEqual(.028, shown['overload_after'], 9)
            # The host alone has room.
            self.assertAlmostEqual(0.0, row['overload_after'], 9)
            self.assertIn('its uplink tor', row['text'])
        self.assertIn('uplink tor',
                      self.text('--flavor', 'busy', '--host', 'a'))

    def test_a_prior_is_cut_to_what_a_host_carries(self):
        # As the scheduler does: nobody is refused for the peak of others.
        self.store.write(priors=[store.Prior('plain', None, BUSY.law, 30.0)])
        self.facts(small=packed(switch(300.0)), far=packed(switch(1e9)))
        answer, rows = self.explain('--flavor', 'plain')
        self.assertEqual('prior of flavor', answer['rule'])
        self.assertEqual(600.0, answer['peak']['egress_kbps'])
        peak = self.checks(rows['small'])['peak']
        self.assertLessEqual(peak['adds'], 300.0)
        self.assertTrue(peak['passes'])
        # What a flavor states is its peak.
        _, rows = self.explain('--flavor', 'busy')
        self.assertEqual('peak', rows['small']['check'])
