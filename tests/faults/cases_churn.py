# SPDX-License-Identifier: Apache-2.0
"""Days of boots, deletions and migrations by a simulated clock.

Memory, descriptors and tables of a scheduler's state and of a modeler have
the same size at the end as in the middle.
"""

import collections
import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from unittest import mock

import numpy as np

from tests.fakes import stepped_clock
from tests.faults import registry
from tests.unit.modeler import base as modeler_base
from tests.unit.scheduler import base as scheduler_base
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import passes
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import tables

SLOT_SECONDS = 1800
#: The longest that a row is kept, apart from what is in :data:`_GROWING`, is
#: two days.
DAYS, SETTLED_DAYS = 3, 2

HOSTS, INSTANCES = 12, 120
#: In each slot.
BOOTS, MIGRATIONS = 16, 4

#: Tables whose rows are kept for longer: for 7, 35 and 9 days, and the last
#: thousand writes.
_GROWING = {'sum_history', 'former_instance', 'stay', 'generation_history'}

#: A tenth more memory, in KiB, is no leak: fragments of the allocator.
_MOST_GROWTH = 1.1


class _Churn(scheduler_base.SharingTestCase):
    """A worker, a modeler and their store."""

    def runTest(self):
        """Nothing: this is a tool."""

    def setUp(self):
        super().setUp()
        # Its records would be the leak.
        logging.disable(logging.CRITICAL)
        self.clock = time.time
        # The purge waits by the monotonic clock, which is not simulated.
        self.enterContext(mock.patch.object(claims, '_PURGE_SECONDS', 0.0))
        self.worker = self.make_worker(decisions_kept=200)
        self.store = store.Store(self.url, 60)
        self.driver = modeler_base.MemoryDriver()
        self.set_up = wiring.SetUp(
            self.store, self.driver,
            learning.LearningSettings('memory', forget_seconds=3600.0),
            SLOT_SECONDS, budgets=True, member_seconds=600.0)
        self.random, self.numbers = random.Random(7), iter(range(10**9))
        self.on = {}
        self.hosts = {f'h{number}': self.host(f'h{number}')
                      for number in range(HOSTS)}
        self.booted = collections.Counter()

    def play_slot(self):
        """Change what is where, and let the modeler make a pass."""
        gone = self.random.sample(sorted(self.on), max(
            0, len(self.on) - INSTANCES))
        for number in gone:
            del self.on[number]
        for number in [next(self.numbers) for _ in range(BOOTS)]:
            self._place(number, self.hosts)
        for number in self.random.sample(sorted(self.on), MIGRATIONS):
            self._place(number, self.hosts.keys() - {self.on[number]})
        uuids = {scheduler_base.instance_uuid(number): host
                 for number, host in self.on.items()}
        removed = [*map(scheduler_base.instance_uuid, gone)]
        self.worker._take_reading(residency.CellReading(
            scheduler_base.CELL, time.time(), {
                **{uuid: residency.Row(host, 'active', None)
                   for uuid, host in uuids.items()},
                **dict.fromkeys(removed)}, deleted=frozenset(removed)))
        now = time.time() // 300 * 300
        times = now - 300.0 * np.arange(12, 0, -1)
        self.driver.samples = {}
        for number in self.on:
            self.driver.put(number, times, 1.0 + (
                times // 300 * (number + 7)) % 5)
        self.store.write(placements=[
            store.InstanceRecord(uuid, host, 'small', 'p')
            for uuid, host in uuids.items()], remove_placements=removed)
        self.store.write_fleet({'host': {
            host: policy_in_force.pack(self.worker._policies[host])
            for host in self.hosts}}, now)
        one_pass = passes.Pass(self.set_up, time.time, time.monotonic,
                               hosts_known_until=time.time())
        for step in passes.STEPS:
            problem = step.run(one_pass)
            registry.check.assertIsNone(problem, step.name)
        self.worker.refresh()

    def _place(self, number, hosts):
        host = self.boot(self.worker, number, [
            self.hosts[host] for host in sorted(hosts)], egress_kbps=5)
        self.booted[host is not None] += 1
        if host is not None:
            self.on[number] = host

    def sizes(self):
        with open('/proc/self/status') as stream:
            status = dict(line.split(':', 1) for line in stream)
        connection = self.store._engine().connect()
        with contextlib.closing(connection):
            rows = {table.name: connection.exec_driver_sql(
                f'SELECT count(*) FROM {table.name}').scalar_one()
                for table in tables.metadata.sorted_tables}
        return {'memory': int(status['VmRSS'].split()[0]),
                'threads': int(status['Threads']),
                'descriptors': len(os.listdir('/proc/self/fd')),
                'claims in memory': len(self.worker._residency.claims),
                'residents in memory': len(self.worker._residency._hosts),
                **rows}


def play(slots):
    """Play slots and print the sizes at times; called in a child.

    :param slots: number of slots in which sizes are printed
    """
    tool = _Churn()
    tool.setUp()
    begin = time.monotonic()
    try:
        for number in range(1, slots[-1] + 1):
            with open(os.environ['VSWITCH_CLOCK_STEP'], 'r+b') as stream:
                stepped_clock.write(stream, SLOT_SECONDS * number)
            tool.play_slot()
            if number in slots:
                print(json.dumps({
                    'slot': number, 'seconds': time.monotonic() - begin,
                    'booted': tool.booted[True], **tool.sizes()}), flush=True)
    finally:
        tool.doCleanups()


@registry.fault('day of churn')
def days_of_churn():
    if not stepped_clock.COMPILER:
        raise registry.Skipped('no compiler for C is installed')
    day = 86400 // SLOT_SECONDS
    slots = [SETTLED_DAYS * day, (SETTLED_DAYS + DAYS) * day // 2, DAYS * day]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, '-c', 'from tests.faults import cases_churn; '
             f'cases_churn.play({slots})'], capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=3600, env={
                **os.environ,
                **stepped_clock.SteppedClock(folder).environment})
    check = registry.check
    check.assertEqual(0, done.returncode, done.stderr[-3000:])
    _, middle, end = map(json.loads, done.stdout.splitlines())
    check.assertGreater(end['booted'], .9 * slots[-1] * BOOTS)
    check.assertEqual({}, {
        name: (middle[name], end[name]) for name in middle
        if name not in ('slot', 'seconds', 'booted', *_GROWING)
        and end[name] > _MOST_GROWTH * middle[name] + 5})
    return DAYS
