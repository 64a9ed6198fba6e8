# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

from vswitch_aware_scheduler.lab.demo import clouds
from vswitch_aware_scheduler.lab.demo import fleet

HOSTS = [('a', 'ovs-vxlan-1g'), ('b', 'ovs-flat'), ('c', 'ovs-vxlan')]
VMS = [fleet.TraceVm('u1', '1', 2, 1024), fleet.TraceVm('u2', '2', 1, 512)]
OPTIONS = {'store_url': 'sqlite:////x', 'admission_policy': 'probability',
           'overload_probability': 0.01}


_PRELUDE = textwrap.dedent('''\
    import json, sys, time
    job = json.load(open(sys.argv[1]))
    uuids = [vm['uuid'] for vm in job['vms']]

    def answer(host=None, **more):
        print(json.dumps({
            'placements': dict.fromkeys(uuids, host) if host else {},
            'refusals': {}, 'warnings': [], 'seconds_per_boot': 1, **more}))
    ''')


class PlaceAllTest(unittest.TestCase):
    """With a script in the place of nova."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def _place(self, script, names=(clouds.DEFAULT, clouds.OURS), sites=(),
               **kwargs):
        script = _PRELUDE + textwrap.dedent(script)
        with mock.patch.object(clouds, 'CLOUD_COMMAND',
                               (sys.executable, '-c', script)):
            return clouds.place_all(
                {**dict.fromkeys(names, clouds.CloudHosts(HOSTS, 64, 2048)),
                 **dict(sites)}, VMS, OPTIONS, self.folder, **kwargs)

    def test_each_policy_gets_its_configuration_and_the_same_list(self):
        placed = self._place('''
            ours = 'VSwitchFilter' in open(job['nova_conf']).read()
            answer('b' if ours else 'a')
            ''')
        self.assertEqual({'u1': 'a', 'u2': 'a'},
                         placed[clouds.DEFAULT].placements)
        self.assertEqual({'u1': 'b', 'u2': 'b'},
                         placed[clouds.OURS].placements)
        # Nova's own files go, what is worth a look stays.
        self.assertEqual(
            ['nova-default.conf', 'nova-default.err', 'nova-with-plugin.conf',
             'nova-with-plugin.err'], sorted(os.listdir(self.folder)))

    def test_a_cloud_with_rebalancing_has_its_own_hosts_and_limit(self):
        placed = self._place('''
            answer(job['hosts'][0][0],
                   warnings=[open(job['nova_conf']).read()],
                   **({'rebalancing': {
                       'moves': [[3, 'u1', 'e']], 'problems': ['full'],
                       'budgets': {'d': [300, job['host']['vcpus']]}}}
                       if job['rebalancing'] else {}))
            ''', [clouds.OURS], {clouds.REBALANCED: clouds.CloudHosts(
                [('d', 'ovs-flat'), ('e', 'ovs-flat')], 640, 2048,
                {'overload_probability': 0.08}, {'rates': 'here'})})
        plain, rebalanced = placed[clouds.OURS], placed[clouds.REBALANCED]
        self.assertEqual(({'u1': 'a', 'u2': 'a'}, {'u1': 'd', 'u2': 'd'}),
                         (plain.placements, rebalanced.placements))
        self.assertEqual(([], ()), (list(plain.moves), plain.problems))
        self.assertEqual(([[3, 'u1', 'e']], ['full'], {'d': [300, 640]}),
                         (rebalanced.moves, rebalanced.problems,
                          rebalanced.budgets))
        self.assertIn('overload_probability = 0.01\n', plain.warnings[0])
        self.assertIn('overload_probability = 0.08\n', rebalanced.warnings[0])
        self.assertIn('vswitch_weight_multiplier = -1\n',
                      rebalanced.warnings[0])

    def test_progress_is_that_of_all_clouds(self):
        reports = []
        self._place('''
            for done in 1, 2, 5:
                print(json.dumps({'done': done, 'total': 5}), flush=True)
            answer()
            ''', progress=lambda *args: reports.append(args))
        self.assertEqual((10, 10), reports[-1])
        self.assertEqual(sorted(reports), reports)

    def test_a_refusal_is_told_by_the_roomiest_host(self):
        reasons = {'u1': {'fault': 'No valid host was found. ',
                          'reasons': {'a': 'small', 'b': 'big', 'c': 'mid'}},
                   'u2': {'fault': 'No valid host was found. ',
                          'reasons': {}}}
        placed = self._place(f'''
            answer(refusals=json.loads({json.dumps(json.dumps(reasons))}))
            ''', [clouds.OURS])[clouds.OURS].refusals
        self.assertEqual('VSwitchFilter refused 3 hosts; the roomiest, b: '
                         'big', placed['u1'])
        self.assertIn('No valid host', placed['u2'])

    def test_what_a_cloud_says_of_its_failure_is_told(self):
        for script, message in (
                ('print(json.dumps({"error": "no more threads"})); '
                 'sys.exit(1)',
                 'Nova defaults.*no more threads.*nova-default.log'),
                ('sys.exit(3)', 'status 3')):
            with self.assertRaisesRegex(clouds.CloudFailed, message):
                self._place(script, [clouds.DEFAULT])

    def test_a_failure_ends_the_other_cloud(self):
        began = time.monotonic()
        with self.assertRaises(clouds.CloudFailed):
            self._place('''
                if 'default' in job['nova_conf']:
                    sys.exit(1)
                time.sleep(600)
                ''')
        self.assertLess(time.monotonic() - began, 120)

    def test_a_cloud_that_says_nothing_is_ended(self):
        with mock.patch.object(clouds, 'SILENCE_SECONDS', 0.5):
            with self.assertRaisesRegex(clouds.CloudFailed, 'status -9'):
                self._place('time.sleep(600)', [clouds.DEFAULT])
