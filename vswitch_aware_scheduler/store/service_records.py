# SPDX-License-Identifier: Apache-2.0
"""Records that modelers and workers write of themselves and of hosts."""

import dataclasses

__all__ = ['FLEET_KINDS', 'FleetFacts', 'Modeler', 'Worker']

#: Kinds of facts of the fleet. An aggregate, by its id, has ``name``,
#: ``metadata`` and ``hosts``; a flavor, by its name, its extra specs; a host
#: and an uplink the policy in force, see :mod:`vswitch_aware_scheduler.modeler
#: .fleet`; ``modeler`` of the options those that have to be alike.
FLEET_KINDS = ('aggregate', 'flavor', 'host', 'options', 'uplink')


@dataclasses.dataclass(frozen=True)
class Modeler:
    """The heartbeat of one modeler process.

    :ivar name: of the process; no two have the same
    :ivar host: name of its machine
    :ivar started_at: seconds UTC, as all times here, by the modeler's clock
    :ivar seen_at: when the heartbeat was written
    :ivar ended: whether the process has ended in order
    :ivar interval_seconds: from the start of a pass to that of the next;
        None: the process made a single pass
    :ivar passes: number of passes that succeeded
    :ivar passed_at: when the last of them ended, or None
    :ivar outcome: what the last of them did, in words, or None
    :ivar waiting_for: what the modeler waits for, in words, or None
    :ivar waiting_since: since when, or None
    """

    name: str
    host: str
    started_at: float
    seen_at: float
    ended: bool = False
    interval_seconds: float | None = None
    passes: int = 0
    passed_at: float | None = None
    outcome: str | None = None
    waiting_for: str | None = None
    waiting_since: float | None = None


@dataclasses.dataclass(frozen=True)
class FleetFacts:
    """What the modeler knows of the fleet, of one kind.

    :ivar facts: {name: dictionary}, see :data:`FLEET_KINDS`
    :ivar read_at: when all of them were read, seconds UTC; None: never
    """

    facts: dict
    read_at: float | None = None


@dataclasses.dataclass(frozen=True)
class Worker:
    """The state of one worker process of a scheduler.

    :ivar name: of the process; no two have the same
    :ivar host: name of its machine
    :ivar started_at: seconds UTC, as all times here, by the worker's clock
    :ivar seen_at: when the state was written
    :ivar state: dictionary that JSON can hold
    """

    name: str
    host: str
    started_at: float
    seen_at: float
    state: dict
