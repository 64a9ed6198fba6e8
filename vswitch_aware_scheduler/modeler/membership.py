# SPDX-License-Identifier: Apache-2.0
"""Which instances this modeler learns of, beside others.

A group in tooz knows which modelers of a store there are; a hash ring gives
each instance to one of them. Members may see a change of the group at
different times, so that for a while an instance is of two shares or of none:
the store lets only one of two passes count it, and the next pass takes up
what nobody has. No configuration, no clock.
"""

import contextlib
import importlib
import os
import secrets
import socket
import threading
import zlib


from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import logs

__all__ = ['PATIENCE_SECONDS', 'Group', 'Share']

LOG = logs.get_logger(__name__)

#: Longest wait for a backend; its client may try for minutes.
PATIENCE_SECONDS = 10.0

#: Points of each modeler on the ring. Shares then differ by some percent.
_POINTS = 1024

#: The ring is asked for these instead of each instance, which is slow.
_PARTS = 4096


class Share:
    """The instances of one modeler: called with a uuid, whether it is one.

    :ivar members: number of modelers
    """

    def __init__(self, name, members):
        hashring = importlib.import_module('tooz.hashring')
        ring = hashring.HashRing(members, partitions=_POINTS)
        self._mine = [name in ring.get_nodes(b'%d' % part)
                      for part in range(_PARTS)]
        self.members = len(members)

    def __call__(self, instance_uuid):
        return self._mine[zlib.crc32(instance_uuid.encode()) % _PARTS]


class Group:
    """The modelers that share the instances of one store.

    Each process is a member of its own, whatever its machine is called: no
    two have the same name. Making one connects to nothing.

    :param url: of a tooz backend, which may hold a password
    :raises CoordinationError: when tooz is not installed
    """

    def __init__(self, url):
        try:
            # Only now: it is optional, and loads much.
            self._tooz = importlib.import_module('tooz.coordination')
        except ImportError as error:
            raise exceptions.CoordinationError(
                f'modeler_coordination_url is set and tooz cannot be '
                f'loaded: {error}; wanted it installed') from error
        self.url = url
        self.name = (f'{socket.gethostname()}-{os.getpid()}-'
                     f'{secrets.token_hex(4)}').encode()
        self._store_id = None
        self._coordinator = None
        self._alive = None
        self._worker = None
        self._at_work = threading.Lock()

    def share(self, store_id):
        """Return the :class:`Share` of this modeler now; join if need be.

        :param store_id: of the store's Generation; only modelers of one
            store share its instances
        :raises CoordinationError: when the backend does not answer; the next
            call connects anew
        """
        return self._within(lambda: self._asked(store_id, self._share))

    def count(self, store_id):
        """Return the number of members, without being one.

        :raises CoordinationError: as :meth:`share`
        """
        return len(self._within(
            lambda: self._asked(store_id, self._members)))

    def leave(self):
        """Leave the group, so that others take over at once."""
        with contextlib.suppress(exceptions.CoordinationError):
            self._within(self._leave)

    def _within(self, function):
        """Call a function; go on without it when it takes too long."""
        found = []

        def work():
            with self._at_work:
                try:
                    found.append((function(), None))
                except exceptions.CoordinationError as error:
                    found.append((None, error))

        # One at a time, whatever became of the one before: a signal may have
        # ended this before that one had begun.
        before = self._worker
        if before is not None and before.ident is not None:
            before.join(PATIENCE_SECONDS)
        if before is None or not before.is_alive():
            self._worker = threading.Thread(target=work, daemon=True)
            self._worker.start()
            self._worker.join(PATIENCE_SECONDS)
        if not found:
            raise exceptions.CoordinationError(
                f'modeler_coordination_url: its backend has not answered for '
                f'{PATIENCE_SECONDS:g} s, wanted the members of a group')
        [(result, error)] = found
        if error is not None:
            raise error
        return result

    def _asked(self, store_id, function):
        """Return what a function of the connected group returns."""
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
            # Whatever a backend's client raises: not all of it is of tooz.
            self._leave()
            raise exceptions.CoordinationError(
                f'modeler_coordination_url: its backend does not answer: '
                f'{type(error).__name__}: '
                f'{str(error).replace(self.url, "...")}, wanted the members '
                f'of a group') from error

    def _share(self):
        members = self._members()
        if self.name not in members:
            # New, or the backend has lost what it knew.
            self._join()
            members = self._members()
        return Share(self.name, members | {self.name})

    def _leave(self):
        coordinator, self._coordinator = self._coordinator, None
        alive, self._alive = self._alive, None
        try:
            # A lock is of a connection, which ends with the coordinator.
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
    def _forgets_nobody(self):
        # Not what tooz says is "not based on time-outs": etcd and ZooKeeper
        # are, and end the membership of whom they do not hear.
        return self.url.partition(':')[0] == 'file'

    def _join(self):
        if self._forgets_nobody and self._alive is None:
            # Held for as long as this process lives.
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
        if self._forgets_nobody:
            members = {one for one in members
                       if one == self.name or not self._bury(one)}
        return members

    def _bury(self, member):
        """Remove a member whose process has ended; return whether it has."""
        lock = self._coordinator.get_lock(member)
        if not lock.acquire(blocking=False):
            return False
        try:
            gone = self._tooz.get_coordinator(self.url, member)
            gone.start()
            try:
                with contextlib.suppress(self._tooz.MemberNotJoined):
                    gone.leave_group(self._group).get()
            finally:
                gone.stop()
        finally:
            lock.release()
        return True
