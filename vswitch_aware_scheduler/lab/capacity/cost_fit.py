# SPDX-License-Identifier: Apache-2.0
"""Fits the cost of a packet to measured rates of a switch.

:func:`fit_capacity` returns costs with confidence limits.
:func:`leave_one_out` predicts rates from the other rows of a table. Pure:
numpy only. Derivation: reference/capacity.rst.
"""

import dataclasses
import itertools
import math

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.capacity import cost_model

__all__ = ['CostPrediction', 'contradictions', 'covering_cost',
           'fit_capacity', 'fit_cpu', 'leave_one_out', 'median_error']

_ITERATIONS = 50

# Square of a negligible relative error, which keeps the criterion of an exact
# fit finite.
_EXACT = 1e-18


def fit_capacity(measurements: list, line_kbps: float | None = None,
                 framing_bytes: float = cost_model.ETHERNET_FRAMING_BYTES,
                 unit_bytes: float = 0.0):
    """Return the CapacityModel of a table, by least squares.

    The function minimises the sum of squared relative errors and determines
    which level limited which row. Costs are never negative. Derivation:
    reference/capacity.rst, "Least squares".

    :param measurements: iterable of one or more Measurement. If all have the
        same number of pairs, the sender cannot be distinguished from the
        switch and counts as the switch; the same applies to flows
    :param line_kbps: rate of the line, or None if it was no limit
    :param framing_bytes: number of bytes that the line adds to a packet
    :raises InvalidModel: if there is no row, or if an option is out of range
    """
    rows = list(measurements)
    if not rows:
        raise exceptions.InvalidModel(
            'table of measurements: no row; expected 1 or more')
    for name, value, kind in (
            ('line_kbps', line_kbps, checks.number(above=True, default=None)),
            ('framing_bytes', framing_bytes, checks.number()),
            ('unit_bytes', unit_bytes, checks.number())):
        cost_model.check(name, value, kind)
    table = _Table(rows, line_kbps, framing_bytes, unit_bytes)
    best = None
    for start in table.starts():
        solution = table.descend(start)
        if best is None or solution.criterion < best.criterion - 1e-9:
            best = solution
    return table.model(best)


@dataclasses.dataclass
class _Solution:
    costs: dict    # level -> (a by encapsulation and b, which were measured)
    criterion: float


class _Table:
    """The rows of a fit as arrays."""

    def __init__(self, rows, line_kbps, framing_bytes, unit_bytes):
        size = np.array([float(row.packet_bytes) for row in rows])
        self.names = sorted({row.encapsulation for row in rows},
                            key=list(cost_model.HEADER_BYTES).index)
        self.time = np.array([row.packet_us for row in rows])
        self.line_kbps, self.framing_bytes = line_kbps, framing_bytes
        self.unit_bytes = float(unit_bytes)
        pairs = np.array([row.pairs for row in rows], dtype=float)
        flows = pairs * [row.flows for row in rows]
        self.counts = {'flow': flows, 'sender': pairs,
                       'switch': np.ones(len(rows))}
        design = np.zeros((len(rows), len(self.names) + 1))
        for i, row in enumerate(rows):
            design[i, self.names.index(row.encapsulation)] = \
                size[i] / max(size[i], unit_bytes)
        design[:, -1] = size / 1e3
        self.design, self.size = design, size
        # A level with the same count in all rows, or always the count of the
        # next level, cannot be distinguished from the next level.
        self.levels = ['switch']
        if np.ptp(pairs) > 0:
            self.levels.insert(0, 'sender')
        if (flows != pairs).any():
            self.levels.insert(0, 'flow')
        self.line = np.zeros(len(rows))
        if line_kbps is not None:
            self.line = np.array([
                8e3 * row.packet_bytes / cost_model.line_rate_kbps(
                    line_kbps, row.packet_bytes, row.encapsulation,
                    framing_bytes) for row in rows])

    def starts(self):
        """Yield initial assignments of rows to levels."""
        choices = []
        for level in self.levels[:-1]:
            values = np.unique(self.counts[level])
            if values.size > 8:
                values = np.unique(np.quantile(
                    values, np.linspace(0, 1, 8), method='nearest'))
            choices.append([0.0, *values])
        for thresholds in itertools.product(*choices):
            start = np.full(self.time.size, len(self.levels) - 1)
            for number in reversed(range(len(thresholds))):
                level = self.levels[number]
                start[self.counts[level] <= thresholds[number]] = number
            yield start

    def descend(self, assignment):
        """Alternate between solving for costs and assigning rows to levels."""
        best, assignments_seen = None, set()
        for _ in range(_ITERATIONS):
            key = assignment.tobytes()
            if key in assignments_seen:
                break
            assignments_seen.add(key)
            costs = self._solve(assignment)
            times = self._times(costs)
            assignment = times.argmax(axis=1)
            slowest = times[np.arange(self.time.size), assignment]
            squares = float((np.log(slowest / self.time) ** 2).sum())
            count = self.time.size
            free = sum(np.count_nonzero(parameters)
                       for parameters, _ in costs.values())
            # Bayesian information criterion: another level has to justify its
            # parameters.
            criterion = count * math.log(squares / count + _EXACT) \
                + free * math.log(max(count, 2))
            if best is None or criterion < best.criterion:
                best = _Solution(costs, criterion)
        return best

    def _solve(self, assignment):
        costs = {}
        for number, level in enumerate(self.levels):
            chosen = assignment == number
            if not chosen.any():
                continue
            design = self.design[chosen] / \
                self.counts[level][chosen, None]
            target = self.time[chosen]
            # One packet size does not determine the cost of a byte.
            measured = design.any(axis=0)
            usable = measured.copy()
            if np.ptp(self.size[chosen]) == 0 or (
                    np.count_nonzero(chosen) < np.count_nonzero(usable)):
                usable[-1] = False
            weight = 1 / target
            for _ in range(5):
                parameters = _non_negative(
                    design * weight[:, None], target * weight, usable)
                # Weights from measured times would include their errors.
                weight = 1 / np.maximum(design @ parameters, 1e-3 * target)
            costs[level] = parameters, measured
        return costs

    def _times(self, costs):
        # (rows, levels and the line); 0 for an unknown cost of a level.
        columns = []
        for level in self.levels:
            if level in costs:
                # If a level limits no row of an encapsulation, its cost is 0.
                parameters, measured = costs[level]
                columns.append(np.where(
                    self.design[:, :-1] @ measured[:-1] > 0,
                    self.design @ parameters, 0.0) / self.counts[level])
            else:
                columns.append(np.zeros(self.time.size))
        return np.column_stack([*columns, self.line])

    def model(self, solution):
        times = self._times(solution.costs)
        rows = np.arange(self.time.size)
        assignment = times.argmax(axis=1)
        slowest = times[rows, assignment]
        squares = float(((slowest / self.time - 1) ** 2).sum())
        # A level that limits no row cannot be estimated: it is no limit.
        blocks = {}
        for number, level in enumerate(self.levels):
            chosen = assignment == number
            if level in solution.costs and chosen.any():
                design = self.design[chosen] / (
                    self.counts[level] * slowest)[chosen, None]
                measured = design.any(axis=0)
                if np.ptp(self.size[chosen]) == 0:
                    measured[-1] = False
                blocks[level] = design, measured
        freedom = int(self.time.size - sum(
            min(np.count_nonzero(measured), len(design))
            for design, measured in blocks.values()))
        deviation = math.sqrt(squares / freedom) if freedom > 0 else 0.0
        costs = {}
        for level, (design, measured) in blocks.items():
            covariance = np.full((measured.size, measured.size), np.inf)
            if freedom > 0:
                covariance[np.ix_(measured, measured)] = _covariance(
                    design[:, measured], deviation)
            kept = [*np.flatnonzero(measured[:-1]), measured.size - 1]
            parameters = solution.costs[level][0]
            costs[level] = cost_model.PacketCost(
                {self.names[i]: float(parameters[i]) for i in kept[:-1]},
                float(parameters[-1]), covariance[np.ix_(kept, kept)],
                len(design), freedom)
        return cost_model.CapacityModel(
            *(costs.get(level) for level in cost_model.LEVELS), self.line_kbps,
            self.framing_bytes, self.unit_bytes, deviation, freedom)


def _covariance(design, deviation):
    # The parameters differ by orders of magnitude: scale before inverting.
    scale = np.linalg.norm(design, axis=0)
    scaled = design / scale
    if np.linalg.matrix_rank(scaled) < scaled.shape[1]:
        return np.full((scale.size, scale.size), np.inf)
    inverse = np.linalg.inv(scaled.T @ scaled)
    return deviation ** 2 * inverse / np.outer(scale, scale)


def _non_negative(design, target, usable):
    """Return the least squares solution with all parameters >= 0.

    The solution is exact for the small number of parameters: the best of all
    choices of parameters that are 0, starting with few zeros.
    """
    best_solution, least_squares = np.zeros(design.shape[1]), math.inf
    columns = np.flatnonzero(usable)
    for zeros in range(columns.size):
        for kept in itertools.combinations(columns, columns.size - zeros):
            part = design[:, kept]
            solution = np.linalg.lstsq(part, target, rcond=None)[0]
            if (solution < 0).any():
                continue
            squares = float(((part @ solution - target) ** 2).sum())
            if squares < least_squares:
                least_squares = squares
                best_solution = np.zeros(design.shape[1])
                best_solution[list(kept)] = solution
        if zeros == 0 and least_squares < math.inf:
            break
    return best_solution


@dataclasses.dataclass(frozen=True)
class CostPrediction:
    """A measurement, and its prediction from the rest of the table.

    :ivar predicted: predicted value in ``unit``, or None if the rest of the
        table is not sufficient
    """

    measurement: cost_model.Measurement
    measured: float
    predicted: float | None
    unit: str = 'kbit/s'

    @property
    def error(self):
        """Relative error with sign, or None without a prediction."""
        if self.predicted is None:
            return None
        return self.predicted / self.measured - 1


def leave_one_out(measurements, key='packet_bytes', **options):
    """Return a CostPrediction of each row by the rows with another ``key``.

    :param key: attribute of a Measurement; rows with one value are left out
        together
    """
    rows = list(measurements)
    predictions = {}
    for value in dict.fromkeys(getattr(row, key) for row in rows):
        other_rows = [row for row in rows if getattr(row, key) != value]
        model = fit_capacity(other_rows, **options) if other_rows else None
        for i, row in enumerate(rows):
            if getattr(row, key) != value:
                continue
            predicted = None
            if model is not None:
                try:
                    predicted = model.rate_kbps(
                        row.packet_bytes, row.pairs, row.flows,
                        row.encapsulation)
                except exceptions.InvalidModel:
                    # Only the rows that were left out have this encapsulation.
                    pass
            predictions[i] = CostPrediction(row, row.rate_kbps, predicted)
    return [predictions[i] for i in range(len(rows))]


def median_error(predictions: list) -> float | None:
    """Return the median of the absolute relative errors, or None."""
    errors = [abs(prediction.error) for prediction in predictions
              if prediction.error is not None]
    return float(np.median(errors)) if errors else None


def contradictions(measurements: list, tolerance: float = 0.05):
    """Return sentences about rows that no switch can produce.

    A larger packet cannot take less time than a smaller one, and more pairs or
    flows cannot have a lower rate, each by more than ``tolerance``. The second
    case occurs if a switch is overloaded; no cost explains it.
    """
    rows = list(measurements)
    sentences = []

    def place(row):
        return (f'{row.packet_bytes:g} bytes, {row.pairs} pairs, '
                f'{row.flows} flows each, encapsulation {row.encapsulation}')

    for first, second in itertools.permutations(rows, 2):
        if first.setting == second.setting \
                and first.packet_bytes < second.packet_bytes \
                and first.packet_us > second.packet_us * (1 + tolerance):
            sentences.append(
                f'{place(first)}: {first.packet_us:.3g} us a packet, but '
                f'{second.packet_us:.3g} us at {second.packet_bytes:g} bytes')
        elif first.packet_bytes == second.packet_bytes \
                and first.encapsulation == second.encapsulation \
                and first.pairs <= second.pairs \
                and first.flows <= second.flows \
                and first.setting != second.setting \
                and first.rate_kbps > second.rate_kbps * (1 + tolerance):
            sentences.append(
                f'{place(first)}: {first.rate_kbps:.15g} kbit/s, but '
                f'{second.rate_kbps:.15g} kbit/s with {second.pairs} pairs, '
                f'{second.flows} flows each')
    return sentences


def covering_cost(measurements: list) -> tuple:
    """Return the lowest cost (a, b) with which no row is exceeded.

    A packet of x bytes takes at most the time of the fastest row with at
    least x bytes. Of all costs a + b*x, a and b >= 0, that are at least this
    time at each measured size, the function returns the one with the smallest
    sum of ratios to these times. Derivation: reference/capacity.rst,
    "Covering costs".

    :returns: (a in microseconds, b in nanoseconds)
    """
    fastest = {}
    for row in measurements:
        size = float(row.packet_bytes)
        fastest[size] = min(row.packet_us, fastest.get(size, math.inf))
    sizes = np.array(sorted(fastest))
    times = np.minimum.accumulate(
        np.array([fastest[size] for size in sizes])[::-1])[::-1]
    # An optimum of a linear programme lies in a corner: a line through two
    # points, or one with a = 0 or b = 0.
    lines = [(times.max(), 0.0), (0.0, (times / sizes).max())]
    for i, j in itertools.combinations(range(sizes.size), 2):
        slope = (times[j] - times[i]) / (sizes[j] - sizes[i])
        lines.append((times[i] - slope * sizes[i], slope))
    covering = [(a, b) for a, b in lines if a >= 0 and b >= 0
                and (a + b * sizes >= times * (1 - 1e-9)).all()]
    a, b = min(covering,
               key=lambda line: ((line[0] + line[1] * sizes) / times).sum())
    return float(a), float(b * 1e3)


def fit_cpu(measurements: list, idle_mhz: float = 0.0, senders=False):
    """Return the CpuCost of the rows with ``cpu_mhz``.

    Derivation: reference/capacity.rst, "CPU".

    :raises InvalidModel: if no row has a value above ``idle_mhz``
    """
    cost_model.check('idle_mhz', idle_mhz, checks.number())
    rows = [row for row in measurements if row.cpu_mhz is not None]
    if not rows:
        raise exceptions.InvalidModel(
            'table of measurements: no row with cpu_mhz; expected 1 or '
            'more')
    total = np.array([float(row.cpu_mhz) for row in rows])
    if (total <= idle_mhz).all():
        raise exceptions.InvalidModel(
            f'cpu_mhz is at most {total.max():g}; expected more than the '
            f'{idle_mhz:g} of the idle host')
    design = np.array([[row.pairs, row.kpps, row.rate_kbps / 1e3]
                       for row in rows])
    usable = np.array([senders, not senders or len(rows) > 2,
                       len(rows) > 1
                       and len({row.packet_bytes for row in rows}) > 1])
    costs = _non_negative(design / total[:, None],
                          (total - idle_mhz) / total, usable)
    errors = (design @ costs + idle_mhz) / total - 1
    freedom = len(rows) - np.count_nonzero(costs)
    deviation = math.sqrt(float((errors ** 2).sum()) / freedom) \
        if freedom else 0.0
    return cost_model.CpuCost(float(idle_mhz), *map(float, costs), deviation)
