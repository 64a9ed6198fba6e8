# SPDX-License-Identifier: Apache-2.0
"""Executes a plan of migrations, one step at a time.

Each action is recorded in the store before it is executed. If a process is
killed at any moment, another process can continue from this record. The result
of a migration is read from Nova, never assumed. The first unexpected result
ends the plan: running migrations are awaited, others do not start.

:meth:`Executor.step` never waits; the caller pauses between steps. Only the
process with the lock in the store executes plans. No configuration.
"""

import dataclasses
import os
import socket
import time
import uuid as uuids

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.rebalance import advisor
from vswitch_aware_scheduler.rebalance import cloud as nova
from vswitch_aware_scheduler.store import rebalance_records as records

__all__ = ['Executor', 'LEASE_SECONDS', 'POLL_SECONDS', 'holder_name']

LOG = logs.get_logger(__name__)

#: The lock of a process that was killed expires after this number of seconds.
LEASE_SECONDS = 120.0

#: Seconds between two steps.
POLL_SECONDS = 5.0

#: An interrupted plan is not resumed after this number of seconds.
RESUME_SECONDS = 3600.0

#: Longest time until Nova's record shows a migration or its end.
GRACE_SECONDS = 60.0


def holder_name(program):
    """Return the name of this process, for the lock.

    :param program: name of the program
    """
    return f'{program} on {socket.gethostname()}, process {os.getpid()}'


class Executor:
    """Executes plans while it has the lock; a context manager.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param cloud: :class:`.cloud.Cloud`
    :param settings: :class:`.settings.Settings`
    :param holder: name of the process
    :param clock: callable, returns seconds UTC
    :param monotonic: callable, returns monotonic seconds
    :param report: callable(sentence), called for each event
    :ivar problem: the first unexpected result in words, or None
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
        # For moves that have started, by (plan, position).
        self._deadlines = {}
        self._asked = set()
        self._hung = set()
        self._nodes = None
        self.problem = None

    # The lock

    def __enter__(self):
        """Acquire the lock.

        :raises StoreError: if another process has it
        """
        token = uuids.uuid4().hex
        other = self._store.change_rebalancing(
            records.take_lock, self._holder, token, LEASE_SECONDS)
        if other is not None:
            raise exceptions.StoreError(
                f'lock of rebalancing in the store {self._store.url}: held '
                f'by {other}; expected a free lock: only one process at a '
                f'time migrates instances. The lock of a killed process '
                f'expires after {LEASE_SECONDS:g} s')
        self._token = token
        return self

    def __exit__(self, *_):
        token, self._token = self._token, None
        self._store.change_rebalancing(records.release_lock, token)

    def keep(self):
        """Renew the lock.

        :raises StoreChanged: if another process has acquired it
        """
        if not self._store.change_rebalancing(
                records.keep_lock, self._token, LEASE_SECONDS):
            raise exceptions.StoreChanged(
                'lock of rebalancing: held by another process; this process '
                'has lost the lock and begins no further migration')

    def keeping(self, progress=None):
        """Return a progress callback that renews the lock now and then.

        :param progress: None, or callback(done, total) that is called as well
        """
        kept_at = [self._monotonic()]

        def report(done, total):
            if self._monotonic() - kept_at[0] > LEASE_SECONDS / 4:
                self.keep()
                kept_at[0] = self._monotonic()
            if progress is not None:
                progress(done, total)

        return report

    # Plans

    def resume(self):
        """Continue the plan of an earlier process.

        :returns: number of moves that have to be executed or awaited
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
        open_moves = len(self._store.moves(state=records.BEGUN))
        if self._plan_id is not None:
            open_moves += len(
                self._store.moves(self._plan_id, records.PLANNED))
            self._report(f'Plan {self._plan_id}, which was interrupted, '
                         f'continues.')
        elif open_moves:
            self._report(f'{open_moves} migrations of an earlier plan have '
                         f'not ended: they are looked at first.')
        return open_moves

    def begin(self, proposal):
        """Write a plan, whose moves :meth:`step` executes.

        :param proposal: :class:`.proposal.Proposal` with moves
        :returns: id of the plan
        :raises InvalidInput: if migrations would be too slow
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
        """Check running migrations and start those that may start.

        :returns: whether anything remains to do
        :raises StoreChanged: if another process has acquired the lock
        :raises StoreError: if the store cannot be read or written
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
            done = sum(move.state == records.DONE
                       for move in self._store.moves(self._plan_id))
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
        """Start a move. Return 1 if it runs now, else 0."""
        try:
            problem = self._why_not(move)
            before = self._cloud.live_migrations(move.instance_uuid)
        except exceptions.TelemetryError as error:
            problem = f'a request to Nova failed: {error}'
        if problem is not None:
            self._end(move, records.DROPPED, problem)
            self._surprise(f'{self._name(move)}: {problem}')
            return 0
        body = {**move.body, 'last_migration': max(
            (migration.number for migration in before), default=0)}
        self._store.change_rebalancing(records.update_body, move, body)
        # From here on, the record says that the request may have been sent.
        self._store.change_rebalancing(
            records.begin_move, move, self._token, LEASE_SECONDS,
            self._clock())
        try:
            self._cloud.live_migrate(move.instance_uuid, move.destination,
                                     self._settings.copy_disks)
        except http.Refusal as refusal:
            problem = f'Nova refuses: {refusal}'
            self._end(dataclasses.replace(move, body=body), records.FAILED,
                      problem)
            self._surprise(f'{self._name(move)}: {problem}')
            return 0
        except exceptions.TelemetryError as error:
            # Nova may have received the request: its record shows it.
            LOG.warning('rebalancing: %s: no answer: %s', self._name(move),
                        error)
        self._asked.add(self._key(move))
        self._report(f'{self._name(move)}: begun.')
        return 1

    def _why_not(self, move):
        """Return why a move differs from its plan, or None."""
        server = self._cloud.server(move.instance_uuid)
        if server is None:
            return 'the instance was deleted'
        if server.host != move.source:
            return f'the instance is on {server.host}'
        if advisor.marked(server.metadata):
            return f'its metadata has {advisor.MARK}={advisor.NEVER}'
        reason = nova.why_fixed(server)
        if reason is not None:
            return reason
        service = self._cloud.services().get(move.destination)
        if service is None or service.problem is not None:
            return (f'{move.destination} is '
                    f'{service.problem if service else "gone"}')
        account = self._store.error_budgets().get(('host', move.destination))
        if account is None or not account.accepts:
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
            on_destination = {server.uuid for server
                              in self._cloud.servers(move.destination)}
            members_there = len(group.members & on_destination)
            if group.policy != 'affinity' \
                    and members_there >= group.most_members:
                return (f'{move.destination} has an instance of its server '
                        f'group')
            if group.policy == 'affinity' and len(group.members) > 1:
                return 'its server group keeps it with others'
        return None

    def _follow(self, move):
        """Check a move that has started. Return 1 while it runs, else 0."""
        key = self._key(move)
        waited = self._monotonic() - self._deadlines.setdefault(
            key, self._monotonic())
        try:
            state, text = self._look(move, waited)
        except exceptions.TelemetryError as error:
            state, text = None, f'a request to Nova failed: {error}'
        if state == records.PLANNED:
            # Nova never received the request. Moves of an ended plan do not
            # start again.
            self._store.change_rebalancing(
                records.end_move, move,
                state if move.plan_id == self._plan_id else records.DROPPED,
                self._clock(), move.body)
        elif state is not None:
            self._end(move, state, text)
            if state == records.DONE:
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
        """Return the new state of a move that has started, and why.

        :param move: MoveRecord
        :param waited: seconds since the first check by this process
        :returns: (state, explanation or None); the state is None while the
            migration runs
        """
        last = move.body.get('last_migration', 0)
        newer = [migration for migration in self._cloud.live_migrations(
            move.instance_uuid) if migration.number > last]
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
            cause = self._cloud.failure(move.instance_uuid)
            return records.FAILED, (f'Nova: {newer[0].status}'
                                    f'{f": {cause}" if cause else ""}')
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
