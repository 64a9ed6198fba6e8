# SPDX-License-Identifier: Apache-2.0
"""Faults of the store, on SQLite and on servers of the two databases."""

import calendar
import contextlib
import dataclasses
import functools
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import sqlalchemy as sa

from tests.fakes import stepped_clock
from tests.fakes import store as fake_store
from tests.faults import registry
from tests.integration import base as integration_base
from tests.integration import servers
from tests.integration import store_suite
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.store import tables

check = registry.check

#: Seconds: a loaded machine is slow, and a fault that is not survived lasts.
LIMIT = 60


class OnSQLite(base.StoreTestCase):
    """What the cases need of a test case, outside any test."""

    def runTest(self):
        """Nothing: this is a tool."""


class OnMariaDB(store_suite.OnServer, OnSQLite):
    make_server = servers.MariaDB


class OnPostgreSQL(store_suite.OnServer, OnSQLite):
    make_server = servers.PostgreSQL


@functools.cache
def _server(kind):
    server = integration_base.started(kind.make_server())
    registry.CLEANUP.callback(server.cleanUp)
    return server


@contextlib.contextmanager
def _store(kind):
    """Give the tool with an empty database."""
    tool = kind()
    if issubclass(kind, store_suite.OnServer):
        tool.server = _server(kind)
    tool.setUp()
    try:
        yield tool
    finally:
        tool.doCleanups()


def on_each_database(kind_of_fault):
    def register(function):
        for kind in (OnSQLite, OnMariaDB, OnPostgreSQL):
            registry.fault(kind_of_fault, f'{function.__name__}_'
                           f'{kind.__name__.lower()}')(
                               functools.partial(function, kind))
        return function

    return register


def _in_child(function, before_statement=None, signal_number=signal.SIGKILL):
    """Run a function in a child; return it after it ended or was stopped.

    :param before_statement: number of the SQL statement before which the
        child sends itself the signal, None: never. A commit counts, too
    :returns: (process id, status of waitpid)
    """
    pid = os.fork()
    if not pid:
        status = 1
        try:
            if before_statement is not None:
                countdown = itertools.count(before_statement, -1)

                def before(*_):
                    if next(countdown) == 1:
                        os.kill(os.getpid(), signal_number)

                for event in 'before_cursor_execute', 'commit':
                    sa.event.listen(sa.engine.Engine, event, before)
            function()
            status = 0
        finally:
            os._exit(status)
    return pid, os.waitpid(pid, os.WUNTRACED)[1]


def _kill_before_each(function, survived, step=1):
    """Kill a function before each of its statements; return how often.

    :param function: called in a child; without a fault it ends well
    :param survived: called after each kill, checks what has to hold
    """
    for number in itertools.count(1, step):
        _, status = _in_child(function, number)
        if os.WIFEXITED(status):
            check.assertEqual(0, os.WEXITSTATUS(status))
            return (number - 1) // step
        survived()


@on_each_database('killed db sync')
def killed_sync(kind):
    with _store(kind) as tool:
        def survived():
            check.assertEqual(tables.SCHEMA_VERSION,
                              migration.sync(tool.url)[1])
            check.assertEqual(0, store.Store(tool.url).generation().number)
            tool.remove_store()

        return _kill_before_each(lambda: migration.sync(tool.url), survived,
                                 step=4)


@on_each_database('killed modeler in its write')
def killed_writer(kind):
    with _store(kind) as tool:
        opened = tool.make_store()
        opened.write([base.fitted(n) for n in range(3)])
        numbers = itertools.count(10)

        def write():
            store.Store(tool.url).write(
                [base.fitted(next(numbers))], host_profiles=[
                    store.HostProfile('h', 'x')], remove=[
                        base.instance_uuid(2)], placements=[
                            store.InstanceRecord('p', 'h')])

        def survived():
            # All of the last good generation, and nothing of the killed one.
            changes = opened.read_changes()
            check.assertEqual(3, len(changes.instance_uuids))
            check.assertEqual([], changes.host_profiles)
            number = changes.generation.number
            check.assertEqual(number + 1, opened.write(
                [base.fitted(1, number)]).number)

        return _kill_before_each(write, survived)


def _worker(tool, patience_seconds=LIMIT, timeout_seconds=2.0):
    """Return the Claims of a scheduler worker whose hosts have room."""
    return claims.Claims(
        store.Store(tool.url, timeout_seconds), 60.0, patience_seconds,
        threading.RLock(), lambda foreign: None, lambda *_: None, 'here:1',
        lambda topic, problem: None)


def _claim(worker, number):
    """Claim a host for an instance; return the Pending."""
    return worker.claim(lambda: True, True, **{
        name: getattr(fake_store.claim(number), name)
        for name in ('instance_uuid', 'host', 'source', 'law', 'rule')})


def _claimed(opened):
    """Return the numbers of the instances with a claim, which is whole."""
    numbers = []
    for stored in opened.read_claims().claims:
        numbers.append(int(stored.instance_uuid[-12:], 16))
        check.assertEqual(fake_store.claim(numbers[-1]), dataclasses.replace(
            stored, token='t-1', age_seconds=0.0, waited_seconds=0.0,
            missed=False, number=None, claimed_at=None))
    return numbers


@on_each_database('killed scheduler in its write of claims')
def killed_claims(kind):
    with _store(kind) as tool:
        opened = tool.make_store()

        def make_claim():
            worker = _worker(tool)
            worker.wait_until_read()
            check.assertTrue(_claim(worker, 2).settled)

        def survived():
            # The claim of the killed scheduler is absent, or whole if the
            # statement followed its commit. Others can be written.
            claimed = _claimed(opened)
            check.assertIn(claimed, ([], [2]))
            fake_store.write_claims(opened, fake_store.claim(1))
            check.assertEqual([1, *claimed], sorted(_claimed(opened)))
            tool.execute('DELETE FROM claim')

        count = _kill_before_each(make_claim, survived)
        # At least five statements and the commit.
        check.assertGreaterEqual(count, 6)
        check.assertEqual([2], _claimed(opened))
        return count


@on_each_database('killed scheduler in its write of claims')
def killed_claims_at_any_moment(kind):
    kills = 10
    with _store(kind) as tool:
        opened, first = tool.make_store(), 0
        for _ in range(kills):
            pid = os.fork()
            if not pid:
                with contextlib.suppress(BaseException):
                    worker = _worker(tool)
                    worker.start()
                    for number in itertools.count(first):
                        _claim(worker, number)
                os._exit(1)
            limit = time.monotonic() + LIMIT
            while len(_claimed(opened)) < first + 3:
                check.assertLess(time.monotonic(), limit)
            os.kill(pid, signal.SIGKILL)
            check.assertTrue(os.WIFSIGNALED(os.waitpid(pid, 0)[1]))
            # The server may still be committing.
            fake_store.write_claims(opened)
            claimed = _claimed(opened)
            first = len(claimed)
            check.assertEqual(list(range(first)), sorted(claimed))
    return kills


@on_each_database('frozen scheduler in its write of claims')
def frozen_claims(kind):
    patience_seconds, survived = 1.0, 0
    with _store(kind) as tool:
        opened = tool.make_store()
        for statement in itertools.count(1):
            pid, status = _in_child(
                lambda: fake_store.write_claims(
                    store.Store(tool.url, LIMIT), fake_store.claim(1)),
                statement, signal.SIGSTOP)
            if os.WIFEXITED(status):
                break
            # The transaction of this worker waits far longer than a request.
            worker = _worker(tool, patience_seconds, 10.0)
            try:
                worker.wait_until_read()
                waits = []
                for number in 2, 3:
                    began = time.monotonic()
                    check.assertTrue(_claim(worker, number).admitted)
                    waits.append(time.monotonic() - began)
                check.assertLess(waits[0], 2 * patience_seconds, statement)
                if worker.counts['claim_misses']:
                    # The counter was locked. The next request does not wait.
                    check.assertLess(waits[1], patience_seconds, statement)
                    survived += 1
            finally:
                os.kill(pid, signal.SIGCONT)
            check.assertEqual(0, os.waitpid(pid, 0)[1])
            limit = time.monotonic() + LIMIT
            while sorted(_claimed(opened)) != [1, 2, 3]:
                check.assertLess(time.monotonic(), limit)
                time.sleep(.05)
            worker.stop()
            tool.execute('DELETE FROM claim')
        check.assertGreater(survived, 0)
    return survived


@registry.fault('frozen writer')
def frozen_writer_of_sqlite():
    survived = 0
    for statement in (4, 8, 14):
        with _store(OnSQLite) as tool:
            tool.make_store().write([base.constant(1)])
            pid, status = _in_child(
                lambda tool=tool: store.Store(
                    tool.url, 1, patience_seconds=LIMIT).write(
                        [base.constant(2)]), statement, signal.SIGSTOP)
            check.assertTrue(os.WIFSTOPPED(status))
            began = time.monotonic()
            try:
                store.Store(tool.url, 1).write([base.constant(3)])
                # It was stopped while it held no lock.
            except exceptions.StoreError as error:
                check.assertIn(f'process {pid} ', str(error))
            finally:
                os.kill(pid, signal.SIGCONT)
            check.assertLess(time.monotonic() - began, LIMIT)
            # The frozen one goes on, and writes what it was at.
            check.assertEqual(0, os.waitpid(pid, 0)[1])
            check.assertIn(base.instance_uuid(2), [
                stored.instance_uuid
                for stored in store.Store(tool.url).models()])
            survived += 1
    return survived


_UNDER_A_CLOCK = '''
import sys, time
from tests.fakes import store as fake_store
from tests.unit.store import base
from vswitch_aware_scheduler import store
year = time.gmtime().tm_year
one = store.Store(sys.argv[1])
before = one.generation()
made = one.write([base.constant(int(sys.argv[2]))])
assert made.number == before.number + 1
assert abs(made.published_at - time.time()) < 3600
changes = one.read_changes(before)
assert base.instance_uuid(int(sys.argv[2])) in changes.instance_uuids
fake_store.write_claims(one, fake_store.claim(int(sys.argv[2])))
found = {claim.instance_uuid: claim for claim in one.read_claims().claims}
assert found[base.instance_uuid(int(sys.argv[2]))].age_seconds < 100
print(year)
'''


@on_each_database('wrong clock')
def clock_of_a_process(kind):
    if not stepped_clock.COMPILER:
        raise registry.Skipped('no compiler for C is installed')
    years = (1970, 2000, 2037, 2038, 2039, 2106, 2107, 2200)
    with _store(kind) as tool, tempfile.TemporaryDirectory() as folder:
        tool.make_store()
        clock = stepped_clock.SteppedClock(folder)
        for number, year in enumerate(years):
            clock.step(calendar.timegm((year, 6, 1, 0, 0, 0))
                       - int(time.time()))
            done = subprocess.run(
                [sys.executable, '-c', _UNDER_A_CLOCK, tool.url,
                 str(number)], capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=2 * LIMIT, env={
                    **os.environ, **clock.environment})
            check.assertEqual((0, str(year)), (
                done.returncode, done.stdout.strip()), done.stderr)
        # By the right clock again, nothing is lost.
        check.assertEqual(len(years), len(store.Store(tool.url).models()))
    return len(years)


@registry.fault('stopped server')
def server_that_is_killed_while_it_is_written():
    survived = 0
    for kind in (OnMariaDB, OnPostgreSQL):
        with _store(kind) as tool:
            opened = tool.make_store()
            opened.write([base.constant(1)])
            original = generations.forget_removals
            for _ in range(2):
                before = opened.generation().number
                killed = _server(kind).process

                def kill(connection, now, kind=kind):
                    generations.forget_removals = original
                    _server(kind).stop_server()
                    _server(kind).start_server()
                    original(connection, now)

                generations.forget_removals = kill
                try:
                    made = store.Store(
                        tool.url, 5, patience_seconds=LIMIT).write(
                            [base.constant(2)])
                finally:
                    generations.forget_removals = original
                check.assertIsNot(killed, _server(kind).process)
                check.assertEqual(before + 1, made.number)
                survived += 1
    return survived
