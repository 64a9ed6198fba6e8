# SPDX-License-Identifier: Apache-2.0
"""What nova.conf says of the plugins, where a command reads it.

Nova need not be installed beside the command, so that its options are not
registered: the files are read for the two that matter.
"""

import os

from oslo_config import cfg

__all__ = ['PATH', 'enabled_plugins']

#: Where nova.conf is looked for, beside the files of the command line.
PATH = '/etc/nova/nova.conf'

_OPTIONS = (
    cfg.ListOpt('enabled_filters'),
    cfg.MultiStrOpt('available_filters'),
    cfg.ListOpt('weight_classes'))

#: The name of the weigher for Nova.
_WEIGHER = 'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'


def enabled_plugins(conf):
    """Return the set of roles that nova.conf enables, None: it is not read.

    Read are the files of the command, and /etc/nova/nova.conf before them.

    :param conf: ConfigOpts that has read its files
    """
    found = _read([*([PATH] if os.access(PATH, os.R_OK) else []),
                   *conf.config_file])
    if found is None or found.enabled_filters is None \
            and found.weight_classes is None:
        return None
    return ({'filter'} if 'VSwitchFilter' in (found.enabled_filters or ())
            else set()) | (
        {'weigher'} if _WEIGHER in (found.weight_classes or ())
        else set())


def _read(files):
    if not files:
        return None
    nova = cfg.ConfigOpts()
    nova.register_opts(_OPTIONS, group='filter_scheduler')
    try:
        nova([], default_config_files=files, default_config_dirs=[])
        return nova.filter_scheduler
    except cfg.Error:
        # Whoever uses the file says what is wrong with it.
        return None
