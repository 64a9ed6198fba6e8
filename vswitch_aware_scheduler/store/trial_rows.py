# SPDX-License-Identifier: Apache-2.0
"""Rows of trials of limits and of their outcomes."""

import json

import sqlalchemy as sa

from vswitch_aware_scheduler.store import instance_rows
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.store import trial_records

__all__ = ['outcomes', 'read', 'write']


def read(connection, damaged):
    """Return a list of :class:`~.StoredTrial`, the oldest first.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
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


def write(connection, trials, end, outcomes, forget_before,
          left_out):
    """Write new trials and outcomes, and remove trials that are over.

    :param connection: SQLAlchemy Connection within a transaction
    :param trials: list of new StoredTrial
    :param end: ids of trials that are over
    :param outcomes: list of TrialOutcome, added to those of their day
    :param forget_before: days since 1970: outcomes of earlier days are
        removed; None: none are
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    sql.upsert(connection, tables.trial, [
        {'trial_id': one.trial_id, 'kind': one.kind, 'since': one.since,
         'until': one.until, 'hosts': json.dumps(
             {'instances': one.instances, 'hosts': one.hosts})}
        for one in trials], left_out)
    sql.delete(connection, tables.trial.c.trial_id, list(end))
    table = tables.trial_outcome
    for one in outcomes:
        day = int(one.until // instance_rows._DAY_SECONDS)
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
        sql.upsert(connection, table, rows, left_out)
    if forget_before is not None:
        connection.execute(sa.delete(table).where(
            table.c.day < int(forget_before)))
