# SPDX-License-Identifier: Apache-2.0
"""The store of traffic models and host profiles.

Every write is one transaction that takes the next generation number, stamps
the rows it changes with it and publishes it by committing: a reader sees the
last complete generation and nothing else, even if a writer fails.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import time

from oslo_db import api as db_api
from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import exc

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.store import budgets as budget_table
from vswitch_aware_scheduler.store import claim_rows
from vswitch_aware_scheduler.store import decisions as decision_table
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import fleet_rows
from vswitch_aware_scheduler.store import generation_rows
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import instance_rows
from vswitch_aware_scheduler.store import model_rows
from vswitch_aware_scheduler.store import prior_rows
from vswitch_aware_scheduler.store import profile_rows
from vswitch_aware_scheduler.store import rebalance_records
from vswitch_aware_scheduler.store import service_records
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import estimate

__all__ = ['Store']

LOG = logs.get_logger(__name__)

#: Number of reasons that are stored so that each is logged only once.
_LOGGED = 10_000


#: How long the heartbeat of a modeler is kept after the last one.
MODELER_SECONDS = 86400


#: Largest number of attempts of a write, within its patience.
_ATTEMPTS = 20


class Store:
    """The traffic models and host profiles behind an SQLAlchemy URL.

    The constructor opens no connection, so a process may fork afterwards.
    Threads may share a store.

    In addition to the listed exceptions, every method can raise: StoreMissing
    when there is no store at the URL or it has no schema; StoreVersionError
    when its schema is older or newer than this release; StoreError when the
    database does not answer within the timeout. Messages never contain a
    password.

    :param url: SQLAlchemy URL of an SQLite file, MariaDB, MySQL or PostgreSQL
    :param timeout_seconds: longest time to wait for a connection, for a lock
        and for one answer, > 0
    :param patience_seconds: how long a write that waits for another writer is
        repeated; None: a writer waits for one timeout
    :raises StoreError: when the URL is not valid
    """

    def __init__(self, url, timeout_seconds=5.0, patience_seconds=None):
        self._url = engines.parse(url)
        self._timeout_seconds = timeout_seconds
        # A lock times out a little earlier than a connection.
        self._patience_seconds = (
            .7 * timeout_seconds if patience_seconds is None
            else patience_seconds)
        # By process id: connections are not shared with a child. No lock,
        # which a fork could leave held; two threads that race make an engine
        self._engines = {}
        self._logged = {}

    @property
    def url(self):
        """The URL for a message: without password."""
        return engines.hide_password(self._url)

    def __repr__(self):
        return f'Store({self.url})'

    def generation(self):
        """Return the last complete :class:`~.Generation`."""
        return self._read(
            lambda connection: generation_rows.read(connection)[0])

    def read_changes(self, since=None):
        """Return the changes that a reader needs, in one consistent view.

        The call is cheap when nothing has changed. It can read a million
        models.

        :param since: Generation of the reader's last read, None for all
        :returns: :class:`~.Changes`; they are complete when ``since`` is None,
            is of another store, is not in the history of this store (a
            restored backup, a replica that was promoted) or is so old that
            removals since then are no longer stored
        """
        changes = self._read_rows(generation_rows.changes, since)
        self._log_recovered(changes)
        return changes

    def unreadable_models(self):
        """Return the set of uuids of instances whose model is damaged."""
        return self._read_rows(model_rows.unreadable)

    def damaged(self):
        """Return {(kind, name): reason in words} of the damaged rows.

        The method reads all rows that :meth:`read_changes` and
        :meth:`read_claims` read, and the rows of counts.
        """
        damaged = {}
        self._read(lambda connection: _find_damaged(connection, damaged))
        damaged.update(self.read_claims().damaged)
        return damaged

    def model(self, instance_uuid):
        """Return the :class:`~.StoredModel` of an instance, or None.

        :param instance_uuid: uuid of the instance
        :raises StoreVersionError: when its format is unknown
        """
        return self._read(lambda connection: model_rows.read(connection,
                                                             instance_uuid))

    def has_models(self):
        """Return whether any instance has a traffic model."""
        return self._read(lambda connection: connection.scalar(sa.select(
            tables.traffic_model.c.instance_uuid).limit(1)) is not None)

    def chains(self, instance_uuids):
        """Return the traffic models of the given instances.

        The result omits instances without a model, with a damaged model or
        with a model in an unknown format.

        :param instance_uuids: collection of uuids
        :returns: {instance uuid: (name or None, TrafficModel)}
        """
        return self._read_rows(model_rows.chains, instance_uuids)

    def models(self, name=None):
        """Return a list of :class:`~.ModelSummary`, by uuid.

        :param name: only instances of that name
        """
        return self._read_rows(model_rows.summaries, name)

    def host_profiles(self):
        """Return a list of :class:`~.HostProfile`, by host."""
        return self._read_rows(profile_rows.read, sa.select(
            tables.host_profile).order_by(tables.host_profile.c.host))

    def resume_points(self):
        """Return {instance uuid: :class:`~.ResumePoint`} of all instances.

        Instances without a model are included.
        """
        return self._read(model_rows.resume_points)

    def learned(self, instance_uuids):
        """Return the counts of some instances; unknown instances are absent.

        Damaged counts are returned as empty, so that the modeler counts again.

        :param instance_uuids: collection of uuids
        :returns: {instance uuid: :class:`~.Learned`}
        """
        return self._read(lambda connection: model_rows.learned(
            connection, instance_uuids))

    def placements(self, instance_uuids=None):
        """Return the host, flavor and project of the given instances.

        Instances that are not in the store are absent.

        :param instance_uuids: collection of uuids, None for all
        :returns: {instance uuid: :class:`~.InstanceRecord`}
        """
        return self._read_rows(instance_rows.read, instance_uuids)

    def projects(self):
        """Return {instance uuid: id of its project, or None} of placements."""
        return self._read(lambda connection: dict(connection.execute(
            sa.select(tables.placement.c.instance_uuid,
                      tables.placement.c.project)).all()))

    def inventory(self):
        """Return the :class:`~.InventoryState`, or None."""
        return self._read(instance_rows.inventory)

    def former_instances(self):
        """Return {instance uuid: :class:`~.FormerInstance`}.

        These are the instances whose placement was removed in the last
        :data:`.instance_rows.FORMER_SECONDS`.
        """
        return self._read(instance_rows.former)

    def model_times(self):
        """Return [(instance uuid, name, window_end, updated_at)].

        The values are those of :class:`~.StoredModel`; the models are not
        read.
        """
        table = tables.traffic_model.c
        return self._read(lambda connection: [
            tuple(row) for row in sql.stream(connection, sa.select(
                table.instance_uuid, table.name, table.window_end,
                table.updated_at))])

    def measured_seconds(self):
        """Return {instance uuid: seconds} from the first sample to the last.

        It contains all instances with a model. The value is None where a model
        was written without the times of its samples.
        """
        return self._read(model_rows.measured_seconds)

    def server_time(self):
        """Return the time of the database's clock, in seconds UTC.

        It is None for SQLite, which uses the clock of this machine.
        """
        if engines.sqlite_path(self._url) is not None:
            return None
        return self._read(claim_rows.now)

    def secret(self):
        """Return the secret of the store as bytes, a key for hashes."""
        return self._read(_secret)

    def priors(self):
        """Return {key: :class:`~.Prior`} of all."""
        return self._read_rows(prior_rows.read)

    def laws(self, instance_uuids):
        """Return {instance uuid: RateLaw} of the instances that have a law.

        :param instance_uuids: collection of uuids
        """
        return self._read_rows(model_rows.laws, instance_uuids)

    def basis(self):
        """Return the :class:`~.Basis` of a pass.

        It contains the results of ``generation`` and ``resume_points``.
        """
        return self._read(lambda connection: generations.Basis(
            generation_rows.read(connection)[0],
            model_rows.resume_points(connection)))

    def write(self, models=(), remove=(), host_profiles=(), remove_hosts=(),
              now=None, unmodelled=(), based_on=None, placements=(),
              remove_placements=(), inventory=None, priors=(),
              remove_priors=()):
        """Publish a new generation completely or, on any error, not at all.

        A record replaces the record of the same instance or host. Only one
        writer works at a time. Deadlocks and lost connections are retried.

        :param models: StoredModel, each instance once
        :param remove: uuids of instances whose model and counts are removed;
            unknown uuids are no error
        :param host_profiles: HostProfile, each host once
        :param remove_hosts: hosts whose profile is removed
        :param now: seconds UTC, None for the system's clock
        :param unmodelled: Unmodelled; a stored model of such an instance is
            removed
        :param based_on: :class:`~.Basis` from which models, counts and
            removals were computed; None: they do not depend on stored data
        :param placements: list of InstanceRecord, each instance once
        :param remove_placements: uuids of instances whose placement is removed
        :param inventory: InventoryState, or None to keep the stored one
        :param priors: list of Prior, each key once
        :param remove_priors: list of Prior to remove
        :returns: the new Generation. A record with a value that the database
            refuses is skipped and named in the log.
        :raises InvalidInput: when a key is given twice
        :raises StoreChanged: when another writer has changed the counts of any
            of these instances since ``based_on``
        """
        models, remove = list(models), list(remove)
        unmodelled = list(unmodelled)
        host_profiles, remove_hosts = list(host_profiles), list(remove_hosts)
        placements = list(placements)
        remove_placements = list(remove_placements)
        priors, remove_priors = list(priors), list(remove_priors)
        instance_uuids = [
            *(record.instance_uuid for record in models + unmodelled),
            *remove]
        _require_distinct('instance', instance_uuids)
        _require_distinct('host', [
            *(record.host for record in host_profiles), *remove_hosts])
        _require_distinct('placement of instance', [
            *(record.instance_uuid for record in placements),
            *remove_placements])
        _require_distinct('prior', [
            record.key for record in priors + remove_priors])
        if now is None:
            now = time.time()

        attempts = itertools.count()
        limit = time.monotonic() + self._patience_seconds
        left_out = {}

        @db_api.wrap_db_retry(
            retry_interval=0.1, max_retries=_ATTEMPTS, max_retry_interval=2,
            retry_on_deadlock=True, retry_on_disconnect=True,
            exception_checker=engines.is_locked)
        def attempt():
            left_out.clear()
            number = next(attempts)
            try:
                return write_once()
            except Exception:
                if number < _ATTEMPTS and time.monotonic() < limit:
                    raise
                # oslo.db would log the exception of the last attempt with its
                # traceback. It does not log a StoreError.
                with engines.translate_errors(self._url, 'write'):
                    raise

        def write_once():
            with self._engine().begin() as connection:
                # The first statement locks this row, so that writers wait for
                # each other here and nowhere else.
                token = os.urandom(16).hex()
                connection.execute(sa.update(tables.generation).values(
                    number=tables.generation.c.number + 1, published_at=now,
                    token=token))
                generation, _ = generation_rows.read(connection)
                claim_rows.remember(connection, tables.generation_history,
                                    generation.number, token, now)
                if based_on is not None and generation_rows.is_later(
                        connection, generation, based_on.generation):
                    self._require_same(connection, based_on, instance_uuids)
                model_rows.write(connection, models, generation, left_out)
                model_rows.write_unmodelled(connection, unmodelled, generation,
                                            left_out)
                profile_rows.write(connection, host_profiles, generation,
                                   left_out)
                instance_rows.write(connection, placements, inventory,
                                    generation, left_out)
                prior_rows.write(connection, priors, remove_priors, generation,
                                 left_out)
                generation_rows.remove(
                    connection, remove, remove_hosts, remove_placements,
                    generation, left_out)
                generation_rows.forget_removals(connection, now)
                return generation

        self._require_schema()
        with engines.translate_errors(self._url, 'write'):
            generation = attempt()
        self._log_damaged(left_out)
        return generation

    def read_claims(self, since=None):
        """Return the claims that schedulers have written since a read.

        When there are none, this is one short statement.

        :param since: ClaimsSeen of the reader's last read, None for all
        :returns: :class:`~.ClaimChanges`
        """
        damaged = {}
        with self._claims('read', since) as (connection, head):
            changes = claim_rows.read(connection, since, damaged, head)
        self._log_damaged(damaged)
        return changes

    @contextlib.contextmanager
    def claiming(self, since=None):
        """Serialise claims with all other writers, as a context manager.

        The context yields (:class:`~.ClaimChanges` since a reading, write).
        The caller judges its claims with these changes and calls
        ``write(claims, withdrawn)`` once, see :func:`.claim_rows.write`. No
        other claim can be written meanwhile. The end of the context commits.
        These are five statements, or six with withdrawals. Nothing is retried.

        :param since: ClaimsSeen of the caller's last read, None for all
        """
        damaged = {}
        with self._claims('write', since, lock=True) as (connection, head):
            def write(claims, withdrawn=()):
                for claim in claim_rows.write(connection, claims, withdrawn,
                                              head):
                    damaged['claim', claim.instance_uuid] = (
                        f'claim of instance {claim.instance_uuid!r} on host '
                        f'{claim.host!r}: cannot be stored')

            yield claim_rows.read(connection, since, damaged, head,
                                  writes=True), write
        self._log_damaged(damaged)

    def purge_claims(self):
        """Delete the expired claims.

        :returns: number of deleted claims
        """
        with self._claims('read') as (connection, head):
            if not connection.scalar(sa.select(sa.func.count()).where(
                    tables.claim.c.expires_at < head.now)):
                return 0
        with self._claims('write', lock=True) as (connection, head):
            return claim_rows.purge(connection, head.now)

    def modelers(self):
        """Return a list of :class:`~.Modeler`, by host and start."""
        return self._read_rows(fleet_rows.modelers)

    def report_modeler(self, modeler):
        """Write the heartbeat of a modeler; it replaces the previous one.

        This is one short transaction without retries. It creates no
        generation. The method removes the heartbeats of modelers that have not
        reported for MODELER_SECONDS, and those of ended modelers on the same
        host.

        :param modeler: :class:`~.Modeler`
        """
        table = tables.modeler
        with self._writing() as connection:
            sql.delete_where(
                connection, table,
                (table.c.seen_at < modeler.seen_at - MODELER_SECONDS)
                | ((table.c.host == modeler.host) & table.c.ended))
            sql.upsert(connection, table, [dataclasses.asdict(modeler)])

    def fleet(self, kind):
        """Return the :class:`~.FleetFacts` of a kind.

        :param kind: one of :data:`~.FLEET_KINDS`
        """
        return self._read_rows(fleet_rows.read, kind)

    def write_fleet(self, facts, read_at):
        """Replace the stored facts of the fleet, for the given kinds.

        This is one transaction without retries. It creates no generation and
        does not write unchanged rows. A fact with a value that the database
        refuses is skipped and named in the log.

        :param facts: {kind: {name: dictionary}}, all facts of each kind
        :param read_at: when the facts were read, seconds UTC
        """
        table, left_out = tables.fleet_fact, {}
        with self._writing() as connection:
            for kind, facts_of_kind in facts.items():
                rows, removed_names = fleet_rows.changes(connection, kind,
                                                         facts_of_kind)
                for chunk in sql.key_chunks(removed_names):
                    connection.execute(sa.delete(table).where(
                        (table.c.kind == kind) & table.c.name.in_(chunk)))
                for chunk in sql.chunks(rows):
                    sql.upsert(connection, table, chunk, left_out)
            sql.upsert(connection, tables.fleet_reading, [
                {'kind': kind, 'read_at': read_at} for kind in facts])
        self._log_damaged(left_out)

    def workers(self):
        """Return a list of :class:`~.Worker`, by host and start."""
        return self._read_rows(fleet_rows.workers)

    def report_worker(self, worker):
        """Write the state of a scheduler worker; it replaces the previous one.

        The method behaves like :meth:`report_modeler`.

        :param worker: :class:`~.Worker`
        """
        table = tables.worker
        with self._writing() as connection:
            sql.delete_where(
                connection, table,
                table.c.seen_at < worker.seen_at - fleet_rows.WORKER_SECONDS)
            sql.upsert(connection, table, [fleet_rows.worker_row(worker)])

    def decisions(self, since=None, limit=None, **values):
        """Return a list of :class:`~.decisions.Decision`, the newest first.

        :param since: earliest time of a decision, seconds UTC
        :param limit: largest number of decisions
        :param values: only decisions with these values of ``instance_uuid``,
            ``request_id``, ``decision_id``, ``host``, ``project`` and
            ``outcome``; None restricts nothing
        """
        return self._read_rows(decision_table.read, decision_table.conditions(
            since, values), limit)

    def count_decisions(self, **values):
        """Return the number of decisions in the store.

        :param values: only decisions with these values count, see
            :meth:`decisions`
        """
        where = decision_table.conditions(None, values)
        return self._read(lambda connection: connection.scalar(
            sa.select(sa.func.count()).select_from(
                tables.decision).where(*where)))

    def write_decisions(self, decisions):
        """Write decisions, without retries.

        A decision with a value that the database refuses is skipped and named
        in the log.

        :param decisions: list of :class:`~.decisions.Decision`
        """
        left_out, rows = {}, []
        for decision in decisions:
            try:
                rows.append(decision_table.to_row(decision))
            except (TypeError, ValueError) as error:
                left_out['decision', decision.decision_id] = (
                    f'decision {decision.decision_id}: {error}')
        with self._writing() as connection:
            sql.upsert(connection, tables.decision, rows, left_out)
        self._log_damaged(left_out)

    def purge_decisions(self, most_decisions, age_seconds):
        """Remove the oldest decisions.

        :param most_decisions: largest number of decisions to keep
        :param age_seconds: largest age of a decision
        :returns: number of removed decisions
        """
        def expired(connection):
            return decision_table.expired_ids(connection, most_decisions,
                                              age_seconds)

        # Selected first: in MariaDB, a DELETE that matches no row locks the
        # gaps between rows.
        ids = self._read(expired)
        if ids:
            with self._writing() as connection:
                sql.delete(connection, tables.decision.c.decision_id, ids)
        return len(ids)

    def error_budgets(self):
        """Return {(kind, name): :class:`~.ErrorBudget`} of all budgets."""
        return self._read_rows(budget_table.read)

    def budget_state(self):
        """Return the :class:`~.BudgetState`, or None without budgets."""
        return self._read(budget_table.read_state)

    def debts(self, now):
        """Return {(kind, name): :class:`~.budgets.Debt`}, for schedulers.

        :param now: seconds UTC; budgets not settled for a day are omitted
        """
        return self._read(lambda connection: budget_table.read_debts(
            connection, now))

    def charges(self, first_day=0):
        """Return a list of :class:`~.budgets.Charge`: who spent budgets.

        :param first_day: first day to return, in days since 1970
        """
        return self._read(lambda connection: budget_table.read_charges(
            connection, first_day))

    def vm_times(self, first_day=0):
        """Return a list of :class:`~.budgets.VMTime`, by project and day.

        :param first_day: first day to return, in days since 1970
        """
        return self._read(lambda connection: budget_table.read_vm_times(
            connection, first_day))

    def silent_instances(self, instance_uuids):
        """Return the set of the given instances that send nothing.

        :param instance_uuids: collection of uuids
        """
        return self._read(lambda connection: budget_table.read_silent(
            connection, instance_uuids))

    def measured_rates(self):
        """Return a list of :class:`~.budgets.Measured` of all modelers."""
        return self._read_rows(budget_table.read_measured)

    def stays(self, since=-math.inf):
        """Return the times at which instances were on hosts.

        :param since: stays that ended before this time are omitted, seconds
            UTC
        :returns: {instance uuid: [:class:`~.Stay`]}, oldest first
        """
        return self._read(lambda connection: budget_table.read_stays(
            connection, since))

    def sum_history(self, kind, names=None, first_day=0):
        """Return a list of :class:`~.StoredSums`, by name and day.

        :param kind: :data:`~.HOST` or :data:`~.UPLINK`
        :param names: collection of names, None: all
        :param first_day: first day to return, in days since 1970
        """
        return self._read_rows(budget_table.read_sums, kind, names, first_day)

    def write_measured_rates(self, modeler, measured, written_at):
        """Replace the rates that a modeler has measured.

        This is one transaction without retries.

        :param modeler: name of the modeler
        :param measured: list of :class:`~.budgets.Measured`
        :param written_at: seconds UTC
        """
        with self._writing() as connection:
            budget_table.write_measured(connection, modeler, measured,
                                        written_at)

    def settle_budgets(self, state, budgets=(), sums=(), remove=(),
                       forget_before=None, charges=(), vm_times=()):
        """Write settled budgets and the sums that they were computed from.

        This is one transaction without retries: on any error, nothing is
        written.

        :param state: :class:`~.BudgetState`
        :param budgets: list of (``until`` of the stored budget, or None if
            there is none; new :class:`~.ErrorBudget`)
        :param sums: list of :class:`~.StoredSums`; each replaces the sums of
            the same day and period
        :param remove: (kind, name) of the budgets to remove with their sums
        :param forget_before: records of earlier days, in days since 1970, are
            removed, and also outdated rates and stays; None: none are removed
        :param charges: list of :class:`~.budgets.Charge`, which are added to
            those of the same day
        :param vm_times: list of :class:`~.budgets.VMTime`, which are added
            likewise
        :raises StoreChanged: when another writer has settled one of these
            budgets in the meantime
        """
        left_out = {}
        with self._writing() as connection:
            changed = budget_table.settle(connection, budgets, left_out)
            if changed is not None:
                raise exceptions.StoreChanged(
                    f'store {self.url}: the error budget of {changed[0]} '
                    f'{changed[1]} has changed; expected an unchanged budget: '
                    'another process has written it in the meantime')
            for chunk in sql.chunks(list(sums)):
                sql.upsert(connection, tables.sum_history, [
                    budget_table.sums_row(day_sums) for day_sums in chunk],
                    left_out)
            budget_table.add_to_day(connection, charges, vm_times)
            budget_table.forget(connection, remove, forget_before)
            sql.upsert(connection, tables.budget_state, [
                {'id': 1, **dataclasses.asdict(state)}])
        self._log_damaged(left_out)

    def plans(self, state=None, limit=None):
        """Return a list of :class:`~.PlanRecord`, the newest first.

        :param state: only plans in this state; None: all
        :param limit: largest number of plans; None: all
        """
        return self._read_rows(rebalance_records.read_plans, state, limit)

    def moves(self, plan_id=None, state=None, since=None):
        """Return a list of :class:`~.MoveRecord`, the newest plan first.

        :param plan_id: only moves of this plan; None: of all plans
        :param state: only moves in this state; None: all
        :param since: only moves that ended at this time or later, seconds UTC;
            None: all
        """
        return self._read_rows(rebalance_records.read_moves, plan_id, state,
                               since)

    def change_rebalancing(self, function, *arguments):
        """Call a function of :mod:`~.rebalance_records` that writes.

        The call is one transaction, which is repeated after a deadlock or a
        lost connection.

        :param function: callable(connection, ...)
        :param arguments: further arguments of the function
        :returns: result of the function
        """
        self._require_schema()

        @db_api.wrap_db_retry(
            retry_interval=0.1, max_retries=3, retry_on_deadlock=True,
            retry_on_disconnect=True, exception_checker=engines.is_locked)
        def attempt():
            with self._transaction() as connection:
                return function(connection, *arguments)

        with engines.translate_errors(self._url, 'write'):
            return attempt()

    def _transaction(self):
        """Return a transaction that writes, as a context manager.

        On SQLite, the transaction locks the file when it begins. SQLite
        rejects a transaction that first reads and then writes, if another
        process has written in between.
        """
        return self._engine().execution_options(
            begin=engines.BEGIN_WRITING).begin()

    @contextlib.contextmanager
    def _writing(self):
        """Yield a connection within a transaction that writes."""
        self._require_schema()
        with engines.translate_errors(self._url, 'write'), \
                self._transaction() as connection:
            yield connection

    @contextlib.contextmanager
    def _claims(self, doing, since=None, lock=False):
        """Yield (connection, :class:`.claim_rows.Head`) in a transaction.

        :param doing: 'read' or 'write', for messages
        :param since: ClaimsSeen of the reader, or None
        :param lock: whether to lock out other writers and use the next number
        """
        engines.require_file(self._url)
        with engines.translate_errors(self._url, doing):
            try:
                with self._transaction() if lock else self._engine().begin() \
                        as connection:
                    token = os.urandom(16).hex()
                    if lock:
                        claim_rows.raise_counter(connection, token)
                    head = claim_rows.head(connection, since)
                    if head.version != tables.SCHEMA_VERSION:
                        self._check_schema(connection)
                    if lock:
                        claim_rows.remember(
                            connection, tables.claim_history,
                            head.seen.number, token, head.now)
                    yield connection, head
            except (exc.SQLAlchemyError, db_exception.DBError):
                # If the schema has another version, this raises the error
                # that names the version.
                self._require_schema()
                raise

    def _require_same(self, connection, based_on, instance_uuids):
        """Raise StoreChanged if the counts of these instances have changed."""
        points = model_rows.resume_points(connection, instance_uuids)
        changed = [uuid for uuid in instance_uuids
                   if model_rows.mark(points.get(uuid))
                   != model_rows.mark(based_on.points.get(uuid))]
        if changed:
            raise exceptions.StoreChanged(
                f'store {self.url}: counts of {len(changed)} instances, such '
                f'as {changed[0]}, have changed since generation '
                f'{based_on.generation.number}; expected unchanged counts: '
                'another process has written them in the meantime')

    def _engine(self):
        pid = os.getpid()
        engine = self._engines.get(pid)
        if engine is None:
            engine = self._engines.setdefault(
                pid, engines.create(self._url, self._timeout_seconds))
        return engine

    def _read_rows(self, function, *arguments):
        """Return function(connection, *arguments, damaged).

        The function adds damaged rows to the dictionary ``damaged``; these are
        logged.
        """
        damaged = {}
        rows = self._read(lambda connection: function(
            connection, *arguments, damaged))
        self._log_damaged(damaged)
        return rows

    def _log_damaged(self, damaged):
        new = {key: reason for key, reason in damaged.items()
               if self._logged.get(key) != reason}
        if not new:
            return
        if len(self._logged) > _LOGGED:
            self._logged.clear()
        self._logged.update(new)
        LOG.warning('store %s: %d rows are damaged or invalid: %s', self.url,
                    len(new), plain_text.first_of(new.values(), '; '))

    def _log_recovered(self, changes):
        """Log which rows that were damaged have been read again."""
        if not self._logged:
            return
        read = {('model', name) for name in changes.instance_uuids}
        read.update(('host', profile.host)
                    for profile in changes.host_profiles)
        read.update(('prior', key) for key in changes.priors)
        read.update(('placement', name) for name in changes.placements[0])
        for kind, name in (self._logged.keys() & read) \
                - changes.damaged.keys():
            del self._logged[kind, name]
            LOG.info('store %s: %s %s can be read again', self.url, kind,
                     name)

    def _require_schema(self):
        """Raise if the store is missing or its schema has another version.

        Every write calls this first. The check has its own transaction,
        because SQLite can reject a write in a transaction that has read.
        """
        self._read(lambda connection: None)

    def _read(self, function):
        """Return function(connection), called within one consistent view."""
        engines.require_file(self._url)
        with engines.translate_errors(self._url, 'read'):
            try:
                return self._read_with(self._engine(), function)
            except (exc.OperationalError, db_exception.DBError) as error:
                if engines.sqlite_path(self._url) is None \
                        or not engines.is_write_protected(error):
                    raise
            return self._read_unlocked(function)

    def _read_with(self, engine, function):
        with engine.connect() as connection:
            if engine.dialect.name != 'sqlite':
                connection = connection.execution_options(
                    isolation_level='REPEATABLE READ')
            with connection.begin():
                self._check_schema(connection)
                return function(connection)

    def _read_unlocked(self, function):
        # SQLite cannot open a write-ahead log in a directory where this
        # process may not write while no other process has it open. Then the
        # file is at rest: read it as it is, and make sure that it still was
        # at rest afterwards.
        path = engines.sqlite_path(self._url)

        def state():
            status = os.stat(path)
            log_path = path + '-wal'
            return (status.st_ino, status.st_size, status.st_mtime_ns,
                    os.path.exists(log_path) and os.path.getsize(log_path))

        engine = engines.create(self._url, self._timeout_seconds,
                                immutable=True)
        before = state()
        try:
            if not before[-1]:
                return self._read_with(engine, function)
        finally:
            if before[-1] or state() != before:
                raise exceptions.StoreError(
                    f'store {self.url}: cannot be read while another process '
                    f'writes to it; expected write access to the directory '
                    f'{os.path.dirname(path)}')

    def _check_schema(self, connection):
        version = sql.schema_version(connection)
        if version is None:
            raise exceptions.StoreMissing(
                f'store {self.url}: it has no schema; run "vswitch-manage db '
                f'sync"')
        if version < tables.SCHEMA_VERSION:
            raise exceptions.StoreVersionError(
                f'store {self.url}: its schema has version {version}; '
                f'expected {tables.SCHEMA_VERSION}; run '
                f'"vswitch-manage db sync"')
        if version > tables.SCHEMA_VERSION:
            raise exceptions.StoreVersionError(
                f'store {self.url}: its schema has version {version}; '
                f'expected {tables.SCHEMA_VERSION}: it was written by a '
                f'newer release')


def _require_distinct(kind, keys):
    distinct_keys = set()
    for key in keys:
        if key in distinct_keys:
            raise exceptions.InvalidInput(
                f'{kind} {key}: given twice in one write; expected once')
        distinct_keys.add(key)


def _secret(connection):
    value = connection.scalar(sa.select(tables.secret.c.value))
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise exceptions.StoreError(
            'the table secret: no row of hexadecimal digits; expected one: '
            'restore the store from a backup') from None


def _find_damaged(connection, damaged):
    generation_rows.changes(connection, None, damaged)
    prior_rows.read(connection, damaged)
    instance_rows.read(connection, None, damaged)
    fleet_rows.workers(connection, damaged)
    fleet_rows.modelers(connection, damaged)
    decision_table.read(connection, [], None, damaged)
    rebalance_records.read_plans(connection, None, None, damaged)
    rebalance_records.read_moves(connection, None, None, None, damaged)
    budget_table.read(connection, damaged)
    budget_table.read_measured(connection, damaged)
    for kind in service_records.FLEET_KINDS:
        fleet_rows.read(connection, kind, damaged)
    for table in (tables.unmodelled_instance, tables.traffic_model_detail):
        for uuid, data in sql.stream(connection, sa.select(
                table.c.instance_uuid, table.c.counts).where(
                    table.c.counts.is_not(None))):
            try:
                estimate.TransitionCounts.from_bytes(data)
            except (exceptions.InvalidSeries, TypeError) as error:
                damaged['counts', uuid] = (
                    f'instance {uuid}: its stored counts are damaged: {error}')
