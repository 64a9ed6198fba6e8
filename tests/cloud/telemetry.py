# SPDX-License-Identifier: Apache-2.0
"""What the cloud's instances send, in a real Gnocchi, and a modeler of it."""

import dataclasses
import os
import subprocess
import sys
import textwrap
import time

import fixtures
import numpy as np

from tests.integration import feeds
from tests.integration import servers

PERIOD_SECONDS = 300


@dataclasses.dataclass
class _Interface:
    """As :class:`tests.contract.telemetry_counters.Interface`."""

    instance_uuid: str
    times: np.ndarray
    counters: np.ndarray

    @property
    def tap(self):
        return f'tap{self.instance_uuid[:11]}'

    @property
    def resource(self):
        return f'instance-{self.instance_uuid}-{self.tap}'


class Telemetry(fixtures.Fixture):
    """Gnocchi, and ``vswitch-modeler --once`` as cron would start it.

    :param store_url: of the store that the schedulers read
    :param nova: options, as lines, of who asks Nova for the inventory
    :ivar gnocchi: :class:`~tests.integration.servers.Gnocchi`
    """

    def __init__(self, store_url, nova):
        super().__init__()
        self._store_url = store_url
        self._nova = nova

    def _setUp(self):
        self.gnocchi = self.useFixture(servers.Gnocchi())
        self._feed = feeds.GnocchiFeed(self.gnocchi)
        self._configuration = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'modeler.conf')
        self.configure()

    def configure(self, **options):
        """Write what the modeler reads.

        :param options: of [vswitch_scheduler]
        """
        # Each line as far to the right as those around it.
        more = f'{chr(10)}{16 * " "}'.join(
            f'{name} = {value}' for name, value in options.items())
        with open(self._configuration, 'w') as stream:
            stream.write(textwrap.dedent(f'''
                [vswitch_scheduler]
                store_url = {self._store_url}
                telemetry_driver = gnocchi
                {more}
                [vswitch_gnocchi]
                auth_type = gnocchi-basic
                user = admin
                endpoint = {self.gnocchi.url}
                retries = 1
                [vswitch_inventory]
                ''') + self._nova)

    def publish(self, egress_kbps, days=1):
        """Bring in a past of constant rates.

        :param egress_kbps: {instance uuid: rate}
        """
        count = int(days * 86400 / PERIOD_SECONDS)
        last = time.time() // PERIOD_SECONDS * PERIOD_SECONDS \
            - 2 * PERIOD_SECONDS
        times = last - PERIOD_SECONDS * np.arange(count)[::-1]
        found = []
        for uuid, kbps in egress_kbps.items():
            counters = np.zeros((count, 4))
            counters[:, 0] = np.arange(count) * PERIOD_SECONDS * kbps * 125
            counters[:, 2] = counters[:, 0] / 1000
            found.append(_Interface(uuid, times, counters))
        self._feed.publish(found)

    def learn(self):
        """Make one pass; return (exit status, what it said)."""
        return self._run('modeler', '--once')

    def manage(self, *words):
        """Run vswitch-manage; return (exit status, what it said)."""
        return self._run('manage', *words)

    def _run(self, command, *words):
        done = subprocess.run(
            [sys.executable, '-m', f'vswitch_aware_scheduler.cmd.{command}',
             *words, '--config-file', self._configuration],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300)
        return done.returncode, done.stdout + done.stderr
