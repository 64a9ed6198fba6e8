# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the table ``claim`` on a connection.

All writers lock the single row of ``claim_counter``. Numbers therefore become
visible in their order: a reader that has read a number has read all earlier
writes. Times are those of the database, independent of the clocks of
schedulers.
"""

import dataclasses

import sqlalchemy as sa

from vswitch_aware_scheduler.store import claim_records
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['KEPT_SECONDS', 'forget_tokens', 'head', 'is_remembered', 'now',
           'purge', 'read', 'remember', 'upsert_rows']

#: How long, in seconds, readers can still read that a claim is over. A reader
#: that was away for longer reads all claims.
KEPT_SECONDS = 600.0

#: Number of the last writes whose tokens are kept regardless of their age.
_KEPT_TOKENS = 1000

#: States in which a claim is over.
_OVER = (
    claim_records.CONFIRMED,
    claim_records.FORGOTTEN,
    claim_records.EXPIRED,
)

_SCHEMA = sa.table('alembic_version', sa.column('version_num'))

_NOW = {'sqlite': "(julianday('now') - 2440587.5) * 86400.0",
        'postgresql': 'extract(epoch from clock_timestamp())',
        'mysql': 'unix_timestamp(now(6))',
        'mariadb': 'unix_timestamp(now(6))'}


def now(connection):
    """Return the time of the database's clock, seconds UTC.

    :param connection: SQLAlchemy Connection
    """
    return float(connection.scalar(sa.select(
        sa.literal_column(_NOW[connection.dialect.name]))))


def head(connection):
    """Return the state of the claims.

    The query is a single statement, which is all that an idle reader sends.

    :param connection: SQLAlchemy Connection
    :returns: (ClaimsSeen, number since which changes are complete, schema
        version, time of the database)
    """
    # Scalar subqueries: for a join, PostgreSQL would expect many rows and
    # compile the query.
    *columns, now = connection.execute(sa.select(
        *(sa.select(column).scalar_subquery() for column in (
            tables.generation.c.store_id, tables.claim_counter.c.number,
            tables.claim_counter.c.token,
            tables.claim_counter.c.complete_since, _SCHEMA.c.version_num)),
        sa.literal_column(_NOW[connection.dialect.name]))).one()
    return (claim_records.ClaimsSeen(*columns[:3]), *columns[3:], float(now))


def remember(connection, history, number, token, now):
    """Insert the token of a write into a history.

    :param connection: SQLAlchemy Connection
    :param history: table ``generation_history`` or ``claim_history``
    :param number: number of the write
    :param token: token of the write
    :param now: time of the database, seconds UTC
    """
    # A row with that number belongs to writes that a restored backup lacks.
    connection.execute(sa.delete(history).where(history.c.number >= number))
    connection.execute(sa.insert(history).values(
        number=number, token=token, written_at=now))


def is_remembered(connection, history, since, last):
    """Return whether the last write of a reader is in this store's history.

    :param connection: SQLAlchemy Connection
    :param history: table ``generation_history`` or ``claim_history``
    :param since: Generation or ClaimsSeen of the reader
    :param last: the current Generation or ClaimsSeen; of the same store, and
        its number is not lower
    """
    if since.number == last.number:
        return since.token == last.token
    return since.token == connection.scalar(
        sa.select(history.c.token).where(history.c.number == since.number))


def forget_tokens(connection, history, head_table, before):
    """Delete the tokens of old writes, except those of the last ones.

    :param connection: SQLAlchemy Connection
    :param history: table ``generation_history`` or ``claim_history``
    :param head_table: table with the number of the last write
    :param before: time in seconds UTC; older tokens are deleted
    """
    connection.execute(sa.delete(history).where(
        history.c.written_at < before,
        history.c.number < sa.select(
            head_table.c.number - _KEPT_TOKENS).scalar_subquery()))


def read(connection, since, damaged, head_seen, complete_since, now):
    """Return the :class:`~.ClaimChanges` since a previous reading.

    :param connection: SQLAlchemy Connection
    :param since: ClaimsSeen of the previous reading, or None
    :param damaged: {('claim', instance uuid): reason}, to which damaged claims
        are added; these claims are omitted
    :param head_seen: ClaimsSeen that :func:`head` returned
    :param complete_since: as :func:`head` returned it
    :param now: time of the database that :func:`head` returned
    """
    complete = (since is None or since.store_id != head_seen.store_id
                or not complete_since <= since.number <= head_seen.number
                or not is_remembered(connection, tables.claim_history, since,
                                     head_seen))
    if not complete and since.number == head_seen.number:
        return claim_records.ClaimChanges(since, False, [])
    table = tables.claim
    query = sa.select(table).order_by(table.c.number)
    if not complete:
        query = query.where(table.c.number > since.number)
    claims = _claims(connection.execute(query).all(), now, damaged)
    # If a statement sees writes that are newer than the statement before, the
    # rows contain all writes up to the newest one.
    last = max([head_seen.number, *(claim.number for claim in claims)])
    if last != head_seen.number:
        history = tables.claim_history
        token = connection.scalar(
            sa.select(history.c.token).where(history.c.number == last))
        head_seen = claim_records.ClaimsSeen(head_seen.store_id, last, token)
    return claim_records.ClaimChanges(head_seen, complete, claims, damaged)


def _claims(rows, now, damaged):
    rows = {row.instance_uuid: row for row in rows}
    names, counts, data = packing.usable_laws(
        list(rows), [row.law for row in rows.values()],
        [row.slots for row in rows.values()], 'claim', damaged)
    claims = []
    for name, law in zip(names, rate_law.split_laws(data, counts)):
        row = rows[name]
        claims.append(claim_records.StoredClaim(
            name, row.token, row.state, row.host, row.source, law,
            row.stated, row.expires_at - now, row.claimed_by,
            number=row.number, claimed_at=row.claimed_at,
            attachments=packing.usable_attachments(
                name, row.networks, 'claim', damaged)))
    return claims


def upsert_rows(connection, claims, uuid_chunks, number, now):
    """Return the rows that a write of claims inserts or updates.

    :param connection: SQLAlchemy Connection
    :param claims: list of StoredClaim, oldest first
    :param uuid_chunks: lists that together have the uuids of all their
        instances
    :param number: number of this write
    :param now: time of the database, seconds UTC
    :returns: (rows to insert or update, {uuid: stored StoredClaim} of the
        placements that the store rejects)
    """
    table = tables.claim
    stored, late, rows = {}, {}, {}
    for uuids in uuid_chunks:
        stored.update((row.instance_uuid, row) for row in _claims(
            connection.execute(sa.select(table).where(
                table.c.instance_uuid.in_(uuids))).all(), now, {}))
    for claim in claims:
        uuid = claim.instance_uuid
        before = stored.get(uuid)
        if not claim_records.may_replace(claim, before):
            if claim.state == claim_records.ASSUMED \
                    and before.token != claim.token:
                late[uuid] = before
            continue
        late.pop(uuid, None)
        stored[uuid] = dataclasses.replace(claim, number=number,
                                           claimed_at=now)
        rows[uuid] = {
            'instance_uuid': uuid, 'number': number, 'token': claim.token,
            'state': claim.state, 'host': claim.host,
            'source': claim.source, **packing.pack_law(claim),
            'stated': claim.stated,
            'claimed_by': packing.storable(claim.claimed_by),
            'networks': packing.pack_attachments(claim.attachments),
            'claimed_at': now, 'expires_at': now + (
                KEPT_SECONDS if claim.state in _OVER else claim.seconds)}
    return list(rows.values()), late


def purge(connection, now):
    """Delete claims that have expired.

    The caller has locked the row of ``claim_counter``.

    :param connection: SQLAlchemy Connection
    :param now: time of the database, seconds UTC
    :returns: number of deleted claims
    """
    forget_tokens(connection, tables.claim_history, tables.claim_counter,
                  now - KEPT_SECONDS)
    table, counter = tables.claim, tables.claim_counter
    is_expired = table.c.expires_at < now
    # Every reader computes the expiry of a placement itself.
    last = connection.scalar(sa.select(sa.func.max(table.c.number)).where(
        is_expired & table.c.state.in_(_OVER)))
    deleted_rows = connection.execute(
        sa.delete(table).where(is_expired)).rowcount
    if last is not None:
        connection.execute(sa.update(counter).values(complete_since=sa.case(
            (counter.c.complete_since < last, last),
            else_=counter.c.complete_since)))
    return deleted_rows
