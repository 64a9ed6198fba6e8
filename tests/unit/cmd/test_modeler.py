# SPDX-License-Identifier: Apache-2.0

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler.cmd import modeler
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.telemetry import file as telemetry_file


class ModelerCommandTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.config = os.path.join(self.directory, 'vswitch.conf')
        self.trace = os.path.join(self.directory, 'trace.csv')
        self.configure()

    def configure(self, *lines, reads_files=True):
        pathlib.Path(self.config).write_text('\n'.join([
            '[vswitch_scheduler]', f'store_url = {self.url}',
            *(['telemetry_driver = file', f'telemetry_path = {self.trace}']
              if reads_files else []), *lines]))

    def record(self, samples, *more):
        lines = ['instance,time,egress_kbps,ingress_kbps']
        for at in range(samples):
            time_ = 1_700_000_100 + 300 * at
            lines += [f'web,{time_},{at % 7 + 1},2', f'idle,{time_},0,0']
        pathlib.Path(self.trace).write_text('\n'.join([*lines, *more]) + '\n')

    def run_command(self, *words, terminal=False):
        """Return (status, stdout, stderr) of the command."""
        return commands.run(
            modeler.main, ['--config-file', self.config, *words], terminal)

    def assert_fails(self, message, *words):
        status, output, errors = self.run_command(*words)
        self.assertEqual((1, '', 1), (status, output, errors.count('\n')))
        self.assertRegex(errors, f'^vswitch-modeler: .*{message}')

    @contextlib.contextmanager
    def _service(self, **environment):
        """Run the service; SIGTERM after the block has to end it.

        Yield the process and the path of its log.
        """
        log = pathlib.Path(self.directory, 'log')
        with open(log, 'wb') as file:
            process = subprocess.Popen(
                [sys.executable, '-m', 'vswitch_aware_scheduler.cmd.modeler',
                 '--config-file', self.config],
                env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                stdout=file, stderr=file)
        try:
            yield process, log
            process.send_signal(signal.SIGTERM)
            self.assertEqual(0, process.wait(120))
        finally:
            process.kill()
            process.wait()

    def test_once_learns_what_is_new_and_says_what_it_did(self):
        self.record(40)
        status, output, errors = self.run_command('--once')
        self.assertEqual((0, 'vswitch-modeler: no traffic: idle\n'),
                         (status, errors))
        self.assertIn('New samples:      80\n', output)
        status, output, errors = self.run_command('--once')
        self.assertEqual((0, ''), (status, errors))
        self.assertIn('1, as before: nothing is new', output)
        self.record(45)
        status, output, _ = self.run_command('--once', '--json')
        answer = json.loads(output)
        self.assertEqual((0, 2, 10, 1, 1), (
            status, answer['generation'], answer['samples'], answer['fitted'],
            answer['waiting']))
        self.assertEqual({'no traffic': 1}, answer['reasons'])
        uuid = telemetry_file.instance_uuid('web')
        record = store.Store(self.url).model(uuid)
        self.assertEqual('web', record.name)
        # Forty samples, half of which would count after thirty days.
        self.assertAlmostEqual(40 * 0.5 ** (1500 / 86400 / 30) + 5,
                               record.samples, 9)

    def test_once_makes_all_steps_of_a_pass(self):
        self.record(40)
        self.run_command('--once')
        now = time.time()
        store.Store(self.url).report_worker(store.Worker(
            'ctl1:7', 'ctl1', now, now, {'options': {'enforcement': 'off'}}))
        status, _, errors = self.run_command('--once')
        self.assertEqual(0, status)
        self.assertIn('in nova.conf of ctl1', errors)

    def test_a_terminal_sees_a_bar(self):
        self.record(40)
        _, _, errors = self.run_command('--once', terminal=True)
        # How often it is drawn depends on the time that has passed.
        self.assertRegex(errors, r'learning: +\d+%\|.*\|')

    def test_an_error_is_one_line_and_status_1(self):
        self.record(40, 'web,soon,1,1')
        for message, lines in (
                ('line 82: time:', ()),
                ('telemetry driver: \'nosuch\'; expected one of',
                 ['telemetry_driver = nosuch']),
                ('min_samples .* equal to 2', ['min_samples = 1'])):
            self.configure(*lines)
            self.assert_fails(message, '--once')
        self.assert_fails('--json: given without --once', '--json')
        self.assertEqual(2, self.run_command('--twice')[0])

    def test_the_service_runs_reloads_and_ends_by_signals(self):
        self.record(40)
        self.configure('modeler_interval_seconds = 10')
        with self._service() as (process, log):
            self._wait_for(log, 'generation 1: 80 new samples')
            self.configure('modeler_interval_seconds = 20')
            process.send_signal(signal.SIGHUP)
            self._wait_for(log, 'has read its configuration: .* every 20 s')
            os.rename(self.trace, self.trace + '.away')
            process.send_signal(signal.SIGHUP)
            self._wait_for(log, 'models stay as they are: .* does not exist')
            os.rename(self.trace + '.away', self.trace)
            process.send_signal(signal.SIGHUP)
            self._wait_for(log, 'is well again after ')
        text = log.read_text()
        self.assertIn('has ended after ', text)
        self.assertNotIn('Traceback', text)
        self.assertEqual(1, text.count('does not exist'), text)
        self.assertEqual(1, store.Store(self.url).generation().number)

    def test_an_unconfigured_service_waits_until_it_is_configured(self):
        # As a file that was only made for the commands.
        self.configure(reads_files=False)
        self.record(40)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.bind(os.path.join(self.directory, 'notify'))
        listener.settimeout(120)
        with self._service(
                NOTIFY_SOCKET=listener.getsockname()) as (process, log):
            self.assertIn(b'READY=1', listener.recv(4096))
            while b'STATUS=waiting: ' not in listener.recv(4096):
                pass
            self._wait_for(log, r'WARNING .* neither '
                           r'endpoint_override nor auth_type is '
                                r'set in the group \[vswitch_gnocchi\]')
            self.configure('modeler_interval_seconds = 10')
            process.send_signal(signal.SIGHUP)
            self._wait_for(log, 'generation 1: 80 new samples')
        self.assertNotIn('Traceback', log.read_text())

    def test_what_is_misspelt_ends_the_service_with_an_error(self):
        for lines, message in (
                ('telemetry_driver = gnochi', "'gnochi'; expected one of"),
                ('telemetry_drver = file', 'telemetry_drver; expected '
                                           'telemetry_driver'),
                ('[vswitch_gnocchi]\nendpoint = http://x',
                 'endpoint; expected endpoint_override'),
                ('[vswitch_gnocchi]\nendpoint_override = htp://x', 'htp://x'),
                ('modeler_interval_seconds = often', 'often')):
            self.configure(lines, reads_files=False)
            self.assert_fails(message)

    def test_a_single_pass_is_reported_and_does_not_wait(self):
        self.record(40)
        self.assertEqual(0, self.run_command('--once')[0])
        modeler, = store.Store(self.url).modelers()
        self.assertEqual((1, True, None), (modeler.passes, modeler.ended,
                                           modeler.interval_seconds))
        self.assertIn('80 new samples', modeler.outcome)
        self.configure(reads_files=False)
        self.assert_fails('neither endpoint_override nor auth_type is set',
                          '--once')

    def _wait_for(self, log, words):
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with contextlib.suppress(AssertionError):
                self.assertRegex(log.read_text(), words)
                return
            time.sleep(0.1)
        self.assertRegex(log.read_text(), words)
