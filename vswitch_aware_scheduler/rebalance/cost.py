# SPDX-License-Identifier: Apache-2.0
"""What a live migration costs: time, traffic, downtime and overload.

Pre-copy transfers all memory, then again what was written meanwhile, until
the rest fits into the downtime that is allowed. Pure.

Derivation: reference/rebalance.rst, "What a move costs".
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler import exceptions

__all__ = ['KBIT_PER_MIB', 'Migration', 'added_overload', 'migration']

#: kbit in a MiB.
KBIT_PER_MIB = 8 * 1024 * 1024 / 1000

#: Rounds of pre-copy after which a migration is taken not to end.
_MOST_ROUNDS = 30

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Migration:
    """What one live migration takes.

    :ivar seconds: from its beginning to its end, inf: it does not end
    :ivar transferred_kbit: over the link, both ways of counting it once
    :ivar downtime_seconds: for which the instance does not run
    """

    seconds: float
    transferred_kbit: float
    downtime_seconds: float

    @property
    def ends(self):
        """Whether the migration comes to an end by itself."""
        return self.seconds < np.inf


def migration(memory_mib, dirty_kbps, link_kbps, most_downtime_seconds=0.5):
    """Return the :class:`Migration` of an instance.

    :param memory_mib: memory of the instance
    :param dirty_kbps: how fast it writes to memory, in kbit/s of pages
    :param link_kbps: what the migration may use of the link
    :param most_downtime_seconds: rounds go on while the rest takes longer
    :raises InvalidInput: on a negative number or no link
    """
    for name, value in (('memory', memory_mib), ('dirty rate', dirty_kbps),
                        ('downtime', most_downtime_seconds)):
        if not 0 <= value < np.inf:
            raise exceptions.InvalidInput(
                f'{name}: {value}; expected a finite number from 0')
    if not 0 < link_kbps < np.inf:
        raise exceptions.InvalidInput(
            f'link of the migration: {link_kbps} kbit/s; expected a finite '
            f'number above 0')
    rest, seconds, transferred = memory_mib * KBIT_PER_MIB, 0.0, 0.0
    for _ in range(_MOST_ROUNDS):
        needed = rest / link_kbps
        seconds += needed
        transferred += rest
        if needed <= most_downtime_seconds * (1 + _TOLERANCE):
            # The last round: the instance is stopped.
            return Migration(seconds, transferred, needed)
        # What is written while the memory is copied, never more than all.
        rest = min(dirty_kbps * needed, memory_mib * KBIT_PER_MIB)
    return Migration(np.inf, np.inf, np.inf)


def added_overload(sums, alone, most, kbps, duration):
    """Return how much overload a migration adds to a host.

    What the host carries while the migration runs is taken to be what it
    carried of late.

    :param sums: (t,) recent sums of the host, kbit/s
    :param alone: (t,) bool: slots in which one instance alone was above
        the capacity, which are not avoidable
    :param most: capacity, kbit/s
    :param kbps: load of the migration on the switch
    :param duration: how long it runs, a number or an array of any unit
    :returns: in that unit
    """
    duration = np.asarray(duration, dtype=float)
    if not len(sums):
        return np.zeros(duration.shape)
    comes = (sums + kbps > most) & ~(sums > most) & ~alone
    return comes.mean() * duration
