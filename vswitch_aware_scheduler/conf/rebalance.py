# SPDX-License-Identifier: Apache-2.0
"""Options of rebalancing: live migrations away from hosts in debt."""

from vswitch_aware_scheduler.conf import option

__all__ = ['OPTS']

OPTS = [
    option.StrOpt(
        'rebalance_mode', default='off', choices=(
            ('off', 'vswitch-modeler plans and migrates nothing'),
            ('advise', 'vswitch-modeler logs a plan of migrations and '
                       'migrates nothing'),
            ('execute', 'vswitch-modeler executes its plan')),
        related='rebalance_network rebalance_link_kbps', help="""
Whether vswitch-modeler migrates instances away from hosts with a negative
error budget.

vswitch-modeler makes a plan every 15 minutes. With several modelers, only one
of them makes plans. "vswitch-manage rebalance" does not use this option.

When the value is execute and migrations have neither a separate network nor
1 Gbit/s, vswitch-modeler logs this and migrates nothing."""),
    option.StrOpt(
        'rebalance_network', default='switch', choices=(
            ('switch', 'migrations use the virtual switch, together with the '
                       'traffic of instances'),
            ('separate', 'migrations use a separate network')),
        related='rebalance_link_kbps', help="""
Which network live migrations use.

Set it to separate if the option live_migration_inbound_addr of nova-compute is
an address of a network without traffic of instances.

When it is set to separate although migrations use the virtual switch, the
migrations overload the hosts that they should relieve."""),
    option.FloatOpt(
        'rebalance_link_kbps', min=1, max=1e9,
        unit='kbit/s', related='rebalance_network rebalance_dirty_kbps',
        help="""
Bandwidth that is available to one live migration.

vswitch-modeler computes the duration of a migration from it and, on the
virtual switch, the load that the migration adds. The default is 10000000
kbit/s on a separate network. On the virtual switch, the default is a fifth of
the smallest capacity of a host in the plan. Migrations on the virtual switch
are executed only with at least 1000000 kbit/s.

When it is too high, a plan expects migrations to end sooner than they do."""),
    option.FloatOpt(
        'rebalance_dirty_kbps', default=80000.0, min=0, max=1e9,
        related='rebalance_link_kbps', help="""
Rate at which an instance is assumed to write to its memory.

During a live migration, memory that the instance writes is transferred again.
A plan does not contain an instance whose migration would never end at this
rate.

Unit: kbit/s of memory pages, 0 to 1000000000; the default is 10 MB/s.

When it is too low, a plan expects migrations to end sooner than they do."""),
    option.BoolOpt(
        'rebalance_copy_disks', default=False,
        help="""
Whether a migration may copy local disks to the other host.

Set it if instances have disks on storage that hosts do not share. A plan then
computes the duration of a migration from the memory and the full size of these
disks. Instances that boot from a volume need no copy.

When it is not set and a disk is not shared, Nova refuses the migration."""),
    option.BoolOpt(
        'rebalance_tenant_veto', default=False,
        help="""
Whether a tenant may forbid migrations of an instance with the metadata
vswitch:migrate=never.

Every user of a project can set metadata of its instances. When the option is
set, an instance that overloads its host can thus stay there, and plans move
other instances instead. The flavor extra spec and the aggregate key
vswitch:migrate always apply and precede the metadata."""),
    option.IntOpt(
        'rebalance_checks', default=2, min=1, max=96,
        unit='checks', help="""
Number of consecutive checks at which a host must be in debt before it is
relieved.

There is a check every 15 minutes. Past checks are computed from measured
traffic. Raise the option to wait longer before instances are moved.

When it is too high, hosts stay overloaded for longer."""),
    option.IntOpt(
        'rebalance_most_moves', default=10, min=1, max=1000,
        unit='migrations', help="""
Largest number of migrations in one plan.

In addition, a plan moves at most three instances away from one host, and all
plans of seven days together move at most a quarter of all instances (at least
one instance).

When it is too low, several plans are needed if many hosts are in debt."""),
]
