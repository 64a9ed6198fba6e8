# SPDX-License-Identifier: Apache-2.0
from tests.functional import base


class BootTestCase(base.VSwitchTestCase):

    def test_a_vm_goes_where_its_peak_fits(self):
        self.describe_hosts(1000, 1000, 5000)
        big = self.flavor('big', egress_kbps=4000)
        self.assertEqual('host3', self.host_of(self.boot(big)))
        self.boot_refused(big)
