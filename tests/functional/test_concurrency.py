# SPDX-License-Identifier: Apache-2.0
"""Many requests at once, while the store and aggregates change."""

import threading

from tests.functional import base


class ConcurrencyTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2', 'host3', 'host4')

    def test_parallel_requests_place_all_and_raise_nothing(self):
        flavor = self.of(10)
        self.describe_hosts(1000, 1000, 1000, 1000)
        first = self.boot_many(flavor, 4)
        ended = threading.Event()

        def disturb():
            rate = 10
            # Not without a pause: the databases have one lock.
            while not ended.wait(0.3):
                rate = 20 if rate == 10 else 10
                self.learn(*[server['id'] for server in first],
                           egress_kbps=rate)
                self.describe_host('host1', saturation_kbps=1000 + rate)

        disturber = threading.Thread(target=disturb)
        disturber.start()
        try:
            posted = self.in_parallel([lambda: self.post(flavor)] * 10)
            servers = [self._wait_for_state_change(server, 'ACTIVE')
                       for server in posted]
            self.in_parallel([
                lambda server=server: self.live_migrate(server)
                for server in servers[:4]])
        finally:
            ended.set()
            disturber.join()
        counted = [uuid for host in self.HOSTS
                   for uuid in self.residents(host)]
        self.assertEqual({server['id'] for server in first + servers},
                         set(counted))
        self.assertEqual(14, len(counted))
