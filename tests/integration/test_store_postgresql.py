# SPDX-License-Identifier: Apache-2.0
"""The store on a real PostgreSQL."""

import unittest

from tests.integration import base
from tests.integration import servers
from tests.integration import store_suite


class OnPostgreSQL(store_suite.OnServer):
    """Mixin: on the server of this module."""


def setUpModule():
    OnPostgreSQL.server = base.started(servers.PostgreSQL())
    unittest.addModuleCleanup(OnPostgreSQL.server.cleanUp)


globals().update(store_suite.cases(__name__, OnPostgreSQL))
