# SPDX-License-Identifier: Apache-2.0

import argparse
import os
import pathlib
import signal
import stat
import threading
from unittest import mock
import urllib.request

from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from tests.unit.report import fleets
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import report as serve
from vswitch_aware_scheduler.cmd.subcommands import report
from vswitch_aware_scheduler.report import server


class ReportCommandTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.configure_profiles(fleets.PROFILES, *fleets.OPTIONS)
        fleets.fill(self.make_store())
        self.path = os.path.join(self.directory, 'report.html')

    def read(self):
        return pathlib.Path(self.path).read_text(encoding='utf-8')

    def test_a_page_is_written_for_its_owner_alone(self):
        self.assertEqual(f'Wrote {self.path}: 3 hosts, 0 of them above their '
                         f'limit, 11 instances.\n',
                         self.text('report', '--html', self.path))
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path).st_mode))
        self.assertIn('Virtual switches', self.read())

    def test_the_policy_in_the_store_comes_before_the_options(self):
        self.make_store().write_fleet({'host': {'h1': {
            'profile': {'name': 'other', 'saturation_kbps': 150.0},
            'policy': 'probability', 'overload_probability': .01,
            'uplinks': []}}}, 1.0)
        answer = self.ask('report', '--html', self.path)
        self.assertEqual(1, answer['summary']['above'])
        self.assertRegex(self.read(),
                         r'<li>policies of hosts are \d+ s old;')

    def test_hosts_are_those_of_the_command_fleet(self):
        opened = self.make_store()
        conf = context.configuration(argparse.Namespace(
            config_file=[self.config], store=None))
        by_host = {row['host']: row for row
                   in report.read_contents(conf.vswitch_scheduler,
                                           opened).hosts}
        rows = self.ask('fleet')['hosts']
        self.assertEqual(by_host.keys(), {row['host'] for row in rows})
        for row in rows:
            of_report = by_host[row['host']]
            self.assertEqual(row['instances'], of_report['instances'])
            for key in ('overload_probability', 'utilisation'):
                self.assertEqual(row[key], of_report[key])

    def test_what_is_wrong_is_said_in_one_line(self):
        for options, text in (
                (['--html', self.path, '--details', '-1'], '--details: -1; '),
                (['--html', self.path, '--stale-hours', 'nan'],
                 '--stale-hours: nan; expected'),
                (['--html', os.path.join(self.directory, 'no', 'x.html')],
                 'No such file or directory')):
            self.assert_fails(text, 'report', *options)
        self.assertEqual([], [name for name in os.listdir(self.directory)
                              if name.startswith('.report')])

    def test_standard_output_gets_nothing_but_the_page(self):
        output = self.text('report', '--html', '-')
        self.assertTrue(output.startswith('<!DOCTYPE html>'))
        self.assertTrue(output.endswith('</html>\n'))
        # As in a file: its policy has the hashes of what is in it.
        self.text('report', '--html', self.path)
        for part in ('style', 'script'):
            self.assertEqual(*(
                text.partition(f'<{part}>')[2].partition(f'</{part}>')[0]
                for text in (output, self.read())))

    def _serve(self, *words):
        return commands.run(serve.main, ['--config-file', self.config,
                                         *words])

    def test_the_page_is_served_until_the_process_is_ended(self):
        pages, urls = [], []

        def ask(serving):
            try:
                with urllib.request.urlopen(serving.url, timeout=60) as page:
                    pages.append(page.read().decode())
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        class Server(server.ReportServer):
            def serve_forever(self):
                urls.append(self.url)
                threading.Thread(target=ask, args=[self]).start()
                super().serve_forever(.01)

        pathlib.Path(self.config).write_text(
            '[vswitch_scheduler]\nstore_url = sqlite:////none\n')
        with mock.patch.object(server, 'ReportServer', Server):
            status, output, errors = self._serve('--port', '0', '--store',
                                                 self.url)
        self.assertEqual((0, ''), (status, errors))
        self.assertEqual(f'The report is at {urls[0]}\n', output)
        self.assertIn('h1', pages[0])

    def test_wrong_options_are_refused(self):
        listener = server.ReportServer('127.0.0.1', 0, None)
        self.addCleanup(listener.server_close)
        for option, value, message in (
                ('--address', '0.0.0.0',
                 "address: '0.0.0.0'; expected a loopback"),
                ('--port', str(listener.server_port),
                 'set a free port with --port')):
            status, _, errors = self._serve(option, value)
            self.assertEqual(1, status)
            self.assertIn(message, errors)
