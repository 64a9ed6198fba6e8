# SPDX-License-Identifier: Apache-2.0
"""Claims: where schedulers place instances, until Nova's record shows it.

Each writer first raises the number in the single row of ``claim_counter`` and
so locks this row until it commits. Writers are therefore serialised, and
numbers become visible in their order: a reader that has read a number has read
all earlier writes. Claims create no generation. Times are those of the
database, independent of the clocks of schedulers.
"""

from collections import abc
import contextlib
import dataclasses
import itertools
import os
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['CLAIMED', 'ClaimChanges', 'ClaimsSeen', 'HELD_SECONDS',
           'KEPT_SECONDS', 'StoredClaim', 'WITHDRAWN', 'claiming', 'purge',
           'read']

#: States of a claim. CLAIMED: the instance counts on the host until Nova's
#: record shows the result. WITHDRAWN: Nova has not placed the instance there.
CLAIMED = 'claimed'
WITHDRAWN = 'withdrawn'

#: How long, in seconds, a new worker can still read a claim.
HELD_SECONDS = 600.0

#: How long, in seconds, readers can still read that a claim was withdrawn. A
#: reader that was away for longer reads all claims.
KEPT_SECONDS = 600.0

_SCHEMA = sa.table('alembic_version', sa.column('version_num'))

# The latest claim of an instance. number is the number of the write. networks
# is as in placement.
claim_table = tables.table(
    'claim', tables.key(tables.UUID, 'instance_uuid'),
    tables.columns(sa.BigInteger, 'number'),
    tables.columns(tables.UUID, 'token'),
    tables.columns(tables.KIND, 'state'),
    tables.columns(tables.NAME, 'host'),
    tables.columns(tables.NAME, 'source', null=True),
    tables.columns(tables.BLOB, 'law'),
    tables.columns(tables.NAME, 'rule'),
    tables.columns(sa.Double, *packing.GUARANTEE, null=True),
    tables.columns(tables.TEXT, 'networks', null=True),
    tables.columns(tables.NAME, 'claimed_by'),
    tables.columns(sa.Double, 'claimed_at', 'expires_at', 'waited_seconds'),
    tables.columns(sa.Integer, 'conflicts'),
    tables.columns(sa.Boolean, 'missed'), indexes=('number',))

# One row. complete_since and token are as in generation.
counter_table = tables.table(
    'claim_counter', tables.key(sa.Integer, 'id'),
    tables.columns(sa.BigInteger, 'number', 'complete_since'),
    tables.columns(tables.UUID, 'token', null=True))

history_table = tables.table(
    'claim_history', tables.key(sa.BigInteger, 'number'),
    tables.columns(tables.UUID, 'token'),
    tables.columns(sa.Double, 'written_at'))


@dataclasses.dataclass(frozen=True)
class StoredClaim:
    """The latest claim of an instance.

    :ivar token: identifies this claim; 1 to 36 characters
    :ivar source: host that had the instance before, or None
    :ivar law: law that the instance is claimed with, without guarantee
    :ivar rule: rule that gave the law, as in :class:`.Demand`
    :ivar guaranteed: (egress_kbps, ingress_kbps, kpps) that the ports of the
        instance guarantee, or None if unknown
    :ivar age_seconds: age when the claim is written, or when it was read
    :ivar waited_seconds: how long the request had waited when the claim was
        written
    :ivar conflicts: number of hosts that the request could not claim before
        this host, because the claims of others held the room
    :ivar missed: whether the request did not wait for the store
    :ivar number: number of the write that contains the claim; set by the store
    :ivar claimed_at: seconds UTC by the database's clock; set by the store
    """

    instance_uuid: str
    token: str
    host: str
    source: str | None
    law: rate_law.RateLaw
    rule: str
    claimed_by: str
    guaranteed: tuple[float, float, float] | None = None
    attachments: vswitch_attachments.Attachments | None = None
    state: str = CLAIMED
    age_seconds: float = 0.0
    waited_seconds: float = 0.0
    conflicts: int = 0
    missed: bool = False
    number: int | None = None
    claimed_at: float | None = None


@dataclasses.dataclass(frozen=True)
class ClaimsSeen:
    """The last write of claims that a reader has read, as a Generation."""

    store_id: str
    number: int
    token: str | None = None


@dataclasses.dataclass(eq=False)
class ClaimChanges:
    """The claims that a reader has to apply, the oldest first.

    :ivar complete: True if these are all claims
    :ivar damaged: rows that were omitted
    """

    seen: ClaimsSeen
    complete: bool
    claims: list[StoredClaim]
    damaged: damage.Reasons = dataclasses.field(default_factory=dict)


class Head(typing.NamedTuple):
    """The state of the claims.

    :ivar complete_since: number of the write since which no deleted row is
        missing
    :ivar version: version of the schema
    :ivar now: time of the database, seconds UTC
    :ivar remembered: whether the last write of the reader is in the history of
        this store
    """

    seen: ClaimsSeen
    complete_since: int
    version: str
    now: float
    remembered: bool


def read(store: database.Database, since: ClaimsSeen | None = None
         ) -> ClaimChanges:
    """Return the claims written since a read (None: all), in one statement."""
    with _opened(store, since) as (connection, head):
        return _read(connection, since, head)


@contextlib.contextmanager
def claiming(store: database.Database, since: ClaimsSeen | None = None
             ) -> abc.Iterator[tuple[ClaimChanges, abc.Callable[..., None]]]:
    """Serialise claims with all other writers, as a context manager.

    The context yields (:class:`ClaimChanges` since a reading, write). The
    caller judges its claims with these changes and calls ``write(claims,
    withdrawn)`` once, with lists of StoredClaims, each instance once. No other
    claim can be written meanwhile. The end of the context commits. These are
    five statements, or six with withdrawals. Nothing is retried.

    A claim replaces the stored claim of the same instance. A withdrawal
    changes the stored claim if that has the same token. Hence both can be
    repeated. A claim that no database can store is named in the log.

    :param since: of the caller's last read, None for all
    """
    with _opened(store, since, lock=True) as (connection, head):
        yield _read(connection, since, head, writes=True), \
            lambda claims, withdrawn=(): _write(connection, claims, withdrawn,
                                                head)


def purge(store: database.Database, last: int) -> int:
    """Delete the expired claims; return their number.

    :param last: number of the last write whose claims may be deleted: after a
        step of the database's clock, claims expire that nobody has read yet
    """
    is_read = claim_table.c.number <= last
    with _opened(store) as (connection, head):
        if not connection.scalar(sa.select(sa.func.count()).where(
                is_read & (claim_table.c.expires_at < head.now))):
            return 0
    with _opened(store, lock=True) as (connection, head):
        return _purge(connection, head.now, is_read)


@contextlib.contextmanager
def _opened(store, since=None, lock=False):
    """Yield (connection, Head); ``lock`` uses the next number."""
    try:
        with store.transaction(writes=lock) as connection:
            token = os.urandom(16).hex()
            if lock:
                connection.execute(sa.update(counter_table).values(
                    number=counter_table.c.number + 1, token=token))
            head = _head(connection, since)
            if head.version != tables.SCHEMA_VERSION:
                store.check_schema(connection)
            if lock:
                sql.remember(connection, history_table, head.seen.number,
                             token, head.now)
            yield connection, head
    except exceptions.StoreInterrupted:
        raise
    except exceptions.StoreError:
        # If the schema has another version, this raises the error that names
        # the version.
        store.require_schema()
        raise


def _head(connection, since):
    """Return the Head in a single statement, all that an idle reader sends."""
    # Scalar subqueries: for a join, PostgreSQL would expect many rows and
    # compile the query.
    counter, history = counter_table.c, history_table.c
    *columns, now = connection.execute(sa.select(
        *(sa.select(column).scalar_subquery() for column in (
            generations.generation_table.c.store_id, counter.number,
            counter.token, counter.complete_since, _SCHEMA.c.version_num)),
        sa.select(history.token).where(
            history.number == (0 if since is None else since.number)
        ).scalar_subquery(), sql.NOW[connection.dialect.name])).one()
    seen = ClaimsSeen(*columns[:3])
    complete_since, version, token = columns[3:]
    if not (damage.is_number(seen.number)
            and damage.is_number(complete_since)):
        raise exceptions.StoreDamaged(
            table='claim_counter', seen=f'{seen.number!r} and '
            f'{complete_since!r} are not numbers of writes')
    remembered = since is not None and since.store_id == seen.store_id and (
        since.token == seen.token if since.number == seen.number
        else complete_since <= since.number < seen.number
        and since.token == token)
    return Head(seen, complete_since, version, float(now), remembered)


def _read(connection, since, head, writes=False):
    """Return the ClaimChanges; ``writes``: the counter was raised."""
    seen, damaged = head.seen, damage.of(connection)
    if head.remembered and seen.number == since.number + writes:
        return ClaimChanges(seen, False, [])
    table = claim_table
    query = sa.select(table).order_by(table.c.number)
    if head.remembered:
        query = query.where(table.c.number > since.number)
    rows = {row.instance_uuid: row for row in connection.execute(query)}
    names, sizes, data = packing.usable_laws(
        connection, 'claim', list(rows), [row.law for row in rows.values()])
    claims = damage.usable_records(
        connection, 'claim', zip(names, rate_law.split_laws(data, sizes)),
        lambda pair: _of_row(connection, rows[pair[0]], pair[1], head.now),
        lambda pair: pair[0])
    # If a statement sees writes that are newer than the statement before, the
    # rows contain all writes up to the newest one.
    last = max([seen.number, *(claim.number for claim in claims)])
    if last != seen.number:
        token = connection.scalar(sa.select(history_table.c.token).where(
            history_table.c.number == last))
        seen = ClaimsSeen(seen.store_id, last, token)
    return ClaimChanges(seen, not head.remembered, claims, damaged)


def _of_row(connection, row, law, now):
    if row.state not in (CLAIMED, WITHDRAWN):
        raise damage.Damaged(
            f'state of its claim: {row.state!r}; expected {CLAIMED} or '
            f'{WITHDRAWN}')
    attachments, guaranteed = packing.usable_ports(connection, 'claim', row)
    return damage.checked(StoredClaim(
        row.instance_uuid, row.token, row.host, row.source, law, row.rule,
        row.claimed_by, guaranteed, attachments, row.state,
        max(0.0, now - row.claimed_at), row.waited_seconds, row.conflicts,
        row.missed, row.number, row.claimed_at))


def _write(connection, claims, withdrawn, head):
    table, number, now = claim_table, head.seen.number, head.now
    for claim in itertools.filterfalse(_can_be_stored, claims):
        damage.of(connection)['claim', claim.instance_uuid] = (
            f'claim of instance {claim.instance_uuid!r} on host '
            f'{claim.host!r}: cannot be stored')
    sql.upsert(connection, table, [{
        **sql.fields_of(claim, claim_table), 'number': number,
        'state': CLAIMED, **packing.pack_law(claim),
        'rule': packing.storable(claim.rule)[:255],
        **packing.pack_guarantee(claim.guaranteed),
        'networks': packing.pack_attachments(claim.attachments),
        'claimed_by': packing.storable(claim.claimed_by),
        'claimed_at': now - claim.age_seconds,
        'expires_at': now - claim.age_seconds + HELD_SECONDS,
    } for claim in filter(_can_be_stored, claims)])
    withdrawn = list(filter(_can_be_stored, withdrawn))
    if withdrawn:
        connection.execute(sa.update(table).where(
            table.c.instance_uuid == sa.bindparam('of_instance'),
            table.c.token == sa.bindparam('of_token'),
            table.c.state == CLAIMED).values(
                state=WITHDRAWN, number=number,
                expires_at=now + KEPT_SECONDS), [
                    {'of_instance': claim.instance_uuid,
                     'of_token': claim.token} for claim in withdrawn])


def _can_be_stored(claim):
    return all(
        text is None or packing.storable(text) == text and len(text) <= limit
        for text, limit in ((claim.instance_uuid, 36), (claim.host, 255),
                            (claim.source, 255)))


def _purge(connection, now, is_read):
    sql.forget_tokens(connection, history_table, counter_table,
                      now - KEPT_SECONDS)
    table = claim_table
    is_expired = is_read & (table.c.expires_at < now)
    last = connection.scalar(sa.select(sa.func.max(table.c.number)).where(
        is_expired & (table.c.state == WITHDRAWN)))
    deleted_rows = connection.execute(
        sa.delete(table).where(is_expired)).rowcount
    if last is not None:
        sql.raise_complete_since(connection, counter_table, last)
    return deleted_rows
