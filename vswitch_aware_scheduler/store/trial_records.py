# SPDX-License-Identifier: Apache-2.0
"""Records of the daily trials of limits."""

import dataclasses

__all__ = ['StoredTrial', 'TrialOutcome']


@dataclasses.dataclass(frozen=True)
class StoredTrial:
    """A placement of instances on simulated hosts, see :mod:`.limit_feedback`.

    :ivar trial_id: uuid
    :ivar kind: name of the kind of host
    :ivar instances: tuple of n uuids
    :ivar since: time of the trial, whole seconds UTC
    :ivar until: end of the evaluated traffic, whole seconds UTC
    :ivar hosts: tuples of n whole numbers, one tuple for each multiple
    """

    trial_id: str
    kind: str
    since: float
    until: float
    instances: tuple
    hosts: tuple


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """The outcome of the trials of a kind of host.

    :ivar kind: name of the kind of host
    :ivar until: latest end of the evaluated traffic, seconds UTC
    :ivar days: tuple of (multiple of the limit in percent, days of overload,
        observed days), sums over all hosts
    """

    kind: str
    until: float
    days: tuple
