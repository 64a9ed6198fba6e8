# SPDX-License-Identifier: Apache-2.0
"""Which of the hosts with room is taken."""

from tests.functional import base


class WeigherTestCase(base.VSwitchTestCase):
    WEIGHERS = [base.OUR_WEIGHER]

    def setUp(self):
        super().setUp()
        self.describe_hosts(100000, 100000, 100000)
        self.flavor_id = self.of(1000)

    def test_a_positive_multiplier_spreads(self):
        with self.weighed() as answers:
            servers = self.boot_many(self.flavor_id, 6)
            self.assertEqual({'host1': 2, 'host2': 2, 'host3': 2},
                             self.hosts_of(servers))
            single = [self.boot(self.flavor_id) for _ in range(3)]
            self.assertEqual({'host1': 1, 'host2': 1, 'host3': 1},
                             self.hosts_of(single))
            # Emptier because it is larger.
            self.describe_host('host2', saturation_kbps=1000000)
            self.boot(self.flavor_id, 'host2')
        self.assertTrue(answers)
        for answer in answers:
            self.assertIs(list, type(answer))
            for weight in answer:
                self.assertIs(float, type(weight))
                self.assertTrue(0 <= weight <= 1, weight)
        # 2 % and, of the largest, 0.4 % used: a tenth of that less than 1.
        self.assertAlmostEqual(0.9996, max(answers[-1]), 6)
        self.assertAlmostEqual(0.996, min(answers[-1]), 6)

    def test_loss_counts_before_utilisation(self):
        # On host1 peaks never exceed it, on the others they do, more on the
        # third.
        self.flags(group='vswitch_scheduler', overload_probability=1.0)
        resident = self.on_off_flavor('resident', 60000, 0.5)
        for host, saturation in zip(self.HOSTS, (130000, 110000, 100000)):
            self.describe_host(host, saturation_kbps=saturation,
                               overload_probability=1)
        self.boot(self.of(69000), 'host1', host='host1')
        for host in ('host2', 'host3'):
            self.boot(resident, host, host=host)
        half = self.on_off_flavor('half', 60000, 0.1)
        self.boot(half, 'host1')
        self.boot(half, 'host2')

    def test_a_negative_multiplier_packs(self):
        for host in self.HOSTS:
            self.describe_host(host, saturation_kbps=3000)
        pack = self.aggregate('pack', *self.HOSTS,
                              vswitch_weight_multiplier=-1)
        first = self.boot(self.flavor_id, 'host2', host='host2')
        servers = [self.boot(self.flavor_id, 'host2') for _ in range(2)]
        servers += self.boot_many(self.flavor_id, 3)
        self.assertEqual([2, 3], sorted(
            self.hosts_of(servers).values()))
        # And spreads again once the aggregate says so.
        self.delete(first, *servers)
        self.set_metadata(pack, vswitch_weight_multiplier=2)
        self.assertEqual({'host1': 1, 'host2': 1, 'host3': 1},
                         self.hosts_of(self.boot_many(self.flavor_id, 3)))


class OnlyWeigherTestCase(base.VSwitchTestCase):
    WEIGHERS = [base.OUR_WEIGHER]
    FILTERS = base.NOVA_FILTERS

    def test_the_weigher_works_without_the_filter(self):
        self.describe_hosts(1000, 1000, 1000)
        self.assertEqual({'host1': 2, 'host2': 2, 'host3': 2},
                         self.hosts_of(self.boot_many(self.of(900), 6)))


class OnlyFilterTestCase(base.VSwitchTestCase):
    WEIGHERS = ['nova.scheduler.weights.all_weighers']

    def test_the_filter_works_without_the_weigher(self):
        self.describe_hosts(1000, 1000, 1000)
        self.boot_many_refused(self.of(1000), 4)
        self.boot_many(self.of(1000), 3)
