# SPDX-License-Identifier: Apache-2.0
"""What aggregates say counts from the next request on."""

from tests.functional import base

from nova import context as nova_context
from nova import objects


class AggregateTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_metadata_changed_while_running_changes_the_next_answer(self):
        flavor = self.of(1000)
        self.describe_hosts(999, 999)
        self.boot_refused(flavor)
        self.describe_host('host1', saturation_kbps=1000)
        self.boot(flavor, 'host1')
        self.boot_refused(flavor)
        # A profile in place of a number.
        self.describe_host('host2', saturation_kbps=None,
                           profile='mellanox-eswitch')
        self.boot(flavor, 'host2')
        self.describe_host('host2', max_virtual_functions=1)
        self.boot_refused(flavor)
        self.describe_host('host2', max_virtual_functions=None)
        self.boot(flavor, 'host2')
        # The policy, and the limit.
        self.describe_host('host1', saturation_kbps=3000)
        self.describe_host('host2', profile=None, saturation_kbps=1)
        half = self.on_off_flavor('half', 2000, 0.5)
        self.boot(half, 'host1')
        self.boot_refused(half)
        self.describe_host('host1', admission_policy='average')
        self.boot(half, 'host1')
        self.boot_refused(half)
        self.describe_host('host1', admission_policy=None,
                           overload_probability='0.5')
        # Of three, two or more are on for exactly half of the time.
        self.boot(half, 'host1')
        self.boot_refused(half)
        # Of four, for eleven sixteenths.
        self.describe_host('host1', overload_probability='0.34375',
                           prediction_margin='0.5')
        self.boot(half, 'host1')
        self.boot_refused(half)

    def test_a_value_that_cannot_be_used_is_ignored_with_one_line(self):
        self.describe_hosts(1000, 1)
        self.log.clear()
        bad = self.aggregate('bad', 'host1', saturation_kbps='a lot')
        server = self.boot(self.of(1000), 'host1')
        self.boot_refused(self.of(1000))
        line, = self.log.warnings
        self.assertIn('vswitch:saturation_kbps: ', line)
        self.assertIn('bad', line)
        # Corrected, it counts, and the log says so.
        self.log.clear()
        self.set_metadata(bad, saturation_kbps=500)
        self.delete(server)
        self.boot_refused(self.of(1000))
        self.assertTrue(self.log.lines('saturation_kbps is well again'))
        self.assertEqual([], self.log.warnings)

    def test_an_extreme_value_changes_no_other_host(self):
        self.describe_hosts(1000, 1)
        # Zero closes a host for all but silent instances, even where another
        # aggregate allows more.
        extreme = self.aggregate('extreme', 'host1', saturation_kbps=0)
        self.boot_refused(self.of(1), host='host1')
        silent = self.boot(self.of(1), host='host2')
        self.learn(silent['id'], egress_kbps=0)
        self.delete_without_reading(self.live_migrate(silent, 'host1'))
        self.read_record()
        self.set_metadata(extreme, saturation_kbps=None, uplink='tor')
        for entries in (10 ** 16, 10 ** 400):
            self.set_metadata(extreme,
                              uplink_mapping_entries=str(entries)[:255])
            self.boot_refused(self.of(2), host='host2')
            server = self.boot(self.of(1000), host='host1')
            self.boot_refused(self.of(1), host='host1')
            self.delete(server)

    def test_bare_metal_passes_unless_an_aggregate_asks_for_it(self):
        self.describe_hosts(1000, 1)
        context = nova_context.RequestContext(
            user_id=None, project_id=None, is_admin=True, overwrite=False)
        with nova_context.target_cell(
                context, self.cell_mappings['cell1']) as cell:
            node = objects.ComputeNodeList.get_all_by_host(cell, 'host2')[0]
            node.hypervisor_type = 'ironic'
            node.save()
        self.restart_scheduler()
        server = self.boot(self.of(1000), host='host2')
        self.describe_host('host2', judge='true')
        self.boot_refused(self.of(1000), host='host2')
        self.delete(server)
        # So does a host that an aggregate leaves out.
        self.boot(self.of(1000), host='host1')
        self.boot_refused(self.of(1000), host='host1')
        self.describe_host('host1', judge='false')
        self.boot(self.of(1000), host='host1')
