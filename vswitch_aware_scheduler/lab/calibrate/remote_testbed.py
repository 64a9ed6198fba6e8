# SPDX-License-Identifier: Apache-2.0
"""Calibration between machines, over SSH and real links.

The machines run iperf3 and ping and read /proc; nothing is installed or
changed. Servers run in a terminal of their SSH connection and therefore end
with it, even if this process is killed.
"""

import dataclasses
import re
import shlex
import subprocess
import time

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import calibration
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.calibrate import local_testbed
from vswitch_aware_scheduler.lab.calibrate import machine

__all__ = ['Host', 'RemotePlace']

_OPTIONS = ('-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10',
            '-o', 'ServerAliveInterval=5')
_FIRST_PORT = 5301
_DESTINATION = re.compile(r'[A-Za-z0-9_.@:%\[\]-]+')
_READ_CPU = ('cat /proc/stat; echo; echo; '
             'cat /proc/[0-9]*/stat 2>/dev/null || true')
#: Programs on the machines that belong to the calibration.
_OURS = ('iperf3', 'sshd', 'sshd-session', 'ssh', 'ping')


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine that SSH can reach."""

    destination: str
    address: str | None = None

    def __post_init__(self):
        for value in (self.destination, self.address):
            if value is not None and (
                    not _DESTINATION.fullmatch(value)
                    or value.startswith('-')):
                raise exceptions.InvalidInput(
                    f'host: {value!r}; expected user@name or an address')

    @classmethod
    def parse(cls, text: str) -> 'Host':
        """Return the Host of ``user@name`` or ``user@name=address``."""
        destination, _, address = text.partition('=')
        return cls(destination,
                   address or destination.rpartition('@')[2])


class RemotePlace(calibration.Place):
    """Senders and receivers on different machines.

    Pair i has sender i and receiver i. If there are fewer machines than pairs,
    they are used in turn, with one port for each pair.

    :param pairs: maximum number of pairs
    """

    placements = ('cross', 'many')

    def __init__(self, senders, receivers, pairs, ssh_options=()) -> None:
        self._senders, self._receivers = list(senders), list(receivers)
        self._pairs, self._ssh_options = pairs, list(ssh_options)
        self._servers = []
        self._devices = {}

    def _ssh(self, host, command, terminal=False):
        return [machine.need_program('ssh'), *_OPTIONS, *self._ssh_options,
                *(['-tt'] if terminal else []), host.destination,
                shlex.join(command)]

    def ask(self, host: Host, *command: str, check: bool = True) -> str:
        """Run a command on a host. Return its output.

        :raises CalibrationError: if the command cannot run, takes too long or,
            with ``check``, fails
        """
        try:
            return machine.run(self._ssh(host, command), check=check).stdout
        except exceptions.CalibrationError as error:
            raise exceptions.CalibrationError(
                f'host {host.destination}: {error}') from None

    def check(self) -> None:
        """Check that each host can be used."""
        for host in {*self._senders, *self._receivers}:
            if not self.ask(host, 'sh', '-c', 'command -v iperf3 || true'
                            ).strip():
                raise exceptions.CalibrationError(
                    f'host {host.destination}: program iperf3: not installed; '
                    'install the package iperf3')
        for receiver in self._receivers:
            found = re.match(r'\d+: (\S+)', self.ask(
                receiver, 'ip', '-o', 'address', 'show', 'to',
                receiver.address))
            if found is None:
                raise exceptions.CalibrationError(
                    f'host {receiver.destination}: address '
                    f'{receiver.address}: on no interface; expected an '
                    f'address of an interface, for example '
                    f'{receiver.destination}=192.0.2.7')
            self._devices[receiver] = found.group(1)

    def versions(self) -> dict:
        """Return the versions of iperf3, of senders and of receivers.

        :returns: {'iperf_version_senders': text, 'iperf_version_receivers':
            text}
        """
        return {
            f'iperf_version_{word}': ', '.join(sorted({
                iperf.parse_version(self.ask(host, 'iperf3', '--version'))
                for host in hosts}))
            for word, hosts in (('senders', self._senders),
                                ('receivers', self._receivers))}

    def read_receivers(self, cell):
        used = {self._receivers[number % len(self._receivers)]
                for number in range(cell.pairs)}
        return sum(
            (machine.InterfaceCounters.parse(self.ask(
                host, 'sh', '-c', machine.READ_INTERFACE,
                self._devices[host]))
             for host in used), machine.InterfaceCounters())

    def link(self):
        """Return the properties of the first sender's link to its receiver.

        :returns: {word: text or number}
        :raises CalibrationError: if the sender has no route to the receiver,
            or does not report MTU and speed of its device
        """
        host, target = self._senders[0], self._receivers[0].address
        route = self.ask(host, 'ip', 'route', 'get', target)
        match = re.search(r'\bdev (\S+)', route)
        if match is None:
            raise exceptions.CalibrationError(
                f'host {host.destination}: route to {target}: '
                f'{" ".join(route.split())!r}; expected a route with a '
                f'device')
        device = match.group(1)
        text = self.ask(host, 'sh', '-c',
                        f'cd /sys/class/net/{shlex.quote(device)} && '
                        f'cat mtu; cat speed 2>/dev/null || echo 0; '
                        f'basename "$(readlink device/driver)"; uname -r; '
                        f'grep -m1 "model name" /proc/cpuinfo; '
                        f'grep -m1 "cpu MHz" /proc/cpuinfo')
        lines = text.splitlines()
        try:
            mtu, speed = int(lines[0]), int(lines[1])
        except (IndexError, ValueError):
            raise exceptions.CalibrationError(
                f'host {host.destination}: {device} reports '
                f'{" ".join(text.split())[:80]!r}; expected MTU and speed'
            ) from None
        link = {'nic': device, 'mtu': mtu, 'speed_mbps': max(speed, 0)}
        for name, line in zip(('driver', 'kernel'), lines[2:4]):
            if line.strip():
                link[name] = line.strip()
        for line in lines[4:]:
            name, _, value = line.partition(':')
            name = {'model name': 'cpu', 'cpu MHz': 'cpu_mhz'}.get(
                name.strip())
            if name:
                link[name] = (float(value) if name == 'cpu_mhz'
                              else value.strip())
        offloads = self.ask(
            host, 'sh', '-c', f'ethtool -k {shlex.quote(device)} 2>/dev/null '
            f'|| true', check=False)
        on = [line.partition(':')[0].strip()
              for line in offloads.splitlines()
              if re.match(r'\S.*(segmentation|checksum|receive|scatter).*: on',
                          line)]
        link['offloads'] = ', '.join(on) or 'unknown'
        return link

    def build(self) -> None:
        self._serve()

    def _serve(self):
        for number in range(self._pairs):
            host = self._receivers[number % len(self._receivers)]
            self._servers.append(subprocess.Popen(
                self._ssh(host, iperf.server(_FIRST_PORT + number), True),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL))
        # A login takes some time.
        time.sleep(1.5)
        for number, process in enumerate(self._servers):
            if process.poll() is not None:
                host = self._receivers[number % len(self._receivers)]
                raise exceptions.CalibrationError(
                    f'host {host.destination}: iperf3: exit status '
                    f'{process.returncode}; expected a server on port '
                    f'{_FIRST_PORT + number}')

    def clear(self) -> None:
        machine.end(self._servers)
        self._servers = []

    def recover(self) -> None:
        self.clear()
        self._serve()

    def clients(self, cell):
        clients = []
        for number in range(cell.pairs):
            sender = self._senders[0 if cell.placement == 'many'
                                   else number % len(self._senders)]
            clients.append(iperf.Sender(
                lambda command, sender=sender: self._ssh(sender, command),
                self._receivers[number % len(self._receivers)].address,
                _FIRST_PORT + number))
        return clients

    def rtt_ms(self, cell):
        return local_testbed.parse_rtt(self.ask(
            self._senders[0], 'ping', '-q', '-c', '5', '-i', '0.2', '-W',
            '1', self._receivers[0].address, check=False))

    def can_ping(self) -> bool:
        return bool(self.ask(self._senders[0], 'sh', '-c',
                             'command -v ping || true').strip())

    def read_cpu(self) -> dict:
        return {host: machine.parse_cpu(
            self.ask(host, 'sh', '-c', _READ_CPU), _OURS)
            for host in {*self._senders, *self._receivers}}

    def cpu_use(self, first, last):
        uses = [machine.CpuUse.between(first[host], last[host])
                for host in first]
        return machine.CpuUse(
            max(use.seconds for use in uses),
            sum(use.busy_cores for use in uses),
            sum(use.our_cores for use in uses),
            sum(use.switch_cores for use in uses),
            max(use.others_share for use in uses))
