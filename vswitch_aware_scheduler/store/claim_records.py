# SPDX-License-Identifier: Apache-2.0
"""Records of claims, and which state may replace which."""

import dataclasses

from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['ASSUMED', 'CONFIRMED', 'ClaimChanges', 'ClaimsSeen', 'EXPIRED',
           'FORGOTTEN', 'MOVED', 'StoredClaim', 'may_replace']

#: States of a claim: placed, and no host has reported it yet; reported after
#: a move, which may yet be reverted; on its host for certain; come to
#: nothing; never reported.
ASSUMED = 'assumed'
MOVED = 'moved'
CONFIRMED = 'confirmed'
FORGOTTEN = 'forgotten'
EXPIRED = 'expired'

#: What a claim may become, see reference/claims.rst.
_TRANSITIONS = {
    ASSUMED: {MOVED, CONFIRMED, FORGOTTEN, EXPIRED},
    MOVED: {CONFIRMED, FORGOTTEN},
    CONFIRMED: {FORGOTTEN},
    FORGOTTEN: frozenset(),
    EXPIRED: frozenset(),
}


@dataclasses.dataclass(frozen=True)
class StoredClaim:
    """The newest word of the schedulers on an instance.

    :ivar instance_uuid: 1 to 36 characters
    :ivar token: tells this placement from others of the same instance: its
        author and, after a hyphen, which one of the author's it is
    :ivar state: one of the states above
    :ivar host: where it counts, None: nowhere
    :ivar source: host that it was on before this placement, or None
    :ivar law: RateLaw that it counts with
    :ivar stated: whether that is what it was said to demand, and no default
    :ivar seconds: how long it holds from now on, > 0 unless it is over
    :ivar claimed_by: who says so, for people
    :ivar based_on: of a placement: number of the last write that was known
        when it was made, later ones on the same instance are newer
    :ivar number: of the write that it was in; set by the store
    :ivar claimed_at: time of that write by the database's clock, seconds
        UTC; set by the store
    :ivar attachments: :class:`.Attachments` that it was placed with, or None
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


def may_replace(claim, known):
    """Return whether a StoredClaim is a newer word than the one known.

    A placement always is, unless there is another one that its author cannot
    have known of: not from the store, and not from where the instance was.
    Anything else has to be about the same placement.

    :param known: StoredClaim, or None
    """
    if known is None:
        return claim.state == ASSUMED
    if claim.token == known.token:
        return claim.state in _TRANSITIONS[known.state]
    if claim.state != ASSUMED:
        return False
    (author, serial), (other, earlier) = (
        one.token.rsplit('-', 1) for one in (claim, known))
    if author == other:
        return int(serial) > int(earlier)
    return known.state != ASSUMED or known.number <= claim.based_on \
        or known.host == claim.source


@dataclasses.dataclass(frozen=True)
class ClaimsSeen:
    """Which claims a reader has seen.

    :ivar store_id: distinguishes stores that were at the same URL
    :ivar number: of the last write of claims
    :ivar token: tells that write from another one of the same number
    """

    store_id: str
    number: int
    token: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class ClaimChanges:
    """What a reader of claims has to take in.

    :ivar seen: :class:`ClaimsSeen` to go on from
    :ivar complete: True: these are all, and what is not among them is over
    :ivar claims: list of :class:`StoredClaim`, oldest word first
    :ivar damaged: {('claim', instance uuid): reason in words} of rows that
        are left out
    """

    seen: ClaimsSeen
    complete: bool
    claims: list
    damaged: dict = dataclasses.field(default_factory=dict)
