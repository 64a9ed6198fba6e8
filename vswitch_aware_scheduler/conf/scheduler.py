# SPDX-License-Identifier: Apache-2.0
"""Options of VSwitchFilter and VSwitchWeigher."""

from vswitch_aware_scheduler.conf import option

__all__ = ['OPTS']

OPTS = [
    # What a host can carry
    option.StrOpt(
        'switch_profiles_file',
        related='default_switch_profile', help="""
YAML file with additional switch profiles.

A profile in the file replaces the built-in profile of the same name. Without a
file only the built-in profiles exist ("vswitch-manage profile list").

Format: path of a file that the scheduler may read. "vswitch-manage profile
validate FILE" checks such a file.

The scheduler reads the file when it starts. When the file cannot be read or is
not valid, the scheduler uses the built-in profiles only and logs the reason.
"""),
    option.StrOpt(
        'default_switch_profile',
        related='switch_profiles_file unknown_host_policy', help="""
Switch profile of the hosts for which no other rule names a profile.

The profile of a host is the first of these that is set: the aggregate metadata
``vswitch:profile``, the host's profile in the store, this option. If this
option is not set, ``unknown_host_policy`` applies to hosts without a profile.

Format: name of a built-in profile or of one in ``switch_profiles_file``.

When there is no profile of this name, the scheduler ignores the option and
logs a warning."""),
    option.StrOpt(
        'unknown_host_policy', default='pass',
        choices=[
            ('pass', 'VSwitchFilter lets the host pass without a check'),
            ('reject', 'VSwitchFilter refuses the host')],
        related='default_switch_profile enforcement', help="""
What VSwitchFilter does with a host that has no switch profile.

With "pass" you can introduce profiles host by host. With "reject" only hosts
with a profile get instances. A host whose ``enforcement`` is "observe" passes
in either case.

When it is "reject" and no host has a profile, every request fails with "No
valid host"."""),
    # Admission
    option.StrOpt(
        'enforcement', default='enforce',
        choices=[
            ('enforce', 'VSwitchFilter refuses a host that cannot carry the '
             'instance'),
            ('observe', 'VSwitchFilter judges every host, records what it '
             'would refuse, and passes the host')],
        related='decisions_kept vswitch_weight_multiplier unknown_host_policy',
        help="""
Whether VSwitchFilter refuses hosts, or only records what it would refuse.

With "observe" VSwitchFilter passes every host. It ignores the limits of the
switch and its uplinks, and ``unknown_host_policy``. The filter still records
its decisions as with "enforce"; "vswitch-manage decision list" prints them.
VSwitchWeigher still ranks hosts; set ``vswitch_weight_multiplier`` to 0 to
switch the weigher off.

The aggregate metadata ``vswitch:enforcement`` overrides this option for the
hosts of an aggregate. If the aggregates of a host have different values,
"observe" applies.

Any other value is refused when the scheduler starts."""),
    option.StrOpt(
        'admission_policy', default='probability',
        choices=[
            ('average', 'refuse a host if the average rates of its instances '
             'together exceed the saturation bandwidth of the switch'),
            ('probability', 'refuse a host if the rates of its instances '
             'together exceed the saturation bandwidth for a larger share '
             'of time than overload_probability')],
        related='overload_probability', help="""
How VSwitchFilter decides whether a host can carry one more instance.

With both policies, the filter first compares the peak rate of the instance
with the limit of the switch profile for one instance. "average" fills a host
until the sum of the average rates reaches the saturation bandwidth. The host
is then overloaded for a large part of the time. "probability" needs more
hosts, but limits the share of time in which a host is overloaded to
``overload_probability``.

The aggregate metadata ``vswitch:admission_policy`` overrides this option for
the hosts of an aggregate.

Any other value is refused when the scheduler starts."""),
    option.FloatOpt(
        'overload_probability', default=0.01, min=0, max=1,
        unit='a probability', related='admission_policy prediction_margin',
        help="""
Largest share of time in which the traffic of a host may exceed the saturation
bandwidth of its switch.

Raise it to place more instances on a host; lower it to lose less traffic. With
0, the filter adds up the peak rates of all instances. With 1, only the hard
limits of the switch profile apply.

The aggregate metadata ``vswitch:overload_probability`` overrides this option
for the hosts of an aggregate.

When it is too high, switches drop traffic; when it is too low, requests fail
with "No valid host" while switches are idle."""),
    option.FloatOpt(
        'prediction_margin', default=2.0, min=0.001, max=1000,
        unit='a factor', related='overload_probability error_budgets '
                                 'rebalance_mode',
        help="""
Factor by which the filter multiplies the predicted overload probability before
it compares the probability with ``overload_probability``.

Traffic differs from the traffic that was learned, so hosts are overloaded for
longer or shorter than predicted. A fortnight has one or two of 504 instants in
which a host is above a limit of 0.003; with a probability of 0.9, the true
share is then at most twice the predicted one. The margin applies to every host
and uplink, whatever their error budgets are. Raise it to 3 if nothing corrects
what placement gets wrong. Lower it to use fewer hosts, in a cloud where live
migrations relieve hosts in debt (``rebalance_mode`` or OpenStack Watcher). The
error budgets do not depend on the margin. A margin below 1 does not apply to
hosts in debt.

The aggregate metadata ``vswitch:prediction_margin`` overrides this option for
the hosts of an aggregate, and ``vswitch:uplink_prediction_margin`` for an
uplink. If aggregates have different values, the largest applies.

When it is below 1 and no host is relieved, hosts are overloaded for longer
than ``overload_probability``; "vswitch-status check" warns. When it is too
high, requests fail with "No valid host" while switches are idle."""),
    # Instances without a model
    option.StrOpt(
        'unknown_instance_policy', default='default',
        choices=[
            ('default', 'assume the traffic of the default model'),
            ('ignore', 'assume no traffic')],
        related='default_egress_kbps default_ingress_kbps default_on_seconds '
                'default_off_seconds',
        help="""
Traffic that is assumed for running instances about which nothing is known: no
traffic model, no prior of their own traffic, no extra specs of their flavor
and no QoS guarantee of their ports.

"default" is cautious: such instances use capacity of the host, as much as the
prior of similar instances, or else the default model. With "ignore" they use
no capacity, which suits a cloud where instances get models soon or most
instances have no traffic. The option does not apply to the instance that is
being placed: for this instance the scheduler uses the default model if it has
no better estimate.

When it is "ignore" and few instances have models, hosts are overloaded; when
it is "default" and the default model is far too large, requests fail with "No
valid host"."""),
    option.IntOpt(
        'default_egress_kbps', default=4000, min=0, max=8000000000,
        unit='kbit/s', related='default_ingress_kbps default_on_seconds '
                               'default_off_seconds unknown_instance_policy',
        help="""
Rate at which an instance without model and extra specs sends while it is on.

Raise it to reserve more capacity for instances without a model, lower it to
reserve less. The default comes from the public trace GWA-T-12 "Rnd", in which
200 of 500 virtual machines have noticeable traffic. The median bandwidth of
these virtual machines while they are active is 7 to 8 Mbit/s; half of it is
assumed in each direction.

When it is too low, hosts with many new instances are overloaded; when it is
above the limit of every switch profile for one instance, no host accepts the
instance."""),
    option.IntOpt(
        'default_ingress_kbps', default=4000, min=0, max=8000000000,
        unit='kbit/s', related='default_egress_kbps default_on_seconds '
                               'default_off_seconds unknown_instance_policy',
        help="""
Rate at which an instance without model and extra specs receives while it is
on.

Raise it to reserve more capacity for instances without a model, lower it to
reserve less.

When it is too low, hosts with many new instances are overloaded; when it is
above the limit of every switch profile for one instance, no host accepts the
instance."""),
    option.FloatOpt(
        'default_on_seconds', default=900, min=1, max=31536000,
        unit='seconds', related='default_off_seconds default_egress_kbps',
        help="""
Mean time for which an instance without model and extra specs stays on.

Admission uses the share of time on, on / (on + off). Raise this option to
reserve more capacity for instances without a model. The default follows from
the trace GWA-T-12 "Rnd": there an active instance goes off within 300 seconds
with probability 0.34.

When it is too low, hosts with many new instances are overloaded; when it is
too high, they are left half empty."""),
    option.FloatOpt(
        'default_off_seconds', default=10000, min=1, max=31536000,
        unit='seconds', related='default_on_seconds default_egress_kbps',
        help="""
Mean time for which an instance without model and extra specs stays off.

Raise it to reserve less capacity for instances without a model, lower it to
reserve more. The default follows from the trace GWA-T-12 "Rnd": there an idle
instance starts to send within 300 seconds with probability 0.03. The share of
time on is then 0.08.

When it is too high, hosts with many new instances are overloaded; when it is
too low, they are left half empty."""),
    # Weights
    option.FloatOpt(
        'vswitch_weight_multiplier', default=1.0,
        help="""
Multiplier of the weights of VSwitchWeigher.

The weigher prefers the host that would lose the smallest share of its traffic.
A larger value gives it more influence compared with the other weighers, and 0
switches it off. With a negative value it prefers the fullest host that the
filter admits.

Unit: none; any finite number. Most clouds use 0 to 10.

The aggregate metadata ``vswitch_weight_multiplier`` overrides this option for
the hosts of an aggregate.

When it is negative and VSwitchFilter is not enabled, instances are placed on
the hosts that lose the most traffic."""""),
    # Reading the store
    option.IntOpt(
        'snapshot_refresh_seconds', default=10, min=1, max=86400,
        unit='seconds', related='store_url max_generation_age_seconds',
        help="""
How often a scheduler worker checks the store for a new generation.

A generation is what one pass of vswitch-modeler has written. Lower the option
to use new models sooner. Raise it to reduce the load on the database: each
time, every worker runs one small query in the background and reads the
changes.

When it is longer than the time between two passes of the modeler, the
scheduler uses outdated models."""),
    option.FloatOpt(
        'snapshot_first_wait_seconds', default=5, min=0, max=60,
        unit='seconds', related='store_timeout_seconds degraded_policy '
                                'record_refresh_seconds',
        help="""
Longest time that the first request after a start waits for data from the store
and from Nova's database.

Raise it if the first decisions are important and the store is large (a million
models take some seconds) or Nova has very many instances. With 0, no request
waits. Until the scheduler has read the store, it decides without models. Until
the scheduler has read the database of a cell, it uses the instances that
Nova's host states list for the hosts of this cell.

When it is longer than ``rpc_response_timeout``, the first requests can fail
while the store does not answer."""),
    option.IntOpt(
        'max_generation_age_seconds', default=86400, min=0, max=31536000,
        unit='seconds', related='degraded_policy', help="""
Age of the last generation above which the scheduler treats the store as stale.

vswitch-modeler writes a generation in each pass. ``degraded_policy``
determines what the scheduler does while the store is stale. Lower this option
to stop using models soon after the modeler has stopped. Raise it if the
modeler runs rarely. With 0, the store is never stale.

When it is shorter than the time between two passes of the modeler, the store
is stale between them."""),
    option.StrOpt(
        'degraded_policy', default='last',
        choices=[
            ('last', 'use the data that was last read'),
            ('pass', 'VSwitchFilter lets every host pass and VSwitchWeigher '
             'gives every host the same weight')],
        related='max_generation_age_seconds store_url', help="""
What the scheduler does while the store is stale or cannot be read.

"last" suits clouds whose traffic changes little during an outage. "pass"
leaves the decision to the other filters and weighers. Until the scheduler has
read the store for the first time, all hosts pass. The scheduler logs one line
when this state begins and one line when it ends.

Any other value is refused when the scheduler starts."""),
    # Hosts of instances
    option.FloatOpt(
        'record_refresh_seconds', default=2, min=0.1, max=3600,
        unit='seconds', related='record_full_seconds record_timeout_seconds '
                                'snapshot_first_wait_seconds',
        help="""
How often a scheduler worker reads from Nova's database which instances and
migrations have changed.

Nova's database determines the host on which an instance counts. Lower this
option so that the capacity of a deleted or failed instance is free sooner.
Raise it to reduce the load on the databases of the cells: each time, every
worker runs a few small queries. The worker reads each enabled cell in the
background, and also when a request begins, at most four times a second.

When it is too high, the filter refuses hosts because of instances that were
already deleted or moved. An instance that was just placed counts immediately
in any case."""),
    option.FloatOpt(
        'record_full_seconds', default=300, min=1, max=86400,
        unit='seconds', related='record_refresh_seconds', help="""
Longest time until a scheduler worker reads all instances of a cell again.

Between full readings, a worker finds changes by the time of the last update of
an instance and by the operations that are in progress. A full reading also
finds changes that were written with a wrong time. It consists of small
queries, so that requests are not delayed. Full readings are repeated every 5
seconds. If they would then take more than 4 % of the time, they are repeated
less often, but at least once in this time. Lower this option to find such
changes sooner; raise it to reduce the load on the databases of large cells.

When it is too high, the scheduler finds a change that was written with a wrong
time later."""),
    option.FloatOpt(
        'record_timeout_seconds', default=10, min=0.1, max=3600,
        unit='seconds', related='record_refresh_seconds', help="""
Time after which the log reports that the database of a cell does not answer.

For the hosts of that cell, the worker uses the data that it read last. No
request waits for a reading, and the worker continues to read other cells.

When it is shorter than the database needs to return about a hundred instances,
the log reports cells that have no problem."""),
    option.FloatOpt(
        'claim_patience_seconds', default=0.3, min=0, max=60,
        related='store_url claims_refresh_seconds', help="""
Longest time that a request waits for the store to accept its claim.

Before Nova uses a host, the worker claims the host in the store. Claims are
serialised for all workers with the same store, so that two workers cannot use
the same capacity of a host. If the store does not answer within this time, the
worker decides alone, and does not wait again until the store answers. Raise
this option if the store is slow but two workers must not use the same
capacity. Lower it to shorten the longest delay of a request.

Unit: seconds, 0 to 60. With 0, no request waits, and each worker decides
alone.

When it is shorter than the store needs for a transaction, workers can exceed
the limit of a host. The metric vswitch_scheduler_claim_misses_total and
"vswitch-manage claim list" show claims that were decided alone."""),
    option.FloatOpt(
        'claims_refresh_seconds', default=0.25, min=0.05, max=60,
        unit='seconds', related='claim_patience_seconds '
                                'record_refresh_seconds store_url',
        help="""
How often a scheduler worker reads the claims of other workers.

The worker reads them in the background and when a request begins, so that the
filter judges hosts by them. Claims do not exceed the limit of a host however
rarely they are read: each claim is compared with all others. Lower this option
so that requests less often choose a host which has no room any more. Raise it
to reduce the load on the database: each time, every worker runs one small
query.

When the scheduler has read access to the store but no write access, other
workers do not see its claims, and the scheduler logs a warning."""),
    # Decisions
    option.IntOpt(
        'decisions_kept', default=10000, min=0, max=1000000,
        unit='decisions', related='decisions_age_seconds enforcement', help="""
Number of decisions of all schedulers that the store keeps. The oldest ones are
removed first.

A decision is the result of VSwitchFilter for one instance: how many hosts each
check refused, the refused hosts that came closest to the limits, and the host
that Nova chose. "vswitch-manage decision list" and "vswitch-manage decision
show" print decisions. A thread of each worker writes decisions. No request
waits for this thread or fails because of it. The thread drops decisions that
it cannot write.

A decision contains the uuid of the instance, the ids of the project and of the
request, and the names of the flavor and of hosts. It needs about 5 kB in the
store. With 0, the scheduler records no decision; older decisions stay until
another worker removes them.

When it is too low, decisions are removed before you can look at them, and
"vswitch-manage decision compare" has too few decisions to compare."""),
    option.IntOpt(
        'decisions_age_seconds', default=604800, min=60, max=31536000,
        unit='seconds', related='decisions_kept', help="""
Age above which the store removes a decision.

Lower it where records of the actions of users have to be removed sooner.

When it is too short, "vswitch-manage decision compare" has too few decisions
to compare."""),
    # Metrics
    option.PortOpt(
        'scheduler_metrics_port', default=0, min=0,
        related='scheduler_metrics_ports scheduler_metrics_address '
                'scheduler_metrics_directory',
        help="""
First port on which workers of nova-scheduler serve metrics to Prometheus.

With its first request, each worker opens the first free port from this port
on; it tries ``scheduler_metrics_ports`` ports. With 0, no port is opened. The
worker serves plain HTTP without authentication; the metrics contain numbers
only.

Format: port number, 0 to 65535.

When the ports are all in use, the worker logs a warning and scheduling
continues."""),
    option.IntOpt(
        'scheduler_metrics_ports', default=32, min=1, max=1000,
        unit='ports', related='scheduler_metrics_port', help="""
Number of ports for the metrics of workers of nova-scheduler, one for each
worker.

Set it at least to the number of workers on this machine.

When it is less than the number of workers, some workers serve no metrics and
log a warning."""),
    option.StrOpt(
        'scheduler_metrics_address', default='127.0.0.1',
        related='scheduler_metrics_port', help="""
Address on which workers of nova-scheduler serve metrics to Prometheus.

Format: an address of this machine; 0.0.0.0 or :: for all of them.

When it is not an address of this machine, the worker logs a warning and
scheduling continues."""),
    option.StrOpt(
        'scheduler_metrics_directory',
        related='scheduler_metrics_port', help="""
Directory into which workers of nova-scheduler write metrics for Prometheus.

The textfile collector of node_exporter can read the files. Each worker writes
a file ``vswitch_scheduler_PID.prom`` every 15 seconds and removes the file
when the worker ends. It also removes files of other workers that are older
than ten minutes. If the option is not set, no file is written.

Format: path of a directory that nova-scheduler may write to.

When the workers cannot write to it, each worker logs a warning and scheduling
continues."""),
]
