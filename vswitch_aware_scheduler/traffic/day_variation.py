# SPDX-License-Identifier: Apache-2.0
"""Measures by how much the mean rate of an instance differs between days.

The daily means of a stationary source differ by chance only, by an amount that
follows from the variance and the correlation of its samples. If they differ by
more, the level of the source changes from day to day, and its mean rate on
later days is uncertain even with a long history.

Pure; numpy only. Derivation: reference/model.rst, "Changes from day to day".
"""

import numpy as np

from vswitch_aware_scheduler.traffic import slots

__all__ = ['LEAST_DAYS', 'LEAST_SAMPLES', 'MOST_VARIATION', 'variations']

#: A day counts if it has at least this number of sampled slots.
LEAST_SAMPLES = slots.SAMPLED_A_DAY // 3

#: A history with fewer days shows no variation.
LEAST_DAYS = 3

#: Largest result of :func:`variations`. A source that is active on few days
#: has a large variation.
MOST_VARIATION = 1.0

#: Number of standard deviations by which the variance between days has to
#: exceed its expectation for a stationary source. A smaller excess counts as
#: chance.
_DEVIATIONS_BY_CHANCE = 3.0

#: Largest correlation of successive samples that is taken into account.
_MOST_CORRELATION = 0.9


def variations(rates):
    """Return the standard deviation of the daily level, divided by the mean.

    :param rates: (V, 504) rate of each instance in each of the sampled slots,
        NaN without a sample, in the order of time, from any hour on
    :returns: (V,) 0 to :data:`MOST_VARIATION`; 0 if the differences between
        days may be chance, or if the history is too short
    """
    days = rates.reshape(len(rates), slots.DAYS, slots.SAMPLED_A_DAY)
    seen = ~np.isnan(days)
    samples = np.count_nonzero(seen, axis=2)
    counted = samples >= LEAST_SAMPLES
    seen &= counted[:, :, None]
    samples = np.where(counted, samples, 0)
    number = np.count_nonzero(counted, axis=1)
    days = np.where(seen, days, 0.0)
    size = np.maximum(samples, 1)
    means = days.sum(axis=2) / size
    away = np.where(seen, days - means[:, :, None], 0.0)
    squares = (away * away).sum(axis=(1, 2))
    total = np.maximum(samples.sum(axis=1), 1)
    # The deviations within a day add up to 0, which lowers their correlation.
    products = (away[:, :, 1:] * away[:, :, :-1]).sum(axis=(1, 2))
    correlation = np.clip(
        np.divide(products, squares, out=np.zeros(len(rates)),
                  where=squares > 0) + 1 / slots.SAMPLED_A_DAY,
        0.0, _MOST_CORRELATION)
    within = squares / np.maximum(total - number, 1)
    by_chance = within * (1 + correlation) / (1 - correlation) * np.where(
        counted, 1 / size, 0.0).sum(axis=1) / np.maximum(number, 1)
    degrees = np.maximum(number - 1, 1)
    mean = days.sum(axis=(1, 2)) / total
    day_mean = means.sum(axis=1, where=counted) / np.maximum(number, 1)
    between = np.where(counted, (means - day_mean[:, None]) ** 2, 0.0).sum(
        axis=1) / degrees
    # The standard deviation of ``between`` is that of normal means.
    changes = between > by_chance * (
        1 + _DEVIATIONS_BY_CHANCE * np.sqrt(2 / degrees))
    excess = np.where(changes, between - by_chance, 0.0)
    variation = np.divide(np.sqrt(excess), mean, out=np.zeros(len(rates)),
                          where=(mean > 0) & (number >= LEAST_DAYS))
    return np.minimum(variation, MOST_VARIATION)
