# SPDX-License-Identifier: Apache-2.0
"""The machine of a calibration: commands, CPU use, properties.

Uses processes and /proc, but no networks. Every command has a time limit and
ends with a result or a CalibrationError.
"""

import dataclasses
import os
import pathlib
import platform
import shutil
import subprocess
import time
import typing

from vswitch_aware_scheduler.common import exceptions

__all__ = ['CpuReading', 'CpuUse', 'InterfaceCounters', 'end', 'facts',
           'need_program', 'read_cpu', 'run']

#: Package of each required program on Debian and derived distributions.
PACKAGES = {'ip': 'iproute2', 'tc': 'iproute2', 'iperf3': 'iperf3',
            'ethtool': 'ethtool', 'ping': 'iputils-ping',
            'ssh': 'openssh-client',
            'ovs-vsctl': 'openvswitch-switch',
            'ovs-vswitchd': 'openvswitch-switch',
            'ovsdb-server': 'openvswitch-switch',
            'ovsdb-tool': 'openvswitch-switch'}
# Directories where distributions install programs for root.
_PATH = os.pathsep.join([os.environ.get('PATH', os.defpath),
                         '/usr/sbin', '/sbin', '/usr/local/sbin'])
_KERNEL_THREAD = 0x00200000


def find_program(name: str) -> str | None:
    """Return the path of a program, or None."""
    return shutil.which(name, path=_PATH)


def need_program(name: str) -> str:
    """Return the path of a program.

    :raises CalibrationError: if it is not installed
    """
    path = find_program(name)
    if path is None:
        raise exceptions.CalibrationError(
            f'program {name}: not installed; install the package '
            f'{PACKAGES.get(name, name)}')
    return path


def run(argv: list, timeout_seconds: float = 30.0, check: bool = True):
    """Run a command and return its CompletedProcess, with output as text.

    :param timeout_seconds: longest duration of the command
    :raises CalibrationError: if the command cannot run, takes too long or,
        with ``check``, fails
    """
    argv = [need_program(argv[0]), *map(str, argv[1:])]
    command = ' '.join([os.path.basename(argv[0]), *argv[1:]])
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors='replace', timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise exceptions.CalibrationError(
            f'command "{command}": not ended; expected its end within '
            f'{timeout_seconds:g} s'
        ) from None
    except OSError as error:
        raise exceptions.CalibrationError(
            f'command "{command}" cannot run: {error}') from error
    if check and done.returncode:
        message = ' '.join((done.stderr or done.stdout).split())
        raise exceptions.CalibrationError(
            f'command "{command}": exit status {done.returncode}; expected 0: '
            f'{message[-300:] or "no output"}')
    return done


def end(processes: list) -> None:
    """End processes and wait for their end."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- Interfaces -------------------------------------------------------------

#: Header of a frame, which counters of interfaces include, in bytes.
_FRAME_HEADER = 14


@dataclasses.dataclass(frozen=True)
class InterfaceCounters:
    """Counters of one or several interfaces, both directions separately.

    A packet that segmentation offload will divide, of up to 64 KiB, counts
    as one packet.
    """

    received_packets: int = 0
    received_bytes: int = 0
    sent_packets: int = 0
    sent_bytes: int = 0

    def __add__(self, other):
        return InterfaceCounters(*(
            getattr(self, field.name) + getattr(other, field.name)
            for field in dataclasses.fields(self)))

    def since(self, first) -> 'InterfaceCounters':
        """Return the difference to earlier counters."""
        return InterfaceCounters(*(
            getattr(self, field.name) - getattr(first, field.name)
            for field in dataclasses.fields(self)))

    @property
    def packets(self) -> int:
        """Number of packets in both directions."""
        return self.received_packets + self.sent_packets

    @property
    def ip_bytes(self) -> int:
        """Number of bytes of IP packets in both directions."""
        return (self.received_bytes + self.sent_bytes
                - _FRAME_HEADER * self.packets)

    @classmethod
    def parse(cls, text: str) -> 'InterfaceCounters':
        """Return the counters in four lines of text, in their order."""
        try:
            return cls(*map(int, text.split()))
        except (ValueError, TypeError):
            raise exceptions.CalibrationError(
                f'counters of an interface: {text[:60]!r}; expected four '
                f'numbers') from None


#: Shell command that prints the InterfaceCounters of the device $0.
READ_INTERFACE = ('cd /sys/class/net/"$0"/statistics && '
                  'cat rx_packets rx_bytes tx_packets tx_bytes')


# --- CPU --------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class CpuReading:
    """CPU seconds since boot, by use."""

    clock: float
    busy: float
    softirq: float
    steal: float
    ours: float
    other_seconds: float
    switches: float
    cores: int


@dataclasses.dataclass(frozen=True)
class CpuUse:
    """The use of the CPUs between two readings.

    :ivar switch_cores: the part of these in the kernel's network code
        (softirq) and in the daemons of the switch
    :ivar others_share: share of all cores that other processes and other
        machines (steal) used, 0..1
    :ivar our_cores: busy cores of senders, receivers and the kernel for them
    """

    seconds: float
    busy_cores: float
    our_cores: float
    switch_cores: float
    others_share: float

    @classmethod
    def between(cls, first, last) -> 'CpuUse':
        """Return the CpuUse between two readings."""
        seconds = max(last.clock - first.clock, 1e-9)
        other_seconds = max(last.other_seconds - first.other_seconds, 0.0)
        busy = max(last.busy - first.busy, 0.0)
        stolen = max(last.steal - first.steal, 0.0)
        return cls(
            seconds, busy / seconds, max(busy - other_seconds, 0.0) / seconds,
            (max(last.softirq - first.softirq, 0.0)
             + max(last.switches - first.switches, 0.0)) / seconds,
            min((other_seconds + stolen) / (seconds * last.cores), 1.0))


def read_cpu(root=None, switches=(), proc='/proc', clock=time.monotonic):
    """Return a CpuReading.

    The time of a process includes that of its children that have ended.
    Short-lived processes between two readings are therefore included.

    :param root: pid of the process that, with its children, belongs to the
        calibration; None: this process
    :param clock: callable, returns monotonic seconds
    """
    root = os.getpid() if root is None else root
    with open(f'{proc}/stat') as file:
        totals = file.read()
    processes = {}
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            text = pathlib.Path(proc, name, 'stat').read_text(
                errors='replace')
        except OSError:
            continue
        processes |= _process(text)
    own_processes = set()
    for pid in processes:
        ancestor = pid
        while ancestor not in (root, 0) and ancestor in processes:
            ancestor = processes[ancestor].parent
        if ancestor == root:
            own_processes.add(pid)
    return _reading(clock(), totals, processes, own_processes, switches)


class _Process(typing.NamedTuple):
    name: str
    parent: int
    seconds: float


def _process(text):
    """Return {pid: _Process} of a stat file; empty for a kernel thread."""
    # The name is in brackets and may contain spaces and brackets.
    before, _, after = text.rpartition(')')
    pid, _, name = before.partition(' (')
    fields = after.split()
    if len(fields) < 15 or int(fields[6]) & _KERNEL_THREAD:
        return {}
    return {int(pid): _Process(name, int(fields[1]), sum(
        map(int, fields[11:15])) / os.sysconf('SC_CLK_TCK'))}


def _reading(clock, totals, processes, ours, switches):
    lines = totals.splitlines()
    # user nice system idle iowait irq softirq steal ...
    total = [int(ticks) / os.sysconf('SC_CLK_TCK')
             for ticks in lines[0].split()[1:]]
    cores = sum(line.startswith('cpu') for line in lines) - 1
    own = sum(processes[pid].seconds for pid in ours)
    return CpuReading(
        clock, total[0] + total[1] + total[2] + total[5] + total[6],
        total[6], total[7] if len(total) > 7 else 0.0, own,
        sum(process.seconds for process in processes.values()) - own,
        sum(processes[pid].seconds for pid in switches if pid in processes),
        max(cores, 1))


def parse_cpu(text, ours, switches=('ovs-vswitchd',), clock=time.monotonic):
    """Return the CpuReading of another machine.

    :param clock: callable, returns monotonic seconds
    :param text: its /proc/stat, two empty lines, stat files of its processes
    :raises CalibrationError: if the text has another form
    """
    totals, _, stat_files = text.partition('\n\n\n')
    processes = {}
    try:
        for line in stat_files.splitlines():
            if line.strip():
                processes |= _process(line)
        return _reading(
            clock(), totals, processes,
            {pid for pid, process in processes.items()
             if process.name in ours},
            [pid for pid, process in processes.items()
             if process.name in switches])
    except (ValueError, IndexError):
        raise exceptions.CalibrationError(
            f'/proc/stat: {totals[:60]!r}; expected the CPU times of Linux'
        ) from None


def _cpu_info(key):
    """Return the values of a key in /proc/cpuinfo, one for each core."""
    try:
        text = pathlib.Path('/proc/cpuinfo').read_text()
    except OSError:
        return []
    return [line.partition(':')[2].strip() for line in text.splitlines()
            if line.startswith(key)]


def mhz():
    """Return the clock of a core in MHz, or None if unknown."""
    clocks = list(map(float, _cpu_info('cpu MHz')))
    return sum(clocks) / len(clocks) if clocks else None


def facts():
    """Return the properties of this machine: {word: text or number}."""
    properties = {
        'kernel': platform.release(), 'architecture': platform.machine(),
        'cpu_cores': os.cpu_count() or 1}
    properties |= {'cpu': name for name in _cpu_info('model name')[:1]}
    clock = mhz()
    if clock:
        properties['cpu_mhz'] = round(clock, 1)
    return properties
