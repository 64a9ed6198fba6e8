# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage host: manages the switch profiles of hosts."""

import argparse
import dataclasses
import re

from vswitch_aware_scheduler.clients import neutron
from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.modeler import host_discovery
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['Discover', 'List', 'OPERATOR', 'Remove', 'Set', 'stored_profile']

#: Source of the records that an operator wrote.
OPERATOR = 'operator'

_HOST_NAME = checks.Kind(
    'its name in Nova, as "openstack compute service list" prints it: '
    'letters, digits and . _ - : @, at most 255',
    re.compile(r'[A-Za-z0-9._:@-]{1,255}').fullmatch)

_column = base.Column


def _numbers(overrides):
    return ', '.join(f'{key}={value:.15g}' for key, value
                     in sorted(overrides.items())) or '-'


class Discover(base.List):
    """Propose profiles from the reports of Neutron agents."""

    rows_key = 'hosts'
    filters = ('host',)
    columns = [
        _column('HOST', 'host'), _column('PROFILE', 'profile'),
        _column('OVERRIDES', 'overrides', _numbers),
        _column('ACTION', 'action'), _column(
            'STORED', 'before', lambda before: (
                f'{before["profile"] or "-"} ({before["source"]})')),
        _column('REASON', 'reason')]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            '--map', metavar='SWITCH[:ENCAPSULATION]=PROFILE', action='append',
            default=[], help='profile for a kind of switch, instead of the '
                             'built-in one; may be given several times')
        parser.add_argument('--apply', action='store_true',
                            help='write the proposals to the store')
        parser.add_argument('--force', action='store_true',
                            help='also replace profiles from other sources, '
                                 'for example those that an operator set')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the proposals, and what is or would be done with each."""
        conf = self.conf
        profiles = switch_profile.profiles(conf.switch_profiles_file)
        mapping = discovery.parse_mapping(arguments.map, profiles)
        agents = neutron.read_agents(wiring.neutron_access(
            self.all_options, 'host discover queries Neutron'))
        # Neutron has answered: only now is a store created.
        if arguments.apply:
            target = context.open_or_make_store(conf)
        else:
            target = None if migration.is_new_file(conf.store_url) \
                else self.store
        proposals = [proposal for proposal in discovery.propose(
            agents, profiles, mapping,
            target and host_discovery.virtual_functions(target))
            if arguments.host in (None, proposal.host)]
        if arguments.apply:
            steps = host_discovery.apply(target, proposals, arguments.force)
        else:
            steps = host_discovery.plan(
                [] if target is None else target.host_profiles(), proposals,
                arguments.force)
        return {'applied': arguments.apply, 'hosts': [
            {**dataclasses.asdict(proposal), 'action': step.action,
             'before': step.before and dataclasses.asdict(step.before)}
            for proposal, step in zip(proposals, steps)]}

    def describe(self, answer: dict, rows: list) -> None:
        """Print remarks on the proposals."""
        terminal.print_remarks('Remarks', [
            f'{host["host"]}: {remark}' for host in answer['hosts']
            for remark in host['remarks']] + [
                f'{host["host"]}: what {host["before"]["source"]} wrote '
                f'stays; --force replaces it' for host in answer['hosts']
                if host['action'] == 'kept'])
        if not answer['applied']:
            terminal.print_below(
                'Nothing was written: --apply writes what is new or changed')


class List(base.List):
    """Print the profiles of hosts in the store."""

    rows_key = 'hosts'
    filters = ('host',)
    columns = [
        _column('HOST', 'host'), _column('PROFILE', 'profile'),
        _column('OVERRIDES', 'overrides', _numbers),
        _column('SOURCE', 'source'), _column('UPDATED', 'updated_at_iso')]

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the profiles of hosts."""
        return {'hosts': list(map(dataclasses.asdict,
                                  self.store.host_profiles()))}


def stored_profile(target: store.Store, host: str) -> store.HostProfile:
    """Return the profile of a host in the store, or raise NotInList."""
    for profile in target.host_profiles():
        if profile.host == host:
            return profile
    raise exceptions.NotInList(
        thing=f'profile of a host in the store {target.url}', value=host,
        expected='a host', command='vswitch-manage host list')


def _profile_of(arguments, conf):
    """Return the HostProfile that "host set" has to write."""
    checks.check('host', arguments.host, _HOST_NAME)
    where = f'host {arguments.host}'
    overrides = {}
    for text in arguments.override:
        key, _, value = text.partition('=')
        overrides[key] = switch_profile.override_number(key, value, where)
    profiles = switch_profile.profiles(conf.switch_profiles_file)
    if arguments.profile is None and not overrides:
        raise exceptions.InvalidInput(
            thing=where, seen='neither a profile nor an override is given',
            expected='one of them')
    checks.check(f'{where}: profile', arguments.profile,
                 checks.one_of(profiles, default=None))
    return store.HostProfile(arguments.host, arguments.profile, overrides,
                             OPERATOR)


class Set(base.Show):
    """Set the profile of a host."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('host', metavar='HOST')
        parser.add_argument('profile', metavar='PROFILE', nargs='?',
                            help='name of a profile (default: the value of '
                                 'the option default_switch_profile)')
        parser.add_argument('--override', metavar='KEY=NUMBER',
                            action='append', default=[],
                            help='value of the profile that differs on this '
                                 'host; may be given several times')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Write the profile; return it and the generation."""
        record = _profile_of(arguments, self.conf)
        target = context.open_or_make_store(self.conf)
        generation = target.write(host_profiles=[record])
        problem = facts.hosts_not_in_nova(target, [record])
        if problem is not None:
            context.say(problem)
        return {'host': record.host, 'profile': record.profile,
                'overrides': record.overrides,
                'generation': generation.number}


class Remove(base.Show):
    """Remove the profile of a host; the default profile then applies."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('host', metavar='HOST')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Remove the profile; return what applied and what applies now."""
        before = stored_profile(self.store, arguments.host)
        generation = self.store.write(remove_hosts=[arguments.host])
        return {'host': arguments.host, 'removed_profile': before.profile,
                'removed_overrides': before.overrides,
                'default_profile': self.conf.default_switch_profile or None,
                'generation': generation.number}
