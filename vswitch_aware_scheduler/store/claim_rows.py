# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the table ``claim`` on a connection.

Each writer first raises the number in the single row of ``claim_counter`` and
so locks this row until it commits. Writers are therefore serialised, and
numbers become visible in their order: a reader that has read a number has read
all earlier writes. Times are those of the database, independent of the clocks
of schedulers.
"""

import functools
import itertools
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import claim_records
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Head', 'KEPT_SECONDS', 'forget_tokens', 'head', 'is_remembered',
           'now', 'purge', 'raise_counter', 'read', 'remember', 'write']

#: How long, in seconds, readers can still read that a claim was withdrawn. A
#: reader that was away for longer reads all claims.
KEPT_SECONDS = 600.0

#: Number of the last writes whose tokens are kept regardless of their age.
_KEPT_TOKENS = 1000

_SCHEMA = sa.table('alembic_version', sa.column('version_num'))

_NOW = {'sqlite': "(julianday('now') - 2440587.5) * 86400.0",
        'postgresql': 'extract(epoch from clock_timestamp())',
        'mysql': 'unix_timestamp(now(6))',
        'mariadb': 'unix_timestamp(now(6))'}


class Head(typing.NamedTuple):
    """The state of the claims.

    :ivar seen: ClaimsSeen of the last write
    :ivar complete_since: number of the write since which no deleted row is
        missing
    :ivar version: version of the schema
    :ivar now: time of the database, seconds UTC
    :ivar remembered: whether the last write of the reader is in the history of
        this store
    """

    seen: claim_records.ClaimsSeen
    complete_since: int
    version: str
    now: float
    remembered: bool


def now(connection):
    """Return the time of the database's clock, seconds UTC.

    :param connection: SQLAlchemy Connection
    """
    return float(connection.scalar(sa.select(
        sa.literal_column(_NOW[connection.dialect.name]))))


def raise_counter(connection, token):
    """Lock out other writers and use the next number.

    :param connection: SQLAlchemy Connection in a new transaction
    :param token: token of this write
    """
    connection.execute(sa.update(tables.claim_counter).values(
        number=tables.claim_counter.c.number + 1, token=token))


def head(connection, since=None):
    """Return the :class:`Head`.

    The query is a single statement, which is all that an idle reader sends.

    :param connection: SQLAlchemy Connection
    :param since: ClaimsSeen of the reader, or None
    """
    history = tables.claim_history
    # Scalar subqueries: for a join, PostgreSQL would expect many rows and
    # compile the query.
    *columns, now = connection.execute(sa.select(
        *(sa.select(column).scalar_subquery() for column in (
            tables.generation.c.store_id, tables.claim_counter.c.number,
            tables.claim_counter.c.token,
            tables.claim_counter.c.complete_since, _SCHEMA.c.version_num)),
        sa.select(history.c.token).where(
            history.c.number == (0 if since is None else since.number)
        ).scalar_subquery(),
        sa.literal_column(_NOW[connection.dialect.name]))).one()
    seen = claim_records.ClaimsSeen(*columns[:3])
    complete_since, version, token = columns[3:]
    if not (damage.is_number(seen.number)
            and damage.is_number(complete_since)):
        raise exceptions.StoreError(
            f'the table claim_counter: {seen.number!r} and '
            f'{complete_since!r}; expected numbers of writes: restore the '
            f'store from a backup')
    remembered = since is not None and since.store_id == seen.store_id and (
        since.token == seen.token if since.number == seen.number
        else complete_since <= since.number < seen.number
        and since.token == token)
    return Head(seen, complete_since, version, float(now), remembered)


def remember(connection, history, number, token, now):
    """Store the token of a write in a history.

    :param connection: SQLAlchemy Connection
    :param history: table ``generation_history`` or ``claim_history``
    :param number: number of the write
    :param token: token of the write
    :param now: time of the database, seconds UTC
    """
    # A row with that number belongs to a write that a restored backup lacks.
    sql.upsert(connection, history, [
        {'number': number, 'token': token, 'written_at': now}])


def is_remembered(connection, history, since, last):
    """Return whether the last write of a reader is in this store's history.

    :param connection: SQLAlchemy Connection
    :param history: table ``generation_history`` or ``claim_history``
    :param since: Generation of the reader
    :param last: the current Generation; of the same store, and its number is
        not lower
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


def read(connection, since, damaged, found, writes=False):
    """Return the :class:`~.ClaimChanges` since a previous reading.

    :param connection: SQLAlchemy Connection
    :param since: ClaimsSeen of the previous reading, or None
    :param damaged: {('claim', instance uuid): reason}, to which damaged claims
        are added; these claims are omitted
    :param found: Head
    :param writes: whether this transaction has raised the counter
    """
    seen = found.seen
    if found.remembered and seen.number == since.number + writes:
        return claim_records.ClaimChanges(seen, False, [])
    table = tables.claim
    query = sa.select(table).order_by(table.c.number)
    if found.remembered:
        query = query.where(table.c.number > since.number)
    claims = _claims(connection.execute(query).all(), found.now, damaged)
    # If a statement sees writes that are newer than the statement before, the
    # rows contain all writes up to the newest one.
    last = max([seen.number, *(claim.number for claim in claims)])
    if last != seen.number:
        history = tables.claim_history
        token = connection.scalar(
            sa.select(history.c.token).where(history.c.number == last))
        seen = claim_records.ClaimsSeen(seen.store_id, last, token)
    return claim_records.ClaimChanges(seen, not found.remembered, claims,
                                      damaged)


def _claims(rows, now, damaged):
    rows = {row.instance_uuid: row for row in rows}
    for name, row in list(rows.items()):
        if row.state not in (claim_records.CLAIMED, claim_records.WITHDRAWN):
            damaged['claim', name] = (
                f'instance {name}: state of its claim: {row.state!r}; '
                f'expected {claim_records.CLAIMED} or '
                f'{claim_records.WITHDRAWN}')
            del rows[name]
    names, sizes, data = packing.usable_laws(
        list(rows), [row.law for row in rows.values()], 'claim', damaged)
    claims = []
    for name, law in zip(names, rate_law.split_laws(data, sizes)):
        claim = damage.usable(damaged, 'claim', name, functools.partial(
            _of_row, rows[name], law, now, damaged))
        if claim is not None:
            claims.append(claim)
    return claims


def _of_row(row, law, now, damaged):
    name = row.instance_uuid
    return damage.checked(claim_records.StoredClaim(
        name, row.token, row.host, row.source, law, row.rule,
        row.claimed_by,
        packing.usable_guarantee(name, row, 'claim', damaged),
        packing.usable_attachments(name, row.networks, 'claim', damaged),
        row.state, max(0.0, now - row.claimed_at), row.waited_seconds,
        row.conflicts, row.missed, row.number, row.claimed_at))


def write(connection, claims, withdrawn, found):
    """Write claims and withdrawals, each instance once.

    A claim replaces the stored claim of the same instance. A withdrawal
    changes the stored claim if that has the same token. Hence both can be
    repeated.

    :param connection: SQLAlchemy Connection after :func:`raise_counter`
    :param claims: list of StoredClaim
    :param withdrawn: list of StoredClaim
    :param found: Head after :func:`raise_counter`
    :returns: list of the claims with a value that no database can store; they
        are not written
    """
    table, number, now = tables.claim, found.seen.number, found.now
    refused = list(itertools.filterfalse(_can_be_stored, claims))
    sql.upsert(connection, table, [{
        'instance_uuid': claim.instance_uuid, 'number': number,
        'token': claim.token, 'state': claim_records.CLAIMED,
        'host': claim.host, 'source': claim.source,
        **packing.pack_law(claim),
        'rule': packing.storable(claim.rule)[:255],
        **packing.pack_guarantee(claim.guaranteed),
        'networks': packing.pack_attachments(claim.attachments),
        'claimed_by': packing.storable(claim.claimed_by),
        'claimed_at': now - claim.age_seconds,
        'expires_at':
            now - claim.age_seconds + claim_records.HELD_SECONDS,
        'waited_seconds': claim.waited_seconds,
        'conflicts': claim.conflicts, 'missed': claim.missed,
    } for claim in filter(_can_be_stored, claims)])
    withdrawn = list(filter(_can_be_stored, withdrawn))
    if withdrawn:
        connection.execute(sa.update(table).where(
            table.c.instance_uuid == sa.bindparam('of_instance'),
            table.c.token == sa.bindparam('of_token'),
            table.c.state == claim_records.CLAIMED).values(
                state=claim_records.WITHDRAWN, number=number,
                expires_at=now + KEPT_SECONDS), [
                    {'of_instance': claim.instance_uuid,
                     'of_token': claim.token} for claim in withdrawn])
    return refused


def _can_be_stored(claim):
    return all(
        text is None or packing.storable(text) == text and len(text) <= limit
        for text, limit in ((claim.instance_uuid, 36), (claim.host, 255),
                            (claim.source, 255)))


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
    last = connection.scalar(sa.select(sa.func.max(table.c.number)).where(
        is_expired & (table.c.state == claim_records.WITHDRAWN)))
    deleted_rows = connection.execute(
        sa.delete(table).where(is_expired)).rowcount
    if last is not None:
        connection.execute(sa.update(counter).values(complete_since=sa.case(
            (counter.c.complete_since < last, last),
            else_=counter.c.complete_since)))
    return deleted_rows
