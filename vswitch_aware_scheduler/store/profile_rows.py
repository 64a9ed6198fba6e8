# SPDX-License-Identifier: Apache-2.0
"""Rows of the switch profiles of hosts."""

import functools
import json

from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import profile_records
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['read', 'write']


def read(connection, query, damaged):
    """Return a list of :class:`~.HostProfile`.

    :param connection: SQLAlchemy Connection within a transaction
    :param query: SELECT of the columns that are read
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    host_profiles = []
    for row in connection.execute(query):
        host_profile = damage.usable(damaged, 'host', row.host,
                                     functools.partial(_of_row, row))
        if host_profile is not None:
            host_profiles.append(host_profile)
    return host_profiles


def _of_row(row):
    return damage.checked(profile_records.HostProfile(
        row.host, row.profile, damage.decode(row.overrides, dict),
        row.source, row.updated_at))


def write(connection, host_profiles, generation, left_out):
    """Write the profiles of hosts.

    :param connection: SQLAlchemy Connection within a transaction
    :param host_profiles: list of HostProfile
    :param generation: Generation that is being written
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    for chunk in sql.chunks(host_profiles):
        sql.upsert(connection, tables.host_profile, [
            {'host': record.host, 'generation': generation.number,
             'profile': record.profile,
             'overrides': json.dumps(record.overrides),
             'source': packing.storable(record.source),
             'updated_at': generation.published_at}
            for record in chunk], left_out)
