# SPDX-License-Identifier: Apache-2.0
"""A cloud without services: hosts, aggregates, requests and a store."""

import dataclasses
import logging
import os
import tempfile
import time
import unittest
from unittest import mock

import numpy as np
from oslo_config import cfg

from tests.fakes import clock as fake_clock
from tests.fakes import logs as fake_logs
from tests.fakes import nova as fake_nova
from tests.fakes import store as fake_store
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import filters
from vswitch_aware_scheduler.scheduler import nova_hooks
from vswitch_aware_scheduler.scheduler import nova_record
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler.scheduler import state as scheduler_state
from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model

#: Longest wait for a thread.
PATIENCE_SECONDS = 60.0

NOW = fake_clock.NOW
instance_uuid = fake_nova.instance_uuid
aggregate = fake_nova.aggregate
host_state = fake_nova.host_state
request = fake_nova.request
flavor = fake_nova.flavor
LogRecords = fake_logs.LogRecords

#: The class that the tests replace by a fake.
RealStore = store.Store


def changes(number, laws=None, **more):
    """Return Changes that give instances, by number, constant rates."""
    given = {instance_uuid(one): model.TrafficModel.constant(kbps).law
             for one, kbps in (laws or {}).items()}
    return dataclasses.replace(
        fake_store.changes(number, dict.fromkeys(given, 0), **more),
        law_sizes=np.array(list(map(len, given.values())), dtype=np.int64),
        packed_laws=b''.join(given.values()))


#: The cell that all hosts are in.
CELL = instance_uuid(0)


class FakeRecord:
    """Stands in for the threads that read Nova's databases.

    When it starts it has read all of CELL, where nothing is.
    """

    def __init__(self, take, *args, **kwargs):
        self.calls = []
        self._take = take

    def ages(self):
        """Return the age of the record of each cell."""
        return {'cell1': 2.5, 'cell2': 7.5}

    def __getattr__(self, name):
        if name not in ('start', 'wait', 'wake', 'refresh', 'stop'):
            raise AttributeError(name)
        if name == 'start' and name not in self.calls:
            self._take(residency.CellReading(CELL, 0.0))
        return lambda **how: self.calls.append(name)


def choose(state, hosts, spec):
    """Return the host that Nova selects of sorted hosts, or None."""
    for host in hosts:
        host.allocation_candidates = ['candidate']
    for host in hosts:
        if state.claim_host({host.uuid}, spec):
            state.host_consumed(host, spec)
            return host.host
    return None


def start_all(threads):
    """Start threads; return a function that waits until they have ended."""
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join(PATIENCE_SECONDS)

    return join


class WaitingTestCase(unittest.TestCase):

    def wait_for(self, condition):
        limit = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), limit, 'waited in vain')
            time.sleep(.005)


class SchedulerTestCase(WaitingTestCase):
    """A state with a fake store, a fake clock and options of its own."""

    OPTIONS = {'snapshot_refresh_seconds': 3600,
               'default_switch_profile': None,
               'claim_patience_seconds': 0,
               'decisions_kept': 0}
    #: Whether Nova's record has the instances that hosts list.
    RECORDED_AS_LISTED = True

    def setUp(self):
        super().setUp()
        self.clock = fake_clock.Clock()
        self.store = fake_store.FakeStore(changes(1))
        patch = mock.patch.object(store, 'Store', autospec=True,
                                  return_value=self.store)
        self.make_store = patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch.object(nova_record, 'NovaRecord', FakeRecord)
        patch.start()
        self.addCleanup(patch.stop)
        self.log = LogRecords()
        logger = logging.getLogger('vswitch_aware_scheduler')
        level = logger.level
        logger.addHandler(self.log)
        logger.setLevel(logging.DEBUG)
        self.addCleanup(logger.setLevel, level)
        self.addCleanup(logger.removeHandler, self.log)

    def make_conf(self, **options):
        conf = cfg.ConfigOpts()
        opts.register_opts(conf)
        conf([])
        for name, value in {**self.OPTIONS, **options}.items():
            conf.set_override(name, value, group='vswitch_scheduler')
        return conf

    def make_state(self, **options):
        state = scheduler_state.SchedulerState(
            self.make_conf(**options), self.clock, self.clock)
        self.addCleanup(state.stop)
        if self.RECORDED_AS_LISTED:
            assess, known = state.assess, {}

            def record_and_assess(host_states, spec_obj):
                state._ensure_ready()
                self.clock.now += .001
                hosts = {one.host for one in host_states}
                rows = {uuid: None for uuid, host in known.items()
                        if host in hosts}
                rows.update((uuid, residency.Row(one.host, 'active', None))
                            for one in host_states for uuid in one.instances)
                known.update((uuid, row and row.host)
                             for uuid, row in rows.items())
                state._take_reading(residency.CellReading(
                    CELL, self.clock.now, rows))
                return assess(host_states, spec_obj)

            state.assess = record_and_assess
        return state

    def let_no_thread_start(self):
        """Let the test take the steps of threads, but that of the store.

        :returns: the mock of :meth:`.WorkerThread.start`
        """
        start = worker_thread.WorkerThread.start

        def started(thread):
            if thread._name == 'vswitch-snapshot':
                start(thread)

        return self.enterContext(mock.patch.object(
            worker_thread.WorkerThread, 'start', autospec=True,
            side_effect=started))

    @property
    def warnings(self):
        return self.log.texts(logging.WARNING)

    @property
    def infos(self):
        return self.log.texts(logging.INFO)


#: The law of a constant rate, egress only.
def constant(kbps):
    return model.TrafficModel.constant(kbps).law


#: Metadata of an aggregate whose hosts carry 100 kbit/s.
HUNDRED = {'saturation_kbps': '100', 'overload_probability': '0'}


class StateTestCase(SchedulerTestCase):
    """Hosts of 100 kbit/s whose instances all have constant rates."""

    RECORDED_AS_LISTED = False
    #: {number of an instance: kbit/s of its model} in the store.
    LAWS = {}

    def setUp(self):
        super().setUp()
        self.aggregate = aggregate(**HUNDRED)
        self.hosts = {}
        self.recorded = {}       # number -> host
        self.busy = set()        # numbers of instances that move
        self.store.answers = [changes(1, self.LAWS)]
        self.state = self.make_state()

    def refresh(self, *answers):
        """Let the state read the store, which answers what is given."""
        self.store.answers = list(answers) or self.store.answers
        self.state.refresh()

    def ask(self, spec=None, **listed):
        """Return {host: utilisation with the instance} and the reasons.

        :param spec: that of instance 1, if not given
        :param listed: host=[numbers of instances] that Nova's record has
            there; as of the last time for a host that is not given
        """
        for host, numbers in listed.items():
            self.hosts[host] = host_state(host, numbers, [self.aggregate])
        self.record(**listed)
        states = list(self.hosts.values())
        assessment, self.demand = self.state.assess(
            states, spec or request(1))
        self.reasons = dict(zip(self.hosts, assessment.reason.tolist()))
        return {host: round(value, 9) for host, value in zip(
            self.hosts, assessment.utilisation.tolist())}

    #: Flavors of the instances in the record: number -> extra specs.
    recorded_flavors = {}

    def record(self, **listed):
        """Let the state take in what Nova's record has on some hosts."""
        self.state._ensure_ready()
        before = self.recorded
        for host, numbers in listed.items():
            self.recorded = {
                number: at for number, at in self.recorded.items()
                if at != host} | dict.fromkeys(numbers, host)
        self.take_rows({
            number: self._row(number)
            for number in before.keys() | self.recorded.keys()
            if before.get(number) != self.recorded.get(number)})

    def take_rows(self, rows, cell=CELL, **more):
        """Let the state take in a reading that begins now: {number: Row}."""
        self.clock.now += .001
        self.state._take_reading(residency.CellReading(
            cell, self.clock.now, {instance_uuid(number): row
                                   for number, row in rows.items()}, **more))
        self.clock.now += .001

    def _row(self, number):
        if number not in self.recorded:
            return None
        specs = self.recorded_flavors.get(number)
        return residency.Row(
            self.recorded[number], 'active',
            'moving' if number in self.busy else None,
            (specs and ('m1', specs), None, None))

    def place(self, spec, host):
        self.state.host_consumed(self.hosts[host], spec)

    def boot(self, worker, number, hosts, placement=lambda host: True,
             **demand):
        """Return the host that Nova selects for a boot, or None.

        :param placement: callable(host), whether Placement accepts a claim
        """
        spec = request(number, **demand)
        worker.request_started()
        assessment, _ = worker.assess(hosts, spec)
        passing = [host for host, fits in zip(
            hosts, assessment.passing.tolist()) if fits]
        worker.hosts_filtered(passing)
        for host in passing:
            if not worker.claim_host({host.uuid}, spec):
                continue
            if placement(host.host):
                worker.host_consumed(host, spec)
                worker.request_finished(False)
                return host.host
            worker.claim_failed(spec.instance_uuid)
        worker.request_finished(True)
        return None


class SharingTestCase(StateTestCase):
    """States of several workers, with a real store in a file."""

    def setUp(self):
        super().setUp()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(directory, 'vswitch.sqlite')
        self.url = f'sqlite:///{self.path}'
        fake_store.make_empty(self.url)
        self.make_store.side_effect = RealStore

    def make_worker(self, **options):
        return self.make_state(**{
            'store_url': self.url, 'snapshot_refresh_seconds': 1,
            'claims_refresh_seconds': .05,
            'claim_patience_seconds': PATIENCE_SECONDS, **options})

    def host(self, name):
        return host_state(name, (), [self.aggregate])

    def load(self, worker, *hosts):
        """Return what hosts carry of what they can, as a worker sees it."""
        assessment, _ = worker.assess(list(hosts), request(99, kpps=1))
        return [round(value, 6) for value in assessment.utilisation.tolist()]

    def claims(self):
        return {int(one.instance_uuid[-12:]): (one.state, one.host)
                for one in RealStore(self.url).read_claims().claims}


class FilterTestCase(SchedulerTestCase):
    """The filter, and three hosts: full, free, and without a profile."""

    def setUp(self):
        super().setUp()
        self.store.answers = [changes(1, {1: 10.0, 2: 80.0, 4: 80.0})]
        self.make_filter()
        in_use = aggregate(**HUNDRED)
        self.full = host_state('full', [2], [in_use])
        self.free = host_state('free', [], [in_use])
        self.unknown = host_state('unknown', [3])
        self.hosts = [self.full, self.free, self.unknown]

    def make_filter(self, **options):
        self.state = self.make_state(**options)
        with mock.patch.object(nova_hooks, 'join', autospec=True,
                               return_value=self.state) as join:
            self.filter = filters.VSwitchFilter()
        join.assert_called_once_with('filter')

    @property
    def refusals(self):
        """Return what the debug log says of hosts that do not fit."""
        return [text for text in self.log.texts(logging.DEBUG)
                if 'fails the virtual switch check' in text]
