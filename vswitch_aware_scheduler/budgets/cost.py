# SPDX-License-Identifier: Apache-2.0
"""The cost of a live migration: time, traffic, downtime and overload.

Pre-copy transfers all memory, then repeatedly the memory that was written
meanwhile, until the rest fits into the permitted downtime. Pure. Derivation:
reference/rebalance.rst, "Cost of a move".
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.common import checks

__all__ = ['KBIT_PER_MIB', 'MigrationCost', 'added_overload', 'migration']

#: Number of kbit in one MiB.
KBIT_PER_MIB = 8 * 1024 * 1024 / 1000

#: Number of rounds of pre-copy after which a migration counts as endless.
_MOST_ROUNDS = 30


@dataclasses.dataclass(frozen=True)
class MigrationCost:
    """The cost of one live migration.

    :ivar seconds: duration; inf if it does not end
    :ivar transferred_kbit: data on the link, counted once
    """

    seconds: float
    transferred_kbit: float
    downtime_seconds: float

    @property
    def ends(self) -> bool:
        """Whether the migration ends by itself."""
        return self.seconds < np.inf


def migration(memory_mib: float, dirty_kbps: float, link_kbps: float,
              most_downtime_seconds: float = 0.5) -> MigrationCost:
    """Return the :class:`MigrationCost` of an instance.

    :param dirty_kbps: rate at which it writes to memory, in kbit/s of pages
    :param most_downtime_seconds: longest downtime, up to which copying
        continues
    :raises InvalidInput: if a number is negative or the link has no capacity
    """
    for name, value, above in (
            ('memory', memory_mib, False), ('dirty rate', dirty_kbps, False),
            ('downtime', most_downtime_seconds, False),
            ('link of the migration in kbit/s', link_kbps, True)):
        checks.check(name, value, checks.number(above=above))
    remaining, seconds, transferred = memory_mib * KBIT_PER_MIB, 0.0, 0.0
    for _ in range(_MOST_ROUNDS):
        needed = remaining / link_kbps
        seconds += needed
        transferred += remaining
        if needed <= most_downtime_seconds * (1 + rules.TOLERANCE):
            # The last round, during which the instance is stopped.
            return MigrationCost(seconds, transferred, needed)
        # The memory that is written during the copy, at most all of it.
        remaining = min(dirty_kbps * needed, memory_mib * KBIT_PER_MIB)
    return MigrationCost(np.inf, np.inf, np.inf)


def added_overload(sums: np.ndarray, alone: np.ndarray, capacity_kbps: float,
                   kbps: float, duration: npt.ArrayLike) -> np.ndarray:
    """Return how much overload a migration adds to a host.

    The load of the host during the migration is assumed to be its recent load.

    :param sums: (t,) recent sums of the host, kbit/s
    :param alone: (t,) bool, slots in which one instance alone exceeded the
        capacity, which are not avoidable
    :param duration: duration of the migration, a number or an array in any
        unit
    :returns: in that unit
    """
    duration = np.asarray(duration, dtype=float)
    if not len(sums):
        return np.zeros(duration.shape)
    comes = (sums + kbps > capacity_kbps) & ~(sums > capacity_kbps) & ~alone
    return comes.mean() * duration
