#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one, two and four modelers do of a cycle, on one database.

Starts a private MariaDB or PostgreSQL, or uses the server that --server-url
names, where it makes a database for each number of modelers and leaves it.
The modelers are processes that share the instances through tooz. Telemetry
is arrays in memory, so that what is measured is the modeler and the store: a
first pass over --history samples of each instance, then a cycle of --new
ones. Of each modeler it prints the instances, its time and processor time,
and of that the time of its write, waiting for others included; then the time
of the whole, and whether each instance was learned of once.
--quick for 2,000 instances, --json for a machine.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest
import uuid

import numpy as np
import sqlalchemy as sa

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.integration import base as integration  # noqa: E402
from tests.integration import servers  # noqa: E402
from tests.integration import store_suite  # noqa: E402
from vswitch_aware_scheduler.modeler import learning  # noqa: E402
from vswitch_aware_scheduler.modeler import membership  # noqa: E402
from vswitch_aware_scheduler import store as model_store  # noqa: E402
from vswitch_aware_scheduler.store import migration  # noqa: E402
from vswitch_aware_scheduler.telemetry import base  # noqa: E402
from vswitch_aware_scheduler.traffic import series  # noqa: E402

PERIOD = 300.0
BEGIN = 1_700_000_100.0

#: Instances of the same number modulo this have the same traffic.
_KINDS = 500

SERVERS = {'mariadb': servers.MariaDB, 'postgresql': servers.PostgreSQL}

_fork = multiprocessing.get_context('fork')


class Memory(base.Driver):
    """Heavy-tailed traffic of many instances, made beforehand."""

    source = 'memory'

    def __init__(self, count, samples, generator):
        super().__init__(PERIOD)
        self._uuids = [str(uuid.UUID(int=number)) for number in range(count)]
        self._times = BEGIN + PERIOD * np.arange(samples)
        rates = np.zeros((_KINDS, samples, 3))
        rates[:, :, 0] = generator.lognormal(4, 2, (_KINDS, 1)) \
            * generator.lognormal(0, 1, (_KINDS, samples))
        rates[:, :, 1] = rates[:, :, 0] * generator.random((_KINDS, 1))
        self._rates = rates

    def instances(self):
        return [base.Instance(one, None) for one in self._uuids]

    def _series(self, start, end, instances, progress):
        wanted = self._uuids if instances is None else set(instances)
        keep = (self._times >= start) & (self._times < end)
        times = self._times[keep]
        for number, one in enumerate(self._uuids):
            if one in wanted:
                yield series.RateSeries(one, PERIOD, times,
                                        self._rates[number % _KINDS][keep])


class _Stopwatch:

    def __enter__(self):
        self._began = time.perf_counter()

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._began


def modeler(url, group_url, driver, nows, barrier, told):
    """Make a pass at each of some times, with the others."""
    store = model_store.Store(url, 300)
    group = membership.ModelerGroup(group_url)
    store_id = store.generation().store_id
    group.share(store_id)
    for now in nows:
        barrier.wait()
        share = group.share(store_id)
        writing = _Stopwatch()
        began, processor = time.perf_counter(), time.process_time()
        outcome = learning.run(
            store,
            driver,
            lambda now=now: now,
            learning.LearningSettings('memory'),
            writing=writing,
            share=share,
        )
        told.put({'instances': outcome.instances, 'fitted': outcome.fitted,
                  'seconds': time.perf_counter() - began,
                  'processor_seconds': time.process_time() - processor,
                  'write_seconds': writing.seconds})
        barrier.wait()
    group.leave()


def measure(server, count, driver, nows):
    """Return [(what each modeler did, seconds of all), ...] by pass."""
    url = store_suite.new_database(server)
    migration.sync(url)
    barrier, told = _fork.Barrier(count + 1), _fork.Queue()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        processes = [_fork.Process(target=modeler, args=(
            url, f'file://{folder}', driver, nows, barrier, told))
            for _ in range(count)]
        for one in processes:
            one.start()
        for _ in nows:
            barrier.wait()
            began = time.perf_counter()
            each = [told.get() for _ in range(count)]
            found.append((each, time.perf_counter() - began))
            barrier.wait()
        for one in processes:
            one.join()
    return found, _samples(url)


def _samples(url):
    """Return {samples of an instance: number of such instances}."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text(
            'SELECT samples, COUNT(*) FROM traffic_model GROUP BY samples'))
        found = {int(samples): count for samples, count in rows}
    engine.dispose()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--instances', type=int, default=100_000)
    parser.add_argument('--history', type=int, default=288)
    parser.add_argument('--new', type=int, default=12)
    parser.add_argument('--modelers', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--database', choices=sorted(SERVERS),
                        default='mariadb')
    parser.add_argument('--server-url', metavar='URL')
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if options.quick:
        options.instances = 2000
    samples = options.history + options.new
    driver = Memory(options.instances, samples,
                    np.random.default_rng(options.seed))
    nows = [BEGIN + PERIOD * (options.history - 1),
            BEGIN + PERIOD * samples]
    found = {}
    with contextlib.ExitStack() as stack:
        if options.server_url:
            server = types.SimpleNamespace(url=options.server_url)
        else:
            try:
                server = integration.started(SERVERS[options.database]())
            except unittest.SkipTest as missing:
                print(missing)
                return 0
            stack.callback(server.cleanUp)
        for count in options.modelers:
            passes, learned = measure(server, count, driver, nows)
            found[count] = {
                'passes': [{'modelers': each, 'seconds': seconds}
                           for each, seconds in passes],
                'learned_once': learned == {samples: options.instances}}
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f'{options.instances} instances, {options.history} samples of each '
          f'and {options.new} new ones, {options.database}, '
          f'{os.cpu_count()} processors')
    for count, one in found.items():
        for name, done in zip(('first pass', 'cycle'), one['passes']):
            print(f'{count} modelers, {name}: {done["seconds"]:.1f} s')
            for each in done['modelers']:
                print(f'    {each["instances"]:7} instances in '
                      f'{each["seconds"]:6.1f} s, processor '
                      f'{each["processor_seconds"]:6.1f} s, write '
                      f'{each["write_seconds"]:6.1f} s')
        print(f'    each learned of once: '
              f'{"yes" if one["learned_once"] else "NO"}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
