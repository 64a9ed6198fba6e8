# SPDX-License-Identifier: Apache-2.0
"""Counters of Prometheus that step, and what goes wrong with them.

Each case lets a modeler learn a day of a steady instance and of one with
bursts of 15 minutes each three hours, through the HTTP API, and compares the
model with the true volume and the true peak.
"""

from unittest import mock

import numpy as np

from tests.contract import telemetry_simulator as simulator
from tests.faults import registry
from tests.unit.store import base

check = registry.check

DAY = 86400.0
BEFORE = 10 * DAY

STEADY = simulator.Traffic(1e6)

#: The bursts begin at different moments of a period, and of an update.
BURSTS = simulator.Traffic(
    1e6, 900.0, 10800.0, simulator.T0 + 4137.0 - BEFORE)

#: (interval of updates, of scrapes), the former 0: counters are continuous.
INTERVALS = ((0, 15), (0, 120), (10, 30), (60, 15), (60, 30), (300, 15),
             (300, 30), (300, 120), (600, 60), (1800, 60))


class _Tool(base.StoreTestCase):

    def runTest(self):
        """Nothing: this is a tool."""


def _learned(source, traffic, clock=None, interval=7200.0):
    tool = _Tool()
    tool.setUp()
    server = simulator.Server([])
    server.setUp()
    try:
        return simulator.learned(
            tool.make_store(), server, 1, traffic, source, DAY, clock,
            interval)
    finally:
        server.cleanUp()
        tool.doCleanups()


def _survive(faults, clock=None, runs=1, **changes):
    """Return how many faults were survived: of all intervals and traffic.

    :param faults: how many of them there are in a day
    :param runs: of readings in a day, between gaps, resets and migrations
    :param changes: of :class:`.Source`; callables are called with the
        interval of updates
    """
    survived = 0
    for update, scrape in INTERVALS:
        source = simulator.Source(
            update_seconds=update, scrape_seconds=scrape, **{
                name: value(update) if callable(value) else value
                for name, value in changes.items()})
        intervals = f'updates every {update} s, scrapes every {scrape} s'
        steady = _learned(source, STEADY, clock)
        check.assertAlmostEqual(1.0, steady.mean, delta=0.01, msg=intervals)
        check.assertAlmostEqual(
            1.0, steady.peak, delta=0.05 if scrape <= 30 else 0.1,
            msg=intervals)
        # How old the first and the last volume of a run are is not known,
        # and the last ones are not delivered yet.
        check.assertLess(
            DAY / 300 - 20 - 6 * update / 300
            - runs * (2 * (2 * update + scrape) / 300 + 2), steady.samples,
            intervals)
        if update <= 300:
            bursts = _learned(source, BURSTS, clock)
            # After an outage, scrapes of 120 s say little of when a burst
            # began.
            check.assertAlmostEqual(
                1.0, bursts.peak, delta=0.15 if scrape <= 60 else 0.25,
                msg=intervals)
            survived += faults
        survived += faults
    return survived


@registry.fault('early and late poll')
def polls_that_jitter():
    # Around the scrapes, where a moment decides which of two shows a poll.
    return _survive(288, jitter_seconds=lambda update: 2.0 if update else 0.0)


@registry.fault('early and late poll')
def polls_that_drift():
    return (_survive(288, drift_seconds=lambda update: update / 400)
            + _survive(288, drift_seconds=lambda update: -update / 400))


@registry.fault('missed poll')
def polls_that_are_left_out():
    return _survive(2, phase_seconds=lambda update: 0.3 * update,
                    stalls=lambda update: (
                        (20000, 20000 + 1.2 * update),
                        (50000, 50000 + 1.2 * update)))


@registry.fault('outage of Prometheus')
def outages_of_prometheus():
    return _survive(4, runs=5, phase_seconds=lambda update: 0.6 * update,
                    outages=((20000, 20300), (35000, 35310), (50000, 50420),
                             (65000, 67000)))


@registry.fault('wrong clock')
def clocks_ahead_and_behind():
    survived = 0
    for wrong in (600.0, DAY, -600.0, -DAY):
        survived += _survive(
            1, lambda elapsed, wrong=wrong: elapsed + wrong * (
                30000 < elapsed < 42000), phase_seconds=17.0)
    return survived


@registry.fault('reset counter')
def counters_that_are_reset():
    return _survive(3, runs=4, phase_seconds=lambda update: 0.3 * update,
                    resets=(20000, 41111, 60003))


@registry.fault('migration')
def instances_that_move():
    return _survive(2, runs=3, phase_seconds=lambda update: 0.3 * update,
                    migrations=(20000, 60003))


@registry.fault('doubled sample')
def samples_that_come_twice():
    series = simulator.prometheus_series

    def doubled(*arguments):
        return [(name, labels, np.repeat(times, 2), np.repeat(values, 2))
                for name, labels, times, values in series(*arguments)]

    with mock.patch.object(simulator, 'prometheus_series', doubled):
        learned = _learned(
            simulator.Source(update_seconds=300, phase_seconds=70), STEADY,
            interval=3600.0)
    check.assertAlmostEqual(1.0, learned.mean, delta=0.01)
    check.assertAlmostEqual(1.0, learned.peak, delta=0.05)
    return 1
