# SPDX-License-Identifier: Apache-2.0
import json
import sys
import unittest
from unittest import mock

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.demo import replay
from vswitch_aware_scheduler.lab.demo import report
from vswitch_aware_scheduler.vswitch import profile

PROFILES = {'slow': profile.SwitchProfile(name='slow', saturation_kbps=100),
            'fast': profile.SwitchProfile(name='fast', saturation_kbps=1000)}
HOSTS = [('a', 'slow'), ('b', 'fast')]
# 20 samples; 'x' asks for twice what a slow switch carries in 4 of them.
RATES = {'x': np.array([(200.0, 0.0)] * 4 + [(10.0, 0.0)] * 16),
         'y': np.array([(0.0, 50.0)] * 20)}


def _replays(ours):
    return {'before': replay.replay({'x': 'a', 'y': 'b'}, RATES, HOSTS,
                                    PROFILES),
            'after': replay.replay(ours, RATES, HOSTS, PROFILES)}


class TablesTest(unittest.TestCase):

    def test_the_tables_tell_the_figures_of_both_policies(self):
        text = report.tables(_replays({'x': 'b', 'y': 'a'}))
        rows = {line.split('  ')[0].strip(): line.split()
                for line in text.splitlines()}
        self.assertEqual(['4', '0'],
                         rows['overloaded host-samples'][-2:])
        # 4 of 40 host-samples, and 4 of 20 on the one host.
        self.assertEqual(['10.00', '%', '0.000', '%'],
                         rows['time overloaded, mean of hosts'][-4:])
        self.assertEqual(['20.00', '%', '0.000', '%'],
                         rows['time overloaded, worst host'][-4:])
        self.assertIn('0.0000 times those of before', text)
        # x: (4 * 200 + 16 * 10) / 20 = 48 kbit/s, y: 50 kbit/s.
        self.assertIn('send 0.1 Mbit/s', text)

    def test_a_baseline_without_overload_gives_no_ratio(self):
        calm = replay.replay({'y': 'b'}, RATES, HOSTS, PROFILES)
        self.assertIsNone(report.overload_ratio(calm, calm))
        self.assertIn('none with before',
                      report.tables({'before': calm, 'after': calm}))


class AsDictTest(unittest.TestCase):

    def test_the_figures_are_json(self):
        data = json.loads(json.dumps(report.as_dict(
            _replays({'y': 'b'})), allow_nan=False))
        self.assertEqual(1, data['after']['vms_refused'])
        self.assertEqual(4, data['before']['overloaded_samples'])
        self.assertEqual(
            0.2, data['before']['by_switch_type']['slow'][
                'overloaded_share_mean'])
        self.assertEqual(['a', 'b'], [host['host'] for host
                                      in data['before']['by_host']])


class PlotTest(unittest.TestCase):

    def test_bars_of_switch_types_stand_apart_however_many_hosts(self):
        from matplotlib import pyplot
        hosts = [(f'{name}{number}', name) for name in ('slow', 'fast')
                 for number in range(3)]
        _, axes = pyplot.subplots()
        self.addCleanup(pyplot.close)
        report._plot_hosts(axes, {
            'many': replay.replay({'x': 'slow0', 'y': 'fast0'}, RATES, hosts,
                                  PROFILES),
            'few': replay.replay({'x': 'a', 'y': 'b'}, RATES, HOSTS,
                                 PROFILES)})
        bars = sorted((bar.get_x(), bar.get_x() + bar.get_width())
                      for bar in axes.patches)
        self.assertEqual(8, len(bars))
        for (_, end), (start, _) in zip(bars, bars[1:]):
            self.assertLessEqual(end, start + 1e-9)

    def test_a_missing_matplotlib_is_told(self):
        with mock.patch.dict(sys.modules, {'matplotlib': None}):
            self.assertRaises(exceptions.InvalidInput, report.plot,
                              _replays({}), 300, 'title', '/nowhere/p.png')
