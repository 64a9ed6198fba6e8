# SPDX-License-Identifier: Apache-2.0
"""Error budgets of hosts and uplinks, and who spent them.

The records also have the rates that modelers measured. Writing these records
does not create a generation.
"""

import collections
from collections import abc
import contextlib
import dataclasses
import itertools
import json
import math
import typing

import numpy as np
import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import instances
from vswitch_aware_scheduler.store import models
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import stays
from vswitch_aware_scheduler.store import tables

__all__ = ['BudgetState', 'CONTRADICTED', 'Charge', 'Debt', 'ErrorBudget',
           'FRESH_SECONDS', 'HOST', 'KEPT_DAYS', 'Measured', 'Prediction',
           'RECOVERY_SECONDS', 'SPENDING_SHARE', 'StoredSums', 'UPLINK',
           'VMTime', 'accepting', 'charges', 'debts', 'measured',
           'of_projects', 'read', 'settle', 'silent', 'state', 'sums',
           'vm_times', 'write_measured']

#: Kinds of budgets.
HOST, UPLINK = 'host', 'uplink'

#: An error budget is outdated if its last settled period ended longer ago than
#: this number of seconds. Periods wait one hour for late samples.
FRESH_SECONDS = 7200.0

#: Number of days for which sums, and budgets of removed hosts, are kept.
KEPT_DAYS = 7

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

# The rates of some instances in some periods, as one of several modelers has
# measured them. first_slot is the number of the first period since 1970.
# instances is a JSON list of uuids. data has the arrays of Measured.
measured_table = tables.table(
    'measured_rate', tables.key(tables.NAME, 'modeler'),
    tables.key(sa.BigInteger, 'number'),
    tables.columns(sa.BigInteger, 'first_slot'),
    tables.columns(sa.Double, 'period_seconds'),
    tables.columns(tables.TEXT, 'instances'),
    tables.columns(tables.BLOB, 'data'),
    tables.columns(sa.Double, 'written_at'))

charge_table = tables.table(
    'overload_charge', tables.key(tables.KIND, 'kind'),
    tables.key(tables.NAME, 'name'), tables.key(tables.UUID, 'instance_uuid'),
    tables.key(sa.BigInteger, 'day'),
    tables.columns(tables.NAME, 'project', null=True),
    tables.columns(sa.Double, 'seconds'))

vm_time_table = tables.table(
    'vm_time', tables.key(tables.NAME, 'project'),
    tables.key(sa.BigInteger, 'day'),
    tables.columns(sa.Double, 'seconds', 'overload_seconds'))

# burn and prediction are JSON objects.
budget_table = tables.table(
    'error_budget', tables.key(tables.KIND, 'kind'),
    tables.key(tables.NAME, 'name'),
    tables.columns(sa.Double, 'overload_probability', 'earned_share',
                   'first_days', 'most_days'),
    tables.columns(tables.TEXT, 'limits'),
    tables.columns(sa.Double, 'since'),
    tables.columns(tables.TEXT, 'why', null=True),
    tables.columns(sa.Double, 'until', 'balance', 'measured_seconds',
                   'overload_seconds', 'unknown_seconds'),
    tables.columns(tables.TEXT, 'unknown_why', null=True),
    tables.columns(tables.TEXT, 'burn', 'prediction'),
    tables.columns(sa.Double, 'vm_seconds', 'vm_overload_seconds'))

# limits is a JSON list of [weights, packet bytes, capacity]. data has the
# packed sums for each limit, see rebalance.packed.
sum_table = tables.table(
    'sum_history', tables.key(tables.KIND, 'kind'),
    tables.key(tables.NAME, 'name'), tables.key(sa.BigInteger, 'day'),
    tables.key(sa.Double, 'period_seconds'),
    tables.columns(tables.TEXT, 'limits'), tables.columns(tables.BLOB, 'data'))

# One row, as soon as budgets exist.
state_table = tables.table(
    'budget_state', tables.key(sa.Integer, 'id'),
    tables.columns(sa.Double, 'period_seconds', 'stays_until'))


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The predicted overload of a host, compared with the measured overload.

    The sums are those of the times in which a prediction was in force. Earlier
    times have a lower weight.

    :ivar share: predicted share of overload; None: no prediction is in force
    :ivar since: start of the prediction, seconds UTC
    :ivar seconds: measured time
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
    def contradicted(self) -> bool:
        """Whether the difference is not due to chance."""
        return abs(self.deviations) >= CONTRADICTED

    def __str__(self) -> str:
        expected = self.expected_seconds / max(self.seconds, 1.0)
        return (f'predicted {expected:.3g}, measured '
                f'{self.overload_seconds:.0f} of {self.seconds:.0f} s')


@dataclasses.dataclass(frozen=True)
class ErrorBudget:
    """The budget of a host or an uplink, see :mod:`..budgets`.

    :ivar kind: HOST or UPLINK
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
    :ivar unknown_why: which instances were not measured most recently
    :ivar burn: {length of a window in seconds, as text: share of overload in
        it, divided by the limit}
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
    burn: dict[str, float] = dataclasses.field(default_factory=dict)
    prediction: Prediction = Prediction()
    vm_seconds: float = 0.0
    vm_overload_seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """The pair (kind, name)."""
        return self.kind, self.name

    @property
    def rate(self) -> float:
        """Seconds of overload that are earned in one second of use."""
        return self.earned_share * self.overload_probability

    @property
    def day(self) -> float:
        """Seconds of overload that are earned in one day of use."""
        return self.rate * _DAY_SECONDS

    @property
    def days(self) -> float:
        """Balance as the number of days in which it is earned."""
        return self.balance / self.day

    @property
    def most(self) -> float:
        """Largest balance in seconds of overload."""
        return self.day * self.most_days

    @property
    def left(self) -> float:
        """Share of the largest balance, negative for debt."""
        return self.balance / self.most

    @property
    def vm_overload_share(self) -> float:
        """Share of the time of instances beside others in overload."""
        return self.vm_overload_seconds / max(self.vm_seconds, 1.0)

    @property
    def in_debt(self) -> bool:
        """Whether more was spent than earned."""
        return self.balance < 0

    @property
    def accepts(self) -> bool:
        """Whether new instances are accepted, see :func:`accepting`."""
        return accepting(self.balance, self.burn, self.earned_share)


def accepting(balance: float, burn: dict[str, float], earned_share: float
              ) -> bool:
    """Return whether a host or an uplink accepts new instances.

    In debt, it has to have spent at most what it has earned in the last
    :data:`RECOVERY_SECONDS`.
    """
    return balance >= 0 or burn.get(
        str(RECOVERY_SECONDS), math.inf) <= earned_share


@dataclasses.dataclass(frozen=True)
class Debt:
    """What schedulers know of a host or an uplink that is in debt.

    A host that accepts new instances (:func:`accepting`) has no Debt.

    :ivar days: number of days in use in which the debt is earned
    :ivar projects: that spend, see :data:`SPENDING_SHARE`
    """

    days: float
    projects: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Charge:
    """The overload of a host or an uplink that one instance made on one day.

    :ivar day: number of days since 1970
    :ivar seconds: its part of the avoidable overload
    """

    kind: str
    name: str
    instance_uuid: str
    day: int
    project: str | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class VMTime:
    """The measured time of the instances of a project on one day.

    :ivar day: number of days since 1970
    :ivar overload_seconds: part of this time in which a capacity of the host
        was exceeded, although the instance itself did not exceed it
    """

    project: str
    day: int
    seconds: float
    overload_seconds: float

    @property
    def vm_overload_share(self) -> float:
        """Share of the time beside others in overload."""
        return self.overload_seconds / max(self.seconds, 1.0)


def of_projects(vm_times: abc.Iterable[VMTime]) -> dict[str, VMTime]:
    """Return {project: VMTime of all days}; the day is the first one."""
    total = {}
    for time in sorted(vm_times, key=lambda time: time.day):
        before = total.get(time.project, VMTime(time.project, time.day, 0, 0))
        total[time.project] = dataclasses.replace(
            before, seconds=before.seconds + time.seconds,
            overload_seconds=before.overload_seconds + time.overload_seconds)
    return total


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The rates of n instances in t periods, as one modeler measured them.

    :ivar first_slot: number of the first period since 1970
    :ivar last: (n,) start of the last sample of each instance, seconds UTC;
        -inf: it has none
    :ivar packets_known: (n,) bool, whether its rates say anything of packets
    :ivar covered: (n, t) seconds of each period that samples cover
    :ivar rates: (n, t, 3) mean egress_kbps, ingress_kbps and kpps
    """

    period_seconds: float
    first_slot: int
    instances: list[str]
    last: np.ndarray
    packets_known: np.ndarray
    covered: np.ndarray
    rates: np.ndarray

    def to_rows(self) -> abc.Iterator[sql.Row]:
        """Yield rows of some instances, without modeler, number and time."""
        for begin in range(0, len(self.instances), _IN_ROW):
            some = slice(begin, begin + _IN_ROW)
            yield {
                'period_seconds': self.period_seconds,
                'first_slot': self.first_slot,
                'instances': json.dumps(self.instances[some]),
                'data': b''.join(np.asarray(array[some], kind).tobytes()
                                 for array, kind in zip(
                                     (self.last, self.packets_known,
                                      self.covered, self.rates),
                                     ('<f8', '?', '<f4', '<f4')))}

    @classmethod
    def from_row(cls, row: typing.Any) -> 'Measured':
        """Return the record of a row, or raise ValueError if it is damaged."""
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

    :ivar limits: tuple of (weights, packet bytes, capacity)
    :ivar day: number of days since 1970
    :ivar data: bytes for all limits, as :mod:`..budgets.packed` creates them
    """

    kind: str
    name: str
    day: int
    period_seconds: float
    limits: tuple[typing.Any, ...]
    data: bytes


@dataclasses.dataclass(frozen=True)
class BudgetState:
    """The state of all budgets: stays are complete up to ``stays_until``."""

    period_seconds: float
    stays_until: float


@database.reader
def read(connection: sa.Connection) -> dict[tuple[str, str], ErrorBudget]:
    """Return {(kind, name): budget} of all budgets."""
    return {budget.key: budget for budget in damage.usable_records(
        connection, 'error budget',
        connection.execute(sa.select(budget_table)), _of_row,
        lambda row: (row.kind, row.name))}


def _of_row(row):
    budget = damage.checked(ErrorBudget(**{
        **row._mapping, 'burn': _burn_of(row.burn),
        'prediction': damage.checked(Prediction(
            **damage.decode(row.prediction, dict)))}))
    if not (0 < budget.overload_probability < 1
            and 0 < budget.earned_share <= 1 and budget.most_days > 0):
        raise damage.Damaged('a number is out of range')
    return budget


def _burn_of(text):
    return {str(int(window)): float(rate) for window, rate
            in damage.decode(text, {str: float}).items()}


@database.reader
def debts(connection: sa.Connection, now: float
          ) -> dict[tuple[str, str], Debt]:
    """Return {(kind, name): :class:`Debt`} for schedulers.

    :param now: seconds UTC; budgets not settled for a day are omitted
    """
    table = budget_table.c
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
    for charge in charges(connection, int(
            (now - RECOVERY_SECONDS) // _DAY_SECONDS)) if days else ():
        charged[charge.kind, charge.name][charge.project] += charge.seconds
    return {key: Debt(number, frozenset(
        project for project, seconds in charged[key].items()
        if project is not None
        and seconds >= SPENDING_SHARE * charged[key].total()))
        for key, number in days.items()}


@database.reader
def charges(connection: sa.Connection, first_day: int = 0) -> list[Charge]:
    """Return who spent budgets since a day, counted from 1970."""
    return _usable_rows(connection, charge_table, Charge, first_day)


@database.reader
def vm_times(connection: sa.Connection, first_day: int = 0) -> list[VMTime]:
    """Return the times of projects, as :func:`charges`."""
    return _usable_rows(connection, vm_time_table, VMTime, first_day)


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


def _add_to_day(connection, charges_added, vm_times_added):
    for table, read, added, numbers in (
            (charge_table, charges, charges_added, ('seconds',)),
            (vm_time_table, vm_times, vm_times_added,
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


@database.reader
def measured(connection: sa.Connection) -> list[Measured]:
    """Return what all modelers have measured."""
    return damage.usable_records(
        connection, 'measured rates',
        connection.execute(sa.select(measured_table)), Measured.from_row,
        lambda row: (row.modeler, row.number))


@database.writer
def write_measured(connection: sa.Connection, modeler: str,
                   measured: abc.Iterable[Measured], written_at: float
                   ) -> None:
    """Replace the rates that a modeler has measured, without retries."""
    table = measured_table
    rows = [{**row, 'modeler': modeler, 'number': number,
             'written_at': written_at} for number, row in enumerate(
                 row for part in measured for row in part.to_rows())]
    sql.delete_where(connection, table, table.c.modeler == modeler,
                     table.c.number >= len(rows))
    for row in rows:
        sql.upsert(connection, table, [row])


@database.reader
def silent(connection: sa.Connection, instance_uuids: abc.Iterable[str]
           ) -> set[str]:
    """Return those of the given instances that send nothing.

    They have no interface, or were silent in :data:`_SILENT_SAMPLES` samples.
    """
    instance_uuids = list(instance_uuids)
    silent_uuids = {
        uuid for uuid, learned
        in models.learned(connection, instance_uuids).items()
        if not learned.modelled and learned.counts is not None
        and learned.counts.total_samples >= _SILENT_SAMPLES
        and not learned.counts.peaks.any()}
    placement = instances.placement_table.c
    for chunk in sql.key_chunks(instance_uuids):
        silent_uuids.update(connection.scalars(
            sa.select(placement.instance_uuid).where(
                placement.instance_uuid.in_(chunk),
                placement.networks == '[]')))
    return silent_uuids


@database.reader
def sums(connection: sa.Connection, kind: str,
         names: abc.Collection[str] | None = None, first_day: int = 0
         ) -> list[StoredSums]:
    """Return sums of some or all names, by name and day, since a day."""
    table = sum_table.c
    rows = connection.execute(sa.select(sum_table).where(
        (table.kind == kind) & (table.day >= first_day)).order_by(
            table.name, table.day, table.period_seconds))
    return damage.usable_records(
        connection, 'sums', (row for row in rows
                             if names is None or row.name in names),
        _sums, lambda row: (row.kind, row.name))


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


@database.reader
def state(connection: sa.Connection) -> BudgetState | None:
    """Return the common state, or None without budgets."""
    return sql.only_record(connection, state_table, BudgetState)


@database.writer
def settle(connection: sa.Connection, state: BudgetState,
           budgets: abc.Iterable[tuple[float | None, ErrorBudget]] = (),
           sums: abc.Iterable[StoredSums] = (),
           remove: abc.Iterable[tuple[str, str]] = (),
           forget_before: int | None = None,
           charges: abc.Iterable[Charge] = (),
           vm_times: abc.Iterable[VMTime] = ()) -> None:
    """Write settled budgets and the sums that they were computed from.

    This is one transaction without retries: on any error, nothing is written.

    :param budgets: (``until`` of the stored budget, or None if there is none;
        new :class:`ErrorBudget`)
    :param sums: each replaces the sums of the same day and period
    :param remove: (kind, name) of the budgets to remove with their sums
    :param forget_before: records of earlier days, in days since 1970, are
        removed, and also outdated rates and stays; None: none are removed
    :param charges: are added to those of the same day, as ``vm_times``
    :raises StoreChanged: when another writer has settled one of these budgets
        in the meantime
    """
    _settle(connection, budgets)
    for chunk in sql.chunks(list(sums)):
        sql.upsert_usable(connection, sum_table, [
            {**dataclasses.asdict(day_sums),
             'limits': json.dumps(day_sums.limits)} for day_sums in chunk])
    _add_to_day(connection, charges, vm_times)
    _forget(connection, remove, forget_before)
    sql.upsert(connection, state_table, [
        {'id': 1, **dataclasses.asdict(state)}])


def _settle(connection, budgets):
    table = budget_table
    key = [column.name for column in table.primary_key]
    # If two writers have read the same budget, the second one finds no row.
    statement = sa.update(table).where(
        *(table.c[name] == sa.bindparam(f'of_{name}')
          for name in (*key, 'until'))).values(
            {column.name: sa.bindparam(f'new_{column.name}')
             for column in table.columns if not column.primary_key})
    new = []
    for before, budget in budgets:
        row = dataclasses.asdict(budget)
        for name in ('burn', 'prediction'):
            row[name] = json.dumps(row[name], sort_keys=True, allow_nan=False)
        if before is None:
            new.append(row)
        elif not connection.execute(statement, {
                'of_kind': budget.kind, 'of_name': budget.name,
                'of_until': before, **{
                    f'new_{name}': value for name, value in row.items()
                    if name not in key}}).rowcount:
            raise exceptions.StoreChanged(
                thing=f'error budget of {budget.kind} {budget.name}')
    sql.upsert_usable(connection, table, new)


def _forget(connection, keys, before_day):
    for kind, name in keys:
        for table in (budget_table, sum_table, charge_table):
            connection.execute(sa.delete(table).where(
                table.c.kind == kind, table.c.name == name))
    if before_day is None:
        return
    for table in (sum_table, charge_table, vm_time_table):
        sql.delete_where(connection, table, table.c.day < before_day)
    now = (before_day + KEPT_DAYS) * _DAY_SECONDS
    stays.forget(connection, now)
    sql.delete_where(connection, measured_table,
                     measured_table.c.written_at < now - _DAY_SECONDS)
