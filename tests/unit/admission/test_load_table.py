# SPDX-License-Identifier: Apache-2.0

import dataclasses
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.unit.admission import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import profile

F = base.F
_policy = base.policy
_on_off = base.on_off
_constant = base.constant
_named = base.named
_judged = base.judged
_random_models = base.random_models
_random_laws = base.random_laws


class TestAverage(base.AdmissionTestCase):

    def test_a_sum_of_averages_equal_to_saturation_is_admitted(self):
        for kbps, capacity in ((.1, .3), (.7, 2.1), (1e9 / 3, 1e9)):
            constant = model.TrafficModel.constant(kbps)
            policy = _policy(admission.AVERAGE, saturation_kbps=capacity)
            for count, admitted in ((2, True), (3, False)):
                self.assertAdmitted(admitted, policy, [constant] * count,
                                    constant)

    def test_every_limit_has_to_hold_the_averages(self):
        policy = _policy(admission.AVERAGE, saturation_kbps=1000.0,
                         line_rate_kbps=100.0)
        for egress, ingress, admitted in ((60, 0, False), (0, 60, True)):
            self.assertAdmitted(
                admitted, policy, [model.TrafficModel.constant(60, 10)],
                model.TrafficModel.constant(egress, ingress))

    def test_the_probability_is_told_but_does_not_decide(self):
        assessment = self.assertAdmitted(
            True, _policy(admission.AVERAGE, limit=0.0), [_on_off(1000)],
            _on_off(1000))
        self.assertAlmostEqual(.01, assessment.overload_probability[0])

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(
        st.lists(st.tuples(st.integers(1, 400), st.integers(1, 9)),
                 max_size=12), st.tuples(st.integers(1, 400),
                                         st.integers(1, 9)),
        st.integers(1, 2000), st.one_of(st.none(), st.integers(1, 500)),
        st.one_of(st.none(), st.integers(0, 12)))
    def test_it_is_figure_9_line_by_line(self, rows, row, saturation, peak,
                                         tunnels):
        policy = _policy(admission.AVERAGE, saturation_kbps=saturation,
                         vm_peak_kbps=peak, max_tunnels=tunnels)
        models = [_on_off(kbps, F(tenths, 10)) for kbps, tenths in rows]
        assessment = _judged(policy, [source.law for source in models],
                             _on_off(row[0], F(row[1], 10)).law)
        peak_fits = row[0] <= min(saturation, peak or saturation)
        tunnel_left = tunnels is None or len(rows) + 1 <= tunnels
        total = sum(F(kbps * tenths, 10) for kbps, tenths in rows + [row])
        self.assertEqual([peak_fits and tunnel_left and total <= saturation],
                         assessment.admitted.tolist())


class TestHardLimits(base.AdmissionTestCase):

    def test_a_peak_alone_is_a_limit_without_saturation(self):
        policy = admission.HostPolicy(profile.SwitchProfile(
            name='peak', vm_peak_kbps=400.0))
        for kbps, admitted in ((400, True), (401, False)):
            assessment = self.assertAdmitted(
                admitted, policy, [_on_off(1e6)] * 5, _on_off(kbps))
            self.assertEqual(0.0, assessment.overload_probability[0])
            self.assertEqual(0.0, assessment.utilisation[0])

    def test_the_first_check_that_fails_is_the_reason(self):
        # Too many, too large, too much: in this order.
        stated = {'max_tunnels': 1, 'vm_peak_kbps': 500.0}
        full = [_on_off(400, F(9, 10))] * 4
        for residents, kbps, reason in (
                (full, 600, admission.TOO_MANY),
                (full[:1], 600, admission.TOO_MANY),
                ((), 600, admission.PEAK), ((), 500, admission.ADMITTED)):
            self.assertEqual([reason], self.judge(
                _policy(**stated), residents, _on_off(kbps)).reason.tolist())
        for policy, reason in ((admission.AVERAGE, admission.MEAN),
                               (admission.PROBABILITY, admission.OVERLOAD)):
            self.assertEqual([reason], self.judge(
                _policy(policy), full, _on_off(400)).reason.tolist())


class TestUnknownHosts(base.AdmissionTestCase):

    def test_they_pass_or_are_refused_as_the_operator_wants(self):
        rows = [self.table.describe(name, policy, _named([_on_off(5).law]))
                for name, policy in (
                    ('known', _policy(saturation_kbps=10.0)),
                    ('unknown', admission.HostPolicy(None)),
                    ('refused', admission.HostPolicy(
                        None, pass_unknown=False)))]
        assessment = self.table.assess(rows, _on_off(50).law)
        self.assertEqual([False, True, False], assessment.admitted.tolist())
        self.assertEqual([True, False, False], assessment.known.tolist())
        for name in ('overload_probability', 'loss_fraction', 'utilisation'):
            self.assertEqual([0.0] * 2, getattr(assessment, name)[1:].tolist())


class TestTable(base.AdmissionTestCase):

    def test_no_host_at_all_is_an_empty_answer(self):
        self.assertEqual(0, self.table.assess_each([], []).admitted.size)
        for described in (False, True):
            if described:
                self.table.describe('host', _policy(), {})
            assessment = self.table.assess([], _on_off(5).law)
            self.assertEqual([], assessment.admitted.tolist())

    def test_hosts_are_known_by_name_and_keep_their_slot(self):
        rows = {name: self.table.describe(name, _policy(), {})
                for name in 'abc'}
        self.assertEqual(3, len(set(rows.values())))
        self.assertEqual(3, len(self.table))
        self.assertIsNone(self.table.row('d'))
        for name, row in rows.items():
            self.assertEqual(row, self.table.row(name))
            self.assertEqual(row, self.table.describe(
                name, _policy(saturation_kbps=5.0),
                _named([_on_off(1).law])))

    def test_a_host_is_judged_alike_whichever_hosts_are_asked_with_it(self):
        rng = np.random.default_rng(33)
        pool = [assessment.law for assessment in _random_models(rng, 30)]
        policies = [
            _policy(saturation_kbps=600.0),
            _policy(saturation_kbps=500.0, line_rate_kbps=400.0),
            _policy(admission.AVERAGE, saturation_kbps=400.0),
            _policy(vm_peak_kbps=90.0), _policy(max_tunnels=5),
            admission.HostPolicy(None, pass_unknown=False)]
        hosts = {f'host{i}': (policies[i % len(policies)], _named(
            [pool[k] for k in rng.integers(30, size=i % 8)]))
            for i in range(24)}
        rows = np.array([self.table.describe(host, *of)
                         for host, of in hosts.items()])
        laws = [_on_off(100).law, _on_off(50, F(1, 2)).law]
        alone = {}
        for row, (host, of) in zip(rows.tolist(), hosts.items()):
            for law in laws:
                table = admission.LoadTable()
                alone[row, law] = table.assess(
                    [table.describe(host, *of)], law)
        self.assertEqual(
            {admission.ADMITTED, admission.NO_PROFILE, admission.TOO_MANY,
             admission.PEAK, admission.MEAN, admission.OVERLOAD},
            {int(assessment.reason[0]) for assessment in alone.values()})
        for asked in (rows, rng.permutation(rows),
                      rng.permutation(rows)[:-3], rows[1:-1],
                      np.append(rows[::-1], rows[:5]), rows[::7]):
            of_slots = [laws[k] for k in rng.integers(2, size=asked.size)]
            for judged, law_of in (
                    (self.table.assess(asked, laws[0]), laws[:1] * asked.size),
                    (self.table.assess_each(asked, of_slots), of_slots)):
                for i, pair in enumerate(zip(asked.tolist(), law_of)):
                    expected = alone[pair]
                    for name in ('reason', 'overload_probability', 'known',
                                 'loss_fraction', 'utilisation', 'enforced'):
                        np.testing.assert_allclose(
                            getattr(judged, name)[i],
                            getattr(expected, name)[0],
                            rtol=1e-9, err_msg=name)
                    for name in ('loads', 'explain', 'decisive', 'host'):
                        self.assertEqual(getattr(expected, name)(0),
                                         getattr(judged, name)(i))
                    self.assertEqual(
                        expected.multiples(np.array([0])).tolist(),
                        judged.multiples(np.array([i])).tolist())

    def test_a_host_that_is_not_asked_for_is_not_computed(self):
        rows = [self.table.describe(i, _policy(), _named(
            [_on_off(150).law] * 10)) for i in range(20)]
        unchanged = rows[:4] + rows[5:]
        self.table.assess(rows, _on_off(100).law)
        self.table.change({4: ({}, [next(iter(self.table.residents(4)))])})
        with mock.patch.object(fourier_sum, 'product') as product:
            self.table.assess(unchanged, _on_off(100).law)
            product.assert_not_called()
            product.side_effect = ZeroDivisionError
            self.assertRaises(ZeroDivisionError, self.table.assess, rows,
                              _on_off(100).law)

    def test_the_version_counts_changes_only(self):
        policy, laws = _policy(), _named([_on_off(5).law])
        self.assertEqual(0, self.table.version)
        self.table.describe('host', policy, laws)
        self.assertEqual(1, self.table.version)
        # The same again, in an equal mapping of equal laws.
        self.table.describe('host', policy, _named([_on_off(5).law]))
        self.table.assess([0], _on_off(5).law)
        self.assertEqual(1, self.table.version)
        for change in ((policy, {}), (policy, laws), (_policy(), laws),
                       (policy, _named([_on_off(6).law])),
                       (policy, {'other': _on_off(6).law})):
            version = self.table.version
            self.table.describe('host', *change)
            self.assertEqual(version + 1, self.table.version)

    def test_it_does_not_watch_the_mapping_it_was_given(self):
        residents = _named([_on_off(900).law])
        policy = _policy()
        self.judge(policy, residents)
        residents['other'] = _on_off(900).law
        assessment = self.judge(policy, residents, _on_off(900))
        self.assertAlmostEqual(.028, assessment.overload_probability[0], 12)


class TestExclude(base.AdmissionTestCase):

    def test_an_instance_that_moves_is_not_counted_twice(self):
        policy = _policy(saturation_kbps=2500.0, max_tunnels=3)
        models = _named([_on_off(1000).law] * 3)
        rows = [self.table.describe('own', policy, models),
                self.table.describe('other', policy, {
                     f'x{uuid}': law for uuid, law in models.items()}),
                self.table.describe('free', policy, {})]
        assessment = self.table.assess(rows, _on_off(1000).law, 'vm-1')
        self.assertEqual(
            [admission.ADMITTED, admission.TOO_MANY, admission.ADMITTED],
            assessment.reason.tolist())
        self.assertAlmostEqual(.001, assessment.overload_probability[0], 12)
        # The host itself is as it was.
        self.assertEqual([admission.TOO_MANY], self.table.assess(
            rows[:1], _on_off(1000).law).reason.tolist())

    def test_it_is_the_host_without_it_on_every_limit(self):
        rng = np.random.default_rng(88)
        policy = _policy(saturation_kbps=900.0, line_rate_kbps=600.0,
                         packet_rate_kpps=40.0)
        models = _named(_random_laws(rng, 8))
        candidate = _random_models(rng, 1)[0]
        for uuid in models:
            self.assertAlike(
                _judged(policy, {key: law for key, law in models.items()
                                 if key != uuid}, candidate.law),
                self.judge(policy, models, candidate, uuid), atol=0)


class TestEach(base.AdmissionTestCase):

    def test_what_is_cut_to_what_one_may_have_fits_an_empty_host(self):
        for stated in (dict(saturation_kbps=100.0),
                       dict(saturation_kbps=100.0, vm_peak_kbps=30.0),
                       dict(saturation_kbps=None, vm_peak_kbps=30.0),
                       dict(saturation_kbps=100.0, line_rate_kbps=40.0),
                       dict(saturation_kbps=None, packet_rate_kpps=4.0),
                       dict(saturation_kbps=1e9, uplink=(admission.Uplink(
                           'tor', _policy(limit=0.0)),))):
            with self.subTest(**stated):
                uplink = stated.pop('uplink', ())
                refused = admission.UPLINK if uplink else admission.PEAK
                policy = dataclasses.replace(
                    _policy(limit=0.0, **stated), uplinks=uplink)
                limits = policy.limits_on_one
                row = self.table.describe('h', policy, {})
                for rates in ([900., 500., 9.], [90., 900., 0.], [0, 0, 99.]):
                    law = rate_law.RateLaw.from_arrays(
                        [.5, .5], [rates, [1., 1., 0.]])
                    cut = prior.scaled(law, limits)
                    self.assertTrue(
                        self.table.assess([row], cut).admitted[0])
                    if cut is law:
                        continue
                    self.assertEqual(refused, self.table.assess(
                        [row], law).reason[0])
                    above = rate_law.RateLaw.from_arrays(
                        cut.probabilities, cut.rates * 1.001)
                    self.assertEqual(refused, self.table.assess(
                        [row], above).reason[0])


class TestCounts(base.AdmissionTestCase):
    """Tunnels and virtual functions, by what instances are attached to."""

    def setUp(self):
        super().setUp()
        self.attached = {}
        self.table = admission.LoadTable(attachments=self.attached.get)

    def ask(self, hosts, *networks, exclude=None, **kinds):
        """Return the reasons, and their words, of some hosts."""
        self.found = self.table.assess(
            self.table.rows_of(hosts), _on_off(1).law, exclude,
            attachments.Attachments(networks, **kinds))
        return self.found.reason.tolist()

    def describe(self, host, policy, **attached):
        """Put instances on a host, by uuid, with their networks."""
        self.attached.update({
            uuid: attachments.Attachments(networks)
            for uuid, networks in attached.items() if networks is not None})
        self.table.describe(host, policy, dict.fromkeys(
            attached, _on_off(1).law))

    def test_a_network_that_is_served_opens_no_tunnel(self):
        policy = _policy(max_tunnels=2, tunnel_unit='networks')
        self.describe('full', policy, a=['red'], b=['blue', 'red'])
        self.describe('room', policy, c=['red'])
        self.describe('other', _policy(), d=['red'])
        hosts = ['full', 'room', 'other']
        full, fine = admission.TOO_MANY, admission.ADMITTED
        for networks, reasons in ((['red'], [fine] * 3),
                                  (['red', 'blue'], [fine] * 3),
                                  (['green'], [full, fine, fine]),
                                  (['green', 'grey'], [full, full, fine]),
                                  # Who knows what it may get.
                                  ([], [full, fine, fine])):
            self.assertEqual(reasons, self.ask(hosts, *networks), networks)
        self.ask(hosts, 'green', 'grey')
        for words in ('it has 1 networks, the instance adds 2', 'and '
                      'max_tunnels of profile own is 2'):
            self.assertIn(words, self.found.explain(1))

    def test_who_comes_and_goes_is_followed(self):
        policy = _policy(max_tunnels=2, tunnel_unit='networks')
        self.describe('host', policy, a=['red'], b=['blue'])
        self.assertEqual([admission.TOO_MANY], self.ask(['host'], 'green'))
        self.assertEqual([], self.table.change({'host': ({}, ['b'])}))
        self.assertEqual([admission.ADMITTED], self.ask(['host'], 'green'))
        self.attached['c'] = attachments.Attachments(['grey'])
        self.table.change({'host': ({'c': _on_off(1).law}, [])})
        self.assertEqual([admission.TOO_MANY], self.ask(['host'], 'green'))
        # What it is attached to is known only later.
        self.attached['c'] = attachments.Attachments(['red'])
        self.table.describe('host', policy, self.table.residents('host'))
        self.assertEqual([admission.ADMITTED], self.ask(['host'], 'green'))
        # Another policy of the host.
        self.table.describe('host', _policy(), self.table.residents('host'))
        self.assertEqual([admission.ADMITTED], self.ask(['host'], 'x', 'y'))

    def test_nobody_knows_counts_as_one(self):
        for unit in profile.TUNNEL_UNITS:
            for most, reason in ((3, admission.ADMITTED),
                                 (2, admission.TOO_MANY)):
                self.describe('host', _policy(
                    max_tunnels=most, tunnel_unit=unit), a=None, b=None)
                assessment = self.table.assess(
                    self.table.rows_of(['host']), _on_off(1).law)
                self.assertEqual(reason, assessment.reason[0], unit)

    def test_remote_vteps_are_the_hosts_on_the_same_networks(self):
        plain = _policy()
        self.describe('h1', plain, a=['red'])
        self.describe('h2', plain, b=['red', 'blue'])
        self.describe('h3', plain, c=['grey'])
        # Known only now that they have to be counted.
        self.describe('h4', _policy(max_tunnels=2, tunnel_unit='vteps'))
        hosts = ['h1', 'h2', 'h3', 'h4']
        self.assertEqual([admission.ADMITTED] * 4, self.ask(hosts, 'red'))
        self.describe('h3', plain, c=['grey'], d=['red'])
        self.assertEqual([0, 0, 0, admission.TOO_MANY],
                         self.ask(hosts, 'red'))
        self.assertIn('it has 0 remote VTEPs, the instance adds 3',
                      self.found.explain(3))
        self.assertEqual([0] * 4, self.ask(hosts, 'blue', 'grey'))
        self.describe('h4', _policy(max_tunnels=2, tunnel_unit='vteps'),
                      e=['blue', 'grey'])
        # It would have to know h1 as well, whatever h1 has room for.
        self.assertEqual([admission.TOO_MANY, 0, 0, 0],
                         self.ask(hosts, 'grey'))
        self.assertIn('a host that its networks are on has no room',
                      self.found.explain(0))

    def test_one_that_moves_counts_once(self):
        policy = _policy(max_tunnels=2, tunnel_unit='networks')
        self.describe('own', policy, a=['red'], b=['blue'])
        self.describe('else', policy, c=['blue'], d=['grey'])
        for networks, reasons in (
                (['green'], [0, admission.TOO_MANY]), (['grey'], [0, 0]),
                (['green', 'blue', 'red'], [admission.TOO_MANY] * 2)):
            self.assertEqual(reasons, self.ask(
                ['own', 'else'], *networks, exclude='a'))
        self.assertIn('it has 1 networks, the instance adds 2',
                      self.found.explain(0))

    def test_virtual_functions_are_counted_by_the_interface(self):
        self.attached['a'] = attachments.Attachments((), (), 2)
        self.attached['b'] = attachments.Attachments(('red',))
        self.table.describe('host', _policy(max_virtual_functions=3),
                            dict.fromkeys('ab', _on_off(1).law))
        for added, reason in ((0, 0), (1, 0), (2, admission.TOO_MANY)):
            self.assertEqual([reason], self.ask(
                ['host'], 'red', virtual_functions=added))
        self.assertIn('it has 2 virtual functions in use, the instance adds '
                      '2, and max_virtual_functions of profile own is 3',
                      self.found.explain(0))


class TestUplinks(base.AdmissionTestCase):
    """Hosts that share uplinks, against each uplink by itself."""

    def uplink(self, name, capacity, limit=.01, **stated):
        return admission.Uplink(name, _policy(
            saturation_kbps=capacity, limit=limit, **stated))

    def test_it_is_what_each_uplink_says_by_itself(self):
        rng = np.random.default_rng(12)
        laws = _random_laws(rng, 30)
        refused = set()
        for _ in range(12):
            table = admission.LoadTable()
            uplinks = [self.uplink(f'u{i}', float(rng.integers(500, 4000)),
                                   limit=.05) for i in range(4)]
            own = [_policy(saturation_kbps=float(rng.integers(300, 2000)),
                           limit=.05) for _ in range(3)]
            policies = {f'h{i}': dataclasses.replace(
                own[i % 3], uplinks=tuple(
                    uplinks[j] for j in rng.permutation(4)[:i % 4]))
                for i in range(8)}
            residents = {host: {} for host in policies}
            for host, policy in policies.items():
                table.describe(host, policy, {})
            for step in range(60):
                self._disturb(rng, table, policies, residents, laws, step)
                if step % 6 == 0:
                    refused |= self._check(table, policies, residents,
                                           laws[step % 30])
        self.assertEqual({admission.ADMITTED, admission.OVERLOAD,
                          admission.UPLINK}, refused)

    def _disturb(self, rng, table, policies, residents, laws, step):
        host, target = rng.permutation(list(policies))[:2]
        laws_there = residents[host]
        action = rng.random()
        law = laws[int(rng.integers(30))]
        if action < .5 or not laws_there:
            laws_there[f'i{step}'] = law
            table.change({host: ({f'i{step}': law}, ())})
            return
        uuid = next(iter(laws_there))
        if action < .6:
            table.change({host: ({}, [uuid])})
            del laws_there[uuid]
        elif action < .7:
            # It has learned something about one, and another is new.
            laws_there[uuid], laws_there[f'i{step}'] = law, law
            table.describe(host, policies[host], laws_there)
        elif action < .95:
            # It moves; either of the two hosts may be told first.
            residents[target][uuid] = laws_there.pop(uuid)
            for moved in rng.permutation([host, target]):
                table.describe(moved, policies[moved], residents[moved])
                if step % 2:
                    # Somebody asks while both have it, or none.
                    table.assess(table.rows_of([moved]), law)
        else:
            policies[host] = dataclasses.replace(
                policies[host], uplinks=policies[target].uplinks)
            table.describe(host, policies[host], laws_there)

    def _check(self, table, policies, residents, law):
        actual = table.assess(table.rows_of(policies), law)
        alone = admission.LoadTable()
        for i, (host, policy) in enumerate(policies.items()):
            rows = [alone.describe(host, dataclasses.replace(
                policy, uplinks=()), residents[host])]
            for uplink in policy.uplinks:
                everyone = {}
                for neighbour, its_policy in policies.items():
                    if uplink in its_policy.uplinks:
                        everyone |= residents[neighbour]
                rows.append(alone.describe(uplink.name, uplink.policy,
                                           everyone))
            expected = alone.assess(rows, law)
            self.assertEqual(expected.admitted.all(), actual.admitted[i])
            if expected.admitted[0] and not actual.admitted[i]:
                self.assertEqual(admission.UPLINK, actual.reason[i])
            for name in ('overload_probability', 'loss_fraction',
                         'utilisation'):
                np.testing.assert_allclose(
                    getattr(actual, name)[i], getattr(expected, name).max(),
                    rtol=1e-9, atol=1e-12)
        return {*actual.reason.tolist()}

    def test_a_move_behind_an_uplink_changes_nothing_there(self):
        tor = self.uplink('tor', 1000.0, limit=0.0)
        policy = dataclasses.replace(_policy(saturation_kbps=4000.0),
                                     uplinks=(tor,))
        law = _constant(400)
        rows = [self.table.describe('a', policy, {'x': law, 'y': law}),
                self.table.describe('b', policy, {}),
                self.table.describe('c', _policy(saturation_kbps=1000.0), {})]
        self.assertEqual([admission.UPLINK] * 2 + [admission.ADMITTED],
                         self.table.assess(rows, law).reason.tolist())
        assessment = self.table.assess(rows, law, 'x')
        self.assertEqual([.8, .8, .4], assessment.utilisation.tolist())
        self.assertTrue(assessment.admitted.all())
        # It may not come back with more.
        self.assertEqual(
            [admission.UPLINK, admission.UPLINK, admission.ADMITTED],
            self.table.assess(rows, _constant(601), 'x').reason.tolist())

    def test_one_on_two_hosts_behind_it_counts_until_it_has_left_both(self):
        policy = dataclasses.replace(
            _policy(saturation_kbps=4000.0),
            uplinks=(self.uplink('tor', 1000.0),))
        small, large = _constant(400), _constant(600)
        for step, (on_a, on_b, utilisation) in enumerate((
                (small, None, .4),
                # A resize to the other host, which is reverted.
                (small, large, .6), (small, None, .4),
                # A live migration.
                (small, small, .4), (None, small, .4),
                # It is told of in the other order, and deleted.
                (None, None, 0), (small, None, .4), (None, None, 0))):
            for host, law in (('a', on_a), ('b', on_b)):
                row = self.table.describe(
                    host, policy, {} if law is None else {'x': law})
            self.assertAlmostEqual(utilisation, self.table.assess(
                [row], _constant()).utilisation[0], msg=step)

    def test_other_numbers_of_an_uplink_hold_at_once(self):
        law = _constant(400)
        for capacity, fits in ((1300.0, True), (1100.0, False),
                               (1200.0, True)):
            policy = dataclasses.replace(
                _policy(saturation_kbps=4000.0),
                uplinks=(self.uplink('tor', capacity),))
            rows = [self.table.describe(host, policy, {host: law})
                    for host in 'ab']
            self.assertEqual([fits] * 2, self.table.assess(
                rows, law).admitted.tolist())
        self.table.describe('b', _policy(), {'b': law})
        self.assertEqual([800 / 1200, .8], self.table.assess(
            rows, law).utilisation.tolist())

    def test_its_mapping_table_counts_the_networks_of_all_hosts(self):
        attached = {'x': attachments.Attachments(('red',), ('grey',)),
                    'y': attachments.Attachments((), ('grey', 'blue'))}
        table = admission.LoadTable(attachments=attached.get)
        gateway = admission.Uplink('gw', admission.HostPolicy(
            profile.SwitchProfile('gw', max_tunnels=3,
                                  tunnel_unit='networks'),
            tunnel_key='the room of the mapping table'))
        policy = dataclasses.replace(_policy(), uplinks=(gateway,))
        law = _on_off(1).law
        rows = [table.describe('a', policy, {'x': law}),
                table.describe('b', policy, {'y': law}),
                table.describe('c', _policy(), {})]

        def ask(*networks, **kinds):
            assessment = table.assess(
                rows, law, None, attachments.Attachments(networks, **kinds))
            self.words = assessment.explain(0)
            return assessment.admitted.tolist()

        self.assertEqual([True] * 3, ask('red', others=('grey', 'blue')))
        self.assertEqual([False, False, True], ask(others=('green',)))
        self.assertEqual(
            'its uplink gw: it has 3 networks, the instance adds 1, and the '
            'room of the mapping table of profile gw is 3', self.words)
        # One goes, and another turns out to be on other networks.
        table.change({'b': ({}, ['y'])})
        self.assertEqual([True] * 3, ask('green'))
        attached['x'] = attachments.Attachments(('red', 'green', 'pink'))
        table.describe('a', policy, {'x': law})
        self.assertEqual([False, False, True], ask('grey'))

    def test_what_an_uplink_says_is_explained(self):
        policy = dataclasses.replace(
            _policy(), uplinks=(self.uplink('tor', 500.0),
                                self.uplink('wan', 2000.0)))
        rows = [self.table.describe(host, policy, {
            host: _on_off(200).law}) for host in 'ab']
        self.table.describe('a', policy, dict.fromkeys(
            'wxyz', _on_off(200).law))
        for law, words in (
                (_on_off(501).law, "its uplink tor: the instance's peak of "
                 '501 kbit/s is above the 500'),
                (_on_off(200).law, 'its uplink tor: with it the overload '
                 'probability would be 0.0')):
            assessment = self.table.assess_each(rows, [_constant(1), law])
            self.assertTrue(assessment.admitted[0])
            self.assertIn(words, assessment.explain(1))
            self.assertIn(words, self.table.assess(rows, law).explain(0))
        self.assertIn('within the limit', self.table.assess(
            rows, _on_off(1).law).explain(0))


class TestChange(base.AdmissionTestCase):
    """Who comes and goes leads where describing the host anew leads."""

    def assertAnew(self, policy, residents, candidate, host='host'):
        """Want the answers of the host described anew."""
        self.assertAlike(
            _judged(policy, residents, candidate.law),
            self.table.assess([self.table.row(host)], candidate.law),
            atol=1e-12)

    def test_a_random_walk_decides_as_the_host_described_anew(self):
        rng = np.random.default_rng(95)
        # Half were sampled, and are busy at the same instants.
        at_once, pool = rng.random(504), _random_models(rng, 60)
        for i, source in enumerate(pool[:30]):
            order = np.argsort(source.rates[:, 0])
            pool[2 * i] = dataclasses.replace(
                source, at_instants=order[np.searchsorted(
                    np.cumsum(source.stationary[order[:-1]]), at_once)])
        stated = {'line_rate_kbps': 2500.0, 'packet_rate_kpps': 140.0}
        policies = [_policy(saturation_kbps=4600.0, **stated),
                    _policy(saturation_kbps=4600.0),
                    admission.HostPolicy(None), _policy(max_tunnels=25)]
        hosts = {host: (policies[0], _named(
            source.law for source in pool[:20])) for host in 'abcd'}
        # On the last host there may be nobody.
        hosts['d'] = policies[1], {}
        for host, (policy, residents) in hosts.items():
            self.table.describe(host, policy, residents)
        for step in range(60):
            changes = {}
            for host, (policy, residents) in hosts.items():
                removed = rng.choice(
                    sorted(residents), min(int(rng.integers(2)),
                                           len(residents)), replace=False)
                # The same one may come again, with another law.
                added = {f'new-{i}': pool[int(rng.integers(60))].law
                         for i in rng.integers(9, size=rng.integers(3))
                         if f'new-{i}' not in residents}
                residents = {uuid: law for uuid, law in residents.items()
                             if uuid not in removed} | added
                if rng.random() < .2:
                    policy = policies[int(rng.integers(4))]
                    self.table.describe(host, policy, residents)
                elif added or removed.size:
                    changes[host] = added, removed.tolist()
                hosts[host] = policy, residents
            self.assertEqual([], self.table.change(changes))
            # Changes between two questions add up.
            for host in 'abcd' if step % 3 == 0 else 'ab'[step % 3:]:
                self.assertAnew(*hosts[host], pool[step], host)
        together = self.table.assess(
            self.table.rows_of(list('abcd')), pool[0].law)
        for i, host in enumerate('abcd'):
            self.assertAlike(_judged(*hosts[host], pool[0].law), together,
                             atol=1e-12, at=i)

    def test_a_finer_lattice_comes_and_goes(self):
        # Three of 853 fit 2560 and nothing more; nine in round numbers.
        for kbps, count, capacity, odd in (
                (853, 3, 2560.0, .3), (1000, 9, 6000.0, 333.3),
                (1000, 9, 6000.0, 500)):
            with self.subTest(odd=odd):
                even, uneven = _on_off(kbps), _on_off(odd)
                policy = _policy(saturation_kbps=capacity, limit=.001)
                residents = _named([even.law] * count)
                self.table.describe('host', policy, residents)
                for added, removed in (({'odd': uneven.law}, []),
                                       ({}, ['odd'])):
                    self.table.assess([0], even.law)
                    self.assertEqual([], self.table.change(
                        {'host': (added, removed)}))
                    for candidate in (even, uneven):
                        self.assertAnew(policy, residents | added, candidate)
                self.assertTrue(
                    self.table.assess([0], even.law).admitted[0])

    def test_what_does_not_fit_what_is_known_is_not_followed(self):
        law = _on_off(127.7).law
        self.assertEqual(['host'], self.table.change(
            {'host': ({'a': law}, [])}))
        self.table.describe('host', _policy(), {'a': law, 'b': law})
        version = self.table.version
        for added, removed in (({'a': law}, []), ({}, ['c']),
                               ({'c': law}, ['d'])):
            self.assertEqual(['host'], self.table.change(
                {'host': (added, removed)}))
        self.assertEqual(version, self.table.version)
        self.assertAnew(_policy(), {'a': law, 'b': law}, _on_off(900))
