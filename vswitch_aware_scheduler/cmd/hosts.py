# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage host: which profile the switch of each host has."""

import dataclasses
import re

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.modeler import host_discovery
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import export
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['OPERATOR', 'add_discover_arguments', 'add_export_arguments',
           'add_set_arguments', 'discover', 'discover_columns', 'export_',
           'list_columns', 'remarks', 'set_']

#: Source of the records that somebody wrote by hand.
OPERATOR = 'operator'

_HOST_NAME = re.compile(r'[A-Za-z0-9._:@-]{1,255}')


def add_discover_arguments(parser):
    """Add the arguments of "host discover"."""
    parser.add_argument(
        '--map', metavar='SWITCH[:ENCAPSULATION]=PROFILE', action='append',
        default=[], help='the profile of a kind of switch, before that of '
                         'the catalogue; may be given several times')
    parser.add_argument('--apply', action='store_true',
                        help='write the proposals to the store')
    parser.add_argument('--force', action='store_true',
                        help='replace also what others wrote, by hand for '
                             'instance')


def add_set_arguments(parser):
    """Add the arguments of "host set"."""
    parser.add_argument('host', metavar='HOST')
    parser.add_argument('profile', metavar='PROFILE', nargs='?',
                        help='name of a profile; none: that of the option '
                             'default_switch_profile')
    parser.add_argument('--override', metavar='KEY=NUMBER', action='append',
                        default=[], help='a number of the profile that '
                        'differs on this host; may be given several times')


def add_export_arguments(parser):
    """Add the arguments of "profile export"."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('name', metavar='NAME', nargs='?',
                      help='name of a profile')
    what.add_argument('--host', metavar='HOST',
                      help='the profile of this host in the store, with its '
                           'overrides')
    parser.add_argument('--format', choices=export.FORMATS, required=True,
                        help='provider.yaml of nova-compute, or the options '
                             'of an agent of Neutron')
    parser.add_argument('--device', metavar='NAME', action='append',
                        default=[], help='bridge or network device that has '
                        'the bandwidth; several share it evenly')
    parser.add_argument('--hypervisor', metavar='NAME', default='',
                        help='name of the hypervisor, where it is not that '
                             'of the host')
    parser.add_argument('--directions', action='store_true',
                        help='count packets in each direction, as for a '
                             'switch that is offloaded to hardware')


def _access(conf):
    """Return how Neutron is asked: as the inventory does."""
    given = options.inventory_options(conf)
    if given is None or given['access']['auth'] is None:
        raise exceptions.InvalidInput(
            f'auth_type in the group [{options.INVENTORY_GROUP}] is not set, '
            f'wanted it and the options of its plugin, to ask Neutron with')
    return http.Access(**{**given['access'], 'url': given['network_url']})


def discover(arguments, conf, opened):
    """Return the answer of "host discover" as a dictionary.

    :param opened: returns the Store, or None where there is none yet and
        nothing is to be written; called when Neutron has answered
    """
    profiles = switch_profile.profiles(
        conf[options.GROUP].switch_profiles_file)
    mapping = discovery.parse_mapping(arguments.map, profiles)
    proposals = [one for one in discovery.propose(
        host_discovery.read_agents(_access(conf)), profiles, mapping)
        if arguments.host in (None, one.host)]
    target = opened()
    if arguments.apply:
        steps = host_discovery.apply(target, proposals, arguments.force)
    else:
        steps = host_discovery.plan(
            [] if target is None else target.host_profiles(),
            proposals,
            arguments.force,
        )
    return {'applied': arguments.apply, 'hosts': [
        {**dataclasses.asdict(one), 'action': step.action,
         'before': step.before and dataclasses.asdict(step.before)}
        for one, step in zip(proposals, steps)]}


def discover_columns():
    """Return the columns of an answer of :func:`discover`."""
    return [output.Column('HOST', 'host'), output.Column('PROFILE', 'profile'),
            output.Column('OVERRIDES', 'overrides', _numbers),
            output.Column('ACTION', 'action'),
            output.Column('STORED', 'before', lambda before: (
                f'{before["profile"] or "-"} ({before["source"]})')),
            output.Column('REASON', 'reason')]


def remarks(answer):
    """Return a sentence for each remark of an answer, and for what stays."""
    found = [f'{one["host"]}: {remark}' for one in answer['hosts']
             for remark in one['remarks']]
    return found + [
        f'{one["host"]}: what {one["before"]["source"]} wrote stays; --force '
        f'replaces it' for one in answer['hosts'] if one['action'] == 'kept']


def _numbers(overrides):
    return ', '.join(f'{key}={value:.15g}' for key, value
                     in sorted(overrides.items())) or '-'


def list_columns():
    """Return the columns of the HostProfiles of a store."""
    return [output.Column('HOST', 'host'), output.Column('PROFILE', 'profile'),
            output.Column('OVERRIDES', 'overrides', _numbers),
            output.Column('SOURCE', 'source'),
            output.Column('UPDATED', 'updated_at_iso')]


def set_(arguments, conf):
    """Return the HostProfile that "host set" is to write."""
    if not _HOST_NAME.fullmatch(arguments.host):
        raise exceptions.InvalidInput(
            f'host: {arguments.host!r}; expected its name in Nova, as '
            f'"openstack compute service list" prints it: letters, digits '
            f'and . _ - : @, at most 255')
    where = f'host {arguments.host}'
    overrides = {}
    for text in arguments.override:
        key, _, value = text.partition('=')
        overrides[key] = switch_profile.override_number(key, value, where)
    profiles = switch_profile.profiles(conf.switch_profiles_file)
    if arguments.profile is None and not overrides:
        raise exceptions.InvalidInput(
            f'{where}: neither a profile nor an override is given, wanted '
            f'one of them')
    if arguments.profile is not None and arguments.profile not in profiles:
        raise exceptions.InvalidInput(
            f'{where}: its profile is {arguments.profile!r}, wanted one of '
            f'{", ".join(profiles)}')
    return store.HostProfile(arguments.host, arguments.profile, overrides,
                             OPERATOR)


def export_(arguments, conf, opened):
    """Return the answer of "profile export" as a dictionary.

    :param opened: returns the Store
    """
    known = switch_profile.profiles(conf.switch_profiles_file)
    name, overrides = arguments.name, {}
    if arguments.host is not None:
        record = {one.host: one for one in opened().host_profiles()}.get(
            arguments.host)
        if record is None:
            raise exceptions.InvalidInput(
                f'host {arguments.host} has no profile in the store, wanted '
                f'one: see "vswitch-manage host list"')
        name = record.profile or conf.default_switch_profile
        overrides = record.overrides
    found = switch_profile.named(name, known)
    if overrides:
        found = found.overridden(overrides, f'host {arguments.host}')
    return {'profile': name, 'overrides': overrides,
            'format': arguments.format,
            'inventory': dataclasses.asdict(export.inventory(found)),
            'text': export.render(found, arguments.format, arguments.device,
                                  arguments.hypervisor,
                                  arguments.directions)}
