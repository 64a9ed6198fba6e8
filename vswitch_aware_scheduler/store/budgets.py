# SPDX-License-Identifier: Apache-2.0
"""Records of error budgets, and their rows on a connection.

The records have the rates that modelers measured, the budgets of hosts and
uplinks, who spent them, and the hosts of instances over time. Writing these
records does not create a generation.
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
from vswitch_aware_scheduler.store import model_rows
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['BudgetState', 'CONTRADICTED', 'Charge', 'Debt', 'ErrorBudget',
           'FRESH_SECONDS', 'HOST', 'KEPT_DAYS', 'Measured', 'Prediction',
           'RECOVERY_SECONDS', 'SPENDING_SHARE', 'Stay', 'StoredSums',
           'UPLINK', 'VMTime', 'accepting', 'of_projects']

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

#: A project spends the budget of a host if at least this share of the charges
#: of the last :data:`RECOVERY_SECONDS` is charged to its instances.
SPENDING_SHARE = 0.05

#: An instance that was silent in this number of samples counts as silent.
_SILENT_SAMPLES = 24

#: Number of instances whose rates are in one row.
_IN_ROW = 100


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
    :ivar seconds: measured time
    :ivar expected_seconds: predicted overload in this time
    :ivar overload_seconds: measured overload in this time
    :ivar blocks: number of independent parts of this time
    :ivar deviations: difference in standard deviations, above 0 if more
        overload was measured than predicted
    """

    share: float | None = None
    since: float = 0.0
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
    """The budget of a host or an uplink, see :mod:`..budgets`.

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
    :ivar measured_seconds: time in use since the start, as far as it was
        measured: a period in which three of four instances were measured
        counts for three quarters
    :ivar overload_seconds: avoidable overload since the start
    :ivar unknown_seconds: the rest of the time in use since the start
    :ivar unknown_why: which instances were not measured most recently, or None
    :ivar burn: {length of a window in seconds, as text: share of overload in
        it, divided by the limit}
    :ivar prediction: :class:`Prediction` of a host
    :ivar vm_seconds: measured time of all instances since the start
    :ivar vm_overload_seconds: part of this time in which a capacity was
        exceeded, although the instance itself did not exceed it
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
    vm_seconds: float = 0.0
    vm_overload_seconds: float = 0.0

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
    def vm_overload_share(self):
        """Share of the time of instances beside others in overload."""
        return self.vm_overload_seconds / max(self.vm_seconds, 1.0)

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


@dataclasses.dataclass(frozen=True)
class Debt:
    """What schedulers know of a host or an uplink that is in debt.

    A host that accepts new instances (:func:`accepting`) has no Debt.

    :ivar days: number of days in use in which the debt is earned
    :ivar projects: ids of the projects that spend, see
        :data:`SPENDING_SHARE`
    """

    days: float
    projects: frozenset = frozenset()


@dataclasses.dataclass(frozen=True)
class Charge:
    """The overload of a host or an uplink that one instance made on one day.

    :ivar kind: HOST or UPLINK
    :ivar name: name of the host or the uplink
    :ivar instance_uuid: uuid of the instance
    :ivar day: number of days since 1970
    :ivar project: id of its project, or None if unknown
    :ivar seconds: its part of the avoidable overload, in seconds
    """

    kind: str
    name: str
    instance_uuid: str
    day: int
    project: str | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class VMTime:
    """The time of the instances of a project on one day.

    :ivar project: id of the project
    :ivar day: number of days since 1970
    :ivar seconds: measured time of its instances
    :ivar overload_seconds: part of this time in which a capacity of the host
        was exceeded, although the instance itself did not exceed it
    """

    project: str
    day: int
    seconds: float
    overload_seconds: float

    @property
    def vm_overload_share(self):
        """Share of the time beside others in overload."""
        return self.overload_seconds / max(self.seconds, 1.0)


def of_projects(vm_times):
    """Return {project: VMTime of all days}; the day is the first one.

    :param vm_times: iterable of :class:`VMTime`
    """
    total = {}
    for time in sorted(vm_times, key=lambda time: time.day):
        before = total.get(time.project, VMTime(time.project, time.day, 0, 0))
        total[time.project] = dataclasses.replace(
            before, seconds=before.seconds + time.seconds,
            overload_seconds=before.overload_seconds + time.overload_seconds)
    return total


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The rates of n instances in t slots, as one modeler measured them.

    :ivar period_seconds: length of a slot
    :ivar first_slot: number of the first slot, which starts this many periods
        after 1970
    :ivar instances: list of their n uuids
    :ivar last: (n,) start of the last sample of each instance, seconds UTC;
        -inf: it has none
    :ivar packets_known: (n,) bool, whether its rates say anything of packets
    :ivar covered: (n, t) seconds of each slot that samples cover
    :ivar rates: (n, t, 3) mean egress_kbps, ingress_kbps and kpps
    """

    period_seconds: float
    first_slot: int
    instances: list
    last: np.ndarray
    packets_known: np.ndarray
    covered: np.ndarray
    rates: np.ndarray

    def to_rows(self):
        """Yield (first slot, JSON of the uuids, bytes) of some instances.

        An instance takes 9 bytes, and 16 bytes for each slot.
        """
        for begin in range(0, len(self.instances), _IN_ROW):
            some = slice(begin, begin + _IN_ROW)
            yield (self.first_slot, json.dumps(self.instances[some]),
                   b''.join(np.asarray(array[some], kind).tobytes()
                            for array, kind in zip(
                                (self.last, self.packets_known, self.covered,
                                 self.rates), ('<f8', '?', '<f4', '<f4'))))

    @classmethod
    def from_row(cls, row):
        """Return the Measured of a row.

        :param row: row of the table ``measured_rate``
        :raises ValueError: if its data are damaged
        """
        instances = damage.decode(row.instances, [str])
        data = bytes(row.data)
        count = len(instances)
        slots, excess = divmod(len(data) - 9 * count, 16 * count)
        if excess or slots < 1 or not 0 < row.period_seconds < math.inf:
            raise ValueError(f'{len(data)} bytes of {count} instances')
        covered, rates = np.split(np.frombuffer(
            data, '<f4', offset=9 * count), [count * slots])
        if not (np.isfinite(rates).all() and (rates >= 0).all()):
            raise ValueError('a rate is not a finite number of 0 or more')
        return cls(row.period_seconds, row.first_slot, instances,
                   np.frombuffer(data, '<f8', count),
                   np.frombuffer(data, '?', count, 8 * count),
                   covered.reshape(count, slots),
                   rates.reshape(count, slots, 3))


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
    :ivar data: bytes for all limits, as :mod:`..budgets.packed` creates them
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
    if not (0 < budget.overload_probability < 1
            and 0 < budget.earned_share <= 1 and budget.most_days > 0):
        raise damage.Damaged('a number is out of range')
    return budget


def _burn_of(text):
    return {str(int(window)): float(rate) for window, rate
            in damage.decode(text, {str: float}).items()}


def read_debts(connection, now):
    """Return {(kind, name): :class:`Debt`} for schedulers.

    :param connection: SQLAlchemy Connection within a transaction
    :param now: seconds UTC; budgets not settled for a day are omitted
    """
    table = tables.error_budget.c
    days = {}
    for kind, name, balance, share, limit, burn in connection.execute(
            sa.select(table.kind, table.name, table.balance,
                      table.earned_share, table.overload_probability,
                      table.burn).where(table.until >= now - _DAY_SECONDS,
                                        table.balance < 0)):
        if not all(map(damage.is_number, (balance, share, limit))) \
                or not share * limit > 0:
            continue
        with contextlib.suppress(ValueError):
            if accepting(balance, _burn_of(burn), share):
                continue
        days[kind, name] = -balance / (_DAY_SECONDS * share * limit)
    charged = collections.defaultdict(collections.Counter)
    for charge in read_charges(connection, int(
            (now - RECOVERY_SECONDS) // _DAY_SECONDS)) if days else ():
        charged[charge.kind, charge.name][charge.project] += charge.seconds
    return {key: Debt(number, frozenset(
        project for project, seconds in charged[key].items()
        if project is not None
        and seconds >= SPENDING_SHARE * charged[key].total()))
        for key, number in days.items()}


def read_charges(connection, first_day):
    """Return a list of :class:`Charge`.

    :param connection: SQLAlchemy Connection within a transaction
    :param first_day: first day, in days since 1970
    """
    table = tables.overload_charge
    return _usable_rows(connection, table, Charge, first_day)


def read_vm_times(connection, first_day):
    """Return a list of :class:`VMTime`.

    :param connection: SQLAlchemy Connection within a transaction
    :param first_day: first day, in days since 1970
    """
    table = tables.vm_time
    return _usable_rows(connection, table, VMTime, first_day)


def _usable_rows(connection, table, record_class, first_day):
    """Return the records of the rows from a day on that are not damaged."""
    names = [field.name for field in dataclasses.fields(record_class)]
    records = []
    for row in connection.execute(sa.select(
            *(table.c[name] for name in names)).where(
                table.c.day >= first_day)):
        with contextlib.suppress(damage.Damaged):
            records.append(damage.checked(record_class(*row)))
    return records


def add_to_day(connection, charges, vm_times):
    """Add charges and times to those of the same day.

    :param connection: SQLAlchemy Connection within a transaction
    :param charges: list of :class:`Charge`
    :param vm_times: list of :class:`VMTime`
    """
    for table, read, added, numbers in (
            (tables.overload_charge, read_charges, charges, ('seconds',)),
            (tables.vm_time, read_vm_times, vm_times,
             ('seconds', 'overload_seconds'))):
        if not added:
            continue
        key = [column.name for column in table.primary_key]
        rows = {}
        for record in itertools.chain(
                added, read(connection, min(new.day for new in added))):
            row = dataclasses.asdict(record)
            total = rows.setdefault(tuple(row[name] for name in key), row)
            for name in numbers if total is not row else ():
                total[name] += row[name]
        new = {tuple(getattr(record, name) for name in key)
               for record in added}
        sql.upsert(connection, table, [
            row for identity, row in rows.items() if identity in new])


def to_row(budget):
    """Return an :class:`ErrorBudget` as a row.

    :param budget: ErrorBudget
    """
    row = dataclasses.asdict(budget)
    return {**row, **{name: json.dumps(row[name], sort_keys=True,
                                       allow_nan=False)
                      for name in ('burn', 'prediction')}}


def read_measured(connection, damaged):
    """Return a list of :class:`Measured` of all modelers.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    measured = []
    for row in connection.execute(sa.select(tables.measured_rate)):
        rates = damage.usable(damaged, 'measured rates',
                              (row.modeler, row.number),
                              functools.partial(Measured.from_row, row))
        if rates is not None:
            measured.append(rates)
    return measured


def write_measured(connection, modeler, measured, written_at):
    """Replace the rates that a modeler has measured.

    :param connection: SQLAlchemy Connection within a transaction
    :param modeler: name of the modeler
    :param measured: list of :class:`Measured`
    :param written_at: seconds UTC
    """
    table = tables.measured_rate
    rows = [{'modeler': modeler, 'number': number, 'first_slot': first_slot,
             'period_seconds': period, 'instances': uuids, 'data': data,
             'written_at': written_at}
            for number, (period, (first_slot, uuids, data)) in enumerate(
                (part.period_seconds, row) for part in measured
                for row in part.to_rows())]
    sql.delete_where(connection, table, table.c.modeler == modeler,
                     table.c.number >= len(rows))
    for row in rows:
        sql.upsert(connection, table, [row])


def read_silent(connection, instance_uuids):
    """Return the set of the given instances that send nothing.

    These are the instances without an interface, and those that have never
    sent anything in at least :data:`_SILENT_SAMPLES` samples.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: collection of uuids
    """
    placement, instance_uuids = tables.placement.c, list(instance_uuids)
    silent = {
        uuid for uuid, learned
        in model_rows.learned(connection, instance_uuids).items()
        if not learned.modelled and learned.counts is not None
        and learned.counts.total_samples >= _SILENT_SAMPLES
        and not learned.counts.peaks.any()}
    for chunk in sql.key_chunks(instance_uuids):
        silent.update(connection.scalars(
            sa.select(placement.instance_uuid).where(
                placement.instance_uuid.in_(chunk),
                placement.networks == '[]')))
    return silent


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
    :param before_day: records of earlier days are removed; None: none are
    """
    for kind, name in keys:
        for table in (tables.error_budget, tables.sum_history,
                      tables.overload_charge):
            connection.execute(sa.delete(table).where(
                table.c.kind == kind, table.c.name == name))
    if before_day is None:
        return
    for table in (tables.sum_history, tables.overload_charge, tables.vm_time):
        sql.delete_where(connection, table, table.c.day < before_day)
    now = (before_day + KEPT_DAYS) * _DAY_SECONDS
    forget_stays(connection, now)
    sql.delete_where(connection, tables.measured_rate,
                     tables.measured_rate.c.written_at < now - _DAY_SECONDS)
