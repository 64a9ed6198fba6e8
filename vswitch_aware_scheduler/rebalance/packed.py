# SPDX-License-Identifier: Apache-2.0
"""Sums of a host over some days, packed into few bytes. Pure.

A slot takes two bytes of each limit for the sum and one bit for whether one
instance alone was above the capacity. Seven days of five minutes are 2,016
slots: 4,284 bytes of a host with one limit.

Derivation: reference/rebalance.rst, "Packed sums".
"""

import numpy as np

from vswitch_aware_scheduler import exceptions

__all__ = ['STEPS', 'bytes_needed', 'pack', 'unpack']

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
