# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage prior: prints the priors of instances without a model."""

import math

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import prior as traffic_prior

__all__ = ['SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'print the traffic that is assumed for instances without a model'

#: Number of kinds of hosts for which ``prior show`` prints a line.
_MOST_KINDS = 8


def add_arguments(parser):
    """Add the sub-commands of ``prior``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    output.add_list_arguments(parser.add_command(
        'list', 'print the groups that have a prior', _list), 'project')
    show = parser.add_command(
        'show', 'print the prior that a scheduler uses for an instance '
                'without a model',
        _show)
    show.add_argument('instance', metavar='UUID', nargs='?',
                      help='uuid of an instance, or the name of an instance '
                           'that has a model')
    show.add_argument('--flavor', metavar='NAME',
                      help='name of a flavor (default: the flavor of the '
                           'instance, if the inventory contains it)')
    show.add_argument('--project', metavar='ID',
                      help='id of a project, with or without --flavor')


def _list(arguments, conf):
    priors = [prior for prior in context.open_store(conf).priors().values()
              if prior.instance_uuid is None]
    priors.sort(key=lambda prior: [
        (name is None, output.natural(name or ''))
        for name in (prior.flavor, prior.project)])
    # Peaks are not printed: after shrinkage, every prior has the peak of the
    # fleet.
    column = output.Column
    output.print_list(arguments, [{
        'flavor': prior.flavor, 'project': prior.project,
        'members': (int(prior.members) if prior.members.is_integer()
                    else prior.members), 'mean': rates.by_name(
            prior.law.mean.tolist(), prior.law.packets_known),
        'p99_kbps': _p99_kbps(prior.law),
        'peak': rates.by_name(prior.law.peak.tolist(),
                              prior.law.packets_known),
        'updated_at': prior.updated_at} for prior in priors], [
            column('FLAVOR', 'flavor', absent='any'),
            column('PROJECT', 'project', absent='any'),
            column('MEMBERS', 'members', '{:.0f}'.format),
            column('MEAN EGRESS', 'mean.egress_kbps'),
            column('MEAN INGRESS', 'mean.ingress_kbps'),
            column('P99', 'p99_kbps'), column('UPDATED', 'updated_at_iso')],
        'priors', 'priors; rates in kbit/s, P99 of both directions together')
    return 0


def _p99_kbps(law):
    """Return the rate that is not exceeded during 99 % of the time."""
    bandwidth = law.rates[:, :2].sum(axis=1)
    order = bandwidth.argsort()
    below = law.probabilities[order].cumsum()
    return float(bandwidth[order][(below < 0.99 - 1e-9).sum()])


def _kinds_of_hosts(target, conf):
    """Return {capacities: HostPolicy}, those of the most hosts first."""
    policies = {}
    for policy in facts.policies(
            target, *wiring.make_policies(conf)).hosts.values():
        text = ', '.join(_limit(*limit) for limit in policy.capacities
                         if limit[2] < math.inf)
        if text:
            policies.setdefault(text, []).append(policy)
    most_frequent = sorted(
        policies, key=lambda text: (-len(policies[text]), text))
    return {text: policies[text][0] for text in most_frequent[:_MOST_KINDS]}


def _limit(weights, packet_bytes, capacity):
    text = f'{" ".join(f"{weight:.12g}" for weight in weights)} ' \
           f'<= {capacity:.12g}'
    return f'{text} at {packet_bytes:g} bytes' if weights[2] else text


def _show(arguments, conf):
    target = context.open_store(conf)
    uuid = None if arguments.instance is None else instances.find_uuid(
        target, arguments.instance)
    view = snapshot.Snapshot().updated(target.read_changes())
    prior = view.prior(uuid, arguments.flavor, arguments.project)
    if prior is None:
        raise exceptions.InvalidInput(
            f'store {target.url} has no prior for this instance; a prior '
            f'needs models of {traffic_prior.MIN_PEERS} instances')
    law, prior_of = prior
    left_out = {
        kind: traffic_prior.share_above(law, policy.capacities)
        for kind, policy in _kinds_of_hosts(target, conf).items()}
    remarks = [
        f'No instance has {kind} {value!r}: that is how a new one counts.'
        for kind, value, _ in instances.unseen_groups(
            target, arguments.flavor, arguments.project)]
    states = sorted(zip(law.rates.tolist(), law.probabilities.tolist()),
                    key=lambda state: sum(state[0][:2]))
    if output.print_answer(arguments, {
            'prior_of': prior_of, 'remarks': remarks,
            'mean': rates.by_name(law.mean.tolist(), law.packets_known),
            'above_capacity': left_out,
            'states': [{**rates.by_name(of_state, law.packets_known),
                        'probability': share} for of_state, share in states]}):
        return 0
    terminal.print_fields([
        ('Prior of', prior_of), ('Mean egress', rates.number(law.mean[0])),
        ('Mean ingress', rates.number(law.mean[1])),
        *((f'Above hosts {kind}', f'{100 * share:.3g} % of the time'
           + (', left out there' if prior_of != 'instance' and 0 < share
              <= traffic_prior.MOST_LEFT_OUT else ''))
          for kind, share in left_out.items())])
    for text in remarks:
        terminal.print_line(text)
    terminal.print_line()
    terminal.print_table(
        ['EGRESS_KBPS', 'INGRESS_KBPS', 'KPPS', 'PROBABILITY'],
        [[*rates.cells(of_state, law.packets_known), f'{share:.6f}']
         for of_state, share in states])
    return 0
