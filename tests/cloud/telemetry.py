# SPDX-License-Identifier: Apache-2.0
"""What the cloud's instances send, in a real service, and a modeler of it."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time

import fixtures
import numpy as np

from tests.contract import telemetry_stand_ins
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


class _Gnocchi(fixtures.Fixture):
    """Gnocchi, to be fed with readings; options, stop and start of it."""

    def _setUp(self):
        server = self.useFixture(servers.Gnocchi())
        self.publish = feeds.GnocchiFeed(server).publish
        self.stop, self.start = server.stop_server, server.start_server
        self.options = {'auth_type': 'gnocchi-basic', 'user': 'admin',
                        'endpoint': server.url}


class _Prometheus(fixtures.Fixture):
    """The same of Prometheus, as Ceilometer exports to it."""

    def _setUp(self):
        self._server = self.useFixture(servers.Prometheus(['# EOF\n']))
        self.stop = self._server.stop_server
        self.start = self._server.start_server
        self.options = {'endpoint_override': self._server.url}

    def publish(self, interfaces):
        # It takes in the past while it does not run.
        self.stop()
        self._server.take_in(feeds.open_metrics(
            telemetry_stand_ins.ceilometer_series(interfaces)))
        self.start()


#: By the names of their drivers.
SOURCES = {'gnocchi': _Gnocchi, 'prometheus': _Prometheus}


class Telemetry(fixtures.Fixture):
    """``vswitch-modeler --once``, as cron would start it, and what it reads.

    :param store_url: of the store that the schedulers read
    :param nova: options, as lines, of who asks Nova for the inventory
    :param source: one of :data:`SOURCES`
    :ivar config_file: of the modeler and the commands
    :ivar source: the same; its ``stop`` and ``start`` make an outage
    """

    def __init__(self, store_url, nova, source):
        super().__init__()
        self._store_url = store_url
        self._nova = nova
        self.source = source

    def _setUp(self):
        self.useFixture(self.source)
        self.config_file = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'modeler.conf')
        self.configure()

    def configure(self, **options):
        """Write what the modeler reads.

        :param options: of [vswitch_scheduler]
        """
        driver, = (name for name, kind in SOURCES.items()
                   if isinstance(self.source, kind))
        with open(self.config_file, 'w') as stream:
            for group, values in (
                    ('scheduler', {'store_url': self._store_url,
                                   'telemetry_driver': driver, **options}),
                    (driver, {'status_code_retries': 1,
                              **self.source.options})):
                stream.write(f'[vswitch_{group}]\n' + ''.join(
                    f'{name} = {value}\n' for name, value in values.items()))
            stream.write(f'[vswitch_inventory]\n{self._nova}')

    def publish(self, egress_kbps, days=1):
        """Bring in a past of constant rates.

        :param egress_kbps: {instance uuid: rate}
        """
        count = int(days * 86400 / PERIOD_SECONDS)
        self.publish_rates({uuid: np.full(count, kbps)
                            for uuid, kbps in egress_kbps.items()})

    def publish_rates(self, egress_kbps):
        """Bring in a past; the last sample is one period old.

        :param egress_kbps: {instance uuid: (t,) rate in each period}
        """
        self.publish_to(self.source, egress_kbps)

    @staticmethod
    def publish_to(source, egress_kbps):
        """As :meth:`publish_rates`, to another source."""
        last = time.time() // PERIOD_SECONDS * PERIOD_SECONDS \
            - PERIOD_SECONDS
        samples = []
        for uuid, rates in egress_kbps.items():
            times = last - PERIOD_SECONDS * np.arange(len(rates))[::-1]
            counters = np.zeros((len(rates), 4))
            counters[:, 0] = np.cumsum(rates) * PERIOD_SECONDS * 125
            counters[:, 2] = counters[:, 0] / 1000
            samples.append(_Interface(uuid, times, counters))
        source.publish(samples)

    def learn(self, wrapper=()):
        """Make one pass; return (exit status, what it said).

        :param wrapper: command that runs the modeler, its arguments
        """
        return self._run('modeler', '--once', wrapper=wrapper)

    @contextlib.contextmanager
    def modeler(self):
        """Run vswitch-modeler as a service; yields its process."""
        with open(f'{self.config_file}.log', 'ab') as log:
            process = subprocess.Popen(
                self._command('modeler'), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def manage(self, *words):
        """Run vswitch-manage; return (exit status, what it said)."""
        return self._run('manage', *words)

    def checks(self):
        """Return {check: (code, details)} that vswitch-status tells."""
        _, output = self._run('status', 'check', '--json')
        return {check['check']: (check['result'], check['details'])
                for check in json.loads(output)['checks']}

    def _command(self, command, *words):
        return [sys.executable, '-m',
                f'vswitch_aware_scheduler.cmd.{command}',
                '--config-file', self.config_file, *words]

    def _run(self, command, *words, wrapper=()):
        done = subprocess.run(
            [*wrapper, *self._command(command, *words)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300)
        return done.returncode, done.stdout + done.stderr
