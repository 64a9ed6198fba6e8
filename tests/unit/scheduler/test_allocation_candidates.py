# SPDX-License-Identifier: Apache-2.0

import dataclasses
import logging
from unittest import mock

from nova.scheduler.client import report
from nova.scheduler import manager

from tests.unit.scheduler import base
from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.scheduler import nova_hooks
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior

CLASS = effective_limit.RESOURCE_CLASS


def node(number):
    return f'11111111-0000-4000-8000-{number:012d}'


def child(number):
    return f'22222222-0000-4000-8000-{number:012d}'


def summaries(**free):
    """Return what placement says of hosts: h3=(capacity, used)."""
    found = {}
    for name, numbers in free.items():
        number = int(name[1:])
        found[node(number)] = {
            'root_provider_uuid': node(number), 'resources': {
                'VCPU': {'capacity': 4, 'used': 1}}}
        if numbers is not None:
            found[child(number)] = {
                'root_provider_uuid': node(number), 'resources': {
                    CLASS: dict(zip(('capacity', 'used'), numbers))}}
    return found


class CandidatesTestCase(base.FilterTestCase):

    OPTIONS = {**base.FilterTestCase.OPTIONS, 'strict': True,
               'strict_headroom': .25}

    def host(self, number, candidates=1, **metadata):
        metadata = metadata or {'saturation_kbps': '100',
                                'overload_probability': '0'}
        found = base.host_state(f'h{number}', [], [
            base.aggregate(**metadata)])
        found.uuid = node(number)
        found.allocation_candidates = [
            {'allocations': {node(number): {'resources': {'VCPU': 1}},
                             f'nic{n}': {'resources': {'NET': 5}}},
             'mappings': {'': [node(number)]}} for n in range(candidates)]
        return found

    def request(self, hosts, found, spec=None):
        """Return the names of the hosts that pass, as nova would ask."""
        self.state.request_started()
        self.state.candidates_received((['candidates'], found, '1.36'))
        return [one.host for one in self.filter.filter_all(
            hosts, spec or base.request(7, egress_kbps=30))]

    def amounts(self, host):
        return [one['allocations'].get(child(int(host.host[1:])), {}).get(
            'resources') for one in host.allocation_candidates]

    def test_each_candidate_takes_what_the_instance_needs(self):
        host = self.host(1, 2)
        before = list(host.allocation_candidates)
        self.assertEqual(['h1'], self.request([host], summaries(h1=(100, 0))))
        self.assertEqual([{CLASS: 30}] * 2, self.amounts(host))
        self.assertEqual({'VCPU': 1}, host.allocation_candidates[1][
            'allocations'][node(1)]['resources'])
        self.assertEqual({'': [node(1)]},
                         host.allocation_candidates[0]['mappings'])
        # What was claimed by them stays what it was.
        self.assertEqual(2, len(before[0]['allocations']))
        # Nova asks again for alternates, and for the next of several.
        self.assertEqual([host], self.filter.filter_all(
            [host], base.request(8, egress_kbps=40)))
        self.assertEqual([{CLASS: 40}] * 2, self.amounts(host))

    def test_a_host_without_room_is_not_claimed(self):
        hosts = [self.host(1), self.host(2), self.host(3)]
        self.assertEqual(['h2', 'h3'], self.request(hosts, summaries(
            h1=(100, 71), h2=(100, 70), h3=(20000, 0))))
        self.assertEqual([None], self.amounts(hosts[0]))
        told, = [text for text in self.log.texts(logging.DEBUG)
                 if 'placement has 29 kbit/s left' in text]
        self.assertIn('the instance takes 30', told)

    def test_an_observed_host_passes_without_room_and_nothing_is_claimed(
            self):
        self.make_filter(enforcement='observe')
        hosts = [self.host(1), self.host(2)]
        self.assertEqual(['h1', 'h2'], self.request(hosts, summaries(
            h1=(100, 71), h2=(100, 0))))
        # Placement could refuse what is claimed there.
        self.assertEqual([None], self.amounts(hosts[0]))
        self.assertEqual([None], self.amounts(hosts[1]))
        told, = [text for text in self.log.texts(logging.DEBUG)
                 if 'placement has 29 kbit/s left' in text]

    def test_what_placement_refuses_counts_in_the_line_of_no_host(self):
        full = self.host(3)
        full.instances[base.instance_uuid(2)] = None
        self.store.answers = [base.changes(1, {2: 90.0})]
        self.assertEqual([], self.request(
            [self.host(1), self.host(2), full],
            summaries(h1=(100, 71), h2=(100, 80), h3=(100, 0))))
        line, = self.infos
        self.assertIn('3 hosts: 2 room in Placement, 1 overload probability; '
                      'closest h1 (30 > 29)', line)

    def test_each_host_has_amounts_of_its_own(self):
        hosts = [self.host(1, saturation_kbps='1000',
                           overload_probability='0.01'), self.host(2)]
        spec = base.request(7, egress_kbps=30, on_seconds=1, off_seconds=9)
        self.request(hosts, summaries(h1=(750, 0), h2=(100, 0)), spec)
        law = model.TrafficModel.on_off(30, on_seconds=1, off_seconds=9).law
        policy = self.state._policies['h1']
        self.assertEqual([[{CLASS: effective_limit.EffectiveLimit.of(
            policy, .25).amount(law)}], [{CLASS: 30}]],
            list(map(self.amounts, hosts)))

    def test_a_prior_counts_as_one_instance_can_have_it(self):
        self.store.answers = [dataclasses.replace(base.changes(1), priors={
            (None, None): prior.Expected(base.constant(5000))})]
        host = self.host(1)
        self.assertEqual(['h1'], self.request(
            [host], summaries(h1=(100, 0)), base.request(7)))
        self.assertEqual([{CLASS: 100}], self.amounts(host))

    def test_hosts_without_an_inventory_pass_as_they_are_and_it_is_told_once(
            self):
        hosts = [self.host(1), self.host(2)]
        for _ in range(2):
            self.assertEqual(['h1', 'h2'], self.request(
                hosts, summaries(h1=None, h2=(100, 0))))
            # It is well with this one, and not with all.
            self.request(hosts[1:], summaries(h2=(100, 0)))
        self.assertEqual([None], self.amounts(hosts[0]))
        self.assertEqual(1, len(self.warnings), self.warnings)
        self.assertIn(f'no inventory of {CLASS} for 1 hosts, h1 among',
                      self.warnings[0])
        self.request(hosts, summaries(h1=(100, 0), h2=(100, 0)))
        self.assertEqual(['vswitch: strict mode is well again'], self.infos)

    def test_one_that_has_lost_its_limit_needs_none(self):
        for limit in ({}, {'judge': 'false'}):
            self.request([self.host(1, **limit)], summaries(h1=None))
        self.assertNotIn('strict mode', self.state.report.problems())

    def test_one_that_is_gone_needs_none(self):
        self.request([self.host(1), self.host(2)], summaries(h2=(100, 0)))
        self.assertIn('strict mode', self.state.report.problems())
        for _ in range(2):
            self.clock.now += 200
            self.request([self.host(2)], summaries(h2=(100, 0)))
            self.state.refresh()
        self.request([self.host(2)], summaries(h2=(100, 0)))
        self.assertNotIn('strict mode', self.state.report.problems())

    def test_hosts_without_a_limit_need_none(self):
        host = self.host(1, max_tunnels='9')
        self.assertEqual(['h1'], self.request([host], summaries(h1=None)))
        self.assertEqual([None], self.amounts(host))
        self.assertEqual([], self.warnings)

    def test_nothing_is_claimed_where_nova_claims_nothing(self):
        host = self.host(1, 0)
        self.assertEqual(['h1'], self.request([host], summaries(h1=(1, 0))))
        self.assertEqual([], host.allocation_candidates)

    def test_what_a_request_has_placed_is_not_there_for_its_next(self):
        host = self.host(1)
        self.request([host], summaries(h1=(100, 10)))
        for number in (7, 8):
            spec = base.request(number, egress_kbps=30)
            self.assertEqual([host], self.filter.filter_all([host], spec))
            self.state.host_consumed(host, spec)
        # As if others had gone meanwhile: 90 less 30 and 30 are left.
        for number in (7, 8):
            self.state._residency.withdraw(
                base.instance_uuid(number), 'h1')
        self.assertEqual([host], self.filter.filter_all(
            [host], base.request(9, egress_kbps=30)))
        self.assertEqual([], self.filter.filter_all(
            [host], base.request(9, egress_kbps=31)))

    def test_a_request_knows_nothing_of_the_one_before(self):
        host = self.host(1)
        self.request([host], summaries(h1=(100, 90)))
        self.state.request_started()
        self.state.candidates_received(None)
        self.assertEqual([host], self.filter.filter_all(
            [host], base.request(7, egress_kbps=30)))

    def test_a_second_answer_adds_to_the_first(self):
        hosts = [self.host(1), self.host(2)]
        self.state.request_started()
        for found in (summaries(h1=(100, 90)), summaries(h2=(100, 0))):
            self.state.candidates_received(([], found, '1.36'))
        self.assertEqual([hosts[1]], self.filter.filter_all(
            hosts, base.request(7, egress_kbps=30)))

    def test_it_is_off_unless_asked_for(self):
        self.make_filter(strict=False)
        host = self.host(1)
        self.assertEqual(['h1'], self.request([host], summaries(h1=(100, 99))))
        self.assertEqual([None], self.amounts(host))

    def test_who_only_asks_the_filter_has_no_candidates(self):
        self.assertEqual([], self.filter.filter_all([], base.request(7)))
        host = self.host(1)
        self.assertTrue(self.filter.host_passes(
            host, base.request(7, egress_kbps=30)))

    def test_what_goes_wrong_leaves_the_judgement(self):
        hosts = [self.host(1), self.host(2, saturation_kbps='10')]
        del hosts[0].allocation_candidates
        self.assertEqual(['h1'], self.request(hosts, summaries(h1=(100, 0))))
        self.assertEqual(1, len(self.warnings))
        self.assertIn('placement refuses nothing', self.warnings[0])


class UplinkTestCase(CandidatesTestCase):

    def test_uplinks_that_placement_does_not_keep_are_told_once(self):
        hosts = [self.host(number, saturation_kbps='100',
                           uplink=f'tor{number}',
                           uplink_saturation_kbps='150')
                 for number in (1, 2)]
        for _ in range(2):
            self.request(hosts, summaries(h1=(100, 0), h2=(100, 0)))
        self.assertEqual(1, len(self.warnings), self.warnings)
        self.assertIn('no inventory of these uplinks: tor1, tor2;',
                      self.warnings[0])
        # Without the strict mode there is nothing to tell.
        self.make_filter(strict=False)
        self.request(hosts, {})
        self.assertEqual(1, len(self.warnings), self.warnings)

    def test_when_they_have_gone_that_is_told(self):
        hosts = [self.host(1, saturation_kbps='100', uplink='tor',
                           uplink_saturation_kbps='150')]
        self.request(hosts, summaries(h1=(100, 0)))
        hosts[0].aggregates = [base.aggregate(saturation_kbps='100')]
        self.request(hosts, summaries(h1=(100, 0)))
        self.assertEqual(['vswitch: strict mode of uplinks is well again'],
                         self.infos)


class WatchTestCase(base.SchedulerTestCase):

    def test_the_answer_of_placement_is_overheard(self):
        state = self.make_state(strict=True)
        answer = [{'allocations': {}}], summaries(h1=(100, 0)), '1.36'
        with mock.patch.object(
                report.SchedulerReportClient, 'get_allocation_candidates',
                autospec=True, return_value=answer) as ask, \
                mock.patch.object(manager.SchedulerManager,
                                  'select_destinations', autospec=True), \
                mock.patch.object(
                    nova_hooks.host_manager.HostState,
                    'consume_from_request', lambda *args: None), \
                mock.patch.object(nova_hooks, '_current', state):
            nova_hooks._wrap_nova()
            client = mock.sentinel.client
            self.assertIs(
                answer, report.SchedulerReportClient
                .get_allocation_candidates(client, 'context', 'resources'))
            ask.assert_called_once_with(client, 'context', 'resources')
            with mock.patch.object(state._candidates, 'offered',
                                   side_effect=KeyError('resources')):
                self.assertIs(
                    answer, report.SchedulerReportClient
                    .get_allocation_candidates(client, 'context', 'more'))
        self.assertEqual([node(1)], list(state._candidates._rooms()))
        self.assertEqual(1, len(self.log.texts(logging.WARNING)))
