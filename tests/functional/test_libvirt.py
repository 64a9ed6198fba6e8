# SPDX-License-Identifier: Apache-2.0
"""Pinned and SR-IOV instances: Nova's filters and ours both have their say.

The computes are Nova's libvirt driver with Nova's stand-in for libvirt,
because the fake driver has neither CPUs to pin nor PCI devices.
"""

import json
import os
from unittest import mock

from tests.fakes import store as fake_store
from tests.functional import base
from tests.functional import databases

import fixtures
from nova import objects
from nova.objects import fields
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.libvirt import base as libvirt_base
from nova.virt.libvirt import driver

from vswitch_aware_scheduler.lab.demo import cell_lock
from vswitch_aware_scheduler.scheduler import nova_hooks


class LibvirtTestCase(base.Requests, libvirt_base.ServersTestBase):
    """Hosts of 1000 kbit/s, unless said, with constant demands."""

    ADMIN_API = True
    microversion = 'latest'
    ADDITIONAL_FILTERS = ['NUMATopologyFilter', 'PciPassthroughFilter',
                          'VSwitchFilter']
    HOSTS = ('host1', 'host2')
    #: No test waits for reports.
    TRACK_INSTANCE_CHANGES = False

    def setUp(self):
        store_url = 'sqlite:///' + os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'vswitch.sqlite')
        fake_store.make_empty(store_url)
        self.useFixture(cell_lock.fixture())
        self.useFixture(databases.PooledSqlite())
        self.useFixture(base.known_aggregates())
        self.flags(api_paste_config=base.api_paste(), group='wsgi')
        self.flags(available_filters=base.VSwitchTestCase.AVAILABLE_FILTERS,
                   weight_classes=base.VSwitchTestCase.WEIGHERS,
                   group='filter_scheduler')
        self.flags(store_url=store_url, group='vswitch_scheduler',
                   **base.UNHURRIED)
        self.flags(service_down_time=3600)
        self.flags(instances=-1, cores=-1, ram=-1, group='quota')
        nova_hooks.reset()
        super().setUp()
        self.admin_api, self.scheduler_service = self.api, self.scheduler
        self.find_plugin()
        for host in self.HOSTS:
            self.start_compute(
                hostname=host, host_info=fakelibvirt.HostInfo(
                    cpu_nodes=1, cpu_sockets=1, cpu_cores=4, cpu_threads=1),
                **self.devices(host))
            self.describe_host(host, saturation_kbps=1000)

    def devices(self, host):
        """Return what start_compute needs for the PCI devices of a host."""
        return {}

    def flavor_with(self, kbps, **extra_specs):
        """Return the id of a flavor with a demand and extra specs of Nova."""
        return self._create_flavor(
            vcpu=2, memory_mb=64, disk=1, extra_spec={
                'vswitch:egress_kbps': str(kbps), **extra_specs})


class PinnedTestCase(LibvirtTestCase):
    """Each host has four CPUs to pin, an instance takes two of them."""

    def setUp(self):
        self.flags(cpu_dedicated_set='0-3', group='compute')
        super().setUp()

    def pinned(self, kbps):
        return self.flavor_with(kbps, **{'hw:cpu_policy': 'dedicated'})

    def test_cpus_and_the_switch_both_have_to_fit(self):
        first = self.boot(self.pinned(600), 'host1', host='host1')
        # The switch of host1 has no room, though two CPUs are free.
        self.boot_refused(self.pinned(401), host='host1')
        second = self.boot(self.pinned(401), 'host2')
        third = self.boot(self.pinned(300), 'host1', host='host1')
        # Its CPUs are all taken, though the switch has room.
        self.boot_refused(self.pinned(1), host='host1')
        self.boot_refused(self.pinned(600))
        fourth = self.boot(self.pinned(500), 'host2')
        self.boot_refused(self.pinned(1))
        self.delete(third)
        # What Nova's filter has refused took no room of the switch.
        third = self.boot(self.pinned(400), 'host1')
        self.delete(fourth)
        self._move(second, first, third)

    def _move(self, moving, first, third):
        """Both ends of a move of a pinned instance count, CPUs and switch."""
        self.delete(third)
        with mock.patch.object(driver.LibvirtDriver,
                               'migrate_disk_and_power_off',
                               return_value='{}'):
            self.boot_refused(self.pinned(401), host='host1')
            self.resize(moving, self.pinned(400))
            self.assertEqual('host1', self.host_of(moving))
            self.restart_scheduler()
            self.boot_refused(self.pinned(600), host='host2')
            self.delete(self.boot(self.pinned(599), 'host2', host='host2'))
            self.revert(moving)
        self.assertEqual({moving['id']}, self.residents('host2'))
        self.assertEqual({first['id']}, self.residents('host1'))


class SriovTestCase(LibvirtTestCase):
    """host1 has two virtual functions, host2 has none."""

    def setUp(self):
        common = {'vendor_id': fakelibvirt.PCI_VEND_ID}
        self.flags(
            device_spec=[json.dumps({**common, 'product_id': product,
                                     'physical_network': 'physnet4'})
                         for product in (fakelibvirt.PF_PROD_ID,
                                         fakelibvirt.VF_PROD_ID)],
            alias=[json.dumps({
                **common, 'product_id': fakelibvirt.VF_PROD_ID,
                'device_type': fields.PciDeviceType.SRIOV_VF,
                'name': 'vf'})], group='pci')
        super().setUp()

    def devices(self, host):
        return {'pci_info': fakelibvirt.HostPCIDevicesInfo(
            num_pfs=1, num_vfs=2)} if host == 'host1' else {}

    def virtual_function(self, kbps):
        return self.flavor_with(kbps, **{'pci_passthrough:alias': 'vf:1'})

    def free(self):
        """Return how many virtual functions Nova has left."""
        node = objects.ComputeNode.get_by_nodename(
            base.nova_context.get_admin_context(), 'host1')
        return sum(
            device.is_available() and device.dev_type == 'type-VF'
            for device in objects.PciDeviceList.get_by_compute_node(
                base.nova_context.get_admin_context(), node.id))

    def test_virtual_functions_and_the_switch_both_have_to_fit(self):
        first = self.boot(self.virtual_function(600), 'host1')
        # A virtual function is left, and no room of the switch for this.
        self.boot_refused(self.virtual_function(401))
        self.assertEqual(1, self.free())
        second = self.boot(self.virtual_function(300), 'host1')
        # The other way round.
        self.boot_refused(self.virtual_function(100))
        self.boot(self.flavor_with(100), 'host1', host='host1')
        self.delete(first)
        self.assertIn(second['id'], self.residents('host1'))
        self.boot_refused(self.virtual_function(601))
        self.boot(self.virtual_function(600), 'host1')
        self.assertEqual(0, self.free())
