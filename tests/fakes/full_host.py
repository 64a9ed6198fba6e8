# SPDX-License-Identifier: Apache-2.0
"""One host whose capacity is exactly sufficient for its limit.

Instances of a :class:`.traffic_patterns.Pattern` are learned from their past
as the modeler learns, and a LoadTable predicts their overload probability. The
capacity for which the prediction equals the limit is then compared with a long
future of the same instances. Pure; the caller passes the random generator.
Parameters and results: contributor/dependence.rst.
"""

import dataclasses

import numpy as np

from tests.fakes import traffic_patterns
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import instants
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['Outcome', 'capacity_at', 'fill', 'learned', 'overload_probability']

#: Number of bisections for a capacity: a precision of one in four million.
_STEPS = 22


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result for one host.

    :ivar overload_probability: the limit
    :ivar overload: share of the future above the capacity, divided by the
        limit
    :ivar wasted: share of the capacity that the limit did not require;
        negative if the capacity was too small
    """

    overload_probability: float
    overload: float
    wasted: float


def learned(rates, period_seconds=traffic_patterns.PERIOD_SECONDS,
            sampled=instants.PUBLIC):
    """Return {number: RateLaw} of instances.

    :param rates: (V, T) kbit/s, one row of samples for each instance
    :param period_seconds: sampling period
    :param sampled: :class:`.Instants`
    """
    times = period_seconds * np.arange(rates.shape[1])
    histories = [series.RateSeries.from_samples(
        str(number), period_seconds, times, row, 0 * row)
        for number, row in enumerate(rates)]
    return {number: fitted.law for number, fitted in enumerate(
        estimate.fit_models(
            estimate.count_all(histories, sampled),
            keys=[history.instance_uuid for history in histories]))}


def overload_probability(laws, capacity_kbps):
    """Return the prediction of a LoadTable for a host.

    :param laws: {number: RateLaw} of the instances
    :param capacity_kbps: capacity of the host
    """
    table = admission.LoadTable()
    slot = table.describe('host', admission.HostPolicy(
        profile.SwitchProfile(
            name='full', switch='any', saturation_kbps=capacity_kbps,
            saturation_dimension='bandwidth')), laws)
    return float(table.assess([slot], rate_law.SILENT).overload_probability[0])


def capacity_at(laws, limit):
    """Return the smallest capacity with a predicted overload at the limit.

    :param laws: {number: RateLaw} of the instances
    :param limit: limit of the overload probability
    """
    too_small = 0.0
    sufficient = float(sum(law.peak[:2].sum() for law in laws.values()))
    for _ in range(_STEPS):
        middle = (too_small + sufficient) / 2
        if overload_probability(laws, middle) > limit:
            too_small = middle
        else:
            sufficient = middle
    return sufficient


def fill(pattern, limits, rng, instances=25, days=14, judged_days=280):
    """Return the :class:`Outcome` of each limit.

    :param pattern: :class:`.traffic_patterns.Pattern`
    :param limits: list of limits of the overload probability
    :param rng: numpy.random.Generator
    :param instances: number of instances
    :param days: length of the past that is learned from
    :param judged_days: length of the future
    """
    levels = pattern.levels(rng, instances)
    laws = learned(pattern.rates(rng, days, levels))
    future = np.sort(pattern.rates(rng, judged_days, levels).sum(axis=0))
    outcomes = []
    for limit in limits:
        capacity = capacity_at(laws, limit)
        needed = future[int(np.ceil(future.size * (1 - limit))) - 1]
        outcomes.append(Outcome(
            limit, float((future > capacity).mean() / limit),
            float(1 - needed / capacity)))
    return outcomes
