# SPDX-License-Identifier: Apache-2.0
"""Options of VSwitchFilter and VSwitchWeigher."""

from oslo_config import cfg

__all__ = ['OPTS']

_BY_RECORD = ("Nova's record decides which instance is where; claims only "
              'bridge the seconds until it shows a placement.')

OPTS = [
    # What a host can carry
    cfg.StrOpt(
        'switch_profiles_file',
        help="""
YAML file of the operator's own switch profiles.

A profile there takes the place of a built-in one of the same name. Without a
file only the built-in profiles exist ("vswitch-manage profile list").

Format: path of a file that the scheduler may read. "vswitch-manage profile
validate FILE" checks one.

When the file cannot be read or is not valid, the built-in profiles alone are
used, and the log says what is wrong. It is read at the start of the
scheduler.

Related options: ``default_switch_profile``.
"""),
    cfg.StrOpt(
        'default_switch_profile',
        help="""
Switch profile of a host that has none by any other rule.

The rules are, first that holds: aggregate metadata ``vswitch:profile``, the
store's host profiles, this option. Without it, ``unknown_host_policy``
decides on such hosts.

Format: name of a built-in profile or of one in ``switch_profiles_file``.

When there is no such profile, it is as if none were set, and the log says so.

Related options: ``switch_profiles_file``, ``unknown_host_policy``.
"""),
    cfg.StrOpt(
        'unknown_host_policy', default='pass',
        choices=[
            ('pass', 'VSwitchFilter lets the host pass without a check'),
            ('reject', 'VSwitchFilter refuses the host')],
        help="""
What happens to a host that has no switch profile by any rule.

"pass" lets profiles be introduced host by host. "reject" makes sure that
every host that is used has been described. A host that is only observed
(``enforcement``) passes in either case.

When it is "reject" and no host has a profile, every request fails with "No
valid host".

Related options: ``default_switch_profile``, ``enforcement``.
"""),
    # Who may enter
    cfg.StrOpt(
        'enforcement', default='enforce',
        choices=[
            ('enforce', 'VSwitchFilter refuses a host that cannot carry the '
             'instance'),
            ('observe', 'VSwitchFilter judges every host, records what it '
             'would refuse, and passes the host')],
        help="""
Whether VSwitchFilter refuses hosts, or only records what it would refuse.

With "observe" no request fails because of VSwitchFilter: not for the limits
of a switch or an uplink, not for ``unknown_host_policy``, and not for what
Placement has left in the strict mode, of which instances on observed hosts
claim nothing. Decisions are made and recorded as with "enforce":
"vswitch-manage decision list" prints them. VSwitchWeigher still ranks hosts;
set ``vswitch_weight_multiplier`` to 0 to switch it off.

An aggregate can choose otherwise with metadata ``vswitch:enforcement``. If
aggregates of a host differ, the host is observed.

Any other value is refused when the scheduler starts.

Related options: ``decisions_kept``, ``vswitch_weight_multiplier``,
``unknown_host_policy``, ``strict``.
"""),
    cfg.BoolOpt(
        'refuse_hosts_in_debt', default=False,
        help="""
Whether hosts that have overspent their error budget take no new instance.

vswitch-modeler keeps the budgets from measured traffic (``error_budgets``).
With this option VSwitchFilter refuses a host that is in debt, or behind an
uplink that is, for the check "error budget", until the host has earned what it
owes; an instance that is there already may be resized there. A host that is
only observed (``enforcement``) passes, and the refusal is recorded.
VSwitchWeigher prefers hosts that have at least what a day earns: one that has
less loses up to one tenth of the weight. Without the option budgets change no
decision.

A budget that was not kept for a day refuses nothing.

When it is not the same for vswitch-modeler and every nova-scheduler, commands
explain other decisions than those of the scheduler, and the log says so.

Related options: ``error_budgets``, ``enforcement``,
``vswitch_weight_multiplier``.
"""),
    cfg.StrOpt(
        'admission_policy', default='probability',
        choices=[
            ('average', 'peak of the instance against the switch type, then '
             'the sum of the average rates against saturation'),
            ('probability', 'hard limits as before, then the probability '
             'that the sum of the rates exceeds saturation against '
             'overload_probability')],
        help="""
How VSwitchFilter decides whether a host can take one more instance.

"average" fills a host until the averages reach saturation: it is then
overloaded for a large part of the time. "probability" keeps the share of time
that the host is overloaded below ``overload_probability``, at the price of
more hosts.

An aggregate can choose otherwise with metadata ``vswitch:admission_policy``.

Any other value is refused when the scheduler starts.

Related options: ``overload_probability``.
"""),
    cfg.FloatOpt(
        'overload_probability', default=0.01, min=0, max=1,
        help="""
Largest share of time that the traffic of a host may exceed saturation.

Raise it to pack more instances on a host; lower it to lose less traffic. 0
books the peak rate of every instance, 1 admits whatever the hard limits do.

Unit: a probability, 0 to 1.

An aggregate can choose otherwise with metadata
``vswitch:overload_probability``.

When it is too high, switches drop traffic; when it is too low, requests fail
with "No valid host" while switches are idle.

Related options: ``admission_policy``, ``feedback``.
"""),
    cfg.BoolOpt(
        'feedback', default=True,
        help="""
Whether limits are corrected by what came of earlier decisions.

Once a day vswitch-modeler puts instances on imagined hosts, as the scheduler
would, and follows how often those are overloaded in the days that come. The
scheduler multiplies ``overload_probability`` by what would have kept it: more
than one where models expect too much, less where they expect too little. It
is one until there is some evidence, and again when there has been none for
three days. Without it the limit is compared with what models expect.

The modeler makes trials and the scheduler goes by them: set it alike for
both. Limits of the policy "average" and of uplinks are never corrected.

When it is set and traffic grows at once, hosts that were filled by larger
limits are overloaded more; when it is not, hosts are left half empty where
models expect too much.

Related options: ``overload_probability``, ``feedback_max``.
"""),
    cfg.FloatOpt(
        'feedback_max', default=8, min=1, max=8,
        help="""
Largest number that ``overload_probability`` is multiplied by.

Lower it to save fewer hosts where models expect too much, and to be surprised
less when traffic grows again. With 1 limits are only ever made smaller, down
to one half.

Unit: none; 1 to 8.

When it is too high, hosts are overloaded for longer after traffic has begun
to grow; when it is too low, they are left half empty where models expect too
much.

Related options: ``feedback``.
"""),
    # Instances without a model
    cfg.StrOpt(
        'unknown_instance_policy', default='default',
        choices=[
            ('default', 'an instance on a host counts with the default '
             'model'),
            ('ignore', 'an instance on a host counts as if it had no '
             'traffic')],
        help="""
How instances on a host count that have no traffic model.

"default" is cautious: a host full of unknown instances fills up. "ignore"
lets only what is known count, which suits a cloud where models arrive soon or
most instances have no traffic. The requested instance itself always counts,
by the default model when nothing better is known.

When it is "ignore" and few instances have models, hosts are overloaded; when
it is "default" and the default model is far too large, requests fail with "No
valid host".

Related options: ``default_egress_kbps``, ``default_ingress_kbps``,
``default_on_seconds``, ``default_off_seconds``.
"""),
    cfg.IntOpt(
        'default_egress_kbps', default=4000, min=0, max=8000000000,
        help="""
Rate that an instance without model and extra specs sends at while it is on.

Raise it to keep more room for unknown instances, lower it to keep less. The
default, with ``default_ingress_kbps``, is the median bandwidth while active
of the 200 of 500 virtual machines of the public trace GWA-T-12 "Rnd" that
carry noticeable traffic: 7 to 8 Mbit/s, half of it in each direction.

Unit: kbit/s, 0 to 8000000000.

When it is too low, hosts with many new instances are overloaded; when it is
above what a switch lets one instance have, the instance fits nowhere.

Related options: ``default_ingress_kbps``, ``default_on_seconds``,
``default_off_seconds``, ``unknown_instance_policy``.
"""),
    cfg.IntOpt(
        'default_ingress_kbps', default=4000, min=0, max=8000000000,
        help="""
Rate that an instance without model and extra specs receives at while it is
on.

Raise it to keep more room for unknown instances, lower it to keep less.

Unit: kbit/s, 0 to 8000000000.

When it is too low, hosts with many new instances are overloaded; when it is
above what a switch lets one instance have, the instance fits nowhere.

Related options: ``default_egress_kbps``, ``default_on_seconds``,
``default_off_seconds``, ``unknown_instance_policy``.
"""),
    cfg.FloatOpt(
        'default_on_seconds', default=900, min=1, max=31536000,
        help="""
Mean time for which an instance without model and extra specs stays on.

What counts for admission is the share of time on, on / (on + off): raise it
to keep more room for unknown instances. The default is what GWA-T-12 "Rnd"
shows: a probability of 0.34 to go off within 300 seconds.

Unit: seconds, 1 to 31536000.

When it is too low, hosts with many new instances are overloaded; when it is
too high, they are left half empty.

Related options: ``default_off_seconds``, ``default_egress_kbps``.
"""),
    cfg.FloatOpt(
        'default_off_seconds', default=10000, min=1, max=31536000,
        help="""
Mean time for which an instance without model and extra specs stays off.

Raise it to keep less room for unknown instances, lower it to keep more. The
default is what GWA-T-12 "Rnd" shows: a probability of 0.03 to go on within
300 seconds, and so a share of time on of 0.08.

Unit: seconds, 1 to 31536000.

When it is too high, hosts with many new instances are overloaded; when it is
too low, they are left half empty.

Related options: ``default_on_seconds``, ``default_egress_kbps``.
"""),
    # Weights
    cfg.FloatOpt(
        'vswitch_weight_multiplier', default=1.0,
        help="""
Multiplier of the weights of VSwitchWeigher.

The weigher prefers the host that would lose the smallest share of its
traffic. A larger value lets it count for more against the other weighers, 0
switches it off, and a negative one packs: it prefers the fullest host that
the filter admits.

Unit: none; any number, 0 to 10 in most clouds.

An aggregate can choose otherwise with metadata ``vswitch_weight_multiplier``.

When it is negative and VSwitchFilter is not enabled, instances gather where
traffic is lost.

Related options: the other ``*_weight_multiplier`` of
``[filter_scheduler]``.
"""),
    # The view of the store
    cfg.IntOpt(
        'snapshot_refresh_seconds', default=10, min=1, max=86400,
        help="""
How often a scheduler worker looks for a new generation of the store.

Lower it to use new models sooner. Raise it to spare the database: every
worker asks one small question each time, and reads what has changed. It
happens in the background.

Unit: seconds, 1 to 86400.

When it is longer than the time between two passes of the modeler, models are
used that are older than they need to be.

Related options: ``store_url``, ``max_generation_age_seconds``.
"""),
    cfg.FloatOpt(
        'snapshot_first_wait_seconds', default=5, min=0, max=60,
        help="""
Longest time that the first request after a start waits for the snapshot and
for the first reading of Nova's record.

Raise it where the store is large (a million models take some seconds) or
Nova has very many instances, and the first decisions matter. With 0 no request
ever waits: those that come before the first snapshot are decided without
models, and those that come before the first reading of a cell go by what
Nova lists for its hosts.

Unit: seconds, 0 to 60.

When it is longer than ``rpc_response_timeout``, the first requests can fail
while the store does not answer.

Related options: ``store_timeout_seconds``, ``degraded_policy``,
``record_refresh_seconds``.
"""),
    cfg.IntOpt(
        'max_generation_age_seconds', default=86400, min=0, max=31536000,
        help="""
Age of the last generation above which the store counts as stale.

Lower it to stop soon relying on models that nobody renews. Raise it where the
modeler runs rarely. With 0 the store is never stale.

Unit: seconds, 0 to 31536000.

When it is shorter than the time between two passes of the modeler, the store
is stale between them.

Related options: ``degraded_policy``.
"""),
    cfg.StrOpt(
        'degraded_policy', default='last',
        choices=[
            ('last', 'keep deciding on the last snapshot that was read'),
            ('pass', 'VSwitchFilter lets every host pass and VSwitchWeigher '
             'gives every host the same weight')],
        help="""
What to do while the store is stale or cannot be read.

"last" is right while traffic changes slowly compared with the outage. "pass"
leaves the decision to the other filters and weighers. Before the first
snapshot was read there is none to keep, and hosts pass. The change to this
state and back is logged, once each.

Any other value is refused when the scheduler starts.

Related options: ``max_generation_age_seconds``, ``store_url``.
"""),
    # Who is where
    cfg.FloatOpt(
        'record_refresh_seconds', default=2, min=0.1, max=3600,
        help="""
How often a scheduler worker reads from Nova's database which instances and
migrations have changed.

The record of Nova decides which instance counts on which host. Lower it so
that a deleted or failed instance makes room sooner; raise it to spare the
databases of the cells, which each worker asks some small questions each time.
It happens in the background, for each enabled cell on its own, and besides
when a request begins, at most four times a second.

Unit: seconds, 0.1 to 3600.

When it is too high, hosts are refused for longer than they are full; an
instance that was just placed counts at once in any case.

Related options: ``record_full_seconds``, ``record_timeout_seconds``,
``snapshot_first_wait_seconds``.
"""),
    cfg.FloatOpt(
        'record_full_seconds', default=300, min=1, max=86400,
        help="""
How often a scheduler worker reads all instances of a cell.

Changes are found by the time of their last update and by the number of
instances on each host. A full reading finds the rest: what was written with a
wrong time and is on the same host as before. It happens in small pieces, so
that requests are not delayed. Lower it to find such changes sooner; raise it
to spare the databases of large cells.

Unit: seconds, 1 to 86400.

When it is too high, a change that was written with a wrong time counts late.

Related options: ``record_refresh_seconds``.
"""),
    cfg.FloatOpt(
        'record_timeout_seconds', default=10, min=0.1, max=3600,
        help="""
Time after which a cell that does not answer is reported.

The hosts of that cell go by what was read before, and one line of the log
says so. No request waits for a reading, and other cells are read as ever.

Unit: seconds, 0.1 to 3600.

When it is shorter than the database takes to answer about a hundred
instances, the log reports cells that are well.

Related options: ``record_refresh_seconds``.
"""),
    cfg.FloatOpt(
        'claims_broadcast_seconds', default=0.25, min=0, max=60,
        help="""
How often a scheduler worker reads what other workers have just placed.

Placements are written to the store at once, and read by the others in the
background. Lower it so that fewer requests at the same moment choose the same
room; raise it to spare the database, of which each worker asks one small
question each time. With 0 placements are not shared: a worker learns of
others' when Nova's record shows them.

Unit: seconds, 0 to 60; 0 or at least 0.05 is sensible.

When the scheduler may read the store and not write to it, others do not learn
of its placements, and the log says so.

Related options: ``record_refresh_seconds``, ``store_url``, ``strict``.
"""),
    # Decisions
    cfg.IntOpt(
        'decisions_kept', default=10000, min=0, max=1000000,
        help="""
How many decisions of all schedulers the store keeps, the newest ones.

A decision is how VSwitchFilter judged the hosts for one instance: how many
hosts each check refused, the hosts that were nearest to fitting, and the host
that Nova took. "vswitch-manage decision list" and "vswitch-manage decision
show" print decisions. A thread of each worker writes them: no request waits
for it or fails because of it, and decisions that cannot be written are
dropped.

A decision holds the uuid of the instance, the ids of the project and of the
request, the names of the flavor and of hosts. It takes some 5 kB of the
store. With 0 no decision is recorded; decisions of before stay until other
workers remove them.

Unit: decisions, 0 to 1000000.

When it is too low, decisions are gone before anybody looks at them, and
"vswitch-manage decision compare" has too few to tell.

Related options: ``decisions_age_seconds``, ``enforcement``.
"""),
    cfg.IntOpt(
        'decisions_age_seconds', default=604800, min=60, max=31536000,
        help="""
Age above which the store removes a decision.

Lower it where the records of what users started have to be removed sooner.

Unit: seconds, 60 to 31536000.

When it is too short, "vswitch-manage decision compare" has too few decisions
to tell.

Related options: ``decisions_kept``.
"""),
    # Numbers for monitoring
    cfg.PortOpt(
        'scheduler_metrics_port', default=0, min=0,
        help="""
First port at which workers of nova-scheduler answer Prometheus.

Each worker takes the first free one of ``scheduler_metrics_ports`` ports from
this one on, with its first request. With 0 nothing listens. It is plain HTTP
without authentication, and exports numbers only.

Format: port number, 0 to 65535.

When it is in use already, and so are the other ports, the log says so and
scheduling goes on.

Related options: ``scheduler_metrics_ports``, ``scheduler_metrics_address``,
``scheduler_metrics_directory``.
"""),
    cfg.IntOpt(
        'scheduler_metrics_ports', default=32, min=1, max=1000,
        help="""
How many ports workers of nova-scheduler may take, one each.

Set it to the number of workers of the machine or more.

Unit: ports, 1 to 1000.

When it is less than the number of workers, some workers answer nobody, and
the log says so.

Related options: ``scheduler_metrics_port``.
"""),
    cfg.StrOpt(
        'scheduler_metrics_address', default='127.0.0.1',
        help="""
Address at which workers of nova-scheduler answer Prometheus.

Format: an address of this machine; 0.0.0.0 or :: for all of them.

When it is none of this machine, the log says so and scheduling goes on.

Related options: ``scheduler_metrics_port``.
"""),
    cfg.StrOpt(
        'scheduler_metrics_directory',
        help="""
Directory into which workers of nova-scheduler write numbers for Prometheus.

It is for the textfile collector of node_exporter. Each worker writes a file
``vswitch_scheduler_PID.prom`` every 15 seconds, removes it when it ends, and
removes files of workers that have not written theirs for ten minutes. Without
it no file is written.

Format: path of a directory that nova-scheduler may write to.

When it cannot be written to, the log says so and scheduling goes on.

Related options: ``scheduler_metrics_port``.
"""),
    # Of the release before
    cfg.IntOpt(
        'claim_expiry_seconds', default=600, min=1, max=86400,
        deprecated_for_removal=True, deprecated_reason=_BY_RECORD,
        help="""
Has no effect any more.

A claim ends when Nova's record shows what came of the placement, however long
that takes.

When it is set, the log says that it is deprecated.

Unit: seconds, 1 to 86400.

Related options: ``record_refresh_seconds``.
"""),
    cfg.FloatOpt(
        'claims_refresh_seconds', default=0.25, min=0, max=60,
        deprecated_for_removal=True, deprecated_reason=_BY_RECORD,
        help="""
Has no effect any more.

``claims_broadcast_seconds`` takes its place.

When it is set, the log says that it is deprecated.

Unit: seconds, 0 to 60.

Related options: ``claims_broadcast_seconds``.
"""),
    cfg.FloatOpt(
        'claims_wait_seconds', default=0, min=0, max=10,
        deprecated_for_removal=True, deprecated_reason=_BY_RECORD,
        help="""
Has no effect any more.

No request waits for other workers. Where two requests must never take the
same room, set ``strict``.

When it is set, the log says that it is deprecated.

Unit: seconds, 0 to 10.

Related options: ``strict``.
"""),
]
