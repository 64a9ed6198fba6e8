# SPDX-License-Identifier: Apache-2.0
"""Records of a store, a store that answers what a test says, empty stores."""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
import uuid

import numpy as np

from tests.fakes import clock
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law

NOW = clock.NOW

#: The fixtures of a test remove the directory that is the default during it.
_TEMPORARY = tempfile.gettempdir()

#: Longest wait for a thread: nothing here takes that long unless it failed.
PATIENCE_SECONDS = 30.0

#: Of a claim.
LAW = model.TrafficModel.on_off(5.0, 2.0, on_seconds=1, off_seconds=3).law

#: Of the host of an error budget.
LIMITS = json.dumps(['kernel', [[[1.0, 1.0, 0.0], 800.0, 1000.0]]])


@functools.cache
def _migrated_file():
    """Return the path of an empty SQLite store, made once in a process."""
    directory = tempfile.TemporaryDirectory(
        prefix='vswitch-empty-store-', dir=_TEMPORARY)
    atexit.register(directory.cleanup)
    path = os.path.join(directory.name, 'vswitch.sqlite')
    migration.sync(f'sqlite:///{path}')
    return path


def make_empty(url):
    """Make an empty store with the newest schema, as migration.sync does.

    A new SQLite file is a copy of one that the migrations have made, which
    costs a fiftieth of the processor time. The copy gets an identity and a
    secret of its own. Any other database is migrated.

    :param url: string
    """
    path = engines.sqlite_path(engines.parse(url))
    if path is None or os.path.exists(path):
        migration.sync(url)
        return
    unfinished = f'{path}.unfinished'
    shutil.copy(_migrated_file(), unfinished)
    connection = sqlite3.connect(unfinished)
    with connection:
        connection.execute('UPDATE generation SET store_id = ?',
                           (str(uuid.uuid4()),))
        connection.execute('UPDATE secret SET value = ?',
                           (secrets.token_hex(32),))
    connection.close()
    os.rename(unfinished, path)


def instance_uuid(number):
    return str(uuid.UUID(int=number))


def law(number):
    """Return the law of an instance; its number tells how many states."""
    n = 1 + number % 3
    probabilities = np.arange(1, n + 1) / (n * (n + 1) / 2)
    rates = number + np.arange(3.0 * n).reshape(n, 3)
    return rate_law.RateLaw.from_arrays(probabilities, rates)


def generation(number, published_at=NOW, store_id='one'):
    return store.Generation(store_id, number, published_at)


def changes(number, given=(), removed=(), hosts=(), removed_hosts=(),
            complete=False, **of_generation):
    """Return the Changes that give or renew some instances' laws.

    :param given: {uuid: number of its law}, or pairs
    """
    given = dict(given)
    laws = [law(kind) for kind in given.values()]
    return store.Changes(
        generation(number, **of_generation), complete, list(given),
        np.array([len(each) for each in laws], dtype=np.int64),
        b''.join(laws),
        list(removed), [store.HostProfile(host, name)
                        for host, name in dict(hosts).items()],
        list(removed_hosts))


class FakeClaims:
    """The claims of a store, in memory."""

    def __init__(self):
        self.claims = {}         # uuid -> StoredClaim
        self.number, self.purged = 0, []
        self.problem = None
        self.lock = threading.Lock()

    def _check(self):
        if self.problem is not None:
            raise self.problem

    def _changes(self, since):
        return store.ClaimChanges(
            store.ClaimsSeen('one', self.number), since is None, [
                claimed for claimed in self.claims.values()
                if since is None or claimed.number > since.number])

    def read_claims(self, since=None):
        self._check()
        return self._changes(since)

    @contextlib.contextmanager
    def claiming(self, since=None):
        self._check()
        with self.lock:
            changes, number = self._changes(since), self.number + 1

            def write(claims, withdrawn=()):
                self.number = number
                changes.seen = store.ClaimsSeen('one', number)
                for claimed in claims:
                    self.claims[claimed.instance_uuid] = dataclasses.replace(
                        claimed, number=number)
                for claimed in withdrawn:
                    stored = self.claims.get(claimed.instance_uuid)
                    if stored and stored.token == claimed.token:
                        self.claims[claimed.instance_uuid] = \
                            dataclasses.replace(stored, number=number,
                                                state=store.WITHDRAWN)

            yield changes, write

    def purge_claims(self, last):
        self.purged.append(last)


class FakeStore(FakeClaims):
    """A store that answers what a test has put into it."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.asked = []
        self.gate = threading.Event()
        self.gate.set()

    def read_changes(self, since):
        self.asked.append(since)
        self.gate.wait(PATIENCE_SECONDS)
        answer = self.answers[0]
        if len(self.answers) > 1:
            self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def claim(number=1, host='h1', token='t-1', **more):
    return store.StoredClaim(**{
        'instance_uuid': instance_uuid(number), 'token': token,
        'host': host, 'source': None, 'law': LAW, 'rule': 'flavor',
        'claimed_by': 'here:1', **more})


def write_claims(target, *claims, withdrawn=(), since=None):
    """Write claims to a store; return the changes that this has read."""
    with target.claiming(since) as (changes, write):
        write(claims, withdrawn)
    return changes


def decision(number, seconds_ago=0.0, **more):
    return store.Decision(**{
        'decision_id': f'{number:032x}',
        'decided_at': NOW - seconds_ago, 'decided_by': 'worker:1',
        'request_id': f'req-{number}',
        'instance_uuid': instance_uuid(number), 'project': 'p',
        'flavor': 'm1', 'rule': 'flavor', 'outcome': store.PLACED,
        'host': 'host1', 'hosts': 3, 'admitted': 1,
        'refused': {'overload probability': 2}, 'observed': 1,
        'chosen': {'check': None, 'overload_probability': .001,
                   'loss_fraction': 0.0, 'utilisation': .5, 'limit': .01},
        'nearest': [{'host': 'host2', 'check': 'overload probability',
                     'value': .0131, 'limit': .01, 'enforced': True,
                     'text': 'words'}], **more})


def budget(name='h', **values):
    return store.ErrorBudget(**{
        'kind': store.HOST, 'name': name, 'overload_probability': .01,
        'earned_share': .6, 'first_days': 1.0, 'most_days': 30.0,
        'limits': LIMITS, 'since': NOW, 'why': None, 'until': NOW,
        'balance': 518.4, **values})
