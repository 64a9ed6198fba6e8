# SPDX-License-Identifier: Apache-2.0
"""Faults of Prometheus, Gnocchi and Ceilometer, at the wire.

After each fault the driver reads the server again, and delivers the same as
before. A fault of one series changes no other instance.
"""

import contextlib
import functools
import json

import numpy as np

from tests.contract import hostile_servers
from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock as fake_clock
from tests.faults import registry
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import ceilometer
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus

check = registry.check

#: Periods of five instances.
PERIODS = 40


def _traffic(t0=1375308000):
    random = np.random.default_rng(1)
    egress, ingress, kpps = random.integers(1, 2 ** 16, (3, 5, PERIODS)) / 2
    return telemetry_driver.Traffic(t0, 300, egress, ingress, kpps)


def _prometheus(traffic):
    return (stand_ins.Prometheus(stand_ins.ceilometer_series(
        telemetry_counters.interfaces(traffic))),
        prometheus.PrometheusDriver)


def _gnocchi(traffic, methods=('mean', 'rate:mean')):
    return (stand_ins.Gnocchi(telemetry_counters.interfaces(
        traffic, int('rate:mean' in methods)), methods), gnocchi.GnocchiDriver)


def _ceilometer(traffic):
    return (stand_ins.Ceilometer(telemetry_counters.interfaces(traffic)),
            functools.partial(ceilometer.CeilometerDriver,
                              period_seconds=300))


#: {name: function that returns the server and the class of the driver}
SOURCES = {'prometheus': _prometheus, 'gnocchi': _gnocchi,
           'gnocchi_counters': functools.partial(_gnocchi, methods=('last',)),
           'ceilometer': _ceilometer}


def _driver(make, url, traffic, **access):
    return make(telemetry_services.access(url, **access),
                clock=fake_clock.Clock(
                    float(traffic.times[-1]) + 86400))


def _read(driver):
    return {
        series.instance_uuid: (series.times.tolist(), series.rates.tolist())
        for series in driver.series()}


@contextlib.contextmanager
def _source(name, traffic=None, **access):
    """Give a server, and the driver that reads it."""
    traffic = traffic or _traffic()
    server, make = SOURCES[name](traffic)
    server.setUp()
    try:
        yield server, _driver(make, server.url, traffic, **access)
    finally:
        server.cleanUp()


def on_each_source(kind_of_fault):
    def register(function):
        for name in SOURCES:
            registry.fault(kind_of_fault, f'{function.__name__}_{name}')(
                functools.partial(function, name))
        return function

    return register


def _redirect(handler, _status, _answer):
    stand_ins.send(handler, 302, b'', [('Location', handler.path)])


#: {what: what happens to an answer}
REFUSALS = {
    **{f'HTTP {code}': stand_ins.status(code)
       for code in (401, 403, 404, 408, 429, 500, 502, 503, 504)},
    'redirect': _redirect, 'cut': stand_ins.cut, 'closed': stand_ins.closed}

GARBAGE = (b'', b'null', b'true', b'17', b'"text"', b'{}', b'[17]', b'[[]]',
           b'[{}]', b'{"status": "success"}', b'{"status": "success", "data":'
           b' {"resultType": "matrix", "result": [17]}}', b'\xff\xfe\x00',
           b'<html>', b'[' * 100000, b'{"a":' * 100000, b'[1,', b'NaN',
           b'[' + b'9' * 5000 + b']', json.dumps('\x1b[2J').encode())


def _fault_everywhere(name, faults, must_fail):
    """Make each fault at each request of a reading, and read again."""
    survived = 0
    with _source(name) as (server, driver):
        good = _read(driver)
        check.assertEqual(5, len(good))
        requests = len(server.requests)
        check.assertGreater(requests, 1)
        for title, fault in faults:
            for at in {0, requests - 1}:
                server.faults = [None] * at + [fault] * 100
                try:
                    rates = _read(driver)
                except exceptions.TelemetryError as error:
                    check.assertTrue(str(error).isprintable(), title)
                else:
                    check.assertFalse(must_fail, title)
                    for uuid, series in rates.items():
                        check.assertIn(series, (good[uuid], ([], [])), title)
                check.assertLess(len(server.faults), 100, f'{title}: no '
                                 f'request had the fault')
                server.faults = []
                check.assertEqual(good, _read(driver), title)
                survived += 1
    return survived


@on_each_source('refusal')
def refusals(name):
    return _fault_everywhere(name, REFUSALS.items(), True)


@on_each_source('garbage')
def garbage(name):
    return _fault_everywhere(
        name, [(body[:40], stand_ins.body(body)) for body in GARBAGE], False)


@on_each_source('endless answer')
def endless_answers(name):
    survived = 0
    traffic = _traffic()
    _, make = SOURCES[name](traffic)
    for title, pieces in sorted(hostile_servers.DRIPS.items()):
        # As fast as they are read, and a byte now and then.
        for pause in (0, hostile_servers.PAUSE_SECONDS):
            server = hostile_servers.DrippingServer(pieces, pause)
            server.setUp()
            try:
                driver = _driver(make, server.url, traffic,
                                 timeout_seconds=0.5, max_answer_mib=0.5)
                with check.assertRaises(exceptions.TelemetryError, msg=title):
                    driver.instances()
                survived += 1
            finally:
                server.cleanUp()
    return survived


def _others(rates, uuid):
    return {key: value for key, value in rates.items() if key != uuid}


def _changed_values(name, change):
    """Return a fault that changes the values of one instance's answers."""
    uuid = telemetry_counters.instance_uuid(2)

    def walk(answer, mine):
        if isinstance(answer, dict):
            mine = mine or any(uuid in str(answer.get(key)) for key in (
                'group', 'metric', 'groupby'))
            return {key: walk(value, mine) for key, value in answer.items()}
        if isinstance(answer, list):
            return [walk(item, mine) for item in answer]
        return change(answer) if mine and isinstance(
            answer, (int, float)) and not isinstance(answer, bool) else answer

    return stand_ins.changed(lambda answer: walk(answer, False))


@on_each_source('bad series')
def one_bad_series(name):
    survived = 0
    uuid = telemetry_counters.instance_uuid(2)
    with _source(name) as (server, driver):
        good = _read(driver)
        for bad in ('NaN', None, 'text', [], {}, 1e308, -1e308, True):
            server.faults = [_changed_values(name, lambda _, bad=bad: bad)
                             ] * 100
            rates = _read(driver)
            check.assertLess(len(server.faults), 100, bad)
            server.faults = []
            check.assertEqual(_others(good, uuid), _others(rates, uuid), bad)
            check.assertEqual(good, _read(driver))
            survived += 1
    return survived


@on_each_source('sample of the future')
def one_sample_of_the_future(name):
    survived = 0
    for later in (3600.0, 10 * 86400.0, 7e9, 1e11):
        with _source(name) as (server, driver):
            good = _read(driver)
            uuid = telemetry_counters.instance_uuid(2)
            if name == 'prometheus':
                server.series = [
                    (metric, labels, np.append(times, times[-1] + later),
                     np.append(values, values[-1] + 1e15))
                    if uuid in labels['resource'] else
                    (metric, labels, times, values)
                    for metric, labels, times, values in server.series]
                # Though it was not asked for.
                select = server._found
                server._found = lambda selector, start, end, select=select: \
                    select(selector, start, np.inf)
            else:
                server.faults = [stand_ins.changed(functools.partial(
                    _with_later_points, uuid, later))] * 100
            read = _read(driver)
            check.assertEqual(_others(good, uuid), _others(read, uuid))
            # What there is of the instance itself stays what it was.
            times, rates = read[uuid]
            check.assertEqual(good[uuid][0][:len(times)], times)
            check.assertEqual(good[uuid][1][:len(rates)], rates)
            survived += 1
    return survived


def _with_later_points(uuid, later, answer):
    """Return an answer with one more point of one instance."""
    def stamp(text, seconds):
        # Beyond what a time can be it is any text.
        with contextlib.suppress(OverflowError, ValueError, OSError):
            return stand_ins._iso(stand_ins._seconds(
                text.removesuffix('+00:00')) + seconds)
        return '12345-01-01T00:00:00+00:00'

    for group in answer if isinstance(answer, list) else []:
        if not isinstance(group, dict):
            continue
        if uuid in str(group.get('group')):
            for metrics in group['measures']['measures'].values():
                for methods in metrics.values():
                    for points in filter(None, methods.values()):
                        points.append([stamp(points[-1][0], later),
                                       points[-1][1], 1e300])
    if isinstance(answer, list) and answer and 'period_start' in answer[-1] \
            and answer[-1].get('period') and uuid:
        answer = [*answer, {
            **answer[-1], 'avg': 1e300, 'period_start': stamp(
                answer[-1]['period_start'], later).removesuffix('+00:00')}]
    return answer


@on_each_source('wrong clock')
def years_after_2038(name):
    survived = 0
    # In the middle of the stretch: 2038, when seconds no longer fit into 31
    # bits, and later. Times from 2100 on are nonsense.
    for t0 in (2 ** 31, 3_000_000_000, 4_100_000_000):
        traffic = _traffic(t0 // 300 * 300 - 20 * 300)
        with _source(name, traffic) as (_, driver):
            read = _read(driver)
            for number in traffic.numbers:
                times, rates = read[telemetry_counters.instance_uuid(number)]
                true_times, true = traffic.expected(number, True)
                check.assertGreater(len(times), PERIODS - 2)
                check.assertEqual(true_times.tolist()[-len(times):],
                                  times)
                np.testing.assert_allclose(true[-len(times):], rates,
                                           rtol=1e-6)
            survived += 1
    return survived
