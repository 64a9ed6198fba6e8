# SPDX-License-Identifier: Apache-2.0
"""Traces made of plain lists."""

import numpy as np

from vswitch_aware_scheduler.evaluate import trace
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import series

PERIOD = 300.0
START = 1.375e9
NO_SAMPLE = float('nan')

DEFAULT_LAW = model.TrafficModel.on_off(
    60.0, 40.0, on_seconds=1.0, off_seconds=9.0).law


def make_series(rows, start=START, period=PERIOD):
    """Return RateSeries of (V, T) rates, uuids '0', '1', ...

    A quarter is egress.
    """
    rates = np.asarray(rows, dtype=float)
    times = start + period * np.arange(rates.shape[1])
    return [series.RateSeries.from_samples(
        str(number), period, times, 0.25 * row, 0.75 * row)
        for number, row in enumerate(rates)]


def make_trace(rows, start=START):
    """Return a Trace of (V, T) rates, NaN: no sample."""
    return trace.Trace.from_series(make_series(rows, start))


def known_of(rows):
    """Return what is Known when all of (V, T) rates are."""
    binned = make_trace(rows)
    bins = binned.times.size
    return trace.History(binned, bins, np.full(len(rows), bins)).until(bins)
