# SPDX-License-Identifier: Apache-2.0
"""Sums of a host over some days, packed into few bytes.

:func:`pack` and :func:`unpack` are of the slots of one limit. Of a day the
store has them one limit after the other: :func:`pack_day`. :func:`history`
reads the sums of some days; nothing else here reads or writes anything.

A slot takes two bytes of each limit for the sum and one bit for whether one
instance alone was above the capacity. Seven days of five minutes are 2,016
slots: 4,284 bytes of a host with one limit.

Derivation: reference/rebalance.rst, "Packed sums".
"""

import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler import exceptions

__all__ = ['STEPS', 'Sums', 'bytes_needed', 'history', 'pack', 'pack_day',
           'slots_of_day', 'unpack', 'unpack_day']

_DAY_SECONDS = 86400.0

#: Steps up to the capacity; sums are known to half a step.
STEPS = 2 ** 14

#: Stands for a slot that is not known.
_UNKNOWN = 2 ** 16 - 1

_KIND = np.dtype('<u2')


def bytes_needed(slots):
    """Return how many bytes some slots of one limit take."""
    return slots * _KIND.itemsize + (slots + 7) // 8


def pack(sums, alone, capacity):
    """Return bytes for the slots of one limit of a host.

    A sum keeps its side of the capacity: one that is above it by less than
    half a step is packed as one step above. Sums above four times the
    capacity are packed as that.

    :param sums: (t,) in the unit of the capacity, NaN where not known
    :param alone: (t,) bool: one instance alone was above the capacity
    :param capacity: above 0 and finite
    :raises InvalidInput: on another capacity, or sums below 0
    """
    sums = np.asarray(sums, dtype=float)
    if not 0 < capacity < np.inf:
        raise exceptions.InvalidInput(
            f'capacity: {capacity}; expected a finite number above 0')
    known = ~np.isnan(sums)
    if (sums[known] < 0).any():
        raise exceptions.InvalidInput(
            f'sum of a host: {sums[known].min()}; expected 0 or more')
    share = np.where(known, sums, 0.0) / capacity
    steps = np.rint(np.minimum(share * STEPS, _UNKNOWN - 1))
    steps = np.where(share > 1 + 1e-9, np.maximum(steps, STEPS + 1),
                     np.minimum(steps, STEPS))
    steps = np.where(known, steps, _UNKNOWN).astype(_KIND)
    return steps.tobytes() + np.packbits(
        np.asarray(alone, dtype=bool)).tobytes()


def unpack(packed, slots, capacity):
    """Return (sums, alone) of :func:`pack`.

    :param slots: how many were packed
    :raises InvalidInput: when that are not the bytes of so many slots
    """
    if len(packed) != bytes_needed(slots):
        raise exceptions.InvalidInput(
            f'packed sums of {slots} slots: {len(packed)} bytes; expected '
            f'{bytes_needed(slots)}')
    size = slots * _KIND.itemsize
    steps = np.frombuffer(packed[:size], dtype=_KIND)
    sums = np.where(steps == _UNKNOWN, np.nan, steps / STEPS * capacity)
    alone = np.unpackbits(np.frombuffer(packed[size:], dtype=np.uint8),
                          count=slots).astype(bool)
    return sums, alone


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """What a host or an uplink was asked for, slot by slot.

    :ivar name: of the host or the uplink
    :ivar period_seconds: length of a slot
    :ivar first: number of the first slot; slot k begins at k periods since
        1970
    :ivar limits: tuple of (weights, packet bytes, capacity) of l limits
    :ivar sums: (l, t), NaN where not known
    :ivar alone: (l, t) bool: one instance alone was above the capacity
    """

    name: str
    period_seconds: float
    first: int
    limits: tuple
    sums: np.ndarray
    alone: np.ndarray


def slots_of_day(day, period_seconds):
    """Return (first, last + 1) of the slots that begin within a day."""
    return tuple(math.ceil(time * _DAY_SECONDS / period_seconds)
                 for time in (day, day + 1))


def pack_day(sums, alone, capacities):
    """Return bytes for the slots of a day, of all limits.

    :param sums: (l, t) as :func:`pack` takes them, and so is ``alone``
    :param capacities: (l,)
    """
    return b''.join(map(pack, sums, alone, capacities))


def unpack_day(stored):
    """Return (sums, alone) of the :class:`.StoredSums` of a day.

    :returns: (l, t) each
    :raises InvalidInput: when its data are of other slots
    """
    first, end = slots_of_day(stored.day, stored.period_seconds)
    size = bytes_needed(end - first)
    if len(stored.data) != size * len(stored.limits):
        raise exceptions.InvalidInput(
            f'packed sums of {stored.kind} {stored.name}: '
            f'{len(stored.data)} bytes; expected '
            f'{size * len(stored.limits)}')
    found = [unpack(stored.data[i * size:(i + 1) * size], end - first,
                    capacity)
             for i, (_, _, capacity) in enumerate(stored.limits)]
    return np.array([sums for sums, _ in found]), np.array(
        [alone for _, alone in found])


def history(store, kind, now, names=None, days=7.0):
    """Return the sums of some days, of each host or uplink alike many slots.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param kind: ``store.HOST`` or ``store.UPLINK``
    :param now: seconds UTC: the last slot is the one that ended last
    :param names: collection of names, None: all
    :returns: {name: :class:`Sums`}; a limit that is not there any more is
        left out, and slots of other periods or days that cannot be read are
        not known
    :raises StoreError: when the store cannot be read
    """
    state = store.budget_state()
    if state is None:
        return {}
    period = state.period_seconds
    end = int(now // period)
    first = end - int(days * _DAY_SECONDS // period)
    of_name = {}
    for stored in store.sum_history(kind, names, int(
            first * period // _DAY_SECONDS)):
        if stored.period_seconds == period:
            of_name.setdefault(stored.name, []).append(stored)
    return {name: _joined(name, some, period, first, end)
            for name, some in of_name.items()}


def _joined(name, stored, period, first, end):
    limits = stored[-1].limits
    sums = np.full((len(limits), end - first), np.nan)
    alone = np.zeros(sums.shape, dtype=bool)
    for one in stored:
        try:
            found = unpack_day(one)
        except exceptions.InvalidInput:
            continue
        place = {limit[:2]: i for i, limit in enumerate(one.limits)}
        begin, stop = slots_of_day(one.day, period)
        low, high = max(begin, first), min(stop, end)
        if low >= high:
            continue
        for i, limit in enumerate(limits):
            if limit[:2] in place:
                for target, source in zip((sums, alone), found):
                    target[i, low - first:high - first] = source[
                        place[limit[:2]], low - begin:high - begin]
    return Sums(name, period, first, limits, sums, alone)
