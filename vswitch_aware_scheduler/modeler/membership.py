# SPDX-License-Identifier: Apache-2.0
"""Divides the instances among the modelers of a store.

A tooz group lists the modelers of a store, and a hash ring assigns each
instance to one of them. Members may notice a change of the group at different
times. For some time an instance may then belong to two shares or to none. The
store accepts only one of two passes for an instance, and the next pass reads
instances that were omitted. No configuration, no clock.
"""

import contextlib
import importlib
import os
import secrets
import socket
import threading
import warnings
import zlib

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs

__all__ = ['ModelerGroup', 'PATIENCE_SECONDS', 'Share']

LOG = logs.get_logger(__name__)

#: Longest wait for a backend in seconds; its client may try for minutes.
PATIENCE_SECONDS = 10.0

#: Number of points of each modeler on the ring. Shares then differ by some
#: percent.
_POINTS = 1024

#: Number of parts of the hash range that are looked up in the ring. Looking up
#: each instance would be slow.
_PARTS = 4096


def _tooz(module):
    """Import a module of tooz without the warnings of what it imports.

    If eventlet is installed, tooz imports it, and each command would print
    that eventlet is deprecated.
    """
    with warnings.catch_warnings(action='ignore'):
        return importlib.import_module(f'tooz.{module}')


class Share:
    """The instances of one modeler, as a callable(uuid)."""

    def __init__(self, name: bytes, members: set[bytes]) -> None:
        hashring = _tooz('hashring')
        ring = hashring.HashRing(members, partitions=_POINTS)
        self._mine = [name in ring.get_nodes(b'%d' % number)
                      for number in range(_PARTS)]
        self.members = len(members)

    def __call__(self, instance_uuid):
        return self._mine[zlib.crc32(instance_uuid.encode()) % _PARTS]


class ModelerGroup:
    """The modelers that share the instances of one store.

    Each process is a member with a unique name, independent of its machine.
    The constructor does not connect.

    :param url: URL of a tooz backend, which may contain a password
    :raises CoordinationError: if tooz is not installed
    """

    def __init__(self, url: str) -> None:
        try:
            # Imported here, because tooz is optional and slow to load.
            self._tooz = _tooz('coordination')
        except ImportError as error:
            raise exceptions.CoordinationError(
                f'modeler_coordination_url needs tooz, which cannot be loaded '
                f'({error}); install vswitch_aware_scheduler[coordination]'
            ) from error
        # The heartbeat would warn every second while the backend is down.
        logs.make_debug('tooz.coordination')
        self.url = url
        self.name = (f'{socket.gethostname()}-{os.getpid()}-'
                     f'{secrets.token_hex(4)}').encode()
        self._store_id = None
        self._coordinator = None
        self._alive = None
        self._worker = None
        self._at_work = threading.Lock()

    def share(self, store_id: str) -> Share:
        """Return the current :class:`Share` of this modeler. Join if needed.

        :param store_id: id of the store; only modelers of one store share its
            instances
        :raises CoordinationError: if the backend does not answer; the next
            call connects again
        """
        return self._within(lambda: self._asked(store_id, self._share))

    def count(self, store_id: str) -> int:
        """Return the number of members, without joining.

        :raises CoordinationError: as :meth:`share`
        """
        return len(self._within(
            lambda: self._asked(store_id, self._members)))

    def leave(self) -> None:
        """Leave the group, and let others take over its instances."""
        with contextlib.suppress(exceptions.CoordinationError):
            self._within(self._leave)

    def _within(self, function):
        """Call a function, but wait for it only for a limited time."""
        results = []

        def work():
            with self._at_work:
                try:
                    results.append((function(), None))
                except exceptions.CoordinationError as error:
                    results.append((None, error))

        # Only one thread runs at a time. A thread may still run if a signal
        # interrupted the previous call.
        previous = self._worker
        if previous is not None and previous.ident is not None:
            previous.join(PATIENCE_SECONDS)
        if previous is None or not previous.is_alive():
            self._worker = threading.Thread(target=work, daemon=True)
            self._worker.start()
            self._worker.join(PATIENCE_SECONDS)
        if not results:
            raise exceptions.CoordinationError(
                seen=f' within {PATIENCE_SECONDS:g} s')
        [(result, error)] = results
        if error is not None:
            raise error
        return result

    def _asked(self, store_id, function):
        """Return the result of a function that uses the connected group."""
        if store_id != self._store_id:
            self._leave()
            self._store_id = store_id
        try:
            if self._coordinator is None:
                self._coordinator = self._tooz.get_coordinator(
                    self.url, self.name)
                self._coordinator.start(start_heart=True)
            return function()
        except Exception as error:
            # The client of a backend may raise exceptions that are not of
            # tooz.
            self._leave()
            problem = str(error).replace(self.url, '...')
            raise exceptions.CoordinationError(
                seen=f': {type(error).__name__}: {problem}') from error

    def _share(self):
        members = self._members()
        if self.name not in members:
            # The group is new, or the backend has lost its data.
            self._join()
            members = self._members()
        return Share(self.name, members | {self.name})

    def _leave(self):
        coordinator, self._coordinator = self._coordinator, None
        alive, self._alive = self._alive, None
        try:
            # A lock belongs to a connection, which ends with the coordinator.
            if alive is not None:
                alive.release()
        except Exception as error:
            LOG.debug('leaving the group: %s', error)
        try:
            if coordinator is not None:
                coordinator.stop()
        except Exception as error:
            LOG.debug('leaving the group: %s', error)

    @property
    def _group(self):
        return b'vswitch-modeler-' + self._store_id.encode()

    @property
    def _keeps_ended_members(self):
        # Do not use tooz's attribute "not based on time-outs": etcd and
        # ZooKeeper also end the membership of a client that does not respond.
        return self.url.partition(':')[0] == 'file'

    def _join(self):
        if self._keeps_ended_members and self._alive is None:
            # Held as long as this process runs.
            self._alive = self._coordinator.get_lock(self.name)
            self._alive.acquire(blocking=False)
        with contextlib.suppress(self._tooz.GroupAlreadyExist):
            self._coordinator.create_group(self._group).get()
        with contextlib.suppress(self._tooz.MemberAlreadyExist):
            self._coordinator.join_group(self._group).get()

    def _members(self):
        try:
            members = set(self._coordinator.get_members(self._group).get())
        except self._tooz.GroupNotCreated:
            return set()
        if self._keeps_ended_members:
            members = {member for member in members
                       if member == self.name
                       or not self._remove_if_ended(member)}
        return members

    def _remove_if_ended(self, member):
        """Remove a member whose process has ended. Return whether it has."""
        lock = self._coordinator.get_lock(member)
        if not lock.acquire(blocking=False):
            return False
        try:
            coordinator = self._tooz.get_coordinator(self.url, member)
            coordinator.start()
            try:
                with contextlib.suppress(self._tooz.MemberNotJoined):
                    coordinator.leave_group(self._group).get()
            finally:
                coordinator.stop()
        finally:
            lock.release()
        return True
