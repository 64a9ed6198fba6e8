# SPDX-License-Identifier: Apache-2.0
"""Resize, to the same host and to another, confirmed and reverted."""

from tests.functional import base


class ResizeTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def setUp(self):
        super().setUp()
        self.flavors = {rate: self.flavor(f'f{rate}', egress_kbps=rate)
                        for rate in (1, 100, 200, 300, 600, 900)}

    def room(self, host, rate):
        """Assert that a host has room for this rate and no more."""
        if rate:
            self.delete(self.boot(self.flavors[rate], host, host=host))
        flavor = self.flavors.setdefault(
            rate + 1, self.flavors.get(rate + 1) or self.flavor(
                f'f{rate + 1}', egress_kbps=rate + 1))
        self.boot_refused(flavor, host=host)

    def test_a_resize_on_the_same_host_counts_once(self):
        self.describe_hosts(1000, 50)
        server = self.boot(self.flavors[600], 'host1')
        self.resize(server, self.flavors[900])
        self.assertEqual('host1', self.host_of(server))
        self.room('host1', 100)
        self.confirm(server)
        self.room('host1', 100)
        # Nova drops it from its view for a while: it counts all the same.
        self.sync_reports()
        self.room('host1', 100)
        # Smaller again.
        self.resize(server, self.flavors[300])
        self.confirm(server)
        self.assertEqual('host1', self.host_of(server))
        self.boot(self.flavors[600], 'host1')
        self.room('host1', 100)

    def test_a_resize_to_another_host_moves_the_room(self):
        self.describe_hosts(700, 1000)
        server = self.boot(self.flavors[600], 'host1', host='host1')
        self.resize(server, self.flavors[900])
        self.assertEqual('host2', self.host_of(server))
        self.room('host2', 100)
        self.confirm(server)
        self.room('host2', 100)
        self.boot(self.flavors[600], 'host1', host='host1')

    def test_a_revert_takes_the_room_back_to_the_first_host(self):
        self.describe_hosts(1000, 1000)
        blocker = self.boot(self.flavors[300], host='host1')
        server = self.boot(self.flavors[600], host='host1')
        self.resize(server, self.flavors[900])
        self.assertEqual('host2', self.host_of(server))
        self.revert(server)
        self.assertEqual('host1', self.host_of(server))
        # On the second host it counts no longer, on the first as before.
        self.boot(self.flavors[900], 'host2', host='host2')
        self.room('host1', 100)
        self.delete(blocker)
        self.boot(self.flavors[300], 'host1', host='host1')
        self.room('host1', 100)

    def test_a_resize_that_fits_nowhere_changes_nothing(self):
        self.describe_hosts(700, 700)
        server = self.boot(self.flavors[600], host='host1')
        self.move_refused(server, 'resize', flavorRef=self.flavors[900])
        self.room('host1', 100)
        self.boot(self.flavors[600], 'host2', host='host2')
