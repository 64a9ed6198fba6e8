# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from tests.unit.lab.calibrate import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import namespaces
from vswitch_aware_scheduler.lab.calibrate import topology


class TestTopology(base.NamespacesTestCase):

    def _build(self, encapsulation='none', switch='linuxbridge', vms=2):
        run = namespaces.NamespaceRun(topology.names(vms), self.state)
        self.enterContext(run)
        built = topology.Topology(run, switch, encapsulation, vms, 8000)
        built.build()
        return run, built

    def test_every_interface_is_made_inside_a_namespace_of_the_run(self):
        run, _ = self._build('vxlan')
        for line in self.commands():
            if 'link' in line or 'address' in line:
                self.assertTrue(line.startswith(f'-n vswcal-{run.id}-'),
                                line)
        self.assertEqual(
            sorted(run.name(short) for short in
                   ('h1', 'h2', 'h1v1', 'h1v2', 'h2v1', 'h2v2')),
            self.namespaces())

    def test_a_tunnel_leaves_by_the_link_between_the_hosts(self):
        self._build('vxlan')
        text = '\n'.join(self.commands())
        self.assertIn('type vxlan id 1 local 198.18.0.1 remote 198.18.0.2 '
                      'dstport 4789 dev u0', text)
        self.assertIn('link set t0 master br0', text)
        # The link has room for headers.
        self.assertIn('set u0 mtu 8120', text)
        self.assertNotIn('link set u0 master', text)

    def test_a_flat_network_has_the_link_itself_on_the_bridge(self):
        self._build()
        text = '\n'.join(self.commands())
        self.assertIn('link set u0 master br0', text)
        self.assertNotIn('vxlan', text)

    def test_hosts_that_do_not_reach_each_other_are_told(self):
        self.program('ping', '#!/bin/sh\necho "100% packet loss"; exit 1\n')
        # It pauses between twenty attempts.
        with mock.patch.object(topology, 'time'), self.assertRaisesRegex(
                exceptions.CalibrationError,
                'does not reach VM . of the second host with packets of 8000 '
                'bytes over linuxbridge, encapsulation none: 100% packet '
                'loss'):
            self._build()

    def test_what_the_kernel_lacks_is_said_before_anything_is_built(self):
        with namespaces.NamespaceRun(topology.names(2), self.state) as run:
            self.assertIsNone(topology.cannot(run, 'linuxbridge', 'vxlan'))
            reason = topology.cannot(run, 'linuxbridge', 'gre')
            self.assertIn('no interface of type gretap (Unknown device type)',
                          reason)
            self.assertIn('CONFIG_NET_IPGRE', reason)
            self.assertEqual([], self.namespaces())

    def test_open_vswitch_that_is_not_installed_names_its_package(self):
        with namespaces.NamespaceRun(topology.names(2), self.state) as run, \
                mock.patch.object(machine, '_PATH', str(self.programs)), \
                self.assertRaisesRegex(
                    exceptions.CalibrationError,
                    'program ovs-vsctl: not installed; install the package '
                    'openvswitch-switch'):
            topology.cannot(run, 'ovs-netdev', 'none')

    def test_user_space_gets_complete_frames(self):
        run = namespaces.NamespaceRun(topology.names(2), self.state)
        for switch, offload in (('ovs-netdev', False), ('linuxbridge', True)):
            self.assertEqual(offload, topology.Topology(
                run, switch, 'none', 2, 1500).offload)
