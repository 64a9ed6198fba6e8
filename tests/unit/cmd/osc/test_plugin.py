# SPDX-License-Identifier: Apache-2.0

import argparse
import configparser
import contextlib
import io
import json
import os
import pathlib
import pkgutil
from unittest import mock

from cliff import lister
from cliff import show
from oslo_config import cfg

from tests.unit.cmd import command_case
from tests.unit.report import fleets
from tests.unit.store import base
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.cmd.osc import plugin
from vswitch_aware_scheduler.cmd.subcommands import decision
from vswitch_aware_scheduler.cmd.subcommands import explain
from vswitch_aware_scheduler.cmd.subcommands import fleet
from vswitch_aware_scheduler.cmd.subcommands import host
from vswitch_aware_scheduler.cmd.subcommands import model
from vswitch_aware_scheduler.cmd.subcommands import profile
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store

SETUP = pathlib.Path(__file__).parents[4] / 'setup.cfg'


def entry_points(group):
    """Return {name: what it stands for} of a group of entry points."""
    parser = configparser.ConfigParser()
    parser.read(SETUP)
    return {name.strip(): pkgutil.resolve_name(target.strip())
            for name, target in (line.split('=') for line in parser[
                'entry_points'][group].strip().splitlines())}


class CommandTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.configure_profiles(fleets.PROFILES, *fleets.OPTIONS)
        fleets.fill(self.make_store())

    def osc(self, kind, *words, config=True):
        """Return what a command prints as OpenStackClient runs it."""
        app = mock.Mock(options=argparse.Namespace(
            vswitch_config_file=self.config if config else None))
        app.stdout = io.StringIO()
        command = kind(app, None, cmd_name='vswitch')
        parser = command.get_parser('openstack vswitch')
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(0, command.run(parser.parse_args(words)))
        self.below = printed.getvalue()
        if '-f' in words:
            self.assertEqual('', self.below)
        return app.stdout.getvalue()

    def json(self, kind, *words):
        return json.loads(self.osc(kind, *words, '-f', 'json'))


class ListsTestCase(CommandTestCase):

    def test_the_fleet_is_that_of_the_other_command(self):
        rows = self.json(fleet.List)
        expected = self.ask('fleet')['hosts']
        self.assertEqual([row['host'] for row in expected],
                         [row['Host'] for row in rows])
        self.assertEqual([row['overload_probability'] for row in expected],
                         [row['P(Overload)'] for row in rows])

    def test_what_is_not_known_is_empty_and_sorted_last(self):
        self.make_store().write(host_profiles=[store.HostProfile(
            'other', 'nobody knows', source='operator')], now=base.NOW)
        rows = self.json(fleet.List, '--sort-column', 'Used')
        self.assert_holds(rows[-1], Host='other', Used=None)
        text = self.osc(fleet.List, '-f', 'csv', '-c', 'Host', '-c',
                        'Used', '--sort-column', 'Host')
        self.assertIn('"other",""', text.splitlines()[-1])

    def test_every_other_list_has_rows(self):
        for kind, arguments, count in (
                (host.List, (), 3), (decision.List, (), 6),
                (explain.Explain, ('--server', base.instance_uuid(1)), 3)):
            self.assertEqual(count, len(self.json(kind, *arguments)), kind)
        self.assertIn('own', [row['Name'] for row in self.json(
            profile.List)])

    def test_checks_and_advice_stand_below_the_table_for_people(self):
        self.osc(explain.Explain, '--server', base.instance_uuid(1),
                 '--host', 'h1')
        for part in ('CHECK ', 'overload probability', 'is_there: '):
            self.assertIn(part, self.below)
        self.osc(explain.Explain, '--flavor', 'none')
        self.assertIn("- the store has no flavor 'none'", self.below)

    def test_what_a_terminal_would_obey_is_escaped_for_people(self):
        self.make_store().write([base.constant(1, 5.0, name='a\x1b[2Jb')],
                                now=base.NOW)
        self.assertNotIn('\x1b', self.osc(model.List))

    def test_one_thing_is_shown_with_its_fields(self):
        host = self.json(fleet.Show, 'h1')
        self.assertEqual(('h1', 10), (host['host'], host['instances']))
        self.assertEqual(10, len(host['instances_on_host']))
        host = self.json(model.Show, base.instance_uuid(3))
        self.assertEqual(('vm-3', 2), (host['name'], host['states']))
        self.assertEqual(350.0, self.json(profile.Show, 'own')[
            'saturation_kbps'])
        self.assertEqual(base.instance_uuid(2), self.json(
            decision.Show, base.instance_uuid(2))['instance_uuid'])

    def test_a_list_of_things_has_a_line_for_each(self):
        lines = self.osc(fleet.Show, 'h1').split('\n')
        uuids = {shown['instance_uuid'] for shown in self.json(
            fleet.Show, 'h1')['instances_on_host']}
        self.assertEqual(10, len(uuids))
        for uuid in uuids:
            line, = [line for line in lines if uuid in line]
            self.assertIn('mean (egress 0.01 Mbit/s', line)
            self.assertNotIn('None', line)

    def test_what_is_not_there_is_said(self):
        for kind, arguments, text in (
                (fleet.Show, ['nowhere'], 'nowhere'),
                (model.Show, ['--', '-x'], '-x'),
                (profile.Show, ['none'], "profile: 'none'")):
            with self.subTest(words=arguments), \
                    self.assertRaisesRegex(exceptions.VSwitchError, text):
                self.osc(kind, *arguments)


class ConfigurationTestCase(CommandTestCase):

    def test_without_a_file_it_says_where_it_works(self):
        with mock.patch.object(cfg, 'find_config_files',
                               return_value=[]), \
                self.assertRaisesRegex(
                    exceptions.InvalidInput,
                    '--vswitch-config-file: not given; .*no API server'):
            self.osc(fleet.List, config=False)

    def test_a_file_that_cannot_be_read_is_named(self):
        self.config = os.path.join(self.directory, 'missing.conf')
        with self.assertRaisesRegex(exceptions.InvalidInput,
                                    "missing.conf'; expected a readable"):
            self.osc(fleet.List)


class PluginTestCase(command_case.ManageTestCase):

    def test_every_command_is_an_entry_point_that_needs_no_login(self):
        entries = entry_points('openstack.vswitch.v1')
        of_manage = entry_points(manage.GROUP).values()
        for name, kind in entries.items():
            self.assertTrue(name.startswith('vswitch_'), name)
            self.assertTrue(issubclass(kind, (lister.Lister, show.ShowOne)))
            self.assertIs(False, kind.auth_required)
            self.assertIn(kind, of_manage)

    def test_the_plugin_has_what_openstackclient_asks_for(self):
        self.assertEqual({'vswitch': plugin},
                         entry_points('openstack.cli.extension'))
        parser = plugin.build_option_parser(argparse.ArgumentParser())
        options = parser.parse_args(['--vswitch-config-file', 'x'])
        self.assertEqual('x', plugin.make_client(
            mock.Mock(_cli_options=options)))
        with mock.patch.dict(os.environ, {'VSWITCH_CONFIG_FILE': 'y'}):
            parser = plugin.build_option_parser(argparse.ArgumentParser())
        self.assertEqual('y', parser.parse_args([]).vswitch_config_file)
