# SPDX-License-Identifier: Apache-2.0
"""Priors: the expected traffic of instances without a model."""

from collections import abc
import dataclasses
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['COLUMNS', 'Prior', 'laws', 'read', 'write']

# The prior of an instance with a short history, or of a group: then
# instance_uuid is empty, and so are values that do not identify the group. A
# row without members marks a removed prior, for readers that have read it.
prior_table = tables.table(
    'prior', tables.key(tables.UUID, 'instance_uuid'),
    tables.key(tables.NAME, 'flavor', 'project'),
    tables.columns(sa.BigInteger, 'generation'),
    tables.columns(tables.BLOB, 'law'),
    tables.columns(sa.Double, 'members', 'updated_at'),
    indexes=('generation',))

COLUMNS = [prior_table.c[name] for name in (
    'instance_uuid', 'flavor', 'project', 'members', 'law')]


_KINDS = {'flavor': checks.text(255, default=None),
          'project': checks.text(255, default=None),
          'instance_uuid': checks.text(36, default=None),
          'members': checks.number(above=True)}


@dataclasses.dataclass(frozen=True)
class Prior:
    """The expected traffic of an instance without a model.

    A prior belongs to a group (a flavor and a project, a flavor, a project, or
    all instances) or to one instance with a short history.

    :ivar members: number of instances of the group that have a law, or number
        of samples of the instance; above 0
    :ivar updated_at: seconds UTC; set by the store
    :raises InvalidInput: if a value is invalid
    """

    flavor: str | None
    project: str | None
    law: rate_law.RateLaw
    members: float
    instance_uuid: str | None = None
    updated_at: float | None = None

    def __post_init__(self) -> None:
        checks.fields(f'prior {self.key}', self, _KINDS)

    @property
    def key(self) -> tuple[str | None, str | None] | str:
        """(flavor, project) of a group, or the uuid of an instance."""
        return self.instance_uuid or (self.flavor, self.project)


def laws(connection: sa.Connection, query: sa.Select[typing.Any]
         ) -> dict[typing.Any, rate_law.RateLaw | None]:
    """Return {key: RateLaw; None if removed or damaged} of :data:`COLUMNS`."""
    rows = {_key(row): row for row in connection.execute(query)}
    return {**dict.fromkeys(rows), **_unpacked(
        connection, [row for row in rows.values() if row.members])}


def _key(row):
    return row.instance_uuid or (row.flavor or None, row.project or None)


def _unpacked(connection, rows):
    keys, sizes, data = packing.usable_laws(
        connection, 'prior', [_key(row) for row in rows],
        [row.law for row in rows])
    return dict(zip(keys, rate_law.split_laws(data, sizes)))


@database.reader
def read(connection: sa.Connection) -> dict[typing.Any, Prior]:
    """Return {key: :class:`Prior`} of all priors."""
    rows = connection.execute(sa.select(
        *COLUMNS, prior_table.c.updated_at).where(
            prior_table.c.members > 0)).all()
    laws_by_key = _unpacked(connection, rows)
    return {prior.key: prior for prior in damage.usable_records(
        connection, 'prior', (row for row in rows if _key(row) in laws_by_key),
        lambda row: damage.checked(Prior(
            row.flavor or None, row.project or None, laws_by_key[_key(row)],
            row.members, row.instance_uuid or None, row.updated_at)), _key)}


def write(connection: sa.Connection, priors: abc.Iterable[Prior],
          remove: abc.Iterable[Prior], generation: sql.Generation) -> None:
    """Write priors, and mark others as removed."""
    rows = [(record, record.members, packing.pack_law(record))
            for record in priors] + [
        (record, 0.0, {'law': b''}) for record in remove]
    for chunk in sql.chunks(rows):
        sql.upsert_usable(connection, prior_table, [
            {'instance_uuid': record.instance_uuid or '',
             'flavor': '' if record.instance_uuid else record.flavor or '',
             'project': '' if record.instance_uuid else record.project or '',
             'generation': generation.number, **law,
             'members': members, 'updated_at': generation.published_at}
            for record, members, law in chunk])
