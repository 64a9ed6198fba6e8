# SPDX-License-Identifier: Apache-2.0
"""The rights of a scheduler's database user, as the manual lists them."""

import ast
import dataclasses
import pathlib
import re

import sqlalchemy as sa

from tests.fakes import store as fake_store
from tests.fakes import store_accounts
from tests.unit.store import base
from vswitch_aware_scheduler import store

ROOT = pathlib.Path(__file__).resolve().parents[3]

_WRITES = re.compile(r'(INSERT) INTO (\w+)|(UPDATE) (\w+) SET|'
                     r'(DELETE) FROM (\w+)')

WORKER = store.Worker('ctl1:7', 'ctl1', base.NOW, base.NOW, {})


def _read_changes(target):
    target.read_changes(target.read_changes().generation)


def _claiming(target):
    fake_store.write_claims(target, fake_store.claim(1), fake_store.claim(3))
    # A claim of the same instance, one that has expired, and a withdrawal.
    fake_store.write_claims(
        target, fake_store.claim(1, token='t-2'),
        fake_store.claim(2, age_seconds=1e6), withdrawn=[fake_store.claim(3)])


def _read_claims(target):
    target.read_claims(target.read_claims().seen)


def _write_decisions(target):
    target.write_decisions([fake_store.decision(1, 1e9)])


def _report_worker(target):
    target.report_worker(WORKER)
    # The first worker has not reported for two days.
    target.report_worker(dataclasses.replace(
        WORKER, name='ctl1:8', seen_at=base.NOW + 2 * 86400))


#: {method of the store that schedulers call: a call with every effect}, in an
#: order in which there is something to purge.
CALLS = {
    'read_changes': _read_changes,
    'claiming': _claiming,
    'read_claims': _read_claims,
    'purge_claims': lambda target: target.purge_claims(10**9),
    'write_decisions': _write_decisions,
    'purge_decisions': lambda target: target.purge_decisions(0, 1.0),
    'report_worker': _report_worker,
    'modelers': lambda target: target.modelers(),
}


def granted(language):
    """Return {right: set of the tables} of the statements for a database."""
    rights = {}
    for statement in store_accounts.statements(language):
        grant = re.fullmatch(r'GRANT ([A-Z, ]+) ON (.+) TO .*', statement)
        if grant is None or grant[1] in ('CONNECT', 'USAGE'):
            continue
        names = [name.removeprefix('vswitch.') for name in grant[2].replace(
            'ALL TABLES IN SCHEMA public', '*').split(', ')]
        for right in grant[1].split(', '):
            rights.setdefault(right, set()).update(names)
    return rights


class RightsTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.written = {}        # right -> tables
        sa.event.listen(sa.Engine, 'before_cursor_execute', self.execute_one)
        self.addCleanup(sa.event.remove, sa.Engine, 'before_cursor_execute',
                        self.execute_one)

    def execute_one(self, connection, cursor, statement, *_):
        for match in _WRITES.finditer(statement):
            right, table = filter(None, match.groups())
            for each in (right, *(['UPDATE'] if 'ON CONFLICT' in statement
                                  else [])):
                self.written.setdefault(each, set()).add(table)

    def test_these_are_the_calls_of_schedulers(self):
        called = set()
        for path in (ROOT / 'vswitch_aware_scheduler/scheduler').glob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and getattr(
                        node.value, 'attr', None) == '_store':
                    called.add(node.attr)
        self.assertEqual(CALLS.keys(), called)

    def test_the_page_has_the_rights_that_these_calls_need(self):
        for call in CALLS.values():
            call(self.store)
        for language in ('mysql', 'postgresql'):
            self.assertEqual({'SELECT': {'*'}, **self.written},
                             granted(language), language)
