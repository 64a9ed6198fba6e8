# SPDX-License-Identifier: Apache-2.0
"""Sampled time slots, in which instances are compared with each other.

Time since the epoch is divided into slots of 300 s. One of eight slots is
sampled, the same slots for all instances. The sampled slots move by 3 slots
each day, so that eight days include each time of the day. For each instance,
one bit is kept for each of the last 504 sampled slots, which are 14 days:
whether its rate was high or low.

The slots form a ring: after 14 days, a slot replaces the slot at its position.
Positions depend only on the time. Bit b of each instance is therefore the same
slot in every process.

Pure; no clock, no configuration, no I/O. Derivation: reference/model.rst,
"Instances that are busy together".
"""

import hashlib

import numpy as np

SLOT_SECONDS = 300
#: Number of slots that are kept for each instance.
SLOTS = 504
#: One of eight slots is sampled.
EACH = 8
#: Each day, the sampled slots begin this number of slots earlier.
NEXT_DAY = 3
SLOTS_A_DAY = 86400 // SLOT_SECONDS
SAMPLED_A_DAY = SLOTS_A_DAY // EACH
DAYS = SLOTS // SAMPLED_A_DAY
#: A slot without a sample takes the value of the slot 7 days earlier in the
#: ring. If that slot has no sample either, 3 more days are subtracted, and so
#: on. 3 and 14 have no common divisor, so that these steps reach all days.
REPLACEMENT_DAYS = (7, *(3,) * (DAYS - 1))
#: Slots of a host are sorted by load and divided into groups of these numbers
#: of slots; the first group has the busiest slot.
GROUP_SIZES = (1, 1, 2, 2, 4, 4, 8, 16, 32, 64, 128, 242)


def sampled(slot_numbers):
    """Return which slots are sampled.

    :param slot_numbers: slots since the epoch, integers
    :returns: bool array of the same shape
    """
    slot_numbers = np.asarray(slot_numbers)
    return (slot_numbers + NEXT_DAY * (slot_numbers // SLOTS_A_DAY)
            ) % EACH == 0


def ring_index(slot_numbers):
    """Return the positions of slots in the ring, 0 to 503.

    :param slot_numbers: sampled slots since the epoch, integers
    """
    return np.asarray(slot_numbers) // EACH % SLOTS


def latest_number(slot_numbers):
    """Return the numbers of the latest sampled slots up to given slots.

    Sampled slots are numbered since the epoch: slot t has number t // 8.

    :param slot_numbers: slots since the epoch, integers; a sampled slot is its
        own latest
    """
    slot_numbers = np.asarray(slot_numbers)
    numbers = slot_numbers // EACH
    return numbers - (slot_numbers < _sampled_slot(numbers))


def latest_slots(slot_number):
    """Return the 504 latest sampled slots up to a slot, by ring position.

    :param slot_number: slot since the epoch; included if it is sampled
    """
    newest = latest_number(slot_number)
    return _sampled_slot(newest - (newest - np.arange(SLOTS)) % SLOTS)


def _sampled_slot(numbers):
    """Return the slots with given numbers of sampled slots."""
    return numbers * EACH + -NEXT_DAY * (numbers // SAMPLED_A_DAY) % EACH


def drawn(uuid, shares):
    """Return random bits that are the same in every process.

    :param uuid: seed, the uuid of the instance
    :param shares: probability that a bit is set: one number, or (504,)
    :returns: (504,) bool
    """
    digest = hashlib.shake_128(uuid.encode()).digest(4 * SLOTS)
    return np.frombuffer(digest, dtype='<u4') < np.asarray(shares) * 2.0 ** 32
