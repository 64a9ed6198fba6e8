# SPDX-License-Identifier: Apache-2.0
"""Calibration of this machine, in network namespaces."""

import os
import re

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import calibration
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import plan as plans
from vswitch_aware_scheduler.lab.calibrate import topology as topologies

__all__ = ['LocalPlace', 'check']


def check() -> None:
    """Check that this machine can be measured."""
    if os.geteuid() != 0:
        raise exceptions.CalibrationError(
            f'user id: {os.geteuid()}; expected 0: only root can create '
            f'network namespaces')
    for program in ('ip', 'iperf3'):
        machine.need_program(program)


def parse_rtt(text: str) -> float:
    """Return the mean round trip time in the output of ping."""
    match = re.search(r'= [\d.]+/([\d.]+)/', text)
    if match is None:
        raise exceptions.CalibrationError(
            f'output of ping: {" ".join(text.split())[-120:]!r}; expected '
            f'round trip times')
    return float(match.group(1))


class LocalPlace(calibration.Place):
    """A test bed of two hosts, each of which is a network namespace."""

    def __init__(self, topology, plan) -> None:
        self._topology, self._plan = topology, plan
        self._servers = {}

    @property
    def segments(self):
        return plans.SEGMENTS if self._topology.offload else (None,)

    @property
    def daemons(self):
        return self._topology.daemons

    def can_ping(self):
        return machine.find_program('ping') is not None

    def build(self) -> None:
        self._servers = {}
        self._topology.build()
        for vm in self._receivers():
            self._serve(vm)

    def _receivers(self):
        vm = self._topology.vm
        return [vm('h2', i + 1) for i in range(self._plan.vms)] + [
            vm('h1', 2)]

    def _serve(self, vm):
        self._servers[vm] = self._topology.run.start(vm, *iperf.server())

    def clear(self) -> None:
        self._topology.run.clear()

    def recover(self) -> None:
        for vm, process in list(self._servers.items()):
            if process.poll() is None:
                process.kill()
            process.wait()
            self._serve(vm)

    def clients(self, cell) -> list:
        run, topology = self._topology.run, self._topology
        if cell.kind == 'tcp' and topology.offload:
            for number in range(cell.pairs):
                topology.limit_segments(
                    topology.vm('h1', number + 1),
                    cell.packet_bytes or max(plans.SEGMENTS))

        def client(sender, host, number):
            return iperf.Sender(
                lambda command: run.argv(
                    sender, machine.need_program(command[0]), *command[1:]),
                topology.address(host, number))

        if cell.placement == 'same':
            return [client(topology.vm('h1', 1), 'h1', 2)]
        if cell.placement == 'many':
            return [client(topology.vm('h1', 1), 'h2', i + 1)
                    for i in range(cell.pairs)]
        return [client(topology.vm('h1', i + 1), 'h2', i + 1)
                for i in range(cell.pairs)]

    def read_receivers(self, cell):
        run, vm = self._topology.run, self._topology.vm
        receivers = [vm('h1', 2)] if cell.placement == 'same' else [
            vm('h2', number + 1) for number in range(cell.pairs)]
        return sum(
            (machine.InterfaceCounters.parse(run.run(
                receiver, 'sh', '-c', machine.READ_INTERFACE,
                topologies.VM_DEVICE).stdout)
             for receiver in receivers), machine.InterfaceCounters())

    def rtt_ms(self, cell):
        topology = self._topology
        target = (topology.address('h1', 2) if cell.placement == 'same'
                  else topology.address('h2', 1))
        return parse_rtt(topology.run.run(
            topology.vm('h1', 1), 'ping', '-q', '-c', '40', '-i', '0.02',
            '-W', '1', target).stdout)
