# SPDX-License-Identifier: Apache-2.0
"""Explains why hosts are refused, the same in logs and in commands. Pure.

A refused host counts for the first check that refuses it.
"""

import collections
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.admission import assessment as assessments
from vswitch_aware_scheduler.common import plain_text

__all__ = ['CHECKS', 'HostRefusal', 'counts', 'line', 'nearest', 'observed']

#: All checks that can refuse a host, in words.
CHECKS = (*assessments.CHECKS[1:], assessments.FUNCTIONS)

#: Maximum number of hosts whose tunnels are counted to rank them.
_MOST_COUNTED = 100

# Hosts are ranked by the check that refuses them: a check of the load passes
# again when instances leave, a hard limit rarely does.
_BY_LOAD, _BY_HARD_LIMIT, _BY_NOTHING = range(3)
_RANKS = np.full(len(assessments.CHECKS), _BY_LOAD)
_RANKS[[assessments.TOO_MANY, assessments.PEAK]] = _BY_HARD_LIMIT
_RANKS[assessments.NO_PROFILE] = _BY_NOTHING


@dataclasses.dataclass(frozen=True)
class HostRefusal:
    """Why one host is refused, or would be refused."""

    host: str
    check: str
    value: float | None
    limit: float | None
    enforced: bool
    text: str

    def __str__(self):
        if self.value is None or self.limit is None:
            return f'{self.host} ({self.check})'
        return '{} ({} > {})'.format(self.host, *plain_text.distinct(
            self.value, self.limit, 3))


def counts(assessment: assessments.Assessment) -> dict[str, int]:
    """Return {check: number of refused hosts}, the most frequent first."""
    numbers = collections.Counter(dict(zip(
        assessments.CHECKS, np.bincount(
            assessment.reason, minlength=len(assessments.CHECKS)).tolist())))
    del numbers[assessments.CHECKS[assessments.ADMITTED]]
    functions = assessment.refused_for_functions()
    numbers[assessments.CHECKS[assessments.TOO_MANY]] -= functions
    numbers[assessments.FUNCTIONS] = functions
    # Reversed, because the sort is stable.
    return {check: count for check, count in sorted(
        reversed(numbers.items()), key=lambda item: -item[1]) if count}


def observed(assessment: assessments.Assessment) -> int:
    """Return how many hosts pass although a check refuses them."""
    return int((~assessment.admitted & ~assessment.enforced).sum())


def nearest(assessment: assessments.Assessment,
            most: int = 1) -> list[HostRefusal]:
    """Return the Refusals of the hosts that are nearest to fitting.

    Hosts that are refused for their load come first, then those refused by a
    hard limit, then those without a profile. Within each group, the smallest
    ratio of value to limit comes first, then the lowest mean utilisation.
    """
    refused = np.flatnonzero(~assessment.admitted)
    ranks = _RANKS[assessment.reason[refused]]
    multiples = assessment.multiples(refused)
    if most > (ranks == _BY_LOAD).sum():
        # Each of these hosts needs a separate lookup.
        at = np.flatnonzero(
            assessment.reason[refused] == assessments.TOO_MANY)
        for place in at[:_MOST_COUNTED].tolist():
            multiples[place] = _multiple(assessment.decisive(refused[place]))
    used = assessment.utilisation
    order = np.lexsort((used[refused], multiples, ranks))[:most].tolist()
    return [_refusal(assessment, int(refused[i])) for i in order]


def line(hosts: int, counted: dict[str, int], closest: HostRefusal | None
         ) -> str:
    """Return in one line which checks refuse how many hosts."""
    checks = ', '.join(f'{count} {check}' for check, count in counted.items())
    return (f'{hosts} {"host" if hosts == 1 else "hosts"}: '
            f'{checks or "none refused"}'
            + (f'; closest {closest}' if closest is not None else ''))


def _refusal(assessment: assessments.Assessment, i: int) -> HostRefusal:
    value, limit = assessment.decisive(i) or (None, None)
    return HostRefusal(assessment.host(i), assessment.check(i), value, limit,
                       bool(assessment.enforced[i]), assessment.explain(i))


def _multiple(numbers: tuple[float, float] | None) -> float:
    if numbers is None or numbers[1] <= 0:
        return math.inf
    return numbers[0] / numbers[1]
