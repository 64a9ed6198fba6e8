# SPDX-License-Identifier: Apache-2.0
"""The sum of many independent traffic models compared with one capacity.

Quantifies equation 3 of "Towards a Method Integrating Virtual Switch
Performance Into Data Centre Design", BW_out = min(sum of VM_i, saturation):
how often the sum exceeds the capacity, how much traffic is lost, and how often
and for how long. Pure; no clock, no configuration, no I/O. Derivation:
reference/model.rst.
"""

from __future__ import annotations

from collections import abc
import functools
import math
import typing

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import exact_sum
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import model

__all__ = ['Superposition']

#: If there are too many sums to keep all exactly, the grid up to the capacity
#: has this number of cells for each source, because the rounding errors of
#: sources add up; but at least and at most the numbers below.
_CELLS_PER_SOURCE = 64
_LEAST_CELLS, _MOST_CELLS = 8192, 65536

#: Largest grid on which rates with a common divisor are added exactly.
_MAX_EXACT_CELLS = 65536


_Law: typing.TypeAlias = exact_sum.AtomSum | exact_sum.LatticeSum
_Laws: typing.TypeAlias = tuple[_Law, _Law]
_Dimension: typing.TypeAlias = str | abc.Sequence[float]


class Superposition:
    """Independent traffic models that share one capacity.

    This is the reference calculation for tests and comparisons.
    :mod:`..admission` admits instances to hosts.

    Few or commensurable rates are added exactly. Otherwise, sums are kept on a
    grid, and rates are rounded up (each state by at most one cell, the lowest
    level not at all). The overload probability, certified by :meth:`bounds`,
    and the loss are then upper bounds. The episodes are not bounds: they
    describe the rounded rates, which may enter overload more or less often and
    for longer or shorter.

    Models are treated as independent: their samples at the instants are not
    used.

    :param capacity: finite and > 0: kbit/s, or kilo-packets/s for 'packets'
    :param dimension: a key of :data:`model.DIMENSIONS`, or three weights >= 0
        of (egress_kbps, ingress_kbps, kpps)
    :param cells: number of grid cells, a whole number > 0; None chooses a
        number by the number of models
    :raises InvalidModel: if an argument is invalid, or if the dimension is
        'packets' and a model has no packet rates
    """

    def __init__(
            self, models: abc.Iterable[model.TrafficModel], capacity: float,
            dimension: _Dimension = 'bandwidth',
            cells: int | None = None) -> None:
        self.models = tuple(models)
        self.capacity = exact_sum.require_capacity(capacity)
        self.dimension = dimension
        self._stated_cells = cells
        self._cells = _require_cells(cells, len(self.models))
        self._weights = _weights_of(dimension)
        for position, source in enumerate(self.models):
            self._require_model(source, position)
        self._levels = [source.levels(self._weights) for source in self.models]
        # Narrow laws first, so that sums stay short for most of the work.
        self._order = sorted(range(len(self._levels)),
                             key=lambda i: self._levels[i][0][-1])

    def _require_model(self, candidate: object, position: object) -> None:
        if not isinstance(candidate, model.TrafficModel):
            raise exceptions.InvalidModel(
                thing=f'model {position} of the overlay',
                seen=f'a {type(candidate).__name__}',
                expected='a TrafficModel')
        if self._weights[2] and not candidate.packets_known:
            raise exceptions.InvalidModel(
                thing=f'packet rates of model {position} of the overlay',
                value=None, expected=f'kpps for dimension {self.dimension!r} '
                '(see TrafficModel.with_packets)')

    # The laws of the sum: exact, or a pair of bounds.

    @functools.cached_property
    def _empty_laws(self) -> _Laws:
        """(upper, lower) laws of no traffic, of a kind that fits the models.

        Both are the same object if the law is exact.
        """
        distinct = 1
        for values, _ in self._levels:
            distinct *= values.size
            if distinct > 4096:
                break
        else:
            return (exact_sum.AtomSum(self.capacity),) * 2
        step = self._common_step()
        if step is not None:
            return (exact_sum.LatticeSum(self.capacity, step),) * 2
        step = self.capacity / self._cells
        return (exact_sum.LatticeSum(self.capacity, step, round_up=True),
                exact_sum.LatticeSum(self.capacity, step, round_up=False))

    def _common_step(self) -> float | None:
        """Return a grid step of which all levels are multiples, or None."""
        above = np.concatenate([values[1:] - values[0]
                                for values, _ in self._levels])
        thousandths = np.rint(above * 1000.0)
        if (thousandths > 2 ** 53).any() or not np.allclose(
                thousandths, above * 1000.0, rtol=1e-13, atol=1e-7):
            return None
        step = np.gcd.reduce(thousandths.astype(np.int64)) / 1000.0
        if self.capacity / step > _MAX_EXACT_CELLS:
            return None
        # Otherwise the lattice would round these levels up by a whole step.
        cells = above[above <= self.capacity] / step
        if (np.abs(cells - np.rint(cells)) > fourier_sum.TOLERANCE).any():
            return None
        return step

    @functools.cached_property
    def _laws(self) -> _Laws:
        """(upper, lower) laws of the sum; the same object if it is exact."""
        return self._overlay(self._order, self._empty_laws)

    def _overlay(self, members: list[int], laws: _Laws) -> _Laws:
        upper, lower = laws
        exact = upper is lower
        for i in members:
            upper = upper.plus(*self._levels[i])
            lower = upper if exact else lower.plus(*self._levels[i])
        return upper, lower

    # Questions.

    @functools.cached_property
    def mean(self) -> float:
        """Long-run mean of the sum, in units of the capacity."""
        return math.fsum(float(values @ masses)
                         for values, masses in self._levels)

    @property
    def exact(self) -> bool:
        """Whether the results are exact, not bounds of a grid."""
        return self._empty_laws[0] is self._empty_laws[1]

    def overload_probability(self) -> float:
        """Return P(sum > capacity), in [0, 1].

        The result is exact, or the upper end of :meth:`bounds`. A sum within
        1e-9 of the capacity counts as equal to it, and therefore not as above
        it.
        """
        return _probability(self._laws[0].overflow)

    def bounds(self) -> tuple[float, float]:
        """Return (low, high), between which P(sum > capacity) certainly is.

        If the sum is exact, both are the probability, up to rounding errors of
        float64.
        """
        high = self.overload_probability()
        # Two nearly equal numbers may be in the wrong order by rounding.
        return min(_probability(self._laws[1].overflow), high), high

    def loss_fraction(self) -> float:
        """Return E[(sum - capacity)+] / E[sum], in [0, 1]; 0 without traffic.

        This is the share of the traffic that equation 3 cuts off.
        """
        if self.mean == 0:
            return 0.0
        # The loss is computed from rates rounded up, and may exceed the mean.
        return _probability(min(self._laws[0].excess / self.mean, 1.0))

    def overload_probability_with(self,
                                  candidate: model.TrafficModel) -> float:
        """Return P(sum + candidate > capacity) without a new superposition."""
        self._require_model(candidate, 'to add')
        values, masses = candidate.levels(self._weights)
        # The candidate's levels are not rounded. The tail of rates rounded up
        # is an upper bound for any threshold.
        return _probability(float(
            masses @ self._laws[0].tail(self.capacity - values)))

    def with_model(self, candidate: model.TrafficModel) -> Superposition:
        """Return the Superposition with an additional model."""
        return Superposition(self.models + (candidate,), self.capacity,
                             self.dimension, self._stated_cells)

    def without(self, position: int) -> Superposition:
        """Return the Superposition without one of its models.

        It is computed from the beginning, because deconvolution is unstable.
        """
        models = list(self.models)
        del models[position]
        return Superposition(models, self.capacity, self.dimension,
                             self._stated_cells)

    def episodes_per_second(self) -> float:
        """Return how often per second the sum rises above the capacity.

        Every upward jump of one source counts if the sum of the others is
        within the capacity before the jump and above it after the jump.
        Derivation: reference/model.rst, "Episodes".
        """
        return math.fsum(self._episode_terms(
            self._order, self._empty_laws[:1] * 2))

    def _episode_terms(self, members, laws):
        # The law of all but one, for each one: halve the members, add one
        # half, continue with the other half. This takes n log n instead of n *
        # n additions.
        if not members:
            return
        if len(members) == 1:
            yield from self._crossings(members[0], laws[0])
            return
        middle = len(members) // 2
        for inside, outside in ((members[:middle], members[middle:]),
                                (members[middle:], members[:middle])):
            yield from self._episode_terms(
                inside, self._overlay(outside, laws))

    def _crossings(self, i: int, others: _Law) -> abc.Iterator[float]:
        source = self.models[i]
        visited = np.flatnonzero(source.stationary > 0)
        jump = source.jump[np.ix_(visited, visited)]
        leave = (source.stationary / source.sojourn_seconds)[visited]
        # Rounded as in the sum, so that overload is entered as often as it is
        # left.
        rates = others.rounded(source.rates[visited] @ self._weights)
        for s in range(visited.size):
            for t in np.flatnonzero((rates > rates[s]) & (jump[s] > 0)):
                yield float(leave[s] * jump[s, t] * others.between(
                    self.capacity - rates[t], self.capacity - rates[s]))

    def mean_episode_seconds(self) -> float:
        """Return the mean length of an overload episode; 0 if there are none.

        :raises InvalidModel: if the sum is always above the capacity
        """
        probability = self.overload_probability()
        if probability == 0:
            return 0.0
        rate = self.episodes_per_second()
        if rate == 0:
            raise exceptions.InvalidModel(
                thing=f'overlay of {len(self.models)} models',
                seen=f'overloaded all the time (probability {probability:g})',
                expected='sources that are below the capacity '
                f'{self.capacity:g} at some time')
        return probability / rate


def _require_cells(cells: int | None, sources: int) -> int:
    return checks.check(
        'number of grid cells', cells, checks.whole(default=min(
            _MOST_CELLS, max(_LEAST_CELLS, _CELLS_PER_SOURCE * sources))),
        exceptions.InvalidModel)


def _weights_of(dimension: _Dimension) -> np.ndarray:
    if isinstance(dimension, str):
        return model.dimension_weights(dimension)
    try:
        weights = np.array(dimension, dtype=float)
    except (TypeError, ValueError, OverflowError):
        weights = np.zeros(0)
    if weights.shape != (3,) or not np.isfinite(weights).all() \
            or (weights < 0).any():
        raise exceptions.InvalidModel(
            thing='dimension', value=dimension, expected='one of '
            f'{", ".join(model.DIMENSIONS)} or three weights >= 0')
    return weights


def _probability(value: float) -> float:
    # Rounding may result in slightly more than 1. Anything else is a defect.
    if not -1e-12 <= value <= 1 + 1e-9:
        raise exceptions.InvalidModel(thing='probability of an overlay',
                                      value=value, expected='0..1')
    return float(min(max(value, 0.0), 1.0))
