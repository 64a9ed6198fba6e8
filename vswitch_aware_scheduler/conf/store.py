# SPDX-License-Identifier: Apache-2.0
"""Options of the store, for scheduler, modeler and commands."""

from vswitch_aware_scheduler.conf import option

__all__ = ['OPTS']

OPTS = [
    option.StrOpt(
        'store_url',
        default='sqlite:////var/lib/vswitch_aware_scheduler/vswitch.sqlite',
        secret=True,
        related='store_timeout_seconds degraded_policy', help="""
SQLAlchemy URL of the store: the database with the traffic models and the
switch profiles of hosts.

An SQLite file serves one controller. Several controllers share a MariaDB or
PostgreSQL database; the file must not be on a network file system.

Format: a URL such as sqlite:////absolute/path/of/a/file,
mysql+pymysql://user:password@host/database or
postgresql+psycopg2://user:password@host/database. The URL may contain a
password, which is never logged.

When it is wrong, vswitch-manage prints the reason and fails; the scheduler
logs the reason and applies ``degraded_policy``. "vswitch-manage db sync"
creates and updates the schema."""),
    option.IntOpt(
        'store_timeout_seconds', default=5, min=1, max=300,
        unit='seconds', related='store_url snapshot_refresh_seconds', help="""
Longest time to wait for a connection to the database of the store, for a lock
or for the result of a query.

Raise it where the database is slow or far away. Lower it to detect an outage
sooner. No request waits for the store: the scheduler reads it in the
background.

When it is too low, reads of a healthy store fail and the scheduler applies
``degraded_policy``. When it is too high, an outage is detected late."""),
]
