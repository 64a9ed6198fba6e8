# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan of migrations, one step at a time.

What is done is written to the store before it is done, so that a process which
is killed at any moment leaves a record that another one goes on from. What
became of a migration is read from Nova, never assumed. The first surprise ends
the plan: running migrations are waited for, others do not begin.

:meth:`Executor.step` never waits; the caller pauses between steps. One process
at a time has the lock of the store. Knows no configuration.
"""

import dataclasses
import os
import socket
import time
import uuid as uuids

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.rebalance import advisor
from vswitch_aware_scheduler.rebalance import cloud as nova
from vswitch_aware_scheduler.store import rebalance_records as records

__all__ = ['Executor', 'LEASE_SECONDS', 'POLL_SECONDS', 'holder_name']

LOG = logs.get_logger(__name__)

#: The lock of a process that was killed is free after so long.
LEASE_SECONDS = 120.0

#: A caller makes a step so often.
POLL_SECONDS = 5.0

#: An interrupted plan that is older is not resumed.
RESUME_SECONDS = 3600.0

#: Nova's record shows a migration, or its end, after so long at most.
GRACE_SECONDS = 60.0


def holder_name(what):
    """Return the name of this process, for the lock.

    :param what: the program
    """
    return f'{what} on {socket.gethostname()}, process {os.getpid()}'


class Executor:
    """Carries out plans while it has the lock; a context manager.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param cloud: :class:`.cloud.Cloud`
    :param settings: :class:`.settings.Settings`
    :param holder: name of the process
    :param clock: returns the time, seconds UTC
    :param monotonic: returns seconds that only grow
    :param report: called with a sentence about each thing that happens
    :ivar problem: the first surprise in words, or None
    """

    def __init__(self, store, cloud, settings, holder, clock=time.time,
                 monotonic=time.monotonic, report=None):
        self._store = store
        self._cloud = cloud
        self._settings = settings
        self._holder = holder
        self._clock = clock
        self._monotonic = monotonic
        self._report = report or (lambda text: None)
        self._token = None
        self._plan_id = None
        # Of moves that have begun, by (plan, position).
        self._deadlines = {}
        self._asked = set()
        self._hung = set()
        self._nodes = None
        self.problem = None

    # The lock

    def __enter__(self):
        """Take the lock.

        :raises StoreError: when another process has it
        """
        token = uuids.uuid4().hex
        other = self._store.change_rebalancing(
            records.take_lock, self._holder, token, LEASE_SECONDS)
        if other is not None:
            raise exceptions.StoreError(
                f'lock of rebalancing in the store {self._store.url}: held '
                f'by {other}; expected it free: one process at a time '
                f'migrates instances. The lock of a process that was killed '
                f'is free after {LEASE_SECONDS:g} s')
        self._token = token
        return self

    def __exit__(self, *_):
        token, self._token = self._token, None
        self._store.change_rebalancing(records.release_lock, token)

    def keep(self):
        """Renew the lock.

        :raises StoreChanged: when another process has taken it
        """
        if not self._store.change_rebalancing(
                records.keep_lock, self._token, LEASE_SECONDS):
            raise exceptions.StoreChanged(
                'lock of rebalancing: held by another process; expected it '
                'held by this one: no further migration is begun')

    # Plans

    def resume(self):
        """Go on where an earlier process ended.

        :returns: number of moves that are left to carry out or to wait for
        """
        now = self._clock()
        plans = self._store.plans(records.RUNNING)
        for number, plan in enumerate(plans):
            age = now - plan.made_at
            if number == 0 and abs(age) <= RESUME_SECONDS:
                self._plan_id = plan.plan_id
                continue
            self._end_plan(plan.plan_id, records.ABANDONED, (
                f'interrupted, and {age:.0f} s old; plans are resumed for '
                f'{RESUME_SECONDS:g} s'))
        left = len(self._store.moves(state=records.BEGUN))
        if self._plan_id is not None:
            left += len(self._store.moves(self._plan_id, records.PLANNED))
            self._report(f'Plan {self._plan_id} was interrupted: it goes on.')
        elif left:
            self._report(f'{left} migrations of an earlier plan have not '
                         f'ended: they are looked at first.')
        return left

    def begin(self, proposal):
        """Write a plan, whose moves :meth:`step` carries out.

        :param proposal: :class:`.proposal.Proposal` with moves
        :returns: id of the plan
        :raises InvalidInput: when migrations would be too slow
        """
        self._settings.check_network(proposal.capacity_kbps,
                                     proposal.largest_mib)
        self.keep()
        plan = records.PlanRecord(str(uuids.uuid4()), self._clock(),
                                  self._holder, reason=proposal.reason)
        self._store.change_rebalancing(records.write_plan, plan, [
            records.MoveRecord(
                plan.plan_id, position, move.instance_uuid, move.source,
                move.destination, body=dataclasses.asdict(move))
            for position, move in enumerate(proposal.moves)])
        self._plan_id, self.problem = plan.plan_id, None
        return plan.plan_id

    def step(self):
        """Look at running migrations and begin what may begin.

        :returns: whether anything is left to do
        :raises StoreChanged: when another process has taken the lock
        :raises StoreError: when the store cannot be read or written
        """
        self.keep()
        running = 0
        for move in self._store.moves(state=records.BEGUN):
            if self._key(move) not in self._hung:
                running += self._follow(move)
        planned = [] if self._plan_id is None else self._store.moves(
            self._plan_id, records.PLANNED)
        while self.problem is None and planned \
                and running < self._settings.parallel:
            running += self._begin(planned.pop(0))
        if running:
            return True
        if self.problem is None and planned:
            return True
        self._finish()
        return False

    def _finish(self):
        """End the plan."""
        if self._plan_id is not None:
            done = sum(one.state == records.DONE
                       for one in self._store.moves(self._plan_id))
            self._end_plan(
                self._plan_id,
                records.DONE if self.problem is None else records.STOPPED,
                self.problem or f'{done} migrations were made')
            self._plan_id = None

    def _end_plan(self, plan_id, state, reason):
        self._store.change_rebalancing(
            records.end_plan, plan_id, state, reason, self._clock())
        self._report(f'Plan {plan_id}: {state}: {reason}.')

    # Moves

    @staticmethod
    def _key(move):
        return move.plan_id, move.position

    @staticmethod
    def _name(move):
        return (f'{move.body.get("name") or move.instance_uuid} from '
                f'{move.source} to {move.destination}')

    def _surprise(self, text):
        LOG.warning('rebalancing stops: %s', text)
        self._report(f'Stop: {text}.')
        if self.problem is None:
            self.problem = text

    def _begin(self, move):
        """Begin a move; return 1 if it runs now, else 0."""
        try:
            why = self._why_not(move)
            before = self._cloud.live_migrations(move.instance_uuid)
        except exceptions.TelemetryError as error:
            why = f'Nova cannot be asked: {error}'
        if why is not None:
            self._end(move, records.DROPPED, why)
            self._surprise(f'{self._name(move)}: {why}')
            return 0
        body = {**move.body, 'last_migration': max(
            (one.number for one in before), default=0)}
        self._store.change_rebalancing(records.update_body, move, body)
        # From here on the record says that Nova may have been asked.
        self._store.change_rebalancing(
            records.begin_move, move, self._token, LEASE_SECONDS,
            self._clock())
        try:
            self._cloud.live_migrate(move.instance_uuid, move.destination,
                                     self._settings.copy_disks)
        except http.Refusal as refusal:
            why = f'Nova refuses: {refusal}'
            self._end(dataclasses.replace(move, body=body), records.FAILED,
                      why)
            self._surprise(f'{self._name(move)}: {why}')
            return 0
        except exceptions.TelemetryError as error:
            # Nova may have it: its record says so.
            LOG.warning('rebalancing: %s: no answer: %s', self._name(move),
                        error)
        self._asked.add(self._key(move))
        self._report(f'{self._name(move)}: begun.')
        return 1

    def _why_not(self, move):
        """Return why a move is not as it was planned any more, or None."""
        server = self._cloud.server(move.instance_uuid)
        if server is None:
            return 'the instance was deleted'
        if server.host != move.source:
            return f'the instance is on {server.host}'
        if advisor.marked(server.metadata):
            return f'its metadata has {advisor.MARK}={advisor.NEVER}'
        why = nova.why_fixed(server)
        if why is not None:
            return why
        service = self._cloud.services().get(move.destination)
        if service is None or service.problem is not None:
            return (f'{move.destination} is '
                    f'{service.problem if service else "gone"}')
        account = self._store.error_budgets().get(('host', move.destination))
        if account is None or account.in_debt:
            return (f'{move.destination} '
                    f'{"is in debt" if account else "has no error budget"}')
        if self._nodes is None:
            self._nodes = self._cloud.nodes()
        if move.destination not in {
                self._nodes.get(uuid)
                for uuid in self._cloud.room(server.shape)}:
            return f'{move.destination} has no room any more'
        return self._why_not_together(move)

    def _why_not_together(self, move):
        for group in self._cloud.groups():
            if move.instance_uuid not in group.members:
                continue
            there = {one.uuid for one
                     in self._cloud.servers(move.destination)}
            if group.policy != 'affinity' \
                    and len(group.members & there) >= group.most:
                return (f'{move.destination} has an instance of its server '
                        f'group')
            if group.policy == 'affinity' and len(group.members) > 1:
                return 'its server group keeps it with others'
        return None

    def _follow(self, move):
        """Look at a move that has begun; return 1 while it runs, else 0."""
        key = self._key(move)
        waited = self._monotonic() - self._deadlines.setdefault(
            key, self._monotonic())
        try:
            found, text = self._look(move, waited)
        except exceptions.TelemetryError as error:
            found, text = None, f'Nova cannot be asked: {error}'
        if found == records.PLANNED:
            # Nova was never asked. Of an ended plan nothing begins again.
            self._store.change_rebalancing(
                records.end_move, move,
                found if move.plan_id == self._plan_id else records.DROPPED,
                self._clock(), move.body)
        elif found is not None:
            self._end(move, found, text)
            if found == records.DONE:
                self._report(f'{self._name(move)}: done.')
            else:
                self._surprise(f'{self._name(move)}: {text}')
        elif waited > self._settings.wait_seconds:
            self._hung.add(key)
            self._surprise(
                f'{self._name(move)}: not ended after {waited:.0f} s'
                f'{f" ({text})" if text else ""}; it is left as it is: see '
                f'"openstack server migration list --server '
                f'{move.instance_uuid}"')
        else:
            return 1
        return 0

    def _look(self, move, waited):
        """Return (state or None, words) of a move that has begun.

        :param waited: seconds since this process first looked
        """
        last = move.body.get('last_migration', 0)
        newer = [one for one in self._cloud.live_migrations(
            move.instance_uuid) if one.number > last]
        server = self._cloud.server(move.instance_uuid)
        if server is None:
            return records.FAILED, 'the instance was deleted meanwhile'
        if newer and newer[0].is_running:
            if newer[0].destination not in (None, move.destination):
                return records.FAILED, (
                    f'somebody else migrates it to {newer[0].destination}')
            return None, f'Nova: {newer[0].status}'
        if server.task is not None:
            return None, f'its task is {server.task}'
        if server.host == move.destination:
            return records.DONE, None
        if server.host != move.source:
            return records.FAILED, f'the instance is on {server.host}'
        if newer and newer[0].status != 'completed':
            why = self._cloud.failure(move.instance_uuid)
            return records.FAILED, (f'Nova: {newer[0].status}'
                                    f'{f": {why}" if why else ""}')
        if waited < GRACE_SECONDS:
            return None, 'Nova has no record of it yet'
        if newer or self._key(move) in self._asked:
            return records.FAILED, 'Nova did not migrate it'
        return records.PLANNED, None

    def _end(self, move, state, text):
        now = self._clock()
        body = {**move.body, 'detail': text}
        if move.begun_at is not None:
            body['took_seconds'] = now - move.begun_at
        self._store.change_rebalancing(records.end_move, move, state, now,
                                       body)
