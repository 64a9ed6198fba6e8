# SPDX-License-Identifier: Apache-2.0
"""One pass of the modeler: from what is new in telemetry to a generation.

:func:`run` keeps nothing between two calls: all that a pass goes on from is
in the store, so that a pass after a restart is a pass like any other. It
writes once, at its end; one that fails or is ended before leaves the store
as it was. No thread, no configuration, no clock but the one handed in.

What a pass promises:

* *Nothing twice, nothing lost.* An instance is read from its last counted
  sample on. Samples that are refused as an instance's history (see
  :class:`Refused`) are not counted and are read again.
* *No answer is not no traffic.* An instance of which telemetry tells nothing
  new keeps its model as it is.
* *Passes may overlap.* Of an instance that another pass has learned more of
  meanwhile nothing is written, nor of any other: the pass is void.
* *The clock decides little.* Samples from the future are not read yet; else
  time is the time of samples. Where the clock differs from that of the
  database or of telemetry, nothing is learned until they agree.

Refused samples after the last usable one are counted again with the next
usable one, unless nothing else was new.

Derivation: reference/model.rst, "Estimation".
"""

import contextlib
import dataclasses
import math
import time

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['LATE_SECONDS', 'NOT_IN_INVENTORY',
           'Outcome', 'Refused', 'Settings', 'check_store_clock', 'run']

#: So many instances are counted, merged and fitted at once.
_TOGETHER = 1000

#: Samples may come so much later than those of other instances: an instance
#: that was deleted before is not asked for any more.
LATE_SECONDS = 7200.0

#: Why an instance of telemetry is ignored.
NOT_IN_INVENTORY = 'not in Nova'

#: Steps in which progress is told.
_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a pass learns.

    :ivar source: name of where the samples come from, for the provenance
    :ivar min_samples: fewest samples that a model is fitted to
    :ivar half_life_seconds: age at which a sample counts half, or None: all
        count alike for ever
    :ivar forget_seconds: an instance that telemetry does not know any more is
        forgotten when its last sample is by so much older than the newest of
        all; None: never
    :ivar clock_seconds: how far the clock may be from that of the database
        and that of telemetry; None: neither is looked at
    :ivar only_of_inventory: whether instances that the inventory does not
        have are ignored, where there is an inventory
    :ivar default_kbps: mean bandwidth of an instance of which nothing is
        known
    :raises InvalidInput: naming the setting, the value and what was wanted
    """

    source: str
    min_samples: int = estimate.MIN_SAMPLES
    half_life_seconds: float | None = None
    forget_seconds: float | None = None
    clock_seconds: float | None = None
    only_of_inventory: bool = False
    default_kbps: float = 0.0

    def __post_init__(self):
        if not (isinstance(self.source, str) and 0 < len(self.source) <= 255):
            self._fail('source', 'a string of 1 to 255 characters')
        if not (isinstance(self.min_samples, int) and self.min_samples >= 2):
            self._fail('min_samples', 'a whole number >= 2')
        for name in ('half_life_seconds', 'forget_seconds',
                     'clock_seconds'):
            value = getattr(self, name)
            if value is not None and not (
                    isinstance(value, (int, float))
                    and 0 < value < math.inf):
                self._fail(name, 'a finite number above 0, or None')

    def _fail(self, name, wanted):
        raise exceptions.InvalidInput(
            f'{name} of the modeler is {getattr(self, name)!r}, wanted '
            f'{wanted}')


@dataclasses.dataclass(frozen=True)
class Refused:
    """An instance that got no new model, for want of usable history.

    :ivar reason: short, the same for all that it holds for
    :ivar detail: with the values seen and wanted
    """

    instance_uuid: str
    name: str | None
    reason: str
    detail: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a pass did.

    :ivar generation: :class:`.Generation` that is the last one now
    :ivar written: whether the pass published it
    :ivar instances: number of instances that telemetry knows, of the share
    :ivar samples: number of new samples that were counted
    :ivar fitted: number of models that were fitted anew
    :ivar waiting: number of instances that are counted and have no model yet
    :ivar removed: uuids of instances that were forgotten
    :ivar refused: tuple of :class:`Refused`
    :ivar refused_samples: :class:`.series.Refused` of what was read
    :ivar last_time: time of the newest counted sample of all, seconds UTC, or
        None
    :ivar ahead: number of instances whose last sample is later than the clock
    :ivar seconds: how long it took
    :ivar ignored: {why: number} of what telemetry has and does not count
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
    def ignored_kinds(self):
        """{kind: number} of ``ignored``, without names of who made what."""
        found = {}
        for why, count in self.ignored.items():
            kind = why.partition(':')[0]
            found[kind] = found.get(kind, 0) + count
        return found

    @property
    def reasons(self):
        """{reason: number of refused instances}, most frequent first."""
        found = {}
        for one in self.refused:
            found[one.reason] = found.get(one.reason, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def run(store, driver, clock, settings, progress=None, writing=None,
        share=None, most_kbps=None):
    """Learn what is new and publish it as one generation.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param driver: telemetry :class:`~.base.Driver`
    :param clock: returns the time, seconds UTC
    :param settings: :class:`Settings`
    :param progress: None, or called as ``progress(done, total)`` while there
        is nothing written yet: what it raises ends the pass
    :param writing: None, or a context manager around the write
    :param share: None: learn of all instances; or called with a uuid, whether
        to learn of that one
    :param most_kbps: {uuid: kbit/s in one direction} that the hosts of
        instances can carry; rates above it are no samples
    :returns: :class:`Outcome`; where nothing is new, nothing is written
    :raises TelemetryError: when telemetry cannot be read to its end
    :raises StoreError: when the store cannot be read or written
    :raises StoreChanged: when something else has learned of the same
        instances meanwhile: run it again
    :raises ClockError: when the clock differs from that of the database or of
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


def check_store_clock(store, clock, settings):
    """Check that a clock agrees with that of the database of a store.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param clock: returns the time, seconds UTC
    :param settings: :class:`Settings`
    :raises ClockError: when they are further apart than ``clock_seconds``
    :raises StoreError: when the store cannot be read
    """
    if settings.clock_seconds is not None:
        _check_clock(clock, store.server_time(), f'the database {store.url}',
                     settings)


def _check_clock(clock, other, whose, settings):
    if other is None or settings.clock_seconds is None:
        return
    ahead = float(clock()) - other
    if abs(ahead) > settings.clock_seconds:
        raise exceptions.ClockError(
            f'clock of this machine: {abs(ahead):.0f} s '
            f'{"ahead of" if ahead > 0 else "behind"} that of {whose}; '
            f'expected a difference of at most {settings.clock_seconds:g} s; '
            f'synchronize both clocks, for nothing is learned until then '
            f'(option modeler_clock_seconds)')


@dataclasses.dataclass(frozen=True)
class _Piece:
    """What is new of one instance.

    :ivar counts: list of TransitionCounts of stretches, in order
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
        self._told = -1
        self._basis = store.basis()
        self._projects = store.projects()
        self._points = {uuid: point
                        for uuid, point in self._basis.points.items()
                        if share(uuid)}
        instances = list(driver.instances())
        self._ignored = dict(driver.ignored)
        self._names = {one.uuid: one.name for one in self._known(instances)
                       if share(one.uuid)}
        self._asked = self._asked_for(
            one for one in instances if one.uuid in self._names)
        self._reads_all = len(self._asked) == len(instances)
        self._pieces = []
        self._samples = 0
        self._refused = []
        self._refused_samples = rate_series.Refused()
        self._models = []
        self._unmodelled = []
        self._priors = None

    def _known(self, instances):
        """Return those of some instances that may be learned of.

        Telemetry takes the word of others for which instances there are.
        """
        if not self._settings.only_of_inventory \
                or self._store.inventory() is None:
            return instances
        placements = self._store.placements(
            [one.uuid for one in instances])
        self._driver.hosts = {uuid: one.host
                              for uuid, one in placements.items() if one.host}
        known = [one for one in instances if one.uuid in placements]
        if len(known) < len(instances):
            self._ignored[NOT_IN_INVENTORY] = len(instances) - len(known)
        return known

    # Reading

    def _asked_for(self, instances):
        """Return {uuid: name} of the instances that may have new samples.

        That is all, less those that telemetry says have ended, or have no
        samples, since the newest counted one of all: earlier passes have read
        them to their end.
        """
        newest = max((point.last_time for point in self._points.values()
                      if point.last_time is not None), default=None)
        if newest is None:
            return {one.uuid: one.name for one in instances}
        since = newest - LATE_SECONDS
        recent = self._driver.recent(since)
        return {one.uuid: one.name for one in instances
                if not one.metadata.get('ended_at', math.inf) < since
                and (recent is None or one.uuid in recent)}

    def read(self):
        """Count what is new."""
        groups = _groups(self._asked, self._points, self._reads_all)
        for number, (start, wanted) in enumerate(groups):
            if start is not None and start > self._now:
                continue

            def progress(done, total, number=number):
                part = done / total if total else 1.0
                # Fitting is the last tenth.
                self._tell(0.9 * (number + part) / len(groups))

            together = []
            # From the future comes nothing but mistakes, and a last sample
            # in the year 2100 would be the last one for long.
            for series in self._driver.series(
                    start, math.nextafter(self._now, math.inf), wanted,
                    progress):
                together.append(self._new_part(series, start))
                if len(together) == _TOGETHER:
                    self._count(together)
                    together = []
            self._count(together)

    def _tell(self, part):
        step = min(int(part * _STEPS), _STEPS)
        if step > self._told:
            self._told = step
            self._progress(step, _STEPS)

    def _new_part(self, series, start):
        """Return a series without the samples that are counted already."""
        most = self._most_kbps.get(series.instance_uuid)
        if most is not None:
            series = series.within(most)
        last = self._last_time(series.instance_uuid)
        if last is None or not len(series):
            return series
        refused = series.refused
        if start is None or last - start > 1.5 * series.period_seconds:
            # Some of these were counted when the samples were.
            refused = rate_series.Refused()
        return series.since(last, refused)

    def _last_time(self, instance_uuid):
        point = self._points.get(instance_uuid)
        return None if point is None else point.last_time

    def _count(self, together):
        """Take over the new parts of some series."""
        together = self._without_low_bounds(together)
        pieces = [one for one in together if len(one)]
        for one in together:
            self._refused_samples += one.refused
            if not len(one) and one.instance_uuid not in self._points:
                self._refuse(one.instance_uuid, 'no usable sample',
                             f'no usable sample ({one.refused.total} '
                             f'refused), wanted at least one')
        known = self._learned(pieces)
        stretches = [self._stretches(one) for one in pieces]
        counted = iter(estimate.count_all(
            [part for parts in stretches for part in parts]))
        for one, parts in zip(pieces, stretches):
            counts = [next(counted) for _ in parts]
            learned = known.get(one.instance_uuid)
            merged = self._merged(learned, counts)
            lack = estimate.lack_of_history(merged,
                                            self._settings.min_samples)
            if lack is not None:
                self._refuse(one.instance_uuid, self._reason(
                    merged, learned), str(lack))
                if learned is not None and learned.modelled:
                    # The model is better than what there is instead of it.
                    # It stays as it is, and so does where reading goes on.
                    continue
            self._samples += len(one)
            self._pieces.append(_Piece(one.instance_uuid, counts,
                                       one.refused, lack is None))

    def _without_low_bounds(self, together):
        """Return series without lower bounds that say too little.

        Too little is less than what the instance counts with otherwise: its
        model or its prior, whichever is more, or the default demand.
        """
        bounded = [one.instance_uuid for one in together
                   if one.partial is not None]
        if not bounded:
            return together
        if self._priors is None:
            self._priors = self._store.priors()
        learned = self._store.learned(bounded)
        placements = self._store.placements(bounded)
        return [one.at_least(_floor_kbps(
            learned.get(one.instance_uuid), self._priors,
            placements.get(one.instance_uuid),
            self._settings.default_kbps)) for one in together]

    def _learned(self, pieces):
        """Return {uuid: Learned}, all of which the pieces go on from.

        :raises StoreChanged: when another writer has added to one: the write
            would be refused
        """
        known = self._store.learned(one.instance_uuid for one in pieces)
        for uuid, one in known.items():
            if one.counts is not None \
                    and one.counts.last_time != self._last_time(uuid):
                raise exceptions.StoreChanged(
                    f'instance {uuid}: its last counted sample is of '
                    f'{one.counts.last_time:.0f}, wanted '
                    f'{self._last_time(uuid) or 0:.0f} as when the pass '
                    f'began: another writer was faster')
        return known

    def _stretches(self, series):
        """Cut a series into half-lives: samples age from the end of theirs."""
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
        """Return the counts so far, aged, and later ones together.

        :param later: list of TransitionCounts, in order
        """
        half_life = self._settings.half_life_seconds
        first, *rest = later
        if not _continues(learned, first):
            merged = first
        else:
            rest, merged = later, learned.counts
        for one in rest:
            if half_life is None:
                merged = merged.merged(one)
                continue
            factor = 0.5 ** ((one.last_time - merged.last_time) / half_life)
            # Peaks of a history of no weight would stay for ever.
            if factor * merged.total_samples < 0.5:
                merged = one
            else:
                merged = merged.aged(factor).merged(one)
        return merged

    def _reason(self, merged, learned):
        if learned is not None and learned.modelled:
            if learned.counts is None:
                return 'counted anew: what was counted cannot be read'
            if learned.counts.period_seconds != merged.period_seconds:
                return 'counted anew: another sampling period'
        if merged.total_samples < self._settings.min_samples:
            return f'fewer than {self._settings.min_samples} samples'
        return 'no traffic'

    def _refuse(self, instance_uuid, reason, detail):
        self._refused.append(Refused(
            instance_uuid, self._names.get(instance_uuid), reason, detail))

    # Fitting

    def fit(self):
        """Merge what is new with what was counted, and fit it."""
        for first in range(0, len(self._pieces), _TOGETHER):
            self._tell(0.9 + 0.1 * first / len(self._pieces))
            pieces = self._pieces[first:first + _TOGETHER]
            known = self._learned(pieces)
            found = []
            for one in pieces:
                learned = known.get(one.instance_uuid)
                counts = self._merged(learned, one.counts)
                before = learned.refused if _continues(
                    learned, one.counts[0]) else rate_series.Refused()
                found.append((one, counts, {
                    'refused': before + one.refused,
                    'source': self._settings.source,
                    'name': (self._names.get(one.instance_uuid)
                             or '')[:255] or None}))
            self._take([item for item in found if item[0].fits])
            self._unmodelled.extend(
                model_store.Unmodelled(one.instance_uuid, counts, **more)
                for one, counts, more in found if not one.fits)
        self._tell(1.0)

    def _take(self, found):
        models = estimate.fit_models(
            [counts for _, counts, _ in found],
            min_samples=self._settings.min_samples,
            keys=[one.instance_uuid for one, *_ in found]) if found else []
        for (one, counts, more), model in zip(found, models):
            if isinstance(model, exceptions.NotEnoughSamples):
                # lack_of_history has said that there is enough.
                raise model
            self._models.append(model_store.StoredModel.from_counts(
                one.instance_uuid, model, counts, **more))

    # Writing

    def publish(self, writing, began):
        """Write what has changed; return the Outcome."""
        last = {uuid: point.last_time
                for uuid, point in self._basis.points.items()
                if point.last_time is not None}
        ahead = sum(last.get(uuid, -math.inf) > self._now
                    for uuid in self._points)
        last.update((one.instance_uuid, one.counts[-1].last_time)
                    for one in self._pieces)
        newest = max(last.values(), default=None)
        removed = self._forgotten(last, newest)
        changed = bool(self._pieces or removed)
        generation = self._basis.generation
        if changed:
            with writing:
                generation = self._store.write(
                    self._models, remove=removed, now=self._now,
                    unmodelled=self._unmodelled,
                    based_on=self._basis)
        waiting = {uuid for uuid, point in self._points.items()
                   if not point.modelled}
        waiting -= {one.instance_uuid for one in self._models}
        waiting |= {one.instance_uuid for one in self._unmodelled}
        waiting -= set(removed)
        return Outcome(
            generation, changed, len(self._names), self._samples,
            len(self._models), len(waiting), tuple(removed),
            tuple(self._refused), self._refused_samples, newest, ahead,
            time.monotonic() - began,
            {**self._ignored, **self._driver.ignored})

    def _forgotten(self, last, newest):
        """Return the instances that are gone for so long.

        An instance that telemetry lists and Nova has stays.
        """
        seconds = self._settings.forget_seconds
        if seconds is None or newest is None:
            return []
        return [uuid for uuid in self._points
                if uuid not in self._asked
                and not (uuid in self._names and uuid in self._projects)
                and last.get(uuid, math.inf) < newest - seconds]


def _continues(learned, later):
    """Whether counts go on with later ones, rather than begin with them."""
    return (learned is not None and learned.counts is not None
            and learned.counts.period_seconds == later.period_seconds)


def _floor_kbps(learned, priors, placement, default_kbps):
    """Return the bandwidth that an instance counts with when not measured.

    :param learned: Learned of the instance, or None
    :param priors: {key: Prior}
    :param placement: Placement of the instance, or None
    """
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
    """Say which instances are read together, and from when on.

    A driver reads many instances at once, all from the same time on. Those
    that end alike are read together; the further back, the wider what is
    taken for alike, so that there are few groups whoever is late by how much.

    :param are_all: whether these are all that telemetry knows
    :returns: list of (start or None, uuids or None for all)
    """
    new = [uuid for uuid in names
           if uuid not in points or points[uuid].last_time is None]
    if len(new) == len(names):
        return [(None, None if are_all else new)] if new or are_all else []
    known = sorted(((points[uuid].last_time, points[uuid].period_seconds,
                     uuid) for uuid in names.keys() - set(new)), reverse=True)
    groups = [(None, new)] if new else []
    width = max(period for _, period, _ in known)
    first = 0
    for at in range(1, len(known) + 1):
        if at < len(known) and known[first][0] - known[at][0] <= width:
            continue
        groups.append((math.nextafter(known[at - 1][0], math.inf),
                       [uuid for _, _, uuid in known[first:at]]))
        first = at
        width *= 2
    return groups
