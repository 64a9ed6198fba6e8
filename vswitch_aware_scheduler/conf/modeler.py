# SPDX-License-Identifier: Apache-2.0
"""Options of what learns the traffic."""

from oslo_config import cfg

__all__ = ['OPTS']

OPTS = [
    cfg.IntOpt(
        'min_samples', default=24, min=2, max=1000000,
        help="""
Fewest samples that a traffic model is fitted to.

Raise it to trust only long histories: more instances then count by the
default model. Lower it to learn of new instances sooner, from less. With one
sample in 300 seconds the default is two hours.

Unit: samples, 2 to 1000000.

When it is too low, a model says little about what comes; when it is longer
than the history that telemetry keeps, no instance gets a model.

Related options: ``unknown_instance_policy``, ``default_egress_kbps``.
"""),
    cfg.StrOpt(
        'telemetry_driver', default='gnocchi',
        help="""
Telemetry driver that vswitch-modeler reads.

Format: gnocchi, prometheus, ceilometer or file, or the name of another driver
that is registered under the entry point vswitch_aware_scheduler.telemetry.
The first three have a group of options each; "file" reads
``telemetry_path``.

When it is wrong, vswitch-modeler does not start and names the drivers there
are. When nothing says what the driver reads (neither ``url`` nor
``auth_type`` in its group, no ``telemetry_path`` for "file"), vswitch-modeler
waits and says so, until SIGHUP makes it read a configuration that does.

Related options: ``telemetry_path``.
"""),
    cfg.StrOpt(
        'telemetry_path',
        help="""
File or folder that the telemetry driver "file" reads.

It means nothing to the other drivers.

Format: path of a CSV file, of an .npz file or of a folder of GWA-T-12 files.
It is read anew in every pass and may have grown.

When it cannot be read, the pass fails, the models stay as they are, and the
log says so.

Related options: ``telemetry_driver``, ``telemetry_period_seconds``.
"""),
    cfg.FloatOpt(
        'telemetry_period_seconds', min=1, max=86400,
        help="""
Sampling period of what the telemetry driver "file" reads.

Without it the period is inferred for each instance: the usual distance of its
samples. Set it where samples are missing so often that another distance is
more usual. It means nothing to the other drivers, which have
``period_seconds`` in groups of their own.

Unit: seconds, 1 to 86400.

When it is wrong, sojourn times are wrong by the same factor. When an .npz file
states another period, the pass fails and the log says so.

Related options: ``telemetry_driver``, ``telemetry_path``.
"""),
    cfg.IntOpt(
        'modeler_interval_seconds', default=300, min=10, max=86400,
        help="""
Time from the start of one pass of vswitch-modeler to the start of the next.

Lower it to learn of changes sooner. Raise it to ask telemetry less often: a
pass reads all that has become known since the one before, so nothing is lost.
Less than the sampling period of telemetry brings nothing.

Unit: seconds, 10 to 86400.

When it is shorter than a pass takes, the next one follows at once and the log
says so. When it is longer than ``max_generation_age_seconds``, the store is
stale between passes.

Related options: ``max_generation_age_seconds``,
``snapshot_refresh_seconds``.
"""),
    cfg.FloatOpt(
        'modeler_half_life_days', default=30, min=0, max=3650,
        help="""
Age at which a sample counts half as much as a new one.

Lower it to follow instances whose traffic changes. Raise it to remember rare
peaks for longer: a peak that occurred in one sample is forgotten after three
half lives, 90 days by default, and one that occurred in n samples log2(n) half
lives later. A history that is read at once ages by whole half lives. With 0
all samples count alike for ever, false ones as well.

Unit: days, 0 to 3650.

When it is so short that less than ``min_samples`` samples have weight,
instances do not get new models any more.

Related options: ``min_samples``.
"""),
    cfg.FloatOpt(
        'modeler_forget_days', default=30, min=0, max=3650,
        help="""
How long the model of an instance is kept that telemetry does not know any
more, or says has ended.

Raise it where telemetry loses instances for a time. Lower it to keep the
store small. The time is that between the last sample of the instance and the
newest one of all instances, so an outage of telemetry makes nothing
forgotten. With 0 nothing ever is.

Unit: days, 0 to 3650.

When it is too short, an instance that was shelved or paused is unknown when
it comes back.

Related options: ``unknown_instance_policy``.
"""),
    cfg.FloatOpt(
        'modeler_clock_seconds', default=60, min=0, max=86400,
        help="""
How far the clock of vswitch-modeler may be from that of the database and that
of telemetry.

Beyond that a pass learns nothing, and the log says so, until the clocks agree
again. The clock of MariaDB and PostgreSQL is asked for; that of telemetry is
in the header Date of HTTP answers. SQLite and files have no clock of their
own. Raise it where clocks cannot be synchronized. With 0 the clocks are not
compared.

Unit: seconds, 0 to 86400.

When it is too low, the time that an answer takes stops learning. When it is
too high, a wrong clock delays samples or ends what is counted by days.

Related options: none.
"""),
    cfg.FloatOpt(
        'prior_min_hours', default=2, min=0, max=8760,
        help="""
How long an instance has been measured before it counts in the priors of
groups.

Raise it to count only instances that ran for longer: new flavors then get a
prior later. Lower it in clouds whose instances live for a short time only.
With 0 each instance counts that has enough samples or a model.

Unit: hours, 0 to 8760.

When it is longer than instances live, there are no priors and new instances
count by the configured default.

Related options: ``min_samples``, ``default_egress_kbps``.
"""),
    cfg.BoolOpt(
        'error_budgets', default=True,
        help="""
Whether vswitch-modeler keeps an error budget of each host and uplink.

A host earns budget while it is in use and measured, and spends it while it is
overloaded avoidably; "vswitch-manage fleet" and the report show what is left.
For that vswitch-modeler reads the newest samples of telemetry once more in
each pass. When it is unset, budgets stay as they are and nothing is measured.

It needs an inventory: auth_type or path in the group [vswitch_inventory].
Hosts with a switch profile and the admission policy "probability" have
budgets. Schedulers use them only with ``refuse_hosts_in_debt``.

Related options: ``error_budget_earned_share``, ``overload_probability``,
``refuse_hosts_in_debt``.
"""),
    cfg.FloatOpt(
        'error_budget_earned_share', default=0.6, min=0.01, max=1,
        help="""
Share of the limit on overload that a host in use earns as error budget.

With 0.6 and ``overload_probability`` 0.01 a host may be overloaded for 0.6 %
of its time before it is in debt, and begins with what a day earns. Raise it to
act on overload later; lower it to act sooner, before the limit is reached.

Unit: a share of the limit, 0.01 to 1.

When it is changed, each host begins a new budget.

Related options: ``error_budgets``, ``overload_probability``.
"""),
    cfg.StrOpt(
        'modeler_coordination_url', secret=True,
        help="""
tooz backend by which several vswitch-modelers share the instances.

Not set for one modeler alone. Several modelers of one store name the same
backend; each then learns of its share, and those that remain take over when
one ends. They need a store on MariaDB or PostgreSQL: writers of an SQLite
file wait for each other.

Format: a URL such as redis://:password@host:6379, etcd3+http://host:2379,
zookeeper://host:2181, or file:///var/lib/vswitch_aware_scheduler/modelers for
several on one machine. It may hold a password and is never logged. How long
a modeler that was killed keeps its share is the backend's timeout, 30 seconds
for Redis; an option ?timeout=15 of the URL changes it.

When its backend does not answer, a modeler that knows its share keeps it and
the log says so; one that has just started learns nothing until it answers.
Where modelers name different backends, each learns of all instances: nothing
is counted twice, and much work is void.

Related options: ``store_url``, ``modeler_interval_seconds``.
"""),
    cfg.PortOpt(
        'modeler_metrics_port', default=0, min=0,
        help="""
Port at which vswitch-modeler tells Prometheus of itself.

With 0 nothing listens. It is plain HTTP without authentication, and tells
numbers only.

Format: port number, 0 to 65535.

When it is in use already, the log says so, the modeler works all the same and
tries again after each pass.

Related options: ``modeler_metrics_address``.
"""),
    cfg.StrOpt(
        'modeler_metrics_address', default='127.0.0.1',
        help="""
Address at which vswitch-modeler tells Prometheus of itself.

Format: an address of this machine; 0.0.0.0 or :: for all of them.

When it is none of this machine, the log says so and the modeler works all the
same.

Related options: ``modeler_metrics_port``.
"""),
]
