# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage prior: prints the priors of instances without a model."""

import argparse
import math

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import prior as traffic_prior

__all__ = ['List', 'Show']

#: Number of kinds of hosts for which ``prior show`` prints a line.
_MOST_KINDS = 8

_column = base.Column


class List(base.List):
    """Print the groups that have a prior."""

    rows_key = 'priors'
    below = 'priors; P99 of both directions together'
    filters = ('project',)
    # Peaks are not printed: after shrinkage, every prior has the peak of the
    # fleet.
    columns = [
        _column('FLAVOR', 'flavor', absent='any'),
        _column('PROJECT', 'project', absent='any'),
        _column('MEMBERS', 'members', '{:.0f}'.format),
        _column('MEAN EGRESS', 'mean.egress_kbps'),
        _column('MEAN INGRESS', 'mean.ingress_kbps'),
        _column('P99', 'p99_kbps'), _column('UPDATED', 'updated_at_iso')]

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the priors, sorted by flavor and project."""
        priors = [prior for prior in self.store.priors().values()
                  if prior.instance_uuid is None]
        priors.sort(key=lambda prior: [
            (name is None, base.natural(name or ''))
            for name in (prior.flavor, prior.project)])
        return {'priors': [{
            'flavor': prior.flavor, 'project': prior.project,
            'members': (int(prior.members) if prior.members.is_integer()
                        else prior.members), 'mean': rates.by_name(
                prior.law.mean.tolist(), prior.law.packets_known),
            'p99_kbps': _p99_kbps(prior.law),
            'peak': rates.by_name(prior.law.peak.tolist(),
                                  prior.law.packets_known),
            'updated_at': prior.updated_at} for prior in priors]}


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


class Show(base.Show):
    """Print the prior that counts for an instance without a model."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('instance', metavar='SERVER', nargs='?',
                            help='uuid or name of an instance')
        parser.add_argument('--flavor', metavar='NAME',
                            help='name of a flavor (default: the flavor of '
                                 'the instance, if the inventory contains it)')
        parser.add_argument('--project', metavar='ID',
                            help='id of a project, with or without --flavor')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the prior, and what exceeds the capacity of hosts."""
        target = self.store
        uuid = None if arguments.instance is None else instances.find_uuid(
            target, arguments.instance)
        view = snapshot.Snapshot().updated(target.read_changes())
        prior = view.prior(uuid, arguments.flavor, arguments.project)
        if prior is None:
            raise exceptions.InvalidInput(
                thing=f'prior in the store {target.url}', seen='none for this '
                'instance', expected=f'models of {traffic_prior.MIN_PEERS} '
                'instances, which a prior needs')
        law, prior_of = prior
        states = sorted(zip(law.rates.tolist(), law.probabilities.tolist()),
                        key=lambda state: sum(state[0][:2]))
        return {
            'prior_of': prior_of, 'remarks': instances.unseen_remarks(
                target, arguments.flavor, arguments.project),
            'mean': rates.by_name(law.mean.tolist(), law.packets_known),
            'above_capacity': {
                kind: traffic_prior.share_above(law, policy.capacities)
                for kind, policy in _kinds_of_hosts(
                    target, self.conf).items()},
            'states': [{**rates.by_name(of_state, law.packets_known),
                        'probability': share} for of_state, share in states]}

    def for_people(self, answer: dict) -> dict:
        """Return the fields with the kinds of hosts as a list."""
        return {**answer, 'above_capacity': [
            f'hosts {kind}: {100 * share:.3g} % of the time'
            + (', left out there' if answer['prior_of'] != 'instance'
               and 0 < share <= traffic_prior.MOST_LEFT_OUT else '')
            for kind, share in answer['above_capacity'].items()]}
