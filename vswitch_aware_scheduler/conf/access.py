# SPDX-License-Identifier: Apache-2.0
"""Options of the access to a service: those of keystoneauth1, and limits.

keystoneauth1 declares the address, the certificates, the retries and the
credentials. It does not limit the size and the rate of requests.
"""

from collections.abc import Mapping
import contextlib
import typing

from keystoneauth1 import loading
from oslo_config import cfg

from vswitch_aware_scheduler.conf import option

__all__ = ['NAMES', 'access_of', 'auth_names', 'auth_opts', 'options',
           'register_auth']

#: {option of keystoneauth1: argument of clients.http.Access}. Options without
#: effect here are left out, and ``insecure``: servers are always verified.
_ARGUMENTS = {
    'endpoint_override': 'url', 'valid_interfaces': 'interface',
    'region_name': 'region_name', 'cafile': 'cafile', 'certfile': 'certfile',
    'keyfile': 'keyfile', 'timeout': 'timeout_seconds',
    'connect_retries': 'connect_retries', 'status_code_retries': 'retries'}

_LIMITS = ('max_answer_mib', 'requests_per_second')

#: Names of all these options, without those of the credentials.
NAMES = frozenset([*_ARGUMENTS, *_LIMITS])


def options(service: str, example: str) -> list[cfg.Opt]:
    """Return the options of the access to a service.

    :param service: name of the service, for the help texts
    :param example: URL in the sample configuration
    """
    theirs = [opt for opt in (*loading.get_adapter_conf_options(False),
                              *loading.get_session_conf_options())
              if opt.dest in _ARGUMENTS]
    cfg.set_defaults(theirs, valid_interfaces=['public'], timeout=60.0,
                     connect_retries=3, status_code_retries=3)
    for opt in theirs:
        if opt.dest == 'endpoint_override':
            opt.sample_default = example
    return [*theirs, option.FloatOpt(
        'max_answer_mib', default=32.0, min=1, max=1024, unit='MiB',
        related='timeout', help=f"""
Largest size of a response of {service}, after decompression. The driver stops
reading a larger response.

Raise it if a response is larger and cannot be requested in parts, such as a
list of all series. Lower it to limit the memory of the process, which needs
about four times the size of a response.

When it is too low, reading ends with an error that names this option.
"""), option.FloatOpt(
        'requests_per_second', default=10.0, min=0.01, max=1000,
        unit='requests/s', related='timeout', help="""
Largest number of requests to the service in a second.

Raise it to read faster. Lower it to reduce the load on a service that others
use as well.

When it is too low, reading the samples of a period takes longer than the
period.
""")]


def auth_opts() -> list[cfg.Opt]:
    """Return the options of keystoneauth1 for the sample configuration."""
    options = {}  # {name: option}
    for opt in (*loading.get_auth_common_conf_options(), *(
            opt for plugin in ('v3password', 'v3applicationcredential')
            for opt in loading.get_auth_plugin_conf_options(plugin))):
        options.setdefault(opt.dest, opt)
    return list(options.values())


def auth_names(*auth_types: str) -> set[str]:
    """Return the names of the options of plugins of keystoneauth1.

    :param auth_types: names of plugins; an unknown plugin has no options
    """
    names = set()
    for auth_type in auth_types:
        with contextlib.suppress(Exception):
            for opt in loading.get_auth_plugin_conf_options(auth_type):
                names.update((opt.dest, *(
                    other.name for other in opt.deprecated_opts)))
    return names


register_auth = loading.register_auth_conf_options


def access_of(conf: cfg.ConfigOpts, group_name: str
              ) -> dict[str, typing.Any]:
    """Return the arguments of :class:`.http.Access`, from a group of options.

    :returns: a new dictionary, which may contain secrets
    :raises oslo_config.cfg.Error: if an option has an invalid value
    """
    group = conf[group_name]
    return {**{argument: group[name]
               for name, argument in _ARGUMENTS.items()},
            **{name: group[name] for name in _LIMITS},
            'auth': _auth(conf, group_name)}


def _auth(conf: cfg.ConfigOpts, group_name: str
          ) -> Mapping[str, typing.Any] | None:
    """Return auth_type and the options of its plugin, or None."""
    section = conf[group_name].auth_section or group_name
    if section != group_name:
        conf.register_group(cfg.OptGroup(section))
        register_auth(conf, section)
    auth_type = conf[section].auth_type
    if not auth_type:
        return None
    try:
        plugin = loading.get_auth_plugin_conf_options(auth_type)
    except Exception as error:
        raise cfg.ConfigFileValueError(
            f'auth_type of group {section} is {auth_type!r} ({error}); '
            f'expected the name of a plugin of keystoneauth1') from error
    conf.register_opts(plugin, group=section)
    values = {opt.dest: conf[section][opt.dest] for opt in plugin}
    return {'auth_type': auth_type, **{
        name: value for name, value in values.items() if value is not None}}
