# SPDX-License-Identifier: Apache-2.0
"""One pass of the modeler: learns from new samples and writes a generation.

:func:`run` keeps no state between two calls. All that a pass continues from is
in the store, so that a pass after a restart is a normal pass. A pass writes
once, at its end. A pass that fails or is interrupted before leaves the store
unchanged. No thread, no configuration, no clock except the one that is passed.

Guarantees of a pass:

- *Nothing twice, nothing lost.* The samples of an instance are read from its
  last counted sample on. If the sampling period or the source (the driver or
  its exporter) has changed, all samples that telemetry still has are read
  again, and replace the counted ones. Samples of an instance that is refused
  (see :class:`RefusedInstance`) are not counted and are read again.
- *No answer does not mean no traffic.* If telemetry has nothing new about an
  instance, its model is unchanged.
- *Passes may overlap.* If another pass has learned more about one of the
  instances meanwhile, the pass is void and writes nothing.
- *The local clock has little influence.* Samples from the future are not read
  yet. All other times are those of samples. If the local clock differs from
  the clock of the database or of telemetry, nothing is learned until they
  agree.

Rejected samples after the last usable sample are counted again together with
the next usable one, unless nothing else was new. Derivation:
reference/model.rst, "Estimation".
"""

import collections
from collections.abc import Callable
import contextlib
import dataclasses
import math
import time
import typing

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['LATE_SECONDS', 'LearningSettings', 'NOT_IN_INVENTORY', 'Outcome',
           'RefusedInstance', 'check_store_clock', 'run']

#: Number of instances that are counted, merged and fitted together.
_TOGETHER = 1000

#: Largest delay of samples compared with those of other instances. An instance
#: that was deleted earlier is not read any more.
LATE_SECONDS = 7200.0

#: Reason for ignoring an instance of telemetry.
NOT_IN_INVENTORY = 'not in Nova'

#: Number of steps in which progress is reported.
_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class LearningSettings:
    """The parameters of a pass.

    :ivar source: name of the driver. It is stored with the models, together
        with the :attr:`~.base.Driver.variant`
    :ivar half_life_seconds: age at which the weight of a sample is one half;
        None: all samples have the same weight forever
    :ivar forget_seconds: an instance that telemetry no longer has is removed
        when its last sample is older than the newest sample of all by this
        time; None: never
    :ivar clock_seconds: largest permitted difference between the local clock
        and those of the database and of telemetry; None: not checked
    :ivar only_of_inventory: whether instances that are missing in the
        inventory are ignored, if there is an inventory
    :raises InvalidInput: if a value is invalid
    """

    source: str
    min_samples: int = estimate.MIN_SAMPLES
    half_life_seconds: float | None = None
    forget_seconds: float | None = None
    clock_seconds: float | None = None
    only_of_inventory: bool = False
    default_kbps: float = 0.0

    def __post_init__(self):
        seconds = checks.number(above=True, default=None)
        checks.fields('modeler', self, {
            'source': checks.text(255), 'min_samples': checks.whole(2),
            'half_life_seconds': seconds, 'forget_seconds': seconds,
            'clock_seconds': seconds})


@dataclasses.dataclass(frozen=True)
class RefusedInstance:
    """An instance without a new model, because its history is not usable.

    :ivar reason: short text, the same for all instances with the same problem
    """

    instance_uuid: str
    name: str | None
    reason: str
    detail: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a pass.

    :ivar generation: :class:`.Generation` after the pass
    :ivar written: whether the pass wrote this generation
    :ivar instances: number of instances of this modeler's share that telemetry
        has
    :ivar last_time: time of the newest counted sample, seconds UTC, or None
    :ivar ahead: number of instances whose last sample is later than the clock
    :ivar ignored: {reason: number} of resources in telemetry that do not count
    """

    generation: model_store.Generation
    written: bool
    instances: int
    samples: int
    fitted: int
    waiting: int
    removed: tuple
    refused: tuple
    refused_samples: rate_series.Refused
    last_time: float | None
    ahead: int
    seconds: float
    ignored: dict = dataclasses.field(default_factory=dict)

    @property
    def ignored_kinds(self) -> dict[str, int]:
        """{kind: number} of ``ignored``, without the names of creators."""
        counts = {}
        for reason, count in self.ignored.items():
            kind = reason.partition(':')[0]
            counts[kind] = counts.get(kind, 0) + count
        return counts

    @property
    def reasons(self) -> dict[str, int]:
        """{reason: number of refused instances}, the most frequent first."""
        counts = {}
        for refusal in self.refused:
            counts[refusal.reason] = counts.get(refusal.reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def run(store: model_store.Store, driver: base.Driver,
        clock: Callable[[], float], settings: LearningSettings,
        progress: Callable | None = None,
        writing: typing.ContextManager | None = None,
        share: Callable | None = None,
        most_kbps: dict[str, float] | None = None) -> Outcome:
    """Learn from new samples and write one generation.

    :param progress: None, or callable(done, total), called until the write
        starts; an exception that it raises ends the pass
    :param most_kbps: {uuid: largest possible rate in one direction on the host
        of the instance, in kbit/s}; higher rates are rejected
    :raises TelemetryError: if telemetry cannot be read completely
    :raises StoreChanged: if another pass has learned of the same instances
        meanwhile; run the pass again
    :raises ClockError: if the clock differs from that of the database or of
        telemetry; nothing is written then
    """
    began = time.monotonic()
    check_store_clock(store, clock, settings)
    now = float(clock())
    one_pass = _Pass(store, driver, now, settings, progress,
                     share or (lambda instance_uuid: True), most_kbps or {})
    _check_clock(clock, driver.server_time(), f'telemetry {driver.source}',
                 settings)
    one_pass.read()
    one_pass.fit()
    return one_pass.publish(writing or contextlib.nullcontext(), began)


def check_store_clock(store: model_store.Store, clock: Callable[[], float],
                      settings: LearningSettings) -> None:
    """Check that a clock agrees with the clock of a store's database.

    :raises ClockError: if they differ by more than ``clock_seconds``
    """
    if settings.clock_seconds is not None:
        _check_clock(clock, store.server_time(), f'the database {store.url}',
                     settings)


def _check_clock(clock, other_time, clock_name, settings):
    if other_time is None or settings.clock_seconds is None:
        return
    ahead = float(clock()) - other_time
    if abs(ahead) > settings.clock_seconds:
        raise exceptions.ClockError(
            f'clock of this machine: {abs(ahead):.0f} s '
            f'{"ahead of" if ahead > 0 else "behind"} that of {clock_name}; '
            f'expected a difference of at most {settings.clock_seconds:g} s '
            '(modeler_clock_seconds). Synchronize both clocks; until then '
            'the modeler changes no model')


@dataclasses.dataclass(frozen=True)
class _Piece:
    """The new samples of one instance.

    :ivar counts: list of TransitionCounts of successive periods
    """

    instance_uuid: str
    counts: list
    refused: rate_series.Refused
    fits: bool


class _Pass:

    def __init__(self, store, driver, now, settings, progress, share,
                 most_kbps):
        self._store = store
        self._driver = driver
        self._now = now
        self._settings = settings
        self._most_kbps = most_kbps
        self._progress = progress or (lambda done, total: None)
        self._reported_step = -1
        self._instants = sampled.Instants(store.secret())
        self._basis = store.basis()
        self._projects = store.projects()
        self._points = {uuid: point
                        for uuid, point in self._basis.points.items()
                        if share(uuid)}
        sources = collections.Counter(
            point.source for point in self._points.values())
        driver.variant_before = max(
            sources, key=sources.get, default='').partition(' ')[2]
        placements = self._placements()
        instances = list(driver.instances())
        self._source = f'{settings.source} {driver.variant}'.strip()
        for uuid, point in self._points.items():
            # Counts with another period or of another source cannot be
            # continued.
            if point.source != self._source or driver.period_seconds \
                    not in (None, point.period_seconds):
                self._points[uuid] = dataclasses.replace(point, last_time=None)
        self._ignored = dict(driver.ignored)
        unknown = 0 if placements is None else sum(
            instance.uuid not in placements for instance in instances)
        if unknown:
            self._ignored[NOT_IN_INVENTORY] = unknown
        self._names = {
            instance.uuid: instance.name
            for instance in instances if share(instance.uuid)
            and (placements is None or instance.uuid in placements)
        }
        self._asked = self._asked_for(
            instance for instance in instances if instance.uuid in self._names)
        self._reads_all = len(self._asked) == len(instances)
        self._pieces = []
        self._samples = 0
        self._refused = []
        self._refused_samples = rate_series.Refused()
        self._models = []
        self._unmodelled = []
        self._priors = None

    def _placements(self):
        """Return the inventory, which the driver gets, or None without one.

        Other users can report instances to telemetry that do not exist.
        """
        if not self._settings.only_of_inventory \
                or self._store.inventory() is None:
            return None
        placements = self._store.placements()
        self._driver.hosts = {
            uuid: placement.host
            for uuid, placement in placements.items() if placement.host
        }
        return placements

    # Reading

    def _asked_for(self, instances):
        """Return {uuid: name} of the instances that may have new samples.

        Instances that have ended, or have no samples according to telemetry,
        since the newest counted sample of all are omitted: earlier passes have
        read them completely.
        """
        newest = self._newest(point.last_time
                              for point in self._points.values())
        if newest is None:
            return {instance.uuid: instance.name for instance in instances}
        since = newest - LATE_SECONDS
        recent = self._driver.recent(since)
        return {instance.uuid: instance.name for instance in instances
                if not instance.metadata.get('ended_at', math.inf) < since
                and (recent is None or instance.uuid in recent)}

    def _newest(self, times):
        """Return the latest of some times up to the clock, or None.

        A later time is an error. It says nothing about other instances.
        """
        return max((time for time in times
                    if time is not None and time <= self._now), default=None)

    def read(self):
        """Read and count new samples."""
        groups = _groups(self._asked, self._points, self._reads_all)
        for number, (start, uuids) in enumerate(groups):
            if start is not None and start > self._now:
                continue

            def progress(done, total, number=number):
                fraction = done / total if total else 1.0
                # Fitting is the last tenth of the progress.
                self._tell(0.9 * (number + fraction) / len(groups))

            new_parts = []
            # Samples from the future are errors. If one in the year 2100 were
            # counted, no later sample would be read.
            for series in self._driver.series(
                    start, math.nextafter(self._now, math.inf), uuids,
                    progress):
                new_parts.append(self._new_part(series, start))
                if len(new_parts) == _TOGETHER:
                    self._count(new_parts)
                    new_parts = []
            self._count(new_parts)

    def _tell(self, fraction):
        step = min(int(fraction * _STEPS), _STEPS)
        if step > self._reported_step:
            self._reported_step = step
            self._progress(step, _STEPS)

    def _new_part(self, series, start):
        """Return a series without the samples that are already counted."""
        highest_kbps = self._most_kbps.get(series.instance_uuid)
        if highest_kbps is not None:
            series = series.within(highest_kbps)
        last = self._last_time(series.instance_uuid)
        if last is None or not len(series):
            return series
        refused = series.refused
        if start is None or last - start > 1.5 * series.period_seconds:
            # Some of the rejected samples were counted together with the
            # samples.
            refused = rate_series.Refused()
        return series.since(last, refused)

    def _last_time(self, instance_uuid):
        point = self._points.get(instance_uuid)
        return None if point is None else point.last_time

    def _count(self, new_parts):
        """Count the new parts of the given series."""
        new_parts = self._without_low_bounds(new_parts)
        pieces = [series for series in new_parts if len(series)]
        for series in new_parts:
            self._refused_samples += series.refused
            if not len(series) and series.instance_uuid not in self._points:
                self._refuse(series.instance_uuid, 'no usable sample',
                             f'no usable sample ({series.refused.total} '
                             f'refused); expected at least one')
        unknown = [series for series in new_parts
                   if not len(series) and series.refused.missing]
        learned_of = self._learned(pieces + unknown)
        self._hide(unknown, learned_of)
        stretches = [self._stretches(series) for series in pieces]
        next_counts = iter(estimate.count_all(
            [part for parts in stretches for part in parts],
            self._instants))
        for series, parts in zip(pieces, stretches):
            counts = [next(next_counts) for _ in parts]
            learned = learned_of.get(series.instance_uuid)
            merged = self._merged(learned, counts)
            lack = estimate.lack_of_history(merged,
                                            self._settings.min_samples)
            refused = self._refused_so_far(learned, counts) + series.refused
            if refused.hides(merged.total_samples):
                lack = self._is_hidden(series.instance_uuid, refused, merged)
            elif lack is not None:
                self._refuse(series.instance_uuid, self._reason(
                    merged, learned), str(lack))
                if learned is not None and learned.modelled:
                    # The stored model is better than a new one. The model and
                    # the time from which to read are unchanged.
                    continue
            self._samples += len(series)
            self._pieces.append(_Piece(series.instance_uuid, counts,
                                       series.refused, lack is None))

    def _hide(self, unknown, learned_of):
        """Remove the models of instances that are unknown for too long.

        :param unknown: list of series without a usable sample since the last
            counted one
        """
        for series in unknown:
            learned = learned_of.get(series.instance_uuid)
            if learned is None or learned.counts is None or learned.is_hidden:
                continue
            refused = learned.refused + series.refused
            if refused.hides(learned.counts.total_samples):
                self._is_hidden(series.instance_uuid, refused, learned.counts)
                self._unmodelled.append(model_store.Unmodelled(
                    series.instance_uuid, learned.counts, refused,
                    learned.source, learned.name))

    def _is_hidden(self, instance_uuid, refused, counts):
        """Record that the traffic of an instance is mostly unknown."""
        detail = (f'unknown at {refused.missing:.0f} samples, known at '
                  f'{counts.total_samples:.0f}; expected fewer unknown ones')
        self._refuse(instance_uuid, 'mostly unknown', detail)
        return detail

    def _refused_so_far(self, learned, later):
        """Return the rejected samples before later counts, with their age."""
        if not self._continues(learned, later[0]):
            return rate_series.Refused()
        half_life = self._settings.half_life_seconds
        return learned.refused if half_life is None else learned.refused.aged(
            0.5 ** ((later[-1].last_time - learned.counts.last_time)
                    / half_life))

    def _continues(self, learned, later):
        """Return whether later counts continue the stored counts."""
        return (learned is not None and learned.counts is not None
                and learned.source == self._source
                and learned.counts.period_seconds == later.period_seconds)

    def _without_low_bounds(self, new_parts):
        """Return series without lower bounds that are too low.

        A lower bound is too low if it is less than what the instance counts
        with otherwise: its model or its prior, whichever is larger, or the
        default demand.
        """
        bounded = [series.instance_uuid for series in new_parts
                   if series.partial is not None]
        if not bounded:
            return new_parts
        if self._priors is None:
            self._priors = self._store.priors()
        learned = self._store.learned(bounded)
        placements = self._store.placements(bounded)
        return [series.at_least(_floor_kbps(
            learned.get(series.instance_uuid), self._priors,
            placements.get(series.instance_uuid),
            self._settings.default_kbps)) for series in new_parts]

    def _learned(self, pieces):
        """Return {uuid: Learned}, the stored counts of instances.

        :raises StoreChanged: if another writer has added to one of them, so
            that the write would be rejected
        """
        learned_of = self._store.learned(piece.instance_uuid
                                         for piece in pieces)
        for uuid, learned in learned_of.items():
            counted = self._basis.points.get(uuid)
            if learned.counts is not None and (
                    counted is None
                    or learned.counts.last_time != counted.last_time):
                raise exceptions.StoreChanged(
                    thing=f'counts of instance {uuid}')
        return learned_of

    def _stretches(self, series):
        """Divide a series into parts of one half-life each.

        The weight of samples is halved from one part to the next older one.
        """
        half_life = self._settings.half_life_seconds
        if half_life is None:
            return [series]
        number = np.floor((series.times - series.times[0]) / half_life)
        cuts = np.flatnonzero(np.diff(number)) + 1
        return [dataclasses.replace(series, times=times, rates=rates,
                                    partial=None)
                for times, rates in zip(np.split(series.times, cuts),
                                        np.split(series.rates, cuts))] \
            if cuts.size else [series]

    def _merged(self, learned, later):
        """Return the aged counts so far together with later ones."""
        half_life = self._settings.half_life_seconds
        first, *remaining = later
        if not self._continues(learned, first):
            merged = first
        else:
            remaining, merged = later, learned.counts
        for counts in remaining:
            if half_life is None:
                merged = merged.merged(counts)
                continue
            factor = 0.5 ** ((counts.last_time - merged.last_time) / half_life)
            # The peaks of a history without weight would remain forever.
            if factor * merged.total_samples < 0.5:
                merged = counts
            else:
                merged = merged.aged(factor).merged(counts)
        return merged

    def _reason(self, merged, learned):
        if learned is not None and learned.modelled:
            if learned.counts is None:
                return 'counting restarted: stored counts cannot be read'
            if learned.counts.period_seconds != merged.period_seconds:
                return 'counting restarted: the sampling period has changed'
            if learned.source != self._source:
                return 'counting restarted: the source has changed'
        if merged.total_samples < self._settings.min_samples:
            return f'fewer than {self._settings.min_samples} samples'
        return 'no traffic'

    def _refuse(self, instance_uuid, reason, detail):
        self._refused.append(RefusedInstance(
            instance_uuid, self._names.get(instance_uuid), reason, detail))

    # Fitting

    def fit(self):
        """Merge the new counts with the stored ones, and fit models."""
        for first in range(0, len(self._pieces), _TOGETHER):
            self._tell(0.9 + 0.1 * first / len(self._pieces))
            pieces = self._pieces[first:first + _TOGETHER]
            learned_of = self._learned(pieces)
            merged = []
            for piece in pieces:
                learned = learned_of.get(piece.instance_uuid)
                counts = self._merged(learned, piece.counts)
                merged.append((piece, counts, {
                    'refused': self._refused_so_far(
                        learned, piece.counts) + piece.refused,
                    'source': self._source,
                    'name': (self._names.get(piece.instance_uuid)
                             or '')[:255] or None}))
            self._take([item for item in merged if item[0].fits])
            self._unmodelled.extend(
                model_store.Unmodelled(piece.instance_uuid, counts, **columns)
                for piece, counts, columns in merged if not piece.fits)
        self._tell(1.0)

    def _take(self, merged):
        models = estimate.fit_models(
            [counts for _, counts, _ in merged],
            min_samples=self._settings.min_samples,
            keys=[piece.instance_uuid
                  for piece, *_ in merged]) if merged else []
        for (piece, counts, columns), model in zip(merged, models):
            if isinstance(model, exceptions.NotEnoughSamples):
                # Unexpected: lack_of_history() has found enough samples.
                raise model
            self._models.append(model_store.StoredModel.from_counts(
                piece.instance_uuid, model, counts, **columns))

    # Writing

    def publish(self, writing, began):
        """Write the changes. Return the Outcome.

        :param began: start of the pass, monotonic seconds
        """
        last = {uuid: point.last_time
                for uuid, point in self._basis.points.items()
                if point.last_time is not None}
        ahead = sum(last.get(uuid, -math.inf) > self._now
                    for uuid in self._points)
        last.update((piece.instance_uuid, piece.counts[-1].last_time)
                    for piece in self._pieces)
        newest = self._newest(last.values())
        removed = self._forgotten(last, newest)
        changed = bool(self._pieces or self._unmodelled or removed)
        generation = self._basis.generation
        if changed:
            with writing:
                generation = self._store.write(
                    self._models, remove=removed, now=self._now,
                    unmodelled=self._unmodelled,
                    based_on=self._basis)
        waiting = {uuid for uuid, point in self._points.items()
                   if not point.modelled}
        waiting -= {model.instance_uuid for model in self._models}
        waiting |= {record.instance_uuid for record in self._unmodelled}
        waiting -= set(removed)
        return Outcome(
            generation, changed, len(self._names), self._samples,
            len(self._models), len(waiting), tuple(removed),
            tuple(self._refused), self._refused_samples, newest, ahead,
            time.monotonic() - began,
            {**self._ignored, **self._driver.ignored})

    def _forgotten(self, last, newest):
        """Return the instances that have been gone for ``forget_seconds``.

        An instance that both telemetry and Nova have is never removed.
        """
        seconds = self._settings.forget_seconds
        if seconds is None or newest is None:
            return []
        return [uuid for uuid in self._points
                if uuid not in self._asked
                and not (uuid in self._names and uuid in self._projects)
                and last.get(uuid, math.inf) < newest - seconds]


def _floor_kbps(learned, priors, placement, default_kbps):
    """Return the bandwidth with which an unmeasured instance counts."""
    floor_kbps = None
    for key in prior.levels_of(*(
            (placement.flavor, placement.project) if placement
            else (None, None))):
        if key in priors:
            floor_kbps = float(priors[key].law.mean[:2].sum())
            break
    if learned is not None and learned.counts is not None:
        counts = learned.counts
        floor_kbps = max(floor_kbps or 0.0, float(
            counts.totals[:, :2].sum() / counts.samples.sum()))
    return default_kbps if floor_kbps is None else floor_kbps


def _groups(names, points, are_all):
    """Return which instances to read together, and from which time.

    A driver reads many instances from the same time on. Instances with similar
    last samples are read together. The older the samples, the larger the
    permitted difference, so that there are few groups in all cases.

    :returns: list of (start or None, uuids or None for all)
    """
    new = [uuid for uuid in names
           if uuid not in points or points[uuid].last_time is None]
    if len(new) == len(names):
        return [(None, None if are_all else new)] if new or are_all else []
    last_times = sorted(
        ((points[uuid].last_time, points[uuid].period_seconds, uuid)
         for uuid in names.keys() - set(new)), reverse=True)
    groups = [(None, new)] if new else []
    width = max(period for _, period, _ in last_times)
    first = 0
    for place in range(1, len(last_times) + 1):
        if place < len(last_times) \
                and last_times[first][0] - last_times[place][0] <= width:
            continue
        groups.append((math.nextafter(last_times[place - 1][0], math.inf),
                       [uuid for _, _, uuid in last_times[first:place]]))
        first = place
        width *= 2
    return groups
