# SPDX-License-Identifier: Apache-2.0

import csv
import io
import json
import unittest

import yaml

from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler.cmd import base as command_base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model

HOSTILE = 'a\x1b[2J\n=1+1\u202e'


class ListTestCase(command_case.ManageTestCase):
    """The arguments that all lists share, on the list of models."""

    def setUp(self):
        super().setUp()
        # host10 comes after host9; the last one is nowhere.
        self.make_store().write(
            [base.constant(number, name=f'vm{number}')
             for number in (1, 2, 3, 4)], now=base.NOW,
            placements=[store.InstanceRecord(base.instance_uuid(number), host,
                                             'small', project)
                        for number, host, project in (
                            (1, 'host10', 'p'), (2, 'host9', 'q'),
                            (3, 'host9', 'p'))])

    def _names(self, *options):
        return [model['name']
                for model in self.ask('model', 'list', *options)['models']]

    def _text(self, *options):
        return self.text('model', 'list', *options)

    def test_each_format_has_the_same_rows(self):
        expected = self.ask('model', 'list')
        for option in ('-f', '--format'):
            self.assertEqual(expected, json.loads(self._text(option, 'json')))
        self.assertEqual(expected, yaml.safe_load(self._text('-f', 'yaml')))
        rows = list(csv.DictReader(io.StringIO(self._text('-f', 'csv'))))
        table = commands.table(self._text('-f', 'table'))
        self.assertEqual(self._text(), self._text('-f', 'table'))
        self.assertEqual(len(table[0]), len(rows[0]))
        for number, model in enumerate(expected['models']):
            self.assertEqual(model['name'], rows[number]['name'])
            self.assertEqual(model['mean']['egress_kbps'],
                             float(rows[number]['mean.egress_kbps']))
            self.assertEqual(model['samples'], int(rows[number]['samples']))
            self.assertEqual([model['instance_uuid'], model['name']],
                             table[number + 1][:2])
        # Nobody knows where the last one is.
        self.assertEqual((None, '', '-'), (
            expected['models'][3]['host'], rows[3]['host'], table[4][-2]))

    def test_times_have_their_text_beside(self):
        model = self.ask('model', 'list')['models'][0]
        self.assertEqual((base.NOW, '2023-11-14T22:13:20Z'),
                         (model['updated_at'], model['updated_at_iso']))
        self.assertEqual((0.0, '1970-01-01T00:00:00Z'),
                         (model['window_start'], model['window_start_iso']))
        shown = self.ask('model', 'show', 'vm1')
        self.assertEqual('2023-11-14T22:13:20Z', shown['updated_at_iso'])

    def test_columns_are_chosen_by_header_or_by_key(self):
        for options in (('-c', 'NAME', '-c', 'MEAN EGRESS'),
                        ('-c', 'name', '-c', 'mean.egress_kbps'),
                        ('-c', 'Name', '--column', 'mean_egress')):
            self.assertEqual(['NAME', 'MEAN EGRESS Mbit/s'],
                             commands.table(self._text(*options))[0])
            self.assertEqual(
                {'name', 'mean'},
                self.ask('model', 'list', *options)['models'][0].keys())
        # A key that is no column of the table.
        self.assertEqual('FLAVOR', commands.table(self._text(
            '-c', 'flavor'))[0][0])
        self.assertEqual('flavor\nsmall\nsmall\nsmall\n""\n',
                         self._text('-f', 'csv', '-c', 'flavor'))
        self.assert_fails("column: 'nonsense'; expected one of INSTANCE, ",
                          'model', 'list', '-c', 'nonsense')

    def test_rows_are_restricted_and_sorted_those_without_a_value_last(self):
        for words, numbers in (
                ('--sort-column host', '2314'),
                ('--sort-column HOST --sort-descending', '1234'),
                ('--sort-column project --sort-column host', '3124'),
                ('--host host9', '23'), ('--host host9 --project p', '3'),
                ('--host none', ''),
                ('--limit 2 --sort-column name --sort-descending', '43')):
            self.assertEqual([f'vm{number}' for number in numbers],
                             self._names(*words.split()))

    def test_rows_are_limited(self):
        self.assertIn('\n2 of 4 models\n', self._text('--limit', '2'))
        for text in ('0', '-1', 'few'):
            self.assert_fails('expected an integer of 1 or more', 'model',
                              'list', '--limit', text, status=2)

    def test_an_empty_list_has_a_header(self):
        header, = commands.table(self._text('--host', 'none'))
        self.assertEqual('INSTANCE', header[0])
        self.assertEqual('instance_uuid', self._text(
            '--host', 'none', '-f', 'csv').split(',')[0])

    def test_what_a_tenant_writes_is_escaped_in_each_format(self):
        store.Store(self.url).write([base.constant(1, name=HOSTILE)])
        for form in ('table', 'csv', 'yaml', 'json'):
            text = self._text('-f', form)
            self.assertTrue(text.replace('\n', '').isprintable(), form)
            self.assertFalse([line for line in text.splitlines()
                              if line.startswith('=')], text)
        self.assertEqual(HOSTILE, yaml.safe_load(self._text('-f', 'yaml'))[
            'models'][0]['name'])

    def test_another_format_is_refused_before_anything_is_done(self):
        for options in (('db', 'sync'), ('model', 'show', 'vm1'),
                        ('host', 'set', 'h', 'ovs-flat')):
            self.assert_fails('format: .csv.; expected one of table, json',
                              *options, '-f', 'csv')
        self.assertEqual([], store.Store(self.url).host_profiles())
        self.assert_fails('invalid choice', 'model', 'list', '-f', 'xml',
                          status=2)


class AnswerTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.make_store().write(
            [base.constant(1, name='web')], now=base.NOW,
            host_profiles=[store.HostProfile('h1', 'ovs-flat',
                                             {'max_tunnels': 7})],
            priors=[store.Prior(
                'small', None,
                traffic_model.TrafficModel.constant(7.0).law, 3)])

    def test_every_answer_can_be_yaml_and_every_list_csv(self):
        for options in (('db', 'version'), ('model', 'show', 'web'),
                        ('prior', 'list'), ('prior', 'show', '--flavor',
                                            'small'),
                        ('profile', 'list'), ('profile', 'show', 'ovs-flat'),
                        ('host', 'list'), ('claim', 'list')):
            with self.subTest(options):
                text = self.text(*options, '-f', 'yaml')
                self.assertEqual(self.ask(*options), yaml.safe_load(text))
                if options[1] == 'list':
                    header, *rows = csv.reader(io.StringIO(
                        self.text(*options, '-f', 'csv')))
                    self.assertEqual(len(set(header)), len(header))
                    self.assertLessEqual({*map(len, rows)}, {len(header)})

    def test_integers_are_integers(self):
        [host] = self.ask('host', 'list')['hosts']
        self.assertIsInstance(host['overrides']['max_tunnels'], int)
        [prior] = self.ask('prior', 'list')['priors']
        self.assertIsInstance(prior['members'], int)


class NaturalTestCase(unittest.TestCase):

    def test_names_of_all_kinds_can_be_sorted(self):
        self.assertEqual(
            [2, 2.5, 'a', 'a2', 'a10', 'b', 'b1c'],
            sorted(['b1c', 'a10', 2.5, 'b', 'a', 2, 'a2'],
                   key=command_base.natural))

    def test_people_read_times_and_units_also_within_values(self):
        _, (cell,) = command_base.fields_of(
            {'a': [{'seen_at': base.NOW, 'egress_kbps': 1.35e6}]})
        self.assertEqual('seen_at 2023-11-14T22:13:20Z, egress 1.35 Gbit/s',
                         str(cell))
        for value, unit, text in (
                (1.35e6, 'kbit/s', '1.35 Gbit/s'),
                (600.0, 'kbit/s of egress', '0.6 Mbit/s of egress'),
                (2e6, 'kilo-packets/s', '2000000.0 kilo-packets/s'),
                (3, 'networks', '3 networks'), (.0123, None, '0.0123')):
            self.assertEqual(text, command_base.amount(value, unit))
