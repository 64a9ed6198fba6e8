# SPDX-License-Identifier: Apache-2.0
"""Replays a trace and computes the results.

Static: learn once, place all instances, evaluate. Rolling: instances arrive
over the period, and models are fitted again each day; only methods that
rebalance move instances. What is known when: reference/evaluation.rst,
"Protocols". Pure; the caller passes the seeds.
"""

import dataclasses
import itertools

import numpy as np

from vswitch_aware_scheduler.evaluate import closed_loop
from vswitch_aware_scheduler.evaluate import packing
from vswitch_aware_scheduler.evaluate import strategies
from vswitch_aware_scheduler.evaluate import trace as traces
from vswitch_aware_scheduler import exceptions

__all__ = ['Case', 'CLAIRVOYANT', 'HISTORIES', 'PROTOCOLS', 'Result',
           'evaluate', 'evaluate_limits']

STATIC, ROLLING = PROTOCOLS = ('static', 'rolling')
ARRIVAL, TRACE = HISTORIES = ('arrival', 'trace')
CLAIRVOYANT = 'clairvoyant'

#: Longest time for which a sample replaces missing later ones.
_LONGEST_GAP_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """What is replayed.

    :ivar protocol: one of :data:`PROTOCOLS`
    :ivar conditions: :class:`.closed_loop.Conditions` of methods that
        rebalance
    :ivar trace: Trace for the evaluation
    :ivar saturation_kbps: capacity of each host, sum of egress and ingress
    :ivar overload_probability: limit
    :ivar past: Trace to learn from, or None
    :ivar train_days: number of days to learn from without ``past``; None: half
        of all
    :ivar history: for the protocol rolling: since when an instance is
        measured, the start of the 'trace' or its 'arrival'
    :ivar needs: (V, 2) cores and memory in MB of each instance, or None if
        hosts have enough of both
    :ivar room: (cores, memory in MB) of each host, infinite if sufficient
    """

    trace: traces.Trace
    saturation_kbps: float
    overload_probability: float
    past: object = None
    train_days: float | None = None
    protocol: str = STATIC
    history: str = TRACE
    needs: np.ndarray | None = None
    room: tuple = (np.inf, np.inf)
    conditions: closed_loop.Conditions = closed_loop.Conditions()

    def __post_init__(self):
        for name, allowed in (('protocol', PROTOCOLS),
                              ('history', HISTORIES)):
            if getattr(self, name) not in allowed:
                raise exceptions.InvalidInput(
                    f'{name}: {getattr(self, name)!r}; expected one of '
                    f'{", ".join(allowed)}')
        if not 0 < self.saturation_kbps < np.inf:
            raise exceptions.InvalidInput(
                f'saturation: {self.saturation_kbps} kbit/s; expected a '
                f'number > 0')
        if not 0 < self.overload_probability < 1:
            raise exceptions.InvalidInput(
                f'overload probability: {self.overload_probability}; '
                f'expected a number between 0 and 1')


@dataclasses.dataclass(eq=False)
class Result:
    """The result of a method, with one entry of each list for each seed.

    :ivar method: name of the method
    :ivar judgements: list of Judgement
    :ivar predicted: list of (hosts,) overload probabilities that the method
        expected
    :ivar refused: list of the number of instances with a known peak above the
        capacity, or with needs above the cores or memory of a host
    """

    method: str
    judgements: list = dataclasses.field(default_factory=list)
    predicted: list = dataclasses.field(default_factory=list)
    refused: list = dataclasses.field(default_factory=list)

    @property
    def hosts(self):
        """Largest number of hosts in use at a time, mean over the orders."""
        return float(np.mean(
            [judged.peak_hosts for judged in self.judgements]))

    @property
    def hosts_mean(self):
        """Number of hosts in use, mean over time and over the orders."""
        return float(np.mean(
            [judged.mean_hosts for judged in self.judgements]))

    def figures(self, overload_probability, clairvoyant):
        """Return the row of the report, means over the seeds.

        :param overload_probability: limit
        :param clairvoyant: Result to compare with, or None
        """
        limit = overload_probability * (1 + 1e-9)

        def mean(of):
            return float(np.mean(
                [of(judged) for judged in self.judgements]))

        return {
            'method': self.method,
            'hosts': self.hosts,
            'refused': float(np.mean(self.refused)),
            'overload_mean': mean(lambda judged: _mean(judged.overload)),
            'overload_avoidable_mean': mean(
                lambda judged: _mean(judged.avoidable)),
            'overload_worst': mean(
                lambda judged: judged.overload.max(initial=0.0)),
            'overload_avoidable_worst': mean(
                lambda judged: judged.avoidable.max(initial=0.0)),
            'hosts_above': mean(
                lambda judged: _mean(judged.overload > limit)),
            'hosts_above_avoidable': mean(
                lambda judged: _mean(judged.avoidable > limit)),
            'loss': mean(lambda judged: judged.loss),
            'predicted_mean': float(np.mean(
                [_mean(hosts) for hosts in self.predicted])),
            'hosts_relative': (None if not clairvoyant
                               or not clairvoyant.hosts
                               else self.hosts / clairvoyant.hosts),
            'hosts_mean': self.hosts_mean,
            'hosts_mean_relative': (
                None if not clairvoyant or not clairvoyant.hosts_mean
                else self.hosts_mean / clairvoyant.hosts_mean),
            'overload_avoidable_weighted': mean(
                lambda judged: judged.weighted),
            'overload_over_limit': mean(
                lambda judged: _mean(judged.avoidable)) / overload_probability,
            'overload_over_limit_weighted': mean(
                lambda judged: judged.weighted) / overload_probability,
            'overload_over_limit_worst': mean(
                lambda judged: judged.avoidable.max(initial=0.0)
            ) / overload_probability,
            'moves_per_instance_week': mean(
                lambda judged: judged.moves_per_instance_week),
            'migration_share': mean(
                lambda judged: judged.migration_share),
        }


def _mean(values):
    return float(np.mean(values)) if len(values) else 0.0


def evaluate(case, methods, seeds=3, progress=None):
    """Replay a case in several random orders.

    :param case: Case
    :param methods: list of :class:`.methods.Method`
    :param seeds: number of orders; their seeds are 1, 2, ...
    :param progress: callable(done, total), or None
    :returns: {name: Result}, including the clairvoyant
    :raises InvalidInput: if there is nothing to learn from or to evaluate
    """
    limits = [(case.saturation_kbps, case.overload_probability)]
    return evaluate_limits(case, limits, methods, seeds, progress)[0]


def evaluate_limits(case, limits, methods, seeds=3, progress=None):
    """Replay a case with several limits, which share what is learned.

    :param case: Case, whose own limits are ignored
    :param limits: list of (saturation_kbps, overload_probability)
    :param methods: as in :func:`evaluate`
    :param seeds: as in :func:`evaluate`
    :param progress: as in :func:`evaluate`
    :returns: list of results as of :func:`evaluate`, in the order of limits
    """
    trace, begin = _trace_and_begin(case)
    rates = np.nan_to_num(trace.rates[:, begin:], nan=0.0)
    if case.conditions.missing_share:
        trace = trace.thinned(case.conditions.missing_share,
                              np.random.default_rng(0))
    histories = {}
    groups = [[_Run(dataclasses.replace(
        case, saturation_kbps=capacity, overload_probability=limit),
        methods, trace, begin, rates, seed + 1, histories)
        for seed in range(seeds)] for capacity, limit in limits]
    runs = [run for group in groups for run in group]
    # All runs simulate one day before the next, because what is learned is
    # large.
    days = len(runs[0].days)
    for day in range(days):
        data_by_history = {}
        for number, run in enumerate(runs):
            end, rows = run.days[day]
            if run.history not in data_by_history:
                data_by_history[run.history] = run.history.until(end)
            run.place(data_by_history[run.history], rows, rates.shape[1]
                      if day + 1 == days else run.days[day + 1][0] - begin)
            if progress:
                progress(day * len(runs) + number + 1, days * len(runs))
    return [_results(group, rates) for group in groups]


def _results(runs, rates):
    """Return {name: Result} of the runs of one case."""
    results = {name: Result(name) for name in runs[0].names}
    for run in runs:
        for name, replay in run.replays.items():
            results[name].judgements.append(replay.judgement())
            results[name].predicted.append(replay.predicted())
            results[name].refused.append(run.refused)
        for name, packer in run.packers.items():
            results[name].judgements.append(packing.judge(
                packer.residents, rates, run.arrivals, run.capacity))
            results[name].predicted.append(packer.predicted())
            results[name].refused.append(run.refused)
    return results


class _Run:
    """One random order: arrivals, and the placement by each method.

    :param case: Case
    :param methods: list of :class:`.methods.Method`
    :param trace: Trace, with the past
    :param begin: first evaluated bin
    :param rates: (V, T) kbit/s in the evaluated time
    :param seed: seed of the order
    :param histories: {(case, start): History} of the runs so far
    :ivar history: History
    :ivar days: [(bin at which the methods learn, rows in order of arrival)]
    """

    def __init__(self, case, methods, trace, begin, rates, seed, histories):
        self.capacity = case.saturation_kbps
        self.refused = 0
        count, bins = rates.shape
        generator = np.random.default_rng(seed)
        if case.protocol == STATIC:
            self.arrivals = np.zeros(count, dtype=np.int64)
            self.days = [(begin, generator.permutation(count))]
        else:
            self.arrivals = generator.integers(0, bins, count)
            self.days = _days(trace, begin, bins, self.arrivals)
        known_from = np.full(count, begin)
        if (case.protocol, case.history) == (ROLLING, ARRIVAL):
            known_from += self.arrivals
        key = known_from.tobytes()
        if key not in histories:
            history = traces.History(trace, begin, known_from)
            moves = any(isinstance(method, strategies.Rebalanced)
                        for method in methods)
            # Missing samples of the trace count as no traffic, as in the
            # evaluation.
            histories[key] = history, history.delivered(
                _LONGEST_GAP_SECONDS if case.conditions.missing_share
                else 0.0) if moves else None
        self.history, delivered = histories[key]
        self.packers, self.replays = {}, {}
        for method in methods:
            packer = method.start(case.saturation_kbps,
                                  case.overload_probability)
            if isinstance(method, strategies.Rebalanced):
                self.replays[method.name] = closed_loop.Replay(
                    packer, method.strategy(case.saturation_kbps,
                                            case.overload_probability),
                    delivered, rates, self.arrivals, case.saturation_kbps,
                    trace.period_seconds, case.conditions,
                    np.random.default_rng((seed, 1)))
            else:
                self.packers[method.name] = packer
        self.packers[CLAIRVOYANT] = packing.Clairvoyant(
            rates, self.arrivals, case.saturation_kbps,
            case.overload_probability)
        self.fits_host = np.ones(count, dtype=bool)
        if case.needs is not None:
            # An unlimited resource has no share that an instance uses.
            limited = np.isfinite(case.room)
            needs, room = case.needs[:, limited], np.array(case.room)[limited]
            self.fits_host = (needs <= room).all(axis=1)
            for packer in itertools.chain(self.packers.values(), (
                    replay.packer for replay in self.replays.values())):
                packer.limit_resources(needs, room)
        self.names = [*(method.name for method in methods), CLAIRVOYANT]

    def place(self, known, rows, end):
        """Learn, then place the instances of a day that are not refused.

        :param known: :class:`.trace.Known`
        :param rows: instances in the order of arrival
        :param end: evaluated bin in which the day ends
        """
        if not len(rows) and not self.replays:
            return
        fits = self.fits_host[rows] & (
            known.peak[rows] <= self.capacity * (1 + 1e-9))
        self.refused += int(np.count_nonzero(~fits))
        for replay in self.replays.values():
            replay.advance(known, rows[fits].tolist(), end)
        if not len(rows):
            return
        for packer in self.packers.values():
            packer.learn(known)
            for row in rows[fits].tolist():
                packer.place(row)


def _trace_and_begin(case):
    """Return the whole trace and its first evaluated bin."""
    if case.past is not None:
        return case.trace.after(case.past)
    bins = case.trace.times.size
    if case.protocol == ROLLING:
        return case.trace, 0
    if case.train_days is None:
        begin = bins // 2
    else:
        begin = round(case.train_days * traces.DAY_SECONDS
                      / case.trace.period_seconds)
    if not 0 < begin < bins:
        length = bins * case.trace.period_seconds / traces.DAY_SECONDS
        raise exceptions.InvalidInput(
            f'training days: {case.train_days}; expected more than 0 '
            f'and less than the {length:g} days of the trace')
    return case.trace, begin


def _days(trace, begin, bins, arrivals):
    """Return [(bin of learning, rows in order of arrival)] by day."""
    order = np.argsort(arrivals, kind='stable')
    per_day = max(traces.DAY_SECONDS / trace.period_seconds, 1.0)
    day = np.floor(arrivals[order] / per_day).astype(np.int64)
    return [(begin + round(number * per_day), order[day == number])
            for number in range(int((bins - 1) / per_day) + 1)]
