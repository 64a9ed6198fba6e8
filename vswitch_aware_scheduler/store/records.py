# SPDX-License-Identifier: Apache-2.0
"""What the store keeps, as plain values, and how they are packed.

Pure: no database, no clock, no configuration.
"""

import dataclasses
import json
import math

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.traffic import slots as sampled_slots
from vswitch_aware_scheduler.vswitch import tunnels

__all__ = ['ASSUMED', 'Basis', 'CONFIRMED', 'Changes', 'ClaimChanges',
           'ClaimsSeen', 'EXPIRED', 'FLEET_KINDS', 'FORGOTTEN', 'FleetFacts',
           'FormerInstance', 'Generation', 'HostProfile', 'Inventory',
           'Learned', 'MOVED', 'ModelSummary', 'Modeler', 'Placement',
           'Prior', 'ResumePoint', 'StoredClaim', 'StoredModel',
           'StoredTrial', 'TrialOutcome', 'Unmodelled', 'Worker',
           'may_replace', 'pack_attachments', 'pack_law', 'pack_prior',
           'storable', 'unpack_attachments', 'unpack_laws', 'unpack_prior',
           'usable_attachments', 'usable_laws']

#: States of a claim: placed, and no host has reported it yet; reported after
#: a move, which may yet be reverted; on its host for certain; come to
#: nothing; never reported.
ASSUMED = 'assumed'
MOVED = 'moved'
CONFIRMED = 'confirmed'
FORGOTTEN = 'forgotten'
EXPIRED = 'expired'

#: Kinds of facts of the fleet. An aggregate, by its id, has ``name``,
#: ``metadata`` and ``hosts``; a flavor, by its name, its extra specs; a host
#: and an uplink the policy in force, see :mod:`vswitch_aware_scheduler.modeler
#: .fleet`; ``modeler`` of the options those that have to be alike.
FLEET_KINDS = ('aggregate', 'flavor', 'host', 'options', 'uplink')

#: What a claim may become, see reference/claims.rst.
_TRANSITIONS = {
    ASSUMED: {MOVED, CONFIRMED, FORGOTTEN, EXPIRED},
    MOVED: {CONFIRMED, FORGOTTEN},
    CONFIRMED: {FORGOTTEN},
    FORGOTTEN: frozenset(),
    EXPIRED: frozenset(),
}

#: First byte of a packed law. Behind it a row for each state: its probability
#: twice, and three rates. The version before had a probability for each of two
#: regimes there, and reads the same rows.
_LAW_FORMAT = 2
_LAW_COLUMNS = 5
_LAW_ROW_BYTES = 8 * _LAW_COLUMNS

#: How much of the time each of the regimes was of the version before.
_REGIME_SHARES = (0.9, 0.1)

#: Bytes of what stands behind the states of a RateLaw.
_TAIL_BYTES = 8 * traffic_model.LAW_COLUMNS * traffic_model.TAIL_ROWS

#: Laws that are unpacked at a time.
_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Generation:
    """Which state of the store a reader has seen.

    :ivar store_id: tells the store from another one at the same URL
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
class StoredModel:
    """The traffic model of one instance with its provenance.

    :ivar instance_uuid: 1 to 36 characters
    :ivar model: TrafficModel
    :ivar counts: TransitionCounts it was fitted to, or None
    :ivar window_start: start of the first sample, seconds UTC
    :ivar window_end: end of the last one
    :ivar samples: number of samples, fractional once aged
    :ivar refused: :class:`~vswitch_aware_scheduler.traffic.series.Refused`
    :ivar source: where the samples come from, such as 'file'
    :ivar name: of the instance, for people; None when not known
    :ivar updated_at: when it was written, seconds UTC; set by the store
    :ivar format_version: of the model's dictionary; set by the store
    :raises InvalidModel: naming the instance, the value and what was wanted
    """

    instance_uuid: str
    model: traffic_model.TrafficModel
    counts: estimate.TransitionCounts | None = None
    window_start: float = 0.0
    window_end: float = 0.0
    samples: float = 0.0
    refused: series.Refused = series.Refused()
    source: str = 'unknown'
    name: str | None = None
    updated_at: float | None = None
    format_version: int = traffic_model.FORMAT_VERSION

    def __post_init__(self):
        _check_instance(self)
        if not (math.isfinite(self.window_start)
                and math.isfinite(self.window_end)
                and self.window_start <= self.window_end):
            raise exceptions.InvalidModel(
                f'instance {self.instance_uuid}: window is '
                f'{self.window_start}..{self.window_end}, wanted finite '
                f'seconds, the end not before the start')
        if not (math.isfinite(self.samples) and self.samples >= 0):
            raise exceptions.InvalidModel(
                f'instance {self.instance_uuid}: samples is {self.samples}, '
                f'wanted a finite number >= 0')

    @classmethod
    def from_counts(cls, instance_uuid, model, counts, **provenance):
        """Return the record of a fitted model, window taken from the counts.

        :param provenance: ``refused``, ``source`` and ``name``
        """
        return cls(instance_uuid, model, counts,
                   window_start=counts.first_time,
                   window_end=counts.last_time + counts.period_seconds,
                   samples=counts.total_samples, **provenance)


@dataclasses.dataclass(frozen=True, eq=False)
class Unmodelled:
    """What was counted of an instance that has no model yet.

    Its history is too short, or shows no traffic at all. Attributes are those
    of :class:`StoredModel`.

    :raises InvalidModel: naming the instance, the value and what was wanted
    """

    instance_uuid: str
    counts: estimate.TransitionCounts
    refused: series.Refused = series.Refused()
    source: str = 'unknown'
    name: str | None = None

    def __post_init__(self):
        _check_instance(self)


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """Where the reading of an instance's telemetry goes on.

    :ivar modelled: whether the instance has a model
    :ivar last_time: start of its last counted sample, seconds UTC; None when
        its counts are missing or of a format not known here
    :ivar period_seconds: sampling period of its counts, or None likewise
    :ivar mark: changes with its counts: what they begin with; None when they
        are missing
    """

    modelled: bool
    last_time: float | None
    period_seconds: float | None
    mark: bytes | None = dataclasses.field(default=None, compare=False,
                                           repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """What a pass goes on from, in one consistent view.

    :ivar generation: :class:`Generation`
    :ivar points: {instance uuid: :class:`ResumePoint`} of all
    """

    generation: Generation
    points: dict


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """What the store has counted of an instance.

    :ivar modelled: whether the instance has a model
    :ivar counts: TransitionCounts; None when they are missing, damaged or of
        a format not known here
    :ivar refused: :class:`~vswitch_aware_scheduler.traffic.series.Refused`
    :ivar name: of the instance, for people; None when not known
    """

    modelled: bool
    counts: estimate.TransitionCounts | None
    refused: series.Refused
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class ModelSummary:
    """A stored model for a list: provenance and extremes, no states.

    ``mean`` and ``peak`` are tuples of egress_kbps, ingress_kbps, kpps; the
    other attributes are those of :class:`StoredModel`.
    """

    instance_uuid: str
    name: str | None
    mean: tuple
    peak: tuple
    window_start: float
    window_end: float
    samples: float
    refused: series.Refused
    source: str
    updated_at: float


@dataclasses.dataclass(frozen=True)
class HostProfile:
    """Which switch profile a host has, as discovered or calibrated.

    :ivar host: the host's name in nova
    :ivar profile: name of a switch profile, or None: only overrides
    :ivar overrides: numbers of the profile that differ on this host, a
        dictionary that JSON can hold
    :ivar source: who says so, such as 'operator' or 'discovered'
    :ivar updated_at: when it was written, seconds UTC; set by the store
    :raises InvalidProfile: naming the host, the value and what was wanted
    """

    host: str
    profile: str | None
    overrides: dict = dataclasses.field(default_factory=dict)
    source: str = 'unknown'
    updated_at: float | None = None

    def __post_init__(self):
        wrong = exceptions.InvalidProfile
        _check_text(self.host, 255, 'host', self.host, 'its name', wrong)
        _check_text(self.source, 255, 'host', self.host, 'source', wrong)
        if self.profile is not None:
            _check_text(self.profile, 255, 'host', self.host, 'profile',
                        wrong)
        try:
            if not isinstance(self.overrides, dict):
                raise TypeError
            json.dumps(self.overrides, allow_nan=False)
        except (TypeError, ValueError):
            raise wrong(
                f'host {self.host}: overrides are {self.overrides!r}, wanted '
                f'a dictionary that JSON can hold') from None


@dataclasses.dataclass(frozen=True)
class Placement:
    """What Nova tells of an instance.

    :ivar instance_uuid: 1 to 36 characters
    :ivar host: name of the host that it is on, or None
    :ivar flavor: name of its flavor, or None when not known
    :ivar project: id of its project, or None when not known
    :ivar attachments: :class:`.Attachments`, networks in order, or None when
        they are not known
    :raises InvalidModel: naming the instance, the value and what was wanted
    """

    instance_uuid: str
    host: str | None
    flavor: str | None = None
    project: str | None = None
    attachments: tunnels.Attachments | None = None

    def __post_init__(self):
        uuid = self.instance_uuid
        _check_text(uuid, 36, 'instance', uuid, 'its uuid')
        for name in ('host', 'flavor', 'project'):
            if getattr(self, name) is not None:
                _check_text(getattr(self, name), 255, 'instance', uuid, name)

    @property
    def networks(self):
        """Tuple of the networks of its interfaces; empty when not known."""
        return () if self.attachments is None else (
            self.attachments.networks + self.attachments.others)


@dataclasses.dataclass(frozen=True)
class FormerInstance:
    """An instance that Nova had and has deleted since.

    :ivar flavor: name of its flavor, or None when not known
    :ivar project: id of its project, or None when not known
    :ivar removed_at: when its placement was removed, seconds UTC
    """

    flavor: str | None
    project: str | None
    removed_at: float


@dataclasses.dataclass(frozen=True)
class Inventory:
    """How recent the placements are.

    :ivar source: who told them
    :ivar seen_at: they are what was so at that time, seconds UTC
    :ivar complete_at: when all were read last, and not only changes
    :ivar changed_until: changes up to this time by the clock of the source
        are in them, or None
    """

    source: str
    seen_at: float
    complete_at: float
    changed_until: float | None = None


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


@dataclasses.dataclass(frozen=True)
class Prior:
    """What to expect of an instance without a model.

    Of a group: that of a flavor and a project, of one of both, or of all; or
    of one instance with a short history.

    :ivar flavor: name, or None: any
    :ivar project: id, or None: any
    :ivar law: RateLaw; that of a group has no bits
    :ivar members: number of instances of the group that have a law, or of the
        samples of the instance; above 0
    :ivar instance_uuid: None for a group
    :ivar updated_at: when it was written, seconds UTC; set by the store
    :ivar high_shares: of a group, as of :class:`.prior.Expected`
    :raises InvalidModel: naming the group, the value and what was wanted
    """

    flavor: str | None
    project: str | None
    law: traffic_model.RateLaw
    members: float
    instance_uuid: str | None = None
    updated_at: float | None = None
    high_shares: bytes = bytes(sampled_slots.SLOTS)

    def __post_init__(self):
        for name, limit in (('flavor', 255), ('project', 255),
                            ('instance_uuid', 36)):
            if getattr(self, name) is not None:
                _check_text(getattr(self, name), limit, 'prior', self.key,
                            name)
        if not (math.isfinite(self.members) and self.members > 0):
            raise exceptions.InvalidModel(
                f'prior {self.key}: members is {self.members}, wanted a '
                f'finite number > 0')

    @property
    def key(self):
        """(flavor, project) of a group, or the uuid of an instance."""
        return self.instance_uuid or (self.flavor, self.project)


@dataclasses.dataclass(frozen=True)
class StoredTrial:
    """On which imagined hosts instances would be, see :mod:`.feedback`.

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
    law: traffic_model.RateLaw
    stated: bool
    seconds: float
    claimed_by: str
    based_on: int = 0
    number: int | None = None
    claimed_at: float | None = None
    attachments: tunnels.Attachments | None = None


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

    :ivar store_id: tells the store from another one at the same URL
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
    damaged: dict = dataclasses.field(default_factory=dict)

    def laws(self):
        """Yield (instance uuid, RateLaw) of all that are given."""
        end, packed = 0, memoryview(self.packed_laws)
        for first in range(0, len(self.instance_uuids), _CHUNK):
            states = self.states[first:first + _CHUNK]
            start, end = end, end + 8 * traffic_model.LAW_COLUMNS * int(
                states.sum() + traffic_model.TAIL_ROWS * len(states))
            yield from zip(self.instance_uuids[first:first + _CHUNK],
                           traffic_model.split_laws(
                               bytes(packed[start:end]), states))


def _check_instance(record):
    uuid = record.instance_uuid
    _check_text(uuid, 36, 'instance', uuid, 'its uuid')
    _check_text(record.source, 255, 'instance', uuid, 'source')
    if record.name is not None:
        _check_text(record.name, 255, 'instance', uuid, 'name')


def _check_text(value, limit, kind, owner, what,
                wrong=exceptions.InvalidModel):
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise wrong(f'{kind} {owner!r}: {what} is {value!r}, wanted a string '
                    f'of 1 to {limit} characters')


def usable_laws(names, laws, tails, kind, damaged):
    """Return packed laws in one piece, without those that are damaged.

    :param names: n instance uuids or keys
    :param laws: n values of the column law
    :param tails: n values of the column slots
    :param kind: of the names, such as 'model'
    :param damaged: {(kind, name): reason in words}, to which damaged laws are
        added
    :returns: (names, counts, data) of the others, as :func:`unpack_laws`
    """
    try:
        return (names, *unpack_laws(names, laws, tails))
    except (exceptions.StoreError, TypeError, ValueError):
        pass
    usable = []
    for name, law, tail in zip(names, laws, tails):
        try:
            unpack_laws([name], [law], [tail])
            usable.append((name, law, tail))
        except (exceptions.StoreError, TypeError, ValueError) as error:
            damaged[kind, name] = str(error)
    names, laws, tails = zip(*usable) if usable else ((), (), ())
    return (names, *unpack_laws(names, laws, tails))


def usable_attachments(instance_uuid, text, kind, damaged):
    """Return the Attachments that a column has, None where it is damaged.

    Arguments are those of :func:`usable_laws`.
    """
    try:
        return unpack_attachments(instance_uuid, text)
    except (exceptions.StoreError, TypeError, ValueError) as error:
        damaged[kind, instance_uuid] = str(error)
        return None


def storable(text):
    """Return a text for people without what databases refuse.

    That is the character NUL, and halves of surrogate pairs.
    """
    if text is None:
        return None
    return text.replace('\0', '').encode('utf-8', 'replace').decode()


def pack_attachments(attachments):
    """Return Attachments, or None, as JSON."""
    # One without any interface is false, and not unknown.
    return json.dumps(None if attachments is None else attachments.to_data())


def unpack_attachments(instance_uuid, text):
    """Return the Attachments that a column has, or None.

    :param text: of :func:`pack_attachments`, or None where nobody wrote any
    :raises StoreError: on damaged text, naming the instance
    """
    try:
        data = text if text is None else json.loads(text)
        return data if data is None else tunnels.Attachments.from_data(data)
    except ValueError as error:
        raise exceptions.StoreError(
            f'instance {instance_uuid}: its stored networks are damaged: '
            f'{error}') from error


def pack_law(owner):
    """Return the columns of the law of a model, a claim or a prior.

    :returns: {'law': bytes, 'slots': bytes}
    """
    law = owner.law
    rows = np.frombuffer(law[:-_TAIL_BYTES], '<f8').reshape(
        -1, traffic_model.LAW_COLUMNS)
    return {'law': bytes([_LAW_FORMAT]) + np.hstack(
        [rows[:, :1], rows]).tobytes(), 'slots': bytes(law[-_TAIL_BYTES:])}


def pack_prior(prior_of):
    """Return the columns of the law of a :class:`Prior`."""
    columns = pack_law(prior_of)
    if prior_of.instance_uuid is None:
        columns['slots'] = prior_of.high_shares + columns['slots'][-1:]
    return columns


def unpack_prior(law, tail):
    """Return the Expected that a group has.

    :param law: RateLaw that :func:`unpack_laws` gave
    :param tail: value of the column slots, or None
    """
    return prior.Expected(law, bytes(sampled_slots.SLOTS) if tail is None
                          else tail[:sampled_slots.SLOTS])


def _unpack_tails(names, tails, states):
    """Return (n, _TAIL_BYTES) uint8 of what stands behind the states.

    Of a group, whose bits are drawn, there are no bits here.
    """
    packed = []
    for name, tail, count in zip(names, tails, states.tolist()):
        if tail is None:
            tail = bytes(_TAIL_BYTES - 1) + bytes([min(count, 255)])
        elif len(tail) == sampled_slots.SLOTS + 1:
            tail = bytes(_TAIL_BYTES - 1) + tail[-1:]
        if len(tail) != _TAIL_BYTES or not 1 <= tail[-1] <= max(count, 1):
            raise exceptions.StoreError(
                f'instance {name}: the sampled slots of its law are damaged: '
                f'{len(tail)} bytes, the last one '
                f'{tail[-1] if tail else None}; expected {_TAIL_BYTES} or '
                f'{sampled_slots.SLOTS + 1} bytes, and a number of low '
                f'states of 1 to {count}')
        packed.append(tail)
    return np.frombuffer(b''.join(packed), np.uint8).reshape(-1, _TAIL_BYTES)


def unpack_laws(names, laws, tails):
    """Return many packed laws as RateLaws in one piece.

    :param names: n instance uuids or keys, for the message of an error
    :param laws: n values of the column law, see :func:`pack_law`
    :param tails: n values of the column slots, None where a version before
        wrote the law
    :returns: (counts, data): (n,) int64 number of states of each, and the
        RateLaws one after the other, as bytes
    :raises StoreVersionError: on a law of another format
    :raises StoreError: on a damaged one
    """
    head = bytes([_LAW_FORMAT])
    for name, law in zip(names, laws):
        if law[:1] != head:
            raise exceptions.StoreVersionError(
                f'instance {name}: format of its law is '
                f'{law[0] if law else None}, wanted {_LAW_FORMAT}')
    sizes = np.fromiter(map(len, laws), np.int64, len(laws)) - 1
    bad = (sizes % _LAW_ROW_BYTES != 0) | (sizes == 0)
    if not bad.any():
        counts = sizes // _LAW_ROW_BYTES
        rows = np.frombuffer(b''.join([law[1:] for law in laws]),
                             '<f8').reshape(-1, _LAW_COLUMNS)
        wrong = ~(np.isfinite(rows).all(axis=1) & (rows >= 0).all(axis=1)
                  & (rows[:, :2] <= 1).all(axis=1))
        if not wrong.any():
            return counts, _in_one_piece(
                rows, counts, _unpack_tails(names, tails, counts))
        bad = np.add.reduceat(wrong, np.cumsum(counts) - counts) > 0
    raise exceptions.StoreError(
        f'instance {names[int(np.argmax(bad))]}: its law is damaged, wanted '
        f'rows of finite numbers >= 0')


def _in_one_piece(rows, counts, tails):
    """Return RateLaws one after the other.

    :param rows: (states of all, _LAW_COLUMNS)
    :param counts: (n,) states of each
    :param tails: (n, _TAIL_BYTES) uint8
    """
    tail_rows = traffic_model.TAIL_ROWS
    packed = np.empty((len(rows) + tail_rows * counts.size,
                       traffic_model.LAW_COLUMNS), dtype='<f8')
    at = np.arange(len(rows)) + np.repeat(
        tail_rows * np.arange(counts.size), counts)
    # Exactly the number where both regimes have the same.
    packed[at, 0] = np.where(
        rows[:, 0] == rows[:, 1], rows[:, 0], rows[:, :2] @ _REGIME_SHARES)
    packed[at, 1:] = rows[:, 2:]
    ends = np.cumsum(counts + tail_rows)
    packed[ends[:, None] + np.arange(-tail_rows, 0)] = tails.view(
        '<f8').reshape(-1, tail_rows, traffic_model.LAW_COLUMNS)
    return packed.tobytes()
