# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import os
import re
import signal
import socket
import types
from unittest import mock

from keystoneauth1 import loading as ks_loading
import numpy as np
from oslo_config import cfg

from tests.fakes import nova_hosts
from tests.fakes import passes
from tests.fakes import prometheus as fake_prometheus
from tests.unit.modeler import base
from tests.unit.store import base as store_base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.modeler import cloud_facts
from vswitch_aware_scheduler.modeler import heartbeat
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler.modeler import service
from vswitch_aware_scheduler.modeler import systemd
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.vswitch import profile

LOGGER = 'vswitch_aware_scheduler.modeler.service'

TIMES = base.BEGIN + 300.0 * np.arange(50)


def registered_options():
    """Return the options of the plugin with their defaults."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    return conf


def _tell_myself(number):
    os.kill(os.getpid(), number)


class Heard:
    """A notifier that remembers what it was told."""

    def __init__(self):
        self.words = []

    def notify(self, **words):
        self.words.append(words)

    def named(self, name):
        return [words[name] for words in self.words if name in words]


class ServiceTestCase(base.ModelerTestCase):

    def setUp(self):
        super().setUp()
        self.driver.put(0, TIMES, np.ones(50))
        self.set_up = wiring.SetUp(self.store, self.driver,
                                   learning.LearningSettings('memory'), 100.0)
        self.time = 0.0
        self.heard = Heard()
        self.loads = 0
        #: Called when something is waited for: {time: function}.
        self.at = {}

    def load(self):
        self.loads += 1
        return self.set_up

    def change(self, **changes):
        """Let other options hold: fields of the SetUp."""
        self.set_up = dataclasses.replace(self.set_up, **changes)

    def sleep(self, seconds):
        self.time += seconds
        for time in sorted(self.at):
            if time <= self.time:
                self.at.pop(time)()

    def clock(self):
        return base.END

    def make_service(self):
        return service.Service(
            self.load, self.heard, clock=self.clock,
            monotonic=lambda: self.time, sleep=self.sleep)

    def serve(self):
        """Return (passes, log lines from info on) of a service run."""
        with self.assertLogs(LOGGER, 'INFO') as logs:
            passes = self.make_service().run()
        return passes, [f'{record.levelname} {record.getMessage()}'
                        for record in logs.records]

    def assertLines(self, count, words, logs):
        """Want some words in so many lines, and return these lines."""
        lines = [line for line in logs if words in line]
        self.assertEqual(count, len(lines), logs)
        return lines

    def end_at(self, time):
        self.at[time] = lambda: _tell_myself(signal.SIGTERM)

    def reload_at(self, time, **changes):
        """Let other options hold from a time on, as :meth:`change`."""
        def reload():
            self.change(**changes)
            _tell_myself(signal.SIGHUP)

        self.at[time] = reload

    def fail_at(self, time, after=0):
        """Let telemetry fail from a time on, or recover (after=None)."""
        self.at[time] = lambda: setattr(self.driver, 'fail_after', after)

    def before_passes(self, function):
        """Let the driver call a function when it lists its instances."""
        instances = self.driver.instances

        def calling():
            function()
            return instances()

        self.driver.instances = calling

    def read_by(self, reading):
        """Let the series of the driver pass through a generator."""
        series = self.driver._series
        self.driver._series = lambda *arguments: reading(series(*arguments))


class Source:
    """A source of the inventory that a test lets fail."""

    name = 'memory'

    def __init__(self):
        self.problem = None
        self.readings = 0

    def ports_due(self, now, seconds):
        return False

    def settle(self, reading, now):
        pass

    def read(self, since, stored):
        self.readings += 1
        if self.problem is not None:
            raise self.problem
        return instance_sync.Reading({
            uuid: model_store.InstanceRecord(uuid, 'h1', f'flavor{number % 2}')
            for number, uuid in enumerate(
                map(store_base.instance_uuid, range(40)))})

    def unknown(self, instance_uuids):
        return set()


class WithInventory(ServiceTestCase):

    def setUp(self):
        super().setUp()
        self.source = Source()
        self.change(inventory=self.source, complete_seconds=1e6)
        for number in range(40):
            self.driver.put(number, TIMES,
                            np.full(50, 10.0 ** (1 + number % 2)))


class InventoryTestCase(WithInventory):

    def test_placements_and_priors_are_learned_with_the_traffic(self):
        self.end_at(50)
        _, lines = self.serve()
        self.assertTrue(all(line[:4] == 'INFO' for line in lines), lines)
        self.assertEqual(40, len(self.store.placements()))
        self.assertEqual(
            {('flavor0', None), ('flavor1', None), (None, None)},
            set(self.store.priors()))

    def test_priors_are_not_computed_again_without_news(self):
        self.end_at(350)
        with mock.patch.object(priors, 'update',
                               wraps=priors.update) as update:
            passes, _ = self.serve()
        self.assertEqual((4, 1), (passes, update.call_count))


class BudgetsTestCase(WithInventory):
    """40 instances on a host whose switch carries 2000 kbit/s."""

    def setUp(self):
        super().setUp()
        self.now = base.BEGIN
        # All together send 2200 kbit/s in every fifth period, else 220.
        sent = np.where(np.arange(50) % 5, 1.0, 10.0)
        for number in range(40):
            self.driver.put(number, TIMES, sent * 10.0 ** (number % 2))
        self.change(interval_seconds=300.0, budgets=True)
        self.store.write_fleet({'host': {'h1': policy_in_force.pack(
            admission.HostPolicy(profile.SwitchProfile(
                'switch', saturation_kbps=2000.0)))}, 'uplink': {}},
            self.now)

    def clock(self):
        return base.BEGIN + 300.0 * 10 + self.time

    def budget(self):
        return self.store.error_budgets()[model_store.HOST, 'h1']

    def test_budgets_of_passes_agree_with_the_closed_form(self):
        self.change(predict=lambda store, progress: view.FleetView(
            store).overload_probabilities(progress))
        self.end_at(300.0 * 20 + 1)
        self.serve()
        budget = self.budget()
        # Ten periods are over when it begins. Twenty later the inventory is
        # known up to two minutes ago: in 19 periods four are overloaded.
        self.assertEqual(
            (base.BEGIN + 3000, 19 * 300.0, 4 * 300.0, 0.0),
            (budget.since, budget.measured_seconds, budget.overload_seconds,
             budget.unknown_seconds))
        self.assertAlmostEqual(.006 * (86400 + 19 * 300) - 4 * 300,
                               budget.balance)
        prediction = budget.prediction
        # It was made before there were models, and counts them as silent.
        self.assertEqual(0.0, prediction.share)
        self.assertGreater(prediction.deviations, 0.0)
        self.assertGreater(prediction.seconds, 15 * 300)
        self.assertAlmostEqual(.2, prediction.overload_seconds
                               / prediction.seconds, delta=.06)

    def test_modelers_of_a_group_keep_one_budget_together(self):
        set_ups = [dataclasses.replace(
            self.set_up, group=membership.ModelerGroup(
                f'file://{self.directory}/group')) for _ in range(2)]
        self.store.write([store_base.fitted(99)])
        now = base.BEGIN
        passes.run_step('inventory', self.set_up, lambda: now)

        def make_passes(modelers, periods):
            now = base.BEGIN + 300.0 * periods + 150.0
            store_id = self.store.generation().store_id
            shares = [modeler.group.share(store_id) for modeler in modelers]
            for modeler, share in zip(modelers, shares):
                common = share('inventory')
                self.assertIsNone(passes.run_step(
                    'budgets', modeler, lambda: now, share=share,
                    outcome=types.SimpleNamespace(last_time=now),
                    hosts_known_until=now - 120.0 if common else None))

        for modeler in set_ups:
            modeler.group.share(self.store.generation().store_id)
            self.addCleanup(modeler.group.leave)
        for periods in (0, 10, 10, 20, 20, 20):
            make_passes(set_ups, periods)
        budget = self.budget()
        self.assertEqual((6000.0, 1200.0), (budget.measured_seconds,
                                            budget.overload_seconds))
        # One ends, and the other one takes over.
        set_ups[0].group.leave()
        for periods in (30, 30):
            make_passes(set_ups[1:], periods)
        budget = self.budget()
        self.assertEqual((9000.0, 1800.0, 0.0), (
            budget.measured_seconds, budget.overload_seconds,
            budget.unknown_seconds))

    def test_a_failing_inventory_delays_budgets(self):
        self.at[300.0 * 10] = lambda: setattr(
            self.source, 'problem', exceptions.TelemetryError('gone'))
        self.end_at(300.0 * 20 + 1)
        self.serve()
        budget = self.budget()
        self.assertLess(budget.measured_seconds + budget.unknown_seconds,
                        3300.0)

    def test_without_the_option_there_are_no_budgets(self):
        self.change(budgets=False)
        self.end_at(300.0 * 3)
        self.serve()
        self.assertEqual({}, self.store.error_budgets())
        self.assertIsNone(self.store.budget_state())

    def test_an_error_of_budgets_does_not_end_a_pass(self):
        self.store.settle_budgets = mock.Mock(
            side_effect=ZeroDivisionError('oh'))
        self.end_at(300.0 * 3)
        _, lines = self.serve()
        self.assertEqual(1, lines.count(
            'WARNING vswitch-modeler: error budgets stay as they are: '
            'unexpected ZeroDivisionError: oh'))
        self.assertFalse(any('pass failed' in line for line in lines))


class PartsTestCase(WithInventory):
    """What a pass does beside learning from telemetry."""

    def setUp(self):
        super().setUp()
        self.change(fleet=mock.Mock(options={}, **{
            'update.return_value': mock.Mock(problems={})}))
        self.parts = (
            ('the inventory stays as it is', self.source, 'read'),
            ('the policies of hosts in the store stay as they are',
             self.set_up.fleet, 'update'))

    def serve_failing(self, owner, method, problem, until, end):
        """Return (passes, log lines) of a run in which a part fails."""
        def fail(*arguments):
            if self.time < until:
                raise problem
            return mock.DEFAULT

        self.time = 0.0
        self.end_at(end)
        with mock.patch.object(owner, method, side_effect=fail,
                               wraps=getattr(owner, method)):
            return self.serve()

    def test_a_failing_step_is_logged_once_and_models_are_learned(self):
        problems = (
            (exceptions.TelemetryError('nova: seen x; expected y'),
             'nova: seen x; expected y'),
            (ZeroDivisionError('oh'), 'unexpected ZeroDivisionError: oh'))
        for (effect, *part), (problem, why) in itertools.product(
                self.parts, problems):
            with self.subTest(effect, problem=problem):
                passes, lines = self.serve_failing(
                    *part, problem, until=250, end=450)
                self.assertEqual(5, passes)
                self.assertEqual(1, lines.count(
                    f'WARNING vswitch-modeler: {effect}: {why}'), lines)
                self.assertLines(
                    1, f'ended: {effect.partition(" stay")[0]}', lines)
                self.assertIsNotNone(self.store.model(
                    store_base.instance_uuid(1)))

    def test_hosts_that_nova_does_not_have_are_logged_once(self):
        def set_hosts(*names):
            self.store.write(host_profiles=[
                model_store.HostProfile(name, None, {}, 'operator')
                for name in names])

        cloud = self.enterContext(nova_hosts.NovaHosts())
        cloud.host('compute1')
        group = registered_options().vswitch_scheduler
        self.change(fleet=cloud_facts.CloudFacts(
            cloud.access(), lambda: wiring.make_policies(group)))
        set_hosts('compute1', 'compute01')
        self.at = {250: lambda: set_hosts('g'), 550: lambda: self.store.write(
            remove_hosts=['g', 'compute01'])}
        self.end_at(850)
        _, lines = self.serve()
        name = ('WARNING vswitch-modeler: by the last reading of the '
                'modeler, Nova has no host of the name: ')
        first = 'compute01 (nearest name: compute1)'
        self.assertLines(2, name, lines)
        self.assertLines(1, f'{name}{first};', lines)
        self.assertLines(1, f'{name}{first}, g;', lines)
        self.assertLines(1, 'ended: by the last reading', lines)

    def test_a_failing_store_ends_the_pass(self):
        for effect, *part in self.parts:
            with self.subTest(effect):
                passes, lines = self.serve_failing(
                    *part, exceptions.StoreError('store x: gone'),
                    until=1, end=50)
                self.assertEqual(1, passes)
                self.assertIn('WARNING vswitch-modeler: pass failed, models '
                              'stay as they are: store x: gone', lines)


class LifeTestCase(ServiceTestCase):

    def test_the_service_makes_passes_at_the_interval_until_a_signal(self):
        handler = signal.getsignal(signal.SIGTERM)
        self.end_at(350)
        passes, logs = self.serve()
        self.assertEqual((4, 4), (passes, len(self.driver.asked)))
        self.assertLess(self.time, 352)
        for line, words in zip(logs, (
                'has started: reads memory every 100 s',
                '50 new samples, 1 models fitted',
                'has ended after 4 passes'), strict=True):
            self.assertIn(words, line)
        self.assertEqual(handler, signal.getsignal(signal.SIGTERM))
        # systemd is notified of the start, of progress and of the end.
        self.assertEqual([1], self.heard.named('READY'))
        self.assertEqual([1], self.heard.named('STOPPING'))
        self.assertEqual(self.heard.words[-1]['STOPPING'], 1)
        self.assertGreaterEqual(len(self.heard.named('WATCHDOG')), 350)
        self.assertTrue(any('50 new samples' in status
                            for status in self.heard.named('STATUS')))

    def test_the_watchdog_is_notified_of_progress_alone(self):
        signs = []

        def slow(series):
            for rates in series:
                signs.append(len(self.heard.named('WATCHDOG')))
                self.time += 0 if len(signs) > 40 else 7200
                signs.append(len(self.heard.named('WATCHDOG')))
                yield rates

        for number in range(20):
            self.driver.put(number, TIMES, np.ones(50))
        self.read_by(slow)
        self.end_at(20 * 7200 + 50)
        self.serve()
        self.assertEqual(signs[::2], signs[1::2])
        self.assertEqual(sorted(set(signs[:40:2])), signs[:40:2])

    def test_the_watchdog_of_the_unit_outlasts_one_request(self):
        path = os.path.join(os.path.dirname(__file__), *[os.pardir] * 3,
                            'etc', 'vswitch_aware_scheduler', 'systemd',
                            'vswitch-modeler.service')
        with open(path) as unit:
            minutes, = re.findall(r'^WatchdogSec=(\d+)min$', unit.read(),
                                  re.MULTILINE)
        access = http.Access(url='http://a')
        pauses = sum(min(access.backoff_seconds * 2 ** number,
                         http.MAX_PAUSE_SECONDS)
                     for number in range(access.retries))
        longest = (access.retries + 1) * access.timeout_seconds + pauses
        self.assertGreater(60 * int(minutes), 4 * longest)

    def test_a_signal_during_reading_ends_the_pass_unwritten(self):
        class Dying:
            def __del__(self):
                _tell_myself(signal.SIGTERM)

        def ending(series):
            for rates in series:
                yield rates
                _tell_myself(signal.SIGTERM)

        def ending_in_a_destructor(series):
            Dying()
            yield from series

        for reading, dropped in ((ending, 0), (ending_in_a_destructor, 1)):
            self.driver = base.MemoryDriver()
            self.driver.put(0, TIMES, np.ones(50))
            self.change(driver=self.driver)
            self.read_by(reading)
            with self.subTest(reading.__name__), \
                    mock.patch('sys.unraisablehook') as hook:
                passes, logs = self.serve()
                # Python ignores the exception of a destructor.
                self.assertEqual(dropped, hook.call_count)
                self.assertEqual((0, 0.0, 0), (
                    passes, self.time, self.store.generation().number))
                self.assertIn('the pass was stopped', logs[1])

    def test_a_signal_during_the_write_waits_for_it(self):
        class Ending(model_store.Store):
            def write(self, *arguments, **options):
                _tell_myself(signal.SIGTERM)
                return super().write(*arguments, **options)

        self.change(store=Ending(self.url))
        passes, _ = self.serve()
        self.assertEqual((1, 1), (passes, self.store.generation().number))
        self.assertEqual(0.0, self.time)


class ReloadTestCase(ServiceTestCase):

    def test_a_new_configuration_applies_from_the_next_pass(self):
        self.reload_at(150, driver=base.MemoryDriver(),
                       interval_seconds=200.0)
        self.end_at(500)
        passes, logs = self.serve()
        self.assertEqual((2, 2), (self.loads, len(self.driver.asked)))
        # At 150 at once, at 350.
        self.assertEqual(4, passes)
        self.assertIn('has read its configuration: memory every 200 s',
                      ' '.join(logs))
        self.assertEqual([1, 1], self.heard.named('READY'))
        [microseconds] = self.heard.named('MONOTONIC_USEC')
        self.assertGreater(microseconds, 0)

    def test_an_invalid_new_configuration_is_logged_and_ignored(self):
        errors = [
            (cfg.ConfigFileValueError('min_samples is many'),
             'min_samples is many'),
            (exceptions.TelemetryError('no driver'), 'no driver'),
            (ValueError('no option'), 'no option'),
            # Of a constructor of a driver of others.
            (AttributeError('oh'), 'unexpected AttributeError: oh')]
        self.load = mock.Mock(side_effect=[
            self.set_up, *(error for error, _ in errors)])
        for number in range(len(errors)):
            self.at[150 + number] = lambda: _tell_myself(signal.SIGHUP)
        self.end_at(350)
        with self.assertLogs(LOGGER, 'ERROR') as logs:
            passes = self.make_service().run()
        for (_, message), line in zip(errors, logs.output, strict=True):
            self.assertTrue(line.endswith('one stays in use: ' + message),
                            line)
        # At 0, 100 and 150, once for each SIGHUP, and later.
        self.assertGreaterEqual(passes, 3 + len(errors))


class FailureTestCase(ServiceTestCase):

    def _times_of_passes(self):
        """Return a list that gets the time at which each pass begins."""
        times = []
        self.before_passes(lambda: times.append(self.time))
        return times

    def test_pauses_double_up_to_a_limit_with_one_log_line(self):
        self.driver.fail_after = 0
        times = self._times_of_passes()
        self.end_at(1300)
        passes, logs = self.serve()
        self.assertEqual(0, passes)
        # 5, 10, 20, ... 300, 300
        self.assertEqual([0, 5, 15, 35, 75, 155, 315, 615, 915, 1215],
                         times)
        self.assertLines(1, 'WARNING vswitch-modeler', logs)
        self.assertIn('models stay as they are: memory: gone; expected there',
                      logs[1])

    def test_a_reload_retries_immediately_with_short_pauses(self):
        self.driver.fail_after = 0
        times = self._times_of_passes()
        self.at[100] = lambda: _tell_myself(signal.SIGHUP)
        self.end_at(120)
        self.serve()
        self.assertEqual([0, 5, 15, 35, 75, 100, 105, 115], times)

    def test_a_recovery_is_logged_and_restores_the_interval(self):
        self.driver.fail_after = 0
        times = self._times_of_passes()
        self.fail_at(10, None)
        self.end_at(220)
        passes, logs = self.serve()
        self.assertEqual([0, 5, 15, 115, 215], times)
        self.assertEqual(3, passes)
        self.assertIn('well again after 2 failed passes in 15 s', logs[2])
        self.assertEqual(1, self.store.generation().number)

    def test_each_kind_of_failure_is_logged_once(self):
        self.driver.fail_after = 0
        self.reload_at(20, store=model_store.Store(
            f'sqlite:///{self.directory}/none.sqlite'))
        self.end_at(400)
        _, logs = self.serve()
        warnings = self.assertLines(2, 'WARNING vswitch-modeler', logs)
        self.assertIn('memory: gone', warnings[0])
        self.assertIn('there is no such file', warnings[1])

    def test_a_wrong_clock_stops_learning_until_it_is_corrected(self):
        self.change(
            settings=learning.LearningSettings('memory', clock_seconds=60.0),
            inventory=mock.Mock(read=mock.Mock(side_effect=AssertionError)))
        ahead = [7 * 86400.0]

        def corrected():
            ahead[0] = 0.0
            self.set_up.inventory.read.side_effect = (
                exceptions.TelemetryError('none'))

        self.at[40] = corrected
        self.end_at(150)
        with mock.patch.object(self.store, 'server_time',
                               lambda: base.END - ahead[0]):
            passes, logs = self.serve()
        line, = self.assertLines(1, 'clock of this machine', logs)
        self.assertIn('604800 s ahead of that of the database', line)
        self.assertIn('well again', ' '.join(logs))
        self.assertGreater(passes, 0)
        self.assertEqual(1, self.store.generation().number)

    def test_an_unexpected_error_is_logged_once_with_a_traceback(self):
        self.driver.instances = mock.Mock(side_effect=ZeroDivisionError('oh'))
        self.end_at(100)
        _, logs = self.serve()
        self.assertLines(1, 'unexpected ZeroDivisionError', logs)
        self.assertLines(1, 'ERROR vswitch-modeler', logs)

    def test_quiet_telemetry_is_logged_once_and_its_end(self):
        self.at[5050] = lambda: self.driver.put(
            0, base.BEGIN + 300.0 * np.arange(60), np.ones(60))
        self.end_at(5300)
        _, logs = self.serve()
        quiet = self.assertLines(2, 'no new sample', logs)
        self.assertIn('for 3700 s', quiet[0])
        self.assertTrue(quiet[1].startswith(
            'INFO vswitch-modeler: problem ended'))

    def test_a_pass_longer_than_the_interval_is_logged(self):
        def be_slow():
            self.time += 150
            if self.time >= 500:
                _tell_myself(signal.SIGTERM)

        self.before_passes(be_slow)
        _, logs = self.serve()
        self.assertLines(1, 'a pass took 150 s', logs)


class WaitingTestCase(ServiceTestCase):
    """Of a service whose telemetry is not configured."""

    def setUp(self):
        super().setUp()
        self.change(driver=None, missing='url is not set')

    def test_a_waiting_service_is_ready_and_logs_the_reason_once(self):
        self.end_at(1000)
        passes, logs = self.serve()
        self.assertEqual(0, passes)
        self.assertEqual([1], self.heard.named('READY'))
        self.assertGreaterEqual(len(self.heard.named('WATCHDOG')), 900)
        message = (
            'telemetry is not configured, no traffic is learned: url is '
            'not set; then send SIGHUP to vswitch-modeler')
        self.assertIn(f'waiting: {message}', self.heard.named('STATUS'))
        self.assertEqual([f'WARNING vswitch-modeler: {message}'],
                         [line for line in logs
                          if not line.startswith('INFO')])

    def test_a_reload_ends_waiting(self):
        self.reload_at(20, driver=self.driver)
        self.end_at(250)
        passes, logs = self.serve()
        # At 20, 120 and 220.
        self.assertEqual(3, passes)
        self.assertLines(1, 'ended: telemetry is not configured', logs)
        self.assertEqual(1, self.store.generation().number)
        modeler, = self.store.modelers()
        self.assertIsNone(modeler.waiting_for)

    def test_a_reload_can_start_waiting_and_change_the_reason(self):
        self.change(driver=self.driver)
        self.reload_at(50, driver=None)
        self.reload_at(60, missing='telemetry_path is not set')
        self.end_at(70)
        passes, logs = self.serve()
        self.assertEqual(1, passes)
        self.assertEqual(
            ['url is not set', 'telemetry_path is not set'],
            [line.split('learned: ')[1].split(';')[0] for line in logs
             if line.startswith('WARNING')], logs)

    def test_a_waiting_service_updates_the_inventory(self):
        self.change(inventory=Source(), complete_seconds=1e6)
        self.end_at(50)
        self.serve()
        self.assertEqual(40, len(self.store.placements()))

    def test_metrics_report_the_reason_for_waiting(self):
        port = fake_prometheus.free_ports()
        self.change(metrics_at=('127.0.0.1', port))
        scrapes = []
        for time in (5, 15, 25):
            self.at[time] = lambda: scrapes.append(fake_prometheus.scraped(
                port))
        self.reload_at(10, driver=self.driver)
        self.fail_at(19)
        self.reload_at(20)
        self.end_at(30)
        self.serve()
        self.assertEqual(
            [{'configuration'}, set(), {'telemetry'}],
            [{labels[0] for (name, *labels), value in scrape.items()
              if name == 'waiting' and value} for scrape in scrapes])
        self.assertEqual(0, scrapes[0]['waiting', 'store'])


class HeartbeatTestCase(ServiceTestCase):

    def setUp(self):
        super().setUp()
        self.seen = []

    def look_at(self, *times):
        for time in times:
            self.at[time] = lambda: self.seen.extend(self.store.modelers())

    def test_the_heartbeat_reports_passes_and_the_end(self):
        self.look_at(5, 150)
        self.end_at(250)
        self.serve()
        first, second = self.seen
        self.assertEqual((1, 100.0, base.END, None, False), (
            first.passes, first.interval_seconds, first.passed_at,
            first.waiting_for, first.ended))
        self.assertIn('50 new samples', first.outcome)
        self.assertEqual(2, second.passes)
        last, = self.store.modelers()
        self.assertEqual((first.name, True), (last.name, last.ended))

    def test_the_heartbeat_reports_a_failure_immediately(self):
        self.driver.fail_after = 0
        self.look_at(2, 40)
        self.fail_at(50, None)
        self.look_at(80)
        self.end_at(90)
        self.serve()
        first, second, third = self.seen
        self.assertIn('memory: gone', first.waiting_for)
        self.assertEqual(first.waiting_since, second.waiting_since)
        self.assertEqual((None, None, 1), (
            third.waiting_for, third.waiting_since, third.passes))

    def test_the_heartbeat_is_written_once_a_minute(self):
        with mock.patch.object(
                self.store, 'report_modeler',
                side_effect=self.store.report_modeler) as reported:
            self.end_at(3599)
            self.serve()
        # The end is reported as well.
        self.assertLessEqual(55, reported.call_count)
        self.assertLessEqual(reported.call_count, 62)
        self.assertEqual(1, self.store.generation().number)

    def test_a_failing_heartbeat_does_not_end_passes(self):
        with mock.patch.object(
                self.store, 'report_modeler',
                side_effect=exceptions.StoreError('full')) as reported:
            self.end_at(350)
            passes, logs = self.serve()
        self.assertEqual(4, passes)
        self.assertEqual(3, len(logs), logs)
        # Once a minute, at the start and after the first pass.
        self.assertLessEqual(reported.call_count, 8)

    def test_no_heartbeat_is_written_during_a_write(self):
        store = self.store

        class Asking(model_store.Store):
            def write(own, *arguments, **options):
                self.time += 1000
                running._alive()
                self.seen.append(store.modelers())
                return super().write(*arguments, **options)

        self.change(store=Asking(self.url))
        running = self.make_service()
        # The heartbeat of the start is not due before the write.
        self.before_passes(lambda: setattr(running._heartbeat, '_next', 500))
        self.end_at(1050)
        running.run()
        self.assertEqual([], self.seen[0])
        self.assertEqual(1, len(store.modelers()))

    def test_a_signal_does_not_wait_for_the_heartbeat(self):
        def report(modeler):
            _tell_myself(signal.SIGTERM)
            self.fail('it goes on')

        for driver in (self.driver, None):
            self.time = 0.0
            self.change(driver=driver)
            with mock.patch.object(self.store, 'report_modeler', report), \
                    mock.patch.object(heartbeat.Heartbeat, 'end'):
                _, logs = self.serve()
            self.assertLines(1, 'has ended', logs)
            self.assertLess(self.time, 5)

    def test_the_service_waits_for_a_missing_store(self):
        path = os.path.join(self.directory, 'file', 'vswitch.sqlite')
        blocked = os.path.dirname(path)
        with open(blocked, 'w'):
            pass
        url = f'sqlite:///{path}'
        self.change(store=model_store.Store(url), store_url=url)
        self.at[30] = lambda: os.unlink(blocked)
        self.end_at(60)
        passes, logs = self.serve()
        self.assertEqual(1, passes)
        self.assertEqual([1], self.heard.named('READY'))
        self.assertLines(1, 'WARNING vswitch-modeler', logs)
        self.assertIn('install -d', logs[1])
        self.assertEqual(1, self.set_up.store.generation().number)


class Members:
    """A group of which a test says what it is.

    :ivar error: None, or what it fails with
    """

    def __init__(self, members=2, url='file:///a'):
        self.members = members
        self.url = url
        self.error = None
        self.left = 0

    def share(self, store_id):
        if self.error is not None:
            raise exceptions.CoordinationError(self.error)
        share = mock.Mock(return_value=True)
        share.members = self.members
        return share

    def leave(self):
        self.left += 1


class SharingTestCase(ServiceTestCase):

    def setUp(self):
        super().setUp()
        self.group = Members()
        self.change(group=self.group)

    def test_changes_of_the_number_of_modelers_are_logged(self):
        self.at[150] = lambda: setattr(self.group, 'members', 3)
        self.end_at(450)
        passes, logs = self.serve()
        self.assertEqual(5, passes)
        self.assertEqual(
            ['2 modelers share', '3 modelers share'],
            [line.partition(': ')[2][:16] for line in logs
             if 'share the instances' in line])
        self.assertEqual(1, self.group.left)

    def test_a_pass_fails_until_the_first_share_is_known(self):
        self.group.error = 'backend gone; expected there'
        self.at[12] = lambda: setattr(self.group, 'error', None)
        self.end_at(20)
        passes, logs = self.serve()
        self.assertEqual(1, passes)
        self.assertLines(1, 'WARNING vswitch-modeler', logs)
        self.assertIn('models stay as they are: backend gone', logs[1])
        self.assertIn('well again after 2 failed passes', ''.join(logs))

    def test_a_share_stays_if_the_backend_fails(self):
        self.at[150] = lambda: setattr(self.group, 'error', 'backend gone')
        self.at[350] = lambda: setattr(self.group, 'error', None)
        self.end_at(450)
        passes, logs = self.serve()
        self.assertEqual(5, passes)
        lines = self.assertLines(2, 'backend gone', logs)
        self.assertIn('WARNING vswitch-modeler: backend gone; instances '
                      'stay shared as they were', lines[0])
        self.assertIn('INFO vswitch-modeler: problem ended', lines[1])

    def test_a_reload_leaves_the_group_only_for_another_one(self):
        successor, departures = Members(url='file:///b'), []
        for time, group in ((50, Members()), (150, Members()),
                            (250, successor),
                            (350, None)):
            self.reload_at(time, group=group)
            self.at[time + 40] = lambda: departures.append(self.group.left)
        self.end_at(450)
        self.serve()
        self.assertEqual(([0, 0, 1, 1], 1), (departures, successor.left))


class MetricsTestCase(ServiceTestCase):

    def setUp(self):
        super().setUp()
        self.port = fake_prometheus.free_ports()
        self.change(metrics_at=('127.0.0.1', self.port))
        self.scrapes = []

    def _scrape(self):
        self.scrapes.append(fake_prometheus.scraped(self.port))

    def test_metrics_count_passes_and_failures(self):
        self.at[50] = self._scrape
        self.fail_at(60)
        self.at[140] = self._scrape
        self.end_at(145)
        self.serve()
        first, second = self.scrapes
        self.assertEqual(
            [(50, 1, 1, 1, 1, base.END)] * 2,
            [tuple(scrape[name,] for name in (
                'samples_total', 'models_fitted_total', 'generation',
                'members', 'instances', 'last_success_timestamp_seconds'))
             for scrape in self.scrapes])
        # At 100, 105, 115 and 135.
        self.assertEqual(4, second['failures_total', 'telemetry'])
        self.assertNotIn(('failures_total', 'telemetry'), first)
        with self.assertRaises(OSError):
            self._scrape()

    def test_a_port_in_use_is_logged_once_and_tried_again(self):
        listener = socket.create_server(('127.0.0.1', self.port))
        self.addCleanup(listener.close)
        self.at[150] = listener.close
        self.at[250] = self._scrape
        self.end_at(320)
        passes, logs = self.serve()
        self.assertEqual((4, 1), (passes, len(self.scrapes)))
        self.assertEqual(['WARNING', 'INFO'], [
            line.split()[0]
            for line in self.assertLines(2, 'cannot be served', logs)])

    def test_a_reload_can_end_the_metrics(self):
        def scrape_in_vain():
            with self.assertRaises(OSError):
                self._scrape()
            self.scrapes.append(None)

        self.reload_at(50, metrics_at=None)
        self.at[150] = scrape_in_vain
        self.end_at(160)
        self.serve()
        self.assertEqual([None], self.scrapes)


class NotifierTestCase(base.ModelerTestCase):

    def test_notifications_arrive_at_both_kinds_of_addresses(self):
        path = os.path.join(self.directory, 'notify')
        name = f'vswitch-test-{os.getpid()}'
        for address, bound in ((path, path), ('@' + name, '\0' + name)):
            listener = self.enterContext(
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            listener.bind(bound)
            listener.settimeout(5)
            systemd.Notifier({'NOTIFY_SOCKET': address}).notify(
                READY=1, STATUS='one\ntwo')
            self.assertEqual(b'READY=1\nSTATUS=one two',
                             listener.recv(4096))

    def test_a_missing_socket_is_ignored(self):
        missing = os.path.join(self.directory, 'no-socket')
        for environment in ({}, {'NOTIFY_SOCKET': missing}):
            systemd.Notifier(environment).notify(READY=1)


class SetUpTestCase(base.ModelerTestCase):

    #: How Nova is asked.
    NOVA = {'auth_type': 'v3password',
            'endpoint_override': 'http://nova:8774/v2.1'}

    def _conf(self, inventory=(), **values):
        """Return options; those of the inventory's group as a mapping."""
        conf = registered_options()
        for name, value in {'store_url': self.url, 'telemetry_driver': 'file',
                            'telemetry_path': self.path, **values}.items():
            conf.set_override(name, value, options.GROUP)
        for name, value in dict(inventory).items():
            conf.set_override(name, value, options.INVENTORY_GROUP)
        return conf

    def test_options_become_settings(self):
        set_up = wiring.set_up(self._conf(
            min_samples=30, modeler_half_life_days=2, modeler_forget_days=0,
            modeler_interval_seconds=60))
        # Both directions are on for 60 of 660 seconds by default.
        self.assertEqual(
            learning.LearningSettings('file', 30, 172800.0, None, 60.0),
            dataclasses.replace(set_up.settings, default_kbps=0.0))
        self.assertEqual(60, set_up.interval_seconds)
        self.assertIsNone(set_up.group)
        self.assertIsNone(set_up.metrics_at)
        set_up = wiring.set_up(self._conf(
            modeler_coordination_url='file:///a', modeler_metrics_port=9999))
        self.assertEqual(('file:///a', ('127.0.0.1', 9999)),
                         (set_up.group.url, set_up.metrics_at))
        self.assertEqual(self.path, set_up.driver.source)
        self.assertEqual({}, set_up.predict(self.store))

    def test_rebalancing_needs_credentials(self):
        self.assertIsNone(wiring.set_up(self._conf()).rebalancer)
        conf = self._conf(rebalance_mode='advise')
        with self.assertRaisesRegex(
                exceptions.InvalidInput,
                r'auth_type in the group \[vswitch_inventory\]: not set'):
            wiring.set_up(conf)
        conf.set_override('auth_type', 'none', options.INVENTORY_GROUP)
        conf.register_opts(ks_loading.get_auth_plugin_conf_options('none'),
                           group=options.INVENTORY_GROUP)
        conf.set_override('endpoint', 'http://nova', options.INVENTORY_GROUP)
        conf.set_override('placement_url', 'http://there/placement',
                          options.INVENTORY_GROUP)
        cloud = wiring.set_up(conf).rebalancer.cloud
        self.assertEqual('http://there/placement', cloud._placement.url)

    def test_options_select_the_source_of_the_inventory(self):
        self.assertIsNone(wiring.set_up(self._conf()).inventory)
        set_up = wiring.set_up(self._conf({'path': 'x.csv'}))
        self.assertEqual('file x.csv', set_up.inventory.name)
        # Nova answers only requests that are authenticated.
        self.assertIsNone(wiring.set_up(self._conf({
            'endpoint_override': self.NOVA['endpoint_override']})).inventory)
        self.assertEqual('nova http://nova:8774/v2.1', wiring.set_up(
            self._conf(self.NOVA)).inventory.name)

    def test_a_missing_store_is_created_and_an_existing_one_kept(self):
        url = f'sqlite:///{self.directory}/new.sqlite'
        set_up = wiring.set_up(self._conf(store_url=url))
        self.assertFalse(os.path.exists(f'{self.directory}/new.sqlite'))
        with self.assertLogs(wiring.__name__, 'INFO'):
            wiring.make_store(set_up)
        self.assertEqual(0, set_up.store.generation().number)
        store_id = set_up.store.generation().store_id
        with self.assertNoLogs(LOGGER, 'INFO'):
            wiring.make_store(set_up)
        self.assertEqual(store_id, set_up.store.generation().store_id)

    def test_telemetry_that_is_not_configured_is_named(self):
        for values, missing in (
                ({'telemetry_path': None},
                 'telemetry_driver is file, and telemetry_path is not set'),
                *(({'telemetry_driver': name, 'telemetry_path': None},
                   f'neither endpoint_override nor auth_type is set in the '
                   f'group [vswitch_{name}]')
                  for name in options.TELEMETRY_GROUPS)):
            set_up = wiring.set_up(self._conf(**values))
            self.assertIsNone(set_up.driver)
            self.assertEqual('no telemetry', set_up.source)
            self.assertIn(missing, set_up.missing)

    def test_a_driver_can_report_that_it_is_not_configured(self):
        with mock.patch.object(wiring.telemetry, 'load_driver', side_effect=(
                exceptions.TelemetryNotConfigured('own_option is not set'))):
            self.assertEqual('own_option is not set',
                             wiring.set_up(self._conf()).missing)

    def test_a_wrong_value_is_an_error(self):
        for values, pattern in (
                ({'telemetry_driver': 'nosuch'}, "'nosuch'; expected one of"),
                ({'store_url': 'sqlight:///x'}, 'kind of database|parsed')):
            with self.assertRaisesRegex(exceptions.VSwitchError, pattern):
                wiring.set_up(self._conf(**values))
        conf = self._conf(telemetry_driver='gnocchi')
        conf.set_override('endpoint_override', 'htp://controller',
                          'vswitch_gnocchi')
        with self.assertRaisesRegex(exceptions.InvalidInput, 'htp://contr'):
            wiring.set_up(conf)
        conf.clear_override('endpoint_override', 'vswitch_gnocchi')
        conf.set_override('auth_type', 'pasword', 'vswitch_gnocchi')
        with self.assertRaisesRegex(cfg.Error, 'pasword'):
            wiring.set_up(conf)
