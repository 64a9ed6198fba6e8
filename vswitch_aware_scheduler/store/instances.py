# SPDX-License-Identifier: Apache-2.0
"""The inventory: placements of instances, its age, and former instances."""

from collections import abc
import dataclasses
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import stays
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['COLUMNS', 'FORMER_SECONDS', 'FormerInstance', 'InstanceRecord',
           'InventoryState', 'former', 'inventory', 'keep_former', 'projects',
           'read', 'values', 'write']

#: How long, in seconds, the flavor and project of a deleted instance are kept.
FORMER_SECONDS = 35 * 86400.0

# An instance that Nova has. host is empty if it is on no host. networks is the
# result of Attachments.to_data as JSON, 'null' if unknown. The rates are those
# that QoS policies guarantee to its ports; NULL if unknown.
placement_table = tables.table(
    'placement', tables.key(tables.UUID, 'instance_uuid'),
    tables.columns(sa.BigInteger, 'generation'),
    tables.columns(tables.NAME, 'host', 'flavor', 'project', null=True),
    tables.columns(tables.TEXT, 'networks'),
    tables.columns(sa.Double, *packing.GUARANTEE, null=True),
    tables.columns(sa.Double, 'updated_at'),
    tables.columns(sa.Boolean, 'running', null=True),
    tables.columns(tables.NAME, 'name', null=True),
    indexes=('generation',))

# An instance whose placement was removed. For some time, models of deleted
# instances count in priors by these values.
former_table = tables.table(
    'former_instance', tables.key(tables.UUID, 'instance_uuid'),
    tables.columns(tables.NAME, 'flavor', 'project', null=True),
    tables.columns(sa.Double, 'removed_at'))

# One row, once there is an inventory: the age of the placements.
inventory_table = tables.table(
    'inventory', tables.key(sa.Integer, 'id'),
    tables.columns(tables.NAME, 'source'),
    tables.columns(sa.Double, 'seen_at', 'complete_at'),
    tables.columns(sa.Double, 'changed_until', null=True))

#: What schedulers read of a placement.
COLUMNS = [placement_table.c[name] for name in (
    'instance_uuid', 'host', 'flavor', 'project', 'networks',
    *packing.GUARANTEE)]


_KINDS = {'instance_uuid': checks.text(36),
          **dict.fromkeys(('host', 'flavor', 'project'),
                          checks.text(255, default=None))}


@dataclasses.dataclass(frozen=True)
class InstanceRecord:
    """The data of an instance that Nova reports; None where it is unknown.

    :ivar instance_uuid: 1 to 36 characters
    :ivar attachments: networks in order
    :ivar guaranteed: (egress_kbps, ingress_kbps, kpps) that QoS policies
        guarantee to its ports
    :ivar began_at: time of the launch, or else of the creation, seconds UTC.
        The store does not keep this value and ``changed_at``, and a comparison
        of records ignores them
    :ivar changed_at: time of the last change, seconds UTC
    :ivar name: its display name, which is not unique
    :raises InvalidInput: if a value is invalid
    """

    instance_uuid: str
    host: str | None
    flavor: str | None = None
    project: str | None = None
    attachments: vswitch_attachments.Attachments | None = None
    running: bool | None = None
    guaranteed: tuple[float, float, float] | None = None
    began_at: float | None = dataclasses.field(default=None, compare=False)
    changed_at: float | None = dataclasses.field(default=None, compare=False)
    name: str | None = None

    def __post_init__(self) -> None:
        checks.fields(f'instance {self.instance_uuid}', self, _KINDS)
        # A tenant chooses the name: any text is accepted.
        object.__setattr__(self, 'name', packing.storable(
            self.name or '')[:255] or None)
        object.__setattr__(self, 'guaranteed', checks.check(
            f'instance {self.instance_uuid}: guaranteed', self.guaranteed,
            packing.RATES))

    @property
    def networks(self) -> tuple[str | None, ...]:
        """Tuple of the networks of its interfaces; empty if unknown."""
        return () if self.attachments is None else (
            self.attachments.networks + self.attachments.others)


@dataclasses.dataclass(frozen=True)
class FormerInstance:
    """An instance that Nova has deleted; ``removed_at``: seconds UTC."""

    flavor: str | None
    project: str | None
    removed_at: float


@dataclasses.dataclass(frozen=True)
class InventoryState:
    """The age of the placements; times are seconds UTC.

    :ivar source: the service that reported the placements
    :ivar seen_at: time for which the placements are correct
    :ivar complete_at: time of the last reading of all placements
    :ivar changed_until: the placements include changes up to this time by the
        clock of the source, or None
    """

    source: str
    seen_at: float
    complete_at: float
    changed_until: float | None = None


def values(connection: sa.Connection, query: sa.Select[typing.Any]
           ) -> tuple[list[str], list[typing.Any]]:
    """Return the placements of a SELECT of :data:`COLUMNS` as (uuids, values).

    A value is (host, flavor, project, Attachments or None, guaranteed rates or
    None). There may be a million: equal tuples are one object.
    """
    uuids, values, shared, attached = [], [], {}, {}
    for chunk in sql.stream(connection, query).partitions(sql.CHUNK):
        for row in chunk:
            uuid, *names, networks, egress, ingress, kpps = row
            if networks not in attached:
                attached[networks] = damage.usable(
                    connection, 'placement', uuid, packing.unpack_attachments,
                    networks)
            names.append(attached[networks])
            names.append(damage.usable(
                connection, 'placement', uuid, packing.guarantee_of,
                (egress, ingress, kpps)))
            value = tuple(shared.setdefault(name, name) for name in names)
            uuids.append(uuid)
            values.append(shared.setdefault(value, value))
    return uuids, values


@database.reader
def inventory(connection: sa.Connection) -> InventoryState | None:
    """Return the age of the placements, or None without an inventory."""
    return sql.only_record(connection, inventory_table, InventoryState)


@database.reader
def former(connection: sa.Connection) -> dict[str, FormerInstance]:
    """Return the instances that were removed in the last FORMER_SECONDS."""
    table = former_table.c
    return {uuid: FormerInstance(*values)
            for uuid, *values in connection.execute(sa.select(
                table.instance_uuid, table.flavor, table.project,
                table.removed_at))}


@database.reader
def projects(connection: sa.Connection) -> dict[str, str | None]:
    """Return {instance uuid: id of its project} of all placements."""
    return dict(connection.execute(sa.select(
        placement_table.c.instance_uuid, placement_table.c.project)).all())


@database.reader
def names(connection: sa.Connection,
          instance_uuids: abc.Iterable[str] | None = None) -> dict[str, str]:
    """Return {instance uuid: display name} of placements with a name.

    :param instance_uuids: None for all
    """
    table = placement_table.c
    named = sa.select(table.instance_uuid, table.name).where(
        table.name.is_not(None))
    return {uuid: name for query in sql.restricted(
                named, table.instance_uuid, instance_uuids)
            for uuid, name in connection.execute(query)}


@database.reader
def read(connection: sa.Connection,
         instance_uuids: abc.Iterable[str] | None = None
         ) -> dict[str, InstanceRecord]:
    """Return the placements of some or all instances, as far as known."""
    placements = {}
    for query in sql.restricted(
            sa.select(*COLUMNS, placement_table.c.running,
                      placement_table.c.name),
            placement_table.c.instance_uuid, instance_uuids):
        for record in damage.usable_records(
                connection, 'placement', connection.execute(query),
                lambda row: _of_row(connection, row),
                lambda row: row.instance_uuid):
            placements[record.instance_uuid] = record
    return placements


def _of_row(connection, row):
    attachments, guaranteed = packing.usable_ports(
        connection, 'placement', row)
    return InstanceRecord(row.instance_uuid, row.host, row.flavor,
                          row.project, attachments, row.running, guaranteed,
                          name=row.name)


def write(connection: sa.Connection, placements: abc.Sequence[InstanceRecord],
          inventory: InventoryState | None, generation: sql.Generation
          ) -> None:
    """Write placements and the inventory's state (None: keep it)."""
    for chunk in sql.chunks(placements):
        stays.follow(connection, chunk, (), generation.published_at)
        sql.delete(connection, former_table.c.instance_uuid,
                   [record.instance_uuid for record in chunk])
        sql.upsert_usable(connection, placement_table, [
            {**sql.fields_of(record, placement_table),
             'generation': generation.number,
             'networks': packing.pack_attachments(record.attachments),
             **packing.pack_guarantee(record.guaranteed),
             'updated_at': generation.published_at} for record in chunk])
    if inventory is not None:
        sql.upsert(connection, inventory_table, [
            {'id': 1, **dataclasses.asdict(inventory)}])


def keep_former(connection: sa.Connection, instance_uuids: abc.Iterable[str],
                generation: sql.Generation) -> None:
    """Store flavor and project of instances that are removed now."""
    table = placement_table.c
    for chunk in sql.key_chunks(instance_uuids):
        sql.upsert(connection, former_table, [
            {**row._mapping, 'removed_at': generation.published_at}
            for row in connection.execute(sa.select(
                table.instance_uuid, table.flavor, table.project).where(
                    table.instance_uuid.in_(chunk)))])
    connection.execute(sa.delete(former_table).where(
        former_table.c.removed_at
        < generation.published_at - FORMER_SECONDS))
