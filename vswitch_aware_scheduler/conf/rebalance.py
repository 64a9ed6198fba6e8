# SPDX-License-Identifier: Apache-2.0
"""Options of rebalancing: live migrations that keep hosts within budget."""

from oslo_config import cfg

__all__ = ['OPTS']

OPTS = [
    cfg.StrOpt(
        'rebalance_mode', default='off', choices=(
            ('off', 'vswitch-modeler proposes and migrates nothing'),
            ('advise', 'vswitch-modeler logs the migrations that it would '
                       'begin'),
            ('execute', 'vswitch-modeler begins them')),
        help="""
What vswitch-modeler does about hosts that have overspent their error budget.

The option applies to vswitch-modeler only; "vswitch-manage rebalance" works
with every value. vswitch-modeler makes a plan every 15 minutes.

With several modelers, only one of them makes plans.

When the value is execute and migrations have neither a network of their own
nor 1 Gbit/s, vswitch-modeler logs this and migrates nothing.

Related options: ``rebalance_network``, ``rebalance_link_kbps``.
"""),
    cfg.StrOpt(
        'rebalance_network', default='switch', choices=(
            ('switch', 'migrations go through the virtual switch, beside the '
                       'traffic of instances'),
            ('separate', 'migrations have a network of their own')),
        help="""
Which network live migrations use.

Set separate where the option live_migration_inbound_addr of nova-compute is an
address of another network.

When it is set to separate although migrations use the virtual switch, they
overload the hosts that they should relieve.

Related options: ``rebalance_link_kbps``.
"""),
    cfg.FloatOpt(
        'rebalance_link_kbps', min=1, max=1e9,
        help="""
Bandwidth that is available to one live migration.

A plan computes from it how long a migration takes and, on the virtual switch,
how much load it adds. The default is 10000000 kbit/s on a separate network. On
the virtual switch it is a fifth of the smallest capacity of a host in the
plan. Migrations on the virtual switch are executed only with at least 1000000
kbit/s.

Unit: kbit/s, 1 to 1000000000.

When it is too high, a plan expects migrations to end sooner than they do.

Related options: ``rebalance_network``, ``rebalance_dirty_kbps``.
"""),
    cfg.FloatOpt(
        'rebalance_dirty_kbps', default=80000.0, min=0, max=1e9,
        help="""
Rate at which an instance is assumed to write to its memory.

During a live migration Nova transfers memory again that the instance has
written meanwhile. A plan does not move an instance whose migration would not
end at this rate.

Unit: kbit/s of memory pages, 0 to 1000000000; the default is 10 MB/s.

When it is too low, a plan expects migrations to end sooner than they do.

Related options: ``rebalance_link_kbps``, ``rebalance_downtime_seconds``.
"""),
    cfg.FloatOpt(
        'rebalance_downtime_seconds', default=0.5, min=0.001, max=3600,
        help="""
Longest downtime at the end of a live migration.

Set it to the value of the option live_migration_downtime of nova-compute,
converted to seconds.

Unit: seconds, 0.001 to 3600.

When it differs from the value of nova-compute, the expected time of a
migration is wrong.

Related options: ``rebalance_dirty_kbps``.
"""),
    cfg.BoolOpt(
        'rebalance_copy_disks', default=False,
        help="""
Whether a migration may copy local disks to the other host.

Set it where instances have disks on storage that hosts do not share. The
largest size of these disks then counts as transferred data, in addition to the
memory. Instances that boot from a volume need no copy.

When it is not set and a disk is not shared, Nova refuses the migration and
the plan stops.

Related options: none.
"""),
    cfg.IntOpt(
        'rebalance_checks', default=2, min=1, max=96,
        help="""
Number of consecutive checks at which a host must be in debt before it is
relieved.

Checks are 15 minutes apart. Past checks are computed from measured traffic.
Raise it to wait longer before instances are moved.

Unit: checks, 1 to 96.

When it is too high, hosts stay overloaded for longer.

Related options: none.
"""),
    cfg.IntOpt(
        'rebalance_most_moves', default=10, min=1, max=1000,
        help="""
Largest number of migrations in one plan.

In addition, a plan moves at most three instances away from a host. In seven
days at most a quarter of all instances are moved, but always at least one is
permitted.

Unit: migrations, 1 to 1000.

When it is too low, several plans are needed if many hosts are in debt.

Related options: ``rebalance_parallel``, ``rebalance_cool_down_hours``.
"""),
    cfg.IntOpt(
        'rebalance_parallel', default=1, min=1, max=100,
        help="""
Number of migrations that run at the same time.

Unit: migrations, 1 to 100.

When it is too high, the migrations share the bandwidth that the plan expects
for each of them.

Related options: ``rebalance_link_kbps``.
"""),
    cfg.FloatOpt(
        'rebalance_cool_down_hours', default=24.0, min=0, max=8760,
        help="""
Time after a migration in which an instance is not moved again.

Migrations by "vswitch-manage rebalance" and vswitch-modeler count, even if
they failed. Migrations that others requested from Nova do not count.

Unit: hours, 0 to 8760.

When it is too low, an instance can be moved several times a day.

Related options: none.
"""),
    cfg.IntOpt(
        'rebalance_wait_seconds', default=3600, min=1, max=604800,
        help="""
Longest time to wait for one migration.

After this time the plan stops. The migration continues; the next plan first
checks its result.

Unit: seconds, 1 to 604800.

When it is too low, plans stop although the migration would have ended.

Related options: ``rebalance_link_kbps``.
"""),
]
