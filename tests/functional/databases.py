# SPDX-License-Identifier: Apache-2.0
"""Nova's databases in files, with connections that are used again."""

import types

import fixtures
from oslo_db.sqlalchemy import engines
import sqlalchemy
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy import pool
from sqlalchemy import util

__all__ = ['CompiledOnce', 'PooledSqlite']

#: Statements that any test in this process has executed, and how many are
#: kept.
_COMPILED = util.LRUCache(5000)


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


class CompiledOnce(fixtures.Fixture):
    """Let all engines of a process share their compiled statements.

    SQLAlchemy compiles each statement once for each engine. Each test creates
    engines for all databases, and compiled a fifth of its time.
    """

    def _setUp(self):
        create_engine = sqlalchemy.create_engine

        def create_sharing(*args, **kwargs):
            engine = create_engine(*args, **kwargs)
            engine._compiled_cache = _COMPILED
            return engine

        self.useFixture(fixtures.MockPatchObject(
            sqlalchemy, 'create_engine', create_sharing))
        # The caches have the dialect in their keys.
        dialect = pysqlite.SQLiteDialect_pysqlite
        self.useFixture(fixtures.MockPatchObject(
            dialect, '__hash__', lambda self: hash(type(self))))
        self.useFixture(fixtures.MockPatchObject(
            dialect, '__eq__', lambda self, other: type(self) is type(other)
            and self._json_serializer is other._json_serializer
            and self._json_deserializer is other._json_deserializer))
