# SPDX-License-Identifier: Apache-2.0
"""The groups of options: registered in a ConfigOpts, listed for a sample."""

import itertools

from oslo_config import cfg

from vswitch_aware_scheduler.conf import inventory
from vswitch_aware_scheduler.conf import modeler
from vswitch_aware_scheduler.conf import scheduler
from vswitch_aware_scheduler.conf import store
from vswitch_aware_scheduler.conf import strict
from vswitch_aware_scheduler.conf import telemetry

__all__ = ['GROUP', 'default_demand', 'list_opts', 'register_opts']

#: Name of the group.
GROUP = 'vswitch_scheduler'

_HELP = """
Options of VSwitchFilter and VSwitchWeigher, which place an instance where the
virtual switch can carry its traffic, and of the commands that learn the
traffic. Rates are in kbit/s and kilo-packets/s, times in seconds.
"""


def list_opts():
    """Return the options for oslo-config-generator."""
    # A group of its own for each caller: oslo.config keeps overrides in it.
    group = cfg.OptGroup(GROUP, title='Virtual switch aware scheduling',
                         help=_HELP)
    found = [(group, list(itertools.chain(
        store.OPTS, scheduler.OPTS, modeler.OPTS, strict.OPTS)))]
    for name, title, text, options in telemetry.GROUPS.values():
        found.append((cfg.OptGroup(name, title=title, help=text),
                      options + telemetry.auth_opts()))
    found.append(inventory.list_opts())
    return found


def register_opts(conf):
    """Register every option; registering again changes nothing.

    :param conf: an oslo.config ConfigOpts
    """
    group, options = list_opts()[0]
    conf.register_group(group)
    conf.register_opts(options, group=group.name)
    telemetry.register_opts(conf)
    inventory.register_opts(conf)


def default_demand(group):
    """Return what an instance carries of which nothing is known.

    :param group: the options of [vswitch_scheduler]
    :returns: arguments of a TrafficModel that is on and off
    """
    return {name: getattr(group, f'default_{name}') for name in (
        'egress_kbps', 'ingress_kbps', 'on_seconds', 'off_seconds')}
