# SPDX-License-Identifier: Apache-2.0
"""Records of claims, and the permitted changes of their state."""

import dataclasses

from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['ASSUMED', 'CONFIRMED', 'ClaimChanges', 'ClaimsSeen', 'EXPIRED',
           'FORGOTTEN', 'MOVED', 'StoredClaim', 'may_replace']

#: States of a claim. ASSUMED: placed, but no host has reported the instance
#: yet. MOVED: reported after a move that may still be reverted. CONFIRMED:
#: certainly on its host. FORGOTTEN: withdrawn. EXPIRED: never reported.
ASSUMED = 'assumed'
MOVED = 'moved'
CONFIRMED = 'confirmed'
FORGOTTEN = 'forgotten'
EXPIRED = 'expired'

#: Permitted next states of a claim, see reference/claims.rst.
_TRANSITIONS = {
    ASSUMED: {MOVED, CONFIRMED, FORGOTTEN, EXPIRED},
    MOVED: {CONFIRMED, FORGOTTEN},
    CONFIRMED: {FORGOTTEN},
    FORGOTTEN: frozenset(),
    EXPIRED: frozenset(),
}


@dataclasses.dataclass(frozen=True)
class StoredClaim:
    """The latest claim of an instance that a scheduler has written.

    :ivar instance_uuid: 1 to 36 characters
    :ivar state: ASSUMED, MOVED, CONFIRMED, FORGOTTEN or EXPIRED
    :ivar claimed_at: time of the write by the database's clock, seconds
        UTC; set by the store
    :ivar token: identifies this placement of the instance: its author, a
        hyphen and a serial number of the author
    :ivar host: host where the instance counts, or None
    :ivar source: host that had the instance before this placement, or None
    :ivar law: RateLaw of the instance in this claim
    :ivar stated: whether the law comes from a model, prior or flavor; False:
        from the default
    :ivar seconds: time in seconds until the claim expires; > 0 in the
        states ASSUMED and MOVED
    :ivar claimed_by: name of the author for operators
    :ivar based_on: for a placement: number of the last write that its author
        had read; later writes about the same instance are newer
    :ivar number: number of the write that contains the claim; set by the store
    :ivar attachments: :class:`.Attachments` of the instance at the placement,
        or None
    """

    instance_uuid: str
    token: str
    state: str
    host: str | None
    source: str | None
    law: rate_law.RateLaw
    stated: bool
    seconds: float
    claimed_by: str
    based_on: int = 0
    number: int | None = None
    claimed_at: float | None = None
    attachments: vswitch_attachments.Attachments | None = None


def may_replace(claim, stored):
    """Return whether a StoredClaim may replace the stored one.

    A placement replaces another one, unless its author cannot have seen the
    other one: neither in the store nor by the previous host of the instance.
    Any other claim must belong to the same placement.

    :param claim: new StoredClaim
    :param stored: StoredClaim of the same instance, or None
    """
    if stored is None:
        return claim.state == ASSUMED
    if claim.token == stored.token:
        return claim.state in _TRANSITIONS.get(stored.state, ())
    if claim.state != ASSUMED:
        return False
    (author, _, serial), (other, _, earlier) = (
        compared.token.rpartition('-') for compared in (claim, stored))
    if author == other:
        return int(serial) > int(earlier)
    return stored.state != ASSUMED or stored.number <= claim.based_on \
        or stored.host == claim.source


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


@dataclasses.dataclass(frozen=True, eq=False)
class ClaimChanges:
    """The claims that a reader has to apply.

    :ivar seen: :class:`ClaimsSeen` for the next reading
    :ivar complete: True if these are all claims; any other claim is over
    :ivar claims: list of :class:`StoredClaim`, the oldest first
    :ivar damaged: {('claim', instance uuid): reason in words} of rows that
        were omitted
    """

    seen: ClaimsSeen
    complete: bool
    claims: list
    damaged: dict = dataclasses.field(default_factory=dict)
