# SPDX-License-Identifier: Apache-2.0
"""Which limit to decide with, so that the one that was asked for is kept.

What laws of the past expect is not what comes. A :class:`Trial` puts
instances, by their laws of one day, on imagined hosts as the scheduler would,
at several multiples of the limit. The traffic that follows tells how often
those hosts would have been overloaded; :class:`Feedback` keeps the trials of
the last days and finds the multiple at which the limit would just have been
kept. Services have theirs in the store, in which a :func:`kind_of` hosts names
what they are of; :class:`Corrections` finds the policy to decide with.

No clock but the one handed in, no configuration, no database. Derivation and
figures: reference/feedback.rst.
"""

import collections
import dataclasses
import functools
import hashlib
import math
import weakref

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Corrections', 'FACTORS', 'Feedback', 'MIN_INSTANCES', 'NOTHING',
           'OLD_DAYS', 'Outcome', 'PERCENT', 'PRIOR_HOST_DAYS', 'STEP',
           'TRIAL_DAYS', 'Trial', 'factor', 'kind_of', 'limit_of',
           'multiple']

#: Multiples of the limit that are tried; the corrected limit is between.
FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)

#: A trial is followed for so long, and what came of it counts for so long.
TRIAL_DAYS = 5.0

#: Weight of the belief that overload is what the laws expect.
PRIOR_HOST_DAYS = 10.0

#: Fewer instances than these fill no hosts.
MIN_INSTANCES = 20

#: :data:`FACTORS` as the store names them.
PERCENT = tuple(round(100 * times) for times in FACTORS)

#: Limits are multiplied by powers of this: small changes change nothing.
STEP = 1.1

#: Outcomes that are older than this correct nothing any more.
OLD_DAYS = 3.0

_DAY_SECONDS = 86400.0

#: Longest name of a kind of host.
_LONGEST = 255


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

    def followed(self, policy, rates, slot_days):
        """Return the Outcome of some slots of time; see `Feedback.count`."""
        return self.outcome(_Samples(policy, rates), slot_days)

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
                most = capacity * (1 + fourier_sum.TOLERANCE)
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


def kind_of(policy):
    """Return the name of all hosts that trials need not tell apart.

    :param policy: HostPolicy with the limit that is asked for
    :returns: the limit, then the limits of the switch, at most 255
        characters; None where no probability of overload is limited
    """
    limits = [(weights, capacity) for weights, capacity, _ in policy.limits
              if capacity < math.inf]
    if policy.policy != admission.PROBABILITY or not limits \
            or not 0 < policy.overload_probability < 1:
        return None
    limit = f'{policy.overload_probability!r}: '
    name = limit + ', '.join(
        f'{" ".join(f"{weight:.12g}" for weight in weights)} '
        f'<= {capacity:.12g}' for weights, capacity in limits)
    if any(weights[2] for weights, _ in limits):
        name += f' at {policy.profile.typical_packet_bytes} bytes'
    if len(name) > _LONGEST:
        name = limit + hashlib.sha256(name.encode()).hexdigest()
    return name


def limit_of(kind):
    """Return the limit in the name of a kind of host.

    :raises InvalidInput: when there is none
    """
    text = kind.partition(':')[0]
    try:
        return float(text)
    except ValueError:
        raise exceptions.InvalidInput(
            f'hosts {kind}: their limit is {text!r}, wanted a number'
        ) from None


def multiple(found, now, most=FACTORS[-1]):
    """Return by what a limit is multiplied now.

    :param found: :class:`~.TrialOutcome` of the store
    :param now: seconds UTC
    :param most: the largest multiple there may be
    :returns: power of :data:`STEP`, or ``most``; 1 where the outcome is old
    :raises InvalidInput: when the numbers of the outcome cannot be
    """
    if not -_DAY_SECONDS <= now - found.until <= OLD_DAYS * _DAY_SECONDS:
        return 1.0
    exact = _factor_of(found)
    return min(STEP ** round(math.log(exact, STEP)), FACTORS[-1], most)


@functools.lru_cache(maxsize=1024)
def _factor_of(found):
    days = {percent: numbers for percent, *numbers in found.days}
    overload, hosts = np.array([
        days.get(percent, (0.0, 0.0)) for percent in PERCENT]).T
    # NaN fails as well.
    if not ((overload >= 0).all() and (overload <= hosts * (
            1 + fourier_sum.TOLERANCE)).all() and (hosts < np.inf).all()):
        raise exceptions.InvalidInput(
            f'hosts {found.kind}: the outcome of trials is {found.days}, '
            f'wanted finite days of overload, 0 to those of the hosts')
    return factor(Outcome(overload, hosts), limit_of(found.kind))


class Corrections:
    """Finds the policies to decide with; of one policy the same each time.

    :param most: the largest multiple of a limit, 0: all stay as they are
    :param clock: returns the time, seconds UTC
    :param report: callable(topic, problem or None)
    """

    def __init__(self, most, clock, report):
        self._most = most
        self._clock = clock
        self._report = report
        # HostPolicy -> (kind, {multiple: HostPolicy})
        self._known = weakref.WeakKeyDictionary()

    def of(self, policy, outcomes):
        """Return the HostPolicy to decide with in place of another one.

        :param policy: HostPolicy with the limit that is asked for
        :param outcomes: {kind: :class:`~.TrialOutcome`}
        """
        if not self._most or not outcomes:
            return policy
        if policy not in self._known:
            self._known[policy] = kind_of(policy), {1.0: None}
        kind, made = self._known[policy]
        times = self.of_outcome(outcomes.get(kind))
        if times not in made:
            made[times] = dataclasses.replace(
                _relaxed(policy, times),
                asked_probability=policy.overload_probability)
        return made[times] or policy

    def of_outcome(self, found):
        """Return by what a limit is multiplied now.

        :param found: TrialOutcome of the kind of host, or None
        """
        if found is None or not self._most:
            return 1.0
        try:
            times = multiple(found, self._clock(), self._most)
        except exceptions.InvalidInput as error:
            self._report(f'feedback {found.kind}',
                         f'{error}; their limit stays as it is')
            return 1.0
        self._report(f'feedback {found.kind}', None)
        return times

    def multiples(self, outcomes):
        """Return {kind: by what its limit is multiplied now}.

        :param outcomes: as of :meth:`of`
        """
        return {kind: self.of_outcome(found)
                for kind, found in outcomes.items()}


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
        laws = [rate_law.RateLaw.from_arrays(
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
