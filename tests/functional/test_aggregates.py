# SPDX-License-Identifier: Apache-2.0
"""What aggregates say counts from the next request on."""

from tests.functional import base

from nova import context as nova_context
from nova import objects


class AggregateTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_metadata_changed_while_running_changes_the_next_answer(self):
        flavor = self.flavor('f1000', egress_kbps=1000)
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

    def test_of_several_aggregates_the_most_cautious_wins(self):
        flavor = self.flavor('f100', egress_kbps=100)
        self.aggregate('wide', 'host1', 'host2', saturation_kbps=1000,
                       overload_probability=0.3, admission_policy='average')
        narrow = self.aggregate('narrow', 'host1', saturation_kbps=100)
        self.boot(flavor, 'host1', host='host1')
        self.boot_refused(flavor, host='host1')
        self.set_metadata(narrow, saturation_kbps=200)
        self.boot(flavor, 'host1', host='host1')
        self.boot_refused(flavor, host='host1')
        # All of three are on for 1/8 of the time, three or more of four
        # for 5/16.
        half = self.on_off_flavor('half', 400, 0.5)
        cautious = self.aggregate(
            'cautious', 'host2', admission_policy='probability',
            overload_probability=0.1)
        self.boot_many(half, 2, host='host2')
        self.boot_refused(half, host='host2')
        self.set_metadata(cautious, overload_probability=0.2)
        self.boot(half, 'host2', host='host2')
        self.boot_refused(half, host='host2')
        self.set_metadata(cautious, overload_probability=0.9)
        self.boot_refused(half, host='host2')
        # A host that leaves an aggregate: by average five fit.
        self.remove_from_aggregate(cautious, 'host2')
        self.boot_many(half, 2, host='host2')
        self.boot_refused(half, host='host2')
        self.set_metadata(narrow, saturation_kbps=None)
        self.boot_many(flavor, 8, host='host1')
        self.boot_refused(flavor, host='host1')

    def test_values_that_cannot_be_used_are_ignored_with_one_line(self):
        flavor = self.flavor('f1000', egress_kbps=1000)
        self.describe_host('host1', saturation_kbps=1000)
        self.describe_host('host2', saturation_kbps=1)
        self.log.clear()
        bad = self.aggregate(
            'bad', 'host1', saturation_kbps='a lot', profile='nonesuch',
            overload_probability='nan', admission_policy='guess',
            max_tunnels='-1', colour='blue')
        server = self.boot(flavor, 'host1')
        self.boot_refused(flavor)
        self.delete(server)
        server = self.boot(flavor, 'host1')
        for text in ('saturation_kbps', 'profile', 'overload_probability',
                     'admission_policy', 'max_tunnels', 'colour'):
            lines = [line for line in self.log.warnings
                     if f'vswitch:{text}: ' in line]
            self.assertEqual(1, len(lines), (text, self.log.warnings))
            self.assertIn('bad', lines[0])
        self.assertEqual(6, len(self.log.warnings))
        # Put right, it counts, and the log says so.
        self.log.clear()
        self.set_metadata(bad, saturation_kbps=500)
        self.delete(server)
        self.boot_refused(flavor)
        self.assertTrue([line for line in self.log.messages()
                         if 'saturation_kbps is well again' in line],
                        self.log.messages())
        self.assertEqual([], self.log.warnings)
        self._check_extremes(bad, flavor)
        self._check_bare_metal(flavor)

    def _check_extremes(self, bad, flavor):
        small, large = (self.flavor(f'f{kbps}', egress_kbps=kbps)
                        for kbps in (1, 2))
        # Zero closes a host for all but silent instances, even where another
        # aggregate allows more.
        self.set_metadata(bad, saturation_kbps=0)
        self.boot_refused(small, host='host1')
        silent = self.boot(small, host='host2')
        self.learn(silent['id'], egress_kbps=0)
        self.delete_without_reading(self.live_migrate(silent, 'host1'))
        self.read_record()
        # A value beyond all bounds changes nothing on any other host.
        self.set_metadata(bad, saturation_kbps=None, uplink='tor')
        for entries in (10 ** 16, 10 ** 400):
            self.set_metadata(bad, uplink_mapping_entries=str(entries)[:255])
            self.boot_refused(large, host='host2')
            server = self.boot(flavor, host='host1')
            self.boot_refused(small, host='host1')
            self.delete(server)

    def _check_bare_metal(self, flavor):
        context = nova_context.RequestContext(
            user_id=None, project_id=None, is_admin=True, overwrite=False)
        with nova_context.target_cell(
                context, self.cell_mappings['cell1']) as cell:
            node = objects.ComputeNodeList.get_all_by_host(cell, 'host2')[0]
            node.hypervisor_type = 'ironic'
            node.save()
        self.restart_scheduler()
        # Passes unjudged, unless an aggregate asks for it; so does a host
        # that an aggregate leaves out.
        server = self.boot(flavor, host='host2')
        self.describe_host('host2', judge='true')
        self.boot_refused(flavor, host='host2')
        self.delete(server)
        self.boot(flavor, host='host1')
        self.boot_refused(flavor, host='host1')
        self.describe_host('host1', judge='false')
        self.boot(flavor, host='host1')
