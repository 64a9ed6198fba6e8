# SPDX-License-Identifier: Apache-2.0
"""Nova's record of some days: where instances were, and what Nova decided.

Nova keeps the host of an instance and its migrations. From both follow the
earlier hosts. A migration counts from its request on.
"""

from collections.abc import Callable
import dataclasses
import typing

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import plain_text

__all__ = ['BOOT', 'Event', 'Record', 'RecordedInstance', 'read']

BOOT = 'boot'

#: Statuses of a migration that has moved its instance.
_MOVED = frozenset({'completed', 'confirmed', 'confirming', 'done',
                    'finished'})


@dataclasses.dataclass(frozen=True)
class RecordedInstance:
    """An instance that was on a surveyed host.

    :ivar vcpus: of its present flavor, as ``memory_mib``
    :ivar host: its present host, or None
    """

    uuid: str
    name: str | None
    project: str | None
    flavor: str | None
    vcpus: int
    memory_mib: int
    host: str | None


class Event(typing.NamedTuple):
    """A change of an instance.

    :ivar time: seconds UTC
    :ivar host: surveyed host from now on, or None
    :ivar source: surveyed host until now, or None
    :ivar kind: :data:`BOOT` or the type of a migration if Nova's scheduler
        decided on it, else None
    :ivar running: False if the instance is stopped, or None
    """

    time: float
    instance: RecordedInstance
    host: str | None
    source: str | None = None
    kind: str | None = None
    running: bool | None = None


@dataclasses.dataclass(frozen=True)
class Record:
    """The record of some days.

    :ivar instances: {uuid: RecordedInstance}
    :ivar events: list of Event, in order of time; the first ones are those
        before the days
    :ivar unanswered: number of instances in a cell that does not answer
    :ivar problems: what could not be read, in words
    """

    instances: dict
    events: list
    unanswered: int = 0
    problems: tuple = ()


def read(access: http.Access, since: float, hosts: set,
         progress: Callable | None = None, **sleep) -> Record:
    """Return the :class:`Record` of some hosts since a given time.

    Two lists of instances (all, and those deleted since) and one of migrations
    are read, page by page. Only what concerns the hosts is kept.

    :param access: Access of Nova
    :param progress: callable(number of instances read)
    :raises TelemetryError: if Nova does not answer
    :raises Refusal: if this user may not read the instances of all projects
    """
    moves, problems = {}, []
    try:
        for move in reversed(nova.CloudApi(
                access, None, **sleep).migrations(since)):
            if move.status in _MOVED and move.destination is not None \
                    and move.source != move.destination:
                moves.setdefault(move.instance_uuid, []).append(move)
    except http.Refusal as refusal:
        if refusal.status != 403:
            raise
        problems.append('this user may not read migrations in Nova: moves '
                        'are not judged, and instances count on their '
                        'present host')
    instances, events, seen, unanswered = {}, [], 0, 0
    with nova.NovaClient(access, **sleep) as client:
        for query in ({}, {'deleted': 'True', 'changes-since':
                           plain_text.iso_time(since)}):
            for page in client.servers(query):
                for server in page:
                    if server.status == nova.UNKNOWN:
                        unanswered += 1
                        continue
                    instance, its_events = _history(
                        server, moves.get(server.uuid, ()), since, hosts)
                    if its_events and server.uuid not in instances:
                        instances[server.uuid] = instance
                        events += its_events
                seen += len(page)
                if progress is not None:
                    progress(seen)
    events.sort(key=lambda event: event.time)
    return Record(instances, events, unanswered, tuple(problems))


def _history(server, moves, since, hosts):
    """Return (RecordedInstance, its Events), no event if on no host.

    :param moves: list of its NovaMigration, the oldest first
    """
    def surveyed(host):
        return host if host in hosts else None

    deleted = server.status == nova.DELETED
    instance = RecordedInstance(
        server.uuid, server.name, server.project, server.flavor,
        server.vcpus, server.memory_mib,
        None if deleted else surveyed(server.host))
    places = [(server.created_at or since, BOOT, moves[0].source if moves
               else server.host)]
    places += [(move.began_at, move.kind, move.destination) for move in moves]
    events, host = [], None
    for time, kind, place in places:
        source, host = host, surveyed(place)
        events.append(Event(time, instance, host, source, kind))
    if not any(event.host for event in events):
        return instance, []
    last = max(server.changed_at or since, events[-1].time)
    if deleted:
        events.append(Event(min(server.ended_at or last, last), instance,
                            None, host))
    elif server.running is False and host is not None:
        events.append(Event(last, instance, host, host, running=False))
    return instance, events
