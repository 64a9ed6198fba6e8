# SPDX-License-Identifier: Apache-2.0
"""Sums of the rates of instances in the sampled time slots.

Each instance was high or low in each slot (:mod:`..traffic.slots`). Given
their classes, instances are independent. The mean and the variance of a sum in
a slot are therefore sums over the instances. :class:`SlotSums` keeps both for
many sums, and the moments of groups of slots, sorted by load. Rates are shares
of the capacity of the sum; a rate above the capacity counts as the capacity.
Pure; numpy only. Derivation: reference/model.rst, "Instances that are busy
together".
"""

import numpy as np

from vswitch_aware_scheduler.admission import rows as admission_rows
from vswitch_aware_scheduler.traffic import slots

__all__ = ['GROUP_SHARES', 'MARGIN', 'SlotSums', 'class_moments',
           'class_shares']

#: Factor on the rates in the slots. It is a safety margin, because a tail of
#: some per mille is estimated from few slots.
MARGIN = 1.01

# From the least loaded slots on.
_SIZES = np.array(slots.GROUP_SIZES[::-1])
_STARTS = np.cumsum(_SIZES) - _SIZES
_GROUP_OF = np.repeat(np.arange(_SIZES.size, dtype=np.uint8), _SIZES)

#: (g,) share of the slots that belong to each group.
GROUP_SHARES = _SIZES / slots.SLOTS

#: Smallest variance of a sum, and smallest ratio of the variance in a slot to
#: it.
_LEAST_VARIANCE = 1e-15
_LEAST_RATIO = 1e-4

# Mean and variance in each group, and over all time.
_GROUPS = _SIZES.size
_MEANS, _VARIANCES, _TOTAL = (
    slice(_GROUPS), slice(_GROUPS, 2 * _GROUPS),
    slice(2 * _GROUPS, 2 * _GROUPS + 2))


def class_shares(masses, low_states):
    """Return the probabilities of states over all time and in each class.

    :param masses: (m, n) probabilities of the states of n sources
    :param low_states: (n,) number of these states that are low
    :returns: (3, m, n): over all time, while low, while high; a class that
        does not occur has the probabilities over all time
    """
    low = masses * (np.arange(len(masses))[:, None] < low_states)
    shares = np.array([masses, low, masses - low])
    total = shares.sum(axis=1, keepdims=True)
    return np.where(total > 0, shares / np.where(total > 0, total, 1.0),
                    masses)


def class_moments(levels, shares):
    """Return mean and variance of rates over all time and in each class.

    :param levels: (m, n) rates of the states, as shares of the capacity
    :param shares: (c, m, n) or (c, m, 1) as in :func:`class_shares`; with c =
        1, over all time only
    :returns: (c, 2, n): means and variances
    """
    levels = np.minimum(levels, 1.0)
    moments = np.empty((len(shares), 2, levels.shape[1]))
    means, squares = moments[:, 0], moments[:, 1]
    np.sum(shares * levels, axis=1, out=means)
    levels *= levels
    np.sum(shares * levels, axis=1, out=squares)
    squares -= means * means
    np.maximum(squares, 0.0, out=squares)
    return moments


class SlotSums(admission_rows.Rows):
    """The sums of many hosts, one row for each."""

    def __init__(self):
        # The group of each slot, and the values that are looked up.
        super().__init__(('u1', (slots.SLOTS,)), ('<f8', (_TOTAL.stop,)))

    def set(self, rows, sums, totals):
        """Set some sums.

        :param rows: (s,) int, rows of the sums, all different
        :param sums: (s, 2, 504) mean and variance in each slot, float32
        :param totals: (s, 2) mean and variance over all time
        """
        # Groups, from the least loaded slots on. The bits of numbers >= 0 have
        # the order of the numbers. Sorting them together with the slots is
        # faster than argsort, which many equal means slow down.
        order = np.abs(sums[:, 0]).view('<i4').astype(np.int64) << 32
        order += np.arange(slots.SLOTS)
        order.sort(axis=1)
        order &= (1 << 32) - 1
        group_of, figures = self.values
        group_of[rows[:, None], order] = _GROUP_OF
        figures[rows, _TOTAL] = totals
        # Means, variances and squared means.
        moments = np.empty((3, *order.shape))
        order += 2 * slots.SLOTS * np.arange(len(order))[:, None]
        moments[0] = sums.take(order)
        moments[1] = sums.take(order + slots.SLOTS)
        np.multiply(moments[0], moments[0], out=moments[2])
        first, inside, square = np.add.reduceat(
            moments, _STARTS, axis=2) / _SIZES
        figures[rows, _MEANS] = first
        figures[rows, _VARIANCES] = np.maximum(
            inside + square - first * first, 0.0)

    def with_source(self, rows, moments, high):
        """Return by how much sums with one more source are stretched.

        In each group of slots the sum has the shape of its distribution over
        all time.

        :param rows: (r,) int, rows of the sums
        :param moments: (3, 2, r) of the source, as in :func:`class_moments`;
            (1, 2, r) for a source without classes
        :param high: sorted numbers of the slots in which the source was high;
            None for a source without classes
        :returns: two (g, r) arrays, by group. The first has the value, as a
            share of the capacity, that the sum without the source exceeds over
            all time with the same probability as the sum with the source
            exceeds the capacity in the group. The second has the factor by
            which the sum is wider in the group.
        """
        group_of, figures = self.values
        # Hosts are the last axis, so that inner loops are long.
        figures = np.ascontiguousarray(figures[rows].T)
        means, variances = figures[_MEANS], figures[_VARIANCES]
        if high is None:
            mean, variance = moments[0]
        else:
            mean, variance = moments[1]
            mean_rise, variance_rise = moments[2] - moments[1]
            share = self._shares(group_of[rows], high)
            means += share * mean_rise
            variances += share * (
                variance_rise + (1.0 - share) * mean_rise * mean_rise)
        means += mean
        variances += variance
        mean, variance = figures[_TOTAL]
        variances /= np.maximum(variance, _LEAST_VARIANCE)
        np.maximum(variances, _LEAST_RATIO, out=variances)
        widths = np.sqrt(variances, out=variances)
        places = np.subtract(1.0 / MARGIN, means, out=means)
        places /= widths
        places += mean
        return places, widths

    @staticmethod
    def _shares(group_of, high):
        """Return (g, r), the share of high slots in each group."""
        hosts = len(group_of)
        groups = group_of.take(high, axis=1).T * np.int64(hosts)
        groups += np.arange(hosts)
        return np.bincount(
            groups.ravel(), minlength=_GROUPS * hosts).reshape(
                -1, hosts) / _SIZES[:, None]
