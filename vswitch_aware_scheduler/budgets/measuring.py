# SPDX-License-Identifier: Apache-2.0
"""Measures the rates of the instances of a modeler, slot by slot."""

import collections
from collections.abc import Callable
import dataclasses
import math
import typing

import numpy as np

from vswitch_aware_scheduler import store as model_store

__all__ = ['Residents', 'measure', 'residents']


def measure(store: model_store.Store, driver: typing.Any, stays: dict,
            of_host: dict, pending: dict, period: float, part: typing.Any,
            progress: Callable | None) -> list[model_store.Measured]:
    """Return a list of Measured: the rates in the unsettled periods.

    Instances with many unsettled periods are read apart, so that the others
    are not read for the same long time.

    :param of_host: {host: list of the keys of its budgets}
    :param pending: {key: (first slot, slot after the last)}
    """
    groups = collections.defaultdict(dict)   # {uuid: first slot} by group
    for uuid, its_stays in stays.items():
        first, end = min((pending[key] for stay in its_stays
                          for key in of_host.get(stay.host, ())
                          if key in pending), default=(0, 0))
        if end and (part.share is None or part.share(uuid)):
            groups[(end - first).bit_length()][uuid] = first
    if not groups:
        return []
    driver.hosts = {**driver.hosts, **{
        uuid: stays[uuid][-1].host for group in groups.values()
        for uuid in group if stays[uuid][-1].host is not None}}
    end = max(last for _, last in pending.values())
    points = store.resume_points()
    return [_read(driver, list(group), points, period * np.arange(
        min(group.values()), end + 1), part.most_kbps or {}, progress)
        for _, group in sorted(groups.items())]


def _read(driver, uuids, points, edges, most_kbps, progress):
    """Return Measured: the rates of some instances.

    :param edges: (t + 1,) bounds of the slots, seconds UTC
    """
    last = np.array([getattr(points.get(uuid), 'last_time', None) or -math.inf
                     for uuid in uuids])
    packets_known = np.ones(len(uuids), dtype=bool)
    covered = np.zeros((len(uuids), len(edges) - 1), dtype=np.float32)
    means = np.zeros((*covered.shape, 3), dtype=np.float32)
    rows = {uuid: row for row, uuid in enumerate(uuids)}
    period = edges[1] - edges[0]
    # One earlier sample covers the start of the first slot. One more is needed
    # because the first reading of a counter gives no rate.
    for series in driver.series(edges[0] - 2 * period, edges[-1], rows,
                                progress):
        row = rows.get(series.instance_uuid)
        if row is None or not len(series):
            continue
        if series.instance_uuid in most_kbps:
            series = series.within(most_kbps[series.instance_uuid])
        times, rates = series.times[series.whole], series.rates[series.whole]
        if times.size:
            last[row] = max(last[row], times[-1])
            packets_known[row] = rates[:, 2].any() or not rates[:, :2].any()
            covered[row], means[row] = _in_slots(
                times, rates, series.period_seconds, edges)
    return model_store.Measured(period, round(edges[0] / period), uuids, last,
                                packets_known, covered, means)


def _in_slots(times, rates, sampling_period, edges):
    """Return (t,) covered seconds and (t, 3) mean rates of slots.

    A sample lasts for its period. If the next sample is late by at most half a
    period, the sample lasts until then. The mean is that of the samples that
    start in a slot; if no sample does, of those that last into the slot.
    """
    gaps = np.diff(times)
    seconds = np.append(np.where(gaps <= 1.5 * sampling_period, gaps,
                                 sampling_period), sampling_period)
    points = np.column_stack([times, times + seconds]).ravel()

    def between_edges(amounts):
        total = np.cumsum(amounts)
        return np.diff(np.interp(edges, points, np.column_stack(
            [total - amounts, total]).ravel()))

    covered = between_edges(seconds)
    slots = np.floor(times / (edges[1] - edges[0])).astype(np.int64) - round(
        edges[0] / (edges[1] - edges[0]))
    inside = (slots >= 0) & (slots < covered.size)
    counts = np.bincount(slots[inside], minlength=covered.size)[:, None]
    means = np.zeros((covered.size, 3))
    np.add.at(means, slots[inside], rates[inside])
    means /= np.maximum(counts, 1)
    if not counts.all():
        lasting = np.column_stack([between_edges(seconds * column)
                                   for column in rates.T])
        means = np.where(counts > 0, means, np.maximum(lasting, 0.0)
                         / np.maximum(covered, 1e-9)[:, None])
    return covered, means


@dataclasses.dataclass(eq=False)
class Residents:
    """The instances on a host, or behind an uplink, in its pending slots.

    :ivar active: {uuid: (t,) seconds in which the instance may have run there}
    :ivar events: list of the times at which an instance came, left, started or
        stopped
    """

    active: dict = dataclasses.field(default_factory=dict)
    events: list = dataclasses.field(default_factory=list)


def residents(stays: dict, of_host: dict, pending: dict,
              period: float) -> dict:
    """Return {key: Residents} of the pending slots of each budget.

    The arguments are those of :func:`measure`.
    """
    found = {key: Residents() for key in pending}
    for uuid, its_stays in stays.items():
        keys_of = [found.keys() & of_host.get(stay.host, ())
                   for stay in its_stays]
        for stay, previous, keys in zip(its_stays, [set(), *keys_of], keys_of):
            for key in previous | keys:
                found[key].events.append(stay.since)
        ends = [stay.since for stay in its_stays[1:]] + [math.inf]
        for key in set().union(*keys_of):
            first, end = pending[key]
            edges = period * np.arange(first, end + 1)
            active = sum((
                np.diff(np.clip(edges, stay.since, until))
                for stay, until, keys in zip(its_stays, ends, keys_of)
                if key in keys and stay.running is not False
                and max(stay.since, edges[0]) < min(until, edges[-1])),
                np.zeros(end - first))
            if active.any():
                found[key].active[uuid] = active
    return found
