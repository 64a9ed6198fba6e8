# SPDX-License-Identifier: Apache-2.0
"""Records of claims."""

import dataclasses

from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['CLAIMED', 'ClaimChanges', 'ClaimsSeen', 'HELD_SECONDS',
           'StoredClaim', 'WITHDRAWN']

#: States of a claim. CLAIMED: the instance counts on the host until Nova's
#: record shows the result. WITHDRAWN: Nova has not placed the instance there.
CLAIMED = 'claimed'
WITHDRAWN = 'withdrawn'

#: How long, in seconds, a new worker can still read a claim.
HELD_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class StoredClaim:
    """The latest claim of an instance.

    :ivar instance_uuid: 1 to 36 characters
    :ivar token: identifies this claim; 1 to 36 characters
    :ivar host: host that is claimed
    :ivar source: host that had the instance before, or None
    :ivar law: RateLaw that the instance is claimed with, without guarantee
    :ivar rule: rule that gave the law, as in :class:`.Demand`
    :ivar guaranteed: (egress_kbps, ingress_kbps, kpps) that the ports of the
        instance guarantee, or None if unknown
    :ivar attachments: :class:`.Attachments` of the instance, or None
    :ivar claimed_by: name of the worker for operators
    :ivar state: CLAIMED or WITHDRAWN
    :ivar age_seconds: age of the claim: when it is written, or when it was
        read
    :ivar waited_seconds: how long the request had waited when the claim was
        written
    :ivar conflicts: number of hosts that the request could not claim before
        this host, because the claims of others held the room
    :ivar missed: whether the request did not wait for the store
    :ivar number: number of the write that contains the claim; set by the store
    :ivar claimed_at: time of the claim by the database's clock, seconds UTC;
        set by the store
    """

    instance_uuid: str
    token: str
    host: str
    source: str | None
    law: rate_law.RateLaw
    rule: str
    claimed_by: str
    guaranteed: tuple[float, float, float] | None = None
    attachments: vswitch_attachments.Attachments | None = None
    state: str = CLAIMED
    age_seconds: float = 0.0
    waited_seconds: float = 0.0
    conflicts: int = 0
    missed: bool = False
    number: int | None = None
    claimed_at: float | None = None


@dataclasses.dataclass(frozen=True)
class ClaimsSeen:
    """The last write of claims that a reader has read.

    :ivar store_id: distinguishes stores that were at the same URL
    :ivar number: number of the last write of claims
    :ivar token: distinguishes that write from another one with the same number
    """

    store_id: str
    number: int
    token: str | None = None


@dataclasses.dataclass(eq=False)
class ClaimChanges:
    """The claims that a reader has to apply.

    :ivar seen: :class:`ClaimsSeen` for the next reading
    :ivar complete: True if these are all claims
    :ivar claims: list of :class:`StoredClaim`, the oldest first
    :ivar damaged: {('claim', instance uuid): reason in words} of rows that
        were omitted
    """

    seen: ClaimsSeen
    complete: bool
    claims: list
    damaged: dict = dataclasses.field(default_factory=dict)
