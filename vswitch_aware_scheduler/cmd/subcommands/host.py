# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage host: manages the switch profiles of hosts."""

import dataclasses
import re

from vswitch_aware_scheduler.clients import neutron
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.modeler import host_discovery
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['OPERATOR', 'SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'print and set the switch profiles of hosts'

#: Source of the records that an operator wrote.
OPERATOR = 'operator'

_HOST_NAME = re.compile(r'[A-Za-z0-9._:@-]{1,255}')


def add_arguments(parser):
    """Add the sub-commands of ``host``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    discover = parser.add_command(
        'discover', 'propose profiles from the reports of Neutron agents',
        _discover)
    discover.add_later(_add_discover_arguments)
    output.add_list_arguments(parser.add_command(
        'list', 'print the profiles of hosts in the store', _list), 'host')
    parser.add_command('set', 'set the profile of a host', _set
                       ).add_later(_add_set_arguments)
    remove = parser.add_command(
        'remove', 'remove the profile of a host from the store', _remove)
    remove.add_argument('host', metavar='HOST')


def _add_discover_arguments(parser):
    """Add the arguments of "host discover"."""
    output.add_list_arguments(parser, 'host')
    parser.add_argument(
        '--map', metavar='SWITCH[:ENCAPSULATION]=PROFILE', action='append',
        default=[], help='profile for a kind of switch, instead of the '
                         'built-in one; may be given several times')
    parser.add_argument('--apply', action='store_true',
                        help='write the proposals to the store')
    parser.add_argument('--force', action='store_true',
                        help='also replace profiles from other sources, for '
                             'example those that an operator set')


def _add_set_arguments(parser):
    """Add the arguments of "host set"."""
    parser.add_argument('host', metavar='HOST')
    parser.add_argument('profile', metavar='PROFILE', nargs='?',
                        help='name of a profile (default: the value of the '
                             'option default_switch_profile)')
    parser.add_argument('--override', metavar='KEY=NUMBER', action='append',
                        default=[], help='value of the profile that differs '
                        'on this host; may be given several times')


def _proposals(arguments, conf, opened):
    """Return the answer of "host discover" as a dictionary.

    :param opened: callable(), returns the Store, or None if there is none yet
        and nothing has to be written; called after Neutron has answered
    """
    profiles = switch_profile.profiles(
        conf[options.GROUP].switch_profiles_file)
    mapping = discovery.parse_mapping(arguments.map, profiles)
    # Imported late: it imports all of the modeler.
    from vswitch_aware_scheduler.modeler import wiring
    agents = neutron.read_agents(wiring.neutron_access(
        conf, 'host discover queries Neutron'))
    target = opened()
    proposals = [proposal for proposal in discovery.propose(
        agents, profiles, mapping,
        target and host_discovery.virtual_functions(target))
        if arguments.host in (None, proposal.host)]
    if arguments.apply:
        steps = host_discovery.apply(target, proposals, arguments.force)
    else:
        steps = host_discovery.plan(
            [] if target is None else target.host_profiles(),
            proposals,
            arguments.force,
        )
    return {'applied': arguments.apply, 'hosts': [
        {**dataclasses.asdict(proposal), 'action': step.action,
         'before': step.before and dataclasses.asdict(step.before)}
        for proposal, step in zip(proposals, steps)]}


def _discover_columns():
    """Return the columns of an answer of :func:`_proposals`."""
    return [output.Column('HOST', 'host'), output.Column('PROFILE', 'profile'),
            output.Column('OVERRIDES', 'overrides', _numbers),
            output.Column('ACTION', 'action'),
            output.Column('STORED', 'before', lambda before: (
                f'{before["profile"] or "-"} ({before["source"]})')),
            output.Column('REASON', 'reason')]


def _remarks(answer):
    """Return the remarks of an answer, and a sentence for each kept record."""
    remarks = [f'{host["host"]}: {remark}' for host in answer['hosts']
               for remark in host['remarks']]
    return remarks + [
        f'{host["host"]}: what {host["before"]["source"]} wrote stays; '
        f'--force replaces it'
        for host in answer['hosts'] if host['action'] == 'kept']


def _numbers(overrides):
    return ', '.join(f'{key}={value:.15g}' for key, value
                     in sorted(overrides.items())) or '-'


def _list_columns():
    """Return the columns of the HostProfiles of a store."""
    return [output.Column('HOST', 'host'), output.Column('PROFILE', 'profile'),
            output.Column('OVERRIDES', 'overrides', _numbers),
            output.Column('SOURCE', 'source'),
            output.Column('UPDATED', 'updated_at_iso')]


def _profile_of(arguments, conf):
    """Return the HostProfile that "host set" has to write."""
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
            f'{where}: neither a profile nor an override is given; expected '
            f'one of them')
    if arguments.profile is not None and arguments.profile not in profiles:
        raise exceptions.InvalidInput(
            f'{where}: profile: {arguments.profile!r}; expected one of '
            f'{", ".join(profiles)}')
    return store.HostProfile(arguments.host, arguments.profile, overrides,
                             OPERATOR)


def _discover(arguments, conf):
    def opened():
        if arguments.apply:
            return context.open_or_make_store(conf)
        return (None if migration.is_new_file(conf.store_url)
                else context.open_store(conf))

    answer = _proposals(arguments, arguments.all_options, opened)
    output.print_list(arguments, answer['hosts'], _discover_columns(),
                      'hosts', other_keys={'applied': answer['applied']})
    if arguments.output_format not in (None, 'table'):
        return 0
    terminal.print_remarks('Remarks', _remarks(answer))
    if not arguments.apply:
        terminal.print_below(
            'Nothing was written: --apply writes what is new or changed')
    return 0


def _list(arguments, conf):
    profiles = context.open_store(conf).host_profiles()
    output.print_list(arguments,
                      [dataclasses.asdict(profile) for profile in profiles],
                      _list_columns(), 'hosts')
    return 0


def _set(arguments, conf):
    record = _profile_of(arguments, conf)
    target = context.open_or_make_store(conf)
    generation = target.write(host_profiles=[record])
    problem = facts.hosts_not_in_nova(target, [record])
    if problem is not None:
        context.say(problem)
    return _written(arguments, record.host, generation)


def _remove(arguments, conf):
    target = context.open_store(conf)
    if arguments.host not in [profile.host
                              for profile in target.host_profiles()]:
        raise exceptions.InvalidInput(
            f'store {target.url} has no profile of host {arguments.host}; '
            f'expected a host in the list that "vswitch-manage host list" '
            f'prints')
    return _written(arguments, arguments.host,
                    target.write(remove_hosts=[arguments.host]))


def _written(arguments, host, generation):
    if not output.print_answer(arguments, {
            'host': host, 'generation': generation.number}):
        terminal.print_line(
            f'Host {host}: written as generation {generation.number}.')
    return 0
