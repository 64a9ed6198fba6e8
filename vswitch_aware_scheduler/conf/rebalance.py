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

It is of vswitch-modeler alone; "vswitch-manage rebalance" works with each
value. A plan is made every 15 minutes.

With several modelers, one of them does it.

When it is execute and migrations have neither a network of their own nor
1 Gbit/s, nothing is migrated, and the log says so.

Related options: ``rebalance_network``, ``rebalance_link_kbps``.
"""),
    cfg.StrOpt(
        'rebalance_network', default='switch', choices=(
            ('switch', 'migrations go through the virtual switch, beside the '
                       'traffic of instances'),
            ('separate', 'migrations have a network of their own')),
        help="""
Which network live migrations take.

Set separate where the option live_migration_inbound_addr of nova-compute names
an address of another network.

When it is separate and is not true, migrations overload the hosts which they
are to relieve.

Related options: ``rebalance_link_kbps``.
"""),
    cfg.FloatOpt(
        'rebalance_link_kbps', min=1, max=1e9,
        help="""
Bandwidth that one live migration has.

It says how long a migration takes and, on the virtual switch, what it adds to
the load. Without it a network of its own has 10000000 kbit/s, and a migration
on the virtual switch has a fifth of the smallest capacity of a host in the
plan. Migrations on the virtual switch are executed with 1000000 kbit/s and
more only.

Unit: kbit/s, 1 to 1000000000.

When it is too high, a plan expects migrations to end sooner than they do.

Related options: ``rebalance_network``, ``rebalance_dirty_kbps``.
"""),
    cfg.FloatOpt(
        'rebalance_dirty_kbps', default=80000.0, min=0, max=1e9,
        help="""
How fast an instance is taken to write to its memory.

A live migration transfers what was written meanwhile again. An instance whose
migration does not end at this rate is not moved.

Unit: kbit/s of memory pages, 0 to 1000000000; the default is 10 MB/s.

When it is too low, a plan expects migrations to end sooner than they do.

Related options: ``rebalance_link_kbps``, ``rebalance_downtime_seconds``.
"""),
    cfg.FloatOpt(
        'rebalance_downtime_seconds', default=0.5, min=0.001, max=3600,
        help="""
Downtime that a live migration may end with.

It is the option live_migration_downtime of nova-compute, in seconds.

Unit: seconds, 0.001 to 3600.

When it is not that of nova-compute, the expected time of a migration is wrong.

Related options: ``rebalance_dirty_kbps``.
"""),
    cfg.BoolOpt(
        'rebalance_copy_disks', default=False,
        help="""
Whether local disks may be copied to the other host.

Set it where instances have disks on storage that hosts do not share: what
they can have on disk then counts as transferred, beside the memory. Instances
that boot from a volume need no copy.

When it is not set and a disk is not shared, Nova refuses the migration and
the plan stops.

Related options: none.
"""),
    cfg.IntOpt(
        'rebalance_checks', default=2, min=1, max=96,
        help="""
A host is relieved when it was in debt at so many checks in a row.

Checks are 15 minutes apart, and those of the past are computed from what was
measured. Raise it to wait longer before instances are moved.

Unit: checks, 1 to 96.

When it is too high, hosts stay overloaded for longer.

Related options: none.
"""),
    cfg.IntOpt(
        'rebalance_most_moves', default=10, min=1, max=1000,
        help="""
Most migrations of one plan.

Beside it, at most three instances leave a host in a plan, and at most a
quarter of all instances, or one, are moved in seven days.

Unit: migrations, 1 to 1000.

When it is too low, many hosts in debt take several plans.

Related options: ``rebalance_parallel``, ``rebalance_cool_down_hours``.
"""),
    cfg.IntOpt(
        'rebalance_parallel', default=1, min=1, max=100,
        help="""
How many migrations run at a time.

Unit: migrations, 1 to 100.

When it is too high, they share the bandwidth that each one is expected to
have.

Related options: ``rebalance_link_kbps``.
"""),
    cfg.FloatOpt(
        'rebalance_cool_down_hours', default=24.0, min=0, max=8760,
        help="""
How long an instance that was migrated is not moved again.

Migrations of "vswitch-manage rebalance" and of vswitch-modeler count, those
that failed as well. Migrations that somebody else asked Nova for do not.

Unit: hours, 0 to 8760.

When it is too low, an instance can be moved several times a day.

Related options: none.
"""),
    cfg.IntOpt(
        'rebalance_wait_seconds', default=3600, min=1, max=604800,
        help="""
How long one migration is waited for.

After it the plan stops. The migration is left as it is; the next plan looks
at what became of it first.

Unit: seconds, 1 to 604800.

When it is too low, plans stop at migrations that would have ended.

Related options: ``rebalance_link_kbps``.
"""),
]
