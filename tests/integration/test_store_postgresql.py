# SPDX-License-Identifier: Apache-2.0
"""The store on a real PostgreSQL."""

import time
import unittest

import sqlalchemy as sa

from tests.integration import base
from tests.integration import modeler_processes
from tests.integration import servers
from tests.integration import store_suite
from vswitch_aware_scheduler.store import engines


class OnPostgreSQL(store_suite.OnServer):
    """Mixin: on the server of this module."""


def setUpModule():
    OnPostgreSQL.server = base.started(servers.PostgreSQL())
    unittest.addModuleCleanup(OnPostgreSQL.server.cleanUp)


globals().update(store_suite.cases(__name__, OnPostgreSQL))


class SilenceTestCase(OnPostgreSQL, base.SubTests, unittest.TestCase):
    """A server that stops answering in the middle of a transaction."""

    #: What psycopg2 sends in the middle of reading rows piece by piece.
    CALLS = {'the next piece': lambda cursor: cursor.fetchmany(10),
             'the rest': lambda cursor: cursor.fetchall(), 'a row': next,
             'the end': lambda cursor: cursor.close(),
             'a commit': lambda cursor: cursor.connection.commit()}

    def test_no_call_on_a_silent_server_waits_for_ever(self):
        for name, call in self.CALLS.items():
            with self.subTest(name):
                proxy = modeler_processes.Proxy(self.server.port)
                self.addCleanup(proxy.close)
                engine = engines.create(sa.make_url(self.server.url).set(
                    port=proxy.port), 1.0)
                self.addCleanup(engine.dispose)
                connection = engine.raw_connection()
                cursor = connection.cursor('rows')
                cursor.execute('SELECT generate_series(1, 1000)')
                self.assertEqual(10, len(cursor.fetchmany(10)))
                proxy.spoil(proxy.STANDS_STILL)
                began = time.monotonic()
                with self.assertRaises(engine.dialect.loaded_dbapi.Error):
                    call(cursor)
                self.assertLess(time.monotonic() - began, 30)
                connection.invalidate()
