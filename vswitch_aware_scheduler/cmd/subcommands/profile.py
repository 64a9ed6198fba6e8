# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage profile: print and check switch profiles."""

import dataclasses

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.vswitch import export
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'print and check switch profiles'


def add_arguments(parser):
    """Add the sub-commands of ``profile``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    output.add_list_arguments(parser.add_command(
        'list', 'print all switch profiles', _list))
    show = parser.add_command('show', 'print one switch profile', _show)
    show.add_argument('name', metavar='NAME')
    validate = parser.add_command(
        'validate', 'check a file of switch profiles', _validate)
    validate.add_argument('file', metavar='FILE').complete = terminal.FILE
    parser.add_command(
        'export', 'print a profile as options of Nova or Neutron', _export
        ).add_later(_add_export_arguments)


def _list(arguments, conf):
    built_in = switch_profile.catalogue()
    profiles = switch_profile.profiles(conf.switch_profiles_file)

    def origin(name):
        if built_in.get(name) is profiles[name] or built_in.get(
                name) == profiles[name]:
            return 'built-in'
        return conf.switch_profiles_file

    def row(name, item):
        saturation = item.saturation_kbps_at()
        return {**item.to_dict(), 'origin': origin(name),
                'published': item.provenance.get('published'),
                'trust': item.provenance.get('trust'),
                'calibration_command': item.calibration_command
                if item.is_measured_elsewhere else None,
                'saturation_kbps_at_typical_packet':
                    saturation and round(saturation),
                'max_instances':
                    item.max_instances and item.max_instances.count}

    column = output.Column
    number = '{:.15g}'.format
    output.print_list(
        arguments, [row(name, item) for name, item in profiles.items()], [
            column('NAME', 'name'), column('SWITCH', 'switch'),
            column('ENCAPSULATION', 'encapsulation'),
            column('SATURATION_KBPS', 'saturation_kbps_at_typical_packet'),
            column('COUNTS', 'saturation_dimension'),
            column('PACKET_RATE_KPPS', 'packet_rate_kpps', number),
            column('LINE_RATE_KBPS', 'line_rate_kbps', number),
            column('MAX_INSTANCES', 'max_instances'),
            column('PUBLISHED', 'published'), column('TRUST', 'trust'),
            column('ORIGIN', 'origin')], 'profiles',
        'profiles. Built-in profiles were measured on other machines; '
        'vswitch-calibrate measures yours')
    return 0


def _show(arguments, conf):
    profiles = switch_profile.profiles(conf.switch_profiles_file)
    item = switch_profile.named(arguments.name, profiles)
    entry = item.to_dict()
    limits = [{'name': limit.name, 'weights': list(limit.weights),
               'capacity': limit.capacity} for limit in item.limits()]
    saturation = item.saturation_kbps_at()
    command = item.calibration_command if item.is_measured_elsewhere else None
    cpu_mhz = saturation and item.cpu_mhz(saturation)
    if output.print_answer(arguments, {
            **entry, 'limits': limits, 'cpu_mhz_at_saturation': cpu_mhz,
            'calibration_command': command}):
        return 0
    sources = entry.pop('sources', {})
    for key, value in entry.items():
        if isinstance(value, dict):
            value = ', '.join(
                f'{_plain(name)}: {_plain(part)}'
                for name, part in value.items())
        elif isinstance(value, float):
            value = f'{value:.15g}'
        terminal.print_line(f'{key}: {value}')
        if key in sources:
            terminal.print_line(f'    source: {sources[key]}')
    if command is not None:
        terminal.print_below('Measured on another machine. To measure yours: '
                             + command)
    if cpu_mhz is not None:
        terminal.print_below(
            f'CPU that switching takes at the saturation of '
            f'{saturation:.0f} kbit/s: {cpu_mhz:.0f} MHz')
    terminal.print_below(
        'Limits on the sum of all instances: weights of egress kbit/s, '
        'ingress kbit/s and kpps')
    terminal.print_table(['LIMIT', 'EGRESS', 'INGRESS', 'PACKETS',
                          'CAPACITY'], [
        [limit['name'], *(f'{weight:g}' for weight in limit['weights']),
         f'{limit["capacity"]:.15g}'] for limit in limits])
    return 0


def _plain(value):
    return f'{value:.15g}' if isinstance(value, float) else str(value)


def _validate(arguments, _conf):
    profiles = switch_profile.load_profiles(arguments.file)
    if not output.print_answer(arguments, {'file': arguments.file,
                                           'profiles': list(profiles)}):
        terminal.print_line(
            f'{arguments.file} is valid: {len(profiles)} profiles: '
            f'{", ".join(profiles)}')
    return 0


def _add_export_arguments(parser):
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('name', metavar='NAME', nargs='?',
                        help='name of a profile')
    source.add_argument('--host', metavar='HOST',
                        help='the profile of this host in the store, with its '
                             'overrides')
    parser.add_argument('--format', choices=export.FORMATS, required=True,
                        help='provider.yaml of nova-compute, or the options '
                             'of an agent of Neutron')
    parser.add_argument('--device', metavar='NAME', action='append',
                        default=[], help='bridge or network device that has '
                        'the bandwidth; several devices share it equally')
    parser.add_argument('--hypervisor', metavar='NAME', default='',
                        help='name of the hypervisor, if it differs from the '
                             'name of the host')
    parser.add_argument('--directions', action='store_true',
                        help='count packets in each direction, as for a '
                             'switch that is offloaded to hardware')


def _export(arguments, conf):
    answer = _exported(arguments, conf)
    if not output.print_answer(arguments, answer):
        terminal.print_text(answer['text'])
    return 0


def _exported(arguments, conf):

    profiles = switch_profile.profiles(conf.switch_profiles_file)
    name, overrides = arguments.name, {}
    if arguments.host is not None:
        record = {record.host: record for record in context.open_store(
            conf).host_profiles()}.get(
            arguments.host)
        if record is None:
            raise exceptions.InvalidInput(
                f'host {arguments.host}: no profile in the store; expected a '
                'host of "vswitch-manage host list"')
        name = record.profile or conf.default_switch_profile
        overrides = record.overrides
    profile = switch_profile.named(name, profiles)
    if overrides:
        profile = profile.overridden(overrides, f'host {arguments.host}')
    return {'profile': name, 'overrides': overrides,
            'format': arguments.format,
            'inventory': dataclasses.asdict(export.inventory(profile)),
            'text': export.render(profile, arguments.format, arguments.device,
                                  arguments.hypervisor,
                                  arguments.directions)}
