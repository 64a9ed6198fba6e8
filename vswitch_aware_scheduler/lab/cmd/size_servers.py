# SPDX-License-Identifier: Apache-2.0
"""``vswitch-manage size --server-types``: compares servers to buy."""

import argparse
import collections

import numpy as np

from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.admission import sizing
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.lab.cmd import arguments as arguments_of
from vswitch_aware_scheduler.lab.purchase import counts
from vswitch_aware_scheduler.lab.purchase import inputs
from vswitch_aware_scheduler.lab.purchase import picture
from vswitch_aware_scheduler.lab import stated
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior as traffic_prior
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['add_arguments', 'require_server_types', 'remarks', 'run',
           'tables']

#: Maximum number of instances of a fleet that are placed on servers; of more
#: instances, a random sample is used.
MOST_OF_FLEET = 1000

_FLAGS = ('mix', 'vm_cores', 'vm_memory_mb', 'plot')
_NEED = checks.number(above=True)._replace(
    expected='a number above 0, or --mix FILE')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the comparison of servers."""
    arguments_of.add_options(
        parser.add_argument_group(
            'servers to buy', 'Compare types of servers by the number of VMs '
            'of a mix that they carry, and by the price of servers for all '
            'VMs.'),
        ('--server-types', 'FILE', str, 'YAML file of server types: cores, '
         'memory, NIC, switch profiles and price'),
        ('--mix', 'FILE', str, 'YAML file of flavors: cores, memory, number '
         'of instances and traffic; with --fleet only cores and memory are '
         'read'),
        ('--vm-cores', 'N', float, 'without --mix: cores of each VM'),
        ('--vm-memory-mb', 'M', float, 'without --mix: memory of each VM'),
        ('--plot', 'FILE', str, 'write a picture to this file; the name must '
         'end in .png, .svg or .pdf'))


def require_server_types(arguments: argparse.Namespace) -> None:
    """Check that no argument is given that requires --server-types."""
    for name in _FLAGS:
        if getattr(arguments, name) is not None:
            stated.refuse('--' + name.replace('_', '-'),
                          getattr(arguments, name),
                          'only together with --server-types')


def run(arguments, conf, opened, limit, law_of, progress=None):
    """Return the result of the command as plain data.

    :param law_of: callable(), returns (description, RateLaw, whether it is a
        prior, TrafficModel or None) of the VMs without a mix
    """
    if arguments.plot is not None:
        picture.prepare(arguments.plot)
    profiles = switch_profile.profiles(conf.switch_profiles_file)
    currency, server_types = inputs.load_server_types(
        arguments.server_types, profiles, [
            switch_profile.named(name, profiles).name
            for name in arguments.profile or ()])
    traffic, mix = _mix(arguments, conf, opened, law_of)
    count = arguments.count or mix.total
    margin = conf.prediction_margin
    rows = counts.purchase(server_types, mix, limit, count, progress, margin)
    answer = {'overload_probability': limit, 'prediction_margin': margin,
              'traffic': traffic, 'count': count,
              'currency': currency, 'flavors': _flavors(mix),
              'server_types': rows,
              'technologies': counts.by_technology(rows)}
    if arguments.plot is not None:
        answer['picture'] = picture.draw(arguments.plot, answer)
    return answer


def _flavors(mix):
    """Return the flavors of a mix as plain data."""
    vms_by_flavor = {}
    for vm in mix.kinds:
        vms_by_flavor.setdefault(vm.flavor, []).append(vm)
    return [{
        'flavor': name, 'count': sum(vm.count for vm in vms),
        'cores': vms[0].cores, 'memory_mb': vms[0].memory_mb,
        'mean_kbps': sum(vm.count * float(vm.law.mean[:2].sum())
                         for vm in vms) / sum(vm.count for vm in vms),
        'peak_kbps': max(float(vm.law.rates[:, :2].sum(axis=1).max())
                         for vm in vms)}
            for name, vms in vms_by_flavor.items()]


def _mix(arguments, conf, opened, law_of):
    """Return (description of the VMs, Mix)."""
    vm = (('--vm-cores', arguments.vm_cores),
          ('--vm-memory-mb', arguments.vm_memory_mb))
    if arguments.mix is None:
        if arguments.fleet:
            raise exceptions.InvalidInput(
                '--mix: not given; expected a file with the cores and the '
                'memory of the flavors of the fleet')
        needs = [checks.check(flag, value, _NEED) for flag, value in vm]
        traffic, law, is_prior, traffic_model = law_of()
        # VMs of one kind do not all send at the same time.
        return traffic, inputs.mix_of_flavors([inputs.Vm(
            arguments.flavor or 'vm', *needs, law.independent(), traffic_model,
            is_prior, arguments.count or 1)], sizing.MOST + 1)
    for flag, value in vm:
        if value is not None:
            stated.refuse(flag, value, f'no {flag} together with --mix')
    flavors = inputs.load_flavors(arguments.mix)
    if arguments.fleet:
        return _fleet(arguments, conf, opened(), flavors)
    return f'mix {arguments.mix}', _stated_mix(arguments, flavors, opened)


def _stated_mix(arguments, flavors, opened):
    view, vms = None, []
    for flavor in flavors.values():
        place = f'mix {arguments.mix}: flavor {flavor.name!r}'
        if flavor.count is None:
            raise exceptions.InvalidInput(
                f'{place}: count: not given; expected a whole number from 1, '
                f'the number of VMs of this flavor')
        law, is_prior = flavor.model and flavor.model.law, False
        if flavor.model is None:
            if view is None:
                store = opened()
                flavors_with_prior = {prior.flavor
                                      for prior in store.priors().values()}
                view = snapshot.Snapshot().updated(store.read_changes())
            flavor_prior = flavor.name in flavors_with_prior and view.prior(
                None, flavor.name, None)
            if not flavor_prior:
                raise exceptions.InvalidInput(
                    f'{place}: traffic: not given, and the store has no prior '
                    f'of a flavor of this name; expected one of '
                    f'{", ".join(inputs.TRAFFIC_KEYS[:3])}, or a flavor of '
                    f'which {traffic_prior.MIN_PEERS} instances have a model')
            law, is_prior = flavor_prior[0].independent(), True
        vms.append(inputs.Vm(flavor.name, flavor.cores, flavor.memory_mb,
                             law, flavor.model, is_prior, flavor.count))
    return inputs.mix_of_flavors(vms, sizing.MOST + 1)


def _fleet(arguments, conf, store, flavors):
    """Return (description, Mix) of the instances in the store.

    An instance counts as in the scheduler.
    """
    placements = store.placements()
    if not placements:
        raise exceptions.InvalidInput(
            f'store {store.url} has no inventory of instances; expected an '
            f'inventory, which vswitch-modeler writes, or counts in the mix')
    left_out = sum(placement.flavor is None
                   for placement in placements.values())
    placements = {uuid: placement for uuid, placement in placements.items()
                  if placement.flavor is not None}
    if not placements:
        raise exceptions.InvalidInput(
            f'store {store.url}: flavors of {left_out} instances: all '
            f'missing; expected an inventory from Nova, which has the '
            f'flavors')
    unknown = collections.Counter(
        placement.flavor for placement in placements.values()
        if placement.flavor not in flavors)
    for flavor, number in unknown.most_common(1):
        raise exceptions.InvalidInput(
            f'mix {arguments.mix}: flavors: {flavor!r} is missing, which '
            f'{number} instances have; expected cores and memory_mb of every '
            f'flavor that instances have')
    uuids = sorted(placements)
    np.random.default_rng(arguments.seed).shuffle(uuids)
    total, uuids = len(uuids), uuids[:MOST_OF_FLEET]
    view = snapshot.Snapshot().updated(store.read_changes())
    default = model.TrafficModel.on_off(**options.default_demand(conf))
    extra_specs = store.fleet('flavor').facts
    vms = []
    for uuid in uuids:
        flavor = flavors[placements[uuid].flavor]
        demand = demand_rules.of_instance(
            view, uuid, [(flavor.name, extra_specs.get(flavor.name) or {})],
            placements[uuid].project, default.law)
        traffic_model = None
        if demand.rule == demand_rules.MODEL:
            record = store.model(uuid)
            traffic_model = record and record.model
        elif demand.rule == demand_rules.DEFAULT:
            traffic_model = default
        vms.append(inputs.Vm(
            flavor.name, flavor.cores, flavor.memory_mb, demand.law_on(None),
            traffic_model, demand.is_prior))
    description = f'{total} instances of the store'
    if len(vms) < total:
        description += f', of which {len(vms)} were picked at random'
    if left_out:
        description += f'; {left_out} without a known flavor are left out'
    return description, inputs.Mix(tuple(vms), total, False, tuple(vms))


# Text output.

def tables(answer: dict):
    """Yield (title, header, rows) of the answer."""
    rows = answer['server_types']
    currency = answer['currency'] and f' in {answer["currency"]}'
    limit = answer['overload_probability'] / answer['prediction_margin']

    def names(row):
        return [row['server'], row['profile']]

    yield (f'VMs that a server carries, {answer["traffic"]}, and what runs '
           f'out first; P(overload) <= {limit:g} for OVERLAY',
           ['SERVER', 'PROFILE', 'AGNOSTIC', 'FIRST', 'FIGURE9', 'FIRST',
            'OVERLAY', 'FIRST'],
           [names(row) + [cell for method in counts.METHODS for cell in (
               _count(row[method]['vms']),
               row[method]['first_to_run_out'] or '-')] for row in rows])
    yield (f'Servers for {answer["count"]} VMs, less those refused, and what '
           f'they cost{currency}',
           ['SERVER', 'PROFILE', *(
               f'{column}_{method}'.upper() for method in counts.METHODS
               for column in ('servers', 'cost')), 'REFUSED'],
           [names(row) + [cell for method in counts.METHODS for cell in (
               terminal.cell(row[method]['servers'], 'd'),
               terminal.cell(row[method]['cost'], '.0f'))]
            + [row[counts.OVERLAY]['refused']] for row in rows])
    yield ('A server that has so many VMs',
           ['SERVER', 'PROFILE', 'VMS', 'OVERLOAD', 'EPISODES_A_DAY',
            'SECONDS_EACH', 'LOST', 'UNUSED'],
           [names(row) + [
               _count(result['vms']),
               plain_text.chance(result['overload_probability'], '.2g'),
               plain_text.chance(result['episodes_per_day'], '.2g'),
               terminal.cell(result['mean_episode_seconds'], '.0f'),
               plain_text.chance(result['loss_fraction'], '.2g'),
               ', '.join(f'{name} {share:.0%}'
                         for name, share in result['unused'].items())]
            for row in rows for result in {
                row[method]['vms']: row[method]
                for method in counts.METHODS}.values()])
    if rows:
        sensitivity = rows[0]['sensitivity']
        yield ('VMs a server by the overlay, for other limits and for '
               'traffic that has grown (*: an empty server refuses some VMs)',
               ['SERVER', 'PROFILE', *(
                   f'E={variant["overload_probability"]:g}'
                   for variant in sensitivity['overload_probability']), *(
                   f'x{variant["growth"]:g}'
                   for variant in sensitivity['growth'])],
               [names(row)
                + [_count(variant['vms']) + '*' * bool(variant['refused'])
                   for points in row['sensitivity'].values()
                   for variant in points] for row in rows])
    yield ('The cheapest of each kind of switch that refuses no VM',
           ['SWITCH', 'ENCAPSULATION', 'SERVER', 'PROFILE', 'VMS', 'SERVERS',
            'COST'],
           [[technology['switch'], technology['encapsulation'],
             technology['server'] or '-',
             technology['profile'] or '-', '-' if technology['vms'] is None
             else _count(technology['vms']),
             terminal.cell(technology['servers'], 'd'),
             terminal.cell(technology['cost'], '.0f')]
            for technology in answer['technologies']])


def remarks(answer: dict) -> list:
    """Return in words which VMs a server refuses."""
    return [f'{row["server"]}, {row["profile"]}: flavor {flavor}, {resource}'
            for row in answer['server_types']
            for flavor, resource in row[counts.OVERLAY][
                'refused_flavors'].items()]


def _count(vms):
    if vms >= sizing.MOST:
        return f'>={sizing.MOST}'
    return f'{vms:.1f}' if vms % 1 else f'{vms:.0f}'
