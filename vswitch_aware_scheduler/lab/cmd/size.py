# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage size: computes how many instances fit, and how many hosts."""

import argparse
import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import sizing
from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.lab.cmd import arguments as arguments_of
from vswitch_aware_scheduler.lab.cmd import size_servers
from vswitch_aware_scheduler.lab.purchase import inputs
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior as traffic_prior
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['Size', 'remarks', 'run', 'tables']


def _add_arguments(parser):
    parser.add_argument('--profile', metavar='NAME', action='append',
                        help='switch profile of the hosts; may be given '
                             'several times (default: all)')
    arguments_of.add_options(
        parser,
        ('--overload-probability', 'E', float, 'limit of each host, 0 to 1 '
         '(default: the option of that name)'),
        ('--count', 'N', int, 'print how many hosts this number of instances '
         'needs'))
    size_servers.add_arguments(parser)
    traffic = parser.add_argument_group(
        'traffic of an instance', 'Give rates and times, or one of the '
        'others. The default is the traffic of the options '
        'default_egress_kbps and so on.')
    arguments_of.add_options(
        traffic,
        ('--egress-kbps', 'R', float, 'rate at which the instance sends while '
         'it is on'),
        ('--ingress-kbps', 'R', float, 'rate at which the instance receives '
         'while it is on'),
        ('--kpps', 'R', float, 'kilo-packets/s of both directions together '
         'while the instance is on'),
        ('--on-seconds', 'S', float, 'mean time for which the instance stays '
         'on (default: always)'),
        ('--off-seconds', 'S', float, 'mean time for which the instance stays '
         'off'),
        ('--instance', 'UUID', str, 'the learned model of this instance, '
         'given by its uuid or its name in the list of models'),
        ('--flavor', 'NAME', str, 'the learned prior of this flavor'),
        ('--project', 'ID', str, 'the learned prior of this project; with '
         '--flavor the prior of this flavor in this project'))
    traffic.add_argument(
        '--fleet-prior', action='store_true',
        help='the learned prior of all instances together, which applies to '
             'an instance of a new flavor and project')
    traffic.add_argument(
        '--fleet', action='store_true',
        help='place all instances that have a model on hosts, one after the '
             'other, in a random order')
    arguments_of.add_options(
        traffic, ('--seed', 'K', int, 'seed of the random order (default: 1)',
                  1))


def run(arguments, conf, opened, progress=None):
    """Return the result of the command as plain data."""
    limit = arguments.overload_probability
    if limit is None:
        limit = conf.overload_probability
    checks.check('overload probability', limit, checks.number(0, 1))
    checks.check('count', arguments.count, checks.whole(
        high=math.inf, default=None))
    sources = _ways(arguments)
    if len(sources) > 1:
        raise exceptions.InvalidInput(
            f'traffic: stated by {" and ".join(sources)}; expected one of '
            f'them')
    if arguments.server_types is not None:
        if arguments.mix is not None and sources not in ([], ['--fleet']):
            raise exceptions.InvalidInput(
                f'{sources[0]}: given together with --mix; expected only '
                f'--mix, because the flavors of {arguments.mix} state their '
                f'traffic')
        return size_servers.run(
            arguments, conf, opened, limit,
            lambda: _law(arguments, conf, opened, *sources), progress)
    size_servers.require_server_types(arguments)
    margin = conf.prediction_margin
    policies = [admission.HostPolicy(profile, overload_probability=limit,
                                     prediction_margin=margin)
                for profile in _profiles(arguments, conf)]
    answer = {'overload_probability': limit, 'prediction_margin': margin}
    if arguments.fleet:
        if arguments.count is not None:
            raise exceptions.InvalidInput(
                f'count: {arguments.count}; expected no --count with --fleet, '
                'which places all instances that have a model')
        laws = [law for _, law in sorted(opened().read_changes().laws())]
        if not laws:
            raise exceptions.InvalidInput(
                'models in the store: none; expected the models of a fleet: '
                'run vswitch-modeler or "vswitch-manage fit"')
        np.random.default_rng(arguments.seed).shuffle(laws)
        return {**answer, 'instances': len(laws), 'profiles': [
            _of_fleet(policy, laws)
            for policy in _followed(policies, progress)]}
    traffic, law, is_prior, _ = _law(arguments, conf, opened, *sources)
    return {**answer, 'traffic': traffic,
            'mean_kbps': float(law.mean[:2].sum()),
            'peak_kbps': float(law.rates[:, :2].sum(axis=1).max()),
            'count': arguments.count, 'profiles': [
                # As the scheduler counts residents and new instances.
                _of_host(policy, policy.fitting(law) if is_prior else law,
                         arguments.count)
                for policy in _followed(policies, progress)]}


def _followed(policies, progress):
    """Yield policies; report how many are done."""
    for number, policy in enumerate(policies):
        if progress:
            progress(number, len(policies))
        yield policy
    if progress:
        progress(len(policies), len(policies))


def _profiles(arguments, conf):
    profiles = switch_profile.profiles(conf.switch_profiles_file)
    return [switch_profile.named(name, profiles)
            for name in arguments.profile or profiles]


def _ways(arguments):
    """Return the names of the arguments that state the traffic."""
    given_by_way = {
        'numbers': any(getattr(arguments, name) is not None
                       for name in inputs.TRAFFIC_KEYS),
        '--instance': arguments.instance is not None,
        '--flavor or --project': (arguments.flavor is not None
                                  or arguments.project is not None),
        '--fleet-prior': arguments.fleet_prior,
        '--fleet': arguments.fleet}
    return [name for name, is_given in given_by_way.items() if is_given]


def _law(arguments, conf, opened, source=None):
    """Return the traffic and its law.

    :returns: (description of the traffic, RateLaw, whether it is a prior,
        TrafficModel or None)
    """
    if source is None:
        default = model.TrafficModel.on_off(**options.default_demand(conf))
        return 'default of the options', default.law, False, default
    if source == 'numbers':
        given = _stated(arguments)
        return 'numbers that were given', given.law, False, given
    store = opened()
    if source == '--instance':
        record = instances.find_model(store, arguments.instance)
        return (f'model of instance {arguments.instance}', record.model.law,
                False, record.model)
    if store.priors():
        for kind, value, existing in instances.unseen_groups(
                store, arguments.flavor, arguments.project):
            raise exceptions.InvalidInput(
                f'{kind}: {value!r}; expected a {kind} of an instance in the '
                f'inventory: {", ".join(existing) or "there is none"}. For a '
                f'new {kind} use --fleet-prior')
    prior = snapshot.Snapshot().updated(store.read_changes()).prior(
        None, arguments.flavor, arguments.project)
    if prior is None:
        raise exceptions.InvalidInput(
            f'store {store.url} has no prior; expected priors, which need '
            f'models of {traffic_prior.MIN_PEERS} instances')
    return f'prior of {prior[1]}', prior[0], True, None


def _stated(arguments):
    return inputs.traffic_of('an instance', {
        name: checks.check(name, value, checks.number(high=math.inf))
        for name in inputs.TRAFFIC_KEYS
        if (value := getattr(arguments, name)) is not None})


def _of_host(policy, law, count):
    size = sizing.host_size(policy, law)
    return {
        'profile': policy.profile.name, 'instances': size.instances,
        'instances_by_peak': sizing.most_by_peak(policy, law),
        'instances_by_average': sizing.most_by_average(policy, law),
        'hosts': None if count is None or not size.instances
        else -(-count // size.instances),
        'overload_probability': size.overload_probability,
        'loss_fraction': size.loss_fraction,
        'utilisation': size.utilisation, 'rate_kbps': size.rate_kbps,
        'cpu_mhz': size.cpu_mhz, 'reason': size.reason}


def _of_fleet(policy, laws):
    size = sizing.fleet_size(policy, laws)
    placed = len(laws) - size.refused
    return {
        'profile': policy.profile.name, 'hosts': size.hosts,
        'refused': size.refused,
        'instances_per_host': placed / size.hosts if size.hosts else None,
        'overload_probability_mean': _mean(size.overload_probability),
        'overload_probability_worst': float(
            size.overload_probability.max(initial=0.0)),
        'rate_kbps_mean': _mean(size.rate_kbps),
        'cpu_mhz_mean': None if size.cpu_mhz is None
        else _mean(size.cpu_mhz)}


def _mean(values):
    return float(values.mean()) if values.size else 0.0


def tables(answer: dict):
    """Yield (title, header, rows) of the answer as text."""
    if 'server_types' in answer:
        yield from size_servers.tables(answer)
        return
    limit = f'P(overload) <= {answer["overload_probability"]:g}'
    if 'traffic' not in answer:
        yield (f'{answer["instances"]} instances that have a model, {limit}',
               ['PROFILE', 'HOSTS', 'REFUSED', 'PER_HOST', 'OVERLOAD',
                'WORST', 'KBPS', 'CPU_MHZ'],
               [[profile['profile'], profile['hosts'], profile['refused'],
                 terminal.cell(profile['instances_per_host'], '.1f'),
                 plain_text.chance(profile['overload_probability_mean'],
                                   '.2g'),
                 plain_text.chance(profile['overload_probability_worst'],
                                   '.2g'),
                 terminal.cell(profile['rate_kbps_mean'], '.0f'),
                 terminal.cell(profile['cpu_mhz_mean'], '.0f')]
                for profile in answer['profiles']])
        return
    yield (f'Instances a host, each as the {answer["traffic"]}: mean '
           f'{answer["mean_kbps"]:.6g} kbit/s, peak '
           f'{answer["peak_kbps"]:.6g}; {limit}',
           ['PROFILE', 'INSTANCES', 'BY_PEAK', 'BY_AVERAGE', 'HOSTS',
            'OVERLOAD', 'LOST', 'USED', 'KBPS', 'CPU_MHZ'],
           [[profile['profile'], _count(profile['instances']),
             _count(profile['instances_by_peak']),
             _count(profile['instances_by_average']),
             terminal.cell(profile['hosts'], 'd'),
             plain_text.chance(profile['overload_probability'], '.2g'),
             plain_text.chance(profile['loss_fraction'], '.2g'),
             terminal.cell(profile['utilisation'], '.0%'),
             terminal.cell(profile['rate_kbps'], '.0f'),
             terminal.cell(profile['cpu_mhz'], '.0f')]
            for profile in answer['profiles']])


def remarks(answer: dict) -> tuple:
    """Return (title, list of lines) to print below the tables."""
    if 'server_types' in answer:
        return 'Refused by an empty server', size_servers.remarks(answer)
    return 'Why not one more', [
        f'{profile["profile"]}: {profile["reason"]}'
        for profile in answer['profiles']
        if profile.get('reason')]


def _count(number):
    return f'>={number}' if number == sizing.MOST else number


class Size(base.Command):
    """Compute how many instances fit on a host, or hosts are needed."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_arguments(parser)

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the result of :func:`run`."""
        with terminal.progress('sizing') as progress:
            return run(arguments, self.conf, lambda: self.store, progress)

    def describe(self, answer: dict) -> None:
        """Print the tables and what limits each host."""
        terminal.print_tables(tables(answer))
        terminal.print_remarks(*remarks(answer))
