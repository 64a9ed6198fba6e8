# SPDX-License-Identifier: Apache-2.0
"""Reads the options in nova.conf that concern the plugins.

A command may run without an installed Nova. Therefore the files are read
directly for the relevant options.
"""

import os

from oslo_config import cfg

__all__ = ['PATH', 'enabled_plugins']

#: Path of nova.conf that is read in addition to the files of the command line.
PATH = '/etc/nova/nova.conf'

_OPTIONS = (
    cfg.ListOpt('enabled_filters'),
    cfg.MultiStrOpt('available_filters'),
    cfg.ListOpt('weight_classes'))

#: Name of the weigher in nova.conf.
_WEIGHER = 'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'


def enabled_plugins(conf):
    """Return which of the two plugins nova.conf enables.

    Reads /etc/nova/nova.conf, and then the configuration files of the command.

    :param conf: ConfigOpts that has read its files
    :returns: set with 'filter', 'weigher' or both, or None if none of the
        files has the options of nova-scheduler
    """
    values = _read([*([PATH] if os.access(PATH, os.R_OK) else []),
                    *conf.config_file])
    if values is None or values.enabled_filters is None \
            and values.weight_classes is None:
        return None
    return ({'filter'} if 'VSwitchFilter' in (values.enabled_filters or ())
            else set()) | (
        {'weigher'} if _WEIGHER in (values.weight_classes or ())
        else set())


def _read(files):
    if not files:
        return None
    nova = cfg.ConfigOpts()
    nova.register_opts(_OPTIONS, group='filter_scheduler')
    try:
        nova([], default_config_files=files, default_config_dirs=[])
        return nova.filter_scheduler
    except (cfg.Error, UnicodeDecodeError):
        # The other readers of the file report its errors.
        return None
