# SPDX-License-Identifier: Apache-2.0
"""What the tests of real servers share."""

import os
import unittest

from tests.integration import servers


def started(server):
    """Return a server that answers now.

    :raises unittest.SkipTest: when a program of it is not installed
    """
    try:
        server.setUp()
    except Exception as error:
        # What fixtures wraps when a part of it is not there.
        missing = [one for one in _causes(error)
                   if isinstance(one, servers.MissingProgram)]
        if not missing or server.required and os.environ.get('CI'):
            raise
        raise unittest.SkipTest(str(missing[0])) from None
    return server


class WithServer:
    """A test case whose class starts a server, once for all its tests."""

    @classmethod
    def make_server(cls):
        raise NotImplementedError

    @classmethod
    def feed(cls, server):
        """Bring in what the tests read."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = started(cls.make_server())
        cls.addClassCleanup(cls.server.cleanUp)
        cls.feed(cls.server)


def _causes(error):
    found = [error]
    for argument in getattr(error, 'args', ()):
        if isinstance(argument, tuple) and len(argument) == 3:
            found.append(argument[1])
        elif isinstance(argument, BaseException):
            found.extend(_causes(argument))
    return found
