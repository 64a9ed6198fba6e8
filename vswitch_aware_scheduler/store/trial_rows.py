# SPDX-License-Identifier: Apache-2.0
"""Rows of trials of limits and of their outcomes."""

import json

import sqlalchemy as sa

from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.store import trial_records

__all__ = ['outcomes', 'read', 'write']

_DAY_SECONDS = 86400.0


def read(connection, damaged):
    """Return a list of :class:`~.StoredTrial`, the oldest first.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table = tables.trial
    trials = []
    for row in connection.execute(sa.select(table).order_by(
            table.c.since, table.c.trial_id)):
        try:
            hosts = json.loads(row.hosts)
            trials.append(trial_records.StoredTrial(
                row.trial_id, row.kind, row.since, row.until,
                tuple(hosts['instances']), tuple(map(tuple, hosts['hosts']))))
        except (ValueError, TypeError, KeyError) as error:
            damaged['trial', row.trial_id] = (
                f'trial {row.trial_id}: its hosts are damaged: '
                f'{type(error).__name__}: {error}')
    return trials


def outcomes(connection):
    """Return {kind: :class:`~.TrialOutcome`} of all.

    :param connection: SQLAlchemy Connection within a transaction
    """
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


def write(connection, trials, end, outcomes, forget_before, left_out):
    """Write new trials and outcomes, and remove trials that have ended.

    :param connection: SQLAlchemy Connection within a transaction
    :param trials: list of new StoredTrial
    :param end: ids of trials that have ended
    :param outcomes: list of TrialOutcome, added to those of their day
    :param forget_before: outcomes of earlier days than this one, in days
        since 1970, are removed; None: none are removed
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    sql.upsert(connection, tables.trial, [
        {'trial_id': trial.trial_id, 'kind': trial.kind, 'since': trial.since,
         'until': trial.until, 'hosts': json.dumps(
             {'instances': trial.instances, 'hosts': trial.hosts})}
        for trial in trials], left_out)
    sql.delete(connection, tables.trial.c.trial_id, list(end))
    table = tables.trial_outcome
    for outcome in outcomes:
        day = int(outcome.until // _DAY_SECONDS)
        stored = {percent: numbers for percent, *numbers in connection.execute(
            sa.select(table.c.percent, table.c.until, table.c.overload_days,
                      table.c.host_days).where(
                table.c.kind == outcome.kind, table.c.day == day))}
        rows = []
        for percent, overload_days, host_days in outcome.days:
            until, old_overload_days, old_host_days = stored.get(
                percent, (outcome.until, 0.0, 0.0))
            rows.append({
                'kind': outcome.kind, 'day': day, 'percent': percent,
                'until': max(outcome.until, until),
                'overload_days': old_overload_days + overload_days,
                'host_days': old_host_days + host_days})
        sql.upsert(connection, table, rows, left_out)
    if forget_before is not None:
        connection.execute(sa.delete(table).where(
            table.c.day < int(forget_before)))
