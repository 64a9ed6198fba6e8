# SPDX-License-Identifier: Apache-2.0
"""vswitch-calibrate: measures the capacity of a machine's virtual switch.

Parses arguments, calls the package, prints the answer. See
cli/vswitch-calibrate.rst.
"""

import argparse
import collections
import contextlib
import dataclasses
import datetime
import logging
import os
import pathlib
import re
import signal
import statistics
import sys
import tempfile

import tqdm
import yaml

from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import calibration
from vswitch_aware_scheduler.lab.calibrate import importers
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.calibrate import local_testbed
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import namespaces
from vswitch_aware_scheduler.lab.calibrate import plan as plans
from vswitch_aware_scheduler.lab.calibrate import remote_testbed
from vswitch_aware_scheduler.lab.calibrate import topology as topologies
from vswitch_aware_scheduler.lab.capacity import cost_fit
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab.cmd import arguments as arguments_of
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['main']

PROG = 'vswitch-calibrate'
#: Share of the CPUs that other processes may use by default.
_BUSY = .25
_ENCAPSULATIONS = tuple(cost_model.HEADER_BYTES)
_NUMBERS = re.compile(r'\d+(\.\d+)?')
_SWITCH = ('--switch', 'WORD', str, 'kind of switch to write into the profile',
           'unspecified')


# Arguments

def _whole_numbers(text):
    try:
        return tuple(int(number) for number in text.split(','))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r}; expected a list of whole numbers such as 88,512,1500'
        ) from None


def _percent(text):
    try:
        value = float(text.removesuffix('%'))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(
            f'{text!r}; expected a share of 0 to 100 per cent')
    return value / 100


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command, whose options the manual prints."""
    common = argparse.ArgumentParser(
        add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument('--json', action='store_true',
                        help='print the results as JSON')
    common.add_argument('--debug', action='store_true',
                        help='show the traceback of an error')
    common.add_argument('--state-dir', metavar='DIR',
                        help=f'directory where runs record what they create '
                             f'(default: {namespaces.DEFAULT_STATE_DIR})')
    top = argparse.ArgumentParser(
        prog=PROG, parents=[common],
        description='Measure what the virtual switch of this machine carries '
                    'and write a switch profile.')
    top.add_argument('--version', action='version',
                     version=terminal.version(PROG))
    top.add_argument('--print-completion', action=terminal.PrintCompletion,
                     help='print the script that completes this command in '
                          'a shell')
    commands = top.add_subparsers(metavar='COMMAND', required=True)

    def add_command(name, summary, function):
        parser = commands.add_parser(
            name, parents=[common], help=summary,
            description=f'{summary[0].upper()}{summary[1:]}.')
        parser.set_defaults(function=function)
        return parser

    _add_local(add_command)
    _add_remote(add_command)
    add_command('check', 'print which switches and tunnels this machine can '
                'create', _check)
    add_command('clean', 'remove network namespaces that interrupted runs '
                'left', _clean)
    _add_import(add_command)
    return top


def _add_local(add_command):
    local = add_command(
        'local', 'measure a switch in network namespaces of this machine',
        _local)
    local.add_argument(
        '--switch', choices=topologies.SWITCHES, default='linuxbridge',
        help='kind of switch (default: linuxbridge)')
    local.add_argument(
        '--encapsulation', choices=topologies.ENCAPSULATIONS, default='none',
        help='encapsulation of the tunnel between the hosts (default: none)')
    local.add_argument(
        '--no-offload', action='store_true',
        help='disable segmentation and checksum offload in the simulated VMs')
    _add_plan(local)
    _add_output(local)


def _add_remote(add_command):
    remote = add_command(
        'remote', 'measure the switches between machines that SSH reaches',
        _remote)
    for flag, name, text, options in (
            ('--sender', 'USER@HOST', 'machine that sends',
             {'required': True}),
            ('--receiver', 'USER@HOST[=ADDRESS]', 'machine that receives, '
             'with its address in the measured network if SSH uses a '
             'different one', {'required': True}),
            ('--ssh-option', 'OPTION', 'option for ssh -o, for example '
             'Port=2222', {'default': []})):
        remote.add_argument(
            flag, action='append', metavar=name, **options,
            help=f'{text}; may be given several times')
    arguments_of.add_options(remote, _SWITCH)
    remote.add_argument(
        '--encapsulation', choices=_ENCAPSULATIONS, default='none',
        help='encapsulation to write into the profile (default: none)')
    _add_plan(remote)
    _add_output(remote)


def _add_import(add_command):
    importing = add_command(
        'import', 'create a profile from results measured elsewhere', _import)
    importing.add_argument(
        '--format', choices=sorted(importers.FORMATS), required=True,
        help='format of the files')
    importing.add_argument(
        '--encapsulation', choices=_ENCAPSULATIONS,
        help='encapsulation, if the files do not state it')
    importing.add_argument(
        '--deployment', choices=importers.PASSES,
        help='use the rows of VSPERF with this deployment')
    arguments_of.add_options(
        importing, _SWITCH,
        ('--pairs', 'N', int, 'number of senders (default: 1)', 1),
        ('--mtu', 'BYTES', int, 'largest IP packet of the tested path; larger '
         'datagrams of iperf3 were sent in fragments (default: '
         f'{iperf.STANDARD_MTU})', iperf.STANDARD_MTU),
        ('--streams', 'N', int, 'use the rows of VSPERF with this number of '
         'streams (default: the slowest of each size)'))
    importing.add_argument('file', nargs='+', metavar='FILE')
    _add_output(importing)


def _add_plan(parser):
    parser.add_argument(
        '--quick', action='store_true',
        help='quick run of about one minute: few sizes and pairs, one '
             'repetition, samples of one second')
    arguments_of.add_options(
        parser,
        ('--sizes', 'N,...', _whole_numbers, 'sizes of IP packets in bytes '
         f'(default: {",".join(map(str, plans.SIZES))})'),
        ('--pairs', 'N,...', _whole_numbers, 'numbers of sender-receiver '
         'pairs that send at the same time (default: '
         f'{",".join(map(str, plans.PAIRS))})'),
        ('--seconds', 'N', int, 'duration of one sample (default: 5)'),
        ('--repeats', 'N', int, 'number of times that the network is created '
         'and measured (default: 3)'),
        ('--receivers', 'N', int, 'number of receivers in the test of one '
         'sender with several receivers; 0 omits the test (default: 3)'),
        ('--max-busy', 'PERCENT', _percent, 'reject a sample if other '
         'processes or machines used more than this share of the CPUs '
         '(default: 25)', _BUSY),
        ('--retries', 'N', int, 'number of times that a rejected sample is '
         'repeated (default: 3)', 3),
        ('--journal', 'PATH', str, 'record samples in this file; the same '
         'command continues an interrupted run'))


def _add_output(parser):
    arguments_of.add_options(
        parser, ('--output', 'PATH', str, 'write the profile to this YAML '
                 'file'),
        ('--name', 'WORD', str, 'name of the profile'))


def _plan(arguments):
    quick = arguments.quick
    defaults = {'sizes': plans.QUICK_SIZES if quick else plans.SIZES,
                'pairs': plans.QUICK_PAIRS if quick else plans.PAIRS,
                'seconds': 1 if quick else 5, 'repeats': 1 if quick else 3,
                'receivers': 3}
    checks.check('retries', arguments.retries, checks.whole(0, 100))
    return plans.Plan(**{
        name: value if getattr(arguments, name) is None
        else getattr(arguments, name) for name, value in defaults.items()})


# Output

def _say(text):
    terminal.say(PROG, text)


@contextlib.contextmanager
def _progress():
    """Give a callback (text, share done, seconds left)."""
    if not sys.stderr.isatty():
        def print_line(text, share, seconds):
            _say(f'{share:4.0%}, {_duration(seconds)} left: {text}')
        yield print_line
        return
    with tqdm.tqdm(total=100, file=sys.stderr, leave=False,
                   bar_format='{percentage:3.0f}%|{bar:20}| {desc}') as bar:
        def show(text, share, seconds):
            bar.set_description_str(f'{_duration(seconds)} left, {text}')
            bar.update(100 * share - bar.n)
        yield show


def _duration(seconds):
    minutes, remainder = divmod(round(max(seconds, 0)), 60)
    return f'{minutes} min {remainder} s' if minutes else f'{remainder} s'


def _check_output(arguments, name):
    """Raise an error if a profile cannot be written at the end.

    Other profiles that are in the file must not be lost.
    """
    # An invalid name is reported before the work starts.
    switch_profile.SwitchProfile(name, switch=arguments.switch,
                                 line_rate_kbps=1)
    if not arguments.output:
        return
    path = pathlib.Path(arguments.output)
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise exceptions.InvalidInput(
            f'output: {arguments.output!r}; expected a file in a folder that '
            f'can be written')
    if path.exists():
        other_names = set(switch_profile.load_profiles(path)) - {name}
        if other_names:
            raise exceptions.InvalidInput(
                f'file {path} has other profiles ({", ".join(other_names)}); '
                f'expected a new file, or one with only {name}')


def _write_profile(path, profile):
    path = pathlib.Path(path)
    entry = profile.to_dict()
    del entry['name']
    text = (f'# Written by {PROG}; see provenance.\n'
            + yaml.safe_dump({profile.name: entry}, sort_keys=False,
                             allow_unicode=True))
    with tempfile.NamedTemporaryFile(
            'w', dir=path.parent, prefix=path.name, delete=False,
            encoding='utf-8') as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


# Sub-commands: each has the arguments as parameter, prints its answer and
# returns the exit status.

def _state_dir(arguments):
    return arguments.state_dir or namespaces.DEFAULT_STATE_DIR


def _remove_leftovers(arguments):
    removed = namespaces.remove_leftovers(_state_dir(arguments))
    for run in removed:
        _say(f'removed what the interrupted run {run} left behind')
    return removed


def _clean(arguments):
    local_testbed.check()
    removed = _remove_leftovers(arguments)
    if arguments.json:
        terminal.print_json({'removed_runs': removed})
    elif not removed:
        terminal.print_line('Nothing was left behind.')
    return 0


def _check(arguments):
    local_testbed.check()
    _remove_leftovers(arguments)
    answer = []
    with namespaces.NamespaceRun(['probe'], _state_dir(arguments)) as run:
        for switch in topologies.SWITCHES:
            for encapsulation in topologies.ENCAPSULATIONS:
                try:
                    reason = topologies.cannot(run, switch, encapsulation)
                except exceptions.CalibrationError as error:
                    reason = str(error)
                answer.append({'switch': switch,
                               'encapsulation': encapsulation,
                               'possible': reason is None,
                               'reason': reason})
    if arguments.json:
        terminal.print_json({'machine': machine.facts(), 'topologies': answer})
        return 0
    for line in answer:
        terminal.print_line(
            f'{line["switch"]:12} {line["encapsulation"]:8} '
            f'{"yes" if line["possible"] else "no: " + line["reason"]}')
    return 0


def _where(tool, topology):
    return {'date': _now(), 'tool': tool, **machine.facts(),
            'switch_version': topology.version(),
            'iperf_version': iperf.version(), 'nic': 'veth',
            'mtu': topology.mtu,
            'offloads': ('segmentation and checksum of veth'
                         if topology.offload else 'none')}


def _now():
    return datetime.datetime.now(datetime.timezone.utc).strftime(
        '%Y-%m-%dT%H:%M:%SZ')


def _local(arguments):
    plan = _plan(arguments)
    local_testbed.check()
    _remove_leftovers(arguments)
    name = arguments.name or \
        f'calibrated-{arguments.switch}-{arguments.encapsulation}'
    _check_output(arguments, name)
    with namespaces.NamespaceRun(topologies.names(plan.vms),
                                 _state_dir(arguments)) as run:
        reason = topologies.cannot(run, arguments.switch,
                                   arguments.encapsulation)
        if reason:
            raise exceptions.CalibrationError(reason)
        topology = topologies.Topology(
            run, arguments.switch, arguments.encapsulation, plan.vms,
            plan.mtu, not arguments.no_offload)
        where = _where(f'{PROG} local', topology)
        place = local_testbed.LocalPlace(topology, plan)
        samples = _samples(arguments, plan, place, {
            'switch': arguments.switch, 'offload': topology.offload,
            **{key: where[key] for key in (
                'kernel', 'cpu_cores', 'switch_version', 'iperf_version')}})
    return _conclude(arguments, plan, samples, calibration.Subject(
        name, topologies.FAMILIES[arguments.switch], arguments.encapsulation,
        where,
        f'{arguments.switch} of this machine, encapsulation '
        f'{arguments.encapsulation}, measured in network namespaces with UDP '
        f'of one to {max(plan.pairs)} senders in one direction, counted for '
        f'both together. Senders, receivers and the switches of both hosts '
        f'shared its CPUs, so a host of its own carries more.',
        machine.mhz()), _without_ping(place, 'this machine'))


def _samples(arguments, plan, place, setting):
    """Take the samples, and continue those of the journal."""
    journal = calibration.Journal(arguments.journal, {
        'encapsulation': arguments.encapsulation, 'ping': place.can_ping(),
        'plan': plan.to_dict(), **setting})
    with _progress() as progress:
        return calibration.Calibration(
            place, plan, arguments.max_busy, arguments.retries, journal,
            progress).run()


def _without_ping(place, where):
    return [] if place.can_ping() else [
        f'round trip times: the program ping is not installed on {where}, '
        f'install the package iputils-ping']


def _remote(arguments):
    plan = _plan(arguments)
    machine.need_program('ssh')
    name = arguments.name or f'calibrated-remote-{arguments.encapsulation}'
    _check_output(arguments, name)
    place = remote_testbed.RemotePlace(
        [remote_testbed.Host.parse(text) for text in arguments.sender],
        [remote_testbed.Host.parse(text) for text in arguments.receiver],
        plan.vms,
        [argument for option in arguments.ssh_option
         for argument in ('-o', option)])
    place.check()
    link = place.link()
    plan = plan.within(link['mtu'], explicit=arguments.sizes is not None)
    versions = place.versions()
    if len(set(versions.values())) > 1:
        _say('iperf3 of senders and receivers: '
             + ' and '.join(versions.values())
             + '; the rates are those that the receivers counted')
    missing = ['same host: between machines there is none',
               *_without_ping(place, 'the first sender')]
    where = {'date': _now(), 'tool': f'{PROG} remote', **link,
             **versions, 'senders': len(arguments.sender),
             'receivers': len(arguments.receiver)}
    samples = _samples(arguments, plan, place, {
        'sender': arguments.sender, 'receiver': arguments.receiver,
        **versions, **{key: link.get(key) for key in ('nic', 'mtu', 'kernel')}
    })
    return _conclude(arguments, plan, samples, calibration.Subject(
        name, arguments.switch, arguments.encapsulation, where,
        'Measured between machines with UDP in one direction, counted for '
        'both together. CPU is that of senders and receivers together.',
        link.get('cpu_mhz'), link['speed_mbps'] * 1000), missing)


def _conclude(arguments, plan, samples, subject, missing):
    rejected = [sample.reason for sample in samples if not sample.kept]
    others = statistics.median(
        sample.others_share or 0.0 for sample in samples) if samples else 0.0
    subject = dataclasses.replace(subject, where={
        **subject.where, 'samples_kept': len(samples) - len(rejected),
        'samples_rejected': len(rejected), 'others_share': round(others, 3)})
    if others > _BUSY:
        _say(f'other processes or machines used {others:.0%} of the CPUs, the '
             f'median of all samples; an idle machine carries more')
    if rejected:
        reason, count = collections.Counter(
            _NUMBERS.sub('N', reason) for reason in rejected).most_common(1)[0]
        _say(f'{len(rejected)} of {len(samples)} samples were rejected, '
             f'{count} of them because: {reason}')
    answer = _answer(arguments, plan, samples, subject.where, missing)
    try:
        profile = calibration.make_profile(
            calibration.figures(samples), plan, subject)
    except exceptions.CalibrationError:
        # The samples explain the error: print them anyway.
        if arguments.json:
            terminal.print_json(answer)
        raise
    return _finish(arguments, answer, profile)


def _answer(arguments, plan, samples, where, missing):
    entries = calibration.figures(samples)
    rows = calibration.measurements(entries, arguments.encapsulation)
    without = sorted({str(sample.cell) for sample in samples}
                     - {str(_cell_of(entry)) for entry in entries})
    missing = missing + [f'{cell}: every sample was rejected'
                         for cell in without]
    for text in missing:
        _say(f'not measured: {text}')
    answer = {
        'switch': arguments.switch, 'encapsulation': arguments.encapsulation,
        'machine': where, 'plan': plan.to_dict(), 'cannot': missing,
        'packet_rate_kpps': None, 'saturation_kbps': None,
        'figures': [
            {key: entry[key] for key in (
                'packet_bytes', 'pairs', 'packet_rate_kpps',
                'saturation_kbps', 'cpu_us_per_packet', 'loss_at_peak',
                'loss_unlimited', 'builds', 'spread')}
            for entry in calibration.cross_cells(entries)],
        'other_figures': [entry for entry in entries
                          if entry not in calibration.cross_cells(entries)],
        'capacity': None, 'contradictions': [],
        'reproducibility': calibration.verdict(entries),
        'kept': sum(sample.kept for sample in samples),
        'rejected': sum(not sample.kept for sample in samples),
        'samples': [dataclasses.asdict(sample) for sample in samples]}
    if rows:
        answer['capacity'] = cost_fit.fit_capacity(rows).to_dict()
        answer['contradictions'] = cost_fit.contradictions(
            calibration.measurements(calibration.cross_cells(entries),
                                     arguments.encapsulation), .10)
    return answer


def _cell_of(entry):
    return plans.Cell(*(entry[field.name]
                        for field in dataclasses.fields(plans.Cell)))


def _finish(arguments, answer, profile):
    """Add the profile to the answer, write it and print."""
    answer['profile'] = profile.to_dict()
    answer['packet_rate_kpps'] = profile.packet_rate_kpps
    answer['saturation_kbps'] = profile.saturation_kbps_at()
    if arguments.output:
        _write_profile(arguments.output, profile)
        _say(f'wrote profile {profile.name} to {arguments.output}')
    if arguments.json:
        terminal.print_json(answer)
        return 0
    terminal.print_table(
        ['BYTES', 'PAIRS', 'KPPS', 'KBPS', 'LOSS', 'SPREAD'],
        [[f'{line["packet_bytes"]:g}', line['pairs'],
          f'{line["packet_rate_kpps"]:.2f}', f'{line["saturation_kbps"]:.0f}',
          terminal.cell(line.get('loss_at_peak'), '.1%'),
          terminal.cell(line.get('spread'), '.1%')]
         for line in answer['figures']])
    for entry in answer.get('other_figures', ()):
        value = (f'{entry["rtt_ms"]:.3f} ms' if entry['kind'] == 'rtt'
                 else f'{entry["saturation_kbps"]:.0f} kbit/s')
        terminal.print_line(f'{_cell_of(entry)}: {value}')
    terminal.print_below(
        f'Packet rate {profile.packet_rate_kpps:.1f} kpps, saturation '
        f'{profile.saturation_kbps_at():.0f} kbit/s in packets of '
        f'{profile.typical_packet_bytes:g} bytes')
    if 'rejected' in answer:
        terminal.print_line(
            f'Samples: {answer["kept"]} kept, {answer["rejected"]} '
            f'rejected. Reproducible: '
            f'{answer["reproducibility"]["words"]}')
    for text in answer['contradictions']:
        terminal.print_line(f'It contradicts itself: {text}')
    return 0


def _import(arguments):
    _check_output(arguments, arguments.name or f'imported-{arguments.format}')
    setting = importers.Setting(
        arguments.encapsulation, arguments.pairs, arguments.mtu,
        arguments.deployment, arguments.streams)
    results = [importers.load(arguments.format, path, setting)
               for path in arguments.file]
    for result in results:
        for remark in result.remarks:
            _say(remark)
    rows = [row for result in results for row in result.measurements]
    profile = importers.make_profile(
        results, arguments.name or f'imported-{arguments.format}',
        arguments.switch, f'{PROG} import, {arguments.format}',
        [os.path.basename(path) for path in arguments.file])
    answer = {
        'figures': [{
            'packet_bytes': row.packet_bytes, 'pairs': row.pairs,
            'encapsulation': row.encapsulation, 'packet_rate_kpps': row.kpps,
            'saturation_kbps': row.rate_kbps} for row in rows],
        'capacity': cost_fit.fit_capacity(rows).to_dict(),
        'contradictions': cost_fit.contradictions(rows, .10)}
    return _finish(arguments, answer, profile)


def _interrupt(number, _frame):
    raise SystemExit(128 + number)


def main(argv: list | None = None):
    """Run the command.

    :returns: exit status: 0 on success, 1 after an error, which is printed on
        standard error; an invalid command line exits with 2 by SystemExit
    """
    arguments = argparse.Namespace(json=False, debug=False, state_dir=None)

    def command():
        parser().parse_args(argv, arguments)
        logging.getLogger().addHandler(logging.NullHandler())
        before = {}
        with contextlib.suppress(ValueError):   # not in the main thread
            for kind in (signal.SIGTERM, signal.SIGHUP):
                before[kind] = signal.signal(kind, _interrupt)
        try:
            return arguments.function(arguments)
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    return terminal.run(PROG, command, lambda: arguments.debug)


if __name__ == '__main__':
    sys.exit(main())
