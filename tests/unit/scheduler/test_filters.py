# SPDX-License-Identifier: Apache-2.0

import dataclasses
import logging
from unittest import mock

from tests.fakes import store as fake_store
from tests.unit.scheduler import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import decisions
from vswitch_aware_scheduler.scheduler import filters
from vswitch_aware_scheduler import store


class FilterTestCase(base.FilterTestCase):

    def passing(self, spec=None, hosts=None):
        return self.filter.filter_all(
            self.hosts if hosts is None else hosts,
            spec or base.request(7, egress_kbps=30))


class TestFilter(FilterTestCase):

    def test_hosts_that_can_carry_the_instance_pass_in_their_order(self):
        self.assertEqual([self.free, self.unknown], self.passing())
        self.assertEqual([self.free, self.unknown],
                         self.passing(hosts=iter(self.hosts)))
        spec = base.request(7, egress_kbps=20)
        self.assertEqual(self.hosts, self.passing(spec))
        spec = base.request(7, egress_kbps=30)
        self.assertIs(True, self.filter.host_passes(self.free, spec))
        self.assertIs(False, self.filter.host_passes(self.full, spec))

    def test_no_host_is_no_question(self):
        self.assertEqual([], self.passing(hosts=[]))
        self.assertEqual([], self.store.asked)

    def test_a_rebuild_passes_where_it_is_or_is_forced(self):
        # A host may not list the instance yet.
        rebuild = base.request(7, check_type='rebuild', egress_kbps=30)
        rebuild.force_hosts = ['full']
        self.assertEqual([self.full], self.passing(rebuild, [self.full]))
        rebuild = base.request(7, check_type='rebuild', egress_kbps=30)
        self.full.instances[base.instance_uuid(7)] = None
        self.assertEqual([self.full], self.passing(rebuild, [self.full]))
        self.assertFalse(filters.VSwitchFilter.RUN_ON_REBUILD)

    def test_the_mark_of_a_rebuild_alone_is_not_believed(self):
        # A member set the scheduler hint for a new instance.
        for number in (7, None):
            self.assertEqual([self.free, self.unknown], self.passing(
                base.request(number, check_type='rebuild', egress_kbps=30)))

    def test_unknown_hosts_alone_are_refused_where_the_operator_says(self):
        self.make_filter(unknown_host_policy='reject')
        self.assertEqual([], self.passing(hosts=[self.unknown]))
        text, = self.warnings
        self.assertIn('VSwitchFilter refuses every host', text)


class TestObserve(FilterTestCase):

    def test_every_host_passes_and_what_it_would_refuse_is_logged(self):
        self.make_filter(enforcement='observe')
        self.assertEqual(self.hosts, self.passing())
        text, = self.refusals
        self.assertIn('only observed', text)
        self.assertEqual([], self.infos)

    def test_an_aggregate_is_enforced_while_the_rest_is_observed(self):
        self.make_filter(enforcement='observe')
        self.full.aggregates.append(base.aggregate(enforcement='enforce'))
        other = base.host_state('other', [4], self.full.aggregates[:1])
        self.assertEqual([self.free, other], self.passing(
            hosts=[self.full, self.free, other]))
        # One more aggregate that says observe.
        self.full.aggregates.append(base.aggregate(enforcement='observe'))
        self.assertEqual([self.full], self.passing(hosts=[self.full]))

    def test_hosts_without_a_profile_pass_whatever_their_policy(self):
        self.make_filter(enforcement='observe', unknown_host_policy='reject')
        self.assertEqual([self.unknown], self.passing(hosts=[self.unknown]))
        text, = self.refusals
        self.assertIn('no switch profile', text)

    def test_a_host_that_has_filled_up_meanwhile_is_claimed(self):
        self.make_filter(enforcement='observe')
        spec = base.request(7, egress_kbps=30)
        self.state.request_started()
        passing = self.passing(spec, [self.free])
        with self.state._lock:
            self.state._count(fake_store.claim(2, 'free',
                                               law=base.constant(80)))
        self.assertEqual('free', base.choose(self.state, passing, spec))


class TestNoHost(FilterTestCase):

    def no_host(self):
        return [text for text in self.infos if 'no host passes' in text]

    def test_a_request_that_leaves_no_host_is_one_line(self):
        self.passing()
        self.assertEqual([], self.no_host())
        peak = base.host_state('peak', [], [base.aggregate(
            saturation_kbps='29')])
        more = base.host_state('more', [4], self.full.aggregates)
        self.state.request_started()
        self.assertEqual([], self.passing(hosts=[peak, self.full, more]))
        line, = self.no_host()
        self.assertIn(base.instance_uuid(7), line)
        self.assertIn('(demand by flavor): 3 hosts: 2 overload probability, '
                      '1 peak; closest ', line)

    def test_alternates_to_an_instance_that_has_a_host_are_no_line(self):
        spec = base.request(7, egress_kbps=30)
        self.state.request_started()
        self.passing(spec)
        self.state.host_consumed(self.free, spec)
        self.assertEqual([], self.passing(spec, [self.full]))
        self.assertEqual([], self.no_host())
        self.state.request_finished(False)
        # Of the next request it is one.
        self.state.request_started()
        self.passing(spec, [self.full])
        self.assertEqual(1, len(self.no_host()))

    def test_a_decision_that_cannot_be_recorded_is_the_same_decision(self):
        with mock.patch.object(decisions.Decisions, 'judged', autospec=True,
                               side_effect=KeyError('what')):
            for _ in range(2):
                self.assertEqual([self.free, self.unknown], self.passing())
        text, = self.warnings
        for part in ('decisions', 'KeyError', 'not recorded'):
            self.assertIn(part, text)


class TestFailOpen(FilterTestCase):

    def test_every_host_passes_when_it_cannot_judge(self):
        with mock.patch.object(self.state, 'assess', autospec=True,
                               side_effect=KeyError('what')):
            for _ in range(3):
                self.assertEqual(self.hosts, self.passing())
        warning, = self.warnings
        for part in ('VSwitchFilter', 'KeyError', 'every host passes'):
            self.assertIn(part, warning)
        self.assertEqual([self.free, self.unknown], self.passing())
        self.assertEqual(['vswitch: VSwitchFilter is well again'],
                         self.infos)

    def test_every_host_passes_when_it_cannot_explain(self):
        with mock.patch.object(filters.VSwitchFilter, '_explain',
                               autospec=True, side_effect=KeyError('what')):
            self.assertEqual(self.hosts, self.passing())

    def test_every_host_passes_without_a_store_by_an_option(self):
        self.make_filter(degraded_policy='pass')
        self.store.answers = [exceptions.StoreError('gone')]
        self.assertEqual(self.hosts, self.passing())
        self.assertEqual(1, len(self.warnings))


class TestExplanation(FilterTestCase):

    def test_a_refusal_names_host_instance_rule_and_numbers(self):
        self.passing()
        text, = self.refusals
        for part in ('full', base.instance_uuid(7), 'by flavor',
                     'overload probability would be 1', '1 instances'):
            self.assertIn(part, text)

    def test_nothing_is_put_into_words_unless_it_is_logged(self):
        logging.getLogger('vswitch_aware_scheduler').setLevel(logging.INFO)
        with mock.patch.object(filters.VSwitchFilter, '_explain',
                               autospec=True) as explain:
            self.passing()
        explain.assert_not_called()


class TestErrorBudgets(FilterTestCase):
    """Host free is in debt; the instances of project p have spent it."""

    def make_filter(self, **options):
        self.store.answers = [dataclasses.replace(
            self.store.answers[-1], debts={
                ('host', 'free'): store.Debt(.5, frozenset('p'))})]
        super().make_filter(**options)

    def passing(self):
        spec = base.request(7, egress_kbps=30)
        spec.project_id = 'p'
        return super().passing(spec)

    def test_a_host_in_debt_takes_no_new_instance_unless_an_option_says_so(
            self):
        for options, passing, refusal in (
                ({'error_budgets': False}, [self.free, self.unknown], None),
                ({}, [self.unknown], 'its error budget is overspent'),
                ({'enforcement': 'observe'}, self.hosts,
                 'its error budget is overspent.*only observed')):
            self.log.clear()
            self.make_filter(**options)
            self.assertEqual(passing, self.passing())
            if refusal:
                self.assertRegex('\n'.join(self.refusals), refusal)

    def test_an_instance_of_a_host_in_debt_may_be_resized_there(self):
        self.free.instances[base.instance_uuid(7)] = None
        self.assertIn(self.free, self.passing())

    def test_it_is_in_debt_until_a_generation_says_otherwise(self):
        self.assertNotIn(self.free, self.passing())
        self.store.answers = [dataclasses.replace(
            base.changes(2), debts={})]
        self.state.refresh()
        self.assertIn(self.free, self.passing())


class TestPredictionMargin(FilterTestCase):
    """A host that would be overloaded for .1 of the time with the instance."""

    def test_option_and_aggregate_change_what_passes(self):
        self.store.answers = [base.changes(1, {2: 80.0})]
        for margin, metadata, passing in (
                (1.0, {}, False), (.4, {}, True), (.6, {}, False),
                (.4, {'prediction_margin': '.6'}, False),
                (3.0, {'prediction_margin': '.4'}, True)):
            self.make_filter(overload_probability=.05,
                             prediction_margin=margin)
            host = base.host_state('host', [2], [base.aggregate(
                saturation_kbps='100', **metadata)])
            self.assertEqual(passing, bool(self.passing(base.request(
                7, egress_kbps=30, on_seconds=1, off_seconds=9), [host])))
