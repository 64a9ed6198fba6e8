# SPDX-License-Identifier: Apache-2.0
"""What the tests of real servers share."""

import contextlib
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
        missing = [cause for cause in _causes(error)
                   if isinstance(cause, servers.MissingProgram)]
        if not missing or server.required and os.environ.get('CI'):
            raise
        raise unittest.SkipTest(str(missing[0])) from None
    return server


class SubTests:
    """Mixin of a test case whose sub-tests may skip.

    unittest reports each sub-test that skips, and then neither success nor
    skip of its test: stestr counts such a test as failed. With this mixin a
    test is skipped when all its sub-tests skip, for their reasons; where one
    of them runs, the test is what those are that run.
    """

    @contextlib.contextmanager
    def subTest(self, *arguments, **parameters):
        if not hasattr(self, '_reasons'):
            self._reasons, self._any_ran = [], False
            self.addCleanup(self._skip_where_none_ran)
        with super().subTest(*arguments, **parameters):
            try:
                yield
            except unittest.SkipTest as skip:
                self._reasons.append(str(skip))
            except BaseException:
                self._any_ran = True
                raise
            else:
                self._any_ran = True

    def _skip_where_none_ran(self):
        if self._reasons and not self._any_ran:
            self.skipTest('; '.join(dict.fromkeys(self._reasons)))


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
    causes = [error]
    for argument in getattr(error, 'args', ()):
        if isinstance(argument, tuple) and len(argument) == 3:
            causes.append(argument[1])
        elif isinstance(argument, BaseException):
            causes.extend(_causes(argument))
    return causes
