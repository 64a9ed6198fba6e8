# SPDX-License-Identifier: Apache-2.0
"""The words for why hosts are refused, alike in logs and in commands. Pure.

A refused host counts once, for the first check that refuses it. So what is
counted for all checks and the hosts that pass add up to the number of hosts.
"""

import collections
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.admission import assessment as assessments
from vswitch_aware_scheduler import plain_text

__all__ = ['CHECKS', 'ROOM', 'Refusal', 'counts', 'line', 'nearest',
           'no_room', 'observed']

#: Check of the strict mode: what Placement has left of a host.
ROOM = 'room in Placement'

#: All checks that can refuse a host, in words.
CHECKS = (*assessments.CHECKS[1:], assessments.FUNCTIONS, ROOM)

#: Hosts whose tunnels are counted to rank them, at most.
_MOST_COUNTED = 100

# Hosts are ranked by the kind of check that refuses them: what the load of a
# host decides passes when instances leave, a hard limit rarely does.
_BY_LOAD, _BY_HARD_LIMIT, _BY_NOTHING = range(3)
_RANKS = np.full(len(assessments.CHECKS), _BY_LOAD)
_RANKS[[assessments.TOO_MANY, assessments.PEAK]] = _BY_HARD_LIMIT
_RANKS[assessments.NO_PROFILE] = _BY_NOTHING


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why one host is refused, or would be.

    :ivar host: its name
    :ivar check: the first check that refuses it, in words
    :ivar value: number that the check compares, or None
    :ivar limit: number that the value is above, or None
    :ivar enforced: False where the host passes all the same
    :ivar text: the whole explanation
    """

    host: str
    check: str
    value: float | None
    limit: float | None
    enforced: bool
    text: str

    def __str__(self):
        if self.value is None:
            return f'{self.host} ({self.check})'
        return '{} ({} > {})'.format(self.host, *plain_text.distinct(
            self.value, self.limit, 3))


def counts(assessment, without_room=()):
    """Return {check in words: number of hosts that it refuses}.

    The most frequent check comes first; of equals, what the load decides
    comes before hard limits.

    :param assessment: Assessment of all hosts
    :param without_room: hosts that Placement has no room on, of those
        admitted
    """
    found = collections.Counter(dict(zip(
        assessments.CHECKS, np.bincount(
            assessment.reason, minlength=len(assessments.CHECKS)).tolist())))
    del found[assessments.CHECKS[assessments.ADMITTED]]
    functions = assessment.refused_for_functions()
    found[assessments.CHECKS[assessments.TOO_MANY]] -= functions
    found[assessments.FUNCTIONS] = functions
    found[ROOM] = len(without_room)
    # The last check first, for the sort is stable.
    return {check: count for check, count in sorted(
        reversed(found.items()), key=lambda item: -item[1]) if count}


def observed(assessment, without_room=()):
    """Return how many hosts pass although a check refuses them.

    Arguments as of :func:`counts`.
    """
    number = int((~assessment.admitted & ~assessment.enforced).sum())
    return number + sum(
        not assessment.enforced[assessment.position(host)]
        for host in without_room)


def nearest(assessment, without_room=None, most=1):
    """Return a list of the Refusals of the hosts that are nearest to fitting.

    Hosts that are refused for their load come first, then those refused by a
    hard limit, then those without profile; of each kind the host whose value
    is the smallest multiple of its limit, and of equals the one with the
    lowest average utilisation.

    :param assessment: Assessment of all hosts
    :param without_room: {host: (kbit/s that the instance takes, kbit/s that
        are free)} of those admitted that Placement has no room on
    :param most: at most so many
    """
    refused = np.flatnonzero(~assessment.admitted)
    ranks = _RANKS[assessment.reason[refused]]
    multiples = assessment.multiples(refused)
    if most > (ranks == _BY_LOAD).sum() + len(without_room or ()):
        # Each of these is looked up by itself.
        at = np.flatnonzero(
            assessment.reason[refused] == assessments.TOO_MANY)
        for place in at[:_MOST_COUNTED].tolist():
            multiples[place] = _multiple(assessment.decisive(refused[place]))
    used = assessment.utilisation
    order = np.lexsort((used[refused], multiples, ranks))[:most].tolist()
    found = [(ranks[i], multiples[i], used[refused[i]], _refusal(
        assessment, int(refused[i]))) for i in order]
    if without_room:
        places = {host: assessment.position(host) for host in without_room}
        found.extend(
            (_BY_LOAD, _multiple(numbers), used[places[host]], Refusal(
                host, ROOM, *map(float, numbers),
                bool(assessment.enforced[places[host]]), no_room(*numbers)))
            for host, numbers in without_room.items())
        found.sort(key=lambda one: one[:3])
    return [refusal for *_, refusal in found[:most]]


def line(hosts, counted, closest):
    """Return what refuses hosts in one line.

    :param hosts: how many there are
    :param counted: what :func:`counts` returns
    :param closest: the nearest Refusal, or None
    """
    checks = ', '.join(f'{count} {check}' for check, count in counted.items())
    return (f'{hosts} {"host" if hosts == 1 else "hosts"}: '
            f'{checks or "none refused"}'
            + (f'; closest {closest}' if closest is not None else ''))


def no_room(amount, free):
    """Return why Placement has no room for an instance on a host.

    :param amount: kbit/s that the instance takes
    :param free: kbit/s that are left
    """
    return (f'placement has {free:d} kbit/s left for it, the instance takes '
            f'{amount:d}')


def _refusal(assessment, i):
    value, limit = assessment.decisive(i) or (None, None)
    return Refusal(assessment.host(i), assessment.check(i), value, limit,
                   bool(assessment.enforced[i]), assessment.explain(i))


def _multiple(numbers):
    """Return by how much a value is above its limit."""
    if numbers is None or numbers[1] <= 0:
        return math.inf
    return numbers[0] / numbers[1]
