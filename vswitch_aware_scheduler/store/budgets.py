# SPDX-License-Identifier: Apache-2.0
"""Records of error budgets, and their rows on a connection.

The records have measurements of hosts and uplinks by the modelers, the
resulting budgets, and the hosts of instances over time. Writing these records
does not create a generation.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import math

import numpy as np
import sqlalchemy as sa

from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['BudgetState', 'CONTRADICTED', 'ErrorBudget', 'FRESH_SECONDS',
           'HOST', 'KEPT_DAYS', 'Prediction', 'RECOVERY_SECONDS', 'Share',
           'Stay', 'StoredSums', 'UPLINK', 'accepting']

#: Kinds of budgets.
HOST, UPLINK = 'host', 'uplink'

#: An error budget is outdated if its last settled period ended longer ago than
#: this number of seconds. Periods wait one hour for late samples.
FRESH_SECONDS = 7200.0

#: Number of days for which sums, and budgets of removed hosts, are kept.
KEPT_DAYS = 7

#: Seconds for which a stay is kept after its end.
STAY_SECONDS = 2 * 86400.0

_DAY_SECONDS = 86400.0

#: A host in debt accepts instances by its burn rate in this window: seconds.
RECOVERY_SECONDS = 3 * 86400

#: A prediction is contradicted from this number of standard deviations on.
CONTRADICTED = 3.0

#: Numbers of instances take two bytes.
_MOST_COUNTED = 2 ** 16 - 1


@dataclasses.dataclass(frozen=True)
class Stay:
    """The host of an instance from a given time on.

    :ivar since: seconds UTC
    :ivar host: name of the host, or None if the instance is on no host
    :ivar running: whether the instance runs, or None if unknown
    """

    since: float
    host: str | None
    running: bool | None = None


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The predicted overload of a host, compared with the measured overload.

    The sums are those of the times in which a prediction was in force. Earlier
    times have a lower weight.

    :ivar share: predicted share of overload; None: no prediction is in force
    :ivar since: start of the prediction, seconds UTC
    :ivar residents: number that changes with the instances on the host
    :ivar seconds: measured time
    :ivar expected_seconds: predicted overload in this time
    :ivar overload_seconds: measured overload in this time
    :ivar blocks: number of independent parts of this time
    :ivar deviations: difference in standard deviations, above 0 if more
        overload was measured than predicted
    """

    share: float | None = None
    since: float = 0.0
    residents: int = 0
    seconds: float = 0.0
    expected_seconds: float = 0.0
    overload_seconds: float = 0.0
    blocks: float = 0.0
    deviations: float = 0.0

    @property
    def contradicted(self):
        """Whether the difference is not due to chance."""
        return abs(self.deviations) >= CONTRADICTED

    def __str__(self):
        expected = self.expected_seconds / max(self.seconds, 1.0)
        return (f'predicted {expected:.3g}, measured '
                f'{self.overload_seconds:.0f} of {self.seconds:.0f} s')


@dataclasses.dataclass(frozen=True)
class ErrorBudget:
    """The budget of a host or an uplink, see :mod:`..rebalance.budget`.

    :ivar kind: HOST or UPLINK
    :ivar name: name of the host or the uplink
    :ivar overload_probability: requested limit
    :ivar earned_share: share of the limit that is earned for each second in
        use
    :ivar first_days: the initial budget is what is earned in this many days
    :ivar most_days: the largest budget is what is earned in this many days
    :ivar limits: text that identifies the profile and its capacities; a change
        starts a new budget
    :ivar since: start of the budget, seconds UTC
    :ivar why: why the budget started, a sentence; None: there was none before
    :ivar until: end of the settled periods, seconds UTC
    :ivar balance: remaining seconds of overload, negative for debt
    :ivar measured_seconds: time in use and measured since the start
    :ivar overload_seconds: avoidable overload since the start
    :ivar unknown_seconds: time in use but unknown since the start
    :ivar unknown_why: why the last unknown period is unknown, or None
    :ivar burn: {length of a window in seconds, as text: share of overload in
        it, divided by the limit}
    :ivar prediction: :class:`Prediction` of a host
    """

    kind: str
    name: str
    overload_probability: float
    earned_share: float
    first_days: float
    most_days: float
    limits: str
    since: float
    why: str | None
    until: float
    balance: float
    measured_seconds: float = 0.0
    overload_seconds: float = 0.0
    unknown_seconds: float = 0.0
    unknown_why: str | None = None
    burn: dict = dataclasses.field(default_factory=dict)
    prediction: Prediction = Prediction()

    @property
    def key(self):
        """The pair (kind, name)."""
        return self.kind, self.name

    @property
    def rate(self):
        """Seconds of overload that are earned in one second of use."""
        return self.earned_share * self.overload_probability

    @property
    def day(self):
        """Seconds of overload that are earned in one day of use."""
        return self.rate * _DAY_SECONDS

    @property
    def days(self):
        """Balance as the number of days in which it is earned."""
        return self.balance / self.day

    @property
    def most(self):
        """Largest balance in seconds of overload."""
        return self.day * self.most_days

    @property
    def left(self):
        """Share of the largest balance, negative for debt."""
        return self.balance / self.most

    @property
    def in_debt(self):
        """Whether more was spent than earned."""
        return self.balance < 0

    @property
    def accepts(self):
        """Whether new instances are accepted, see :func:`accepting`."""
        return accepting(self.balance, self.burn, self.earned_share)


def accepting(balance, burn, earned_share):
    """Return whether a host or an uplink accepts new instances.

    If it is in debt, it accepts them only if it has spent at most what it has
    earned in the last :data:`RECOVERY_SECONDS`.

    :param balance: remaining seconds of overload, negative for debt
    :param burn: burn rates, as in :class:`ErrorBudget`
    :param earned_share: as in :class:`ErrorBudget`
    """
    return balance >= 0 or burn.get(
        str(RECOVERY_SECONDS), math.inf) <= earned_share


@dataclasses.dataclass(frozen=True, eq=False)
class Share:
    """The sums of some instances of a host or an uplink, slot by slot.

    :ivar modeler: name of the modeler that measured them
    :ivar kind: HOST or UPLINK
    :ivar period_seconds: length of a slot
    :ivar name: name of the host or the uplink
    :ivar limits: as in :class:`ErrorBudget`
    :ivar first_slot: number of the first slot, which starts this many periods
        after 1970
    :ivar members: (t,) uint64, sum of the marks of the included instances,
        modulo 2**64
    :ivar counted: (t,) int, number of these instances
    :ivar sums: (l, t) sums of these instances, for each of l limits
    :ivar peaks: (l, t) the largest single instance
    :ivar lost: (t,) int, number of instances whose samples of this time are
        missing and will not come, None: 0
    """

    modeler: str
    kind: str
    name: str
    limits: str
    period_seconds: float
    first_slot: int
    members: np.ndarray
    counted: np.ndarray
    sums: np.ndarray
    peaks: np.ndarray
    lost: np.ndarray | None = None

    def to_bytes(self):
        """Return the arrays as bytes.

        Each slot takes 12 bytes, plus 16 bytes for each limit.
        """
        return b''.join([
            np.asarray(self.members, '<u8').tobytes(),
            np.asarray(_packed(self.counted)
                       + (_packed(self.lost) << 16), '<u4').tobytes(),
            np.asarray(self.sums, '<f8').tobytes(),
            np.asarray(self.peaks, '<f8').tobytes()])

    @classmethod
    def from_row(cls, row):
        """Return the Share of a row.

        :param row: row of the table ``budget_share``
        :raises ValueError: if its data are damaged
        """
        data = bytes(row.data)
        count = _count_limits(row.limits)
        slots, excess = divmod(len(data), 12 + 16 * count)
        if excess or not slots or not 0 < row.period_seconds < math.inf:
            raise ValueError(
                f'{len(data)} bytes; expected a multiple of '
                f'{12 + 16 * count}')
        numbers = np.frombuffer(data, '<f8', offset=12 * slots).reshape(
            2, count, slots)
        if not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise ValueError('a sum is not a finite number of 0 or more')
        counts = np.frombuffer(data, '<u4', slots, 8 * slots).astype(int)
        return cls(row.modeler, row.kind, row.name, row.limits,
                   row.period_seconds, row.first_slot,
                   np.frombuffer(data, '<u8', slots), counts & _MOST_COUNTED,
                   *numbers, lost=counts >> 16)


def _packed(counts):
    return np.minimum(0 if counts is None else counts, _MOST_COUNTED)


@dataclasses.dataclass(frozen=True)
class StoredSums:
    """The sums of a host or an uplink on one day, with one period.

    If the period changes, a day has several records. Each time is known in
    one of them at most.

    :ivar kind: HOST or UPLINK
    :ivar period_seconds: length of a slot
    :ivar limits: tuple of (weights, packet bytes, capacity)
    :ivar name: name of the host or the uplink
    :ivar day: number of days since 1970
    :ivar data: bytes for all limits, as :mod:`..rebalance.packed` creates them
    """

    kind: str
    name: str
    day: int
    period_seconds: float
    limits: tuple
    data: bytes


@dataclasses.dataclass(frozen=True)
class BudgetState:
    """The common state of all budgets.

    :ivar period_seconds: length of a period
    :ivar stays_until: stays are complete up to this time, seconds UTC
    """

    period_seconds: float
    stays_until: float


def read(connection, damaged):
    """Return {(kind, name): :class:`ErrorBudget`}.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    budgets = {}
    for row in connection.execute(sa.select(tables.error_budget)):
        budget = damage.usable(
            damaged, 'error budget', (row.kind, row.name),
            functools.partial(_of_row, row))
        if budget is not None:
            budgets[row.kind, row.name] = budget
    return budgets


def _of_row(row):
    budget = damage.checked(ErrorBudget(**{
        **row._mapping, 'burn': _burn_of(row.burn),
        'prediction': damage.checked(Prediction(
            **damage.decode(row.prediction or '{}', dict)))}))
    _count_limits(budget.limits)
    if not (0 < budget.overload_probability < 1
            and 0 < budget.earned_share <= 1 and budget.most_days > 0):
        raise damage.Damaged('a number is out of range')
    return budget


def _count_limits(text):
    """Return the number of limits in the text that identifies them."""
    name, limits = damage.decode(text, list)
    for weights, _, capacity in limits:
        if not all(map(damage.is_number, [*weights, capacity])):
            raise damage.Damaged(f'limits of profile {name}')
    return len(limits)


def _burn_of(text):
    return {str(int(window)): float(rate) for window, rate
            in damage.decode(text, {str: float}).items()}


def read_days(connection, now):
    """Return the error budgets for schedulers.

    :param connection: SQLAlchemy Connection within a transaction
    :param now: seconds UTC; budgets not settled for a day are omitted
    :returns: {(kind, name): balance in days}. A balance is negative if no new
        instances are accepted. A host or an uplink that accepts some while it
        is in debt has the balance 0.
    """
    table = tables.error_budget.c
    budgets = {}
    for kind, name, *numbers, burn in connection.execute(
            sa.select(table.kind, table.name, table.balance,
                      table.earned_share, table.overload_probability,
                      table.burn).where(table.until >= now - _DAY_SECONDS)):
        balance, share, limit = numbers
        if not all(map(damage.is_number, numbers)) or not share * limit > 0:
            continue
        if balance < 0:
            with contextlib.suppress(ValueError):
                if accepting(balance, _burn_of(burn), share):
                    balance = 0.0
        budgets[kind, name] = balance / (_DAY_SECONDS * share * limit)
    return budgets


def to_row(budget):
    """Return an :class:`ErrorBudget` as a row.

    :param budget: ErrorBudget
    """
    row = dataclasses.asdict(budget)
    return {**row, **{name: json.dumps(row[name], sort_keys=True,
                                       allow_nan=False)
                      for name in ('burn', 'prediction')}}


def read_shares(connection, damaged):
    """Return a list of :class:`Share`, the newest first.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table = tables.budget_share
    shares = []
    for row in connection.execute(sa.select(table).order_by(
            table.c.written_at.desc(), table.c.modeler)):
        share = damage.usable(
            damaged, 'share', (row.modeler, row.kind, row.name),
            functools.partial(Share.from_row, row))
        if share is not None:
            shares.append(share)
    return shares


def share_row(share, written_at):
    """Return a :class:`Share` as a row.

    :param share: Share
    :param written_at: time of the write, seconds UTC
    """
    return {'modeler': share.modeler, 'kind': share.kind, 'name': share.name,
            'limits': share.limits, 'period_seconds': share.period_seconds,
            'first_slot': share.first_slot, 'data': share.to_bytes(),
            'written_at': written_at}


def read_sums(connection, kind, names, first_day, damaged):
    """Return a list of :class:`StoredSums`, sorted by name and day.

    :param connection: SQLAlchemy Connection within a transaction
    :param kind: HOST or UPLINK
    :param names: collection of names, or None for all
    :param first_day: first day, in days since 1970
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table = tables.sum_history
    query = sa.select(table).where(
        (table.c.kind == kind) & (table.c.day >= first_day)).order_by(
            table.c.name, table.c.day, table.c.period_seconds)
    sums = []
    for row in connection.execute(query):
        if names is not None and row.name not in names:
            continue
        day_sums = damage.usable(damaged, 'sums', (row.kind, row.name),
                                 functools.partial(_sums, row))
        if day_sums is not None:
            sums.append(day_sums)
    return sums


def _sums(row):
    limits = tuple(
        (tuple(map(float, weights)), float(packet_bytes), float(capacity))
        for weights, packet_bytes, capacity
        in damage.decode(row.limits, list))
    if not 0 < row.period_seconds < math.inf:
        raise damage.Damaged(f'period of {row.period_seconds} s')
    return damage.checked(StoredSums(
        row.kind, row.name, row.day, row.period_seconds, limits,
        bytes(row.data)))


def sums_row(sums):
    """Return :class:`StoredSums` as a row.

    :param sums: StoredSums
    """
    return {**dataclasses.asdict(sums), 'limits': json.dumps(sums.limits)}


def read_state(connection):
    """Return the :class:`BudgetState`, or None.

    :param connection: SQLAlchemy Connection within a transaction
    """
    table = tables.budget_state.c
    row = connection.execute(sa.select(
        table.period_seconds, table.stays_until)).first()
    return row and BudgetState(*row)


def read_stays(connection, since):
    """Return {instance uuid: [:class:`Stay`]}, the oldest first.

    :param connection: SQLAlchemy Connection within a transaction
    :param since: stays that ended before this time (seconds UTC) are omitted
    """
    table = tables.stay.c
    stays_by_instance = collections.defaultdict(list)
    for uuid, *stay in connection.execute(sa.select(
            table.instance_uuid, table.since, table.host,
            table.running).order_by(table.instance_uuid, table.since)):
        stays = stays_by_instance[uuid]
        if stays and stay[0] <= since:
            stays.clear()
        stays.append(Stay(*stay))
    return dict(stays_by_instance)


def follow(connection, placements, removed_uuids, now, left_out):
    """Write the stays that result from new placements.

    :param connection: SQLAlchemy Connection within a transaction
    :param placements: list of :class:`.InstanceRecord`
    :param removed_uuids: uuids of instances that Nova no longer has
    :param now: current time, seconds UTC
    :param left_out: as in :func:`.sql.upsert`
    """
    table = tables.stay
    records = {record.instance_uuid: record for record in placements}
    latest = {}
    for chunk in sql.key_chunks(list(dict.fromkeys(
            itertools.chain(records, removed_uuids)))):
        for uuid, *stay in connection.execute(sa.select(
                table.c.instance_uuid, table.c.since, table.c.host,
                table.c.running).where(
                    table.c.instance_uuid.in_(chunk)).order_by(
                        table.c.since)):
            latest[uuid] = Stay(*stay)
    rows = []
    for uuid in itertools.chain(records, removed_uuids):
        record, before = records.get(uuid), latest.get(uuid)
        host, running = (None, None) if record is None else (
            record.host, record.running)
        if before is None:
            if record is None:
                continue
            since = record.began_at
        elif (before.host, before.running) == (host, running):
            continue
        else:
            since = record and record.changed_at
        since = now if since is None else min(since, now)
        if before is not None:
            # The stays of an instance never overlap, even if clocks differ.
            since = max(since, before.since + 1e-3)
        rows.append({'instance_uuid': uuid, 'since': since, 'host': host,
                     'running': running})
    sql.upsert(connection, table, rows, left_out)


def forget_stays(connection, now):
    """Remove the stays that ended long ago.

    :param connection: SQLAlchemy Connection within a transaction
    :param now: current time, seconds UTC
    """
    table = tables.stay
    later = table.alias()
    oldest = now - STAY_SECONDS
    sql.delete_where(
        connection, table, table.c.since < oldest,
        sa.or_(table.c.host.is_(None), sa.exists().where(
            later.c.instance_uuid == table.c.instance_uuid,
            later.c.since > table.c.since, later.c.since < oldest)))


def forget_shares(connection, modeler, keys_to_keep):
    """Remove the shares of a modeler, except those to keep.

    :param connection: SQLAlchemy Connection within a transaction
    :param modeler: name of the modeler
    :param keys_to_keep: set of (kind, name) of the shares to keep
    """
    table = tables.budget_share
    for kind, name in connection.execute(
            sa.select(table.c.kind, table.c.name).where(
                table.c.modeler == modeler)).all():
        if (kind, name) not in keys_to_keep:
            connection.execute(sa.delete(table).where(
                table.c.modeler == modeler, table.c.kind == kind,
                table.c.name == name))


def settle(connection, budgets, left_out):
    """Write budgets that have not changed since they were read.

    :param connection: SQLAlchemy Connection within a transaction
    :param budgets: list of (``until`` that was read, :class:`ErrorBudget`);
        None: there is no budget yet, or it is damaged
    :param left_out: as in :func:`.sql.upsert`
    :returns: key of a budget that has changed meanwhile, or None
    """
    table = tables.error_budget
    columns = [column.name for column in table.columns
               if not column.primary_key]
    settled_until = {(kind, name): until for kind, name, until
                     in connection.execute(sa.select(
                         table.c.kind, table.c.name, table.c.until))}
    for before, budget in budgets:
        if before is not None and settled_until.get(budget.key) != before:
            return budget.key
    existing = [(before, to_row(budget)) for before, budget in budgets
                if before is not None]
    if existing:
        # If two writers have read the same budget, the second one finds no
        # row.
        statement = sa.update(table).where(
            table.c.kind == sa.bindparam('of_kind'),
            table.c.name == sa.bindparam('of_name'),
            table.c.until == sa.bindparam('before')).values(
                {name: sa.bindparam(f'new_{name}') for name in columns})
        for before, row in existing:
            if not connection.execute(statement, {
                    'of_kind': row['kind'], 'of_name': row['name'],
                    'before': before,
                    **{f'new_{name}': row[name] for name in columns}
                    }).rowcount:
                return row['kind'], row['name']
    sql.upsert(connection, table, [to_row(budget) for before, budget in budgets
                                   if before is None], left_out)
    return None


def forget(connection, keys, before_day):
    """Remove budgets and sums that are no longer needed.

    :param connection: SQLAlchemy Connection within a transaction
    :param keys: (kind, name) of the budgets to remove
    :param before_day: sums of earlier days are removed; None: no sums
    """
    for kind, name in keys:
        for table in (tables.error_budget, tables.sum_history):
            connection.execute(sa.delete(table).where(
                table.c.kind == kind, table.c.name == name))
    if before_day is None:
        return
    sql.delete_where(connection, tables.sum_history,
                     tables.sum_history.c.day < before_day)
    now = (before_day + KEPT_DAYS) * _DAY_SECONDS
    forget_stays(connection, now)
    sql.delete_where(connection, tables.budget_share,
                     tables.budget_share.c.written_at < now - _DAY_SECONDS)
