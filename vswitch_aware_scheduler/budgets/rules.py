# SPDX-License-Identifier: Apache-2.0
"""The error budget of a host: how long it may still be overloaded.

A host earns budget while it is in use and measured. It spends budget while it
has avoidable overload. Balances are seconds of overload. Pure: numbers in,
numbers out. Derivation: reference/rebalance.rst, "Error budget".
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler import store as model_store

__all__ = ['DAY_SECONDS', 'TOLERANCE', 'Terms', 'WINDOWS', 'burn_rate',
           'charges', 'exceeds', 'overloaded']

DAY_SECONDS = 86400.0

#: Windows of burn rates in seconds: an hour, six hours, three days.
WINDOWS = (3600, 21600, model_store.RECOVERY_SECONDS)

#: Sums and capacities are compared with this relative tolerance.
TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Terms:
    """The rule by which hosts with one limit earn and spend budget.

    :ivar overload_probability: limit, above 0 and below 1
    :ivar earned_share: a host earns this share of the limit for each second in
        use
    """

    overload_probability: float
    earned_share: float = 0.6
    first_days: float = 1.0
    most_days: float = 30.0

    def __post_init__(self):
        checks.fields('terms of a budget', self, {
            'overload_probability': checks.number(
                0, np.nextafter(1, 0), above=True),
            'earned_share': checks.number(0, 1, above=True),
            'most_days': checks.number(),
            'first_days': checks.number(0, self.most_days)})

    @classmethod
    def of(cls, budget: model_store.ErrorBudget) -> 'Terms':
        """Return the terms of an :class:`.ErrorBudget`."""
        return cls(*(getattr(budget, field.name)
                     for field in dataclasses.fields(cls)))

    @property
    def rate(self) -> float:
        """Seconds of overload that a host earns in one second of use."""
        return self.earned_share * self.overload_probability

    @property
    def first(self) -> float:
        """Initial balance in seconds."""
        return self.rate * self.first_days * DAY_SECONDS

    @property
    def most(self) -> float:
        """Largest balance in seconds."""
        return self.rate * self.most_days * DAY_SECONDS

    @property
    def day(self) -> float:
        """Seconds of overload that a host earns in one day of use."""
        return self.rate * DAY_SECONDS

    def after(self, balance: npt.ArrayLike, measured_seconds: npt.ArrayLike,
              overload_seconds: npt.ArrayLike) -> np.ndarray:
        """Return balances after some time, elementwise for any shape.

        :param balance: earlier balance in seconds of overload
        :param measured_seconds: time in which the host was in use and its sum
            is known; unknown time earns and spends nothing
        :param overload_seconds: part of this time with avoidable overload
        """
        earned = np.minimum(
            np.asarray(balance, dtype=float)
            + self.rate * np.asarray(measured_seconds, dtype=float),
            self.most)
        return earned - np.asarray(overload_seconds, dtype=float)


def burn_rate(overload_seconds: npt.ArrayLike, measured_seconds: npt.ArrayLike,
              overload_probability: float) -> np.ndarray:
    """Return how fast budget is spent; 1 means exactly the limit.

    :returns: share of overload divided by the limit; 0 if nothing is measured
    """
    overload, measured = np.broadcast_arrays(
        np.asarray(overload_seconds, dtype=float),
        np.asarray(measured_seconds, dtype=float))
    share = np.zeros(measured.shape)
    np.divide(overload, measured, out=share, where=measured > 0)
    return share / overload_probability


def overloaded(sums: np.ndarray, alone: np.ndarray,
               capacities: npt.ArrayLike) -> np.ndarray:
    """Return which samples are avoidable overload.

    The sum exceeds some limit that no instance exceeds alone.

    :param sums: (l, ..., t) sums of all instances, for each of l limits
    :param alone: (l, ..., t) bool, whether one instance exceeds the limit
    :param capacities: (l, ...) capacity of each limit
    """
    return (exceeds(sums, capacities) & ~alone).any(axis=0)


def charges(loads: np.ndarray, capacity: float) -> np.ndarray:
    """Return which share of an overload each instance has made.

    An instance is charged for what it carries above its fair share of the
    capacity (max-min fairness): the level up to which all instances together
    fill exactly the capacity. Instances below the level are charged nothing,
    and the others together exactly the excess. Derivation:
    reference/rebalance.rst, "Charges".

    :param loads: (n,) load of each instance; their sum exceeds the capacity
    :param capacity: in the unit of the loads, above 0
    :returns: (n,) shares, which sum to 1
    """
    ascending = np.sort(loads)
    below = np.concatenate([[0.0], np.cumsum(ascending)[:-1]])
    # The level if the k smallest instances are below it.
    levels = (capacity - below) / np.arange(ascending.size, 0, -1)
    excess = np.maximum(loads - levels[np.argmax(levels <= ascending)], 0.0)
    return excess / excess.sum()


def exceeds(values: np.ndarray, capacities: npt.ArrayLike) -> np.ndarray:
    """Return which values exceed the capacity of their limit.

    :param values: (l, ..., t)
    :param capacities: (l, ...) capacity of each limit
    """
    return values > np.asarray(capacities)[..., None] * (1 + TOLERANCE)
