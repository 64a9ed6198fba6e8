# SPDX-License-Identifier: Apache-2.0
"""Servers that fail in the middle of a pass, and a modeler that goes on.

Whatever happens, each instance keeps its model, nothing is counted twice, the
service lives, says once what is wrong, and catches up by itself.
"""

import functools
import math
import os

import numpy as np
import sqlalchemy as sa

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins
from tests.integration import base
from tests.integration import feeds
from tests.integration import modeler_processes
from tests.integration import servers
from tests.integration import store_suite
from tests.unit.modeler import base as modeler_base
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus

TRAFFIC = telemetry_driver.sample_traffic()
INTERFACES = telemetry_counters.interfaces(TRAFFIC)
PERIOD = modeler_base.PERIOD
Proxy = modeler_processes.Proxy


class FaultsWhileModelling(base.WithServer):
    """Mixin of a SharingTestCase: a modeler with one server behind a proxy.

    :cvar kind: what a failure of the server is called in the one line of the
        log
    :cvar stops: whether a pass fails without the server
    """

    kind = None
    stops = True

    #: First time, and by how much it goes on from one fault to the next.
    begin, step = modeler_base.BEGIN + 100 * PERIOD, 20 * PERIOD

    def setUp(self):
        super().setUp()
        self.clock = modeler_processes.Clock(self.begin)
        self.proxy = Proxy(self.server.port)
        self.addCleanup(self.proxy.close)
        self.log = os.path.join(self.directory, 'log')
        for number in range(5):
            self.driver.put(
                number, modeler_base.BEGIN + PERIOD * np.arange(400),
                np.floor(np.random.default_rng(number).lognormal(4, 2, 400)))
        self.modeler = modeler_processes.Modeler(
            self.make_set_up, self.clock, self.log)

    def start(self):
        self.modeler.start()
        self.addCleanup(self.modeler.kill)
        self.wait_until_caught_up()

    def make_driver(self):
        return self.driver

    def make_store(self, *arguments):
        migration.sync(self.url)
        return store.Store(self.url, 1.0)

    def make_group(self):
        return None

    def make_set_up(self):
        return wiring.SetUp(self.service_store(), self.make_driver(),
                            learning.LearningSettings('memory'), 0.1,
                            self.make_group())

    def service_store(self):
        return store.Store(self.url, 1.0)

    def learned_samples(self):
        return {uuid: one.counts.total_samples for uuid, one
                in self.store.learned(self.store.resume_points()).items()}

    def wanted(self):
        """Return what one pass over all learns, from the server itself."""
        fresh = self.other_store(f'fresh{self.clock():.0f}')
        learning.run(fresh, self.make_driver(), self.clock,
                     learning.LearningSettings('memory'))
        return fresh

    def wait_until_caught_up(self):
        last_times = {uuid: point.last_time for uuid, point
                      in self.wanted().resume_points().items()}

        def caught_up():
            points = self.store.resume_points()
            return last_times == {uuid: point.last_time
                                  for uuid, point in points.items()}

        modeler_processes.wait_for(
            caught_up, f'{last_times}; {modeler_processes.lines(self.log)}')

    def assert_survived(self, spoil, heal):
        """Let time go on while the server is bad, then while it is good."""
        try:
            self._check_survival(spoil, heal)
        except AssertionError as error:
            log = '\n'.join(modeler_processes.lines(self.log))
            raise AssertionError(
                f'{error}\nlog of the modeler:\n{log}\nits threads:\n'
                f'{self.modeler.stacks()}') from error

    def _check_survival(self, spoil, heal):
        self.start()
        passed = self.proxy.passed.value
        self.clock.set(self.clock() + self.step)
        self.wait_until_caught_up()
        passed = self.proxy.passed.value - passed
        for share in (0, .3, .8):
            modeler_processes.wait_for(self.is_well, 'all is well')
            before = self.learned_samples()
            lines = len(modeler_processes.lines(self.log))
            spoil(int(share * passed))
            self.clock.set(self.clock() + self.step)
            if self.kind is not None:
                modeler_processes.wait_for(
                    lambda lines=lines: any(
                        self.kind in line for line
                        in modeler_processes.lines(self.log)[lines:]),
                    f'a word of {self.kind}')
            if not self.stops:
                self.wait_until_caught_up()
            heal()
            self.wait_until_caught_up()
            after = self.learned_samples()
            # No model is lost.
            self.assertLessEqual(before.keys(), after.keys())
            for uuid, samples in before.items():
                self.assertGreaterEqual(after[uuid], samples)
            self.assert_told_once(
                lambda lines=lines: modeler_processes.lines(self.log)[lines:])
        self.assertTrue(self.modeler.process.is_alive())
        self.assertEqual(0, self.modeler.end())
        self.scratch = self.wanted()
        self.assert_same_counts()
        self.assert_no_wrong_sign()

    def is_well(self):
        """Return whether the last word is that it is over."""
        if self.stops or self.kind is None:
            return True
        lines = [line for line in modeler_processes.lines(self.log)
                 if self.kind in line]
        return not lines or 'problem ended: ' in lines[-1]

    def assert_told_once(self, new_lines):
        """One warning when it begins, one word when it has ended."""
        modeler_processes.wait_for(lambda: any(
            'well again' in line or 'problem ended: ' in line
            for line in new_lines()), 'a word of the end')
        # The interval of this test is shorter than any.
        warnings = [line for line in new_lines()
                    if not line.startswith('INFO ')
                    and 'modeler_interval_seconds' not in line]
        self.assertEqual(1, len(warnings), warnings)
        self.assertTrue(warnings[0].startswith('WARNING '), warnings)
        self.assertNotIn('Traceback', warnings[0])

    def assert_same_counts(self):
        # What was refused at the end of a piece is counted again with it.
        def bare(counts):
            return {uuid: figures[:5] for uuid, figures in counts.items()}

        self.assertEqual(bare(self.counts(self.scratch)),
                         bare(self.counts(self.store)))

    def assert_no_wrong_sign(self):
        for stored in self.store.models():
            self.assertTrue(min(*stored.mean, *stored.peak) >= 0, stored)
            self.assertTrue(all(map(math.isfinite, stored.mean)), stored)

    def test_the_server_stops(self):
        def spoil(after):
            self.proxy.spoil(Proxy.ENDS, after)
            if not after:
                self.server.stop_server()

        def heal():
            if self.server.process.poll() is not None:
                self.server.start_server()
            self.proxy.heal()

        self.assert_survived(spoil, heal)

    def test_the_server_stands_still(self):
        self.assert_survived(
            functools.partial(self.proxy.spoil, Proxy.STANDS_STILL),
            self.proxy.heal)

    def test_the_server_talks_nonsense(self):
        self.assert_survived(
            functools.partial(self.proxy.spoil, Proxy.TALKS_NONSENSE),
            self.proxy.heal)


class FaultsOfDatabase(FaultsWhileModelling):

    kind = 'models stay as they are: store'

    def make_url(self):
        return store_suite.new_database(self.server)

    def service_store(self):
        return store.Store(sa.make_url(self.url).set(
            port=self.proxy.port).render_as_string(hide_password=False), 1.0)


class MariaDBFaultsTestCase(FaultsOfDatabase, modeler_base.SharingTestCase):

    make_server = servers.MariaDB


class PostgreSQLFaultsTestCase(FaultsOfDatabase,
                               modeler_base.SharingTestCase):

    make_server = servers.PostgreSQL


class RedisFaultsTestCase(FaultsWhileModelling,
                          modeler_base.SharingTestCase):

    kind = 'instances stay shared as they were'
    stops = False
    make_server = servers.Redis

    def make_group(self):
        return membership.ModelerGroup(
            f'redis://127.0.0.1:{self.proxy.port}?timeout=2')


class FaultsOfTelemetry(FaultsWhileModelling):

    kind = 'models stay as they are: telemetry'
    begin = float(TRAFFIC.times[-1]) - 86400

    def access(self):
        return telemetry_services.access(
            self.url_of(self.proxy.port), timeout_seconds=1.0, retries=1,
            backoff_seconds=.1)

    @staticmethod
    def url_of(port):
        return f'http://127.0.0.1:{port}'


class PrometheusFaultsTestCase(FaultsOfTelemetry,
                               modeler_base.SharingTestCase):

    @classmethod
    def make_server(cls):
        return servers.Prometheus(feeds.open_metrics(
            telemetry_stand_ins.ceilometer_series(INTERFACES)))

    def make_driver(self):
        return prometheus.PrometheusDriver(self.access(), clock=self.clock)


class GnocchiFaultsTestCase(FaultsOfTelemetry, modeler_base.SharingTestCase):

    @classmethod
    def make_server(cls):
        return servers.Gnocchi()

    @classmethod
    def feed(cls, server):
        feeds.GnocchiFeed(server).publish(INTERFACES)

    def make_driver(self):
        return gnocchi.GnocchiDriver(
            {**self.access(), 'url': None, 'auth': {
                'auth_type': 'gnocchi-basic', 'user': 'admin',
                'endpoint': self.url_of(self.proxy.port)}}, clock=self.clock)
