#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a pass asks of a Gnocchi or a Prometheus, and how long it takes.

Starts a private server with the counters of one interface of each instance,
bytes and packets each way, a reading every five minutes. Then reads through
the driver with its defaults, in turn, an hour of all instances, as a modeler
does that runs every hour, and a day. Prints, for each, the time, the requests
and the processor time of the driver and of the server.

    telemetry_cost.py prometheus --instances 62500
    telemetry_cost.py gnocchi --instances 10000

Nothing is measured while the server takes the readings in, which for Gnocchi
is most of the time that this takes. --json for a machine.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import unittest

import numpy as np
import requests

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.contract import telemetry_counters  # noqa: E402
from tests.contract import telemetry_stand_ins  # noqa: E402
from tests.integration import base as integration  # noqa: E402
from tests.integration import feeds  # noqa: E402
from tests.integration import servers  # noqa: E402
from vswitch_aware_scheduler.telemetry import gnocchi  # noqa: E402
from vswitch_aware_scheduler.telemetry import prometheus  # noqa: E402

PERIOD = 300.0
BEGIN = 1_700_000_100.0

#: Interfaces that are handed to a server at a time.
_CHUNK = 500


def interfaces(count, samples, generator):
    """Yield the interfaces of instances of heavy-tailed traffic."""
    times = BEGIN + PERIOD * np.arange(samples + 1)
    for number in range(count):
        rates = generator.lognormal(8, 2) * generator.lognormal(
            0, 1, (samples, 4)) * (1, 1, 1e-3, 1e-3)
        counters = np.concatenate([np.zeros((1, 4)), np.floor(
            np.cumsum(rates * PERIOD, axis=0))])
        yield telemetry_counters.Interface(number, 0, times, counters,
                                           times[:-1], rates)


def chunks(found):
    some = []
    for one in found:
        some.append(one)
        if len(some) == _CHUNK:
            yield some
            some = []
    if some:
        yield some


def make_gnocchi(found, patience):
    server = integration.started(servers.Gnocchi())
    feed = feeds.GnocchiFeed(server, settled=False)
    for some in chunks(found):
        feed.publish(some)
    server.settled(patience)
    driver = gnocchi.GnocchiDriver({
        'url': server.url, 'auth': {
            'auth_type': 'gnocchi-basic', 'user': 'admin',
            'endpoint': server.url}}, clock=_later)
    return server, [server.process.pid], driver


def make_prometheus(found, patience):
    found = list(found)
    server = integration.started(servers.Prometheus(feeds.open_metrics(
        telemetry_stand_ins.ceilometer_series(found)), patience=patience))
    driver = prometheus.PrometheusDriver({'url': server.url}, clock=_later)
    return server, [server.process.pid], driver


MAKERS = {'gnocchi': make_gnocchi, 'prometheus': make_prometheus}


def _later():
    return BEGIN + 3 * 86400


def processor_seconds(pids):
    """Return what processes have used, with the threads of each."""
    ticks = 0
    for pid in pids:
        with open(f'/proc/{pid}/stat') as stream:
            ticks += sum(map(int, stream.read().rpartition(')')[2]
                             .split()[11:13]))
    return ticks / os.sysconf('SC_CLK_TCK')


class _Requests:
    """Counts the requests of this process."""

    def __enter__(self):
        self.count = 0
        self._send = send = requests.Session.send

        def counted(session, request, **options):
            self.count += 1
            return send(session, request, **options)

        requests.Session.send = counted
        return self

    def __exit__(self, *_):
        requests.Session.send = self._send


def read(driver, pids, seconds, samples):
    """Return the figures of reading the last ``seconds`` of all instances."""
    end = BEGIN + PERIOD * samples
    before, processor = processor_seconds(pids), time.process_time()
    began = time.perf_counter()
    instances = delivered = 0
    with _Requests() as asked:
        for one in driver.series(end - seconds, end):
            instances += 1
            delivered += one.times.size
    return {'seconds': time.perf_counter() - began,
            'requests': asked.count, 'instances': instances,
            'samples': delivered,
            'driver_processor_seconds': time.process_time() - processor,
            'server_processor_seconds': processor_seconds(pids) - before}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('service', choices=sorted(MAKERS), nargs='?',
                        default='prometheus')
    parser.add_argument('--instances', type=int, default=1000)
    parser.add_argument('--samples', type=int, default=288)
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--patience', type=float, default=7200,
                        metavar='SECONDS',
                        help='longest wait for the server to take them in')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    began = time.perf_counter()
    try:
        server, pids, driver = MAKERS[options.service](interfaces(
            options.instances, options.samples,
            np.random.default_rng(options.seed)), options.patience)
    except unittest.SkipTest as missing:
        print(missing)
        return 0
    print(f'{options.service} took {options.instances} instances in after '
          f'{time.perf_counter() - began:.0f} s', file=sys.stderr)
    spans = {'hour': 3600.0, 'day': 86400.0}
    found = {name: [] for name in spans}
    try:
        for _ in range(options.repeats):
            for name, seconds in spans.items():
                found[name].append(read(driver, pids, seconds,
                                        options.samples))
    finally:
        server.cleanUp()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f'{options.instances} instances, {4 * options.instances} counters')
    for name, runs in found.items():
        spent = [one['seconds'] for one in runs]
        print(f'{name}: {statistics.median(spent):.1f} s ({min(spent):.1f} '
              f'to {max(spent):.1f}), {runs[0]["samples"]} samples of '
              f'{runs[0]["instances"]} instances, {runs[0]["requests"]} '
              f'requests; processor of the driver '
              f'{_median(runs, "driver_processor_seconds"):.1f} s, of the '
              f'server {_median(runs, "server_processor_seconds"):.1f} s')
    return 0


def _median(runs, name):
    return statistics.median(one[name] for one in runs)


if __name__ == '__main__':
    sys.exit(main())
