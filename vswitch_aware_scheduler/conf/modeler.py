# SPDX-License-Identifier: Apache-2.0
"""Options of vswitch-modeler."""

from vswitch_aware_scheduler.conf import option

__all__ = ['OPTS']

OPTS = [
    option.IntOpt(
        'min_samples', default=24, min=2, max=1000000,
        unit='samples', related='unknown_instance_policy default_egress_kbps',
        help="""
Number of samples that an instance needs before it gets a traffic model.

An instance without a model counts with a prior (the expected traffic of new
instances) or with the default model. Raise this option to use only long
histories. Lower it so that new instances get a model sooner, from fewer
samples. With one sample in 300 seconds the default takes two hours.

When it is too low, models predict future traffic badly. When it is more than
telemetry keeps for an instance, no instance gets a model."""),
    option.StrOpt(
        'telemetry_driver', default='gnocchi',
        related='telemetry_path', help="""
Telemetry driver from which vswitch-modeler reads traffic.

Format: gnocchi, prometheus, ceilometer or file, or the name of another driver
that is registered under the entry point vswitch_aware_scheduler.telemetry.
The first three have a group of options each; "file" reads
``telemetry_path``.

When it is wrong, vswitch-modeler lists the available drivers and does not
start. When the source of the driver is not configured (neither
``endpoint_override`` nor ``auth_type`` in its group, or no ``telemetry_path``
for "file"), vswitch-modeler logs this and waits until it gets SIGHUP and the
configuration names a source."""),
    option.StrOpt(
        'telemetry_path',
        related='telemetry_driver', help="""
File or folder that the telemetry driver "file" reads.

The other drivers ignore it.

Format: path of a CSV file, of an .npz file or of a folder of GWA-T-12 files.
The modeler reads it again in every pass, and it may grow.

When it cannot be read, the pass fails and logs the reason, and the models stay
unchanged."""),
    option.IntOpt(
        'modeler_interval_seconds', default=300, min=10, max=86400,
        unit='seconds', related='max_generation_age_seconds '
                                'snapshot_refresh_seconds',
        help="""
Time from the start of one pass of vswitch-modeler to the start of the next.

In a pass, vswitch-modeler reads new samples and updates the models. Lower this
option to use new measurements sooner. Raise it to query telemetry less often.
No samples are lost, because each pass reads all samples since the previous
pass. A value below the sampling period of telemetry has no benefit.

When a pass takes longer than this time, the modeler logs the duration and
begins the next pass immediately. When the value is above
``max_generation_age_seconds``, schedulers treat the store as stale between two
passes (see ``degraded_policy``)."""),
    option.FloatOpt(
        'modeler_half_life_days', default=30, min=0, max=3650,
        unit='days', related='min_samples', help="""
Age at which a sample counts half as much as a new one.

Lower it so that models follow changed traffic sooner. Raise it so that models
keep rare peaks for longer. A model keeps a peak that occurred in one sample
for three half lives (90 days by default), and a peak that occurred in n
samples for 3 + log2(n) half lives. Samples that are read in one pass are
weighted in steps of whole half lives. With 0, all samples keep the same weight
for ever, including wrong samples.

When it is so short that the weights of all samples add up to less than
``min_samples``, instances get no new models."""),
    option.FloatOpt(
        'modeler_forget_days', default=30, min=0, max=3650,
        unit='days', related='unknown_instance_policy', help="""
How long the store keeps the model of an instance that has no new samples or
that telemetry reports as ended.

Raise it where telemetry has long gaps for some instances. Lower it to keep the
store small. The time is measured from the last sample of the instance to the
newest sample of all instances, so an outage of telemetry removes no models.
With 0, models are kept for ever.

When it is too short, an instance that was shelved or paused has no model when
it is started again."""),
    option.FloatOpt(
        'modeler_clock_seconds', default=60, min=0, max=86400,
        unit='seconds', help="""
Largest difference between the clock of vswitch-modeler and the clocks of the
database and of telemetry.

While the difference is larger, each pass logs the difference and changes no
model. The modeler reads the time of a MariaDB or PostgreSQL database with a
query, and the time of telemetry from the Date header of its HTTP responses.
SQLite and files have no clock. Raise the option if the clocks cannot be
synchronised. With 0, the clocks are not compared.

When it is too low, a slow response looks like a wrong clock and the modeler
changes no model. When it is too high, a wrong clock can delay samples and
shift daily statistics."""),
    option.StrOpt(
        'modeler_coordination_url', secret=True,
        related='store_url modeler_interval_seconds', help="""
Backend of tooz through which several vswitch-modelers divide the instances
among them.

Leave it unset for a single modeler. Otherwise set the same backend for all
modelers of one store. Each modeler then computes the models of its share of
the instances. When a modeler ends, the others take over its share. Several
modelers need a store on MariaDB or PostgreSQL, because an SQLite file permits
only one writer at a time.

Format: a URL such as redis://:password@host:6379, etcd3+http://host:2379,
zookeeper://host:2181, or file:///var/lib/vswitch_aware_scheduler/modelers for
several modelers on one machine. The URL may contain a password and is never
logged. If a modeler is killed, the others take over its share after the
timeout of the backend: 30 seconds for Redis, or the value of an option such as
?timeout=15 in the URL.

When the backend does not answer, a modeler logs this and keeps its share; a
modeler that has just started computes no models until the backend answers.
When modelers have different backends, each of them reads the telemetry of all
instances. No sample counts twice, but most of this work is wasted."""),
    option.PortOpt(
        'modeler_metrics_port', default=0, min=0,
        related='modeler_metrics_address', help="""
Port on which vswitch-modeler serves metrics to Prometheus.

With 0, no port is opened. The modeler serves plain HTTP without
authentication; the metrics contain numbers only.

Format: port number, 0 to 65535.

When the port is in use, the modeler logs a warning, continues to work, and
tries the port again after each pass."""),
    option.StrOpt(
        'modeler_metrics_address', default='127.0.0.1',
        related='modeler_metrics_port', help="""
Address on which vswitch-modeler serves metrics to Prometheus.

Format: an address of this machine; 0.0.0.0 or :: for all of them.

When it is not an address of this machine, the modeler logs a warning and
continues to work."""),
]
