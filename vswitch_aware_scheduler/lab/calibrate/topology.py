# SPDX-License-Identifier: Apache-2.0
"""Two hosts with one switch and N VMs each, and the link between them.

Hosts and VMs are network namespaces. veth pairs connect VMs to the switch of
their host, and another pair connects the hosts. All interfaces are created
inside these namespaces. The network of the machine is not changed, and no
packet can leave the namespaces.
"""

import dataclasses
import pathlib
import sys
import time

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import namespaces

__all__ = ['ENCAPSULATIONS', 'SWITCHES', 'Topology', 'cannot', 'names']

SWITCHES = ('linuxbridge', 'ovs-netdev', 'ovs-system')
ENCAPSULATIONS = ('none', 'vxlan', 'gre', 'geneve')
#: Names that Neutron and the built-in profiles use.
FAMILIES = {'linuxbridge': 'linuxbridge', 'ovs-netdev': 'openvswitch',
            'ovs-system': 'openvswitch'}

#: Interface of a VM.
VM_DEVICE = 'eth0'

_HOSTS = ('h1', 'h2')
# Address range of RFC 2544 for benchmarks, within separate namespaces.
_UNDERLAY = {'h1': '198.18.0.1', 'h2': '198.18.0.2'}
_LINK_TYPES = {'vxlan': 'vxlan', 'gre': 'gretap', 'geneve': 'geneve'}
_KERNEL_OPTIONS = {'vxlan': 'CONFIG_VXLAN', 'gre': 'CONFIG_NET_IPGRE',
                   'geneve': 'CONFIG_GENEVE'}
# Used without ping: a refused connection shows that the host is reachable.
_CONNECT = '''
import socket, sys
probe = socket.socket()
probe.settimeout(1)
sys.exit(probe.connect_ex((sys.argv[1], 9)) not in (0, 111))
'''
# Space for the headers of every encapsulation on the link between the hosts.
_HEADROOM = 120


def names(vms: int) -> list:
    """Return the short names of the namespaces of a topology."""
    return [*_HOSTS, *(f'{host}v{i}' for host in _HOSTS
                       for i in range(1, vms + 1)), 'probe']


def cannot(run, switch: str, encapsulation: str) -> str | None:
    """Return why this machine cannot create a topology, or None.

    :param run: Run with a namespace 'probe'
    """
    if switch == 'ovs-system':
        if not pathlib.Path('/sys/module/openvswitch').exists():
            return ('the kernel module openvswitch is not loaded; expected it '
                    'for --switch ovs-system: "modprobe openvswitch", or use '
                    'ovs-netdev, which needs no module')
    if switch != 'linuxbridge':
        for program in ('ovs-vsctl', 'ovs-vswitchd', 'ovsdb-server',
                        'ovsdb-tool', 'ethtool'):
            machine.need_program(program)
    if switch == 'ovs-netdev':
        if not pathlib.Path('/dev/net/tun').exists():
            return ('there is no /dev/net/tun; expected it for the bridges of '
                    '--switch ovs-netdev: "modprobe tun"')
        # Open vSwitch encapsulates itself in this case.
        return None
    link_types = ['bridge'] if switch == 'linuxbridge' else []
    if encapsulation != 'none':
        link_types.append(_LINK_TYPES[encapsulation])
    if not link_types:
        return None
    run.add('probe')
    try:
        for kind in link_types:
            command = ['link', 'add', 'probe0', 'type', kind]
            if kind == 'vxlan':
                command += ['id', '1', 'dstport', '4789']
            elif kind != 'bridge':
                command += ['remote', '198.18.0.2']
                command += ['id', '1'] if kind == 'geneve' else [
                    'local', '198.18.0.1']
            done = machine.run(['ip', '-n', run.name('probe'), *command],
                               check=False)
            if done.returncode:
                option = _KERNEL_OPTIONS.get(encapsulation, 'CONFIG_BRIDGE') \
                    if kind != 'bridge' else 'CONFIG_BRIDGE'
                return (f'this kernel makes no interface of type {kind} '
                        f'({" ".join(done.stderr.split())}); expected '
                        f'{option} or its module for --encapsulation '
                        f'{encapsulation}')
            machine.run(['ip', '-n', run.name('probe'), 'link', 'delete',
                         'probe0'])
    finally:
        machine.run(['ip', 'netns', 'delete', run.name('probe')])
    return None


@dataclasses.dataclass
class Topology:
    """The measured network, which :meth:`build` creates.

    ``run.clear()`` removes it.
    """

    run: namespaces.NamespaceRun
    switch: str
    encapsulation: str
    vms: int
    mtu: int
    offload: bool = True

    def __post_init__(self):
        #: pids of the daemons of the switches
        self.daemons = []
        if self.switch == 'ovs-netdev':
            # Its user space needs complete frames: no checksum or segmentation
            # offload.
            self.offload = False

    def address(self, host: str, number: int) -> str:
        """Return the IP address of a VM."""
        return f'198.19.{_HOSTS.index(host) + 1}.{number}'

    @staticmethod
    def vm(host: str, number: int) -> str:
        """Return the short name of a VM's namespace."""
        return f'{host}v{number}'

    def build(self) -> None:
        """Create the network, and wait until the VMs can communicate."""
        run = self.run
        self.daemons = []
        for host in _HOSTS:
            run.add(host)
        run.ip('h1', 'link', 'add', 'u0', 'type', 'veth', 'peer', 'name',
               'u0', 'netns', run.name('h2'))
        for host in _HOSTS:
            run.ip(host, 'link', 'set', 'u0', 'mtu',
                   str(self.mtu + _HEADROOM), 'up')
            if self.switch != 'linuxbridge':
                # Otherwise the daemon could not process complete frames.
                self._complete_frames(host, 'u0')
            make = (self._bridge if self.switch == 'linuxbridge'
                    else self._open_vswitch)
            make(host)
            for number in range(1, self.vms + 1):
                self._vm(host, number)
        self._wait()

    def _bridge(self, host):
        ip = self.run.ip
        ip(host, 'link', 'add', 'br0', 'type', 'bridge', 'stp_state', '0')
        if self.encapsulation == 'none':
            port = 'u0'
        else:
            port = 't0'
            other = _HOSTS[1 - _HOSTS.index(host)]
            ip(host, 'address', 'add', _UNDERLAY[host] + '/30', 'dev', 'u0')
            remote, local = _UNDERLAY[other], _UNDERLAY[host]
            options = {
                'vxlan': ['id', '1', 'local', local, 'remote', remote,
                          'dstport', '4789', 'dev', 'u0'],
                'gre': ['local', local, 'remote', remote, 'key', '1'],
                'geneve': ['id', '1', 'remote', remote]}
            ip(host, 'link', 'add', port, 'type',
               _LINK_TYPES[self.encapsulation], *options[self.encapsulation])
            ip(host, 'link', 'set', port, 'mtu', str(self.mtu), 'up')
        ip(host, 'link', 'set', port, 'master', 'br0')
        ip(host, 'link', 'set', 'br0', 'mtu', str(self.mtu), 'up')

    def _open_vswitch(self, host):
        run, work = self.run, self.run.work
        database = work / f'{host}.db'
        machine.run(['ovsdb-tool', 'create', database])
        socket = work / f'{host}.sock'
        self._daemon(host, 'ovsdb-server', database,
                     f'--remote=punix:{socket}', '--no-chdir',
                     f'--unixctl={work / host}-db.ctl')
        self._await_file(socket)
        self._vsctl(host, '--no-wait', 'init')
        self._daemon(host, 'ovs-vswitchd', f'unix:{socket}', '--no-chdir',
                     f'--unixctl={work / host}-sw.ctl')
        datapath = 'netdev' if self.switch == 'ovs-netdev' else 'system'
        self._vsctl(host, 'add-br', 'br0', '--', 'set', 'bridge', 'br0',
                    f'datapath_type={datapath}', 'fail_mode=standalone')
        if self.encapsulation == 'none':
            self._vsctl(host, 'add-port', 'br0', 'u0')
            return
        other = _HOSTS[1 - _HOSTS.index(host)]
        address = _UNDERLAY[host] + '/30'
        if datapath == 'netdev':
            # Tunnels in user space use a bridge with the address.
            self._vsctl(host, 'add-br', 'br1', '--', 'set', 'bridge', 'br1',
                        'datapath_type=netdev', 'fail_mode=standalone',
                        '--', 'set', 'interface', 'br1',
                        f'mtu_request={self.mtu + _HEADROOM}',
                        '--', 'add-port', 'br1', 'u0')
            run.ip(host, 'address', 'add', address, 'dev', 'br1')
            run.ip(host, 'link', 'set', 'br1', 'up')
        else:
            run.ip(host, 'address', 'add', address, 'dev', 'u0')
        self._vsctl(host, 'add-port', 'br0', 't0', '--', 'set', 'interface',
                    't0', f'type={self.encapsulation}',
                    f'options:remote_ip={_UNDERLAY[other]}',
                    f'options:local_ip={_UNDERLAY[host]}', 'options:key=1')

    def _vsctl(self, host, *command):
        # --timeout: a daemon that has died must not block the calibration.
        self.run.run(host, 'ovs-vsctl', '--timeout=20',
                     f'--db=unix:{self.run.work / host}.sock', *command)

    def _daemon(self, host, *command):
        process = self.run.start(host, *command)
        self.daemons.append(process.pid)

    def _await_file(self, path):
        for _ in range(100):
            if path.exists():
                return
            time.sleep(.05)
        raise exceptions.CalibrationError(
            f'ovsdb-server: no socket {path} after 5 s; expected the server '
            f'to create this socket')

    def _vm(self, host, number):
        run, vm = self.run, self.vm(host, number)
        run.add(vm)
        run.ip(host, 'link', 'add', f'p{number}', 'mtu', str(self.mtu),
               'type', 'veth', 'peer', 'name', VM_DEVICE, 'mtu', str(self.mtu),
               'netns', run.name(vm))
        if not self.offload:
            self._complete_frames(vm, VM_DEVICE)
        run.ip(vm, 'address', 'add',
               self.address(host, number) + '/16', 'dev', VM_DEVICE)
        run.ip(vm, 'link', 'set', VM_DEVICE, 'up')
        run.ip(host, 'link', 'set', f'p{number}', 'up')
        if self.switch == 'linuxbridge':
            run.ip(host, 'link', 'set', f'p{number}', 'master', 'br0')
        else:
            self._vsctl(host, 'add-port', 'br0', f'p{number}')

    def limit_segments(self, vm, size) -> None:
        """Set the largest packet that a VM hands to its interface."""
        self.run.ip(vm, 'link', 'set', VM_DEVICE, 'gso_max_size', str(size))

    def _complete_frames(self, short, device):
        self.run.run(short, 'ethtool', '-K', device, 'tx', 'off', 'tso',
                     'off', 'gso', 'off', 'gro', 'off', check=False)

    def _wait(self):
        # Without STP a bridge forwards immediately; a tunnel forwards when it
        # has learned the path. The largest packet shows whether the MTU is
        # correct everywhere.
        for number in {1, self.vms}:
            target = self.address('h2', number)
            if machine.find_program('ping'):
                command = ['ping', '-c', '1', '-W', '1', '-M', 'do', '-s',
                           str(self.mtu - 28), target]
            else:
                command = [sys.executable, '-c', _CONNECT, target]
            for _ in range(20):
                done = self.run.run(self.vm('h1', number), *command,
                                    check=False)
                if not done.returncode:
                    break
                time.sleep(.2)
            else:
                raise exceptions.CalibrationError(
                    f'VM {number} of the first host does not reach VM '
                    f'{number} of the second host with packets of '
                    f'{self.mtu} bytes over '
                    f'{self.switch}, encapsulation {self.encapsulation}: '
                    f'{" ".join((done.stdout + done.stderr).split())[-200:]}')

    def version(self):
        """Return the name and the version of the switch."""
        if self.switch == 'linuxbridge':
            return 'bridge of the kernel'
        return machine.run(['ovs-vswitchd', '--version']).stdout \
            .splitlines()[0]
