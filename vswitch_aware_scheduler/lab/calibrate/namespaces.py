# SPDX-License-Identifier: Apache-2.0
"""The network namespaces of one run, and the remains of interrupted runs.

All that a run creates is in namespaces whose names contain its id. Removing
these namespaces removes every interface. A run first writes what it will
create to a state file. A later run removes only what this file names.
"""

import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import time

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine

__all__ = ['DEFAULT_STATE_DIR', 'NamespaceRun', 'remove_leftovers']

DEFAULT_STATE_DIR = '/run/vswitch-calibrate'
PREFIX = 'vswcal'
_NAME = re.compile(PREFIX + r'-([0-9a-f]{6})-[a-z0-9]{1,12}')


def _started(pid):
    """Return when a process started, in ticks since boot, or None."""
    try:
        text = pathlib.Path(f'/proc/{pid}/stat').read_text(errors='replace')
    except OSError:
        return None
    fields = text.rpartition(')')[2].split()
    return None if fields[0] == 'Z' else int(fields[19])


def existing() -> list:
    """Return the names of this machine's network namespaces."""
    listed = machine.run(['ip', 'netns', 'list']).stdout
    return [line.split()[0] for line in listed.splitlines() if line.split()]


class NamespaceRun:
    """One run: its id, its state file and its namespaces.

    Use it as a context manager: however the context ends, the namespaces are
    removed.
    """

    def __init__(self, names, state_dir=DEFAULT_STATE_DIR):
        self.id = secrets.token_hex(3)
        self.directory = pathlib.Path(state_dir)
        self.state_file = self.directory / f'{PREFIX}-{self.id}.json'
        #: Directory for sockets and databases of daemons.
        self.work = self.state_file.with_suffix('')
        self._names = {short: f'{PREFIX}-{self.id}-{short}'
                       for short in names}
        self._processes = []

    def __enter__(self):
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # Write the file atomically, before the run creates anything, so
            # that everything a killed run has created is recorded.
            draft = self.state_file.with_suffix('.draft')
            draft.write_text(json.dumps({
                'run': self.id, 'pid': os.getpid(),
                'started': _started(os.getpid()),
                'namespaces': sorted(self._names.values())}))
            draft.rename(self.state_file)
            self.work.mkdir(mode=0o700)
        except OSError as error:
            raise exceptions.CalibrationError(
                f'state directory {self.directory}: cannot be written '
                f'({error.strerror}); name another one with --state-dir'
            ) from error
        return self

    def __exit__(self, *_):
        self.clear()
        _forget(self.state_file)

    def name(self, short: str) -> str:
        """Return the full name of a namespace."""
        return self._names[short]

    def add(self, short: str) -> None:
        """Create one of the namespaces, with loopback up."""
        machine.run(['ip', 'netns', 'add', self.name(short)])
        self.ip(short, 'link', 'set', 'lo', 'up')

    def ip(self, short: str, *command):
        """Run ``ip`` in a namespace."""
        return machine.run(['ip', '-n', self.name(short), *command])

    def argv(self, short: str, *command) -> list:
        """Return the command that runs another one in a namespace."""
        return [machine.need_program('ip'), 'netns', 'exec',
                self.name(short), *map(str, command)]

    def run(self, short: str, *command, **options):
        """Run a command in a namespace."""
        machine.need_program(command[0])
        return machine.run(['ip', 'netns', 'exec', self.name(short), *command],
                           **options)

    def start(self, short: str, *command, **options):
        """Start a process in a namespace. It ends with the run."""
        command = [machine.need_program(command[0]), *command[1:]]
        process = subprocess.Popen(
            self.argv(short, *command),
            **{'stdin': subprocess.DEVNULL, 'stdout': subprocess.DEVNULL,
               'stderr': subprocess.DEVNULL, **options})
        self._processes.append(process)
        return process

    def clear(self) -> None:
        """End the processes and remove the existing namespaces."""
        machine.end(self._processes)
        self._processes = []
        _remove(self._names.values())
        for entry in self.work.iterdir() if self.work.exists() else ():
            entry.unlink(missing_ok=True)


def _remove(names):
    """End the processes in namespaces, and remove the namespaces."""
    existing_names = set(existing())
    for name in names:
        if name not in existing_names:
            continue
        for kind in (signal.SIGTERM, signal.SIGKILL):
            pids = machine.run(['ip', 'netns', 'pids', name],
                               check=False).stdout.split()
            for pid in map(int, pids):
                if pid != os.getpid():
                    try:
                        os.kill(pid, kind)
                    except ProcessLookupError:
                        pass
            if not pids:
                break
            time.sleep(.2)
        machine.run(['ip', 'netns', 'delete', name])


def _forget(state_file):
    shutil.rmtree(state_file.with_suffix(''), ignore_errors=True)
    state_file.unlink(missing_ok=True)


def remove_leftovers(state_dir: str = DEFAULT_STATE_DIR) -> list:
    """Remove the remains of interrupted runs.

    Only namespaces that a state file names, with names that contain its id,
    are removed.

    :returns: list of the ids of these runs
    :raises CalibrationError: if another run is active, because two runs would
        disturb each other
    """
    removed = []
    directory = pathlib.Path(state_dir)
    for path in sorted(directory.glob(f'{PREFIX}-*.json')):
        try:
            state = json.loads(path.read_text())
            run, pid, started, names = (
                state[key] for key in ('run', 'pid', 'started', 'namespaces'))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise exceptions.CalibrationError(
                f'state file {path}: cannot be parsed '
                f'({type(error).__name__}); expected a state file of this '
                'command: remove the file'
            ) from None
        if started is not None and _started(pid) == started:
            raise exceptions.CalibrationError(
                f'run {run}: still running as process {pid}; expected one run '
                'at a time, because two runs would disturb each other')
        own = [name for name in names
               if (match := _NAME.fullmatch(str(name)))
               and match.group(1) == run]
        _remove(own)
        _forget(path)
        removed.append(run)
    # Remains of runs that were killed before they had a state file.
    for path in directory.glob(f'{PREFIX}-*.draft'):
        path.unlink(missing_ok=True)
    return removed
