# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage profile: prints and checks switch profiles."""

import argparse
import dataclasses

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd.subcommands import host as hosts
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.vswitch import export
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['Export', 'List', 'Show', 'Validate']

_column = base.Column


class List(base.List):
    """Print all switch profiles."""

    rows_key = 'profiles'
    below = ('profiles. Built-in profiles were measured on other machines; '
             'vswitch-calibrate measures yours')
    columns = [
        _column('NAME', 'name'), _column('SWITCH', 'switch'),
        _column('ENCAPSULATION', 'encapsulation'),
        _column('SATURATION_KBPS', 'saturation_kbps_at_typical_packet'),
        _column('COUNTS', 'saturation_dimension'),
        _column('PACKET_RATE_KPPS', 'packet_rate_kpps', '{:.15g}'.format),
        _column('LINE_RATE_KBPS', 'line_rate_kbps'),
        _column('MAX_INSTANCES', 'max_instances'),
        _column('PUBLISHED', 'published'), _column('TRUST', 'trust'),
        _column('ORIGIN', 'origin')]

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the profiles."""
        built_in = switch_profile.catalogue()
        file = self.conf.switch_profiles_file

        def row(name, item):
            saturation = item.saturation_kbps_at()
            return {**item.to_dict(), 'origin': 'built-in'
                    if built_in.get(name) == item else file,
                    'published': item.provenance.get('published'),
                    'trust': item.provenance.get('trust'),
                    'calibration_command': _command(item),
                    'saturation_kbps_at_typical_packet':
                        saturation and round(saturation),
                    'max_instances':
                        item.max_instances and item.max_instances.count}

        return {'profiles': [
            row(name, item) for name, item
            in switch_profile.profiles(file).items()]}


def _command(profile):
    return profile.calibration_command if profile.is_measured_elsewhere \
        else None


class Show(base.Show):
    """Print one switch profile."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('name', metavar='NAME')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the profile and its limits on the sum of all instances."""
        item = switch_profile.named(arguments.name, switch_profile.profiles(
            self.conf.switch_profiles_file))
        saturation = item.saturation_kbps_at()
        return {**item.to_dict(), 'limits': [
            {'name': limit.name, 'weights': list(limit.weights),
             'capacity': limit.capacity} for limit in item.limits()],
            'cpu_mhz_at_saturation': saturation and item.cpu_mhz(saturation),
            'calibration_command': _command(item)}


class Validate(base.Show):
    """Check a file of switch profiles."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('file', metavar='FILE').complete = terminal.FILE

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the names of the profiles."""
        return {'file': arguments.file,
                'profiles': list(switch_profile.load_profiles(arguments.file))}


class Export(base.Command):
    """Print a profile as options of Nova or Neutron."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument('name', metavar='NAME', nargs='?',
                            help='name of a profile')
        source.add_argument('--host', metavar='HOST',
                            help='the profile of this host in the store, '
                                 'with its overrides')
        parser.add_argument('--format', choices=export.FORMATS, required=True,
                            help='provider.yaml of nova-compute, or the '
                                 'options of an agent of Neutron')
        parser.add_argument('--device', metavar='NAME', action='append',
                            default=[], help='bridge or network device that '
                            'has the bandwidth; several devices share it '
                            'equally')
        parser.add_argument('--hypervisor', metavar='NAME', default='',
                            help='name of the hypervisor, if it differs from '
                                 'the name of the host')
        parser.add_argument('--directions', action='store_true',
                            help='count packets in each direction, as for a '
                                 'switch that is offloaded to hardware')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the text, and the inventory that it has."""
        conf = self.conf
        profiles = switch_profile.profiles(conf.switch_profiles_file)
        name, overrides = arguments.name, {}
        if arguments.host is not None:
            record = hosts.stored_profile(self.store, arguments.host)
            name = record.profile or conf.default_switch_profile
            overrides = record.overrides
        profile = switch_profile.named(name, profiles)
        if overrides:
            profile = profile.overridden(overrides, f'host {arguments.host}')
        return {'profile': name, 'overrides': overrides,
                'format': arguments.format,
                'inventory': dataclasses.asdict(export.inventory(profile)),
                'text': export.render(
                    profile, arguments.format, arguments.device,
                    arguments.hypervisor, arguments.directions)}

    def describe(self, answer: dict) -> None:
        """Print the text."""
        terminal.print_text(answer['text'])
