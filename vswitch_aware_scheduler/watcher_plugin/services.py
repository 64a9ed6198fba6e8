# SPDX-License-Identifier: Apache-2.0
"""Opens the store, Nova and telemetry for the plugins.

Options are those of ``vswitch.conf``, not of ``watcher.conf``: the strategy,
the action, ``vswitch-manage`` and ``vswitch-modeler`` have to agree.
"""

from oslo_config import cfg

from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store

__all__ = ['OPTIONS', 'Services']

#: Options of each plugin's group in watcher.conf.
OPTIONS = [cfg.ListOpt(
    'config_files', default=[],
    help='Configuration files of vswitch_aware_scheduler. Empty: vswitch.conf '
         'in the usual places, such as /etc/vswitch_aware_scheduler.')]


class Services:
    """Opens what a plan needs, by the options in configuration files.

    :param config_files: list of paths; empty: the usual ones
    :raises Exception: of oslo.config, for a file or a value that is wrong
    """

    def __init__(self, config_files=()):
        self._conf = options.read(config_files)
        group = self._conf[options.GROUP]
        self.store = store.Store(group.store_url, group.store_timeout_seconds)
        self.rebalancer = wiring.make_rebalancer(self._conf)

    def driver(self):
        """Return the telemetry driver of vswitch-modeler."""
        return wiring.configured_driver(self._conf)
