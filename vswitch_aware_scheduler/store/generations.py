# SPDX-License-Identifier: Apache-2.0
"""Generations: complete states of the store, and the changes between two.

Every write of what schedulers read is one transaction that takes the next
generation number, stamps the rows it changes with it and publishes it by
committing: a reader sees the last complete generation and nothing else, even
if a writer fails.
"""

import collections
from collections import abc
import dataclasses
import os
import time
import typing

import numpy as np
import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import budgets
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import instances
from vswitch_aware_scheduler.store import models as stored_models
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import priors as stored_priors
from vswitch_aware_scheduler.store import profiles
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import stays
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Basis', 'Changes', 'REMOVAL_SECONDS', 'Write',
           'basis', 'changes', 'forget_removals', 'read', 'secret', 'write']

#: Seconds for which incremental readers can read a removal. A reader that was
#: away for longer reads everything.
REMOVAL_SECONDS = 86400

#: Values of ``removal.kind``.
_INSTANCE, _HOST, _PLACEMENT = 'instance', 'host', 'placement'

#: Kind of removal that a reader makes for a damaged row of a kind.
_REMOVED_KINDS = {'model': _INSTANCE, 'host': _HOST}

#: Number of laws that are unpacked together.
_CHUNK = 10_000

# One row. store_id distinguishes stores at the same URL. A reader whose
# generation is older than complete_since has to read everything, because older
# removals are deleted. token differs for each generation; it is null before
# the first.
generation_table = tables.table(
    'generation', tables.key(sa.Integer, 'id'),
    tables.columns(tables.UUID, 'store_id'),
    tables.columns(sa.BigInteger, 'number', 'complete_since'),
    tables.columns(sa.Double, 'published_at'),
    tables.columns(tables.UUID, 'token', null=True))

history_table = tables.table(
    'generation_history', tables.key(sa.BigInteger, 'number'),
    tables.columns(tables.UUID, 'token'),
    tables.columns(sa.Double, 'written_at'))

# Informs incremental readers of a deleted row.
removal_table = tables.table(
    'removal', tables.key(tables.KIND, 'kind'),
    tables.key(tables.NAME, 'name'),
    tables.columns(sa.BigInteger, 'generation'),
    tables.columns(sa.Double, 'removed_at'), indexes=('generation',))

# One row: 64 random hexadecimal digits, created with the table, a key for
# hashes that nobody can predict. No command prints them.
secret_table = tables.table(
    'secret', tables.key(sa.Integer, 'id'),
    tables.columns(sa.String(64), 'value'))


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """The state from which a pass of the modeler continues, read at once."""

    generation: sql.Generation
    points: dict[str, stored_models.ResumePoint]


@dataclasses.dataclass(frozen=True, eq=False)
class Changes:
    """The changes that a reader has to apply to reach ``generation``.

    No instance or host is both removed and changed.

    :ivar complete: True if these are all rows; everything that was read before
        is void
    :ivar instance_uuids: of n instances, in any order
    :ivar law_sizes: (n,) int64, number of bytes of the law of each instance
    :ivar packed_laws: the RateLaws one after the other
    :ivar placements: (instance uuids, list of (host, flavor, project,
        :class:`.Attachments` or None, (egress_kbps, ingress_kbps, kpps) that
        its ports guarantee or None)); equal tuples are the same object
    :ivar seen_at: time of the placements, seconds UTC, or None
    :ivar priors: {key of :class:`.Prior`: RateLaw, or None if removed}
    :ivar debts: of all that are in debt; None: as before
    :ivar damaged: {(kind, name): reason in words} of rows that could not be
        read. Damaged models, hosts and priors are also listed as removed;
        damaged networks count as unknown.
    """

    generation: sql.Generation
    complete: bool
    instance_uuids: list[str]
    law_sizes: np.ndarray
    packed_laws: bytes | bytearray
    removed: list[str]
    host_profiles: list[profiles.HostProfile]
    removed_hosts: list[str]
    placements: tuple[abc.Sequence[str], abc.Sequence[typing.Any]] = ((), ())
    removed_placements: abc.Sequence[str] = ()
    seen_at: float | None = None
    priors: dict[typing.Any, rate_law.RateLaw | None] = dataclasses.field(
        default_factory=dict)
    debts: dict[tuple[str, str], budgets.Debt] | None = None
    damaged: damage.Reasons = dataclasses.field(default_factory=dict)

    def laws(self) -> abc.Iterator[tuple[str, rate_law.RateLaw]]:
        """Yield (instance uuid, RateLaw) of all changed models."""
        end, packed = 0, memoryview(self.packed_laws)
        for first in range(0, len(self.instance_uuids), _CHUNK):
            sizes = self.law_sizes[first:first + _CHUNK]
            start, end = end, end + int(sizes.sum())
            yield from zip(self.instance_uuids[first:first + _CHUNK],
                           rate_law.split_laws(
                               bytes(packed[start:end]), sizes))

    def read_keys(self) -> set[tuple[str, typing.Any]]:
        """Return {(kind, name)} of the rows that were read undamaged."""
        return {*(('model', name) for name in self.instance_uuids),
                *(('host', profile.host) for profile in self.host_profiles),
                *(('prior', key) for key in self.priors),
                *(('placement', name) for name in self.placements[0])
                } - self.damaged.keys()


@dataclasses.dataclass(frozen=True)
class Write:
    """The content of a new generation.

    A record replaces the record of the same instance or host.

    :ivar remove: uuids of instances whose model and counts are removed;
        unknown uuids are no error
    :ivar now: seconds UTC
    :ivar unmodelled: a stored model of such an instance is removed
    :ivar based_on: the Basis from which models, counts and removals were
        computed; None: they do not depend on stored data
    :ivar inventory: None keeps the stored one
    :raises InvalidInput: when a key is given twice
    """

    models: abc.Sequence[stored_models.StoredModel] = ()
    remove: abc.Sequence[str] = ()
    host_profiles: abc.Sequence[profiles.HostProfile] = ()
    remove_hosts: abc.Sequence[str] = ()
    now: float = dataclasses.field(default_factory=lambda: time.time())
    unmodelled: abc.Sequence[stored_models.Unmodelled] = ()
    based_on: Basis | None = None
    placements: abc.Sequence[instances.InstanceRecord] = ()
    remove_placements: abc.Sequence[str] = ()
    inventory: instances.InventoryState | None = None
    priors: abc.Sequence[stored_priors.Prior] = ()
    remove_priors: abc.Sequence[stored_priors.Prior] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.default == ():
                object.__setattr__(self, field.name,
                                   list(getattr(self, field.name)))
        for kind, keys in (
                ('instance', self.instance_uuids),
                ('host', [*(record.host for record in self.host_profiles),
                          *self.remove_hosts]),
                ('placement of instance', [
                    *(record.instance_uuid for record in self.placements),
                    *self.remove_placements]),
                ('prior', [record.key for record in (
                    *self.priors, *self.remove_priors)])):
            twice = [key for key, count in collections.Counter(keys).items()
                     if count > 1]
            if twice:
                raise exceptions.InvalidInput(
                    thing=f'{kind} {twice[0]}', seen='given twice in one '
                    'write', expected='once')

    @property
    def instance_uuids(self) -> list[str]:
        """The instances whose model or counts change."""
        return [*(model.instance_uuid for model in self.models),
                *(record.instance_uuid for record in self.unmodelled),
                *self.remove]


@database.reader
def read(connection: sa.Connection) -> sql.Generation:
    """Return the last complete generation."""
    return _read(connection)[0]


def _read(connection):
    """Return (Generation, complete_since)."""
    table = generation_table.c
    row = connection.execute(sa.select(
        table.store_id, table.number, table.published_at, table.token,
        table.complete_since)).one()
    try:
        generation = damage.checked(sql.Generation(*row[:4]))
        if not damage.is_number(row.complete_since):
            raise damage.Damaged(f'complete_since: {row.complete_since!r}')
    except ValueError as error:
        raise exceptions.StoreDamaged(
            table='generation', seen=error) from None
    return generation, row.complete_since


@database.reader
def secret(connection: sa.Connection) -> bytes:
    """Return the secret of the store, a key for hashes."""
    try:
        return bytes.fromhex(connection.scalar(
            sa.select(secret_table.c.value)))
    except (TypeError, ValueError):
        raise exceptions.StoreDamaged(
            table='secret', seen='no row of hexadecimal digits') from None


@database.reader
def basis(connection: sa.Connection) -> Basis:
    """Return the :class:`Basis` of a pass."""
    return Basis(read(connection), stored_models.resume_points(connection))


@database.reader
def changes(connection: sa.Connection,
            since: sql.Generation | None = None) -> Changes:
    """Return the changes that a reader needs, in one consistent view.

    The call is cheap when nothing has changed. It can read a million models.

    :param since: Generation of the reader's last read, None for all
    :returns: they are complete when ``since`` is None, is of another store, is
        not in the history of this store (a restored backup, a replica that was
        promoted) or is so old that removals since then are no longer stored
    """
    generation, complete_since = _read(connection)
    damaged = damage.of(connection)
    after = None             # number of the reader's generation
    if since is not None and since.store_id == generation.store_id \
            and complete_since <= since.number <= generation.number \
            and sql.is_remembered(connection, history_table, since,
                                  generation):
        after = since.number

    def changed(table, *columns):
        query = sa.select(*columns)
        return query if after is None else query.where(
            table.c.generation > after)

    uuids, sizes, data = [], [np.zeros(0, np.int64)], bytearray()
    hosts, removals, laws, debts = [], [], {}, None
    placements: typing.Any = (), ()
    if after != generation.number:
        table = stored_models.model_table
        rows = sql.stream(connection, changed(table, table.c.instance_uuid,
                                              table.c.law))
        for chunk in rows.partitions(sql.CHUNK):
            usable_uuids, its_sizes, packed = packing.usable_laws(
                connection, 'model', *zip(*chunk))
            uuids.extend(usable_uuids)
            sizes.append(its_sizes)
            data += packed
        hosts = profiles.read(connection, changed(
            profiles.profile_table, profiles.profile_table))
        placements = instances.values(connection, changed(
            instances.placement_table, *instances.COLUMNS))
        laws = stored_priors.laws(connection, changed(
            stored_priors.prior_table, *stored_priors.COLUMNS))
        debts = budgets.debts(connection, generation.published_at)
        if after is not None:
            removals = connection.execute(changed(
                removal_table, removal_table.c.kind,
                removal_table.c.name)).all()
            removals += [(_REMOVED_KINDS[kind], name)
                         for kind, name in damaged if kind in _REMOVED_KINDS]

    def removed(removed_kind, present):
        present = set(present) if removals else ()
        return [name for kind, name in removals
                if kind == removed_kind and name not in present]

    inventory = instances.inventory(connection)
    return Changes(
        generation=generation, complete=after is None, instance_uuids=uuids,
        law_sizes=np.concatenate(sizes), packed_laws=data,
        removed=removed(_INSTANCE, uuids), host_profiles=hosts,
        removed_hosts=removed(_HOST, (host.host for host in hosts)),
        placements=placements,
        removed_placements=removed(_PLACEMENT, placements[0]),
        seen_at=None if inventory is None else inventory.seen_at,
        priors=laws, debts=debts, damaged=damaged)


@database.patient_writer
def write(connection: sa.Connection, content: Write) -> sql.Generation:
    """Publish a new generation completely or, on any error, not at all.

    Only one writer works at a time. A record with a value that the database
    refuses is skipped and named in the log.

    :raises StoreChanged: when another writer has changed the counts of any of
        these instances since ``content.based_on``
    """
    # The first statement locks this row, so that writers wait for each other
    # here and nowhere else.
    token, now = os.urandom(16).hex(), content.now
    connection.execute(sa.update(generation_table).values(
        number=generation_table.c.number + 1, published_at=now, token=token))
    generation = read(connection)
    sql.remember(connection, history_table, generation.number, token, now)
    if content.based_on is not None and _is_later(
            connection, generation, content.based_on.generation):
        _require_same(connection, content.based_on, content.instance_uuids)
    stored_models.write(connection, content.models, generation)
    _remove(connection, generation, _INSTANCE, stored_models.write_unmodelled(
        connection, content.unmodelled, generation))
    profiles.write(connection, content.host_profiles, generation)
    instances.write(connection, content.placements, content.inventory,
                    generation)
    stored_priors.write(connection, content.priors, content.remove_priors,
                        generation)
    instances.keep_former(connection, content.remove_placements, generation)
    stays.follow(connection, (), content.remove_placements, now)
    if content.remove_placements:
        stays.forget(connection, now - stays.UNSETTLED_SECONDS)
    for kind, names, columns in (
            (_INSTANCE, content.remove, stored_models.KEYS),
            (_HOST, content.remove_hosts, [profiles.profile_table.c.host]),
            (_PLACEMENT, content.remove_placements,
             [instances.placement_table.c.instance_uuid])):
        for column in columns:
            sql.delete(connection, column, names)
        _remove(connection, generation, kind, names)
    forget_removals(connection, now)
    return generation


def _is_later(connection, generation, other):
    return (other.store_id, other.number + 1) != (
        generation.store_id, generation.number) \
        or not sql.is_remembered(connection, history_table, other, generation)


def _require_same(connection, based_on, instance_uuids):
    points = stored_models.resume_points(connection, instance_uuids)
    changed = [uuid for uuid in instance_uuids if stored_models.mark(
        points.get(uuid)) != stored_models.mark(based_on.points.get(uuid))]
    if changed:
        raise exceptions.StoreChanged(
            thing=f'counts of {len(changed)} instances, such as {changed[0]}, '
            f'since generation {based_on.generation.number}')


def _remove(connection, generation, kind, names):
    """Note the removals of rows for incremental readers."""
    for chunk in sql.chunks(names):
        sql.upsert_usable(connection, removal_table, [
            {'kind': kind, 'name': name, 'generation': generation.number,
             'removed_at': generation.published_at} for name in chunk])


def forget_removals(connection: sa.Connection, now: float) -> None:
    """Delete records of removals that no incremental reader needs."""
    limit = now - REMOVAL_SECONDS
    sql.forget_tokens(connection, history_table, generation_table, limit)
    prior = stored_priors.prior_table.c
    for table, is_old in (
            (removal_table, removal_table.c.removed_at < limit),
            (stored_priors.prior_table,
             (prior.members == 0) & (prior.updated_at < limit))):
        last = connection.scalar(
            sa.select(sa.func.max(table.c.generation)).where(is_old))
        if last is None:
            continue
        connection.execute(sa.delete(table).where(is_old))
        sql.raise_complete_since(connection, generation_table, last)
