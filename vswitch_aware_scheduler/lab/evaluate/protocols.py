# SPDX-License-Identifier: Apache-2.0
"""Replays a trace and computes the results.

Static: learn once, place all instances, evaluate. Rolling: instances arrive
over the period, and models are fitted again each day; only methods that
rebalance move instances. What is known when: reference/evaluation.rst,
"Protocols". Pure; the caller passes the seeds.
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.evaluate import closed_loop
from vswitch_aware_scheduler.lab.evaluate import measures
from vswitch_aware_scheduler.lab.evaluate import packing
from vswitch_aware_scheduler.lab.evaluate import trace as traces

__all__ = ['CLAIRVOYANT', 'HISTORIES', 'PROTOCOLS', 'ReplayCase', 'Result',
           'evaluate', 'evaluate_limits']

STATIC, ROLLING = PROTOCOLS = ('static', 'rolling')
ARRIVAL, TRACE = HISTORIES = ('arrival', 'trace')
CLAIRVOYANT = 'clairvoyant'

#: The last days, whose measures are also reported apart.
LAST_DAYS = 10

#: Longest time for which a sample replaces missing later ones.
_LONGEST_GAP_SECONDS = 3600.0

_ABOVE_0 = checks.number(above=True)


@dataclasses.dataclass(frozen=True, eq=False)
class ReplayCase:
    """What is replayed.

    :ivar past: Trace to learn from, or None
    :ivar train_days: number of days to learn from without ``past``; None: half
        of all
    :ivar history: for the protocol rolling: since when an instance is
        measured, the start of the 'trace' or its 'arrival'
    :ivar needs: (V, 2) cores and memory in MB of each instance, or None if
        hosts have enough of both
    :ivar room: (cores, memory in MB) of each host, infinite if sufficient
    :ivar lifetime_days: mean of the exponential time after which an instance
        leaves; None: instances stay
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
    lifetime_days: float | None = None

    def __post_init__(self):
        for name, allowed in (('protocol', PROTOCOLS),
                              ('history', HISTORIES)):
            checks.check(name, getattr(self, name), checks.one_of(
                allowed))
        checks.check('saturation in kbit/s', self.saturation_kbps, _ABOVE_0)
        checks.check('overload probability', self.overload_probability,
                     checks.Kind('a number between 0 and 1',
                                 lambda value: 0 < value < 1))
        checks.check('lifetime in days', self.lifetime_days,
                     _ABOVE_0._replace(default=None))


@dataclasses.dataclass(eq=False)
class Result:
    """The result of a method, with one entry of each list for each seed.

    :ivar predicted: list of (hosts,) overload probabilities that the method
        expected
    :ivar refused: list of the number of instances with a known peak above the
        capacity, or with needs above the cores or memory of a host
    """

    method: str
    judgements: list = dataclasses.field(default_factory=list)
    last_judgements: list = dataclasses.field(default_factory=list)
    bounds: list = dataclasses.field(default_factory=list)
    last_bounds: list = dataclasses.field(default_factory=list)
    predicted: list = dataclasses.field(default_factory=list)
    refused: list = dataclasses.field(default_factory=list)

    def figures(self, overload_probability: float, clairvoyant) -> dict:
        """Return the row of the report, means over the seeds."""
        return {
            'method': self.method,
            'refused': float(np.mean(self.refused)),
            'predicted_mean': _mean(
                [_mean(hosts) or 0.0 for hosts in self.predicted]),
            **_figures(self.judgements, clairvoyant.judgements, self.bounds,
                       overload_probability),
            'last_days': _figures(
                self.last_judgements, clairvoyant.last_judgements,
                self.last_bounds, overload_probability),
        }


def _figures(judgements, clairvoyant, bounds, limit):
    """Return the means of the measures, and ratios of host numbers."""
    figures, best = (_means([judged.figures(limit) for judged in of])
                     for of in (judgements, clairvoyant))
    fluid = {f'fluid_{name}': value for name, value in _means(
        [dataclasses.asdict(bound) for bound in bounds]).items()}
    return {
        **figures, **fluid,
        'hosts_relative': _ratio(figures['hosts'], best['hosts']),
        'hosts_mean_relative': _ratio(figures['hosts_mean'],
                                      best['hosts_mean']),
        'fluid_relative': _ratio(figures['host_hours'],
                                 fluid['fluid_within_limit'])}


def _means(rows):
    return {name: _mean([row[name] for row in rows if row[name] is not None])
            for name in rows[0]}


def _mean(values):
    return float(np.mean(values)) if len(values) else None


def _ratio(value, of):
    return value / of if of else None


def evaluate(case, methods, seeds=3, progress=None, half_life_days=0):
    """Replay a case in several random orders.

    :param seeds: number of orders; their seeds are 1, 2, ...
    :param half_life_days: age at which a sample counts half; 0: none ages
    :returns: {name: Result}, including the clairvoyant
    :raises InvalidInput: if there is nothing to learn from or to evaluate
    """
    limits = [(case.saturation_kbps, case.overload_probability)]
    return evaluate_limits(case, limits, methods, seeds, progress,
                           half_life_days)[0]


def evaluate_limits(case, limits: list, methods, seeds: int = 3, progress=None,
                    half_life_days: float = 0) -> list:
    """Replay a case with several limits, which share what is learned.

    :param case: ReplayCase, whose own limits are ignored
    :param limits: list of (saturation_kbps, overload_probability)
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
        methods, trace, begin, rates, seed + 1, histories, half_life_days)
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
        seconds = run.bin_seconds
        # Every method places the same instances at the same times.
        bounds = [measures.fluid_bound(
            run.packers[CLAIRVOYANT].stays, rates, run.capacity, seconds,
            run.limit, begin, *run.resources) for begin in run.begins(rates)]
        for name, result in results.items():
            packer = run.packers[name]
            moved = run.replays[name].migrations if name in run.replays \
                else measures.Migrations()
            judged, last = (measures.judge(
                packer.stays, rates, run.capacity, seconds, begin, moved)
                for begin in run.begins(rates))
            result.judgements.append(judged)
            result.last_judgements.append(last)
            result.bounds.append(bounds[0])
            result.last_bounds.append(bounds[1])
            result.predicted.append(
                np.asarray(packer.predicted(), dtype=float)[judged.hosts])
            result.refused.append(run.refused)
    return results


class _Run:
    """One random order: arrivals, and the placement by each method.

    :param rates: (V, T) kbit/s in the evaluated time
    :param histories: {what is known when: History} of the runs so far
    :ivar days: [(bin at which the methods learn, rows in order of arrival)]
    """

    def __init__(self, case, methods, trace, begin, rates, seed, histories,
                 half_life_days=0):
        self.capacity = case.saturation_kbps
        self.limit = case.overload_probability
        self.bin_seconds = trace.period_seconds
        self.resources = ()
        self.refused = 0
        count, bins = rates.shape
        generator = np.random.default_rng(seed)
        if case.protocol == STATIC:
            self.arrivals = np.zeros(count, dtype=np.int64)
            self.days = [(begin, generator.permutation(count))]
        else:
            self.arrivals = generator.integers(0, bins, count)
            self.days = _days(trace, begin, bins, self.arrivals)
        self.departures = np.full(count, packing.STAYS)
        if case.lifetime_days is not None:
            # Another generator: arrivals are the same with lifetimes.
            self.departures = self.arrivals + np.maximum(1, np.rint(
                np.random.default_rng((seed, 2)).exponential(
                    case.lifetime_days * traces.DAY_SECONDS
                    / self.bin_seconds, count))).astype(np.int64)
        known = np.full((2, count), [[begin], [trace.times.size]])
        if (case.protocol, case.history) == (ROLLING, ARRIVAL):
            known[0] += self.arrivals
            known[1] = np.minimum(known[1] - begin, self.departures) + begin
        key = known.tobytes()
        if key not in histories:
            history = traces.History(trace, begin, *known, half_life_days)
            moves = any(method.strategy for method in methods)
            # Missing samples of the trace count as no traffic, as in the
            # evaluation.
            histories[key] = history, history.delivered(
                _LONGEST_GAP_SECONDS if case.conditions.missing_share
                else 0.0) if moves else None
        self.history, delivered = histories[key]
        self.packers, self.replays = {}, {}
        for method in methods:
            packer = self.packers[method.name] = method.start(
                case.saturation_kbps, case.overload_probability)
            if method.strategy:
                self.replays[method.name] = closed_loop.FleetReplay(
                    packer, method.strategy(case.saturation_kbps,
                                            case.overload_probability),
                    closed_loop.TraceTraffic(
                        delivered, rates, (self.arrivals, self.departures),
                        trace.period_seconds), case.saturation_kbps,
                    case.conditions, np.random.default_rng((seed, 1)))
        self.packers[CLAIRVOYANT] = packing.Clairvoyant(
            rates, self.arrivals, self.departures, case.saturation_kbps,
            case.overload_probability)
        self.fits_host = np.ones(count, dtype=bool)
        if case.needs is not None:
            # An unlimited resource has no share that an instance uses.
            limited = np.isfinite(case.room)
            needs, room = case.needs[:, limited], np.array(case.room)[limited]
            self.fits_host = (needs <= room).all(axis=1)
            self.resources = needs, room
            for packer in self.packers.values():
                packer.limit_resources(needs, room)
        self.names = list(self.packers)

    def begins(self, rates):
        """Return the first bins of the evaluated time and of its last days."""
        return 0, max(0, rates.shape[1] - round(
            LAST_DAYS * traces.DAY_SECONDS / self.bin_seconds))

    def place(self, known, rows, end):
        """Learn, then place the instances of a day that are not refused.

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
        for name, packer in self.packers.items():
            if name in self.replays:
                continue
            packer.learn(known)
            for row in rows[fits].tolist():
                first = int(self.arrivals[row])
                packer.end_stays(first)
                packer.place(row, first, int(self.departures[row]))


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
