# SPDX-License-Identifier: Apache-2.0
"""The store of traffic models and host profiles.

Every write is one transaction that takes the next generation number, stamps
the rows it changes with it and publishes it by committing: a reader sees the
last complete generation and nothing else, whatever happens to a writer.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import time

import numpy as np
from oslo_db import api as db_api
from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite
from sqlalchemy import exc

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.store import budgets as budget_table
from vswitch_aware_scheduler.store import claims as claim_table
from vswitch_aware_scheduler.store import decisions as decision_table
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import fleet as fleet_table
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import instance_records
from vswitch_aware_scheduler.store import model_records
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import prior_records
from vswitch_aware_scheduler.store import profile_records
from vswitch_aware_scheduler.store import service_records
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.store import trial_records
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import series

__all__ = ['FORMER_SECONDS', 'Store']

LOG = logs.get_logger(__name__)

#: Rows that are named in one line of the log, and reasons that are remembered
#: so that each is logged once.
_SHOWN = 5
_LOGGED = 10_000

#: How long incremental readers can learn of a removal; one that comes later
#: reads everything.
REMOVAL_SECONDS = 86400

_DAY_SECONDS = 86400.0

#: How long the flavor and the project of a deleted instance are kept.
FORMER_SECONDS = 35 * _DAY_SECONDS

#: How long the heartbeat of a modeler is kept after the last one.
MODELER_SECONDS = 86400

#: Rows a statement; memory of a read or a write beside its result.
_CHUNK = 5000

#: Keys that one query asks for; some builds of SQLite take 999 parameters.
_KEYS = 900

#: A writer tries so often again, as long as its patience lasts.
_ATTEMPTS = 20

_INSERTS = {'sqlite': sqlite.insert, 'postgresql': postgresql.insert,
            'mysql': mysql.insert, 'mariadb': mysql.insert}


class Store:
    """Durable traffic models and host profiles behind an SQLAlchemy URL.

    Making one connects to nothing and a process may fork afterwards. Threads
    may share it.

    Every method raises, beside what it names: StoreMissing when there is no
    store at the URL or it has no schema; StoreVersionError when its schema
    is older or newer than this release; StoreError when the database cannot
    answer within the timeout or at all. Messages never show a password.

    :param url: SQLAlchemy URL of an SQLite file, MariaDB, MySQL or PostgreSQL
    :param timeout_seconds: longest wait for a connection, for a lock and for
        one answer, > 0
    :param patience_seconds: how long a write is tried again that waited for
        another one in vain, None: a writer waits for one timeout
    :raises StoreError: when the URL cannot be used
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
        return self._read(lambda connection: _generation(connection)[0])

    def read_changes(self, since=None):
        """Return what a reader needs to be up to date, in one consistent view.

        Cheap when nothing has changed; built to read a million models.

        :param since: Generation of the reader's last read, None for all
        :returns: :class:`~.Changes`; complete when ``since`` is None,
            of another store, not in the history of this one (a restored
            backup, a replica that was promoted) or too old to know what was
            removed
        """
        changes = self._read_rows(_changes, since)
        self._log_well(changes)
        return changes

    def unreadable_models(self):
        """Return the set of uuids of instances whose model is damaged."""
        return self._read_rows(_unreadable_models)

    def damaged(self):
        """Return {(kind, name): reason in words} of rows that are damaged.

        Reads all rows which :meth:`read_changes`, :meth:`trials` and
        :meth:`read_claims` read, and those of counts.
        """
        damaged = {}
        self._read(lambda connection: _find_damaged(connection, damaged))
        damaged.update(self.read_claims().damaged)
        return damaged

    def model(self, instance_uuid):
        """Return the :class:`~.StoredModel` of an instance, or None.

        :raises StoreVersionError: when it has a format not known here
        """
        return self._read(lambda connection: _model(connection,
                                                    instance_uuid))

    def has_models(self):
        """Return whether any instance has a traffic model."""
        return self._read(lambda connection: connection.scalar(sa.select(
            tables.traffic_model.c.instance_uuid).limit(1)) is not None)

    def chains(self, instance_uuids):
        """Return the traffic models of some instances.

        Those without a model, and those whose model is damaged or has a
        format not known here, are absent.

        :param instance_uuids: collection of uuids
        :returns: {instance uuid: (name or None, TrafficModel)}
        """
        return self._read_rows(_chains, instance_uuids)

    def models(self, name=None):
        """Return a list of :class:`~.ModelSummary`, by uuid.

        :param name: only instances of that name
        """
        return self._read_rows(_summaries, name)

    def host_profiles(self):
        """Return a list of :class:`~.HostProfile`, by host."""
        return self._read_rows(_host_profiles, sa.select(
            tables.host_profile).order_by(tables.host_profile.c.host))

    def resume_points(self):
        """Return {instance uuid: :class:`~.ResumePoint`} of all.

        Those of instances without a model as well.
        """
        return self._read(_resume_points)

    def learned(self, instance_uuids):
        """Return what is counted of some instances; unknown ones are absent.

        Damaged counts are told as none, so that they can be counted anew.

        :param instance_uuids: collection of uuids
        :returns: {instance uuid: :class:`~.Learned`}
        """
        return self._read(lambda connection: _learned(connection,
                                                      instance_uuids))

    def placements(self, instance_uuids=None):
        """Return what is known of some instances; unknown ones are absent.

        :param instance_uuids: collection of uuids, None for all
        :returns: {instance uuid: :class:`~.InstanceRecord`}
        """
        return self._read_rows(_placements, instance_uuids)

    def projects(self):
        """Return {instance uuid: id of its project, or None} of placements."""
        return self._read(lambda connection: dict(connection.execute(
            sa.select(tables.placement.c.instance_uuid,
                      tables.placement.c.project)).all()))

    def inventory(self):
        """Return the :class:`~.InventoryState`, or None."""
        return self._read(_inventory)

    def former_instances(self):
        """Return {instance uuid: :class:`~.FormerInstance`}.

        Of those whose placement was removed in the last
        :data:`FORMER_SECONDS`.
        """
        return self._read(_former_instances)

    def model_times(self):
        """Return [(instance uuid, name, window_end, updated_at)] of models.

        As of :class:`~.StoredModel`, without the models themselves.
        """
        table = tables.traffic_model.c
        return self._read(lambda connection: [
            tuple(row) for row in _stream(connection, sa.select(
                table.instance_uuid, table.name, table.window_end,
                table.updated_at))])

    def measured_seconds(self):
        """Return {instance uuid: seconds} from the first sample to the last.

        Of all instances with a model; None where a model was written without
        the time that its samples are of.
        """
        return self._read(_measured_seconds)

    def server_time(self):
        """Return what the clock of the database shows now, seconds UTC.

        None for SQLite, which has the clock of this machine.
        """
        if engines.sqlite_path(self._url) is not None:
            return None
        return self._read(claim_table.now)

    def secret(self):
        """Return the secret of the store as bytes, a key for hashes."""
        return self._read(_secret)

    def priors(self):
        """Return {key: :class:`~.Prior`} of all."""
        return self._read_rows(_priors)

    def laws(self, instance_uuids):
        """Return {instance uuid: RateLaw} of those of some that have one.

        :param instance_uuids: collection of uuids
        """
        return self._read_rows(_laws, instance_uuids)

    def trials(self):
        """Return a list of :class:`~.StoredTrial`, oldest first."""
        return self._read_rows(_trials)

    def trial_outcomes(self):
        """Return {kind: :class:`~.TrialOutcome`} of all."""
        return self._read(_trial_outcomes)

    def basis(self):
        """Return the :class:`~.Basis` of a pass.

        That is what ``generation`` and ``resume_points`` return.
        """
        return self._read(lambda connection: generations.Basis(
            _generation(connection)[0], _resume_points(connection)))

    def write(self, models=(), remove=(), host_profiles=(), remove_hosts=(),
              now=None, unmodelled=(), based_on=None, placements=(),
              remove_placements=(), inventory=None, priors=(),
              remove_priors=(), trials=(), followed=(), end_trials=(),
              outcomes=(), forget_outcomes_before=None):
        """Publish a new generation: all of it or, on any error, nothing.

        A record replaces the one of the same instance or host. Writers wait
        for each other; deadlocks and lost connections are retried.

        :param models: StoredModel, each instance once
        :param remove: uuids of instances whose model and counts go; unknown
            ones are no error
        :param host_profiles: HostProfile, each host once
        :param remove_hosts: hosts whose profile goes
        :param now: seconds UTC, None for the system's clock
        :param unmodelled: Unmodelled, only of instances without a model
        :param based_on: :class:`~.Basis` that models, counts and
            removals go on from; None: they go on from nothing
        :param trials: StoredTrial, new ones
        :param followed: (trial id, until before, until now) of trials
        :param end_trials: ids of trials that are over; unknown ones are no
            error
        :param outcomes: TrialOutcome that are added to those of the day of
            their ``until``
        :param forget_outcomes_before: outcomes of days before that one, in
            days since 1970, go; None: none do
        :returns: the new Generation. A record with a value that the database
            refuses is left out and named in the log.
        :raises InvalidInput: when a key is given twice
        :raises StoreChanged: when another writer has changed the counts of
            any of these instances since ``based_on``, or has followed or
            ended one of these trials
        """
        models, remove = list(models), list(remove)
        unmodelled = list(unmodelled)
        host_profiles, remove_hosts = list(host_profiles), list(remove_hosts)
        _require_distinct('instance', [m.instance_uuid for m in models]
                          + [u.instance_uuid for u in unmodelled] + remove)
        _require_distinct('host', [h.host for h in host_profiles]
                          + remove_hosts)
        placements = list(placements)
        remove_placements = list(remove_placements)
        _require_distinct('placement of instance', [
            p.instance_uuid for p in placements] + remove_placements)
        priors, remove_priors = list(priors), list(remove_priors)
        _require_distinct('prior', [p.key for p in priors + remove_priors])
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
                # What the last one raises is told to the caller alone;
                # oslo.db would log it with its traceback.
                with engines.translate_errors(self._url, 'write'):
                    raise

        def write_once():
            with self._engine().begin() as connection:
                # First of all, so that writers queue here and nowhere else.
                token = os.urandom(16).hex()
                connection.execute(sa.update(tables.generation).values(
                    number=tables.generation.c.number + 1, published_at=now,
                    token=token))
                generation, _ = _generation(connection)
                claim_table.remember(connection, tables.generation_history,
                                     generation.number, token, now)
                if based_on is not None and _is_later(
                        connection, generation, based_on.generation):
                    self._require_same(connection, based_on, [
                        *(one.instance_uuid for one in models),
                        *(one.instance_uuid for one in unmodelled), *remove])
                _write_models(connection, models, generation, left_out)
                _write_unmodelled(connection, unmodelled, generation,
                                  left_out)
                _write_host_profiles(connection, host_profiles, generation,
                                     left_out)
                _write_placements(connection, placements, inventory,
                                  generation, left_out)
                _write_priors(connection, priors, remove_priors, generation,
                              left_out)
                self._follow_trials(connection, followed)
                _write_trials(connection, trials, end_trials, outcomes,
                              forget_outcomes_before, left_out)
                _remove(connection, remove, remove_hosts, remove_placements,
                        generation, left_out)
                _forget_removals(connection, now)
                return generation

        # Looks at the schema in a transaction of its own: a reader that
        # turns writer can be refused by SQLite.
        self._read(lambda connection: None)
        with engines.translate_errors(self._url, 'write'):
            generation = attempt()
        self._log_damaged(left_out)
        return generation

    def read_claims(self, since=None):
        """Return what schedulers have said of claims since.

        One short statement when nothing was.

        :param since: ClaimsSeen of the reader's last read, None for all
        :returns: :class:`~.ClaimChanges`
        """
        damaged = {}
        with self._claims('read') as (connection, found):
            changes = claim_table.read(connection, since, damaged, *found)
        self._log_damaged(damaged)
        return changes

    def write_claims(self, claims):
        """Tell all schedulers of placements and of what came of them.

        What is no newer word than the one there is changes nothing. Written
        at once or not at all; nothing is tried again. A claim with a value
        that the database refuses is left out and named in the log.

        :param claims: StoredClaim, oldest first
        :returns: {instance uuid: StoredClaim that there is} of placements
            that came later than another one they did not know of
        """
        with self._claims('write', lock=True) as (connection, found):
            seen, _, now = found
            rows, late = claim_table.upsert_rows(
                connection, claims, _key_chunks(dict.fromkeys(
                    claim.instance_uuid for claim in claims)),
                seen.number, now)
            left_out = {}
            _upsert(connection, tables.claim, rows, left_out)
        self._log_damaged(left_out)
        return late

    def purge_claims(self):
        """Delete the claims that have run out; return how many."""
        with self._claims('read') as (connection, found):
            if not connection.scalar(sa.select(sa.func.count()).where(
                    tables.claim.c.expires_at < found[-1])):
                return 0
        with self._claims('write', lock=True) as (connection, found):
            return claim_table.purge(connection, found[-1])

    def modelers(self):
        """Return a list of :class:`~.Modeler`, by host and start."""
        return self._read(_modelers)

    def report_modeler(self, modeler):
        """Write the heartbeat of a modeler, in place of its last one.

        One short transaction, which is not tried again. It makes no
        generation. Heartbeats of modelers that have not reported for
        MODELER_SECONDS are removed, and so are those of modelers of the same
        host that have ended.

        :param modeler: :class:`~.Modeler`
        """
        # As in write: looks at the schema in a transaction of its own.
        self._read(lambda connection: None)
        table = tables.modeler
        with engines.translate_errors(self._url, 'write'), \
                self._engine().begin() as connection:
            # Selected first: a DELETE that finds nothing locks gaps in
            # MariaDB.
            _delete(connection, table.c.name, connection.scalars(
                sa.select(table.c.name).where(
                    (table.c.seen_at < modeler.seen_at - MODELER_SECONDS)
                    | ((table.c.host == modeler.host) & table.c.ended)
                )).all())
            _upsert(connection, table, [dataclasses.asdict(modeler)])

    def fleet(self, kind):
        """Return the :class:`~.FleetFacts` of a kind.

        :param kind: of :data:`~.FLEET_KINDS`
        """
        return self._read_rows(fleet_table.read, kind)

    def write_fleet(self, facts, read_at):
        """Replace what is known of the fleet, of some kinds.

        One transaction, which is not tried again. It makes no generation.
        Rows that stay as they are are not written. A fact with a value that
        the database refuses is left out and named in the log.

        :param facts: {kind: {name: dictionary}}, all that there are of each
        :param read_at: when they were read, seconds UTC
        """
        # As in write: looks at the schema in a transaction of its own.
        self._read(lambda connection: None)
        table, left_out = tables.fleet_fact, {}
        with engines.translate_errors(self._url, 'write'), \
                self._engine().begin() as connection:
            for kind, of_kind in facts.items():
                rows, gone = fleet_table.changes(connection, kind, of_kind)
                for chunk in _key_chunks(gone):
                    connection.execute(sa.delete(table).where(
                        (table.c.kind == kind) & table.c.name.in_(chunk)))
                for chunk in _chunks(rows):
                    _upsert(connection, table, chunk, left_out)
            _upsert(connection, tables.fleet_reading, [
                {'kind': kind, 'read_at': read_at} for kind in facts])
        self._log_damaged(left_out)

    def workers(self):
        """Return a list of :class:`~.Worker`, by host and start."""
        return self._read_rows(fleet_table.workers)

    def report_worker(self, worker):
        """Write the state of a scheduler's worker, in place of its last one.

        As :meth:`report_modeler`.

        :param worker: :class:`~.Worker`
        """
        self._read(lambda connection: None)
        table = tables.worker
        with engines.translate_errors(self._url, 'write'), \
                self._engine().begin() as connection:
            _delete(connection, table.c.name, connection.scalars(
                sa.select(table.c.name).where(
                    table.c.seen_at < worker.seen_at
                    - fleet_table.WORKER_SECONDS)).all())
            _upsert(connection, table, [fleet_table.worker_row(worker)])

    def decisions(self, instance_uuid=None, request_id=None, since=None,
                  limit=None):
        """Return a list of :class:`~.decisions.Decision`, the newest first.

        :param instance_uuid: only of this instance
        :param request_id: only of this request of Nova
        :param since: only of this time or later, seconds UTC
        :param limit: at most so many
        """
        columns = tables.decision.c
        where = []
        if instance_uuid is not None:
            where.append(columns.instance_uuid == instance_uuid)
        if request_id is not None:
            where.append(columns.request_id == request_id)
        if since is not None:
            where.append(columns.decided_at >= since)
        return self._read_rows(decision_table.read, where, limit)

    def write_decisions(self, decisions):
        """Write decisions; nothing is tried again.

        A decision with a value that the database refuses is left out and
        named in the log.

        :param decisions: list of :class:`~.decisions.Decision`
        """
        # As in write: looks at the schema in a transaction of its own.
        self._read(lambda connection: None)
        left_out, rows = {}, []
        for one in decisions:
            try:
                rows.append(decision_table.to_row(one))
            except (TypeError, ValueError) as error:
                left_out['decision', one.decision_id] = (
                    f'decision {one.decision_id}: {error}')
        with engines.translate_errors(self._url, 'write'), \
                self._engine().begin() as connection:
            _upsert(connection, tables.decision, rows, left_out)
        self._log_damaged(left_out)

    def purge_decisions(self, kept, age_seconds):
        """Remove decisions that are too many or too old; return how many.

        :param kept: how many stay, the newest ones
        :param age_seconds: how old a decision gets
        """
        def expired(connection):
            return decision_table.expired_ids(connection, kept, age_seconds)

        # Selected first, as heartbeats are.
        ids = self._read(expired)
        if ids:
            with engines.translate_errors(self._url, 'write'), \
                    self._engine().begin() as connection:
                _delete(connection, tables.decision.c.decision_id, ids)
        return len(ids)

    def error_budgets(self):
        """Return {(kind, name): :class:`~.ErrorBudget`} of all."""
        return self._read_rows(budget_table.read)

    def budget_state(self):
        """Return the :class:`~.BudgetState`; None: there is no budget."""
        return self._read(budget_table.read_state)

    def budget_shares(self):
        """Return a list of :class:`~.budgets.Share`, the newest first."""
        return self._read_rows(budget_table.read_shares)

    def stays(self, since=-math.inf):
        """Return where instances were when.

        :param since: without what ended before, seconds UTC
        :returns: {instance uuid: [:class:`~.Stay`]}, oldest first
        """
        return self._read(lambda connection: budget_table.read_stays(
            connection, since))

    def sum_history(self, kind, names=None, first_day=0):
        """Return a list of :class:`~.StoredSums`, by name and day.

        :param kind: :data:`~.HOST` or :data:`~.UPLINK`
        :param names: collection of names, None: all
        :param first_day: first day wanted, in days since 1970
        """
        return self._read_rows(budget_table.read_sums, kind, names, first_day)

    def write_budget_shares(self, modeler, shares, written_at):
        """Replace the shares that a modeler has written.

        One transaction, which is not tried again.

        :param modeler: name of the modeler
        :param shares: list of :class:`~.budgets.Share`
        :param written_at: seconds UTC
        """
        # As in write: looks at the schema in a transaction of its own.
        self._read(lambda connection: None)
        left_out = {}
        with engines.translate_errors(self._url, 'write'), \
                self._engine().begin() as connection:
            budget_table.forget_shares(connection, modeler, {
                (one.kind, one.name) for one in shares})
            for chunk in _chunks(shares):
                _upsert(connection, tables.budget_share, [
                    budget_table.share_row(one, written_at)
                    for one in chunk], left_out)
        self._log_damaged(left_out)

    def settle_budgets(self, state, budgets=(), sums=(), remove=(),
                       forget_before=None):
        """Write budgets, each once from one time on, and their sums.

        All of it or, on any error, nothing; nothing is tried again.

        :param state: :class:`~.BudgetState`
        :param budgets: list of (time that the stored budget is settled up
            to, or None where there is none; :class:`~.ErrorBudget`)
        :param sums: list of :class:`~.StoredSums`, each in place of those of
            the same day
        :param remove: keys of budgets that go, with their sums
        :param forget_before: sums of days before that one, in days since
            1970, go, and so does all that has ended two days before it
        :raises StoreChanged: when another writer has settled one of these
            meanwhile
        """
        self._read(lambda connection: None)
        left_out = {}
        with engines.translate_errors(self._url, 'write'), \
                self._engine().begin() as connection:
            changed = budget_table.settle(connection, budgets, _upsert,
                                          left_out)
            if changed is not None:
                raise exceptions.StoreChanged(
                    f'store {self.url}: the error budget of {changed[0]} '
                    f'{changed[1]} has changed, wanted as it was read: '
                    f'another writer was faster')
            for chunk in _chunks(list(sums)):
                _upsert(connection, tables.sum_history,
                        [budget_table.sums_row(one) for one in chunk],
                        left_out)
            budget_table.forget(connection, remove, forget_before)
            _upsert(connection, tables.budget_state, [
                {'id': 1, **dataclasses.asdict(state)}])
        self._log_damaged(left_out)

    @contextlib.contextmanager
    def _claims(self, doing, lock=False):
        """Give (connection, (ClaimsSeen, complete since, now)).

        :param lock: be the only writer, with the next number
        """
        engines.require_file(self._url)
        with engines.translate_errors(self._url, doing):
            try:
                with self._engine().begin() as connection:
                    token = os.urandom(16).hex()
                    if lock:
                        connection.execute(sa.update(
                            tables.claim_counter).values(
                                number=tables.claim_counter.c.number + 1,
                                token=token))
                    seen, since, version, now = claim_table.head(connection)
                    if version != tables.SCHEMA_VERSION:
                        self._check_schema(connection)
                    if lock:
                        claim_table.remember(
                            connection, tables.claim_history, seen.number,
                            token, now)
                    yield connection, (seen, since, now)
            except (exc.SQLAlchemyError, db_exception.DBError):
                # A schema of another version is told as such.
                self._read(lambda connection: None)
                raise

    def _require_same(self, connection, based_on, instance_uuids):
        """Check that counts are what they were; others' do not matter."""
        points = _resume_points(connection, instance_uuids)
        changed = [uuid for uuid in instance_uuids
                   if _mark(points.get(uuid))
                   != _mark(based_on.points.get(uuid))]
        if changed:
            raise exceptions.StoreChanged(
                f'store {self.url}: counts of {len(changed)} instances, such '
                f'as {changed[0]}, have changed since generation '
                f'{based_on.generation.number}, wanted as they were: another '
                f'writer was faster')

    def _follow_trials(self, connection, followed):
        table = tables.trial
        for trial_id, before, until in followed:
            if not connection.execute(sa.update(table).where(
                    table.c.trial_id == trial_id,
                    table.c.until == before).values(until=until)).rowcount:
                raise exceptions.StoreChanged(
                    f'store {self.url}: trial {trial_id} has changed, wanted '
                    f'as followed to {before:.0f}: another writer was faster')

    def _engine(self):
        pid = os.getpid()
        engine = self._engines.get(pid)
        if engine is None:
            engine = self._engines.setdefault(
                pid, engines.create(self._url, self._timeout_seconds))
        return engine

    def _read_rows(self, function, *arguments):
        """Call function(connection, *arguments, damaged) and log these."""
        damaged = {}
        found = self._read(lambda connection: function(
            connection, *arguments, damaged))
        self._log_damaged(damaged)
        return found

    def _log_damaged(self, damaged):
        new = {key: reason for key, reason in damaged.items()
               if self._logged.get(key) != reason}
        if not new:
            return
        if len(self._logged) > _LOGGED:
            self._logged.clear()
        self._logged.update(new)
        shown = '; '.join(itertools.islice(new.values(), _SHOWN))
        if len(new) > _SHOWN:
            shown += ' and more'
        LOG.warning('store %s: %d rows are damaged or refused: %s', self.url,
                    len(new), shown)

    def _log_well(self, changes):
        """Log which rows that were damaged have been read again."""
        if not self._logged:
            return
        read = {('model', name) for name in changes.instance_uuids}
        read.update(('host', one.host) for one in changes.host_profiles)
        read.update(('prior', key) for key in changes.priors)
        read.update(('placement', name) for name in changes.placements[0])
        for kind, name in (self._logged.keys() & read) \
                - changes.damaged.keys():
            del self._logged[kind, name]
            LOG.info('store %s: %s %s can be read again', self.url, kind,
                     name)

    def _read(self, function):
        """Call function(connection) within one consistent view."""
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
            found = os.stat(path)
            log = path + '-wal'
            return (found.st_ino, found.st_size, found.st_mtime_ns,
                    os.path.exists(log) and os.path.getsize(log))

        engine = engines.create(self._url, self._timeout_seconds,
                                immutable=True)
        before = state()
        try:
            if not before[-1]:
                return self._read_with(engine, function)
        finally:
            if before[-1] or state() != before:
                raise exceptions.StoreError(
                    f'store {self.url}: it is being '
                    f'written and this process may not write to '
                    f'{os.path.dirname(path)}, which sharing it needs')

    def _check_schema(self, connection):
        version = None
        if sa.inspect(connection).has_table('alembic_version'):
            version = connection.scalar(sa.text(
                'SELECT version_num FROM alembic_version'))
        if version is None:
            raise exceptions.StoreMissing(
                f'store {self.url}: it has no schema; run "vswitch-manage db '
                f'sync"')
        if version < tables.SCHEMA_VERSION:
            raise exceptions.StoreVersionError(
                f'store {self.url}: its schema has version {version}, wanted '
                f'{tables.SCHEMA_VERSION}; run "vswitch-manage db sync"')
        if version > tables.SCHEMA_VERSION:
            raise exceptions.StoreVersionError(
                f'store {self.url}: its schema has version {version}, wanted '
                f'{tables.SCHEMA_VERSION}: it was written by a newer release')


def _require_distinct(kind, keys):
    seen = set()
    for key in keys:
        if key in seen:
            raise exceptions.InvalidInput(
                f'{kind} {key} is given twice in one write, wanted once')
        seen.add(key)


def _chunks(rows, size=_CHUNK):
    for start in range(0, len(rows), size):
        yield rows[start:start + size]


def _key_chunks(names):
    """Yield lists of names to look for, without those that cannot be there."""
    yield from _chunks([name for name in names
                        if packing.storable(name) == name], _KEYS)


def _stream(connection, query):
    # For this query alone: psycopg2 could not write on such a connection.
    return connection.execute(query, execution_options={
        'stream_results': True, 'max_row_buffer': _CHUNK})


def _generation(connection):
    """Return (Generation, complete_since)."""
    table = tables.generation
    row = connection.execute(sa.select(
        table.c.store_id, table.c.number, table.c.published_at,
        table.c.token, table.c.complete_since)).one()
    return generations.Generation(*row[:4]), row.complete_since


def _changes(connection, since, damaged):
    generation, complete_since = _generation(connection)
    complete = (since is None or since.store_id != generation.store_id
                or not complete_since <= since.number <= generation.number
                or not claim_table.is_remembered(
                    connection, tables.generation_history, since, generation))

    def changed(table, *columns):
        query = sa.select(*columns)
        if not complete:
            query = query.where(table.c.generation > since.number)
        return query

    uuids, counts, data = [], [np.zeros(0, np.int64)], bytearray()
    hosts, gone, placements, priors = [], [], ((), ()), {}
    outcomes = budgets = None
    if complete or since.number != generation.number:
        table = tables.traffic_model
        rows = _stream(connection, changed(table, table.c.instance_uuid,
                                           table.c.law, table.c.slots))
        for chunk in rows.partitions(_CHUNK):
            names, count, rates = packing.usable_laws(
                *zip(*chunk), 'model', damaged)
            uuids.extend(names)
            counts.append(count)
            data += rates
        hosts = _host_profiles(connection, changed(
            tables.host_profile, tables.host_profile), damaged)
        placements = _placement_values(connection, changed(
            tables.placement, *_PLACED), damaged)
        priors = _prior_laws(connection, changed(tables.prior, *_PRIOR),
                             damaged)
        outcomes = _trial_outcomes(connection)
        budgets = budget_table.read_days(connection)
        if not complete:
            table = tables.removal
            gone = connection.execute(changed(
                table, table.c.kind, table.c.name)).all()
            gone += [(kind, name) for kind, name in (
                (_REMOVED_KINDS.get(kind), name) for kind, name in damaged)
                if kind is not None]
    given = set(uuids) if gone else ()
    given_hosts = {host.host for host in hosts}
    placed = set(placements[0]) if gone else ()
    inventory = _inventory(connection)
    return generations.Changes(
        generation=generation, complete=complete, instance_uuids=uuids,
        states=np.concatenate(counts), packed_laws=data,
        removed=[name for kind, name in gone
                 if kind == tables.INSTANCE and name not in given],
        host_profiles=hosts,
        removed_hosts=[name for kind, name in gone
                       if kind == tables.HOST and name not in given_hosts],
        placements=placements,
        removed_placements=[name for kind, name in gone
                            if kind == tables.PLACEMENT
                            and name not in placed],
        seen_at=inventory and inventory.seen_at, priors=priors,
        outcomes=outcomes, budgets=budgets, damaged=damaged)


#: What a reader removes where a row of a kind is damaged.
_REMOVED_KINDS = {'model': tables.INSTANCE, 'host': tables.HOST}


_PLACED = [tables.placement.c[name] for name in (
    'instance_uuid', 'host', 'flavor', 'project', 'networks')]
_RUNNING = tables.placement.c.running

_PRIOR = [tables.prior.c[name] for name in (
    'instance_uuid', 'flavor', 'project', 'members', 'law', 'slots')]


def _placement_values(connection, query, damaged):
    """Return (uuids, [(host, flavor, project, Attachments or None)]).

    There may be a million: equal ones are one object.
    """
    uuids, values, shared, attached = [], [], {}, {}
    for chunk in _stream(connection, query).partitions(_CHUNK):
        for uuid, *names, networks in chunk:
            if networks not in attached:
                attached[networks] = packing.usable_attachments(
                    uuid, networks, 'placement', damaged)
            names.append(attached[networks])
            value = tuple(shared.setdefault(name, name) for name in names)
            uuids.append(uuid)
            values.append(shared.setdefault(value, value))
    return uuids, values


def _prior_laws(connection, query, damaged):
    """Return {key: RateLaw or Expected, None of one gone or damaged}."""
    rows = {_prior_key(row): row for row in connection.execute(query)}
    found = dict.fromkeys(rows)
    for key, law in _unpacked([row for row in rows.values() if row.members],
                              damaged).items():
        found[key] = law if rows[key].instance_uuid else \
            packing.unpack_prior(law, rows[key].slots)
    return found


def _prior_key(row):
    return row.instance_uuid or (row.flavor or None, row.project or None)


def _unpacked(rows, damaged):
    """Return {key: RateLaw} of rows of the table prior."""
    keys, counts, data = packing.usable_laws(
        [_prior_key(row) for row in rows], [row.law for row in rows],
        [row.slots for row in rows], 'prior', damaged)
    return dict(zip(keys, rate_law.split_laws(data, counts)))


def _priors(connection, damaged):
    table = tables.prior
    rows = {_prior_key(row): row for row in connection.execute(sa.select(
        *_PRIOR, table.c.updated_at).where(table.c.members > 0))}
    priors = {}
    for key, law in _unpacked(list(rows.values()), damaged).items():
        row = rows[key]
        try:
            priors[key] = prior_records.Prior(
                row.flavor or None, row.project or None, law, row.members,
                row.instance_uuid or None, row.updated_at,
                packing.unpack_prior(law, row.slots).high_shares)
        except (exceptions.InvalidModel, TypeError) as error:
            damaged['prior', key] = str(error)
    return priors


def _laws(connection, instance_uuids, damaged):
    table, found = tables.traffic_model, {}
    for chunk in _key_chunks(instance_uuids):
        rows = connection.execute(sa.select(
            table.c.instance_uuid, table.c.law, table.c.slots).where(
                table.c.instance_uuid.in_(chunk))).all()
        if rows:
            uuids, counts, data = packing.usable_laws(
                *zip(*rows), 'model', damaged)
            found.update(zip(uuids, rate_law.split_laws(data, counts)))
    return found


def _trials(connection, damaged):
    table = tables.trial
    found = []
    for row in connection.execute(sa.select(table).order_by(
            table.c.since, table.c.trial_id)):
        try:
            hosts = json.loads(row.hosts)
            found.append(trial_records.StoredTrial(
                row.trial_id, row.kind, row.since, row.until,
                tuple(hosts['instances']), tuple(map(tuple, hosts['hosts']))))
        except (ValueError, TypeError, KeyError) as error:
            damaged['trial', row.trial_id] = (
                f'trial {row.trial_id}: its hosts are damaged: '
                f'{type(error).__name__}: {error}')
    return found


def _trial_outcomes(connection):
    table = tables.trial_outcome
    days, until = {}, {}
    for kind, percent, latest, *numbers in connection.execute(sa.select(
            table.c.kind, table.c.percent, sa.func.max(table.c.until),
            sa.func.sum(table.c.overload_days),
            sa.func.sum(table.c.host_days)).group_by(
                table.c.kind, table.c.percent).order_by(table.c.percent)):
        days.setdefault(kind, []).append((percent, *numbers))
        until[kind] = max(latest, until.get(kind, latest))
    return {kind: trial_records.TrialOutcome(kind, until[kind], tuple(numbers))
            for kind, numbers in days.items()}


def _inventory(connection):
    table = tables.inventory
    row = connection.execute(sa.select(
        table.c.source, table.c.seen_at, table.c.complete_at,
        table.c.changed_until)).first()
    return row and instance_records.InventoryState(*row)


def _modelers(connection):
    table = tables.modeler
    return [
        service_records.Modeler(**row._mapping)
        for row in connection.execute(
            sa.select(table).order_by(
                table.c.host, table.c.started_at, table.c.name
            )
        )
    ]


def _former_instances(connection):
    table = tables.former_instance
    return {row.instance_uuid: instance_records.FormerInstance(*row[1:])
            for row in connection.execute(sa.select(
                table.c.instance_uuid, table.c.flavor, table.c.project,
                table.c.removed_at))}


def _measured_seconds(connection):
    table = tables.traffic_model
    return {uuid: None if not samples and start == end else end - start
            for uuid, start, end, samples in _stream(connection, sa.select(
                table.c.instance_uuid, table.c.window_start,
                table.c.window_end, table.c.samples))}


def _secret(connection):
    value = connection.scalar(sa.select(tables.secret.c.value))
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise exceptions.StoreError(
            'the table secret: no row of hexadecimal digits; expected one: '
            'restore the store from a backup') from None


def _placements(connection, instance_uuids, damaged):
    table = tables.placement
    query = sa.select(*_PLACED, _RUNNING)
    queries = [query] if instance_uuids is None else [
        query.where(table.c.instance_uuid.in_(chunk))
        for chunk in _key_chunks(instance_uuids)]
    placements = {}
    for one in queries:
        for row in connection.execute(one):
            uuid = row.instance_uuid
            try:
                placements[uuid] = instance_records.InstanceRecord(
                    *row[:4], packing.usable_attachments(
                        uuid, row.networks, 'placement', damaged),
                    row.running)
            except exceptions.InvalidModel as error:
                damaged['placement', uuid] = str(error)
    return placements


def _refused(text):
    """Return the Refused of a column, without any where it is damaged."""
    try:
        return series.Refused(**json.loads(text))
    except (ValueError, TypeError):
        return series.Refused()


def _model(connection, instance_uuid):
    table, detail = tables.traffic_model, tables.traffic_model_detail
    row = connection.execute(
        sa.select(table, detail.c.format_version, detail.c.model,
                  detail.c.counts)
        .join(detail, detail.c.instance_uuid == table.c.instance_uuid)
        .where(table.c.instance_uuid == instance_uuid)).first()
    if row is None:
        return None
    if row.format_version != traffic_model.FORMAT_VERSION:
        raise exceptions.StoreVersionError(
            f'instance {instance_uuid}: format version of its model is '
            f'{row.format_version}, wanted {traffic_model.FORMAT_VERSION}')
    try:
        return model_records.StoredModel(
            instance_uuid=row.instance_uuid,
            model=traffic_model.TrafficModel.from_dict(json.loads(row.model)),
            counts=(None if row.counts is None else
                    estimate.TransitionCounts.from_bytes(row.counts)),
            window_start=row.window_start, window_end=row.window_end,
            samples=row.samples, refused=_refused(row.refused),
            source=row.source, name=row.name, updated_at=row.updated_at,
            format_version=row.format_version)
    except (ValueError, TypeError) as error:
        raise exceptions.StoreError(
            f'instance {instance_uuid}: its stored model is damaged: '
            f'{error}') from error


def _is_later(connection, generation, other):
    """Whether a generation does not follow at once on another one."""
    return (other.store_id, other.number + 1) != (
        generation.store_id, generation.number) \
        or not claim_table.is_remembered(
            connection, tables.generation_history, other, generation)


def _mark(point):
    return point and (point.modelled, point.mark)


def _resume_points(connection, instance_uuids=None):
    """Return the resume points of some instances, None: of all."""
    found = {}
    for column, modelled in (
            (tables.unmodelled_instance.c.counts, False),
            (tables.traffic_model_detail.c.counts, True)):
        uuid = column.table.c.instance_uuid
        query = sa.select(uuid, sa.func.substr(
            column, 1, estimate.HEADER_BYTES, type_=sa.LargeBinary))
        for some in ([query] if instance_uuids is None else
                     [query.where(uuid.in_(chunk))
                      for chunk in _key_chunks(instance_uuids)]):
            for instance_uuid, data in _stream(connection, some):
                data = data if data is None else bytes(data)
                period, last = (None, None) if data is None else \
                    estimate.period_and_last_time(data)
                found[instance_uuid] = model_records.ResumePoint(
                    modelled, last, period, data)
    return found


def _chains(connection, instance_uuids, damaged):
    table, detail = tables.traffic_model, tables.traffic_model_detail
    found = {}
    for chunk in _key_chunks(instance_uuids):
        for uuid, name, text in connection.execute(
                sa.select(table.c.instance_uuid, table.c.name, detail.c.model)
                .join(detail, detail.c.instance_uuid == table.c.instance_uuid)
                .where(table.c.instance_uuid.in_(chunk)
                       & (detail.c.format_version
                          == traffic_model.FORMAT_VERSION))):
            try:
                found[uuid] = name, traffic_model.TrafficModel.from_dict(
                    json.loads(text))
            except (ValueError, TypeError) as error:
                damaged['model', uuid] = (
                    f'instance {uuid}: its stored model is damaged: {error}')
    return found


def _learned(connection, instance_uuids):
    found = {}
    model, detail = tables.traffic_model, tables.traffic_model_detail
    other = tables.unmodelled_instance
    for chunk in _key_chunks(instance_uuids):
        for modelled, query in (
                (False, sa.select(other.c.instance_uuid, other.c.refused,
                                  other.c.name, other.c.counts)
                 .where(other.c.instance_uuid.in_(chunk))),
                (True, sa.select(model.c.instance_uuid, model.c.refused,
                                 model.c.name, detail.c.counts)
                 .join(detail, detail.c.instance_uuid
                       == model.c.instance_uuid)
                 .where(model.c.instance_uuid.in_(chunk)))):
            for instance_uuid, refused, name, data in connection.execute(
                    query):
                try:
                    counts = data and \
                        estimate.TransitionCounts.from_bytes(data)
                except (exceptions.InvalidSeries, TypeError):
                    counts = None
                found[instance_uuid] = model_records.Learned(
                    modelled, counts or None, _refused(refused), name)
    return found


def _summaries(connection, name, damaged):
    table = tables.traffic_model
    query = sa.select(table).order_by(table.c.instance_uuid)
    if name is not None:
        query = query.where(table.c.name == name)
    found = []
    for chunk in _stream(connection, query).partitions(_CHUNK):
        names, counts, data = packing.usable_laws(
            [row.instance_uuid for row in chunk], [row.law for row in chunk],
            [row.slots for row in chunk], 'model', damaged)
        if not names:
            continue
        usable = set(names)
        chunk = [row for row in chunk if row.instance_uuid in usable]
        for row, law in zip(chunk, rate_law.split_laws(data, counts)):
            found.append(model_records.ModelSummary(
                row.instance_uuid, row.name, tuple(law.mean.tolist()),
                tuple(law.peak.tolist()),
                row.window_start, row.window_end, row.samples,
                _refused(row.refused), row.source, row.updated_at))
    return found


def _host_profiles(connection, query, damaged):
    found = []
    for row in connection.execute(query):
        try:
            overrides = json.loads(row.overrides)
            found.append(profile_records.HostProfile(
                row.host, row.profile, overrides, row.source,
                row.updated_at))
        except (ValueError, TypeError) as error:
            damaged['host', row.host] = (
                f'host {row.host}: its stored profile is damaged: {error}')
    return found


def _unreadable_models(connection, damaged):
    table, found = tables.traffic_model, {}
    for chunk in _stream(connection, sa.select(
            table.c.instance_uuid, table.c.law,
            table.c.slots)).partitions(_CHUNK):
        packing.usable_laws(*zip(*chunk), 'model', found)
    damaged.update(found)
    return {uuid for _, uuid in found}


def _find_damaged(connection, damaged):
    _changes(connection, None, damaged)
    _priors(connection, damaged)
    _placements(connection, None, damaged)
    _trials(connection, damaged)
    fleet_table.workers(connection, damaged)
    budget_table.read(connection, damaged)
    budget_table.read_shares(connection, damaged)
    for kind in service_records.FLEET_KINDS:
        fleet_table.read(connection, kind, damaged)
    for table in (tables.unmodelled_instance, tables.traffic_model_detail):
        for uuid, data in _stream(connection, sa.select(
                table.c.instance_uuid, table.c.counts).where(
                    table.c.counts.is_not(None))):
            try:
                estimate.TransitionCounts.from_bytes(data)
            except (exceptions.InvalidSeries, TypeError) as error:
                damaged['counts', uuid] = (
                    f'instance {uuid}: what was counted is damaged: {error}')


def _upsert(connection, table, rows, left_out=None):
    """Insert rows, or update those that are there.

    :param left_out: None, or {(table, key): reason in words}, to which rows
        are added that the database refuses for a value in them. The others
        are written.
    """
    if not rows:
        return
    if left_out is None:
        _insert_or_update(connection, table, rows)
        return
    savepoint = connection.begin_nested()
    try:
        _insert_or_update(connection, table, rows)
        savepoint.commit()
    except Exception as error:
        # After a deadlock MariaDB has no savepoint any more.
        if not engines.is_refused_value(error):
            raise
        savepoint.rollback()
        if len(rows) > 1:
            half = len(rows) // 2
            _upsert(connection, table, rows[:half], left_out)
            _upsert(connection, table, rows[half:], left_out)
            return
        key = tuple(rows[0][column.name] for column in table.primary_key)
        left_out[table.name, key] = (
            f'{table.name} of {", ".join(map(repr, key))}: '
            f'{engines.reason(error)}')


def _insert_or_update(connection, table, rows):
    insert = _INSERTS[connection.dialect.name](table)
    others = [column.name for column in table.columns
              if not column.primary_key]
    if hasattr(insert, 'on_duplicate_key_update'):
        insert = insert.on_duplicate_key_update(
            {name: insert.inserted[name] for name in others})
    else:
        insert = insert.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={name: insert.excluded[name] for name in others})
    connection.execute(insert, rows)


def _delete(connection, column, names):
    for chunk in _key_chunks(names):
        connection.execute(
            sa.delete(column.table).where(column.in_(chunk)))


def _write_models(connection, models, generation, left_out):
    detail = tables.traffic_model_detail
    for chunk in _chunks(models):
        _upsert(connection, tables.traffic_model, [
            {'instance_uuid': item.instance_uuid,
             'generation': generation.number,
             **packing.pack_law(item.model),
             'name': packing.storable(item.name),
             # psycopg2 knows no numbers of numpy.
             'window_start': float(item.window_start),
             'window_end': float(item.window_end),
             'samples': float(item.samples),
             'refused': json.dumps(item.refused.to_dict()),
             'source': packing.storable(item.source),
             'updated_at': generation.published_at}
            for item in chunk], left_out)
        _upsert(connection, detail, [
            {'instance_uuid': item.instance_uuid,
             'format_version': traffic_model.FORMAT_VERSION,
             'model': json.dumps(item.model.to_dict()),
             'counts': item.counts and item.counts.to_bytes()}
            for item in chunk
            if (tables.traffic_model.name, (item.instance_uuid,))
            not in left_out], left_out)
        # One without the other is of no use.
        _delete(connection, tables.traffic_model.c.instance_uuid, [
            item.instance_uuid for item in chunk
            if (detail.name, (item.instance_uuid,)) in left_out])
        _delete(connection, tables.unmodelled_instance.c.instance_uuid,
                [item.instance_uuid for item in chunk])


def _write_unmodelled(connection, unmodelled, generation, left_out):
    for chunk in _chunks(unmodelled):
        _upsert(connection, tables.unmodelled_instance, [
            {'instance_uuid': item.instance_uuid,
             'counts': item.counts.to_bytes(),
             'name': packing.storable(item.name),
             'refused': json.dumps(item.refused.to_dict()),
             'source': packing.storable(item.source),
             'updated_at': generation.published_at}
            for item in chunk], left_out)


def _write_host_profiles(connection, host_profiles, generation, left_out):
    for chunk in _chunks(host_profiles):
        _upsert(connection, tables.host_profile, [
            {'host': item.host, 'generation': generation.number,
             'profile': item.profile,
             'overrides': json.dumps(item.overrides),
             'source': packing.storable(item.source),
             'updated_at': generation.published_at}
            for item in chunk], left_out)


def _write_placements(connection, placements, inventory, generation,
                      left_out):
    for chunk in _chunks(placements):
        budget_table.follow(connection, chunk, (), generation.published_at,
                            _upsert, _key_chunks, left_out)
        _delete(connection, tables.former_instance.c.instance_uuid,
                [item.instance_uuid for item in chunk])
        _upsert(connection, tables.placement, [
            {'instance_uuid': item.instance_uuid,
             'generation': generation.number, 'host': item.host,
             'flavor': item.flavor, 'project': item.project,
             'networks': packing.pack_attachments(item.attachments),
             'running': item.running,
             'updated_at': generation.published_at}
            for item in chunk], left_out)
    if inventory is not None:
        _upsert(connection, tables.inventory, [
            {'id': 1, **dataclasses.asdict(inventory)}])


def _write_priors(connection, priors, remove, generation, left_out):
    rows = [(item, item.members, packing.pack_prior(item))
            for item in priors] + [
        (item, 0.0, {'law': b'', 'slots': None}) for item in remove]
    for chunk in _chunks(rows):
        _upsert(connection, tables.prior, [
            {'instance_uuid': item.instance_uuid or '',
             'flavor': '' if item.instance_uuid else item.flavor or '',
             'project': '' if item.instance_uuid else item.project or '',
             'generation': generation.number, **law,
             'members': members, 'updated_at': generation.published_at}
            for item, members, law in chunk], left_out)


def _write_trials(connection, trials, end, outcomes, forget_before,
                  left_out):
    _upsert(connection, tables.trial, [
        {'trial_id': one.trial_id, 'kind': one.kind, 'since': one.since,
         'until': one.until, 'hosts': json.dumps(
             {'instances': one.instances, 'hosts': one.hosts})}
        for one in trials], left_out)
    _delete(connection, tables.trial.c.trial_id, list(end))
    table = tables.trial_outcome
    for one in outcomes:
        day = int(one.until // _DAY_SECONDS)
        known = {percent: numbers for percent, *numbers in connection.execute(
            sa.select(table.c.percent, table.c.until, table.c.overload_days,
                      table.c.host_days).where(
                table.c.kind == one.kind, table.c.day == day))}
        rows = []
        for percent, overload, hosts in one.days:
            before = known.get(percent, (one.until, 0.0, 0.0))
            rows.append({
                'kind': one.kind, 'day': day, 'percent': percent,
                'until': max(one.until, before[0]),
                'overload_days': before[1] + overload,
                'host_days': before[2] + hosts})
        _upsert(connection, table, rows, left_out)
    if forget_before is not None:
        connection.execute(sa.delete(table).where(
            table.c.day < int(forget_before)))


def _keep_former(connection, placements, generation):
    """Keep flavor and project of instances that are removed now."""
    table = tables.placement
    for chunk in _key_chunks(placements):
        _upsert(connection, tables.former_instance, [
            {**row._mapping, 'removed_at': generation.published_at}
            for row in connection.execute(sa.select(
                table.c.instance_uuid, table.c.flavor, table.c.project).where(
                    table.c.instance_uuid.in_(chunk)))])
    table = tables.former_instance
    connection.execute(sa.delete(table).where(
        table.c.removed_at < generation.published_at - FORMER_SECONDS))


def _remove(connection, instance_uuids, hosts, placements, generation,
            left_out):
    _keep_former(connection, placements, generation)
    budget_table.follow(connection, (), placements, generation.published_at,
                        _upsert, _key_chunks, left_out)
    for kind, names, columns in (
            (tables.INSTANCE, instance_uuids,
             (tables.traffic_model.c.instance_uuid,
              tables.traffic_model_detail.c.instance_uuid,
              tables.unmodelled_instance.c.instance_uuid)),
            (tables.HOST, hosts, (tables.host_profile.c.host,)),
            (tables.PLACEMENT, placements,
             (tables.placement.c.instance_uuid,))):
        for chunk in _chunks(names):
            for column in columns:
                _delete(connection, column, chunk)
            _upsert(connection, tables.removal, [
                {'kind': kind, 'name': name,
                 'generation': generation.number,
                 'removed_at': generation.published_at} for name in chunk],
                left_out)


def _forget_removals(connection, now):
    limit = now - REMOVAL_SECONDS
    claim_table.forget_tokens(connection, tables.generation_history,
                              tables.generation, limit)
    for table, old in (
            (tables.removal, tables.removal.c.removed_at < limit),
            (tables.prior, (tables.prior.c.members == 0)
             & (tables.prior.c.updated_at < limit))):
        last = connection.scalar(
            sa.select(sa.func.max(table.c.generation)).where(old))
        if last is None:
            continue
        connection.execute(sa.delete(table).where(old))
        connection.execute(sa.update(tables.generation).values(
            complete_since=sa.case(
                (tables.generation.c.complete_since < last, last),
                else_=tables.generation.c.complete_since)))
