# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine

TICK = os.sysconf('SC_CLK_TCK')


class TestCpu(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.proc = pathlib.Path(directory)

    def _write(self, total, processes):
        """total: seconds by column; processes: {pid: (parent, own, ended)}."""
        cells = ' '.join(str(round(value * TICK)) for value in total)
        (self.proc / 'stat').write_text(
            f'cpu  {cells}\ncpu0 {cells}\ncpu1 {cells}\nintr 5\n')
        for pid, (parent, own, ended, *flags) in processes.items():
            (self.proc / str(pid)).mkdir(exist_ok=True)
            (self.proc / str(pid) / 'stat').write_text(
                f'{pid} (a) b (c) S {parent} 0 0 0 0 {(flags or [0])[0]} '
                f'0 0 0 0 {round(own * TICK)} 0 {round(ended * TICK)} 0 '
                f'20 0 1 0 99 ')

    def _read(self, clock, **options):
        return machine.read_cpu(10, proc=str(self.proc), clock=lambda: clock,
                                **options)

    def test_ours_others_and_steal_are_told_apart(self):
        # user nice system idle iowait irq softirq steal
        self._write([10, 0, 10, 0, 0, 0, 5, 0], {
            10: (1, 1, 0), 11: (10, 2, 0), 12: (11, 1, 0), 20: (1, 5, 0)})
        earlier = self._read(100.0, switches=[12])
        # 2 s on: ours 1.5 s more, others 1 s, another machine 0.5 s.
        self._write([12, 0, 10.5, 0, 0, 0, 5.5, .5], {
            10: (1, 1, 0), 11: (10, 3, 0), 12: (11, 1.5, 0), 20: (1, 6, 0)})
        use = machine.CpuUse.between(earlier, self._read(102.0, switches=[12]))
        self.assertAlmostEqual((1 + .5) / (2 * 2), use.others_share)
        self.assertAlmostEqual(3 / 2, use.busy_cores)
        self.assertAlmostEqual((3 - 1) / 2, use.our_cores)
        self.assertAlmostEqual((.5 + .5) / 2, use.switch_cores)

    def test_a_child_that_ended_meanwhile_stays_with_its_parent(self):
        self._write([0] * 8, {10: (1, 0, 0), 11: (10, 1, 0), 20: (1, 0, 0),
                              21: (20, 1, 0)})
        earlier = self._read(0.0)
        for pid in (11, 21):
            (self.proc / str(pid) / 'stat').unlink()
        self._write([0] * 8, {10: (1, 0, 3), 20: (1, 0, 2)})
        use = machine.CpuUse.between(earlier, self._read(1.0))
        # Of the others 2 - 1 = 1 s, of two cores for one second.
        self.assertAlmostEqual(.5, use.others_share)

    def test_threads_of_the_kernel_are_nobodys(self):
        self._write([0] * 8, {10: (1, 0, 0), 2: (0, 0, 0, 0x00200000)})
        earlier = self._read(0.0)
        self._write([0] * 8, {10: (1, 0, 0), 2: (0, 9, 0, 0x00200000)})
        self.assertEqual(0, machine.CpuUse.between(
            earlier, self._read(1.0)).others_share)

    def test_the_real_proc_is_read(self):
        earlier = machine.read_cpu()
        child = subprocess.run(
            [sys.executable, '-c', 'x = sum(range(10 ** 7))'])
        later = machine.read_cpu()
        self.assertEqual(0, child.returncode)
        self.assertGreater(later.ours, earlier.ours)
        self.assertGreaterEqual(later.busy, earlier.busy)
        self.assertEqual(os.cpu_count(), later.cores)


class TestRun(unittest.TestCase):

    def test_a_command_that_fails_tells_what_it_said(self):
        command = ['sh', '-c', 'echo no such thing >&2; exit 3']
        with self.assertRaisesRegex(
                exceptions.CalibrationError,
                'command "sh .*": exit status 3; expected 0: no such thing'):
            machine.run(command)
        self.assertEqual(3, machine.run(command, check=False).returncode)

    def test_a_command_that_hangs_is_ended(self):
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    'not ended; expected its end within 0.2'):
            machine.run(['sleep', '30'], timeout_seconds=.2)

    def test_facts_are_words_and_values_of_a_profile(self):
        facts = machine.facts()
        self.assertEqual(os.uname().release, facts['kernel'])
        for value in facts.values():
            self.assertIsInstance(value, (str, int, float))
