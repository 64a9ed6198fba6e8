# SPDX-License-Identifier: Apache-2.0
"""Every option of the project, most in the group ``[vswitch_scheduler]``.

The scheduler reads this group from nova.conf. The commands read it from
vswitch.conf, or from nova.conf if there is no vswitch.conf. Each telemetry
driver of a service has a group of its own, and so has the inventory. This
package imports no implementation.
"""

from vswitch_aware_scheduler.conf import inventory
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.conf import telemetry

__all__ = ['GROUP', 'INVENTORY_GROUP', 'TELEMETRY_GROUPS', 'alike',
           'default_demand', 'find_files', 'inventory_options', 'parse',
           'read', 'read_all', 'refuse_unknown', 'register_opts',
           'telemetry_options', 'unknown_names', 'unknown_names_in',
           'unread_files']

#: Name of the group.
GROUP = opts.GROUP

register_opts = opts.register_opts

read = opts.read

read_all = opts.read_all

parse = opts.parse

find_files = opts.find_files

unread_files = opts.unread_files

refuse_unknown = opts.refuse_unknown

unknown_names = opts.unknown_names

unknown_names_in = opts.unknown_names_in

default_demand = opts.default_demand

alike = opts.alike

#: {name of a telemetry driver: its group and more}, see conf.telemetry.
TELEMETRY_GROUPS = telemetry.GROUPS

telemetry_options = telemetry.driver_options

#: Name of the group of the inventory.
INVENTORY_GROUP = inventory.GROUP

inventory_options = inventory.inventory_options
