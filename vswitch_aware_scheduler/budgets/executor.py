# SPDX-License-Identifier: Apache-2.0
"""Executes a plan of migrations, one step at a time.

Each action is recorded in the store before it is executed. If a process is
killed at any moment, another process can continue from this record. The result
of a migration is read from Nova, never assumed. A plan goes on when one of its
moves fails. The record of a failed move says what rests: see
:data:`.plans.RESTS`.

:meth:`Executor.step` never waits; the caller pauses between steps. Only the
process with the lock in the store executes plans. No configuration.
"""

from collections.abc import Callable
import dataclasses
import os
import socket
import time
import uuid as uuids

from vswitch_aware_scheduler.budgets import immovable
from vswitch_aware_scheduler.budgets import proposal as proposals
from vswitch_aware_scheduler.budgets import rebalance_settings
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import plans as records

__all__ = ['Executor', 'LEASE_SECONDS', 'POLL_SECONDS', 'holder_name']

LOG = logs.get_logger(__name__)

#: The lock of a process that was killed expires after this number of seconds.
LEASE_SECONDS = 120.0

#: Seconds between two steps.
POLL_SECONDS = 5.0

#: An interrupted plan is not resumed after this number of seconds.
RESUME_SECONDS = 3600.0

#: Moves of a plan do not begin after this number of seconds.
BEGIN_SECONDS = 7200.0

#: Longest time until Nova's record shows a migration or its end.
GRACE_SECONDS = 60.0

#: A migration that has not ended after this number of seconds is not awaited.
WAIT_SECONDS = 3600.0

#: Longest time until the store has the decision of a filter, in seconds.
DECISION_SECONDS = 15.0

#: Part of Nova's message if its scheduler refuses the destination.
_NO_HOST = 'no valid host', 'novalidhost'


def holder_name(program: str) -> str:
    """Return the name of this process, for the lock."""
    return f'{program} on {socket.gethostname()}, process {os.getpid()}'


def _lacks_rights(error):
    """Whether a service rejects each request of this user."""
    return getattr(error, 'status', None) in (401, 403)


class Executor:
    """Executes plans while it has the lock; a context manager."""

    def __init__(self, store: model_store.Store, cloud: nova.CloudApi,
                 settings: rebalance_settings.RebalanceSettings, holder: str,
                 clock: Callable[[], float] = time.time,
                 monotonic: Callable[[], float] = time.monotonic,
                 report: Callable[[str], object] = lambda text: None) -> None:
        self._store = store
        self._cloud = cloud
        self._settings = settings
        self._holder = holder
        self._clock = clock
        self._monotonic = monotonic
        self._report = report
        self._token: str | None = None
        self._plan_id: str | None = None
        self._made_at: float | None = None   # of the plan
        # For moves that have started, by (plan, position).
        self._looked_at = {}
        self._refused_at = {}
        self._asked = set()
        self._hung = set()
        self._is_silent = False  # whether Nova does not answer
        self.problems = []

    @property
    def problem(self) -> str | None:
        """The unexpected results as one sentence, or None."""
        return '; '.join(self.problems) or None

    # The lock

    def __enter__(self) -> 'Executor':
        """Acquire the lock.

        :raises StoreError: if another process has it
        """
        token = uuids.uuid4().hex
        other = records.take_lock(self._store, self._holder, token,
                                  LEASE_SECONDS)
        if other is not None:
            raise exceptions.StoreError(
                thing=f'lock of rebalancing in the store {self._store.url}',
                seen=f'held by {other}', expected='a free lock: only one '
                'process at a time migrates instances. The lock of a killed '
                f'process expires after {LEASE_SECONDS:g} s')
        self._token = token
        return self

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        records.release_lock(self._store, token)

    def keep(self) -> None:
        """Renew the lock.

        :raises StoreChanged: if another process has acquired it
        """
        if not records.keep_lock(self._store, self._token, LEASE_SECONDS):
            raise exceptions.StoreChanged(
                thing='holder of the lock of rebalancing')

    def keeping(self, progress: Callable | None = None) -> Callable:
        """Return a progress callback that renews the lock now and then."""
        kept_at = [self._monotonic()]

        def report(done, total):
            if self._monotonic() - kept_at[0] > LEASE_SECONDS / 4:
                self.keep()
                kept_at[0] = self._monotonic()
            if progress is not None:
                progress(done, total)

        return report

    # Plans

    def resume(self) -> int:
        """Continue the plan of an earlier process.

        Migrations that have not ended after :data:`WAIT_SECONDS` are looked at
        once and not awaited.

        :returns: number of moves that have to be executed or awaited
        """
        now = self._clock()
        plans = self._store.plans(records.RUNNING)
        for number, plan in enumerate(plans):
            age = now - plan.made_at
            if number == 0 and abs(age) <= RESUME_SECONDS:
                self._plan_id, self._made_at = plan.plan_id, plan.made_at
                continue
            self._end_plan(plan.plan_id, records.ABANDONED, (
                f'interrupted, and {age:.0f} s old; plans are resumed for '
                f'{RESUME_SECONDS:g} s'))
        open_moves = 0
        for move in self._store.moves(state=records.BEGUN):
            if now - move.begun_at <= WAIT_SECONDS:
                open_moves += 1
                continue
            # It may have ended since. If not, a new plan goes around it.
            self._hung.add(self._key(move))
            self._follow(move)
        if self._plan_id is not None:
            open_moves += len(
                self._store.moves(self._plan_id, records.PLANNED))
            self._report(f'Plan {self._plan_id}, which was interrupted, '
                         f'continues.')
        elif open_moves:
            self._report(f'{open_moves} migrations of an earlier plan have '
                         f'not ended: they are looked at first.')
        return open_moves

    def begin(self, proposal: proposals.RebalanceProposal) -> str:
        """Write a plan, whose moves :meth:`step` executes.

        :raises InvalidInput: if migrations would be too slow
        """
        self._settings.check_network(proposal.capacity_kbps,
                                     proposal.largest_mib)
        self.keep()
        plan = records.PlanRecord(str(uuids.uuid4()), self._clock(),
                                  self._holder, reason=proposal.reason)
        records.write_plan(self._store, plan, [
            records.MoveRecord(
                plan.plan_id, position, move.instance_uuid, move.source,
                move.destination, body=dataclasses.asdict(move))
            for position, move in enumerate(proposal.moves)])
        self._plan_id, self._made_at = plan.plan_id, plan.made_at
        self.problems = []
        return plan.plan_id

    def run(self, sleep: Callable[[float], object]) -> None:
        """Step until nothing remains to do."""
        while self.step():
            sleep(POLL_SECONDS)

    def step(self) -> bool:
        """Check running migrations and start those that may start.

        :raises StoreChanged: if another process has acquired the lock
        """
        self.keep()
        running = sum([self._follow(move) for move
                       in self._store.moves(state=records.BEGUN)])
        planned = [] if self._plan_id is None else self._store.moves(
            self._plan_id, records.PLANNED)
        if planned and abs(self._clock() - self._made_at) > BEGIN_SECONDS:
            self._problem(f'{len(planned)} moves were not begun within '
                          f'{BEGIN_SECONDS:g} s')
            planned = []
        while planned and running < self._settings.parallel:
            try:
                running += self._begin(planned[0])
            except exceptions.TelemetryError as error:
                if _lacks_rights(error):
                    self._problem(f'{len(planned)} moves were not begun: '
                                  f'{error}')
                    planned = []
                    break
                # Nothing was asked for: the next step tries again.
                if not self._is_silent:
                    self._report(f'Nova does not answer, the plan waits: '
                                 f'{error}.')
                self._is_silent = True
                break
            self._is_silent = False
            planned.pop(0)
        if running or planned:
            return True
        if self._plan_id is not None:
            moves = self._store.moves(self._plan_id)
            done = sum(move.state == records.DONE for move in moves)
            if done == len(moves):
                state, reason = records.DONE, f'{done} migrations were made'
            else:
                state, reason = records.INCOMPLETE, (
                    f'{done} of {len(moves)} migrations were made: '
                    f'{self.problem or "others were not begun"}')
            self._end_plan(self._plan_id, state, reason)
            self._plan_id = None
        return False

    def _end_plan(self, plan_id, state, reason):
        records.end_plan(self._store, plan_id, state, reason, self._clock())
        self._report(f'Plan {plan_id}: {state}: {reason}.')

    # Moves

    @staticmethod
    def _key(move):
        return move.plan_id, move.position

    @staticmethod
    def _name(move):
        return (f'{move.body.get("name") or move.instance_uuid} from '
                f'{move.source} to {move.destination}')

    def _problem(self, text):
        LOG.warning('rebalancing: %s', text)
        self._report(f'Problem: {text}.')
        self.problems.append(text)

    def _fail(self, move, state, rests, text):
        """Write that a move has failed or was not begun."""
        self._end(dataclasses.replace(
            move, body={**move.body, 'rests': rests}), state, text)
        self._problem(f'{self._name(move)}: {text}')

    def _begin(self, move):
        """Start a move. Return 1 if it runs now, else 0.

        :raises TelemetryError: if Nova does not answer before it is asked to
            migrate, or this user has no right to
        """
        for rests, problem in self._obstacles(move):
            self._fail(move, records.DROPPED, rests, problem)
            return 0
        before = self._cloud.live_migrations(move.instance_uuid)
        move = dataclasses.replace(move, body={
            **move.body, 'last_migration': before[0].number if before else 0})
        records.update_body(self._store, move, move.body)
        # From here on, the record says that the request may have been sent.
        records.begin_move(self._store, move, self._token, LEASE_SECONDS,
                           self._clock())
        try:
            self._cloud.live_migrate(move.instance_uuid, move.destination,
                                     self._settings.copy_disks)
        except http.Refusal as refusal:
            if _lacks_rights(refusal):
                records.end_move(self._store, move, records.PLANNED,
                                 self._clock(), move.body)
                raise
            self._fail(move, records.FAILED, records.INSTANCE
                       if refusal.status == 409 else records.DESTINATION,
                       f'Nova refuses: {refusal}')
            return 0
        except exceptions.TelemetryError as error:
            # Nova may have received the request: its record shows it.
            LOG.warning('rebalancing: %s: no answer: %s', self._name(move),
                        error)
        self._asked.add(self._key(move))
        self._report(f'{self._name(move)}: begun.')
        return 1

    def _obstacles(self, move):
        """Yield (what rests, why a move cannot be made as planned)."""
        group = move.body.get('group')
        for other in self._store.moves(move.plan_id):
            if group is not None and other.body.get('group') == group \
                    and other.position != move.position \
                    and other.state in (records.FAILED, records.DROPPED):
                yield None, (f'it helps only together with '
                             f'{self._name(other)}, which failed')
        server = self._cloud.server(move.instance_uuid)
        if server is None:
            yield records.INSTANCE, 'the instance was deleted'
        if server.host != move.source:
            yield records.INSTANCE, f'the instance is on {server.host}'
        reason = immovable.why_fixed(server, self._cloud.aggregates(),
                                     self._settings.tenant_veto)
        if reason is not None:
            yield records.INSTANCE, reason
        for reason in self._why_not_join(move, server):
            yield records.DESTINATION, reason

    def _why_not_join(self, move, server):
        """Yield reasons for which the destination does not accept a server."""
        destination = move.destination
        for other in self._store.moves(state=records.BEGUN):
            if self._key(other) in self._hung and not {
                    move.source, destination}.isdisjoint(
                        (other.source, other.destination)):
                yield f'the migration of {self._name(other)} has not ended'
        service = self._cloud.services().get(destination)
        if service is None or service.problem is not None:
            yield f'{destination} is {service.problem if service else "gone"}'
        budget = self._store.error_budgets().get(('host', destination))
        if budget is None or not budget.accepts:
            yield (f'{destination} '
                   f'{"is in debt" if budget else "has no error budget"}')
        nodes = self._store.fleet('host').facts.get(
            destination, {}).get('nodes', {})
        if nodes.keys().isdisjoint(self._cloud.room(server.shape)):
            yield f'{destination} has no room any more'
        for group in self._cloud.groups():
            if move.instance_uuid not in group.members:
                continue
            if group.policy == 'affinity':
                if len(group.members) > 1:
                    yield 'its server group keeps it with others'
            elif len(group.members.intersection(
                    other.uuid for other in self._cloud.servers(
                        destination))) >= group.most_members:
                yield f'{destination} has an instance of its server group'

    def _follow(self, move):
        """Check a move that has started. Return 1 while it is awaited."""
        key = self._key(move)
        waited = self._monotonic() - self._looked_at.setdefault(
            key, self._monotonic())
        try:
            state, rests, text = self._look(move, waited)
        except exceptions.TelemetryError as error:
            state, rests, text = None, None, (
                f'a request to Nova failed: {error}')
            if _lacks_rights(error) and key not in self._hung:
                self._hung.add(key)
                self._problem(f'{self._name(move)}: its result is not known, '
                              f'it is looked at by the next plan: {error}')
        if state == records.PLANNED:
            # Nova never received the request. Moves of an ended plan do not
            # start again.
            records.end_move(
                self._store, move,
                state if move.plan_id == self._plan_id else records.DROPPED,
                self._clock(), move.body)
        elif state == records.DONE:
            self._end(move, state, None)
            self._report(f'{self._name(move)}: done.')
        elif state is not None:
            self._fail(move, state, rests, text)
        elif key in self._hung:
            return 0
        elif self._clock() - move.begun_at > WAIT_SECONDS:
            self._hung.add(key)
            self._problem(
                f'{self._name(move)}: not ended after {WAIT_SECONDS:g} s'
                f'{f" ({text})" if text else ""}; it is left as it is: see '
                f'"openstack server migration list --server '
                f'{move.instance_uuid}"')
        else:
            return 1
        return 0

    def _look(self, move, waited):
        """Return the new state of a move that has started, and why.

        :param waited: seconds since the first check by this process
        :returns: (state, what rests or None, explanation or None); the state
            is None while the migration runs
        """
        last = move.body.get('last_migration', 0)
        newer = [migration for migration in self._cloud.live_migrations(
            move.instance_uuid) if migration.number > last]
        # Others may have migrated the instance since then.
        own = newer[-1] if newer else None
        server = self._cloud.server(move.instance_uuid)
        is_on = server and server.host
        if own and own.destination not in (None, move.destination):
            return records.FAILED, records.INSTANCE, (
                f'the instance is on {is_on}'
                if not own.is_running and is_on not in (None, move.source)
                else f'somebody else migrates it to {own.destination}')
        if own and own.status == 'completed' and is_on != move.source:
            if server is None or server.task is None or len(newer) > 1:
                return records.DONE, None, None
        if server is None:
            return (records.FAILED, records.INSTANCE,
                    'the instance was deleted meanwhile')
        if own and own.is_running:
            return None, None, f'Nova: {own.status}'
        if server.task is not None and len(newer) < 2:
            return None, None, f'its task is {server.task}'
        if is_on == move.destination:
            return records.DONE, None, None
        if is_on != move.source:
            return (records.FAILED, records.INSTANCE,
                    f'the instance is on {is_on}')
        if own and own.status != 'completed':
            return self._failure(move, own)
        if waited < GRACE_SECONDS:
            return None, None, 'Nova has no record of it yet'
        if newer or self._key(move) in self._asked:
            return (records.FAILED, records.DESTINATION,
                    'Nova did not migrate it')
        return records.PLANNED, None, None

    def _failure(self, move, migration):
        """Return what :meth:`_look` returns of a migration that failed.

        If a filter has refused the destination, the reason is that of its
        decision.
        """
        request, cause = self._cloud.failure(move.instance_uuid)
        text = f'Nova: {migration.status}{f": {cause}" if cause else ""}'
        refusal = request and next((
            refused for decision in self._store.decisions(
                instance_uuid=move.instance_uuid, request_id=request, limit=1)
            for refused in decision.nearest
            if refused['host'] == move.destination and refused['enforced']),
            None)
        if refusal:
            return records.FAILED, records.DESTINATION, (
                f'VSwitchFilter refuses {move.destination} by the check '
                f'{refusal["check"]}: {refusal["text"]}')
        if cause and any(part in cause.lower() for part in _NO_HOST):
            # The filter writes its decision a moment later.
            now = self._monotonic()
            if now - self._refused_at.setdefault(self._key(move), now) \
                    < DECISION_SECONDS:
                return None, None, text
            return records.FAILED, records.DESTINATION, text
        return records.FAILED, records.MIGRATION, text

    def _end(self, move, state, text):
        now = self._clock()
        body = {**move.body, 'detail': text}
        if move.begun_at is not None:
            body['took_seconds'] = now - move.begun_at
        records.end_move(self._store, move, state, now, body)
