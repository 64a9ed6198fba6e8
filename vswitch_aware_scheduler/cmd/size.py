# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage size: how many instances, and how many hosts."""

import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import sizing
from vswitch_aware_scheduler import snapshot
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['add_arguments', 'run', 'tables']

_STATED = ('egress_kbps', 'ingress_kbps', 'kpps', 'on_seconds',
           'off_seconds')


def add_arguments(parser):
    """Add the arguments of ``size``."""
    parser.add_argument('--profile', metavar='NAME', action='append',
                        help='switch profile of the hosts; may be given '
                             'several times (default: all)')
    parser.add_argument('--overload-probability', metavar='E', type=float,
                        help='limit of each host, 0 to 1 (default: the '
                             'option of that name)')
    parser.add_argument('--count', metavar='N', type=int,
                        help='tell the hosts that so many instances need')
    what = parser.add_argument_group(
        'traffic of an instance', 'One of these ways; without any, that of '
        'the options default_egress_kbps and so on.')
    what.add_argument('--egress-kbps', metavar='R', type=float,
                      help='rate that it sends at while it is on')
    what.add_argument('--ingress-kbps', metavar='R', type=float,
                      help='rate that it receives at while it is on')
    what.add_argument('--kpps', metavar='R', type=float,
                      help='kilo-packets/s of both directions meanwhile')
    what.add_argument('--on-seconds', metavar='S', type=float,
                      help='mean time that it is on (default: always)')
    what.add_argument('--off-seconds', metavar='S', type=float,
                      help='mean time that it is off')
    what.add_argument('--instance', metavar='UUID',
                      help='the learned model of this instance')
    what.add_argument('--flavor', metavar='NAME',
                      help='the learned prior of this flavor')
    what.add_argument('--project', metavar='ID',
                      help='that of this project, or with --flavor of both')
    what.add_argument('--fleet', action='store_true',
                      help='all instances that have a model, put on hosts '
                           'one after the other, in a random order')
    what.add_argument('--seed', metavar='K', type=int, default=1,
                      help='of that order (default: 1)')


def run(arguments, conf, opened):
    """Return the answer as plain data.

    :param conf: our group of options
    :param opened: callable, returns the store
    """
    limit = arguments.overload_probability
    if limit is None:
        limit = conf.overload_probability
    if not 0 <= limit <= 1:
        raise exceptions.InvalidInput(
            f'overload probability is {limit:g}, wanted a number 0 to 1')
    if arguments.count is not None and arguments.count < 1:
        raise exceptions.InvalidInput(
            f'count is {arguments.count}, wanted a number from 1')
    policies = [admission.HostPolicy(one, overload_probability=limit)
                for one in _profiles(arguments, conf)]
    ways = _ways(arguments)
    if len(ways) > 1:
        raise exceptions.InvalidInput(
            f'the traffic is told by {" and ".join(ways)}, wanted one of them')
    answer = {'overload_probability': limit}
    if arguments.fleet:
        if arguments.count is not None:
            raise exceptions.InvalidInput(
                f'count is {arguments.count}, wanted none with --fleet: that '
                f'is all instances that have a model')
        laws = [law for _, law in sorted(opened().read_changes().laws())]
        if not laws:
            raise exceptions.InvalidInput(
                'the store has no models, wanted those of a fleet')
        np.random.default_rng(arguments.seed).shuffle(laws)
        return {**answer, 'instances': len(laws), 'profiles': [
            _of_fleet(policy, laws) for policy in policies]}
    what, law = _law(arguments, conf, opened, *ways)
    return {**answer, 'traffic': what, 'mean_kbps': float(law.mean[:2].sum()),
            'peak_kbps': float(law.rates[:, :2].sum(axis=1).max()),
            'count': arguments.count, 'profiles': [
                _of_host(policy, law, arguments.count)
                for policy in policies]}


def _profiles(arguments, conf):
    found = switch_profile.profiles(conf.switch_profiles_file)
    return [switch_profile.named(name, found)
            for name in arguments.profile or found]


def _ways(arguments):
    """Return the names of the ways in which the traffic is told."""
    found = {'numbers': any(getattr(arguments, name) is not None
                            for name in _STATED),
             '--instance': arguments.instance is not None,
             '--flavor or --project': (arguments.flavor is not None
                                       or arguments.project is not None),
             '--fleet': arguments.fleet}
    return [name for name, given in found.items() if given]


def _law(arguments, conf, opened, way=None):
    """Return (what it is in words, RateLaw of an instance)."""
    if way is None:
        return 'default of the options', model.TrafficModel.on_off(
            **options.default_demand(conf)).law
    if way == 'numbers':
        return 'numbers that were given', _stated(arguments).law
    known = snapshot.Snapshot().updated(opened().read_changes())
    if way == '--instance':
        law = known.law(arguments.instance)
        if law is None:
            raise exceptions.InvalidInput(
                f'instance {arguments.instance} has no model, wanted one; '
                f'"vswitch-manage model list" prints those there are')
        return f'model of instance {arguments.instance}', law
    found = known.prior(None, arguments.flavor, arguments.project)
    if found is None:
        raise exceptions.InvalidInput(
            'the store has no prior, wanted one; "vswitch-manage prior list" '
            'prints those there are')
    return f'prior of {found[1]}', found[0]


def _stated(arguments):
    given = {name: getattr(arguments, name) for name in _STATED
             if getattr(arguments, name) is not None}
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise exceptions.InvalidInput(
                f'{name} is {value:g}, wanted a finite number from 0')
    rates = {name: given.get(name, 0.0) for name in _STATED[:3]}
    if not given.get('off_seconds'):
        return model.TrafficModel.constant(**rates)
    return model.TrafficModel.on_off(
        **rates, on_seconds=given.get('on_seconds', 0.0),
        off_seconds=given['off_seconds'])


def _of_host(policy, law, count):
    size = sizing.host_size(policy, law)
    peak, average = (
        sizing.host_size(admission.HostPolicy(policy.profile, **rule),
                         law).instances
        for rule in ({'overload_probability': 0.0},
                     {'policy': admission.AVERAGE}))
    return {
        'profile': policy.profile.name, 'instances': size.instances,
        'instances_by_peak': peak, 'instances_by_average': average,
        'hosts': None if count is None or not size.instances
        else math.ceil(count / size.instances),
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


def tables(answer):
    """Yield (title, header, rows) of the answer for a person."""
    limit = f'P(overload) <= {answer["overload_probability"]:g}'
    if 'traffic' not in answer:
        yield (f'{answer["instances"]} instances that have a model, {limit}',
               ['PROFILE', 'HOSTS', 'REFUSED', 'PER_HOST', 'OVERLOAD',
                'WORST', 'KBPS', 'CPU_MHZ'],
               [[one['profile'], one['hosts'], one['refused'],
                 terminal.cell(one['instances_per_host'], '.1f'),
                 terminal.cell(one['overload_probability_mean'], '.2g'),
                 terminal.cell(one['overload_probability_worst'], '.2g'),
                 terminal.cell(one['rate_kbps_mean'], '.0f'),
                 terminal.cell(one['cpu_mhz_mean'], '.0f')]
                for one in answer['profiles']])
        return
    yield (f'Instances a host, each as the {answer["traffic"]}: mean '
           f'{answer["mean_kbps"]:.6g} kbit/s, peak '
           f'{answer["peak_kbps"]:.6g}; {limit}',
           ['PROFILE', 'INSTANCES', 'BY_PEAK', 'BY_AVERAGE', 'HOSTS',
            'OVERLOAD', 'LOST', 'USED', 'KBPS', 'CPU_MHZ'],
           [[one['profile'], _count(one['instances']),
             _count(one['instances_by_peak']),
             _count(one['instances_by_average']),
             terminal.cell(one['hosts'], 'd'),
             terminal.cell(one['overload_probability'], '.2g'),
             terminal.cell(one['loss_fraction'], '.2g'),
             terminal.cell(one['utilisation'], '.0%'),
             terminal.cell(one['rate_kbps'], '.0f'),
             terminal.cell(one['cpu_mhz'], '.0f')]
            for one in answer['profiles']])


def _count(number):
    return f'>={number}' if number == sizing.MOST else number
