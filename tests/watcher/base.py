# SPDX-License-Identifier: Apache-2.0
"""The case of the tests that load our plugins as Watcher does.

Watcher's options and those of Nova do not fit into one process; so these tests
are a suite of their own.
"""

import http
import sys
from unittest import mock

from oslo_config import cfg
from watcher.decision_engine.loading import default as decision_loading

from tests.unit.budgets import relief_case
from vswitch_aware_scheduler.budgets.watcher import action
from vswitch_aware_scheduler.budgets.watcher import decision

# Watcher imports eventlet, which leaves its own http.server, for green
# threads, as an attribute of the package. The tests need that of Python.
http.server = sys.modules['http.server']


class WatcherTestCase(relief_case.ReliefTestCase):
    """host1 is in debt; Watcher has read its configuration."""

    def setUp(self):
        super().setUp()
        cfg.CONF([], project='watcher', default_config_files=[])
        self.addCleanup(cfg.CONF.clear)
        for module in (action, decision):
            self.enterContext(mock.patch.object(module, 'time', self.time))

    def solution(self, scope=(), **parameters):
        """Return the solution, as Watcher's decision engine gets it.

        :param scope: of the audit
        :param parameters: of the audit
        """
        loaded = decision_loading.DefaultStrategyLoader().load(
            'vswitch_rebalance', osc=mock.sentinel.unused)
        loaded.config.config_files = [self.config]
        loaded.audit_scope = list(scope)
        loaded.input_parameters.update(parameters)
        return loaded.execute()
