# SPDX-License-Identifier: Apache-2.0
"""A store in a temporary directory, and models to put into it."""

import functools
import os
import tempfile
import unittest

import numpy as np
import sqlalchemy as sa

from tests.fakes import store as fake_store
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import series

NOW = fake_store.NOW
instance_uuid = fake_store.instance_uuid


def constant(number, egress_kbps=5.0, **more):
    """Return a record of an instance with one rate."""
    return store.StoredModel(
        instance_uuid(number),
        model.TrafficModel.constant(egress_kbps=egress_kbps), **more)


def fitted(number, seed=0, **more):
    """Return a record with several states and the counts they are from."""
    rng = np.random.default_rng(seed)
    times = NOW + 300.0 * np.arange(500)
    egress, ingress = rng.lognormal(3, 2, (2, times.size))
    counts = estimate.count_transitions(series.RateSeries.from_samples(
        instance_uuid(number), 300.0, times, egress, ingress))
    return store.StoredModel.from_counts(
        instance_uuid(number), estimate.fit_model(counts), counts, **more)


def as_models(changes):
    """Return {uuid: (probabilities, rates)} as plain lists."""
    return {name: (law.probabilities.tolist(), law.rates.tolist())
            for name, law in changes.laws()}


class StoreTestCase(unittest.TestCase):
    """A test with a store of its own, in SQLite.

    tests/integration runs those of its tests that need no file on other
    databases as well.
    """

    def setUp(self):
        super().setUp()
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.directory, 'vswitch.sqlite')
        self.url = self.make_url()

    def make_url(self):
        return f'sqlite:///{self.path}'

    @functools.cached_property
    def store(self):
        return self.make_store()

    def make_store(self, timeout_seconds=5.0):
        fake_store.make_empty(self.url)
        return store.Store(self.url, timeout_seconds)

    def execute(self, statement, **values):
        """Execute an SQL statement in the store's database.

        :returns: list of tuples, or None
        """
        engine = engines.create(engines.parse(self.url), 5, new_file=True)
        try:
            with engine.begin() as connection:
                result = connection.execute(sa.text(statement), values)
                return [tuple(row) for row in result] \
                    if result.returns_rows else None
        finally:
            engine.dispose()

    def remove_store(self):
        """Leave nothing at the URL."""
        os.unlink(self.path)

    def content(self):
        """Return {table: list of rows} of the store."""
        return {table.name: self.execute(f'SELECT * FROM {table.name}')
                for table in tables.metadata.sorted_tables}

    def restore(self, content):
        """Put back what :meth:`content` told before."""
        for table in tables.metadata.sorted_tables:
            names = [column.name for column in table.columns]
            self.execute(f'DELETE FROM {table.name}')
            for row in content[table.name]:
                self.execute(
                    f'INSERT INTO {table.name} ({", ".join(names)}) VALUES '
                    f'(:{", :".join(names)})', **dict(zip(names, row)))
