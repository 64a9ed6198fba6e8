# SPDX-License-Identifier: Apache-2.0
"""A damaged row costs itself only, whatever its damage."""

import contextlib
import logging
import os
import re
import shutil
import sqlite3
import time
import unittest

import numpy as np
from oslo_config import cfg
import sqlalchemy as sa

from tests.fakes import store as fake_store
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.cmd import status
from vswitch_aware_scheduler.cmd.subcommands import report
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import facts
from vswitch_aware_scheduler.store import plans
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.vswitch import attachments

DEEP = 100_000

#: What JSON text may have instead of an object.
JSON = ['[' * DEEP, '{"a":' * DEEP, '[' * 900 + ']' * 900,
        '{"a":' * 900 + '1' + '}' * 900, '', 'null', '1', '"text"', '[]',
        '[[]]', '[1]', '{}', '{"a": 1}', '{"a": {"b": [null]}}', 'tr', '{',
        'NaN', '[NaN]', '{"3600": 1e999}', '1' * 5000, '9' * 400, '-1',
        '{"rules": null}', '"\\ud800"', '{"\\ud800": "\\ud800"}', '\ufeff{}',
        '{"hosts": [1], "refused": 1, "nearest": 1, "chosen": 1}']
TEXT = ['', 'x' * 100_000, '\0', '\x1b[2J', 'a\nb', '\U0001f600', b'\xff\xfe',
        b'', 5, -1.5]
NUMBERS = [-1, 0, 1, 1e308, -1e308, float('inf'), float('-inf'), 2 ** 62,
           -2 ** 62, 'text', '', b'\xff', 0.5]
BYTES = [b'', b'\0', b'\x03', b'\x03' + bytes(32), b'\xff' * 100, b'\x07',
         b'\x08' * 64, 'text', 5, 1e308]

JSON_COLUMNS = {'body', 'burn', 'limits', 'model', 'networks', 'overrides',
                'prediction', 'refused', 'state', 'value'}

#: A store is one whole by these rows: without them, it cannot be used.
ONE_ROW = {'generation', 'secret', 'claim_counter'}


class DecodeTestCase(unittest.TestCase):

    def test_what_was_written_is_read(self):
        self.assertEqual({'a': [1, 2.5, None, True, 'ä']}, damage.decode(
            '{"a": [1, 2.5, null, true, "\\u00e4"]}', {'a': list}))
        self.assertEqual([], damage.decode('[]', list))
        self.assertEqual(
            [{'a': 1, 'b': 2}],
            damage.decode('[{"a": 1, "b": 2}]', [{'a': int}]))
        self.assertEqual({'x': 1}, damage.decode('{"x": 1}', {str: float}))
        self.assertIsNone(damage.decode('null', (None, dict)))

    def test_everything_else_is_damaged(self):
        for text in [*JSON, None, 5, b'\xff', '{"a": "1"}', '{"a": true}',
                     '{"b": 1}']:
            if text != '{"a": 1}':
                with self.assertRaises(damage.Damaged, msg=str(text)[:50]):
                    damage.decode(text, {'a': int})


class EveryColumnTestCase(base.StoreTestCase):
    """Every column of every table, damaged in every way."""

    def setUp(self):
        super().setUp()
        self.now = time.time()
        logging.getLogger('vswitch_aware_scheduler').setLevel(
            logging.CRITICAL)
        self.addCleanup(
            logging.getLogger('vswitch_aware_scheduler').setLevel,
            logging.NOTSET)
        self._fill()
        self.config = os.path.join(self.directory, 'vswitch.conf')
        with open(self.config, 'w') as config:
            config.write(f'[vswitch_scheduler]\nstore_url = {self.url}\n')
        self.whole = self.path + '.whole'
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
        shutil.copy(self.path, self.whole)

    def _fill(self):
        """Write two rows of each kind: one that is damaged, and another."""
        target, now = self.store, self.now
        uuids = [base.instance_uuid(number) for number in range(1, 9)]
        wired = attachments.Attachments(('n1',), ('n2',), 1)
        target.write(
            [base.fitted(1), base.fitted(2)],
            unmodelled=[store.Unmodelled(uuids[number], base.fitted(
                1).counts) for number in (2, 3)],
            host_profiles=[store.HostProfile(
                host, 'ovs-vxlan', {'saturation_kbps': 5.0})
                for host in ('h1', 'h2')],
            placements=[store.InstanceRecord(
                uuid, 'h1', 'f', 'p', wired, True, (1.0, 2.0, 3.0))
                for uuid in uuids], now=now - 60,
            inventory=store.InventoryState('nova', now, now),
            priors=[store.Prior('f', name, base.constant(1).model.law, 5.0)
                    for name in ('p', None)])
        target.write(remove=[uuids[6]], remove_hosts=['h9'],
                     remove_placements=uuids[5:7], now=now)
        fake_store.write_claims(target, *(fake_store.claim(
            number, attachments=wired, guaranteed=(1.0, 2.0, 3.0))
            for number in (1, 2)))
        for name in ('m1', 'm2'):
            target.report_modeler(store.Modeler(
                name, name, now, now, False, 60.0, 1, now, 'good',
                'nothing', now, {'enforcement': 'observe'}))
            target.report_worker(store.Worker(name, name, now, now, {
                'plugins': ['VSwitchFilter'], 'models': 2,
                'cells': {'cell1': 1.0}, 'claims': {'a': 1},
                'options': {'store_url': 'x'}, 'max_placement_results': 1000,
                'problems': {'a': 'b'}}))
        target.write_fleet({
            kind: {name: {'name': name, 'metadata': {}, 'hosts': ['h1']}
                   for name in ('1', '2')}
            for kind in facts.FLEET_KINDS}, now)
        target.write_decisions([fake_store.decision(number)
                                for number in (1, 2)])
        budgets = [fake_store.budget(
            host, until=now, balance=-1.0, burn={'3600': 1.0},
            prediction=store.Prediction(.1)) for host in ('h1', 'h2')]
        target.settle_budgets(
            store.BudgetState(300.0, now),
            [(None, each) for each in budgets], [store.StoredSums(
                store.HOST, host, 5, 300.0, (((1.0, 1.0, 0.0), 800.0, 5.0),),
                b'123') for host in ('h1', 'h2')],
            charges=[store.Charge(store.HOST, host, uuids[0], 5, 'p1', 7.0)
                     for host in ('h1', 'h2')],
            vm_times=[store.VMTime(project, 5, 900.0, 3.0)
                      for project in ('p1', 'p2')])
        for modeler in ('m1', 'm2'):
            target.write_measured_rates(modeler, [store.Measured(
                300.0, 10, uuids[:2], np.zeros(2), np.ones(2, bool),
                np.ones((2, 3)), np.ones((2, 3, 3)))], now)
        for plan in ('p1', 'p2'):
            plans.write_plan(
                target, store.PlanRecord(plan, now, 'test'),
                [store.MoveRecord(plan, 0, uuids[0], 'h1', 'h2',
                                  body={'reason': 'debt'})])

    def _readers(self, target):
        """Return {name: function that reads}."""
        uuids = [base.instance_uuid(number) for number in range(1, 9)]
        changes = {}

        def updated():
            changes['all'] = target.read_changes()
            return snapshot.Snapshot().updated(changes['all'])

        return {
            'updated': updated, 'claims': target.read_claims,
            'unreadable': target.unreadable_models,
            'damaged': target.damaged, 'has': target.has_models,
            'chains': lambda: target.chains(uuids),
            'models': target.models, 'profiles': target.host_profiles,
            'points': target.resume_points,
            'learned': lambda: target.learned(uuids),
            'placements': target.placements, 'projects': target.projects,
            'inventory': target.inventory, 'former': target.former_instances,
            'times': target.model_times, 'seconds': target.measured_seconds,
            'priors': target.priors, 'laws': lambda: target.laws(uuids),
            'modelers': target.modelers, 'workers': target.workers,
            **{kind: (lambda kind=kind: target.fleet(kind))
               for kind in facts.FLEET_KINDS},
            'decisions': target.decisions, 'budgets': target.error_budgets,
            'state': target.budget_state, 'rates': target.measured_rates,
            'charges': target.charges, 'vm_times': target.vm_times,
            'stays': target.stays,
            'sums': lambda: target.sum_history(store.HOST),
            'plans': target.plans, 'moves': target.moves}

    def _damage(self, table, column, value):
        """Damage one row of a table."""
        shutil.copy(self.whole, self.path)
        for end in ('-wal', '-shm'):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + end)
        connection = sqlite3.connect(self.path)
        if isinstance(value, str):
            value = value.encode('utf-8', 'surrogatepass')
            place = 'CAST(? AS TEXT)'
        else:
            place = '?'
        try:
            with connection:
                connection.execute('PRAGMA ignore_check_constraints=ON')
                connection.execute(
                    f'UPDATE {table} SET {column} = {place} WHERE rowid = '
                    f'(SELECT min(rowid) FROM {table})', (value,))
        except (OverflowError, sqlite3.IntegrityError):
            return False
        finally:
            connection.close()
        return True

    def _ways(self):
        """Yield (table, column, value)."""
        for table in tables.metadata.sorted_tables:
            for column in table.columns:
                kind = type(column.type).__name__
                values = {
                    'String': TEXT,
                    'Text': JSON if column.name in JSON_COLUMNS else TEXT,
                    'Double': NUMBERS, 'Integer': NUMBERS,
                    'BigInteger': NUMBERS, 'Boolean': NUMBERS}.get(
                        kind, BYTES)
                yield from ((table.name, column.name, value)
                            for value in values)
                if column.nullable:
                    yield table.name, column.name, None

    def _rows(self, answer):
        try:
            return len(answer)
        except TypeError:
            return 0

    def test_a_damaged_row_costs_itself_only(self):
        target = store.Store(self.url)
        whole, tables_of = {}, {}
        for name, read in self._readers(target).items():
            statements = []
            engine = target._engine()
            sa.event.listen(engine, 'before_cursor_execute',
                            lambda *arguments, kept=statements: kept.append(
                                arguments[2]))
            whole[name] = self._rows(read())
            text = ' '.join(statements)
            tables_of[name] = {table for table in tables.metadata.tables
                               if re.search(rf'\b{table}\b', text)}
        engine.dispose()
        failed, seen = {}, 0
        for way in self._ways():
            if not self._damage(*way):
                continue
            seen += 1
            target = store.Store(self.url)
            for name, read in self._readers(target).items():
                if way[0] not in tables_of[name]:
                    continue
                problem = None
                try:
                    rows = self._rows(read())
                    if name != 'damaged' and rows < whole[name] - 1:
                        problem = f'{rows} of {whole[name]} rows'
                except Exception as error:
                    problem = repr(error)[:200]
                    if not isinstance(error, exceptions.StoreError):
                        problem = f'not a StoreError: {problem}'
                if problem and (way[0] not in ONE_ROW
                                or problem.startswith('not')):
                    failed.setdefault((way[0], way[1], name), []).append(
                        (repr(way[2])[:30], problem))
            for engine in target._engines.values():
                engine.dispose()
        self.assertGreater(seen, 1000)
        self.assertEqual({}, failed, '\n'.join(
            f'{key}: {len(ways)} {ways[0]}' for key, ways in failed.items()))

    def test_commands_say_what_is_damaged(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        conf(['--config-file', self.config])
        check = (status.main, 'check')
        list_claims = (manage.main, 'claim', 'list')
        for table, column, *calls in (
                ('decision', 'body', check, (manage.main, 'decision', 'list')),
                ('claim', 'networks', check, list_claims),
                ('claim', 'law', check, list_claims),
                ('rebalance_move', 'body', check),
                ('fleet_fact', 'value', check, (manage.main, 'fleet')),
                ('worker', 'state', check)):
            for value in JSON[::3]:
                self._damage(table, column, value)
                for main, *words in calls:
                    code, output, errors = commands.run(
                        main, ['--config-file', self.config, *words])
                    self.assertNotIn('Traceback', output + errors)
                    self.assertNotIn('RecursionError', output + errors)
                    if main is manage.main:
                        self.assertEqual(0, code, (
                            table, column, value[:30], words, errors))
                target = store.Store(self.url)
                answer = report.make_report(
                    report.read_contents(conf[options.GROUP], target), target,
                    report.limits(5, 24.0), None)
                self.assertIsNotNone(answer)
