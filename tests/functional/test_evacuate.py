# SPDX-License-Identifier: Apache-2.0
"""Evacuation from a host that is down."""

from tests.functional import base


class EvacuateTestCase(base.VSwitchTestCase):

    def test_an_evacuation_goes_where_there_is_room(self):
        self.describe_hosts(2000, 999, 1000)
        whole = self.of(1000)
        servers = self.boot_many(whole, 2, host='host1')
        self.computes['host1'].stop()
        self.set_service('host1', forced_down=True)
        moved = self._evacuate_server(servers[0], expected_state='SHUTOFF')
        self.assertEqual('host3', moved['OS-EXT-SRV-ATTR:host'])
        self.boot_refused(whole)
        # The second one fits nowhere.
        self.action(servers[1], 'evacuate')
        self._wait_for_migration_status(servers[1], ['error'])
        self.assertEqual('host1', self.host_of(servers[1]))
        self.describe_host('host2', saturation_kbps=1000)
        self.action(servers[1], 'evacuate')
        self.wait_for(lambda: self.host_of(servers[1]) == 'host2',
                      'the second one to be on host2')
        self.boot_refused(whole)


class EvacuateUntrackedTestCase(EvacuateTestCase):
    TRACK_INSTANCE_CHANGES = False
