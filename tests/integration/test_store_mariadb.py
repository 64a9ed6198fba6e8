# SPDX-License-Identifier: Apache-2.0
"""The store on a real MariaDB."""

import unittest

from tests.integration import base
from tests.integration import servers
from tests.integration import store_suite


class OnMariaDB(store_suite.OnServer):
    """Mixin: on the server of this module."""


def setUpModule():
    OnMariaDB.server = base.started(servers.MariaDB())
    unittest.addModuleCleanup(OnMariaDB.server.cleanUp)


globals().update(store_suite.cases(__name__, OnMariaDB))
