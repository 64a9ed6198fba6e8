# SPDX-License-Identifier: Apache-2.0
"""What one generation of the store is, and what changed since another."""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Basis', 'Changes', 'Generation']

#: Laws that are unpacked at a time.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Generation:
    """Which state of the store a reader has seen.

    :ivar store_id: distinguishes stores that were at the same URL
    :ivar number: grows by one with every write; 0 before the first
    :ivar published_at: time of that write, seconds UTC; 0 before the first
    :ivar token: tells this write from another one of the same number, which a
        restored or a failed-over store has; None before the first
    """

    store_id: str
    number: int
    published_at: float
    token: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """What a pass goes on from, in one consistent view.

    :ivar generation: :class:`Generation`
    :ivar points: {instance uuid: :class:`ResumePoint`} of all
    """

    generation: Generation
    points: dict


@dataclasses.dataclass(frozen=True, eq=False)
class Changes:
    """What a reader has to apply to be at ``generation``.

    An instance or a host is never both removed and given.

    :ivar generation: :class:`Generation`
    :ivar complete: True: this is everything, what was read before is void
    :ivar instance_uuids: list of n strings, in no order
    :ivar states: (n,) int64, number of states of the law of each
    :ivar packed_laws: their RateLaws one after the other, bytes or a
        bytearray
    :ivar removed: list of instance uuids that have no model any more
    :ivar host_profiles: list of :class:`HostProfile`
    :ivar removed_hosts: list of hosts that have no profile any more
    :ivar placements: (list of instance uuids, list of (host, flavor,
        project, :class:`.Attachments` or None), equal ones the same object)
    :ivar removed_placements: list of uuids of instances that are gone
    :ivar seen_at: what time the placements are of, seconds UTC, or None
    :ivar priors: {key of :class:`Prior`: RateLaw of an instance,
        :class:`.prior.Expected` of a group, or None: it is gone}
    :ivar outcomes: {kind: :class:`TrialOutcome`} of all, also where the rest
        is but changes; None: as before
    :ivar budgets: {(kind, name): balance in days} of all error budgets;
        None: as before
    :ivar damaged: {(kind, name): reason in words} of rows that could not be
        read; those of models, hosts and priors are given as removed, the
        networks of placements as not known
    """

    generation: Generation
    complete: bool
    instance_uuids: list
    states: np.ndarray
    packed_laws: bytes
    removed: list
    host_profiles: list
    removed_hosts: list
    placements: tuple = ((), ())
    removed_placements: tuple = ()
    seen_at: float | None = None
    priors: dict = dataclasses.field(default_factory=dict)
    outcomes: dict | None = None
    budgets: dict | None = None
    damaged: dict = dataclasses.field(default_factory=dict)

    def laws(self):
        """Yield (instance uuid, RateLaw) of all that are given."""
        end, packed = 0, memoryview(self.packed_laws)
        for first in range(0, len(self.instance_uuids), _CHUNK):
            states = self.states[first:first + _CHUNK]
            start, end = end, end + 8 * rate_law.LAW_COLUMNS * int(
                states.sum() + rate_law.TAIL_ROWS * len(states))
            yield from zip(self.instance_uuids[first:first + _CHUNK],
                           rate_law.split_laws(
                               bytes(packed[start:end]), states))
