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

_ROW = np.dtype([
    # Mean and variance in each slot.
    ('slots', '<f4', (2, slots.SLOTS)),
    # Mean and variance over all time, and how many sources have classes.
    ('total', '<f8', 3),
    # Mean and variance in each group, and of which group each slot is.
    ('groups', '<f8', (2, _SIZES.size)), ('group_of', 'u1', slots.SLOTS)])


def class_shares(masses, low_states):
    """Return the probabilities of states over all time and in each class.

    :param masses: (n, m) probabilities of the states of n sources
    :param low_states: (n,) how many of these are low
    :returns: (3, n, m): over all time, while low, while high; a class that
        does not occur has those of all time
    """
    low = masses * (np.arange(masses.shape[1]) < low_states[:, None])
    shares = np.array([masses, low, masses - low])
    total = shares.sum(axis=2, keepdims=True)
    return np.where(total > 0, shares / np.where(total > 0, total, 1.0),
                    masses)


def class_moments(levels, shares):
    """Return mean and variance of rates over all time and in each class.

    :param levels: (n, m) rates of the states, in shares of the capacity
    :param shares: (3, n, m) as of :func:`class_shares`, or (3, 1, m); (1, 1,
        m) over all time only
    :returns: (3, 2, n): over all time, while low, while high
    """
    levels = np.minimum(levels, 1.0)
    if shares.shape[1] == 1:
        means, squares = (shares[:, 0] @ one.T
                          for one in (levels, levels * levels))
    else:
        means, squares = ((shares * one).sum(axis=2)
                          for one in (levels, levels * levels))
    found = np.empty((len(means), 2, means.shape[1]))
    found[:, 0] = means
    means *= means
    np.maximum(np.subtract(squares, means, out=squares), 0.0, out=found[:, 1])
    return found


class SlotSums(admission_rows.Rows):
    """The sums of many hosts, each a row."""

    def __init__(self):
        super().__init__(_ROW)

    def start(self, count):
        """Return the rows of ``count`` sums of nothing."""
        rows = self.take(count)
        self.values[rows] = np.zeros((), _ROW)
        return rows

    def add(self, rows, of, moments, classed, bits):
        """Add sources to sums; a count of -1 takes one away.

        :param rows: (r,) int, different ones
        :param of: (n,) int, increasing: to which of these each source belongs
        :param moments: (3, 2, n) as of :func:`class_moments`, times how many
            there are of the source
        :param classed: (n,) how many there are of a source with classes, 0
            where it has none
        :param bits: (n, 63) uint8, in which slots each source was high
        """
        total, low, high = moments
        added = np.concatenate([total, classed[None], low])
        added = added.sum(axis=1)[None] if rows.size == 1 else np.stack(
            [np.bincount(of, one, rows.size) for one in added], axis=1)
        self.values['total'][rows] += added[:, :3]
        chosen = np.flatnonzero(classed)
        more, bits = (high - low)[:, chosen].astype('<f4'), bits[chosen]
        ends = np.searchsorted(of[chosen], np.arange(rows.size + 1)).tolist()
        sums = self.values['slots']
        for row, begin, end, every in zip(
                rows.tolist(), ends, ends[1:], added[:, 3:, None]):
            was_high = np.unpackbits(bits[begin:end], axis=1)
            sums[row] += more[:, begin:end] @ was_high.astype('<f4') + every
        self._group(rows)

    def add_one(self, row, moments, count, was_high):
        """Add one source to one sum.

        :param moments: (3, 2, 1) as of :func:`class_moments`; (1, 2, 1) where
            it has no classes
        :param count: 1, or -1 to take it away
        :param was_high: (504,) float32, 1 for slots in which it was high, 0
            for others; None: it has no classes
        """
        moments = moments * count
        self.values['total'][row, :2] += moments[0, :, 0]
        sums = self.values['slots'][row]
        if was_high is None:
            sums += moments[0]
        else:
            self.values['total'][row, 2] += count
            sums += (moments[2] - moments[1]) * was_high + moments[1]
        self._group(slice(row, row + 1))

    def classed(self, rows):
        """Return (r,) bool: whether a source of the sums has classes."""
        return self.values['total'][rows, 2] > 0.5

    def _group(self, rows):
        """Divide the slots of sums in groups, by how busy they are."""
        sums = self.values['slots'][rows].swapaxes(0, 1)
        moments = np.empty((3, *sums.shape[1:]))
        moments[:2] = sums
        means = moments[0]
        np.multiply(means, means, out=moments[2])
        order = means.argsort(axis=1)
        order += np.arange(0, order.size, slots.SLOTS)[:, None]
        first, inside, square = np.add.reduceat(
            moments.reshape(3, -1).take(order, axis=1), _STARTS,
            axis=2) / _SIZES
        square -= first * first
        square += inside
        groups = self.values['groups']
        groups[rows, 0], groups[rows, 1] = first, np.maximum(square, 0.0)
        group_of = np.empty(order.shape, np.uint8)
        group_of.put(order, _GROUP_OF)
        self.values['group_of'][rows] = group_of

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
        # Hosts last, so that loops are long.
        means, variances = self.values['groups'][rows].transpose(
            1, 2, 0).copy()
        if high is None:
            mean, variance = moments[0]
        else:
            mean, variance = moments[1]
            more, wider = moments[2] - moments[1]
            share = self._shares(self.values['group_of'][rows], high)
            means += share * more
            variances += share * (wider + (1.0 - share) * more * more)
        means += mean
        variances += variance
        mean, variance, _ = self.values['total'][rows].T
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
            groups.ravel(), minlength=_SIZES.size * hosts).reshape(
                -1, hosts) / _SIZES[:, None]
