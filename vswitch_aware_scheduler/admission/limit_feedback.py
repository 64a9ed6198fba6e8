# SPDX-License-Identifier: Apache-2.0
"""Corrects a limit so that the measured overload meets the requested limit.

A law that was learned from past traffic differs from later traffic. A
:class:`Trial` places instances, by their laws of one day, on simulated hosts
as the scheduler would, for several multiples of the limit. The later traffic
shows how often these hosts would have been overloaded. :class:`Feedback` keeps
the trials of the last days and determines the multiple that would have met the
limit. Services store the outcomes by the name that :func:`kind_of` returns.
:class:`Corrections` returns the policy with the corrected limit.

No clock except the one that is passed, no configuration, no database.
Derivation and figures: reference/feedback.rst.
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

#: Multiples of the limit that trials use. The corrected limit is between the
#: first and the last.
FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)

#: A trial is evaluated for this many days, and an outcome counts for this many
#: days.
TRIAL_DAYS = 5.0

#: Weight, in days of hosts, of the assumption that overload is as likely as
#: the laws predict.
PRIOR_HOST_DAYS = 10.0

#: Fewer instances than this cannot fill hosts.
MIN_INSTANCES = 20

#: :data:`FACTORS` as percentages, which the store uses as names.
PERCENT = tuple(round(100 * times) for times in FACTORS)

#: Limits are multiplied by powers of this number, so that small changes have
#: no effect.
STEP = 1.1

#: An outcome that is older than this has no effect.
OLD_DAYS = 3.0

_DAY_SECONDS = 86400.0

#: Longest name of a kind of host.
_LONGEST = 255


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """A placement of instances on simulated hosts, for each multiple.

    :ivar instances: tuple of n names
    :ivar hosts: (f, n) int64, the host of each instance for each of
        :data:`FACTORS`, numbered from 0
    """

    instances: tuple
    hosts: np.ndarray

    @classmethod
    def of(cls, laws, policy):
        """Place instances on empty hosts, each on the first that admits it.

        :param laws: mapping of instance to RateLaw, in the order of placement
        :param policy: HostPolicy of each host
        :returns: Trial
        """
        return cls(tuple(laws), _first_fit(
            laws, [_relaxed(policy, times) for times in FACTORS]))

    def followed(self, policy, rates, slot_days):
        """Return the Outcome of some time slots.

        :param policy: HostPolicy of each host
        :param rates: as in :meth:`Feedback.count`
        :param slot_days: length of a slot in days
        """
        return self.outcome(_Samples(policy, rates), slot_days)

    def outcome(self, samples, days):
        """Return the Outcome of some time slots.

        :param samples: _Samples of these slots
        :param days: length of a slot in days
        :returns: Outcome
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
    """Time during which hosts were overloaded, not by one instance alone.

    Outcomes of different times or of different trials can be added.

    :ivar overload_days: (f,) overloaded time of all hosts in days, for each of
        :data:`FACTORS`
    :ivar host_days: (f,) observed time of all hosts in days
    """

    overload_days: np.ndarray
    host_days: np.ndarray

    def __add__(self, other):
        return Outcome(self.overload_days + other.overload_days,
                       self.host_days + other.host_days)


NOTHING = Outcome(*np.zeros((2, len(FACTORS))))


def factor(outcome, overload_probability):
    """Return the factor by which to multiply a limit in order to meet it.

    :param outcome: Outcome of trials at multiples of that limit
    :param overload_probability: the limit, 0..1
    :returns: float between the first and the last of :data:`FACTORS`; 1 if
        trials have no outcome yet or if the limit is 0
    Derivation: reference/feedback.rst, "The multiple".
    """
    if not overload_probability:
        return 1.0
    tried = np.array(FACTORS)
    expected = PRIOR_HOST_DAYS * tried * overload_probability
    share = ((outcome.overload_days + expected)
             / (outcome.host_days + PRIOR_HOST_DAYS))
    # A higher limit never causes less overload; if it seems to, that is
    # chance.
    share = np.maximum.accumulate(share)
    return float(np.exp(np.interp(np.log(overload_probability),
                                  np.log(share), np.log(tried))))


class Feedback:
    """The trials of one kind of host, and the limit that follows from them.

    :param policy: HostPolicy with the requested limit
    """

    def __init__(self, policy):
        self._policy = policy
        self._trials = collections.deque()       # (day, Trial)
        self._outcomes = collections.deque()     # (day, Outcome)

    def count(self, day, rates, slot_days):
        """Evaluate the trials on the traffic of the time slots up to a day.

        :param day: end of these slots, in days; has to increase from call to
            call
        :param rates: mapping of instance to (t, 3) rates of the slots, in the
            columns of a RateSeries; an instance that is missing has no traffic
        :param slot_days: length of a slot in days
        """
        if self._trials:
            samples = _Samples(self._policy, rates)
            self._outcomes.append((day, functools.reduce(
                Outcome.__add__, (trial.outcome(samples, slot_days)
                                  for _, trial in self._trials))))
        for dated_entries in (self._trials, self._outcomes):
            while dated_entries and dated_entries[0][0] <= day - TRIAL_DAYS:
                dated_entries.popleft()

    def add(self, day, trial):
        """Add one more Trial.

        :param day: day of the trial, in days
        :param trial: Trial
        """
        self._trials.append((day, trial))

    @property
    def outcome(self):
        """Sum of the Outcomes of all trials in the last :data:`TRIAL_DAYS`."""
        return functools.reduce(
            Outcome.__add__, (item for _, item in self._outcomes), NOTHING)

    def policy(self):
        """Return the HostPolicy with the corrected limit."""
        return _relaxed(self._policy, factor(
            self.outcome, self._policy.overload_probability))


def kind_of(policy):
    """Return a name that all hosts with the same limits share.

    :param policy: HostPolicy with the requested limit
    :returns: string of at most 255 characters: the limit, then the limits of
        the switch; None if the policy limits no overload probability
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

    :param kind: name that :func:`kind_of` returned
    :raises InvalidInput: if the name has no limit
    """
    text = kind.partition(':')[0]
    try:
        return float(text)
    except ValueError:
        raise exceptions.InvalidInput(
            f'kind of hosts {kind}: limit: {text!r}; expected a number'
        ) from None


def multiple(found, now, most=FACTORS[-1]):
    """Return the factor by which a limit is currently multiplied.

    :param found: :class:`~.TrialOutcome` of the store
    :param now: seconds UTC
    :param most: the largest permitted factor
    :returns: power of :data:`STEP`, or ``most``; 1 if the outcome is too old
    :raises InvalidInput: if the numbers of the outcome are impossible
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
            f'kind of hosts {found.kind}: outcomes of trials: {found.days}; '
            'expected days of overload between 0 and the number of '
            'host-days')
    return factor(Outcome(overload, hosts), limit_of(found.kind))


class Corrections:
    """Returns policies with corrected limits, always the same for a policy.

    :param most: the largest factor of a limit; 0 leaves all limits unchanged
    :param clock: callable, returns seconds UTC
    :param report: callable(topic, problem or None), receives invalid outcomes
    """

    def __init__(self, most, clock, report):
        self._most = most
        self._clock = clock
        self._report = report
        # HostPolicy -> (kind, {multiple: HostPolicy})
        self._known = weakref.WeakKeyDictionary()

    def of(self, policy, outcomes):
        """Return the HostPolicy to decide with.

        :param policy: HostPolicy with the requested limit
        :param outcomes: {kind: :class:`~.TrialOutcome`}
        """
        if not self._most or not outcomes:
            return policy
        if policy not in self._known:
            self._known[policy] = kind_of(policy), {1.0: None}
        kind, policies = self._known[policy]
        times = self.of_outcome(outcomes.get(kind))
        if times not in policies:
            policies[times] = dataclasses.replace(
                _relaxed(policy, times),
                asked_probability=policy.overload_probability)
        return policies[times] or policy

    def of_outcome(self, found):
        """Return the factor by which a limit is currently multiplied.

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
        """Return {kind: factor by which its limit is currently multiplied}.

        :param outcomes: as in :meth:`of`
        """
        return {kind: self.of_outcome(outcome)
                for kind, outcome in outcomes.items()}


class _Samples:
    """Rates of instances in some time slots, in the units of the limits.

    :param policy: HostPolicy with the limits
    :param rates: {instance: (t, 3) rates of the slots}
    :ivar limits: list of (weights, capacity)
    :ivar slots: number of slots
    """

    def __init__(self, policy, rates):
        self.limits = [(weights, capacity)
                       for weights, capacity, _ in policy.limits]
        profile = policy.profile
        self.slots = len(next(iter(rates.values()))) if rates else 0
        # A law with one state for each slot has a rate in any unit.
        laws = [rate_law.RateLaw.from_arrays(
            np.full(len(slot_rates), 1.0 / max(len(slot_rates), 1)),
            slot_rates) for slot_rates in rates.values()]
        self._row = {instance: row for row, instance in enumerate(rates)}
        # The last row is for instances without traffic.
        self._values = [np.array(
            [law.values(weights, profile.typical_packet_bytes)
             for law in laws] + [np.zeros(self.slots)])
            for weights, _ in self.limits]

    def of(self, instances):
        """Return the rates of the given instances, as (n, t) for each limit.

        :param instances: iterable of instances
        """
        rows = [self._row.get(instance, -1) for instance in instances]
        return [values[rows] for values in self._values]


def _relaxed(policy, times):
    return dataclasses.replace(policy, overload_probability=min(
        times * policy.overload_probability, 1.0))


def _first_fit(laws, policies):
    """Return the host of each instance for each policy, numbered from 0.

    All hosts are in one table. Each instance therefore needs one assessment
    and one change per table, independent of the number of hosts.
    """
    table, slots = admission.LoadTable(), [[] for _ in policies]
    hosts = np.zeros((len(policies), len(laws)), dtype=np.int64)
    for position, (instance, law) in enumerate(laws.items()):
        admitted = table.assess(sum(slots, []), law).admitted
        arrivals, first = {}, 0
        for number, (policy, own_slots) in enumerate(zip(policies, slots)):
            admitting = np.flatnonzero(admitted[first:first + len(own_slots)])
            first += len(own_slots)
            host = int(admitting[0]) if admitting.size else len(own_slots)
            hosts[number, position] = host
            if host == len(own_slots):
                own_slots.append(table.describe((number, host), policy,
                                                {instance: law}))
            else:
                arrivals[number, host] = {instance: law}, ()
        table.change(arrivals)
    return hosts
