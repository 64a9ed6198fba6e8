# SPDX-License-Identifier: Apache-2.0
"""What a real nova decides by a profile that was just measured.

The rates asked for are made of the numbers in the file that was written, by
the formulas of the manual (configuration/profiles.rst), whatever they are.
"""

import math

import yaml

from tests.calibrated import calibrator
from tests.functional import base

PACKET_BYTES = 1500
#: kbit of a kilo-packet of these.
KBIT = 8 * PACKET_BYTES


def most_kpps(stated):
    """Return how many packets of this size a profile lets through.

    :param stated: numbers of the profile as they are in its file
    :returns: (kilo-packets/s of all VMs, of one VM)
    """
    table = stated.get('saturation_by_packet_bytes', {})
    packet_us = (stated.get('packet_cost_us', 0.0)
                 + stated.get('byte_cost_ns', 0.0) * PACKET_BYTES / 1e3)
    most = min(stated['packet_rate_kpps'],
               table.get(PACKET_BYTES, math.inf) / KBIT,
               1e3 / packet_us if packet_us else math.inf)
    return most, min(most, stated.get('vm_peak_kbps', math.inf) / KBIT)


class CalibratedNovaTestCase(calibrator.Calibrator, base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    #: The profile of hosts with no other: far above any switch in software.
    DEFAULT = 'mellanox-eswitch'

    def calibrate(self, switch, *words):
        """Measure a switch, then start a nova that knows the profile."""
        self.prepare()
        path = self.root / 'profile.yaml'
        self.measure(switch, 'none', '--quick', '--max-busy', '100',
                     '--output', str(path), *words)
        (self.name, stated), = yaml.safe_load(path.read_text()).items()
        self.most, self.most_of_one = most_kpps(stated)
        self.OPTIONS = {'switch_profiles_file': str(path),
                        'default_switch_profile': self.DEFAULT}

    def setUp(self):
        self.calibrate(*self.MEASURED)
        super().setUp()

    def sender(self, kpps):
        """Return a flavor that always sends so many packets."""
        return self.flavor(f'sends-{kpps}', egress_kbps=kpps * KBIT,
                           kpps=kpps)

    def check_decisions(self):
        fits, too_much = (self.sender(int(self.most_of_one) + more)
                          for more in (0, 1))
        # By the default a host takes what the switch cannot carry.
        self.delete(self.boot(too_much, host='host1'))
        self.describe_host('host1', profile=self.name)
        self.boot_refused(too_much, host='host1')
        self.delete(self.boot(too_much, 'host2'))
        self.delete(self.boot(fits, 'host1', host='host1'))
        # Until it is full.
        each = int(min(self.most_of_one, self.most / 3))
        share = self.sender(each)
        count = int(self.most / each)
        self.boot_many_refused(share, count + 1, host='host1')
        self.boot_many(share, count, host='host1')
        self.boot_refused(share, host='host1')
        self.boot(share, 'host2')
        # It was the profile that refused, and nothing was ignored.
        self.describe_host('host1', profile=None)
        self.boot(share, 'host1', host='host1')
        self.assertEqual([], self.log.warnings)


class LinuxBridgeTestCase(CalibratedNovaTestCase):
    MEASURED = ('linuxbridge',)

    def test_hosts_take_what_their_switch_was_measured_to_carry(self):
        self.check_decisions()


class OpenVSwitchTestCase(CalibratedNovaTestCase):
    MEASURED = ('ovs-netdev', '--sizes', '512,1500')

    def test_hosts_take_what_their_switch_was_measured_to_carry(self):
        self.check_decisions()
