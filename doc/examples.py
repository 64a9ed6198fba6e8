# SPDX-License-Identifier: Apache-2.0
"""Run the examples of the manual and write what they print into it.

Of each page in PAGES, every block with lines such as ``$ vswitch-manage db
sync`` is run from top to bottom in this process, on a small store, and what
follows each such line is replaced by what the command prints. A block
after the comment ``.. not run`` stays as it is. Where the output had a line
``...``, as many lines as before stay above and below it.

``tox -e examples`` runs this; with ``--check`` it only compares.
"""

import contextlib
import importlib.metadata
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from unittest import mock

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.cmd import modeler
from vswitch_aware_scheduler.cmd import status
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.vswitch import profile

SOURCE = pathlib.Path(__file__).resolve().parent / 'source'
ETC = SOURCE.parents[1] / 'etc/vswitch_aware_scheduler'

#: Pages in the order in which they are run; those of one tuple share a store.
PAGES = (
    tuple(f'cli/vswitch-manage{name}.rst' for name in (
        '', '-db', '-fit', '-model', '-prior', '-fleet', '-profile', '-host',
        '-size', '-gateway', '-capacity')),
    ('cli/vswitch-modeler.rst',), ('cli/vswitch-status.rst',),
    ('cli/evaluate.rst',), ('user/servers.rst',))

COMMANDS = {'vswitch-manage': manage.main, 'vswitch-modeler': modeler.main,
            'vswitch-status': status.main}

#: Where the store is in the manual.
SHOWN_DIRECTORY = '/var/lib/vswitch_aware_scheduler'

#: Number of the characters that tempfile adds to a prefix.
_RANDOM = 8

#: 2026-02-03T04:05:06Z: no example looks at a clock. Nor at the secret of its
#: store, which differs from run to run.
NOW = 1770091506.0

INSTANCES, SAMPLES, PERIOD = 24, 1152, 300


_RATES_CSV = """packet_bytes,rate_kbps
88,235000
256,650000
512,1230000
1024,2290000
1500,3150000
"""


def directory():
    """Make a temporary directory with a path as long as the shown one.

    Otherwise the widths of tables would depend on it.
    """
    for parent in (tempfile.gettempdir(), '/tmp'):
        room = len(SHOWN_DIRECTORY) - len(f'{parent}/') - _RANDOM
        if room >= 0:
            break
    return tempfile.TemporaryDirectory(prefix='x' * room, dir=parent)


class Place:
    """A directory with what the examples read, and the store they share."""

    def __init__(self, directory):
        self.directory = directory
        self.url = f'sqlite:///{directory}/vswitch.sqlite'
        self.config = os.path.join(directory, 'vswitch.conf')
        self.write('vswitch.conf', f"""[vswitch_scheduler]
store_url = {self.url}
telemetry_driver = file
telemetry_path = traffic.csv
""")
        self.write('my-profiles.yaml', 'rack-7: {saturation_kbps: 5000000}\n')
        self.write('rates.csv', _RATES_CSV)
        for name in ('server_types.yaml', 'mix.yaml'):
            self.write(name, (ETC / f'{name}.sample').read_text())
        self.write('traffic.csv', _traffic())

    def write(self, name, text):
        """Write a file that commands read."""
        (pathlib.Path(self.directory) / name).write_text(text)

    def prepare(self, words):
        """Make what a command shows: others than commands write it."""
        if words == ['check']:
            for line in ('db sync', 'fit --path traffic.csv',
                         'host set compute1 ovs-vxlan'):
                run(self, f'vswitch-manage {line}')
            return
        if not os.path.exists(f'{self.directory}/vswitch.sqlite'):
            return
        target = store.Store(self.url)
        if words[:1] == ['fit']:
            target.write(placements=[
                store.InstanceRecord(
                    telemetry_file.instance_uuid(number),
                    f'compute{number % 3 + 1}',
                    '4c16g' if number % 2 else '2c4g',
                    f'project-{number % 4}')
                for number in range(1, INSTANCES + 1)], now=NOW)
        elif words[:1] == ['fleet']:
            policy = admission.HostPolicy(
                profile.SwitchProfile('rack-7', saturation_kbps=60000.0))
            target.write(now=NOW, inventory=store.InventoryState(
                'nova', NOW, NOW))
            target.write_fleet({
                'aggregate': {}, 'flavor': {'2c4g': {}, '4c16g': {}},
                'uplink': {}, 'host': {f'compute{number}': {
                    **policy_in_force.pack(policy),
                    'origins': {'profile': 'aggregate rack 7'}}
                    for number in (1, 2, 3)}}, NOW)


def _traffic():
    """Return a CSV file of instances that are on and off."""
    generator = np.random.default_rng(1)
    lines = ['instance,time,egress_kbps,ingress_kbps']
    for number in range(1, INSTANCES + 1):
        on = generator.random(SAMPLES) < .2
        rates = np.where(on[:, None], generator.integers(
            2000, 9000, (SAMPLES, 2)), generator.integers(
                10, 100, (SAMPLES, 2)))
        if number == INSTANCES:
            # Silent: no model can be fitted.
            rates[:] = 0
        lines += [f'{number},{NOW - PERIOD * (SAMPLES - at):.0f},'
                  f'{egress},{ingress}'
                  for at, (egress, ingress) in enumerate(rates.tolist())]
    return '\n'.join(lines) + '\n'


_installed_version = importlib.metadata.version


def _version(name):
    return '34.0.0' if name == 'nova' else _installed_version(name)


def run(place, line):
    """Return what a command line prints, as a list of lines."""
    words = shlex.split(line)
    if words[0] not in COMMANDS:
        done = subprocess.run(
            line, shell=True, cwd=place.directory, capture_output=True,
            text=True)
        return (done.stdout + done.stderr).splitlines()
    place.prepare(words[1:])
    output = io.StringIO()
    before = os.getcwd()
    os.chdir(place.directory)
    try:
        with contextlib.redirect_stdout(output), \
                contextlib.redirect_stderr(output), \
                mock.patch('time.time', lambda: NOW), \
                mock.patch('importlib.metadata.version', _version), \
                mock.patch.object(store.Store, 'secret', lambda self: b''), \
                mock.patch.object(status.Checks.__init__, '__defaults__',
                                  (lambda: NOW + 8, ())):
            COMMANDS[words[0]](['--config-file', place.config, *words[1:]])
    finally:
        os.chdir(before)
    text = output.getvalue().replace(place.directory, SHOWN_DIRECTORY)
    # How long it took differs from run to run.
    text = re.sub(r' in \d+\.\d s\b', ' in 0.1 s', text)
    return text.splitlines()


def shortened(new, old):
    """Return output with a line ``...`` where the old one had it."""
    if '...' not in old:
        return new
    first = old.index('...')
    last = len(old) - 1 - first
    if len(new) <= first + last:
        return new
    return new[:first] + ['...'] + (new[-last:] if last else [])


def refreshed(text, place):
    """Return the text of a page with the output of its examples."""
    lines = text.splitlines()
    result = []
    at = 0
    while at < len(lines):
        result.append(lines[at])
        at += 1
        if not re.search('::( yaml)?$', lines[at - 1]) \
                or '.. not run' in result[-4:]:
            continue
        block = []
        while at < len(lines) and (not lines[at].strip()
                                   or lines[at].startswith(' ')):
            block.append(lines[at])
            at += 1
        while block and not block[-1].strip():
            block.pop()
            at -= 1
        result += _refreshed_block(block, place)
    return '\n'.join(result) + '\n'


def _refreshed_block(block, place):
    if 'gateways:' in map(str.strip, block):
        place.write('site.yaml', '\n'.join(block) + '\n')
    if not any(re.match(r' +\$ ', line) for line in block):
        return block
    indent = re.match(' *', next(filter(None, block))).group()
    lines = [line.removeprefix(indent) for line in block]
    result = []
    while lines:
        line = lines.pop(0)
        result.append(line)
        if not line.startswith('$ '):
            continue
        command = line[2:]
        while command.endswith('\\'):
            result.append(lines[0])
            command = command[:-1] + lines.pop(0).strip()
        old = []
        while lines and not lines[0].startswith('$ '):
            old.append(lines.pop(0))
        result += shortened(run(place, command), old)
    return [f'{indent}{line}'.rstrip() for line in result]


def pages():
    """Yield (path, text as it is, text as it should be) of each page."""
    for names in PAGES:
        with directory() as made:
            place = Place(made)
            for path in (SOURCE / name for name in names):
                text = path.read_text(encoding='utf-8')
                yield path, text, refreshed(text, place)


def main(words):
    """Write the pages, or compare them; return the exit status."""
    stale = 0
    for path, text, wanted in pages():
        if text == wanted:
            continue
        if words == ['--check']:
            stale += 1
            print(f'{path}: its examples are stale; run "tox -e examples"')
        else:
            path.write_text(wanted, encoding='utf-8')
            print(f'{path}: written')
    return int(bool(stale))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
