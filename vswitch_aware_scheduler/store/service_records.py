# SPDX-License-Identifier: Apache-2.0
"""Records of modelers, workers and the fleet."""

import dataclasses

__all__ = ['FLEET_KINDS', 'FleetFacts', 'Modeler', 'Worker']

#: Kinds of facts of the fleet. 'aggregate', by id: ``name``, ``metadata`` and
#: ``hosts``. 'flavor', by name: its extra specs. 'host' and 'uplink': the
#: policy in force; that of a host has more, see
#: :mod:`vswitch_aware_scheduler.fleet.facts`. 'node': only the time at which
#: the compute nodes in the facts of hosts were read. 'options', by service:
#: the options that have to be the same everywhere.
FLEET_KINDS = ('aggregate', 'flavor', 'host', 'node', 'options', 'uplink')


@dataclasses.dataclass(frozen=True)
class Modeler:
    """The heartbeat of one modeler process.

    :ivar host: name of its machine
    :ivar waiting_for: what the modeler waits for, in words, or None
    :ivar name: unique name of the process
    :ivar started_at: seconds UTC by the modeler's clock, as all times here
    :ivar seen_at: time of the heartbeat
    :ivar ended: whether the process has ended normally
    :ivar interval_seconds: seconds from the start of a pass to the start of
        the next; None if the process made a single pass
    :ivar passes: number of successful passes
    :ivar passed_at: end of the last successful pass, or None
    :ivar outcome: result of the last successful pass in words, or None
    :ivar waiting_since: when the modeler started to wait, or None
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
    """Facts of one kind that the modeler has read about the fleet.

    :ivar facts: {name: dictionary}, see :data:`FLEET_KINDS`
    :ivar read_at: time of the last reading of all facts, seconds UTC; None:
        never
    """

    facts: dict
    read_at: float | None = None


@dataclasses.dataclass(frozen=True)
class Worker:
    """The state of one worker process of a scheduler.

    :ivar host: name of its machine
    :ivar name: unique name of the process
    :ivar started_at: seconds UTC by the worker's clock, as all times here
    :ivar seen_at: time of the report
    :ivar state: dictionary that JSON can represent
    """

    name: str
    host: str
    started_at: float
    seen_at: float
    state: dict
