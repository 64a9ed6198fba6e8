# SPDX-License-Identifier: Apache-2.0
"""What the scheduler knows of the store: one generation, in memory.

:class:`Snapshot` is immutable and answers without any I/O;
:class:`SnapshotSource` keeps one fresh from a thread of its own, so that no
request ever waits for a database, and says what is wrong with it.
"""

import math
import os
import threading
import time

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import prior

__all__ = ['Snapshot', 'SnapshotSource']

#: What a prior is of, by whether its key has a flavor and a project.
_LEVELS = {(True, True): 'flavor and project', (True, False): 'flavor',
           (False, True): 'project', (False, False): 'fleet'}


class Snapshot:
    """The long-run law of every modelled instance, and hosts' profiles.

    Also what Nova told of instances, and priors of those without a model.

    :ivar generation: store Generation it is of, None for the empty one
    :ivar seen_at: what time the placements are of, seconds UTC, or None
    :ivar outcomes: {kind of host: TrialOutcome}, see :mod:`.feedback`
    """

    def __init__(self, generation=None, laws=None, host_profiles=None,
                 placements=None, seen_at=None, priors=None, outcomes=None):
        self.generation = generation
        self.seen_at = seen_at
        self.outcomes = {} if outcomes is None else outcomes
        # Laws are bytes, which the garbage collector need not look at: there
        # may be a million.
        self._laws = {} if laws is None else laws
        self._host_profiles = {} if host_profiles is None else host_profiles
        self._placements = {} if placements is None else placements
        self._priors = {} if priors is None else priors

    def __len__(self):
        return len(self._laws)

    def law(self, instance_uuid):
        """Return the RateLaw of an instance, or None without a model."""
        return self._laws.get(instance_uuid)

    def laws(self, instance_uuids):
        """Return a list of :meth:`law` of some instances."""
        return list(map(self._laws.get, instance_uuids))

    def placement(self, instance_uuid):
        """Return (host, flavor, project) of an instance, or None.

        Each of them is None where it is not known. They are of the time
        ``seen_at``.
        """
        found = self._placements.get(instance_uuid)
        return found and found[:3]

    def placements(self):
        """Return {instance uuid: (host, flavor, project, Attachments)}.

        Not to be changed; see :meth:`placement` and :meth:`attachments`.
        """
        return self._placements

    def attachments(self, instance_uuid):
        """Return the :class:`.Attachments` of an instance, or None."""
        found = self._placements.get(instance_uuid)
        return found and found[3]

    def prior(self, instance_uuid, flavor=None, project=None):
        """Return what to expect of an instance without a model.

        :param flavor: name of its flavor; None: as the placement has it
        :param project: id of its project, likewise
        :returns: (RateLaw, what it is a prior of: 'instance', 'flavor and
            project', 'flavor', 'project' or 'fleet'), or None
        """
        law = self._priors.get(instance_uuid)
        if law is not None:
            return law, 'instance'
        return self.group_prior(instance_uuid, flavor, project)

    def group_prior(self, instance_uuid, flavor=None, project=None):
        """Return what to expect of an instance by its group alone.

        Arguments and result as of :meth:`prior`. In which of the sampled
        slots the instance is high is drawn, the same in every process.
        """
        if not self._priors:
            return None
        if flavor is None:
            _, flavor, project, _ = self._placements.get(
                instance_uuid, (None, None, project, None))
        for key in prior.levels_of(flavor, project):
            expected = self._priors.get(key)
            if expected is not None:
                return expected.of(instance_uuid), _LEVELS[
                    key[0] is not None, key[1] is not None]
        return None

    def host_profile(self, host):
        """Return the store's HostProfile of a host, or None."""
        return self._host_profiles.get(host)

    def updated(self, changes):
        """Return the snapshot that a store's Changes lead to."""
        if changes.complete:
            laws, hosts, placements, priors = {}, {}, {}, {}
        else:
            laws, hosts = dict(self._laws), dict(self._host_profiles)
            placements, priors = self._placements, self._priors
        for uuid in changes.removed:
            laws.pop(uuid, None)
        for host in changes.removed_hosts:
            hosts.pop(host, None)
        laws.update(changes.laws())
        hosts.update((entry.host, entry) for entry in changes.host_profiles)
        return Snapshot(
            changes.generation, laws, hosts, _with(
                placements, *changes.placements,
                changes.removed_placements), changes.seen_at, _with(
                priors, changes.priors, changes.priors.values(),
                [key for key, law in changes.priors.items() if law is None]),
            self.outcomes if changes.outcomes is None else changes.outcomes)


def _with(known, keys, values, gone):
    """Return a copy of a dictionary with changes, or itself without any."""
    if not keys and not gone:
        return known
    changed = dict(known)
    changed.update(zip(keys, values))
    for key in gone:
        changed.pop(key, None)
    return changed


class SnapshotSource:
    """The latest snapshot of a store, refreshed in the background.

    Making one starts nothing; the thread starts with the first
    :meth:`current` in a process, so that it is not lost by a fork.

    :param store: Store, or anything with ``read_changes(since)``
    :param refresh_seconds: how often the store is looked at, > 0
    :param first_wait_seconds: longest the first callers wait for a snapshot
    :param max_age_seconds: an older generation is reported as stale; 0: never
    :param clock: callable, seconds UTC
    :param prepare: callable(Snapshot), run in the thread before a snapshot
        becomes the current one
    :param tidy: callable(), run in the thread each time the store was looked
        at
    """

    def __init__(self, store, refresh_seconds, first_wait_seconds,
                 max_age_seconds, clock, prepare=None, tidy=None):
        self._store = store
        self._refresh_seconds = refresh_seconds
        self._first_wait_seconds = first_wait_seconds
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._prepare = prepare
        self._tidy = tidy
        self._lock = threading.Lock()
        # One at a time: each prepares what follows from the last one.
        self._refreshing = threading.Lock()
        self._thread = None
        self._pid = None
        self._wait_until = None
        self._tried = threading.Event()
        self._stop = threading.Event()
        self._snapshot = Snapshot()
        self._error = None

    def current(self):
        """Return (snapshot, problem).

        :returns: the latest Snapshot that could be read, an empty one when
            none ever could, and None or what is wrong with the store in words
        """
        if self._pid != os.getpid():
            self._start()
        # Those that come together with the first one wait with it.
        if not self._tried.is_set():
            self._tried.wait(self._wait_until - time.monotonic())
        snapshot, error = self._snapshot, self._error
        if error is None and not self._tried.is_set():
            error = (f'it has not answered in the '
                     f'{self._first_wait_seconds:g} s that a first request '
                     f'waits')
        # Generation 0 is a new store, in which nothing can be old.
        if (error is None and self._max_age_seconds
                and snapshot.generation.number):
            age = self._clock() - snapshot.generation.published_at
            if age > self._max_age_seconds:
                error = (f'its last generation is {math.ceil(age)} s old, '
                         f'wanted at most {self._max_age_seconds:g} s: is '
                         f'the modeler running?')
        return snapshot, error

    def refresh(self):
        """Look at the store now; what goes wrong is told by `current`."""
        with self._refreshing:
            self._refresh()
        self._tried.set()

    def _refresh(self):
        try:
            since = self._snapshot.generation
            changes = self._store.read_changes(since)
            if since is None or changes.generation != since:
                snapshot = self._snapshot.updated(changes)
                if self._prepare is not None:
                    self._prepare(snapshot)
                self._snapshot = snapshot
            if self._tidy is not None:
                self._tidy()
            self._error = None
        except exceptions.VSwitchError as error:
            self._error = str(error)
        except Exception as error:
            # A thread that dies would leave the scheduler on old models
            # without a word.
            self._error = f'unexpected {type(error).__name__}: {error}'

    def stop(self):
        """End the thread, if there is one."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self):
        with self._lock:
            # A thread does not survive a fork.
            if self._pid != os.getpid():
                self._wait_until = (time.monotonic()
                                    + self._first_wait_seconds)
                self._thread = threading.Thread(
                    target=self._run, name='vswitch-snapshot', daemon=True)
                self._thread.start()
                self._pid = os.getpid()

    def _run(self):
        while True:
            self.refresh()
            if self._stop.wait(self._refresh_seconds):
                return
