# SPDX-License-Identifier: Apache-2.0
"""What became of decisions: their hosts, joined with measured overload.

A host counts once. It is REFUSED if it received an instance although a check
of its traffic refuses it, and is judged from the first such decision on. Other
hosts that received an instance are ADMITTED. Pure but for the store.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import math

from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.fleet import realised
from vswitch_aware_scheduler import store as model_store

__all__ = ['ADMITTED', 'REFUSED', 'by_host', 'compared', 'sentences',
           'summary']

REFUSED, ADMITTED = 'refused', 'admitted'

#: Checks that measured traffic can neither confirm nor disprove.
_OTHER_CHECKS = {'no profile', 'tunnels', 'virtual functions', 'uplink',
                 'error budget', 'large neighbour'}

#: Confidence from which a difference is certain.
_CERTAIN = .95


def by_host(decisions: Iterable[model_store.Decision]) -> tuple:
    """Return the decision by which each host counts.

    :returns: ({host: (REFUSED or ADMITTED, Decision)}, {reason for leaving
        out: number of hosts})
    """
    counted, left_out = {}, {}
    for decision in sorted(decisions, key=lambda one: one.decided_at):
        if decision.outcome != model_store.PLACED:
            continue
        host, reason = decision.host, _not_counted(decision.chosen)
        if reason is not None:
            left_out.setdefault(host, reason)
            continue
        group = ADMITTED if decision.chosen['check'] is None else REFUSED
        if host not in counted or (
                (counted[host][0], group) == (ADMITTED, REFUSED)):
            counted[host] = group, decision
    return counted, collections.Counter(
        reason for host, reason in left_out.items() if host not in counted)


def _not_counted(chosen):
    """Return why traffic says nothing of a host, or None."""
    if chosen is None or chosen['overload_probability'] is None:
        return 'no filter checked the host'
    if chosen['check'] in _OTHER_CHECKS:
        return f'refused for {chosen["check"]}'
    return None if chosen['limit'] is not None \
        else 'no overload probability limits them'


def compared(counted: dict, left_out: dict, slots_of: Callable) -> dict:
    """Return how long the hosts were overloaded since, as JSON has it.

    :param counted: and ``left_out``: as :func:`by_host` returns them
    :param slots_of: callable(host, Decision), returns the numbers of slots
        since then, as :class:`.Realised` has them
    """
    groups, hosts = {REFUSED: [], ADMITTED: []}, []
    for host, (group, decision) in sorted(counted.items()):
        chosen = decision.chosen
        outcome = realised.Realised(chosen['overload_probability'],
                                    chosen['limit'], *slots_of(host, decision))
        groups[group].append(outcome)
        hosts.append({
            'host': host, 'group': group, 'check': chosen['check'],
            'decided_at': decision.decided_at,
            'predicted': outcome.predicted, 'limit': outcome.limit,
            'slots': outcome.slots,
            'slots_wanted': realised.slots_wanted(outcome.limit),
            'overloaded_slots': outcome.overloaded,
            'realised': outcome.share if outcome.slots else None,
            'overloaded': outcome.is_overloaded if outcome.is_measured
            else None})
    measured = {name: realised.group_of(outcomes)
                for name, outcomes in groups.items()}
    return {
        'confidence': realised.CONFIDENCE, 'groups': [
            {'group': name, 'hosts_decided': len(groups[name]),
             **dataclasses.asdict(group)}
            for name, group in measured.items()],
        'left_out': dict(left_out),
        'remarks': [
            *_difference(measured[REFUSED], measured[ADMITTED]),
            *_predictions(measured),
            *(remark for pair in groups.items() for remark in _waiting(*pair)),
            *(f'{number} hosts are left out: {reason}'
              for reason, number in left_out.items())],
        'hosts': hosts}


def _difference(refused, admitted):
    if not refused.hosts or not admitted.hosts:
        return
    more, less = (realised.confidence_of_more(*pair) for pair in (
        (refused, admitted), (admitted, refused)))
    if refused.share == admitted.share:
        yield 'refused hosts were overloaded as often as admitted ones'
        return
    word, confidence = ('more', more) if refused.share > admitted.share \
        else ('less', less)
    yield (f'refused hosts were overloaded {word} often than admitted ones: '
           f'{refused.overloaded_hosts} of {refused.hosts} and '
           f'{admitted.overloaded_hosts} of {admitted.hosts}, confidence '
           + (f'{100 * confidence:.0f} %' if confidence < .99
              else 'above 99 %')
           + ('' if confidence >= _CERTAIN else ', not yet certain'))


def _predictions(measured):
    for name, group in measured.items():
        # Few hosts differ too little from each other for an interval.
        if group.hosts < realised.MIN_HOSTS:
            continue
        if group.predicted > group.realised_high:
            yield f'{name}: more overload was predicted than measured'
        elif group.predicted < group.realised_low:
            yield f'{name}: less overload was predicted than measured'


def _waiting(name, outcomes):
    """Yield of how many hosts too little was measured, in words."""
    waiting = [outcome for outcome in outcomes if outcome.waits]
    if waiting:
        last = max(waiting, key=lambda outcome: realised.slots_wanted(
            outcome.limit) - outcome.slots)
        yield (f'{name}: {len(waiting)} hosts wait for traffic to be '
               f'measured: {last.slots} slots of time since the decision; '
               f'expected {realised.slots_wanted(last.limit)}')
    unclear = sum(not outcome.is_measured for outcome in outcomes) \
        - len(waiting)
    if unclear:
        yield (f'{name}: of {unclear} hosts too few instances are measured to '
               f'tell')


def summary(store: model_store.Store,
            decisions: Iterable[model_store.Decision], now: float) -> dict:
    """Return what enforcement would have changed, and whether rightly.

    The overload is that of the sums that modelers stored for error budgets,
    which reach back seven days.

    :param now: current time, seconds UTC
    :raises StoreError: if the store cannot be read
    """
    decisions = list(decisions)
    counted, left_out = by_host(decisions)
    histories = packed.history(
        store, model_store.HOST, now, counted.keys()) if counted else {}

    def slots_of(host, decision):
        return histories[host].measured(decision.decided_at, math.inf) \
            if host in histories else (0, 0)

    return {
        'since_at': min((decision.decided_at for decision in decisions),
                        default=None),
        'requests': len(decisions),
        'would_fail': sum(not decision.admitted for decision in decisions),
        'failed': sum(decision.outcome == model_store.NO_HOST
                      for decision in decisions),
        'elsewhere': sum(
            decision.admitted > 0 and decision.chosen is not None
            and decision.chosen['check'] is not None
            for decision in decisions),
        **compared(counted, left_out, slots_of)}


def sentences(answer: dict) -> list[str]:
    """Return the result of :func:`summary` in words, for people."""
    if not answer['requests']:
        return ['The store has no decision of a scheduler.']
    return [
        f'Of {answer["requests"]} requests since '
        f'{plain_text.iso_time(answer["since_at"])}, {answer["would_fail"]} '
        f'would have failed and {answer["elsewhere"]} would be on another '
        f'host if every host were enforced. {answer["failed"]} did fail.',
        *(f'{group["hosts_decided"]} hosts received an instance '
          + ('although they are refused'
             if group['group'] == REFUSED else 'and are admitted')
          + f': {group["hosts"]} of them were measured for long enough since, '
            f'and {group["overloaded_hosts"]} were overloaded for longer than '
            f'their limit'
          + ('.' if not group['hosts'] else
             f' ({100 * group["share_low"]:.0f} to '
             f'{100 * group["share_high"]:.0f} %).')
          for group in answer['groups'] if group['hosts_decided'])]
