# SPDX-License-Identifier: Apache-2.0
"""nova-compute, with a driver that fails the first build of each instance."""

import sys

# Before the rest of nova: it decides about threads.
from nova.cmd import compute
from nova.virt import fake


class FailingDriver(fake.FakeRescheduleDriver,
                    fake.FakeDriverWithoutFakeNodes):
    """Fails, on the node that is there already."""


# Nova looks for drivers among its own.
fake.FakeDriverWithoutFakeNodes = FailingDriver

if __name__ == '__main__':
    sys.exit(compute.main())
