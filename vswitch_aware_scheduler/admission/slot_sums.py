# SPDX-License-Identifier: Apache-2.0
"""What sums of instances are in the sampled slots of time.

An instance was high or low in each slot (:mod:`..traffic.slots`), and
instances are independent given their classes. So the mean and the variance of
a sum in a slot are sums over the instances. :class:`SlotSums` keeps both for
many sums, and the moments of groups of slots, from the busiest ones on. Rates
are shares of the capacity of the sum; a rate above the capacity counts as the
capacity. Pure; numpy only.

Derivation: reference/model.rst, "Instances that are busy together".
"""

import numpy as np

from vswitch_aware_scheduler.admission import rows as admission_rows
from vswitch_aware_scheduler.traffic import slots

__all__ = ['GROUP_SHARES', 'MARGIN', 'SlotSums', 'class_moments',
           'class_shares']

#: Rates count so many times in what the slots say: a tail of some per mille
#: is known from a few of them, and traffic changes.
MARGIN = 1.05

# From the calmest slots on.
_SIZES = np.array(slots.GROUP_SIZES[::-1])
_STARTS = np.cumsum(_SIZES) - _SIZES
_GROUP_OF = np.repeat(np.arange(_SIZES.size, dtype=np.uint8), _SIZES)

#: (g,) share of the slots that are in each group.
GROUP_SHARES = _SIZES / slots.SLOTS

#: The least variance of a sum, and that of a slot relative to it.
_LEAST_VARIANCE = 1e-15
_LEAST_RATIO = 1e-4

# Mean and variance in each group, mean and variance over all time, and how
# many sources have classes.
_GROUPS = _SIZES.size
_MEANS, _VARIANCES, _TOTAL = (
    slice(_GROUPS), slice(_GROUPS, 2 * _GROUPS),
    slice(2 * _GROUPS, 2 * _GROUPS + 3))


def class_shares(masses, low_states):
    """Return the probabilities of states over all time and in each class.

    :param masses: (m, n) probabilities of the states of n sources
    :param low_states: (n,) how many of these are low
    :returns: (3, m, n): over all time, while low, while high; a class that
        does not occur has those of all time
    """
    low = masses * (np.arange(len(masses))[:, None] < low_states)
    shares = np.array([masses, low, masses - low])
    total = shares.sum(axis=1, keepdims=True)
    return np.where(total > 0, shares / np.where(total > 0, total, 1.0),
                    masses)


def class_moments(levels, shares):
    """Return mean and variance of rates over all time and in each class.

    :param levels: (m, n) rates of the states, in shares of the capacity
    :param shares: (c, m, n) or (c, m, 1) as of :func:`class_shares`; c may be
        1: over all time only
    :returns: (c, 2, n)
    """
    levels = np.minimum(levels, 1.0)
    found = np.empty((len(shares), 2, levels.shape[1]))
    means, squares = found[:, 0], found[:, 1]
    np.sum(shares * levels, axis=1, out=means)
    levels *= levels
    np.sum(shares * levels, axis=1, out=squares)
    squares -= means * means
    np.maximum(squares, 0.0, out=squares)
    return found


class SlotSums(admission_rows.Rows):
    """The sums of many hosts, each a row."""

    def __init__(self):
        # Mean and variance in each slot; of which group each slot is; and
        # what is asked for.
        super().__init__(('<f4', (2, slots.SLOTS)), ('u1', (slots.SLOTS,)),
                         ('<f8', (_TOTAL.stop,)))

    def start(self):
        """Return the row of a sum of nothing."""
        row = self.take()
        for array in self.values:
            array[row] = 0
        return row

    def add(self, row, moments, classed, bits):
        """Add sources to a sum.

        :param row: of the sum
        :param moments: (3, 2, n) as of :func:`class_moments`, times how many
            there are of each source
        :param classed: (n,) how many there are of a source with classes, 0
            where it has none
        :param bits: (n, 63) uint8, in which slots each source was high
        :returns: whether any source of the sum has classes
        """
        total, low, high = moments
        sums, group_of, figures = (array[row] for array in self.values)
        figures[_TOTAL] += (*total.sum(axis=1), classed.sum())
        sums += low.sum(axis=1)[:, None]
        # No slot of a source without classes is a high one.
        sums += (high - low).astype('<f4') @ np.unpackbits(
            bits, axis=1).astype('<f4')
        # Groups, from the calmest slots on.
        order = sums[0].argsort()
        means, inside = sums.astype(float).take(order, axis=1)
        first, inside, square = np.add.reduceat(
            [means, inside, means * means], _STARTS, axis=1) / _SIZES
        figures[_MEANS] = first
        figures[_VARIANCES] = np.maximum(inside + square - first * first, 0.0)
        group_of[order] = _GROUP_OF
        return figures[-1] > 0.5

    def with_source(self, rows, moments, high):
        """Return by how much sums with one more source are stretched.

        The sum in a group has the shape of the one over all time.

        :param rows: (r,) int
        :param moments: (3, 2, r) of the source, as of :func:`class_moments`;
            (1, 2, r) where it has no classes
        :param high: sorted numbers of the slots in which it was high; None:
            it has no classes
        :returns: (g, r), by group: which value of the sum without the source
            is as likely to be exceeded over all time as the capacity is in
            the group with the source, in shares of the capacity; and (g, r),
            how many times wider the sum is there
        """
        _, group_of, figures = self.values
        # Hosts last, so that loops are long.
        figures = np.ascontiguousarray(figures[rows].T)
        means, variances = figures[_MEANS], figures[_VARIANCES]
        if high is None:
            mean, variance = moments[0]
        else:
            mean, variance = moments[1]
            more, wider = moments[2] - moments[1]
            share = self._shares(group_of[rows], high)
            means += share * more
            variances += share * (wider + (1.0 - share) * more * more)
        means += mean
        variances += variance
        mean, variance, _ = figures[_TOTAL]
        variances /= np.maximum(variance, _LEAST_VARIANCE)
        np.maximum(variances, _LEAST_RATIO, out=variances)
        wider = np.sqrt(variances, out=variances)
        places = np.subtract(1.0 / MARGIN, means, out=means)
        places /= wider
        places += mean
        return places, wider

    @staticmethod
    def _shares(group_of, high):
        """Return (g, r), the share of the slots of groups that are high."""
        hosts = len(group_of)
        groups = group_of.take(high, axis=1).T * np.int64(hosts)
        groups += np.arange(hosts)
        return np.bincount(
            groups.ravel(), minlength=_GROUPS * hosts).reshape(
                -1, hosts) / _SIZES[:, None]
