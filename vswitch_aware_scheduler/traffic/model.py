# SPDX-License-Identifier: Apache-2.0
"""The traffic model of one instance: a semi-Markov chain with n states.

The chain and its on/off special case are equations 2 and 1 of "Towards a
Method Integrating Virtual Switch Performance Into Data Centre Design". Pure;
no clock, no configuration, no I/O.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing

import numpy as np
from numpy import typing as npt

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['DIMENSIONS', 'FORMAT_VERSION', 'LEAST_CAPACITY', 'TrafficModel',
           'dimension_weights', 'visits']

#: Dimensions of a capacity: weights of (egress_kbps, ingress_kbps, kpps).
#: 'bandwidth' is the sum of both directions, which a software switch is
#: limited by.
DIMENSIONS = {
    'egress': (1.0, 0.0, 0.0),
    'ingress': (0.0, 1.0, 0.0),
    'bandwidth': (1.0, 1.0, 0.0),
    'packets': (0.0, 0.0, 1.0),
}

_DIMENSION = checks.one_of(DIMENSIONS)

#: Smallest capacity in computations, in any unit. It replaces a limit of 0, so
#: that an instance with any traffic is above the limit.
LEAST_CAPACITY = 1e-6

#: Version of :meth:`TrafficModel.to_dict`.
FORMAT_VERSION = 2

_TOLERANCE = 1e-9


def dimension_weights(dimension: str) -> np.ndarray:
    """Return the weights of a dimension.

    :returns: (3,) float64, weights of 1 kbit/s of egress, 1 kbit/s of ingress
        and 1 kilo-packet/s
    :raises InvalidModel: if the dimension is unknown
    """
    return np.array(DIMENSIONS[checks.check(
        'dimension', dimension, _DIMENSION, exceptions.InvalidModel)])


def _invalid(name: str, value: object, expected: object) -> typing.NoReturn:
    raise exceptions.InvalidModel(thing=f'traffic model: {name}', seen=value,
                                  expected=expected)


def visits(jump: np.ndarray) -> np.ndarray:
    """Return the stationary laws of embedded chains.

    Uses state reduction (Grassmann, Taksar and Heyman), which has no
    subtraction and therefore keeps the relative accuracy of every entry.

    :param jump: (V, n, n) jump probabilities of chains that reach every state
        from every other; a chain with fewer states is padded with rows and
        columns of zeros
    """
    a = np.array(jump)
    n = a.shape[1]
    for k in range(n - 1, 0, -1):
        exits = a[:, k, :k].sum(axis=1)
        a[:, :k, k] /= np.where(exits > 0, exits, 1.0)[:, None]
        a[:, :k, :k] += a[:, :k, k, None] * a[:, k, None, :k]
    law = np.ones(a.shape[:2])
    for k in range(1, n):
        law[:, k] = (law[:, :k] * a[:, :k, k]).sum(axis=1)
    return law / law.sum(axis=1, keepdims=True)


@dataclasses.dataclass(frozen=True, eq=False)
class TrafficModel:
    """States of traffic, the transitions between them and their durations.

    :param sojourn_seconds: (n,) mean time spent in each state, > 0
    :param rates: (n, 3) finite and >= 0: egress_kbps, ingress_kbps, kpps of
        each state. If kpps is 0 in every state of a model with bandwidth, the
        packet rate is unknown (:attr:`packets_known`).
    :param jump: (n, n) probability that state i is followed by state j; zero
        diagonal, rows sum to 1 within 1e-9. A model with one state has [[0]].
        The chain must have a single closed class of states, so that the
        long-run law is unique. States that are left forever get probability 0.
    :param at_instants: (504,) uint8, number of the state at each of the
        instants, by position in the ring (:mod:`.instants`);
        :data:`.instants.DRAWN` is added to states that were drawn. At most 32
        states. None if the instance counts as independent of others
    :raises InvalidModel: if an argument is invalid
    """

    rates: np.ndarray
    jump: np.ndarray
    sojourn_seconds: np.ndarray
    at_instants: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ('rates', 'jump', 'sojourn_seconds'):
            try:
                array = np.array(getattr(self, name), dtype=float)
            except (TypeError, ValueError, OverflowError):
                _invalid(name, repr(getattr(self, name))[:80],
                         'an array of numbers')
            if not np.isfinite(array).all():
                _invalid(name, 'not finite', 'finite numbers')
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.rates.ndim != 2 or self.rates.shape[1:] != (3,) \
                or not self.rates.size:
            _invalid('the shape of rates', self.rates.shape, '(n, 3), n >= 1')
        n = self.rates.shape[0]
        if self.jump.shape != (n, n):
            _invalid('the shape of jump', self.jump.shape, f'({n}, {n})')
        if self.sojourn_seconds.shape != (n,):
            _invalid('the shape of sojourn_seconds',
                     self.sojourn_seconds.shape, f'({n},)')
        for name, lowest in (('rates', 0), ('jump', 0),
                             ('sojourn_seconds', np.nextafter(0, 1))):
            least = getattr(self, name).min()
            if least < lowest:
                _invalid(f'the smallest of {name}', least,
                         '> 0' if lowest else '>= 0')
        if self.jump.diagonal().any():
            _invalid('the diagonal of jump', self.jump.diagonal().tolist(),
                     'zero')
        errors = abs(self.jump.sum(axis=1) - 1)
        if n > 1 and (errors > _TOLERANCE).any():
            worst = int(np.argmax(errors))
            _invalid(f'the sum of row {worst} of jump',
                     self.jump[worst].sum(), '1 within 1e-9')
        self._embedded  # noqa: B018, a chain without a single law is refused
        self._require_instants()

    def _require_instants(self) -> None:
        if self.at_instants is None:
            return
        try:
            rows = np.array(self.at_instants)
        except (TypeError, ValueError, OverflowError):
            rows = np.array(None)
        most = min(len(self.rates), rate_law.MOST_ROWS) - 1
        if len(self.rates) > rate_law.MOST_ROWS \
                or rows.shape != (sampled.INSTANTS,) \
                or rows.dtype.kind not in 'iu' or (rows < 0).any() \
                or (rows % sampled.DRAWN > most).any() \
                or (rows >= 2 * sampled.DRAWN).any():
            _invalid('at_instants', repr(self.at_instants)[:80],
                     f'{sampled.INSTANTS} numbers of states 0..{most}, '
                     f'{sampled.DRAWN} more if drawn, and at most '
                     f'{rate_law.MOST_ROWS} states')
        rows = rows.astype(np.uint8)
        rows.flags.writeable = False
        object.__setattr__(self, 'at_instants', rows)

    @classmethod
    def of_fit(cls, rates: np.ndarray, jump: np.ndarray,
               sojourn_seconds: np.ndarray, stationary: np.ndarray,
               at_instants: np.ndarray | None = None) -> typing.Self:
        """Return the model of arrays that are known to be valid.

        The method validates and computes nothing, because estimation creates
        very many models.

        :param stationary: (n,) long-run law, which has to be consistent with
            the other arrays
        """
        self = object.__new__(cls)
        # Set the attributes directly, because the dataclass is frozen.
        for name, array in (
                ('rates', rates), ('jump', jump),
                ('sojourn_seconds', sojourn_seconds),
                ('stationary', stationary), ('at_instants', at_instants)):
            if array is not None:
                array = array.copy()
                array.flags.writeable = False
            self.__dict__[name] = array
        return self

    @classmethod
    def on_off(cls, egress_kbps: float = 0.0, ingress_kbps: float = 0.0,
               kpps: float = 0.0, *, on_seconds: float,
               off_seconds: float) -> typing.Self:
        """Return the two-state model of equation 1."""
        return cls(
            np.array([[0.0, 0.0, 0.0], [egress_kbps, ingress_kbps, kpps]]),
            np.array([[0.0, 1.0], [1.0, 0.0]]),
            np.array([off_seconds, on_seconds]))

    @classmethod
    def constant(cls, egress_kbps: float = 0.0, ingress_kbps: float = 0.0,
                 kpps: float = 0.0) -> typing.Self:
        """Return the model with one state, that is, a constant rate."""
        return cls(np.array([[egress_kbps, ingress_kbps, kpps]]),
                   np.zeros((1, 1)), np.ones(1))

    @functools.cached_property
    def _embedded(self) -> np.ndarray:
        # Stationary law of the embedded chain: share of visits to each state.
        # Transient states are removed first: they get exactly 0.
        n = self.rates.shape[0]
        if n == 1:
            return np.ones(1)
        reach = (self.jump > 0) | np.eye(n, dtype=bool)
        for _ in range(max(1, math.ceil(math.log2(n)))):
            reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
        # A state is recurrent if every state that it reaches also reaches it.
        recurrent = (~reach | reach.T).all(axis=1)
        members = np.flatnonzero(recurrent)
        if not reach[np.ix_(members, members)].all():
            _invalid('jump', 'a chain with several closed classes of states',
                     'a chain with one, so that the long-run law is unique')
        law = visits(self.jump[np.ix_(members, members)][None])[0]
        law_of_all = np.zeros(n)
        law_of_all[members] = law
        return law_of_all

    @functools.cached_property
    def stationary(self) -> np.ndarray:
        """(n,) long-run share of time in each state; sums to 1.

        The visits of the embedded chain, weighted by the mean sojourn times.
        Derivation: reference/model.rst, "Stationary law".
        """
        law = self._embedded * (self.sojourn_seconds
                                / self.sojourn_seconds.max())
        law = law / law.sum()
        if not np.isfinite(law).all():
            _invalid('the stationary law', law.tolist(), 'finite: jump '
                     'probabilities or sojourn times are too far apart')
        law.flags.writeable = False
        return law

    @functools.cached_property
    def law(self) -> rate_law.RateLaw:
        """The :class:`RateLaw` of the states with a positive probability."""
        visited, rows = self.stationary > 0, self.at_instants
        if rows is not None and not visited.all():
            # A state that is left forever was drawn by nobody.
            number = np.maximum(np.cumsum(visited) - 1, 0)
            rows = number[rows % sampled.DRAWN] + (
                rows & sampled.DRAWN)
        return rate_law.RateLaw.from_arrays(
            self.stationary[visited], self.rates[visited], rows)

    @property
    def mean(self) -> np.ndarray:
        """(3,) long-run mean of egress_kbps, ingress_kbps and kpps."""
        return self.law.mean

    @property
    def peak(self) -> np.ndarray:
        """(3,) largest rate of any state that occurs, by column."""
        return self.law.peak

    @property
    def sampled_instants(self) -> int:
        """Number of instants at which the instance was sampled."""
        return 0 if self.at_instants is None else int(np.count_nonzero(
            self.at_instants < sampled.DRAWN))

    @property
    def packets_known(self) -> bool:
        """Whether the packet rate is known; not with bandwidth but kpps 0."""
        return self.law.packets_known

    def with_packets(self, packet_bytes: float) -> TrafficModel:
        """Return this model with packet rates computed from a packet size.

        :param packet_bytes: mean packet size in bytes, > 0
        """
        if self.packets_known:
            return self
        if not packet_bytes > 0:
            _invalid('packet_bytes', packet_bytes, '> 0')
        rates = self.rates.copy()
        rates[:, 2] = (rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
        return dataclasses.replace(self, rates=rates)

    def levels(self, weights: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the law of a linear function of the rates.

        :param weights: (3,) >= 0, see :data:`DIMENSIONS`
        :returns: (values, probabilities), both (m,), m <= n: distinct values
            in increasing order, probabilities > 0 that sum to 1
        """
        law = self.law
        values, where = np.unique(law.values(weights), return_inverse=True)
        return values, np.bincount(where, weights=law.probabilities)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrafficModel):
            return NotImplemented
        return all(np.array_equal(getattr(self, field.name),
                                  getattr(other, field.name))
                   for field in dataclasses.fields(self))

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, typing.Any]:
        """Return the model as lists and numbers, for JSON.

        Keys: format_version, rates, jump, sojourn_seconds; and at_instants, in
        hexadecimal, if the instance was sampled.
        """
        data = {'format_version': FORMAT_VERSION,
                'rates': self.rates.tolist(),
                'jump': self.jump.tolist(),
                'sojourn_seconds': self.sojourn_seconds.tolist()}
        if self.at_instants is not None:
            data['at_instants'] = self.at_instants.tobytes().hex()
        return data

    @classmethod
    def from_dict(cls, data: dict[str, typing.Any]) -> typing.Self:
        """Return the model of a dictionary that :meth:`to_dict` returned.

        :raises InvalidModel: if a key is missing or the format version differs
        """
        try:
            version = data['format_version']
            arrays = data['rates'], data['jump'], data['sojourn_seconds']
            at_instants = data.get('at_instants')
        except (AttributeError, KeyError, TypeError) as error:
            _invalid('its dictionary', f'without {error}',
                     'format_version, rates, jump and sojourn_seconds')
        if version != FORMAT_VERSION:
            _invalid('format_version', version, FORMAT_VERSION)
        if at_instants is not None:
            try:
                at_instants = np.frombuffer(
                    bytes.fromhex(at_instants), np.uint8)
            except (TypeError, ValueError):
                _invalid('at_instants', repr(at_instants)[:80],
                         f'{2 * sampled.INSTANTS} hexadecimal digits')
        return cls(*arrays, at_instants)
