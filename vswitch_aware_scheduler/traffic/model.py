# SPDX-License-Identifier: Apache-2.0
"""The traffic model of one instance: an n-state semi-Markov chain.

The chain and its on/off special case are equations 2 and 1 of "Towards a
Method Integrating Virtual Switch Performance Into Data Centre Design".
Pure; no clock, no configuration, no I/O.
"""

import dataclasses
import functools
import math
import numbers

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import slots

__all__ = ['DIMENSIONS', 'FORMAT_VERSION', 'LEAST_CAPACITY', 'TrafficModel',
           'dimension_weights', 'visits']

#: What a capacity can be counted in: weights of (egress_kbps, ingress_kbps,
#: kpps). 'bandwidth' counts both directions, as a software switch does.
DIMENSIONS = {
    'egress': (1.0, 0.0, 0.0),
    'ingress': (0.0, 1.0, 0.0),
    'bandwidth': (1.0, 1.0, 0.0),
    'packets': (0.0, 0.0, 1.0),
}

#: The smallest capacity that is computed with, in any unit. A limit of 0 is
#: taken for it: who sends anything is above.
LEAST_CAPACITY = 1e-6

#: Version of :meth:`TrafficModel.to_dict`.
FORMAT_VERSION = 1

_TOLERANCE = 1e-9


def dimension_weights(dimension):
    """Return the weights of a dimension.

    :param dimension: a key of :data:`DIMENSIONS`
    :returns: (3,) float64, what a kbit/s of egress, a kbit/s of ingress and a
        kilo-packet/s count
    :raises InvalidModel: when there is no such dimension
    """
    try:
        return np.array(DIMENSIONS[dimension])
    except (KeyError, TypeError):
        raise exceptions.InvalidModel(
            f'dimension is {dimension!r}, wanted one of '
            f'{", ".join(sorted(DIMENSIONS))}') from None


def _invalid(what, seen, wanted):
    raise exceptions.InvalidModel(
        f'traffic model: {what} is {seen}, wanted {wanted}')


def visits(jump):
    """Return how often the states of embedded chains are visited.

    By state reduction (Grassmann, Taksar and Heyman), which subtracts nothing
    and so keeps the relative accuracy of every entry.

    :param jump: (V, n, n) of chains that reach every state from every other;
        one of fewer states has rows and columns of zeros behind them
    :returns: (V, n) stationary laws of these, 0 where there is no state
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
    """States of traffic, how they follow each other and how long they last.

    :param rates: (n, 3) finite and >= 0: egress_kbps, ingress_kbps, kpps of
        each state. kpps 0 in every state of a model that carries bandwidth
        means that its packets are not known (:attr:`packets_known`).
    :param jump: (n, n) probability that state i is followed by state j; zero
        diagonal, rows sum to 1 within 1e-9. A model of one state has [[0]].
        The chain must have a single closed class of states (one long-run
        law); states left for good get probability 0.
    :param sojourn_seconds: (n,) mean time spent in each state, > 0
    :param high: (504,) bool: in which of the sampled slots the instance was
        in one of its high states, by position in the ring (:mod:`.slots`);
        None where that is not known
    :param low_states: how many states are low ones; they come first. 1..n-1,
        at most 254; None exactly where ``high`` is None
    :raises InvalidModel: naming the argument, the value and what was wanted
    """

    rates: np.ndarray
    jump: np.ndarray
    sojourn_seconds: np.ndarray
    high: np.ndarray | None = None
    low_states: int | None = None

    def __post_init__(self):
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
        if (self.rates < 0).any():
            _invalid('the smallest of rates', self.rates.min(), '>= 0')
        if (self.sojourn_seconds <= 0).any():
            _invalid('the smallest of sojourn_seconds',
                     self.sojourn_seconds.min(), '> 0')
        if (self.jump < 0).any():
            _invalid('the smallest of jump', self.jump.min(), '>= 0')
        if self.jump.diagonal().any():
            _invalid('the diagonal of jump', self.jump.diagonal().tolist(),
                     'zero')
        sums = self.jump.sum(axis=1)
        if n > 1 and (abs(sums - 1) > _TOLERANCE).any():
            worst = int(np.argmax(abs(sums - 1)))
            _invalid(f'the sum of row {worst} of jump', sums[worst],
                     '1 within 1e-9')
        self._embedded  # noqa: B018, a chain without a single law is refused
        self._require_classes()

    def _require_classes(self):
        if self.high is None and self.low_states is None:
            return
        most = min(len(self.rates) - 1, rate_law.MOST_LOW_STATES - 1)
        if not isinstance(self.low_states, numbers.Integral) \
                or not 1 <= self.low_states <= most:
            _invalid('low_states', repr(self.low_states)[:80],
                     f'a whole number 1..{most} with high, and None without')
        object.__setattr__(self, 'low_states', int(self.low_states))
        wanted = f'{slots.SLOTS} truth values'
        try:
            high = np.array(self.high)
        except (TypeError, ValueError, OverflowError):
            high = np.array(None)
        if high.shape != (slots.SLOTS,) or not np.isin(high, (0, 1)).all():
            _invalid('high', repr(self.high)[:80], wanted)
        high = high.astype(bool)
        high.flags.writeable = False
        object.__setattr__(self, 'high', high)

    @classmethod
    def of_fit(cls, rates, jump, sojourn_seconds, stationary, high=None,
               low_states=None):
        """Return the model of arrays that are known to be as they must be.

        Checks and computes nothing, for estimation makes very many.

        :param stationary: (n,) long-run law, which is the others' consequence
        """
        self = object.__new__(cls)
        # Past the dataclass, which is frozen.
        for name, array in (
                ('rates', rates), ('jump', jump),
                ('sojourn_seconds', sojourn_seconds),
                ('stationary', stationary), ('high', high)):
            if array is not None:
                array = array.copy()
                array.flags.writeable = False
            self.__dict__[name] = array
        self.__dict__['low_states'] = low_states
        return self

    @classmethod
    def on_off(cls, egress_kbps=0.0, ingress_kbps=0.0, kpps=0.0, *,
               on_seconds, off_seconds):
        """Return the two-state model of equation 1.

        :param egress_kbps: rate while on; likewise ``ingress_kbps``, ``kpps``
        :param on_seconds: mean time on, > 0
        :param off_seconds: mean time off, > 0
        :returns: TrafficModel with states (off, on)
        """
        return cls(rates=[[0.0, 0.0, 0.0], [egress_kbps, ingress_kbps, kpps]],
                   jump=[[0.0, 1.0], [1.0, 0.0]],
                   sojourn_seconds=[off_seconds, on_seconds])

    @classmethod
    def constant(cls, egress_kbps=0.0, ingress_kbps=0.0, kpps=0.0):
        """Return the model of one state: always the same rate."""
        return cls(rates=[[egress_kbps, ingress_kbps, kpps]], jump=[[0.0]],
                   sojourn_seconds=[1.0])

    @functools.cached_property
    def _embedded(self):
        # Stationary law of the embedded chain: which states are visited how
        # often. Transient states are taken out first: they get exactly 0.
        n = self.rates.shape[0]
        if n == 1:
            return np.ones(1)
        reach = (self.jump > 0) | np.eye(n, dtype=bool)
        for _ in range(max(1, math.ceil(math.log2(n)))):
            reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
        # A state is recurrent when every state it reaches reaches it back.
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
    def stationary(self):
        """(n,) long-run share of time in each state; sums to 1.

        Visits of the embedded chain weighted by the mean sojourn times.
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
    def law(self):
        """The :class:`RateLaw` of the states that are visited."""
        visited = self.stationary > 0
        return rate_law.RateLaw.from_arrays(
            self.stationary[visited], self.rates[visited], self.high,
            int(np.count_nonzero(visited[:self.low_states])) or None)

    @property
    def mean(self):
        """(3,) long-run mean of egress_kbps, ingress_kbps and kpps."""
        return self.law.mean

    @property
    def peak(self):
        """(3,) largest rate of any state that is visited, by column."""
        return self.law.peak

    @property
    def packets_known(self):
        """Whether kpps says anything: False with bandwidth and no packets."""
        return self.law.packets_known

    def with_packets(self, packet_bytes):
        """Return this model with kpps filled in at one packet size.

        :param packet_bytes: mean packet size in bytes, > 0
        :returns: itself when its packets are known, else a new TrafficModel
        """
        if self.packets_known:
            return self
        if not packet_bytes > 0:
            _invalid('packet_bytes', packet_bytes, '> 0')
        rates = self.rates.copy()
        rates[:, 2] = (rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
        return dataclasses.replace(self, rates=rates)

    def levels(self, weights):
        """Return the law of one linear function of the rates.

        :param weights: (3,) >= 0, see :data:`DIMENSIONS`
        :returns: (values, probabilities), both (m,), m <= n: distinct values
            in increasing order, probabilities > 0 that sum to 1
        """
        law = self.law
        values, where = np.unique(law.values(weights), return_inverse=True)
        return values, np.bincount(where, weights=law.probabilities)

    def __eq__(self, other):
        if not isinstance(other, TrafficModel):
            return NotImplemented
        return (np.array_equal(self.rates, other.rates)
                and np.array_equal(self.jump, other.jump)
                and np.array_equal(self.sojourn_seconds,
                                   other.sojourn_seconds)
                and np.array_equal(self.high, other.high)
                and self.low_states == other.low_states)

    __hash__ = None

    def to_dict(self):
        """Return the model as plain lists and numbers, for JSON.

        Keys: format_version, rates, jump, sojourn_seconds; where the model
        has classes also low_states and high, the packed bits in hexadecimal.
        """
        data = {'format_version': FORMAT_VERSION,
                'rates': self.rates.tolist(),
                'jump': self.jump.tolist(),
                'sojourn_seconds': self.sojourn_seconds.tolist()}
        if self.high is not None:
            data['high'] = np.packbits(self.high).tobytes().hex()
            data['low_states'] = self.low_states
        return data

    @classmethod
    def from_dict(cls, data):
        """Return the model that :meth:`to_dict` wrote.

        What a version before wrote as regime_law is ignored.

        :raises InvalidModel: on a missing key or another format version
        """
        try:
            version = data['format_version']
            arrays = data['rates'], data['jump'], data['sojourn_seconds']
            high, low_states = data.get('high'), data.get('low_states')
        except (AttributeError, KeyError, TypeError) as error:
            _invalid('its dictionary', f'without {error}',
                     'format_version, rates, jump and sojourn_seconds')
        if version != FORMAT_VERSION:
            _invalid('format_version', version, FORMAT_VERSION)
        if high is not None:
            try:
                high = np.unpackbits(np.frombuffer(
                    bytes.fromhex(high), np.uint8))
            except (TypeError, ValueError):
                _invalid('high', repr(high)[:80],
                         f'{2 * rate_law.BITS_BYTES} hexadecimal digits')
        return cls(*arrays, high, low_states)
