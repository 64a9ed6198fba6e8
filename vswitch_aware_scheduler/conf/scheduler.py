# SPDX-License-Identifier: Apache-2.0
"""Options of VSwitchFilter and VSwitchWeigher."""

from vswitch_aware_scheduler.conf import option

__all__ = ['OPTS']

OPTS = [
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
