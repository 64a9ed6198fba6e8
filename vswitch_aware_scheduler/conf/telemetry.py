# SPDX-License-Identifier: Apache-2.0
"""Options of the telemetry drivers, one group for each driver of a service.

Options of keystoneauth1 set how the driver authenticates: ``auth_type`` and
the options of the plugin that it names.
"""

import contextlib

from keystoneauth1 import loading
from oslo_config import cfg

from vswitch_aware_scheduler.conf import number

__all__ = ['GROUPS', 'access_of', 'access_opts', 'auth_names', 'auth_opts',
           'driver_options', 'register_opts']

_TLS = [
    cfg.StrOpt(
        'cafile',
        help="""
File of the CA certificates that verify the TLS certificates of the service and
of keystone.

Without it the CA certificates of the system are used. Verification cannot be
switched off.

When it is wrong, the driver fails immediately, because it cannot verify the
certificate of the service.

Related options: ``certfile``.
"""),
    cfg.StrOpt(
        'certfile',
        help="""
File of the client certificate, for a service that requires one.

Without it the driver sends no client certificate.

When it is wrong, the driver fails with the reason.

Related options: ``keyfile``.
"""),
    cfg.StrOpt(
        'keyfile',
        help="""
File of the key of the client certificate.

Without it the key is read from ``certfile``.

When it is wrong, the driver fails with the reason.

Related options: ``certfile``.
"""),
]


def access_opts(service, example, path=''):
    """Return the options of the access to a service.

    :param service: the name of the service, for the help texts
    :param example: a URL, the value in the sample configuration
    :param path: path that the URL must end with, for the help text
    :returns: a list of options of oslo.config
    """
    return [
        cfg.StrOpt(
            'url',
            help=f"""
URL of {service}.

Without it the endpoint of the service is taken from the catalog of keystone,
which needs ``auth_type``.

Format: http://host:port{path} or https://host:port{path}, without a user and
password. The URL may have a path prefix, for example of a proxy.

When it is wrong, the driver fails after ``retries`` attempts and logs the
reason.

Related options: ``interface``, ``region_name``, ``cafile``.
""", sample_default=example),
        cfg.StrOpt(
            'interface', default='public',
            choices=[('public', 'the endpoint for users'),
                     ('internal', 'the endpoint for services of the cloud'),
                     ('admin', 'the endpoint for administrators')],
            help="""
Which endpoint of the catalog of keystone to use.

It has no effect if ``url`` is set.

Any other value is refused when the command starts.

Related options: ``url``, ``region_name``.
"""),
        cfg.StrOpt(
            'region_name',
            help="""
Region of the endpoint in the catalog of keystone.

Without it the first region that has the service is used. It has no effect if
``url`` is set.

When it is wrong, the driver fails because the catalog has no such endpoint.

Related options: ``url``, ``interface``.
"""),
    ] + _TLS + _limit_opts(service)


def _limit_opts(service):
    """Return the options that limit time, size and number of requests."""
    return [
        number.FloatOpt(
            'timeout_seconds', default=60.0, min=1, max=3600,
            help=f"""
Time limit of one request to {service}: from the connection to the last byte of
the response, including the requests to keystone.

Raise it if responses are large or the service is slow. Lower it to detect an
outage sooner.

Unit: seconds, 1 to 3600.

When it is too low, the driver discards responses of a healthy service and
repeats the requests.

Related options: ``retries``, ``max_answer_mib``.
"""),
        number.FloatOpt(
            'max_answer_mib', default=32.0, min=1, max=1024,
            help=f"""
Largest size of a response of {service}, after decompression. The driver stops
reading a larger response.

Raise it if a response is larger and cannot be requested in parts, such as a
list of all series. Lower it to limit the memory of the process, which needs
about four times the size of a response.

Unit: MiB, 1 to 1024.

When it is too low, reading ends with an error that names this option.

Related options: ``timeout_seconds``.
"""),
        cfg.IntOpt(
            'retries', default=3, min=0, max=20,
            help="""
How often a request is repeated if the service cannot be reached, is busy, or
sends an invalid response.

Raise it to tolerate longer outages. Lower it to detect outages sooner.

Unit: repetitions, 0 to 20.

When the last repetition fails, the driver ends with an error. Samples that
were read before remain valid.

Related options: ``backoff_seconds``, ``timeout_seconds``.
"""),
        number.FloatOpt(
            'backoff_seconds', default=1.0, min=0, max=60,
            help="""
Pause before the first repetition of a request. It doubles with each
repetition, up to a minute. If the service requests a longer pause, the driver
waits that long.

Raise it to give a busy service more time.

Unit: seconds, 0 to 60.

When it is too low, all attempts may fall into one short outage.

Related options: ``retries``.
"""),
        number.FloatOpt(
            'requests_per_second', default=10.0, min=0.01, max=1000,
            help="""
Largest number of requests to the service in a second.

Raise it to read faster. Lower it to reduce the load on a service that others
use as well.

Unit: requests/s, 0.01 to 1000.

When it is too low, reading the samples of a period takes longer than the
period.

Related options: ``timeout_seconds``.
"""),
    ]


def _common(service, port, example, period_seconds, period_help, settle,
            max_age_days):
    """Return the options that all groups have.

    :param service: the name of the service, for the help texts
    :param port: the usual port of the service
    :param example: a URL, the value in the sample configuration
    :param period_seconds: the default of the option period_seconds
    :param period_help: advice for this option, one paragraph
    :param settle: the default of settle_seconds
    :param max_age_days: the default of max_age_seconds, in days
    """
    return access_opts(service, example) + [
        cfg.IntOpt(
            'period_seconds', default=period_seconds, min=1, max=86400,
            help=f"""
Time between two samples that the driver delivers.

{period_help}

Unit: seconds, 1 to 86400.

When it is shorter than the polling interval of the counters, most periods have
no sample and the driver treats them as gaps.

Related options: ``settle_seconds``.
"""),
        cfg.IntOpt(
            'settle_seconds', default=settle, min=0, max=86400,
            help="""
Time that the driver waits after the end of a period before it reads the
samples of this period.

Raise it if measurements arrive late. Lower it to use new samples sooner.

Unit: seconds, 0 to 86400.

When it is too low, measurements that arrive later are lost: the driver does
not read a period twice.

Related options: ``period_seconds``.
"""),
        cfg.IntOpt(
            'max_age_seconds', default=max_age_days * 86400, min=3600,
            max=31536000,
            help="""
Largest age of a sample. The driver ignores older samples.

Raise it to learn from a longer history, if the service keeps older samples.
Lower it to learn only from recent traffic, and to read less in the first pass.

Unit: seconds, 3600 to 31536000.

When it is too low, instances have too few samples for a model.

Related options: ``period_seconds``.
"""),
    ]


_GNOCCHI = _common(
    'Gnocchi', 8041, 'https://controller:8041', 300,
    'The driver reads this granularity of Gnocchi; the archive policies of '
    'the metrics\nmust have it. Raise it to read less data. Lower it to '
    'detect shorter bursts of\ntraffic.', 120, 30) + [
    cfg.StrOpt(
        'aggregation', default='auto',
        choices=[('auto', 'for each interface, the first of the following '
                          'ones that its archive policies have'),
                 ('rate:mean', 'mean increase of the counter between two '
                               'measurements'),
                 ('last', 'last value of the counter in each period'),
                 ('max', 'largest value of the counter in each period'),
                 ('mean', 'mean value of the counter in each period'),
                 ('min', 'smallest value of the counter in each period')],
        help="""
Aggregation of Gnocchi from which the driver computes the rates of an
interface.

``rate:mean`` needs the right polling interval, see ``interval_seconds``. With
the other aggregations, the driver computes rates from the difference of the
values of two periods. It then does not need the polling interval and detects
every reset of a counter.

Any other value is refused when the command starts.

Related options: ``interval_seconds``.
"""),
    number.FloatOpt(
        'interval_seconds', min=1, max=86400,
        help="""
Time between two measurements of a counter: the polling interval of Ceilometer.
The driver divides ``rate:mean`` by it.

Without it, the driver compares ``rate:mean`` with the values of the counter,
if the archive policy has both. Otherwise it uses ``period_seconds``, which is
right if each period has one measurement.

Unit: seconds, 1 to 86400.

When it is wrong, all rates are wrong by the same factor. When it is longer
than ``period_seconds``, the driver reads the counter instead of ``rate:mean``.

Related options: ``aggregation``, ``period_seconds``.
"""),
    cfg.ListOpt(
        'trusted_creators',
        help="""
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

When it is wrong, no instance is found.

Related options: ``auth_type``.
"""),
    cfg.IntOpt(
        'points_per_request', default=200000, min=1, max=10000000,
        help="""
Approximate number of values that the driver reads with one request.

Raise it to make fewer requests. Lower it if Gnocchi responds slowly or memory
is short: a value takes about 45 bytes in a response.

Unit: values, 1 to 10000000.

When it is too high, requests take longer than ``timeout_seconds`` and fail.

Related options: ``timeout_seconds``, ``requests_per_second``.
"""),
]

_PROMETHEUS = _common(
    'Prometheus or Aetos', 9090, 'https://controller:9090', 300,
    'Set it to the polling interval of the counters, or a multiple of it. '
    'Ceilometer\npolls every 300 seconds by default, regardless of how often '
    'Prometheus scrapes the\nresult.', 60, 30) + [
    cfg.StrOpt(
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
        help="""
Exporter that provides the counters of the interfaces of instances.

The driver uses the metrics and labels of this exporter. Each of these names
also has an option of its own, which has precedence.

Without it, the driver uses the exporter of which Prometheus has the most
instances. "vswitch-manage telemetry check" prints the exporters that were
found.

Any other value is refused when the command starts. When the cloud uses another
exporter, no instance is found.

Related options: ``egress_query``, ``instance_label``, ``identity_query``.
"""),
    cfg.IntOpt(
        'samples_per_request', default=100000, min=100, max=10000000,
        help="""
Approximate number of samples in one query.

Raise it to make fewer queries. Lower it if the server permits fewer samples in
a query.

Unit: samples, 100 to 10000000.

When it is too high, the server rejects queries, and the driver divides the
rejected queries.

Related options: ``requests_per_second``.
"""),
    cfg.DictOpt(
        'headers', secret=True,
        help="""
Headers of every request, such as the tenant of a server with several tenants.

Format: name:value, separated by commas, such as X-Scope-OrgID:cloud.

When it is wrong, the server refuses requests, or has no instance.

Related options: ``token_file``, ``auth_type``.
"""),
    cfg.StrOpt(
        'token_file',
        help="""
File with a token, which the driver sends as ``Authorization: Bearer``.

The driver reads the file in each pass, so that the token may be replaced.

When it is wrong, the driver fails with the reason.

Related options: ``headers``, ``auth_type``.
"""),
    number.FloatOpt(
        'update_interval_seconds', min=0, max=86400,
        help="""
Interval at which the exporter updates its counters, for example the polling
interval of Ceilometer. The driver computes no rate over a shorter time.

Without it, the driver derives the interval from the counters of all instances.
This is impossible if no instance has steady traffic and the exporter updates
its counters more often than Prometheus scrapes them, but less often than every
10 seconds. Set the option in this case. 0 means that the counters are current
at each scrape.

Unit: seconds, 0 to 86400.

When it is too short, samples contain peaks that did not occur. When it is too
long, short peaks are averaged, and samples are delivered later.

Related options: ``period_seconds``.
"""),
    cfg.DictOpt(
        'host_names',
        help="""
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

When it is wrong, instances on that host have no samples.

Related options: ``host_labels``.
"""),
] + [
    cfg.StrOpt(
        name,
        help=f"""
{content}

Without it the name that belongs to the exporter is used.{note}

Format: {form}

When it is wrong, {wrong}

Related options: ``exporter``.
""") for name, content, note, form, wrong in [
        (f'{name}_query', f'Selector of the series of {content}.', note,
         'a selector of PromQL such as name or name{label="value"}.',
         'no instance is found, or no sample of it.')
        for name, content, note in [
            ('egress', 'bytes that instances sent', ''),
            ('ingress', 'bytes that instances received', ''),
            ('egress_packets', 'packets that instances sent',
             ' If this option and\n``ingress_packets_query`` are empty, the '
             'driver reads no packet rates.'),
            ('ingress_packets', 'packets that instances received', ''),
            ('identity', 'metadata with the uuid of the instance, for '
                         'exporters whose\ncounters do not have the uuid', '')]
    ] + [
        ('select_label', 'Label whose values the driver lists in a query to '
                         'select many series.', '', 'the name of a label.',
         'no sample is found.'),
        ('instance_label', 'Label that holds the uuid of the instance, '
                           'possibly within other text.', '',
         'the name of a label.', 'no instance is found.'),
        ('interface_labels', 'Labels that identify an interface of an '
                             'instance.', '',
         'names of labels, separated by commas.',
         'all interfaces of an instance are read as one interface.'),
        ('host_labels', 'Labels that identify the host of an instance; they '
                        'change with a migration.', '',
         'names of labels, separated by commas.',
         'migrations look like resets of a\ncounter, or are not detected.'),
        ('identity_labels', 'Labels that connect the series of '
                            '``identity_query`` with the counters.', '',
         'names of labels, separated by commas.',
         'no instance is found.'),
    ]
]

_CEILOMETER = _common(
    'the Ceilometer v2 API', 8777, 'https://controller:8777', 600,
    'Set it to the polling interval of Ceilometer, or a multiple of it.',
    120, 30)

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

_ACCESS = ('url', 'interface', 'region_name', 'cafile', 'certfile', 'keyfile',
           'timeout_seconds', 'max_answer_mib', 'retries', 'backoff_seconds',
           'requests_per_second')

_NAMES = ('egress_query', 'ingress_query', 'egress_packets_query',
          'ingress_packets_query', 'identity_query', 'select_label',
          'instance_label', 'interface_labels', 'host_labels',
          'identity_labels')


def auth_opts():
    """Return the options of keystoneauth1 for the sample configuration."""
    options = list(loading.get_auth_common_conf_options())
    for plugin in ('v3password', 'v3applicationcredential'):
        for option in loading.get_auth_plugin_conf_options(plugin):
            if option.dest not in {other.dest for other in options}:
                options.append(option)
    return options


def auth_names(*auth_types):
    """Return the names of the options of plugins of keystoneauth1.

    :param auth_types: names of plugins; an unknown plugin has no options
    :returns: set of names
    """
    names = set()
    for auth_type in auth_types:
        with contextlib.suppress(Exception):
            for option in loading.get_auth_plugin_conf_options(auth_type):
                names.update((option.dest, *(
                    other.name for other in option.deprecated_opts)))
    return names


def register_opts(conf):
    """Register the groups of all drivers.

    :param conf: an oslo.config ConfigOpts
    """
    for name, title, text, options in GROUPS.values():
        conf.register_group(cfg.OptGroup(name, title=title, help=text))
        conf.register_opts(options, group=name)
        loading.register_auth_conf_options(conf, name)


def driver_options(conf, driver):
    """Return the arguments for the constructor of a driver.

    :param conf: an oslo.config ConfigOpts with the options of this package
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
    access = access_of(conf, group_name)
    for name in ('headers', 'token_file'):
        if name in values:
            access[name] = values.pop(name)
    return {'access': access, **values}


def access_of(conf, group_name):
    """Return the arguments for service.Access, from the options of a group.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :param group_name: of a group with the options of :func:`access_opts`
    :returns: a new dictionary; it may hold secrets
    :raises oslo_config.cfg.Error: when an option has no usable value
    """
    group = conf[group_name]
    return {**{name: group[name] for name in _ACCESS},
            'auth': _auth(conf, group_name)}


def _auth(conf, group_name):
    """Return auth_type and the options of its plugin, or None."""
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
            f'auth_type of group {section} is {auth_type!r} ({error}); '
            f'expected the name of a plugin of keystoneauth1') from error
    conf.register_opts(options, group=section)
    values = {option.dest: conf[section][option.dest] for option in options}
    return {'auth_type': auth_type, **{
        name: value for name, value in values.items() if value is not None}}
