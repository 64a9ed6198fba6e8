# SPDX-License-Identifier: Apache-2.0
"""Nova's databases in files, with connections that are used again."""

import types

import fixtures
from oslo_db.sqlalchemy import engines
from sqlalchemy import pool

__all__ = ['PooledSqlite']


class _Pool(pool.QueuePool):
    """A pool without a limit: keeps every connection that was opened."""

    #: Its logger has the level of SQLAlchemy's own.
    __module__ = pool.QueuePool.__module__

    def __init__(self, creator, pool_size=0, **kwargs):
        super().__init__(creator, pool_size=pool_size, **kwargs)


class PooledSqlite(fixtures.Fixture):
    """Let databases in files keep their connections until the test ends.

    oslo.db opens a new connection for each transaction on SQLite.
    """

    def _setUp(self):
        pools = []

        class Pool(_Pool):
            __module__ = _Pool.__module__

            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                pools.append(self)

        self.useFixture(fixtures.MockPatchObject(
            engines, 'pool', types.SimpleNamespace(
                QueuePool=pool.QueuePool, NullPool=Pool,
                SingletonThreadPool=pool.SingletonThreadPool,
                StaticPool=pool.StaticPool)))
        self.addCleanup(lambda: [made.dispose() for made in pools])
