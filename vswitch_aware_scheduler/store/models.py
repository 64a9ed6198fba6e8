# SPDX-License-Identifier: Apache-2.0
"""Traffic models, and the counts of instances with and without a model.

Together, these counts are all that the modeler needs to continue after its
last pass.
"""

from collections import abc
import dataclasses
import json
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import packed_counts
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import series

__all__ = ['KEYS', 'Learned', 'ModelSummary', 'ResumePoint', 'StoredModel',
           'Unmodelled', 'chains', 'damaged_counts', 'exist', 'laws',
           'learned', 'mark', 'measured_seconds', 'read', 'resume_points',
           'summaries', 'times', 'unreadable', 'write', 'write_unmodelled']

# What a scheduler reads at every refresh.
model_table = tables.table(
    'traffic_model', tables.key(tables.UUID, 'instance_uuid'),
    tables.columns(sa.BigInteger, 'generation'),
    tables.columns(tables.BLOB, 'law'),
    tables.columns(tables.NAME, 'name', null=True),
    tables.columns(sa.Double, 'window_start', 'window_end', 'samples'),
    tables.columns(tables.TEXT, 'refused'),
    tables.columns(tables.NAME, 'source'),
    tables.columns(sa.Double, 'updated_at'), indexes=('generation',))

# What only the modeler and operators read; ten times as large.
detail_table = tables.table(
    'traffic_model_detail', tables.key(tables.UUID, 'instance_uuid'),
    tables.columns(sa.Integer, 'format_version'),
    tables.columns(tables.TEXT, 'model'),
    tables.columns(tables.BLOB, 'counts', null=True))

# An instance is in this table or in traffic_model, never in both.
unmodelled_table = tables.table(
    'unmodelled_instance', tables.key(tables.UUID, 'instance_uuid'),
    tables.columns(tables.BLOB, 'counts'),
    tables.columns(tables.NAME, 'name', null=True),
    tables.columns(tables.TEXT, 'refused'),
    tables.columns(tables.NAME, 'source'),
    tables.columns(sa.Double, 'updated_at'))

#: The keys of all tables, to remove an instance.
KEYS = [table.c.instance_uuid
        for table in (model_table, detail_table, unmodelled_table)]

#: A model with its detail.
_WITH_DETAIL = model_table.join(
    detail_table, detail_table.c.instance_uuid == model_table.c.instance_uuid)

#: Whether instances have a model, table, rows with their counts, counts.
_COUNTED = ((False, unmodelled_table, unmodelled_table,
             unmodelled_table.c.counts),
            (True, model_table, _WITH_DETAIL, detail_table.c.counts))


_KINDS = {'instance_uuid': checks.text(36), 'source': checks.text(255),
          'name': checks.text(255, default=None)}


@dataclasses.dataclass(frozen=True, eq=False)
class StoredModel:
    """The traffic model of one instance and its origin.

    :ivar window_start: start of the first sample, seconds UTC
    :ivar window_end: end of the last sample, seconds UTC
    :ivar samples: number of samples, not a whole number after ageing
    :ivar source: where the samples come from, for example 'file'
    :ivar updated_at: seconds UTC; set by the store, as ``format_version``
    :raises InvalidInput: if a value is invalid
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

    def __post_init__(self) -> None:
        checks.fields(f'instance {self.instance_uuid}', self, {
            **_KINDS, 'samples': checks.number(),
            'window_start': checks.number(-1e15),
            'window_end': checks.number(self.window_start)})

    @classmethod
    def from_counts(cls, instance_uuid: str,
                    model: traffic_model.TrafficModel,
                    counts: estimate.TransitionCounts,
                    **provenance: typing.Any) -> 'StoredModel':
        """Return the record of a model with the window of its counts."""
        return cls(instance_uuid, model, counts,
                   window_start=counts.first_time,
                   window_end=counts.last_time + counts.period_seconds,
                   samples=counts.total_samples, **provenance)


@dataclasses.dataclass(frozen=True, eq=False)
class Unmodelled:
    """The counts of an instance without a model, as :class:`StoredModel`.

    Its traffic is too short, none, or unknown for most of the time.
    """

    instance_uuid: str
    counts: estimate.TransitionCounts
    refused: series.Refused = series.Refused()
    source: str = 'unknown'
    name: str | None = None

    def __post_init__(self) -> None:
        checks.fields(f'instance {self.instance_uuid}', self, _KINDS)


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """The point from which an instance's telemetry is read next.

    :ivar last_time: start of its last counted sample, seconds UTC; None if its
        counts are missing or have an unknown format, as ``period_seconds``
    :ivar mark: the first bytes of its counts, which change with the counts;
        None if they are missing
    """

    modelled: bool
    last_time: float | None
    period_seconds: float | None
    source: str = 'unknown'
    mark: bytes | None = dataclasses.field(default=None, compare=False,
                                           repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """The stored counts; None if missing, damaged or of unknown format."""

    modelled: bool
    counts: estimate.TransitionCounts | None
    refused: series.Refused
    name: str | None = None
    source: str = 'unknown'

    @property
    def is_hidden(self) -> bool:
        """Whether the traffic is unknown more often than known."""
        return self.counts is not None and self.refused.hides(
            self.counts.total_samples)


@dataclasses.dataclass(frozen=True)
class ModelSummary:
    """A stored model for a list: origin, mean and peak, without states."""

    instance_uuid: str
    name: str | None
    mean: tuple[float, ...]
    peak: tuple[float, ...]
    window_start: float
    window_end: float
    samples: float
    refused: series.Refused
    source: str
    updated_at: float


def _refused(text):
    """Return the Refused of a column, without any where it is damaged."""
    try:
        return series.Refused(**damage.decode(text, {str: float}))
    except (ValueError, TypeError):
        return series.Refused()


def _model(text):
    return traffic_model.TrafficModel.from_dict(damage.decode(text, dict))


def mark(point: ResumePoint | None) -> object:
    """Return a value that changes whenever an instance's counts change."""
    return point and (point.modelled, point.mark)


def _with_laws(connection, rows):
    """Return (rows, laws), both without the rows with a damaged law."""
    uuids, sizes, data = packing.usable_laws(
        connection, 'model', [row.instance_uuid for row in rows],
        [row.law for row in rows])
    usable = set(uuids)
    return ([row for row in rows if row.instance_uuid in usable],
            rate_law.split_laws(data, sizes))


@database.reader
def exist(connection: sa.Connection) -> bool:
    """Return whether any instance has a traffic model."""
    return connection.scalar(
        sa.select(model_table.c.instance_uuid).limit(1)) is not None


@database.reader
def laws(connection: sa.Connection, instance_uuids: abc.Iterable[str]
         ) -> dict[str, rate_law.RateLaw]:
    """Return the laws of the given instances that have a law."""
    laws_by_uuid = {}
    for query in sql.restricted(
            sa.select(model_table.c.instance_uuid, model_table.c.law),
            model_table.c.instance_uuid, instance_uuids):
        rows, its_laws = _with_laws(
            connection, connection.execute(query).all())
        laws_by_uuid.update(zip((row.instance_uuid for row in rows),
                                its_laws))
    return laws_by_uuid


@database.reader
def times(connection: sa.Connection) -> list[tuple[typing.Any, ...]]:
    """Return [(instance uuid, name, window_end, updated_at)] of all models."""
    table = model_table.c
    return [tuple(row) for row in sql.stream(connection, sa.select(
        table.instance_uuid, table.name, table.window_end,
        table.updated_at))]


@database.reader
def measured_seconds(connection: sa.Connection) -> dict[str, float | None]:
    """Return the seconds from first to last sample, None if unknown."""
    table = model_table.c
    return {uuid: end - start if all(map(damage.is_number, (start, end))) and (
        samples or start != end) else None
        for uuid, start, end, samples in sql.stream(connection, sa.select(
            table.instance_uuid, table.window_start, table.window_end,
            table.samples))}


@database.reader
def read(connection: sa.Connection, instance_uuid: str) -> StoredModel | None:
    """Return the model of an instance, or raise a StoreError."""
    row = connection.execute(sa.select(
        model_table, detail_table.c.format_version, detail_table.c.model,
        detail_table.c.counts).select_from(_WITH_DETAIL).where(
            model_table.c.instance_uuid == instance_uuid)).first()
    if row is None:
        return None
    if row.format_version != traffic_model.FORMAT_VERSION:
        raise exceptions.StoreVersionError(
            thing=f'instance {instance_uuid}: its model',
            seen=row.format_version, expected=traffic_model.FORMAT_VERSION)
    values = dict(row._mapping)
    del values['law'], values['generation']
    try:
        return StoredModel(**{
            **values, 'model': _model(row.model),
            'refused': _refused(row.refused),
            'counts': (None if row.counts is None else
                       estimate.TransitionCounts.from_bytes(row.counts))})
    except Exception as error:
        raise exceptions.StoreError(
            f'instance {instance_uuid}: its stored model is damaged: '
            f'{error}') from error


@database.reader
def resume_points(connection: sa.Connection,
                  instance_uuids: abc.Iterable[str] | None = None
                  ) -> dict[str, ResumePoint]:
    """Return the resume points of some or all instances."""
    points = {}
    for modelled, uuid, source, data in _with_counts(
            connection, instance_uuids, ['source'], lambda counts:
            sa.func.substr(counts, 1, packed_counts.HEADER_BYTES,
                           type_=sa.LargeBinary)):
        data = bytes(data) if isinstance(data, (bytes, memoryview)) else None
        period, last = (None, None) if data is None else \
            packed_counts.period_and_last_time(data)
        points[uuid] = ResumePoint(modelled, last, period, source, data)
    return points


def _with_counts(connection, instance_uuids, names, of_counts):
    """Yield (whether it has a model, uuid, columns, counts) of instances.

    :param names: of columns of both tables
    :param of_counts: callable, column of the counts -> what is read of it
    """
    if instance_uuids is not None:
        instance_uuids = list(instance_uuids)
    for modelled, table, rows, counts in _COUNTED:
        columns = [table.c[name] for name in ('instance_uuid', *names)]
        for query in sql.restricted(
                sa.select(*columns, of_counts(counts)).select_from(rows),
                columns[0], instance_uuids):
            for row in sql.stream(connection, query):
                yield modelled, *row


@database.reader
def chains(connection: sa.Connection, instance_uuids: abc.Iterable[str]
           ) -> dict[str, tuple[str | None, traffic_model.TrafficModel]]:
    """Return {instance uuid: (name or None, TrafficModel)} where usable."""
    chains_by_uuid, detail = {}, detail_table.c
    for query in sql.restricted(
            sa.select(model_table.c.instance_uuid, model_table.c.name,
                      detail.model).select_from(_WITH_DETAIL).where(
                detail.format_version == traffic_model.FORMAT_VERSION),
            model_table.c.instance_uuid, instance_uuids):
        for uuid, name, text in connection.execute(query):
            model = damage.usable(connection, 'model', uuid, _model, text)
            if model is not None:
                chains_by_uuid[uuid] = name, model
    return chains_by_uuid


@database.reader
def learned(connection: sa.Connection, instance_uuids: abc.Iterable[str]
            ) -> dict[str, Learned]:
    """Return the counts of some instances; damaged ones are empty."""
    counts_by_uuid = {}
    for modelled, uuid, refused, name, source, data in _with_counts(
            connection, instance_uuids, ['refused', 'name', 'source'],
            lambda counts: counts):
        try:
            counts = data and estimate.TransitionCounts.from_bytes(data)
        except Exception:
            counts = None
        counts_by_uuid[uuid] = Learned(
            modelled, counts or None, _refused(refused), name, source)
    return counts_by_uuid


@database.reader
def damaged_counts(connection: sa.Connection) -> damage.Reasons:
    """Return {('counts', instance uuid): reason in words}."""
    reasons = {}
    for _, uuid, data in _with_counts(connection, None, (),
                                      lambda counts: counts):
        try:
            if data is not None:
                estimate.TransitionCounts.from_bytes(data)
        except (exceptions.InvalidSeries, TypeError) as error:
            reasons['counts', uuid] = (
                f'instance {uuid}: its stored counts are damaged: {error}')
    return reasons


@database.reader
def summaries(connection: sa.Connection, name: str | None = None
              ) -> list[ModelSummary]:
    """Return the summaries of the models, by uuid, of a name or all."""
    query = sa.select(model_table).order_by(model_table.c.instance_uuid)
    if name is not None:
        query = query.where(model_table.c.name == name)
    model_summaries = []
    for chunk in sql.stream(connection, query).partitions(sql.CHUNK):
        model_summaries += damage.usable_records(
            connection, 'model', zip(*_with_laws(connection, chunk)),
            _summary, lambda pair: pair[0].instance_uuid)
    return model_summaries


def _summary(pair):
    row, law = pair
    return damage.checked(ModelSummary(
        row.instance_uuid, row.name, tuple(law.mean.tolist()),
        tuple(law.peak.tolist()), row.window_start, row.window_end,
        row.samples, _refused(row.refused), row.source, row.updated_at))


@database.reader
def unreadable(connection: sa.Connection) -> set[str]:
    """Return the uuids of the instances whose model is damaged."""
    uuids = set()
    for chunk in sql.stream(connection, sa.select(
            model_table.c.instance_uuid, model_table.c.law)).partitions(
                sql.CHUNK):
        uuids.update(row.instance_uuid for row in chunk)
        uuids.difference_update(
            packing.usable_laws(connection, 'model', *zip(*chunk))[0])
    return uuids


def write(connection: sa.Connection, models: abc.Sequence[StoredModel],
          generation: sql.Generation) -> None:
    """Write models with their counts."""
    for chunk in sql.chunks(models):
        refused = sql.upsert_usable(connection, model_table, [
            {**_shared_columns(record, generation),
             'generation': generation.number,
             **packing.pack_law(record.model),
             # psycopg2 does not accept numbers of numpy.
             'window_start': float(record.window_start),
             'window_end': float(record.window_end),
             'samples': float(record.samples)}
            for record in chunk])
        # A row of traffic_model without its detail cannot be used.
        sql.delete(connection, model_table.c.instance_uuid, [
            uuid for uuid, in sql.upsert_usable(connection, detail_table, [
                {'instance_uuid': record.instance_uuid,
                 'format_version': traffic_model.FORMAT_VERSION,
                 'model': json.dumps(record.model.to_dict()),
                 'counts': record.counts and record.counts.to_bytes()}
                for record in chunk
                if (record.instance_uuid,) not in refused])])
        sql.delete(connection, unmodelled_table.c.instance_uuid,
                   [record.instance_uuid for record in chunk])


def write_unmodelled(connection: sa.Connection,
                     unmodelled: abc.Sequence[Unmodelled],
                     generation: sql.Generation) -> list[str]:
    """Write counts without a model; return whose model was deleted."""
    demoted = []
    for chunk in sql.chunks(unmodelled):
        sql.upsert_usable(connection, unmodelled_table, [
            {**_shared_columns(record, generation),
             'counts': record.counts.to_bytes()}
            for record in chunk])
        model = model_table.c.instance_uuid
        demoted += [uuid for some in sql.key_chunks(
            record.instance_uuid for record in chunk)
            for uuid in connection.scalars(
                sa.select(model).where(model.in_(some)))]
    for column in (model_table.c.instance_uuid,
                   detail_table.c.instance_uuid):
        sql.delete(connection, column, demoted)
    return demoted


def _shared_columns(record, generation):
    return {'instance_uuid': record.instance_uuid,
            'name': record.name and packing.storable(record.name),
            'refused': json.dumps(record.refused.to_dict()),
            'source': packing.storable(record.source),
            'updated_at': generation.published_at}
