# SPDX-License-Identifier: Apache-2.0
"""A telemetry source in memory that keeps the contract of a driver."""

import dataclasses

import numpy as np

from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.telemetry import base as telemetry_base
from vswitch_aware_scheduler.traffic import series

PERIOD = 300.0

#: A multiple of the period.
BEGIN = 1_700_000_100.0

END = BEGIN + 10 * 365 * 86400


class MemoryDriver(telemetry_base.Driver):
    """Raw samples in memory.

    :ivar samples: {uuid: (times, egress, ingress)}, NaN for no value
    :ivar asked: list of (start, end, instances) of every reading
    :ivar fail_after: None, or number of series after which it breaks down
    :ivar counters: samples are cumulative bytes instead of kbit/s
    :ivar ended: {uuid: when the instance ended}
    """

    source = 'memory'
    variant = ''

    def __init__(self, counters=False):
        super().__init__()
        self.samples = {}
        self.names = {}
        self.ended = {}
        self.asked = []
        self.fail_after = None
        self.counters = counters
        self.period = PERIOD

    @property
    def period_seconds(self):
        return self.period

    def put(self, number, times, egress, ingress=None, name=None):
        uuid = base.instance_uuid(number)
        egress = np.asarray(egress, dtype=float)
        self.samples[uuid] = (
            np.asarray(times, dtype=float), egress,
            np.zeros(egress.size) if ingress is None
            else np.asarray(ingress, dtype=float))
        self.names[uuid] = name or f'vm{number}'
        return uuid

    def instances(self):
        return [telemetry_base.Instance(
            uuid, self.names[uuid],
            {'ended_at': self.ended[uuid]} if uuid in self.ended else {})
            for uuid in self.samples]

    def _series(self, start, end, instances, progress):
        self.asked.append((start, end, instances))
        uuids = [uuid for uuid in self.samples
                 if instances is None or uuid in instances]
        for number, uuid in enumerate(uuids):
            progress(number, len(uuids))
            if number == self.fail_after:
                raise exceptions.TelemetryError('memory: gone; expected there')
            times, *columns = self.samples[uuid]
            if self.counters:
                # The reading that closes the last period is needed.
                keep = (times >= start) & (times < end + self.period)
                seconds = np.diff(times[keep])
                rates = np.array([np.diff(column[keep]) / 125.0 / seconds
                                  for column in columns])
                reset = (rates < 0).any(axis=0)
                yield dataclasses.replace(
                    series.RateSeries.from_samples(
                        uuid, self.period, times[keep][:-1][~reset],
                        *rates[:, ~reset]),
                    refused=series.Refused(reset=int(reset.sum())))
                continue
            keep = (times >= start) & (times < end)
            yield series.RateSeries.from_samples(
                uuid, self.period, times[keep],
                *(column[keep] for column in columns))
        progress(len(uuids), len(uuids))


class ModelerTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.driver = MemoryDriver()
        self.now = END

    def other_store(self, name):
        """Return one more store, empty, with the same secret."""
        own_url, secret = self.url, self.store.secret().hex()
        self.url = f'sqlite:///{self.directory}/{name}.sqlite'
        self.addCleanup(setattr, self, 'url', own_url)
        store = self.make_store()
        self.execute('UPDATE secret SET value = :secret', secret=secret)
        self.url = own_url
        return store

    def run_pass(self, store=None, now=None, progress=None, writing=None,
                 share=None, most_kbps=None, **settings):
        settings.setdefault('source', 'memory')
        return learning.run(
            store or self.store, self.driver,
            lambda: self.now if now is None else now,
            learning.LearningSettings(**settings), progress, writing, share,
            most_kbps)

    def learned(self, store=None):
        """Return all that a store has learned, as bytes and plain values."""
        store = store or self.store
        points = store.resume_points()
        content = {}
        for uuid, counted in store.learned(points).items():
            model = store.model(uuid)
            content[uuid] = (
                counted.modelled, counted.counts and counted.counts.to_bytes(),
                counted.refused, model and model.model.to_dict())
        return content

    def assert_learned_as_at_once(self):
        """Check that the store has what one pass into an empty one gives."""
        scratch = self.other_store('scratch')
        self.run_pass(scratch)
        self.assertEqual(self.learned(scratch), self.learned())


class SharingTestCase(ModelerTestCase):
    """Whether several passes learn what one does.

    :ivar scratch: a store for that one
    """

    def setUp(self):
        super().setUp()
        self.scratch = self.other_store('scratch')

    def counts(self, store):
        """Return what is counted."""
        content = {}
        for uuid, counted in store.learned(store.resume_points()).items():
            counts = counted.counts
            content[uuid] = (counts.bins.tolist(), counts.samples.tolist(),
                             counts.totals.tolist(), counts.peaks.tolist(),
                             counts.at_instants.tolist(), counts.last_time,
                             counted.refused, counted.modelled)
        return content

    def assert_learned_once(self):
        self.assertEqual(self.counts(self.scratch), self.counts(self.store))
