# SPDX-License-Identifier: Apache-2.0
import os
import re
import sys
import tempfile
import unittest
from unittest import mock

from tests.unit.cmd import commands
from vswitch_aware_scheduler.lab.demo import __main__ as demo
from vswitch_aware_scheduler.lab.demo import clouds
from vswitch_aware_scheduler.lab.demo import fleet
from vswitch_aware_scheduler import store


class ArgumentsTest(unittest.TestCase):

    def test_values_out_of_range_are_refused(self):
        for option, value, message in (
                ('--hosts', '3', '4 or more'), ('--jobs', '0', '1 or more'),
                ('--overload-probability', '1.5',
                 'expected a probability from 0 to 1'),
                ('--policy', 'best', 'invalid choice')):
            status, _, errors = commands.run(demo.main, [option, value])
            self.assertEqual(2, status)
            self.assertIn(message, errors)


class MainTest(unittest.TestCase):

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        # What the demo leaves is for its user: not here.
        self.enterContext(mock.patch.object(tempfile, 'tempdir',
                                            self.folder))

    def _run(self, place_all, *arguments):
        with mock.patch.object(clouds, 'place_all', place_all), \
                mock.patch.object(fleet, 'generate_trace', _few_vms):
            return commands.run(demo.main, arguments)

    def test_a_trace_that_is_not_there_is_told(self):
        status, _, errors = self._run(None, '--trace', '/no/such/trace.npz')
        self.assertEqual(1, status)
        self.assertIn('/no/such/trace.npz', errors)

    def test_a_cloud_that_fails_is_told(self):
        status, _, errors = self._run(mock.Mock(
            side_effect=clouds.CloudFailed('the cloud failed: why')))
        self.assertEqual(1, status)
        self.assertIn('the cloud failed: why', errors)

    def test_tables_and_plot_of_three_placements(self):
        def place_all(sites, vms, *_rest):
            rebalanced = sites[clouds.REBALANCED]
            hosts = sites[clouds.OURS].hosts
            self.assertEqual(4, len(rebalanced.hosts))
            # 24 hosts of 64 cores and the same memory.
            self.assertEqual((384, sites[clouds.OURS].memory_mb * 6),
                             (rebalanced.cores, rebalanced.memory_mb))
            self.assertEqual(0.08, rebalanced.options['overload_probability'])
            self.assertEqual(0.01,
                             rebalanced.rebalancing['overload_probability'])
            self.assertTrue(os.path.exists(rebalanced.rebalancing['rates']))
            self.assertTrue(store.Store(
                rebalanced.rebalancing['store_url']).has_models())
            slow = next(host for host, name in hosts
                        if name == 'ovs-vxlan-microserver')
            fast = next(host for host, name in hosts if name == 'ovs-flat')
            uuids = [vm.uuid for vm in vms]
            return {
                clouds.DEFAULT: clouds.Placement(
                    dict.fromkeys(uuids, slow), {}, [], 0.5),
                clouds.OURS: clouds.Placement(
                    dict.fromkeys(uuids[1:], fast), {uuids[0]: 'too much'},
                    ['the store is stale'], 0.5),
                clouds.REBALANCED: clouds.Placement(
                    dict.fromkeys(uuids, rebalanced.hosts[0][0]), {}, [], 0.5,
                    [(10, uuid, rebalanced.hosts[-1][0]) for uuid in uuids],
                    ['no host is free'], {'compute01': (30, 3000)})}

        plot = os.path.join(self.folder, 'plot.png')
        status, text, _ = self._run(place_all, '--plot', plot)
        self.assertEqual(0, status)
        self.assertRegex(text, r'VMs refused +0 +1 +0\n')
        self.assertRegex(text, r'hosts used +1 of 24 +1 of 24 +2 of 4\n')
        self.assertRegex(text, r'live migrations +0 +0 +12\n')
        self.assertIn('Rebalancing: 12 live migrations. Without them, ', text)
        self.assertIn('worst host 1.000 % of its time, the limit is 1 %',
                      text)
        self.assertIn('Rebalancing stopped: no host is free', text)
        self.assertRegex(text, r'Refused, with the plugin: VM \d+: too much')
        self.assertIn('Warning, with the plugin: the store is stale', text)
        self.assertIn(f'Plot: {plot}\n', text)
        self.assertTrue(os.path.exists(plot))
        path = re.search('^Report: (.*)$', text, re.M)[1]
        with open(path, encoding='utf-8') as file:
            self.assertIn('Virtual switches', file.read())

    def test_a_limit_that_is_no_budget_leaves_rebalancing_out(self):
        def place_all(sites, vms, *_rest):
            self.assertEqual([clouds.DEFAULT, clouds.OURS], list(sites))
            return _on_first_hosts(sites, vms)

        status, text, _ = self._run(place_all, '--overload-probability', '0')
        self.assertEqual(0, status)
        self.assertNotIn('ebalancing', text)

    def test_without_the_libraries_of_the_report_all_else_is_shown(self):
        with mock.patch.dict(sys.modules, {'jinja2': None}):
            status, text, errors = self._run(_on_first_hosts)
        self.assertEqual(0, status)
        self.assertIn('No report: a report needs jinja2', errors)
        self.assertNotIn('Report:', text)


class NovaConfTest(unittest.TestCase):

    def test_only_options_of_nova_conf_tell_the_policies_apart(self):
        options = {'store_url': 'sqlite:////x', 'admission_policy': 'average',
                   'overload_probability': 0.02}
        plain = clouds.nova_conf(clouds.DEFAULT, **options)
        with_plugin = clouds.nova_conf(clouds.OURS, **options)
        self.assertTrue(with_plugin.startswith(plain))
        self.assertNotIn('vswitch', plain)
        self.assertIn('overload_probability = 0.02', with_plugin)


def _on_first_hosts(sites, vms, *_rest):
    return {name: clouds.Placement(
        {vm.uuid: site.hosts[0][0] for vm in vms}, {}, [], 0.5,
        budgets={'compute01': (0, 0)}) for name, site in sites.items()}


def _few_vms(path, rng, carrying):
    _generate(path, rng, 5, days=2)


_generate = fleet.generate_trace
