# SPDX-License-Identifier: Apache-2.0
"""Which limit to decide with, so that the one that was asked for is kept.

What laws of the past expect is not what comes. A :class:`Trial` puts
instances, by their laws of one day, on imagined hosts as the scheduler would,
at several multiples of the limit. The traffic that follows tells how often
those hosts would have been overloaded; :class:`Feedback` keeps the trials of
the last days and finds the multiple at which the limit would just have been
kept.

Pure: no clock, no configuration, no store. Derivation and figures:
reference/feedback.rst.
"""

import collections
import dataclasses
import functools

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import law as sum_law
from vswitch_aware_scheduler.traffic import model

__all__ = ['FACTORS', 'Feedback', 'MIN_INSTANCES', 'NOTHING', 'Outcome',
           'PRIOR_HOST_DAYS', 'TRIAL_DAYS', 'Trial', 'factor']

#: Multiples of the limit that are tried; the corrected limit is between.
FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)

#: A trial is followed for so long, and what came of it counts for so long.
TRIAL_DAYS = 5.0

#: Weight of the belief that overload is what the laws expect.
PRIOR_HOST_DAYS = 10.0

#: Fewer instances than these fill no hosts.
MIN_INSTANCES = 20


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """On which imagined hosts instances would be, for each multiple.

    :ivar instances: tuple of n names
    :ivar hosts: (f, n) int64, each instance's host for each of
        :data:`FACTORS`, numbered from 0
    """

    instances: tuple
    hosts: np.ndarray

    @classmethod
    def of(cls, laws, policy):
        """Put instances on empty hosts, first-fit.

        :param laws: mapping of instance to RateLaw, in the order of placing
        :param policy: HostPolicy of each host
        """
        return cls(tuple(laws), _first_fit(
            laws, [_relaxed(policy, times) for times in FACTORS]))

    def outcome(self, samples, days):
        """Return the Outcome of some slots of time.

        :param samples: _Samples of these slots
        :param days: length of a slot
        """
        values = samples.of(self.instances)
        overload, host_days = np.zeros((2, len(FACTORS)))
        for number, hosts in enumerate(self.hosts):
            on = hosts == np.arange(hosts.max(initial=-1) + 1)[:, None]
            avoidable = np.zeros((len(on), samples.slots), dtype=bool)
            for (_, capacity), rates in zip(samples.limits, values):
                most = capacity * (1 + sum_law.TOLERANCE)
                alone = on.astype(float) @ (rates > most) > 0
                avoidable |= (on.astype(float) @ rates > most) & ~alone
            overload[number] = np.count_nonzero(avoidable) * days
            host_days[number] = avoidable.size * days
        return Outcome(overload, host_days)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """How long hosts were overloaded where no instance alone was the cause.

    Outcomes of different times, or of different trials, add up.

    :ivar overload_days: (f,) for each of :data:`FACTORS`, of all hosts
    :ivar host_days: (f,) that were looked at
    """

    overload_days: np.ndarray
    host_days: np.ndarray

    def __add__(self, other):
        return Outcome(self.overload_days + other.overload_days,
                       self.host_days + other.host_days)


NOTHING = Outcome(*np.zeros((2, len(FACTORS))))


def factor(outcome, overload_probability):
    """Return by what to multiply a limit in order to keep to it.

    :param outcome: Outcome of trials at multiples of that limit
    :param overload_probability: the limit, 0..1
    :returns: float between the first and the last of :data:`FACTORS`, 1 when
        nothing came of trials yet or the limit is 0
    Derivation: reference/feedback.rst, "The multiple".
    """
    if not overload_probability:
        return 1.0
    tried = np.array(FACTORS)
    expected = PRIOR_HOST_DAYS * tried * overload_probability
    share = ((outcome.overload_days + expected)
             / (outcome.host_days + PRIOR_HOST_DAYS))
    # More room never means less overload; where it seems to, it is chance.
    share = np.maximum.accumulate(share)
    return float(np.exp(np.interp(np.log(overload_probability),
                                  np.log(share), np.log(tried))))


class Feedback:
    """The trials of one kind of host, and the limit that follows from them.

    :param policy: HostPolicy with the limit that is to be kept
    """

    def __init__(self, policy):
        self._policy = policy
        self._trials = collections.deque()       # (day, Trial)
        self._outcomes = collections.deque()     # (day, Outcome)

    def count(self, day, rates, slot_days):
        """Follow the trials through the slots of time up to a day.

        :param day: end of these slots, in days; increases from call to call
        :param rates: mapping of instance to (t, 3) rates of the slots in the
            columns of a RateSeries; who is not in it has no traffic
        :param slot_days: length of a slot in days
        """
        if self._trials:
            samples = _Samples(self._policy, rates)
            self._outcomes.append((day, functools.reduce(
                Outcome.__add__, (trial.outcome(samples, slot_days)
                                  for _, trial in self._trials))))
        for kept in (self._trials, self._outcomes):
            while kept and kept[0][0] <= day - TRIAL_DAYS:
                kept.popleft()

    def add(self, day, trial):
        """Follow one more Trial, made on a day in days."""
        self._trials.append((day, trial))

    @property
    def outcome(self):
        """Outcome of all trials in the last :data:`TRIAL_DAYS`."""
        return functools.reduce(
            Outcome.__add__, (one for _, one in self._outcomes), NOTHING)

    def policy(self):
        """Return the HostPolicy to decide with now."""
        return _relaxed(self._policy, factor(
            self.outcome, self._policy.overload_probability))


class _Samples:
    """Rates of instances in some slots, in the units of the limits.

    :ivar limits: list of (weights, capacity)
    :ivar slots: how many
    """

    def __init__(self, policy, rates):
        self.limits = [(weights, capacity)
                       for weights, capacity, _ in policy.limits]
        profile = policy.profile
        self.slots = len(next(iter(rates.values()))) if rates else 0
        # A law whose states are the slots has a rate in any unit.
        laws = [model.RateLaw.from_arrays(
            np.full(len(one), 1.0 / max(len(one), 1)), one)
            for one in rates.values()]
        self._row = {instance: row for row, instance in enumerate(rates)}
        # The last row is of those that have none.
        self._values = [np.array(
            [law.values(weights, profile.typical_packet_bytes)
             for law in laws] + [np.zeros(self.slots)])
            for weights, _ in self.limits]

    def of(self, instances):
        """Return a list of (n, t), one for each limit."""
        rows = [self._row.get(instance, -1) for instance in instances]
        return [values[rows] for values in self._values]


def _relaxed(policy, times):
    return dataclasses.replace(policy, overload_probability=min(
        times * policy.overload_probability, 1.0))


def _first_fit(laws, policies):
    """Return each instance's host for each policy, numbered from 0.

    All are in one table: an instance is a question and a change for each
    table, whatever the number of hosts.
    """
    table, slots = admission.LoadTable(), [[] for _ in policies]
    hosts = np.zeros((len(policies), len(laws)), dtype=np.int64)
    for position, (instance, law) in enumerate(laws.items()):
        admitted = table.assess(sum(slots, []), law).admitted
        come, first = {}, 0
        for number, (policy, own) in enumerate(zip(policies, slots)):
            found = np.flatnonzero(admitted[first:first + len(own)])
            first += len(own)
            host = int(found[0]) if found.size else len(own)
            hosts[number, position] = host
            if host == len(own):
                own.append(table.describe((number, host), policy,
                                          {instance: law}))
            else:
                come[number, host] = {instance: law}, ()
        table.change(come)
    return hosts
