# SPDX-License-Identifier: Apache-2.0
"""Options of the telemetry drivers, a group for each that asks a service.

Who the driver is to the service is told by the options of keystoneauth1,
which are not ours: ``auth_type`` and those of the plugin that it names.
"""

from keystoneauth1 import loading
from oslo_config import cfg

__all__ = ['GROUPS', 'access_of', 'access_opts', 'auth_opts',
           'driver_options', 'register_opts']


def access_opts(service, example):
    """Return the options that say how a service is asked.

    :param service: its name
    :param example: URL
    """
    return [
        cfg.StrOpt(
            'url',
            help=f"""
URL of {service}.

Without it the service is looked up in the catalog of keystone, which needs
``auth_type``.

Format: http://host:port or https://host:port, without a user and password.

When it is wrong, the driver fails with the reason after ``retries``.

Related options: ``interface``, ``region_name``, ``cafile``.
""", sample_default=example),
        cfg.StrOpt(
            'interface', default='public',
            choices=[('public', 'as users see it'),
                     ('internal', 'within the cloud'),
                     ('admin', 'for administrators')],
            help="""
Which endpoint of the catalog of keystone to use.

Nothing else changes with it. It means nothing where ``url`` is set.

Any other value is refused when the command starts.

Related options: ``url``, ``region_name``.
"""),
        cfg.StrOpt(
            'region_name',
            help="""
Region of the endpoint in the catalog of keystone.

Without it the first region that has the service is used. It means nothing
where ``url`` is set.

When it is wrong, the driver fails because the catalog has no such endpoint.

Related options: ``url``, ``interface``.
"""),
        cfg.StrOpt(
            'cafile',
            help="""
File of the certificates that TLS servers are verified with: the service and
keystone. Verification cannot be switched off.

Without it the certificates of the system are used.

When it is wrong, the driver fails at once, as for any certificate that cannot
be verified.

Related options: ``certfile``.
"""),
        cfg.StrOpt(
            'certfile',
            help="""
File of the client certificate, for a service that asks for one.

Without it none is shown.

When it is wrong, the driver fails with the reason.

Related options: ``keyfile``.
"""),
        cfg.StrOpt(
            'keyfile',
            help="""
File of the key of the client certificate.

Without it the key is looked for in ``certfile``.

When it is wrong, the driver fails with the reason.

Related options: ``certfile``.
"""),
        cfg.FloatOpt(
            'timeout_seconds', default=60.0, min=1, max=3600,
            help=f"""
Longest time of one attempt to ask {service}: from the connection to the last
byte of the answer, with what keystone is asked for that.

Raise it where answers are large or the service is slow. Lower it to notice an
outage sooner.

Unit: seconds, 1 to 3600.

When it is too low, answers of a healthy service are thrown away and asked for
again.

Related options: ``retries``, ``max_answer_mib``.
"""),
        cfg.FloatOpt(
            'max_answer_mib', default=32.0, min=1, max=1024,
            help=f"""
Largest answer of {service}, after decompression. A larger one is not read to
its end.

Raise it where an answer that cannot be asked for in parts is larger, such as a
list of all series. Lower it to limit the memory of the process, which needs
about four times as much for an answer.

Unit: MiB, 1 to 1024.

When it is too low, reading ends with an error that names this option.

Related options: ``timeout_seconds``.
"""),
        cfg.IntOpt(
            'retries', default=3, min=0, max=20,
            help="""
How often a request is tried again when the service cannot be reached, is
busy, or answers nonsense.

Raise it to sit out longer disturbances. Lower it to learn of them sooner.

Unit: attempts beyond the first, 0 to 20.

When the last attempt fails, the driver ends with an error; what it has
delivered until then is good.

Related options: ``backoff_seconds``, ``timeout_seconds``.
"""),
        cfg.FloatOpt(
            'backoff_seconds', default=1.0, min=0, max=60,
            help="""
Pause before a request is tried again for the first time. It is doubled each
time, up to a minute; a longer one that the service asks for is kept as well.

Raise it to give a busy service more time.

Unit: seconds, 0 to 60.

When it is too low, all attempts may fall into one disturbance.

Related options: ``retries``.
"""),
        cfg.FloatOpt(
            'requests_per_second', default=10.0, min=0.01, max=1000,
            help="""
Most requests to the service in a second.

Raise it to read sooner. Lower it to spare a service that others need as well.

Unit: requests/s, 0.01 to 1000.

When it is too low, reading takes longer than the time that is read.

Related options: ``timeout_seconds``.
"""),
    ]


def _common(service, port, example, period_seconds, period_help, settle,
            max_age_days):
    """Return the options that all groups have.

    :param service: its name
    :param example: URL
    :param period_seconds: default
    :param period_help: what to set it to
    :param settle: default of settle_seconds
    """
    return access_opts(service, example) + [
        cfg.IntOpt(
            'period_seconds', default=period_seconds, min=1, max=86400,
            help=f"""
Sampling period of the traffic that is delivered.

{period_help}

Unit: seconds, 1 to 86400.

When it is shorter than the interval of polling, most periods have no sample
and are refused as gaps.

Related options: ``settle_seconds``.
"""),
        cfg.IntOpt(
            'settle_seconds', default=settle, min=0, max=86400,
            help="""
How long after its end a period is read at the earliest.

Raise it where measures arrive late. Lower it to know of traffic sooner.

Unit: seconds, 0 to 86400.

When it is too low, measures that arrive later are lost: what was read once is
not read again.

Related options: ``period_seconds``.
"""),
        cfg.IntOpt(
            'max_age_seconds', default=max_age_days * 86400, min=3600,
            max=31536000,
            help="""
How far back samples are used; older ones are refused as too old.

Raise it to learn from a longer history, as far as the service keeps one.
Lower it to forget former habits, and to read less at the first time.

Unit: seconds, 3600 to 31536000.

When it is too low, instances have too few samples for a model.

Related options: ``period_seconds``.
"""),
    ]


_GNOCCHI = _common(
    'Gnocchi', 8041, 'https://controller:8041', 300,
    'It is the granularity that is read, one that the archive policies of '
    'the metrics\nhave. Raise it to read less and see only longer bursts; '
    'lower it to see\nshorter ones.', 120, 30) + [
    cfg.StrOpt(
        'aggregation', default='auto',
        choices=[('auto', 'for each interface the first of the others that '
                          'its archive policies have'),
                 ('rate:mean', 'mean rise of the counter between two '
                               'measures'),
                 ('last', 'differences of the last value of the counter'),
                 ('max', 'differences of its largest value'),
                 ('mean', 'differences of its mean value'),
                 ('min', 'differences of its least value')],
        help="""
Which aggregation of the counters of interfaces to read.

``rate:mean`` needs ``interval_seconds`` to be right; the others are
independent of it and tell a reset of a counter for sure.

Any other value is refused when the command starts.

Related options: ``interval_seconds``.
"""),
    cfg.FloatOpt(
        'interval_seconds', min=1, max=86400,
        help="""
Time between two measures of a counter: the interval in which Ceilometer polls
it. ``rate:mean`` is divided by it.

Without it ``period_seconds`` is taken, which is right where each point is
made of one measure.

Unit: seconds, 1 to 86400.

When it is wrong, all rates are wrong by the same factor. When it is longer
than ``period_seconds``, it is refused.

Related options: ``aggregation``, ``period_seconds``.
"""),
    cfg.ListOpt(
        'trusted_creators',
        help="""
Whose resources count.

By the default policy of Gnocchi every user of the cloud may create resources,
of instances of others as well. Resources of other creators are ignored before
a sample is read; the log names each such creator once.

Without it those count that were made in the project that this driver
authenticates for, which is that of Ceilometer where both use the project of
services; with basic authentication, those of this user. Without ``auth_type``
everybody's count.

Format: a list of ids of projects, ids of users or ``user:project``, separated
by commas; with basic authentication the names of users.

When it is wrong, no instance is found.

Related options: ``auth_type``.
"""),
    cfg.IntOpt(
        'points_per_request', default=200000, min=1, max=10000000,
        help="""
About how many points to ask for in one request.

Raise it to make fewer requests. Lower it where Gnocchi takes long to answer
or memory is short: a point takes about 45 bytes of an answer.

Unit: points, 1 to 10000000.

When it is too high, requests run into ``timeout_seconds``.

Related options: ``timeout_seconds``, ``requests_per_second``.
"""),
]

_PROMETHEUS = _common(
    'Prometheus, or of Aetos before it', 9090, 'https://controller:9090', 300,
    'Set it to the interval in which the counters are polled, or a multiple '
    'of it:\nCeilometer polls every 300 seconds by default, however often '
    'Prometheus scrapes\nwhat was polled last.', 60, 30) + [
    cfg.StrOpt(
        'exporter', default='ceilometer',
        choices=[('ceilometer', 'the exporter of Ceilometer, and sg-core'),
                 ('libvirt-inovex', 'prometheus-libvirt-exporter of inovex'),
                 ('libvirt-tinkoff', 'libvirt-exporter of Tinkoff')],
        help="""
Which exporter tells of the interfaces of instances.

It sets what the metrics and labels are called; each of these names has an
option of its own that takes its place.

Any other value is refused when the command starts. When the exporter is
another one, no instance is found.

Related options: ``egress_query``, ``instance_label``, ``identity_query``.
"""),
    cfg.IntOpt(
        'samples_per_request', default=100000, min=100, max=10000000,
        help="""
About how many samples to ask for in one query.

Raise it to make fewer queries. Lower it to keep each of them small, for the
server as well: it limits the samples of a query, all users together.

Unit: samples, 100 to 10000000.

When it is too high, the server refuses queries, which are then asked for in
halves.

Related options: ``requests_per_second``.
"""),
    cfg.FloatOpt(
        'update_interval_seconds', min=0, max=86400,
        help="""
Interval at which the scraped exporter updates its counters, for example the
polling interval of Ceilometer. No rate is taken over a shorter time.

Without it, the driver finds the interval from the counters of the instances
together. Set it if the exporter updates its counters more often than
Prometheus scrapes them, but more seldom than once in 10 seconds, and no
instance has steady traffic: such an interval shows in steady traffic only.
0 states that the counters are current at each scrape.

Unit: seconds, 0 to 86400.

When it is too short, peaks are learned that did not occur. When it is too
long, short peaks are averaged, and samples are delivered later.

Related options: ``period_seconds``.
"""),
    cfg.DictOpt(
        'host_names',
        help="""
Names of hosts in Nova, by what the last one of ``host_labels`` says.

With an inventory, what a host reports of an instance counts while Nova has the
instance on that host. The label is compared without its port with the names of
Nova's hosts, and with their part before the first dot. Name here the hosts for
which that does not do, such as those that are scraped by their address. A
value that is no host of Nova counts as long as no series names the host of the
instance.

Format: value:host, separated by commas, the value without a port.

When it is wrong, instances on that host have no samples.

Related options: ``host_labels``.
"""),
] + [
    cfg.StrOpt(
        name,
        help=f"""
{what}

Without it the name that goes with ``exporter`` is taken.{more}

Format: {form}

When it is wrong, {wrong}

Related options: ``exporter``.
""") for name, what, more, form, wrong in [
        (f'{name}_query', f'Selector of the series of {what}.', more,
         'a selector of PromQL such as name or name{label="value"}.',
         'no instance is found, or no sample of it.')
        for name, what, more in [
            ('egress', 'bytes that instances sent', ''),
            ('ingress', 'bytes that instances received', ''),
            ('egress_packets', 'packets that instances sent',
             ' Empty, here and for\n``ingress_packets_query``: packets are '
             'not counted.'),
            ('ingress_packets', 'packets that instances received', ''),
            ('identity', 'metadata that holds the uuid of the instance, '
                         'where the counters\nthemselves do not', '')]
    ] + [
        ('select_label', 'Label by whose values series are asked for, many '
                         'at a time.', '', 'the name of a label.',
         'no sample is found.'),
        ('instance_label', 'Label that holds the uuid of the instance, '
                           'possibly within other text.', '',
         'the name of a label.', 'no instance is found.'),
        ('interface_labels', 'Labels that tell apart the interfaces of an '
                             'instance.', '',
         'names of labels, with commas between them.',
         'the interfaces of an instance are taken for one.'),
        ('host_labels', 'Labels that differ between the hosts that an '
                        'instance has been on.', '',
         'names of labels, with commas between them.',
         'migrations look like resets of a\ncounter, or are not noticed.'),
        ('identity_labels', 'Labels by which series of ``identity_query`` '
                            'and counters are matched.', '',
         'names of labels, with commas between them.',
         'no instance is found.'),
    ]
]

_CEILOMETER = _common(
    'the Ceilometer v2 API', 8777, 'https://controller:8777', 600,
    'Set it to the interval in which Ceilometer polls, or a multiple of it.',
    120, 30)

_HELP = """
Options of the telemetry driver "{0}", which reads traffic from {1}. As whom
it asks is told by auth_type and the options of that plugin of keystoneauth1;
without auth_type no authentication takes place.
"""

#: {name of a driver: (group, its title, its help, its options)}
GROUPS = {
    name: (f'vswitch_{name}', f'Telemetry from {title}',
           _HELP.format(name, title), options)
    for name, title, options in [
        ('gnocchi', 'Gnocchi', _GNOCCHI),
        ('prometheus', 'Prometheus', _PROMETHEUS),
        ('ceilometer', 'the Ceilometer v2 API', _CEILOMETER)]}

_ACCESS = ('url', 'interface', 'region_name', 'cafile', 'certfile', 'keyfile',
           'timeout_seconds', 'max_answer_mib', 'retries', 'backoff_seconds',
           'requests_per_second')

_NAMES = ('egress_query', 'ingress_query', 'egress_packets_query',
          'ingress_packets_query', 'identity_query', 'select_label',
          'instance_label', 'interface_labels', 'host_labels',
          'identity_labels')


def auth_opts():
    """Return the options of keystoneauth1 that a sample should show."""
    found = list(loading.get_auth_common_conf_options())
    for plugin in ('v3password', 'v3applicationcredential'):
        for option in loading.get_auth_plugin_conf_options(plugin):
            if option.dest not in {known.dest for known in found}:
                found.append(option)
    return found


def register_opts(conf):
    """Register the groups of all drivers.

    :param conf: an oslo.config ConfigOpts
    """
    for name, title, text, options in GROUPS.values():
        conf.register_group(cfg.OptGroup(name, title=title, help=text))
        conf.register_opts(options, group=name)
        loading.register_auth_conf_options(conf, name)


def driver_options(conf, driver):
    """Return the arguments of a driver's constructor, as options say.

    :param conf: an oslo.config ConfigOpts with our options registered
    :param driver: name of a driver of :data:`GROUPS`
    :returns: a new dictionary; it may hold secrets
    :raises oslo_config.cfg.Error: when an option has no usable value
    """
    group_name, _, _, options = GROUPS[driver]
    group = conf[group_name]
    values = {option.dest: group[option.dest] for option in options
              if option.dest not in _ACCESS}
    names = {name: values.pop(name) for name in _NAMES if name in values}
    if names:
        values['names'] = {name: value for name, value in names.items()
                           if value is not None}
    return {'access': access_of(conf, group_name), **values}


def access_of(conf, group_name):
    """Return the arguments of service.Access, as the options of a group say.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :param group_name: of a group with the options of :func:`access_opts`
    :returns: a new dictionary; it may hold secrets
    :raises oslo_config.cfg.Error: when an option has no usable value
    """
    group = conf[group_name]
    return {**{name: group[name] for name in _ACCESS},
            'auth': _auth(conf, group_name)}


def _auth(conf, group_name):
    """Return auth_type and the options of that plugin, or None."""
    section = conf[group_name].auth_section or group_name
    if section != group_name:
        conf.register_group(cfg.OptGroup(section))
        loading.register_auth_conf_options(conf, section)
    auth_type = conf[section].auth_type
    if not auth_type:
        return None
    try:
        options = loading.get_auth_plugin_conf_options(auth_type)
    except Exception as error:
        raise cfg.ConfigFileValueError(
            f'auth_type of group {section} is {auth_type!r} ({error}), '
            f'wanted the name of a plugin of keystoneauth1') from error
    conf.register_opts(options, group=section)
    values = {option.dest: conf[section][option.dest] for option in options}
    return {'auth_type': auth_type, **{
        name: value for name, value in values.items() if value is not None}}
