# SPDX-License-Identifier: Apache-2.0
"""A rebuild stays where it is, however full that is."""

from tests.functional import base

OTHER_IMAGE = 'a2459075-d96c-40d5-893e-577ff92e721c'


class RebuildTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_rebuild_passes_on_an_overloaded_host(self):
        self.describe_hosts(1000, 1000)
        whole = self.of(1000)
        server = self.boot(whole, 'host1', host='host1')
        self.describe_host('host1', saturation_kbps=10)
        self.boot_refused(whole, host='host1')
        self.action(server, 'rebuild', imageRef=OTHER_IMAGE)
        self._wait_for_instance_action_event(
            server, 'rebuild', 'compute_rebuild_instance', 'success')
        self._wait_for_server_parameter(server, {
            'status': 'ACTIVE', 'OS-EXT-STS:task_state': None})
        self.assertEqual('host1', self.host_of(server))
        # It is counted once, as before.
        self.describe_host('host1', saturation_kbps=1100)
        self.room('host1', 100)
