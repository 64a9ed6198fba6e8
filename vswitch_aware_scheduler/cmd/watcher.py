# SPDX-License-Identifier: Apache-2.0
"""The strategy and the action that Watcher loads, with their configuration.

Options are those of ``vswitch.conf``, not of ``watcher.conf``: the strategy,
the action, ``vswitch-manage`` and ``vswitch-modeler`` have to agree. Only
Watcher's services import this module.
"""

from oslo_config import cfg

from vswitch_aware_scheduler.budgets.watcher import action
from vswitch_aware_scheduler.budgets.watcher import decision
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store

__all__ = ['ErrorBudgetStrategy', 'RebalanceMigration']


class _Configured:
    """Opens the store, Nova and telemetry by the options of a plugin."""

    @classmethod
    def get_config_opts(cls):
        """Return the options of the plugin's group in watcher.conf."""
        return [cfg.ListOpt(
            'config_files', default=[],
            help='Configuration files of vswitch_aware_scheduler. Empty: '
                 'vswitch.conf in the usual places, such as '
                 '/etc/vswitch_aware_scheduler.')]

    def connect(self):
        """Return (Store, Rebalancer, callable that returns the driver).

        :raises Exception: of oslo.config, for a file or a value that is wrong
        """
        conf = options.read(self.config.config_files)
        group = conf[options.GROUP]
        return (store.Store(group.store_url, group.store_timeout_seconds),
                wiring.make_rebalancer(conf),
                lambda: wiring.configured_driver(conf))


class RebalanceMigration(_Configured, action.BaseRebalanceMigration):
    """The action ``vswitch_migrate``."""


class ErrorBudgetStrategy(_Configured, decision.BaseErrorBudgetStrategy):
    """The strategy ``vswitch_rebalance``."""
