# SPDX-License-Identifier: Apache-2.0
"""Records of daily trials of limits."""

import dataclasses

__all__ = ['StoredTrial', 'TrialOutcome']


@dataclasses.dataclass(frozen=True)
class StoredTrial:
    """On which imagined hosts instances would be, see :mod:`.limit_feedback`.

    :ivar trial_id: uuid
    :ivar kind: name of the kind of host
    :ivar since: when it was made, whole seconds UTC
    :ivar until: how far it was followed, likewise
    :ivar instances: tuple of n uuids
    :ivar hosts: tuples of n whole numbers, one for each multiple
    """

    trial_id: str
    kind: str
    since: float
    until: float
    instances: tuple
    hosts: tuple


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """What came of trials of a kind of host.

    :ivar kind: its name
    :ivar until: what they were followed to, the latest, seconds UTC
    :ivar days: tuple of (multiple of the limit in percent, days of overload,
        days that were looked at), of all hosts together
    """

    kind: str
    until: float
    days: tuple
