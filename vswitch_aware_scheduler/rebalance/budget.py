# SPDX-License-Identifier: Apache-2.0
"""The error budget of a host: how long it may still be overloaded.

A host earns budget while it is in use and measured, and spends it while it
is overloaded avoidably. Balances are seconds of overload. Pure: numbers in,
numbers out.

Derivation: reference/rebalance.rst, "Error budget".
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler import exceptions

__all__ = ['Account', 'DAY_SECONDS', 'Terms', 'avoidable', 'burn_rate']

DAY_SECONDS = 86400.0

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Terms:
    """By what rule hosts of one limit earn and spend.

    :ivar overload_probability: limit E, above 0 and below 1
    :ivar earned_share: of each second in use the host earns this times E
    :ivar first_days: a host begins with what so many days earn
    :ivar most_days: a host keeps at most what so many days earn
    """

    overload_probability: float
    earned_share: float = 0.6
    first_days: float = 1.0
    most_days: float = 30.0

    def __post_init__(self):
        if not 0 < self.overload_probability < 1:
            raise exceptions.InvalidInput(
                f'overload probability: {self.overload_probability}; '
                f'expected a number above 0 and below 1')
        if not 0 < self.earned_share <= 1:
            raise exceptions.InvalidInput(
                f'earned share: {self.earned_share}; expected a number above '
                f'0 and at most 1')
        if not 0 <= self.first_days <= self.most_days < np.inf:
            raise exceptions.InvalidInput(
                f'first and most days of budget: {self.first_days} and '
                f'{self.most_days}; expected 0 <= first <= most')

    @property
    def rate(self):
        """Seconds of overload that are earned by a second of use."""
        return self.earned_share * self.overload_probability

    @property
    def first(self):
        """Balance in seconds with which a host begins."""
        return self.rate * self.first_days * DAY_SECONDS

    @property
    def most(self):
        """Largest balance in seconds."""
        return self.rate * self.most_days * DAY_SECONDS

    @property
    def day(self):
        """Seconds of overload that a day of use earns."""
        return self.rate * DAY_SECONDS

    def after(self, balance, measured_seconds, overload_seconds):
        """Return balances after some time; any shape, elementwise.

        :param balance: seconds of overload before it
        :param measured_seconds: how long the host was in use and its sum is
            known; time that is not known earns and spends nothing
        :param overload_seconds: how long of that it was overloaded avoidably
        """
        earned = np.minimum(
            balance + self.rate * np.asarray(measured_seconds, dtype=float),
            self.most)
        return earned - overload_seconds

    def left(self, balance):
        """Return balances as a share of the largest one; less than 0: debt."""
        return np.asarray(balance, dtype=float) / self.most


@dataclasses.dataclass(frozen=True)
class Account:
    """The budget of one host or uplink, as it is kept between periods.

    :ivar terms: Terms by which it earns
    :ivar kind: text that names the limits; other limits are another budget
    :ivar since: seconds UTC at which it began
    :ivar balance: seconds of overload that are left, below 0: debt
    :ivar measured_seconds: in use and measured since then
    :ivar overload_seconds: avoidable overload since then
    """

    terms: Terms
    kind: str
    since: float
    balance: float
    measured_seconds: float = 0.0
    overload_seconds: float = 0.0

    @classmethod
    def begun(cls, terms, kind, now):
        """Return the budget of what is measured from now on."""
        return cls(terms, kind, now, terms.first)

    def after(self, measured_seconds, overload_seconds):
        """Return the Account after some time; see :meth:`Terms.after`.

        :raises InvalidInput: when there is more overload than time
        """
        if not 0 <= overload_seconds <= measured_seconds < np.inf:
            raise exceptions.InvalidInput(
                f'overload and measured time: {overload_seconds} and '
                f'{measured_seconds} s; expected 0 <= overload <= measured')
        return dataclasses.replace(
            self, balance=float(self.terms.after(
                self.balance, measured_seconds, overload_seconds)),
            measured_seconds=self.measured_seconds + measured_seconds,
            overload_seconds=self.overload_seconds + overload_seconds)

    def under(self, terms, kind, now):
        """Return (Account, sentence or None) for the terms that hold now.

        With other terms or limits a new budget begins, and the sentence says
        so.
        """
        if (terms, kind) == (self.terms, self.kind):
            return self, None
        changed = (f'limit {self.terms.overload_probability:g} is now '
                   f'{terms.overload_probability:g}'
                   if terms.overload_probability
                   != self.terms.overload_probability
                   else f'limits were {self.kind}, are now {kind}'
                   if kind != self.kind else 'terms of the budget changed')
        return (Account.begun(terms, kind, now),
                f'{changed}: a new budget begins')

    @property
    def in_debt(self):
        """Whether more was spent than earned."""
        return self.balance < 0

    @property
    def left(self):
        """Share of the largest balance, below 0 in debt."""
        return float(self.terms.left(self.balance))

    @property
    def burn_rate(self):
        """Overload share since it began, over the limit."""
        return float(burn_rate(self.overload_seconds, self.measured_seconds,
                               self.terms.overload_probability))


def burn_rate(overload_seconds, measured_seconds, overload_probability):
    """Return how fast budget is spent, 1: exactly the limit E.

    :param overload_seconds: avoidable overload within some time
    :param measured_seconds: measured time in it
    :returns: overload share over E; 0 where nothing is measured
    """
    overload, measured = np.broadcast_arrays(
        np.asarray(overload_seconds, dtype=float),
        np.asarray(measured_seconds, dtype=float))
    share = np.zeros(measured.shape)
    np.divide(overload, measured, out=share, where=measured > 0)
    return share / overload_probability


def avoidable(sums, peaks, capacities):
    """Return which samples of hosts are avoidable overload.

    :param sums: (l, h, t) what all instances of a host ask of each of l
        limits
    :param peaks: (l, h, t) what the largest single instance asks
    :param capacities: (l, h) of each limit, inf where a host has none
    :returns: (h, t) bool: some limit is exceeded by the sum, and by no
        instance alone
    """
    most = np.asarray(capacities)[..., None] * (1 + _TOLERANCE)
    return ((sums > most) & ~(peaks > most)).any(axis=0)
