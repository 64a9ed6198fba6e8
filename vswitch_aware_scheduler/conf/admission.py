# SPDX-License-Identifier: Apache-2.0
"""Options by which scheduler, modeler and commands judge hosts alike."""

from vswitch_aware_scheduler.conf import option

__all__ = ['OPTS']

OPTS = [
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
    option.BoolOpt(
        'error_budgets', default=True,
        related='overload_probability prediction_margin enforcement '
                'vswitch_weight_multiplier',
        help="""
Whether vswitch-modeler computes an error budget of each host and uplink, and
whether nova-scheduler places instances by these budgets.

An error budget is the time for which the host may still be overloaded. The
budget grows while the host has instances with measured traffic. It shrinks
while several instances together overload the host. A host with a negative
budget is in debt, until the budget is positive again or has not shrunk for
three days. If another host passes, VSwitchFilter refuses a host in debt, or
behind an uplink in debt, to projects whose instances made the overload of the
last three days, and to others if the host would exceed
``overload_probability``. VSwitchWeigher ranks hosts in debt last. The recorded
decision names the check "error budget". A host whose ``enforcement`` is
"observe" passes, and the filter records the refusal. "vswitch-manage fleet"
and the report show the remaining budget. To compute budgets, vswitch-modeler
reads the newest samples of telemetry a second time in each pass. When the
option is false, stored budgets stay unchanged and change no decision.

It needs an inventory: auth_type or path in the group [vswitch_inventory].
Only hosts with a switch profile and the admission policy "probability" have
budgets. A budget that was not updated for a day changes no decision.

When it is not the same for vswitch-modeler and every nova-scheduler, the
commands explain decisions that the scheduler does not make, and a warning is
logged."""),
]
