# SPDX-License-Identifier: Apache-2.0
"""What a scheduler worker tells of itself in a report."""

import json
import os

from oslo_reports import guru_meditation_report as gmr

from tests.unit.scheduler import base
from vswitch_aware_scheduler.scheduler import gmr as gmr_section
from vswitch_aware_scheduler.scheduler import nova_hooks


class TestMeditation(base.SchedulerTestCase):

    def lines(self, state):
        return [json.loads(line)
                for line in gmr_section.text(state).splitlines()]

    def test_before_the_first_request_nothing_is_known(self):
        for state in (None, self.make_state()):
            self.assertEqual([{'pid': os.getpid(), 'generation': None}],
                             self.lines(state))

    def test_residents_and_claims_are_printed_by_host(self):
        self.store.answers = [base.changes(7, {1: 10.0, 2: 20.0})]
        state = self.make_state()
        aggregate = base.aggregate(profile='ovs-flat')
        hosts = [base.host_state('a', [1], [aggregate]),
                 base.host_state('b')]
        spec = base.request(2)
        state.assess(hosts, spec)
        state.host_consumed(hosts[0], spec)
        self.assertEqual([
            {'pid': os.getpid(), 'generation': 7},
            {'host': 'a', 'profile': 'ovs-flat',
             'instances': [base.instance_uuid(1), base.instance_uuid(2)],
             'claimed': [base.instance_uuid(2)], 'claimed_by_others': []},
            {'host': 'b', 'profile': None, 'instances': [], 'claimed': [],
             'claimed_by_others': []},
        ], self.lines(state))

    def test_what_goes_wrong_is_printed_instead(self):
        class Broken:
            def counted(self):
                raise KeyError('gone')

        self.assertEqual("KeyError: 'gone'", gmr_section.text(Broken()))

    def test_it_is_one_section_however_many_plugins_there_are(self):
        for role in ('filter', 'weigher', 'filter'):
            nova_hooks.join(role)
        titles = [title for title, _ in
                  gmr.TextGuruMeditation.persistent_sections]
        self.assertEqual(1, titles.count(gmr_section.TITLE))
