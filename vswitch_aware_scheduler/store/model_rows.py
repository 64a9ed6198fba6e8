# SPDX-License-Identifier: Apache-2.0
"""Rows of traffic models and of the counts of instances."""

import functools
import json

import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import model_records
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import packed_counts
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import series

__all__ = ['chains', 'laws', 'learned', 'mark', 'measured_seconds', 'read',
           'resume_points', 'summaries', 'unreadable', 'write',
           'write_unmodelled']


def laws(connection, instance_uuids, damaged):
    """Return {instance uuid: RateLaw} of the instances with a model.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: collection of uuids
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table, laws_by_uuid = tables.traffic_model, {}
    for chunk in sql.key_chunks(instance_uuids):
        rows = connection.execute(sa.select(
            table.c.instance_uuid, table.c.law).where(
                table.c.instance_uuid.in_(chunk))).all()
        if rows:
            uuids, sizes, data = packing.usable_laws(
                *zip(*rows), 'model', damaged)
            laws_by_uuid.update(zip(uuids, rate_law.split_laws(data, sizes)))
    return laws_by_uuid


def measured_seconds(connection):
    """Return {instance uuid: seconds from its first to its last sample}.

    :param connection: SQLAlchemy Connection within a transaction
    """
    table = tables.traffic_model
    seconds = {}
    for row in sql.stream(connection, sa.select(
            table.c.instance_uuid, table.c.window_start, table.c.window_end,
            table.c.samples)):
        uuid, *window, samples = row
        # A damaged window is unknown.
        seconds[uuid] = window[1] - window[0] if all(
            damage.is_number(each) for each in window) and (
                samples or window[0] != window[1]) else None
    return seconds


def _refused(text):
    """Return the Refused of a column, without any where it is damaged."""
    try:
        return series.Refused(**damage.decode(text, {str: float}))
    except (ValueError, TypeError):
        return series.Refused()


def read(connection, instance_uuid):
    """Return the :class:`~.StoredModel` of an instance, or None.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuid: uuid
    :raises StoreVersionError: when the format of the model is unknown
    :raises StoreError: when it is damaged
    """
    table, detail = tables.traffic_model, tables.traffic_model_detail
    row = connection.execute(
        sa.select(table, detail.c.format_version, detail.c.model,
                  detail.c.counts)
        .join(detail, detail.c.instance_uuid == table.c.instance_uuid)
        .where(table.c.instance_uuid == instance_uuid)).first()
    if row is None:
        return None
    if row.format_version != traffic_model.FORMAT_VERSION:
        raise exceptions.StoreVersionError(
            f'instance {instance_uuid}: format version of its model: '
            f'{row.format_version}; expected {traffic_model.FORMAT_VERSION}')
    try:
        return model_records.StoredModel(
            instance_uuid=row.instance_uuid,
            model=_model(row.model),
            counts=(None if row.counts is None else
                    estimate.TransitionCounts.from_bytes(row.counts)),
            window_start=row.window_start, window_end=row.window_end,
            samples=row.samples, refused=_refused(row.refused),
            source=row.source, name=row.name, updated_at=row.updated_at,
            format_version=row.format_version)
    except Exception as error:
        raise exceptions.StoreError(
            f'instance {instance_uuid}: its stored model is damaged: '
            f'{error}') from error


def _model(text):
    return traffic_model.TrafficModel.from_dict(damage.decode(text, dict))


def mark(point):
    """Return a value that changes whenever an instance's counts change.

    :param point: ResumePoint or None
    """
    return point and (point.modelled, point.mark)


def resume_points(connection, instance_uuids=None):
    """Return {instance uuid: :class:`~.ResumePoint`}.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: collection of uuids, or None for all
    """
    points = {}
    unmodelled, model = tables.unmodelled_instance, tables.traffic_model
    detail = tables.traffic_model_detail
    for rows, table, column, modelled in (
            (unmodelled, unmodelled, unmodelled.c.counts, False),
            (model.join(detail, detail.c.instance_uuid
                        == model.c.instance_uuid),
             model, detail.c.counts, True)):
        uuid = table.c.instance_uuid
        query = sa.select(uuid, table.c.source, sa.func.substr(
            column, 1, packed_counts.HEADER_BYTES, type_=sa.LargeBinary)
        ).select_from(rows)
        for chunk_query in (
                [query] if instance_uuids is None else
                [query.where(uuid.in_(chunk))
                 for chunk in sql.key_chunks(instance_uuids)]):
            for instance_uuid, source, data in sql.stream(
                    connection, chunk_query):
                data = bytes(data) if isinstance(
                    data, (bytes, memoryview)) else None
                period, last = (None, None) if data is None else \
                    packed_counts.period_and_last_time(data)
                points[instance_uuid] = model_records.ResumePoint(
                    modelled, last, period, source, data)
    return points


def chains(connection, instance_uuids, damaged):
    """Return {instance uuid: (name or None, TrafficModel)}.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: collection of uuids
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table, detail = tables.traffic_model, tables.traffic_model_detail
    models = {}
    for chunk in sql.key_chunks(instance_uuids):
        for uuid, name, text in connection.execute(
                sa.select(table.c.instance_uuid, table.c.name, detail.c.model)
                .join(detail, detail.c.instance_uuid == table.c.instance_uuid)
                .where(table.c.instance_uuid.in_(chunk)
                       & (detail.c.format_version
                          == traffic_model.FORMAT_VERSION))):
            model = damage.usable(damaged, 'model', uuid, functools.partial(
                _model, text))
            if model is not None:
                models[uuid] = name, model
    return models


def learned(connection, instance_uuids):
    """Return {instance uuid: :class:`~.Learned`}.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: collection of uuids
    """
    counts_by_uuid = {}
    model, detail = tables.traffic_model, tables.traffic_model_detail
    unmodelled = tables.unmodelled_instance.c
    for chunk in sql.key_chunks(instance_uuids):
        for modelled, query in (
                (False, sa.select(unmodelled.instance_uuid, unmodelled.refused,
                                  unmodelled.name, unmodelled.source,
                                  unmodelled.counts)
                 .where(unmodelled.instance_uuid.in_(chunk))),
                (True, sa.select(model.c.instance_uuid, model.c.refused,
                                 model.c.name, model.c.source,
                                 detail.c.counts)
                 .join(detail, detail.c.instance_uuid
                       == model.c.instance_uuid)
                 .where(model.c.instance_uuid.in_(chunk)))):
            for instance_uuid, refused, name, source, data in (
                    connection.execute(query)):
                counts = data and damage.usable(
                    {}, 'counts', instance_uuid, functools.partial(
                        estimate.TransitionCounts.from_bytes, data))
                counts_by_uuid[instance_uuid] = model_records.Learned(
                    modelled, counts or None, _refused(refused), name,
                    source)
    return counts_by_uuid


def summaries(connection, name, damaged):
    """Return a list of :class:`~.ModelSummary`, by uuid.

    :param connection: SQLAlchemy Connection within a transaction
    :param name: only of instances with this name, None for all
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table = tables.traffic_model
    query = sa.select(table).order_by(table.c.instance_uuid)
    if name is not None:
        query = query.where(table.c.name == name)
    model_summaries = []
    for chunk in sql.stream(connection, query).partitions(sql.CHUNK):
        names, sizes, data = packing.usable_laws(
            [row.instance_uuid for row in chunk], [row.law for row in chunk],
            'model', damaged)
        if not names:
            continue
        usable = set(names)
        chunk = [row for row in chunk if row.instance_uuid in usable]
        for row, law in zip(chunk, rate_law.split_laws(data, sizes)):
            summary = damage.usable(
                damaged, 'model', row.instance_uuid, functools.partial(
                    _summary, row, law))
            if summary is not None:
                model_summaries.append(summary)
    return model_summaries


def _summary(row, law):
    return damage.checked(model_records.ModelSummary(
        row.instance_uuid, row.name, tuple(law.mean.tolist()),
        tuple(law.peak.tolist()), row.window_start, row.window_end,
        row.samples, _refused(row.refused), row.source, row.updated_at))


def unreadable(connection, damaged):
    """Return the set of uuids of instances whose model is damaged.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table, damaged_models = tables.traffic_model, {}
    for chunk in sql.stream(connection, sa.select(
            table.c.instance_uuid, table.c.law)).partitions(sql.CHUNK):
        packing.usable_laws(*zip(*chunk), 'model', damaged_models)
    damaged.update(damaged_models)
    return {uuid for _, uuid in damaged_models}


def write(connection, models, generation, left_out):
    """Write models with their counts.

    :param connection: SQLAlchemy Connection within a transaction
    :param models: list of StoredModel
    :param generation: Generation that is being written
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    detail = tables.traffic_model_detail
    for chunk in sql.chunks(models):
        sql.upsert(connection, tables.traffic_model, [
            {**_shared_columns(record, generation),
             'generation': generation.number,
             **packing.pack_law(record.model),
             # psycopg2 does not accept numbers of numpy.
             'window_start': float(record.window_start),
             'window_end': float(record.window_end),
             'samples': float(record.samples)}
            for record in chunk], left_out)
        sql.upsert(connection, detail, [
            {'instance_uuid': record.instance_uuid,
             'format_version': traffic_model.FORMAT_VERSION,
             'model': json.dumps(record.model.to_dict()),
             'counts': record.counts and record.counts.to_bytes()}
            for record in chunk
            if (tables.traffic_model.name, (record.instance_uuid,))
            not in left_out], left_out)
        # A row of traffic_model without its detail cannot be used.
        sql.delete(connection, tables.traffic_model.c.instance_uuid, [
            record.instance_uuid for record in chunk
            if (detail.name, (record.instance_uuid,)) in left_out])
        sql.delete(connection, tables.unmodelled_instance.c.instance_uuid,
                   [record.instance_uuid for record in chunk])


def write_unmodelled(connection, unmodelled, generation, left_out):
    """Write the counts of instances that have no model, or no longer.

    :param connection: SQLAlchemy Connection within a transaction
    :param unmodelled: list of Unmodelled
    :param generation: Generation that is being written
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    for chunk in sql.chunks(unmodelled):
        sql.upsert(connection, tables.unmodelled_instance, [
            {**_shared_columns(record, generation),
             'counts': record.counts.to_bytes()}
            for record in chunk], left_out)
        uuids = [record.instance_uuid for record in chunk]
        model = tables.traffic_model.c.instance_uuid
        demoted = [uuid for some in sql.key_chunks(uuids)
                   for uuid in connection.scalars(
                       sa.select(model).where(model.in_(some)))]
        for column in (model, tables.traffic_model_detail.c.instance_uuid):
            sql.delete(connection, column, demoted)
        sql.upsert(connection, tables.removal, [
            {'kind': tables.INSTANCE, 'name': uuid,
             'generation': generation.number,
             'removed_at': generation.published_at} for uuid in demoted],
            left_out)


def _shared_columns(record, generation):
    """Return the columns that rows with and without a model have.

    :param record: StoredModel or Unmodelled
    :param generation: Generation that is being written
    """
    return {'instance_uuid': record.instance_uuid,
            'name': packing.storable(record.name),
            'refused': json.dumps(record.refused.to_dict()),
            'source': packing.storable(record.source),
            'updated_at': generation.published_at}
