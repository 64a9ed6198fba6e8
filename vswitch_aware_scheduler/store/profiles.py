# SPDX-License-Identifier: Apache-2.0
"""The switch profiles of hosts."""

from collections import abc
import dataclasses
import json
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['HostProfile', 'read', 'write']

profile_table = tables.table(
    'host_profile', tables.key(tables.NAME, 'host'),
    tables.columns(sa.BigInteger, 'generation'),
    tables.columns(tables.NAME, 'profile', null=True),
    tables.columns(tables.TEXT, 'overrides'),
    tables.columns(tables.NAME, 'source'),
    tables.columns(sa.Double, 'updated_at'), indexes=('generation',))


def _is_json_object(value):
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return isinstance(value, dict)


_KINDS = {'host': checks.text(255), 'source': checks.text(255),
          'profile': checks.text(255, default=None),
          'overrides': checks.Kind('a dictionary that JSON can hold',
                                   _is_json_object)}


@dataclasses.dataclass(frozen=True)
class HostProfile:
    """The switch profile of a host, from discovery, calibration or operators.

    :ivar profile: name of a switch profile; None: there are only overrides
    :ivar overrides: numbers of the profile that differ on this host, a
        dictionary that JSON can represent
    :ivar source: for example 'operator' or 'discovered'
    :ivar updated_at: seconds UTC; set by the store
    :raises InvalidInput: if a value is invalid
    """

    host: str
    profile: str | None
    overrides: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    source: str = 'unknown'
    updated_at: float | None = None

    def __post_init__(self) -> None:
        checks.fields(f'host {self.host!r}', self, _KINDS)


@database.reader
def read(connection: sa.Connection, query: sa.Select[typing.Any] | None = None
         ) -> list[HostProfile]:
    """Return the profiles of hosts; None for all hosts in order."""
    if query is None:
        query = sa.select(profile_table).order_by(profile_table.c.host)
    return damage.usable_records(
        connection, 'host', connection.execute(query),
        lambda row: damage.checked(HostProfile(
            row.host, row.profile, damage.decode(row.overrides, dict),
            row.source, row.updated_at)), lambda row: row.host)


def write(connection: sa.Connection, host_profiles: abc.Sequence[HostProfile],
          generation: sql.Generation) -> None:
    """Write the profiles of hosts."""
    for chunk in sql.chunks(host_profiles):
        sql.upsert_usable(connection, profile_table, [
            {'host': record.host, 'generation': generation.number,
             'profile': record.profile,
             'overrides': json.dumps(record.overrides),
             'source': packing.storable(record.source),
             'updated_at': generation.published_at}
            for record in chunk])
