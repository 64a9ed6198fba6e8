# SPDX-License-Identifier: Apache-2.0
"""Traces made of plain lists."""

import numpy as np

from vswitch_aware_scheduler.lab.evaluate import settings
from vswitch_aware_scheduler.lab.evaluate import trace
from vswitch_aware_scheduler.traffic import series

PERIOD = 300.0
START = 1.375e9
NO_SAMPLE = float('nan')

#: A configuration with a small default demand; the rest is as shipped.
SETTINGS = settings.EvaluationSettings(
    overload_probability=0.01, admission_policy='probability', min_samples=24,
    modeler_half_life_days=30.0, default_egress_kbps=60.0,
    default_ingress_kbps=40.0, default_on_seconds=1.0, default_off_seconds=9.0,
    error_budgets=False,
    prediction_margin=1.0, rebalance_checks=2, rebalance_most_moves=10,
    rebalance_cool_down_hours=24.0)

DEFAULT_LAW = SETTINGS.default_law


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
