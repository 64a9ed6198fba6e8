# SPDX-License-Identifier: Apache-2.0
"""Options of the telemetry drivers, one group for each driver of a service."""

import typing

from oslo_config import cfg

from vswitch_aware_scheduler.conf import access
from vswitch_aware_scheduler.conf import option

__all__ = ['GROUPS', 'driver_options', 'register_opts']


def _common(service, example, period_seconds, period_help, settle):
    """Return the options that all groups have.

    :param service: name of the service, for the help texts
    :param example: URL in the sample configuration
    :param period_seconds: default of the option period_seconds
    :param period_help: advice for this option, one paragraph
    :param settle: default of settle_seconds
    """
    return access.options(service, example) + [
        option.IntOpt(
            'period_seconds', default=period_seconds, min=1, max=86400,
            unit='seconds', related='settle_seconds', help=f"""
Time between two samples that the driver delivers.

{period_help}

When it is shorter than the polling interval of the counters, most periods have
no sample and the driver treats them as gaps."""),
        option.IntOpt(
            'settle_seconds', default=settle, min=0, max=86400,
            unit='seconds', related='period_seconds', help="""
Time that the driver waits after the end of a period before it reads the
samples of this period.

Raise it if measurements arrive late. Lower it to use new samples sooner.

When it is too low, measurements that arrive later are lost: the driver does
not read a period twice."""),
        option.IntOpt(
            'max_age_seconds', default=30 * 86400, min=3600, max=31536000,
            unit='seconds', related='period_seconds', help="""
Largest age of a sample. The driver ignores older samples.

Raise it to learn from a longer history, if the service keeps older samples.
Lower it to learn only from recent traffic, and to read less in the first pass.

When it is too low, instances have too few samples for a model."""),
    ]


_GNOCCHI = _common(
    'Gnocchi', 'https://controller:8041', 300,
    'The driver reads this granularity of Gnocchi; the archive policies of '
    'the metrics\nmust have it. Raise it to read less data. Lower it to '
    'detect shorter bursts of\ntraffic.', 120) + [
    option.StrOpt(
        'aggregation', default='auto',
        choices=[('auto', 'for each interface, the first of the following '
                          'ones that its archive policies have'),
                 ('rate:mean', 'mean increase of the counter between two '
                               'measurements'),
                 ('last', 'last value of the counter in each period'),
                 ('max', 'largest value of the counter in each period'),
                 ('mean', 'mean value of the counter in each period'),
                 ('min', 'smallest value of the counter in each period')],
        related='interval_seconds', help="""
Aggregation of Gnocchi from which the driver computes the rates of an
interface.

``rate:mean`` needs the right polling interval, see ``interval_seconds``. With
the other aggregations, the driver computes rates from the difference of the
values of two periods. It then does not need the polling interval and detects
every reset of a counter.

Any other value is refused when the command starts."""),
    option.FloatOpt(
        'interval_seconds', min=1, max=86400,
        unit='seconds', related='aggregation period_seconds', help="""
Time between two measurements of a counter: the polling interval of Ceilometer.
The driver divides ``rate:mean`` by it.

Without it, the driver compares ``rate:mean`` with the values of the counter,
if the archive policy has both. Otherwise it uses ``period_seconds``, which is
right if each period has one measurement.

When it is wrong, all rates are wrong by the same factor. When it is longer
than ``period_seconds``, the driver reads the counter instead of ``rate:mean``.
"""),
    option.ListOpt(
        'trusted_creators',
        related='auth_type', help="""
Creators whose resources are read.

With the default policy of Gnocchi, every user of the cloud may create
resources, even for instances of other users. The driver ignores the resources
of creators that are not in this list, and logs each such creator once.

If the list is not set, the driver reads the resources that were created in its
own project. If Ceilometer and the driver both use the service project, the
driver reads the resources of Ceilometer. With basic authentication the driver
reads the resources of its own user, and without ``auth_type`` all resources.

Format: a list of ids of projects, ids of users or ``user:project``, separated
by commas; with basic authentication the names of users.

When it is wrong, no instance is found."""),
]

#: {last word of the name of an option: format of its value}
_NAME_FORMATS = {
    'query': 'a selector of PromQL such as name or name{label="value"}',
    'label': 'the name of a label',
    'labels': 'names of labels, separated by commas'}

#: {option of a name of an exporter: (what it is, what happens if wrong)}
_NAMES = {
    'egress_query': (
        'Selector of the series of bytes that instances sent.',
        'no instance is found'),
    'ingress_query': (
        'Selector of the series of bytes that instances received.',
        'instances have no samples'),
    'egress_packets_query': (
        'Selector of the series of packets that instances sent. If this '
        'option and\n``ingress_packets_query`` are empty, the driver reads no '
        'packet rates.', 'instances have no packet rates'),
    'ingress_packets_query': (
        'Selector of the series of packets that instances received.',
        'instances have no packet rates'),
    'identity_query': (
        'Selector of the series of metadata with the uuid of the instance, '
        'for exporters\nwhose counters do not have the uuid.',
        'no instance is found'),
    'select_label': (
        'Label whose values the driver lists in a query to select many '
        'series.', 'no sample is found'),
    'instance_label': (
        'Label that holds the uuid of the instance, possibly within other '
        'text.', 'no instance is found'),
    'interface_labels': (
        'Labels that identify an interface of an instance.',
        'all interfaces of an instance are read as one interface'),
    'host_labels': (
        'Labels that identify the host of an instance; they change with a '
        'migration.', 'migrations look like resets of a\ncounter, or are not '
        'detected'),
    'identity_labels': (
        'Labels that connect the series of ``identity_query`` with the '
        'counters.', 'no instance is found')}

_PROMETHEUS = _common(
    'Prometheus or Aetos', 'https://controller:9090', 300,
    'Set it to the polling interval of the counters, or a multiple of it. '
    'Ceilometer\npolls every 300 seconds by default, regardless of how often '
    'Prometheus scrapes the\nresult.', 60) + [
    option.StrOpt(
        'exporter',
        choices=[('ceilometer', 'the exporter of Ceilometer, and sg-core'),
                 ('ceilometer-pushgateway', 'publisher prometheus:// of '
                                            'Ceilometer, with a Pushgateway'),
                 ('libvirt-inovex', 'prometheus-libvirt-exporter of inovex'),
                 ('libvirt-tinkoff', 'libvirt-exporter of Tinkoff'),
                 ('libvirt-zhangjianweibj', 'prometheus-libvirt-exporter of '
                                            'zhangjianweibj'),
                 ('libvirt-kumina', 'libvirt_exporter of Kumina with the '
                                    'label uuid'),
                 ('libvirtd-vexxhost', 'libvirtd_exporter of VEXXHOST')],
        related='egress_query instance_label identity_query', help="""
Exporter that provides the counters of the interfaces of instances.

The driver uses the metrics and labels of this exporter. Each of these names
also has an option of its own, which has precedence.

Without it, the driver uses the exporter of which Prometheus has the most
instances. "vswitch-manage telemetry check" prints the exporters that were
found.

Any other value is refused when the command starts. When the cloud uses another
exporter, no instance is found."""),
    option.DictOpt(
        'headers', secret=True,
        related='token_file auth_type', help="""
Headers of every request, such as the tenant of a server with several tenants.

Format: name:value, separated by commas, such as X-Scope-OrgID:cloud.

When it is wrong, the server refuses requests, or has no instance."""),
    option.StrOpt(
        'token_file',
        related='headers auth_type', help="""
File with a token, which the driver sends as ``Authorization: Bearer``.

The driver reads the file in each pass, so that the token may be replaced.

When it is wrong, the driver fails with the reason."""),
    option.FloatOpt(
        'update_interval_seconds', min=0, max=86400,
        unit='seconds', related='period_seconds', help="""
Interval at which the exporter updates its counters, for example the polling
interval of Ceilometer. The driver computes no rate over a shorter time.

Without it, the driver derives the interval from the counters of all instances.
This is impossible if no instance has steady traffic and the exporter updates
its counters more often than Prometheus scrapes them, but less often than every
10 seconds. Set the option in this case. 0 means that the counters are current
at each scrape.

When it is too short, samples contain peaks that did not occur. When it is too
long, short peaks are averaged, and samples are delivered later."""),
    option.DictOpt(
        'host_names',
        related='host_labels', help="""
Name in Nova of each host whose label in Prometheus differs from this name. The
label is the last one of ``host_labels``.

If there is an inventory, the driver uses samples of an instance only if they
come from the host on which Nova has the instance. The driver removes the port
from the label and compares the rest with the names of Nova's hosts, and with
the part of these names before the first dot. List the hosts here whose label
matches no name, such as hosts that are scraped by their address. Samples with
a label that matches no host of Nova are used only if no other series of the
instance has the right host.

Format: value:host, separated by commas, the value without a port.

When it is wrong, instances on that host have no samples."""),
] + [
    option.StrOpt(
        name, related='exporter', help=f"""
{content}

Without it the name that belongs to the exporter is used.

Format: {_NAME_FORMATS[name.rpartition('_')[2]]}.

When it is wrong, {wrong}.""") for name, (content, wrong) in _NAMES.items()]

_CEILOMETER = _common(
    'the Ceilometer v2 API', 'https://controller:8777', 600,
    'Set it to the polling interval of Ceilometer, or a multiple of it.',
    120)

_HELP = """
Options of the telemetry driver "{0}", which reads traffic from {1}. auth_type
and the options of this plugin of keystoneauth1 set how the driver
authenticates; without auth_type it does not authenticate.
"""

#: {name of a driver: (group, its title, its help, its options)}
GROUPS = {
    name: (f'vswitch_{name}', f'Telemetry from {title}',
           _HELP.format(name, title), options)
    for name, title, options in [
        ('gnocchi', 'Gnocchi', _GNOCCHI),
        ('prometheus', 'Prometheus', _PROMETHEUS),
        ('ceilometer', 'the Ceilometer v2 API', _CEILOMETER)]}

#: Options of a driver that are arguments of its access.
_OF_ACCESS = ('headers', 'token_file')


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the groups of all drivers."""
    for name, title, text, options in GROUPS.values():
        conf.register_group(cfg.OptGroup(name, title=title, help=text))
        conf.register_opts(options, group=name)
        access.register_auth(conf, name)


def driver_options(conf: cfg.ConfigOpts, driver: str
                   ) -> dict[str, typing.Any]:
    """Return the arguments for the constructor of a driver.

    :param driver: name of a driver of :data:`GROUPS`
    :returns: a new dictionary, which may contain secrets
    :raises oslo_config.cfg.Error: if an option has an invalid value
    """
    group_name, _, _, options = GROUPS[driver]
    arguments = access.access_of(conf, group_name)
    values = {name: conf[group_name][name] for name in (
        opt.dest for opt in options) if name not in access.NAMES}
    arguments.update({name: values.pop(name) for name in _OF_ACCESS
                      if name in values})
    names = {name: value for name in _NAMES if name in values
             and (value := values.pop(name)) is not None}
    return {'access': arguments, **values, **(
        {'names': names} if names else {})}
