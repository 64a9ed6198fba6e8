# SPDX-License-Identifier: Apache-2.0
"""nova-compute whose live migrations take seconds and can be aborted."""

import sys
import threading

from tests.cloud import monotonic_adapters  # noqa: F401

# Before the rest of nova: it decides about threads.
from nova.cmd import compute
from nova.virt import fake

#: Time that a live migration takes.
SECONDS = 3.0


class SlowDriver(fake.FakeDriverWithoutFakeNodes):
    """Knows of each live migration whether it is aborted."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._aborted = {}       # uuid -> Event

    def live_migration(self, context, instance, dest, post_method,
                       recover_method, block_migration=False,
                       migrate_data=None):
        aborted = self._aborted[instance.uuid] = threading.Event()
        if aborted.wait(SECONDS):
            recover_method(context, instance, dest, migrate_data,
                           migration_status='cancelled')
        else:
            post_method(context, instance, dest, block_migration,
                        migrate_data)

    def live_migration_abort(self, instance):
        if instance.uuid in self._aborted:
            self._aborted[instance.uuid].set()


# Nova looks for drivers among its own.
fake.FakeDriverWithoutFakeNodes = SlowDriver

if __name__ == '__main__':
    sys.exit(compute.main())
