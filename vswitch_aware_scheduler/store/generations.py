# SPDX-License-Identifier: Apache-2.0
"""Records of a generation of the store and of the changes since another."""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Basis', 'Changes', 'Generation']

#: Number of laws that are unpacked together.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Generation:
    """The state of the store that a reader has read.

    :ivar store_id: distinguishes stores that were at the same URL
    :ivar number: number of the last write; 0 before the first write
    :ivar published_at: time of that write, seconds UTC; 0 before the first
        write
    :ivar token: distinguishes that write from another write with the same
        number in a restored or failed-over store; None before the first write
    """

    store_id: str
    number: int
    published_at: float
    token: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """The state from which a pass of the modeler continues.

    All parts are read in one consistent view.

    :ivar generation: :class:`Generation`
    :ivar points: {instance uuid: :class:`ResumePoint`} of all instances
    """

    generation: Generation
    points: dict


@dataclasses.dataclass(frozen=True, eq=False)
class Changes:
    """The changes that a reader has to apply to reach ``generation``.

    No instance or host is both removed and changed.

    :ivar generation: :class:`Generation`
    :ivar host_profiles: list of :class:`HostProfile`
    :ivar removed_hosts: list of hosts that have no profile any more
    :ivar debts: {(kind, name): :class:`.budgets.Debt`} of all that are in
        debt; None: as before
    :ivar complete: True if these are all rows; everything that was read before
        is void
    :ivar instance_uuids: list of the uuids of n instances, in any order
    :ivar law_sizes: (n,) int64, number of bytes of the law of each instance
    :ivar packed_laws: the RateLaws one after the other, bytes or a bytearray
    :ivar removed: list of the uuids of instances that have no model any more
    :ivar placements: (list of instance uuids, list of (host, flavor, project,
        :class:`.Attachments` or None, (egress_kbps, ingress_kbps, kpps) that
        its ports guarantee or None)); equal tuples are the same object
    :ivar removed_placements: list of the uuids of instances that no longer
        exist
    :ivar seen_at: time of the placements, seconds UTC, or None
    :ivar priors: {key of :class:`Prior`: RateLaw, or None if removed}
    :ivar damaged: {(kind, name): reason in words} of rows that could not be
        read. Damaged models, hosts and priors are also listed as removed;
        damaged networks count as unknown.
    """

    generation: Generation
    complete: bool
    instance_uuids: list
    law_sizes: np.ndarray
    packed_laws: bytes
    removed: list
    host_profiles: list
    removed_hosts: list
    placements: tuple = ((), ())
    removed_placements: tuple = ()
    seen_at: float | None = None
    priors: dict = dataclasses.field(default_factory=dict)
    debts: dict | None = None
    damaged: dict = dataclasses.field(default_factory=dict)

    def laws(self):
        """Yield (instance uuid, RateLaw) of all changed models."""
        end, packed = 0, memoryview(self.packed_laws)
        for first in range(0, len(self.instance_uuids), _CHUNK):
            sizes = self.law_sizes[first:first + _CHUNK]
            start, end = end, end + int(sizes.sum())
            yield from zip(self.instance_uuids[first:first + _CHUNK],
                           rate_law.split_laws(
                               bytes(packed[start:end]), sizes))
