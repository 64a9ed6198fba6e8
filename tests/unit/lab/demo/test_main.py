# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import os
import re
import sys
import tempfile
import unittest
from unittest import mock

from vswitch_aware_scheduler.lab.demo import __main__ as demo
from vswitch_aware_scheduler.lab.demo import clouds
from vswitch_aware_scheduler.lab.demo import fleet
from vswitch_aware_scheduler import store


class ArgumentsTest(unittest.TestCase):

    def _refused(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            with self.assertRaises(SystemExit) as caught:
                demo.parser().parse_args(arguments)
        self.assertEqual(2, caught.exception.code)
        return errors.getvalue()

    def test_by_default_it_is_what_the_manual_says(self):
        arguments = demo.parser().parse_args([])
        self.assertEqual(([], 24, None, 1, 'probability', 0.01, 3),
                         (arguments.trace, arguments.hosts, arguments.vms,
                          arguments.seed, arguments.policy,
                          arguments.overload_probability, arguments.jobs))

    def test_several_traces_can_be_named(self):
        arguments = demo.parser().parse_args(['--trace', 'a', 'b', '--json'])
        self.assertEqual(['a', 'b'], arguments.trace)
        self.assertTrue(arguments.json)

    def test_values_out_of_range_are_refused(self):
        self.assertIn('4 or more', self._refused('--hosts', '3'))
        self.assertIn('expected a probability from 0 to 1',
                      self._refused('--overload-probability', '1.5'))
        self.assertIn('1 or more', self._refused('--jobs', '0'))
        self.assertIn('invalid choice', self._refused('--policy', 'best'))


class _InFolder(unittest.TestCase):

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        # What the demo leaves is for its user: not here.
        self.enterContext(mock.patch.object(tempfile, 'tempdir',
                                            self.folder))
        self.out, self.errors = io.StringIO(), io.StringIO()

    def _run(self, *arguments):
        with contextlib.redirect_stdout(self.out), \
                contextlib.redirect_stderr(self.errors):
            return demo.main(arguments)


class MainTest(_InFolder):

    def test_a_trace_that_is_not_there_is_told(self):
        self.assertEqual(1, self._run('--trace', '/no/such/trace.npz'))
        self.assertIn('/no/such/trace.npz', self.errors.getvalue())

    def test_a_cloud_that_fails_is_told(self):
        with mock.patch.object(
                clouds, 'place_all', autospec=True,
                side_effect=clouds.CloudFailed('the cloud failed: why')), \
                mock.patch.object(fleet, 'generate_trace', _few_vms):
            self.assertEqual(1, self._run())
        self.assertIn('the cloud failed: why', self.errors.getvalue())

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
        with mock.patch.object(clouds, 'place_all', place_all), \
                mock.patch.object(fleet, 'generate_trace', _few_vms):
            self.assertEqual(0, self._run('--plot', plot))
        text = self.out.getvalue()
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

        with mock.patch.object(clouds, 'place_all', place_all), \
                mock.patch.object(fleet, 'generate_trace', _few_vms):
            self.assertEqual(0, self._run('--overload-probability', '0'))
        self.assertNotIn('ebalancing', self.out.getvalue())

    def test_without_the_libraries_of_the_report_all_else_is_shown(self):
        with mock.patch.object(clouds, 'place_all', _on_first_hosts), \
                mock.patch.object(fleet, 'generate_trace', _few_vms), \
                mock.patch.dict(sys.modules, {'jinja2': None}):
            self.assertEqual(0, self._run())
        self.assertIn('No report: a report needs Jinja2',
                      self.errors.getvalue())
        self.assertNotIn('Report:', self.out.getvalue())


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
