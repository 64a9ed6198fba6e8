# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage fleet: prints the load of each host, from the store.

The inventory has the host of each instance, the modeler has written the policy
of each host, and the scheduler's LoadTable computes the sums. No request
is sent to a service.
"""

import argparse
from collections.abc import Callable
import time

from vswitch_aware_scheduler.admission import sizing
from vswitch_aware_scheduler.budgets import accounts
from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import episodes
from vswitch_aware_scheduler.fleet import room
from vswitch_aware_scheduler.fleet import rows
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['List', 'SORTS', 'Show', 'add_episodes', 'add_room', 'check_host',
           'host_rows', 'instance_rows', 'open_view', 'sort', 'uplink_rows']

#: Sort keys of hosts, and whether the largest values come first.
SORTS = {'host': False, 'risk': True, 'utilisation': True, 'instances': True,
         'room': False, 'budget': False}

#: Maximum number of hosts for which episodes are computed, because more take
#: minutes.
MOST_EPISODES = 500

#: Data are old after this number of passes of a modeler.
_PASSES = 3

#: Longest time between two updates of the age of the inventory.
_INVENTORY_SECONDS = 2 * 3600.0

#: Maximum number of projects that are named for a host.
_MOST_SPENDERS = 5


def _add_arguments(parser):
    parser.add_argument('--sort', choices=SORTS, default='host',
                        help='sort hosts by name, risk, utilisation, number '
                             'of instances, room or error budget; the highest '
                             'risk, the least room and the smallest budget '
                             'come first')
    parser.add_argument('--flavor', metavar='NAME',
                        help='print how many more instances of this flavor '
                             'fit on each host')
    parser.add_argument('--project', metavar='ID',
                        help='the project of these instances')
    parser.add_argument('--uplinks', action='store_true',
                        help='print the uplinks that hosts share instead of '
                             'hosts')
    parser.add_argument('--projects', action='store_true',
                        help='print how long the instances of each project '
                             'suffered from overload in the last seven days, '
                             'and how much overload they made, instead of '
                             'hosts')
    parser.add_argument('--host', metavar='HOST',
                        help='print only this host, and its instances, those '
                             'that add the most load first')


def sort(its_rows: list[dict], key_name: str) -> None:
    """Sort rows of hosts by a key of :data:`SORTS`, without a value last."""
    keys = {'risk': ('overload_probability', 'utilisation'),
            'budget': ('budget_left',)}.get(key_name, (key_name,))
    sign = -1.0 if SORTS[key_name] else 1.0
    if key_name != 'host':
        its_rows.sort(key=lambda row: [
            (row[key] is None, sign * (row[key] or 0.0)) for key in keys])


def open_view(store: model_store.Store, group) -> tuple:
    """Return (FleetView, head of the answer about it).

    :param group: the options of [vswitch_scheduler]
    :returns: the head has ``remarks``, a list to which commands add
    """
    fleet = wiring.read_fleet(store, group)
    generation, inventory = fleet.snapshot.generation, fleet.inventory
    aggregates_read_at = fleet.read_at('aggregate')
    return fleet, {
        'generation': generation.number,
        'published_at': (generation.published_at
                         if generation.number else None),
        'policies_read_at': fleet.facts_read_at,
        'aggregates_read_at': aggregates_read_at,
        'inventory_seen_at': inventory and inventory.seen_at,
        'remarks': list(_remarks(fleet, aggregates_read_at, group,
                                 time.time()))}


def _remarks(fleet, aggregates_read_at, group, now):
    """Yield what is wrong with the data, and how old they are."""
    def ago(seconds):
        return f'{max(now - seconds, 0.0):.0f} s'

    for name, problem in sorted(fleet.problems.items())[:1]:
        yield (f'the policies of {len(fleet.problems)} hosts or uplinks '
               f'cannot be used, {name} among them: {problem}; they are not '
               f'judged')
    old = max(_PASSES * group.modeler_interval_seconds, 900.0)
    read_at = fleet.facts_read_at
    if read_at is None:
        yield ('no modeler has stored the policies of hosts: they follow '
               'from the options of this command and the store, without '
               'aggregates of Nova that are not in the store; start '
               'vswitch-modeler')
    elif now - read_at > old:
        yield (f'policies of hosts are {ago(read_at)} old; expected at most '
               f'{old:.0f} s: is vswitch-modeler running?')
    if read_at is not None:
        if aggregates_read_at is None:
            yield (f'aggregates of Nova are not known: set auth_type in the '
                   f'group [{options.INVENTORY_GROUP}] for vswitch-modeler')
        for what, its_time in (
                ('aggregates', aggregates_read_at),
                ('flavors', fleet.flavors_read_at),
                ('compute nodes', fleet.read_at('node'))):
            if its_time is not None and read_at - its_time > 1.0:
                yield (f'{what} of Nova are {ago(its_time)} old: the modeler '
                       f'may not read them any more')
    if fleet.inventory is None:
        yield ('the store has no inventory, so no instance is known to be on '
               'a host; set auth_type or path in the group '
               f'[{options.INVENTORY_GROUP}] for vswitch-modeler')
    elif now - fleet.inventory.seen_at > max(_INVENTORY_SECONDS, old):
        yield (f'the inventory is {ago(fleet.inventory.seen_at)} old: does '
               f'vswitch-modeler run?')
    settled = max((budget.until for budget in fleet.error_budgets.values()),
                  default=now)
    if now - settled > max(old, model_store.FRESH_SECONDS):
        yield (f'error budgets were computed up to {ago(settled)} ago: is '
               f'error_budgets set, and does vswitch-modeler run?')
    generation = fleet.snapshot.generation
    if not generation.number:
        yield 'nothing has been learned yet: no instance has a model'
    elif group.max_generation_age_seconds and (
            now - generation.published_at > group.max_generation_age_seconds):
        yield f'the last generation is {ago(generation.published_at)} old'


def check_host(fleet: view.FleetView, host: str | None,
               hint: str = 'vswitch-manage fleet -c host') -> None:
    """Check that a requested host exists.

    :param host: None: no host is requested
    :param hint: the command that prints hosts, for the message
    :raises InvalidInput: if the host is unknown
    """
    if host is not None and host not in fleet.policies:
        raise exceptions.NotInList(thing='host', value=host,
                                   expected='a host', command=hint)


def host_rows(fleet: view.FleetView, only_host: str | None = None,
              progress: Callable | None = None) -> list[dict]:
    """Return a row for each host, sorted by name.

    :param progress: callable(done, total)
    :raises InvalidInput: if the requested host is unknown
    """
    check_host(fleet, only_host)
    hosts = sorted(fleet.policies, key=base.natural) \
        if only_host is None else [only_host]
    return _in_words(rows.host(fleet, host, load) for host, load
                     in zip(hosts, fleet.loads(hosts, progress)))


def uplink_rows(fleet: view.FleetView) -> list[dict]:
    """Return a row for each uplink, sorted by name."""
    names = sorted(fleet.uplinks, key=base.natural)
    return _in_words(rows.uplink(fleet, name, load) for name, load
                     in zip(names, fleet.uplink_loads(names)))


def _in_words(its_rows):
    """Return rows, with the limits of error budgets in words."""
    its_rows = list(its_rows)
    for budget in filter(None, (row['error_budget'] for row in its_rows)):
        budget['limits'] = accounts.limits_in_words(budget['limits'])
    return its_rows


# Episodes and room

def add_episodes(fleet: view.FleetView, its_rows: list[dict],
                 remarks: list[str]) -> None:
    """Add the number of overload episodes per day to rows of hosts."""
    is_known = len(its_rows) <= MOST_EPISODES
    if not is_known:
        remarks.append(
            f'episodes are computed of at most {MOST_EPISODES} hosts; '
            f'restrict the list by --limit or --host')
    for row in its_rows:
        overload = row['overload_probability']
        row['episodes_per_day'], row['mean_episode_seconds'] = (
            episodes.expected(fleet, row['host'], overload)
            if is_known and overload is not None else (None, None))


def add_room(fleet: view.FleetView, its_rows: list[dict], remarks: list[str],
             flavor: str, project: str | None = None,
             progress: Callable | None = None) -> str:
    """Add how many more instances of a flavor fit on each host.

    :returns: the rule that gave the demand, in words
    """
    flavors = fleet.flavors
    if fleet.flavors_read_at is not None:
        checks.check('flavor', flavor, checks.one_of(
            sorted(flavors) or ['those of Nova: it has none']))
    remarks += instances.unseen_remarks(
        fleet.store, None if flavors.get(flavor) else flavor, project)
    demand = fleet.demand(None, flavor, project)
    rooms = room.room(fleet, [row['host'] for row in its_rows], demand,
                      progress)
    for row, number in zip(its_rows, rooms):
        row['room'] = number
    return demand.rule


def instance_rows(fleet: view.FleetView, host: str) -> list[dict]:
    """Return a row for each instance of a host, by contribution.

    The contribution of an instance is the difference to the host without it.
    """
    fleet.loads([host])
    demands = fleet.demands(host)
    table_row = [fleet.host_table.row(host)]
    with_all = fleet.host_table.assess(table_row, rate_law.SILENT)
    names = {**{uuid: name for uuid, (name, _)
                in fleet.store.chains(demands).items()},
             **fleet.store.names(demands)}
    has_profile = fleet.policies[host].profile is not None
    its_rows = []
    for uuid, (law, rule) in demands.items():
        without_it = fleet.host_table.assess(table_row, rate_law.SILENT, uuid)
        flavor, project = fleet.instances(host)[uuid]
        its_rows.append({
            'instance_uuid': uuid, 'name': names.get(uuid),
            'flavor': flavor, 'project': project, 'rule': rule,
            'mean': rates.by_name(law.mean.tolist(), law.packets_known),
            **{f'adds_{name}': float(getattr(with_all, name)[0]
                                     - getattr(without_it, name)[0])
               if has_profile else None for name in (
                   'overload_probability', 'loss_fraction', 'utilisation')}})
    its_rows.sort(key=lambda row: [
        -(row[key] or 0.0) for key in (
            'adds_overload_probability', 'adds_utilisation')])
    return its_rows


def _budget_lines(budget, spenders):
    """Yield (name, text) of the error budget of a row, for people."""
    if budget is None:
        yield 'Error budget', 'none: no modeler has kept one of this host'
        return
    yield 'Error budget', rows.budget_in_words(budget)
    yield 'Since', plain_text.iso_time(budget['since_at']) + (
        f': {budget["why"]}' if budget['why'] else '')
    yield 'Of', f'{budget["limits"]}, limit {budget["asked_limit"]:g}'
    yield 'Measured', (
        f'{budget["measured_seconds"]:.0f} s, of which '
        f'{budget["overload_seconds"]:.0f} s of avoidable overload; '
        f'{budget["unknown_seconds"]:.0f} s are not known'
        + (f': {budget["unknown_why"]}' if budget['unknown_why'] else ''))
    yield 'Instances', (
        f'{budget["vm_seconds"] / 3600:.0f} hours, of which '
        f'{budget["vm_overload_seconds"] / 3600:.3g} beside others that '
        f'exceeded the capacity')
    prediction = budget['prediction']
    if prediction is not None:
        yield 'Prediction', (
            f'overload predicted in {prediction["predicted_share"]:.3g} and '
            f'measured in {prediction["measured_share"]:.3g} of '
            f'{prediction["measured_seconds"]:.0f} s'
            + ('; measurements contradict it' if prediction['contradicted']
               else ''))
    total = sum(spenders.values())
    yield 'Spent by', ', '.join(
        f'{project or "unknown"} {_percent(seconds / total)}'
        for project, seconds in list(spenders.items())[:_MOST_SPENDERS]
    ) or 'nobody in the last seven days'
    yield 'Burn rate', ', '.join(
        f'{rate:.3g} in {window}'
        for window, rate in budget['burn_rates'].items()) or 'not known'


def _claims_line(claims):
    wait = claims['longest_wait_seconds']
    return (f'Claims of {claims["workers"]} workers of nova-scheduler: '
            f'{claims["claims_made"]}, of which '
            f'{claims["claim_conflicts"]} conflicts and '
            f'{claims["claim_misses"]} without waiting for the store'
            + ('' if wait is None else
               f'; longest wait lately: {1e3 * wait:.0f} ms'))


# Columns

def _percent(value):
    return f'{100 * value:.1f}%'


def _loss(value):
    return plain_text.chance(value, '.2g')


_column = base.Column

_NUMBERS = [
    _column('CAPACITY', 'capacity_kbps'),
    _column('USED', 'utilisation', _percent),
    _column('P(OVERLOAD)', 'overload_probability', plain_text.chance),
    _column('LIMIT', 'limit', '{:.3g}'.format),
    _column('LOSS', 'loss_fraction', _loss),
    _column('BUDGET', 'error_budget.left_days', '{:.3g} d'.format),
    _column('BURN', 'burn_rate', '{:.3g}'.format)]

_HOSTS = [
    _column('HOST', 'host'), _column('PROFILE', 'profile'),
    _column('ORIGIN', 'origin'), _column('VMS', 'instances'),
    _column('MODEL', 'with_model'), _column('FLAVOR', 'with_flavor'),
    _column('PRIOR', 'with_prior'), _column('UNKNOWN', 'unknown'),
    *_NUMBERS, _column('EPISODES/DAY', 'episodes_per_day', plain_text.chance)]

_ROOM = _column('ROOM', 'room', lambda room: (
    f'>={room}' if room == sizing.MOST else str(room)))

_UPLINKS = [_column('UPLINK', 'uplink'), _column('HOSTS', 'hosts'),
            _column('VMS', 'instances'), *_NUMBERS]

_PROJECTS = [_column('PROJECT', 'project'), _column('VMS', 'instances'),
             _column('MEAN', 'mean_kbps'),
             _column('VM-HOURS', 'vm_hours', '{:.0f}'.format),
             _column('IN OVERLOAD', 'vm_overload', plain_text.chance),
             _column('SPENT', 'spent_seconds', '{:.0f}s'.format)]

_INSTANCES = [
    _column('INSTANCE', 'instance_uuid'), _column('NAME', 'name'),
    _column('FLAVOR', 'flavor'), _column('PROJECT', 'project'),
    _column('BY', 'rule'), _column('EGRESS', 'mean.egress_kbps'),
    _column('INGRESS', 'mean.ingress_kbps'),
    _column('ADDS P(OVERLOAD)', 'adds_overload_probability',
            plain_text.chance),
    _column('ADDS LOSS', 'adds_loss_fraction', _loss),
    _column('ADDS USED', 'adds_utilisation', _percent)]


class List(base.List):
    """Print the load and the overload probability of each host."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_arguments(parser)

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the hosts, uplinks or projects."""
        self._fleet, head = open_view(self.store, self.conf)
        if arguments.projects:
            self.rows_key, self.columns = 'projects', _PROJECTS
            its_rows = rows.projects(self._fleet)
        elif arguments.uplinks:
            self.rows_key, self.columns = 'uplinks', _UPLINKS
            its_rows = uplink_rows(self._fleet)
        else:
            self.rows_key = 'hosts'
            head['claims'] = rows.claims(self._fleet)
            its_rows = self._host_rows(arguments, head)
        self.below = self.rows_key
        return {**head, self.rows_key: its_rows}

    def _host_rows(self, arguments, head):
        with terminal.progress('summing') as progress:
            its_rows = host_rows(self._fleet, arguments.host, progress)
        self.columns = [
            *_HOSTS, *([_ROOM] if arguments.flavor is not None else []),
            *([_column('UPLINKS', 'uplinks')]
              if any(row['uplinks'] for row in its_rows) else [])]
        # Compute slow values only for the rows that are printed, unless they
        # determine which rows these are.
        self._pending = {
            'room': self._add_room,
            'episodes_per_day': lambda arguments, its_rows, head: add_episodes(
                self._fleet, its_rows, head['remarks'])}
        for key in list(self._pending):
            if key == arguments.sort or self.sorts_by(arguments, key):
                self._pending.pop(key)(arguments, its_rows, head)
        sort(its_rows, arguments.sort)
        return its_rows

    def complete(self, arguments: argparse.Namespace, its_rows: list,
                 answer: dict) -> None:
        """Add room, episodes and the instances of a host."""
        if self.rows_key != 'hosts':
            return
        for add in self._pending.values():
            add(arguments, its_rows, answer)
        if arguments.host is not None:
            answer['instances'] = instance_rows(self._fleet, arguments.host)
            answer['spent_by'] = rows.spenders(self._fleet, arguments.host)
        if 'demand_by' in answer:
            self.below = (f'hosts; room for instances whose demand is by '
                          f'{answer["demand_by"]}')

    def _add_room(self, arguments, its_rows, head):
        if arguments.flavor is None:
            for row in its_rows:
                row['room'] = None
            return
        with terminal.progress('searching') as progress:
            head['demand_by'] = add_room(
                self._fleet, its_rows, head['remarks'], arguments.flavor,
                arguments.project, progress)

    def describe(self, answer: dict, its_rows: list) -> None:
        """Print claims, the instances of a host, and the remarks."""
        if answer.get('claims', {}).get('claims_made'):
            terminal.print_line()
            terminal.print_line(_claims_line(answer['claims']))
        if 'instances' in answer:
            terminal.print_line()
            terminal.print_fields(list(_budget_lines(
                its_rows[0]['error_budget'], answer['spent_by'])))
            terminal.print_below('Instances, by the load that they add')
            terminal.print_table(*base.table_of(answer['instances'],
                                                _INSTANCES))
        terminal.print_remarks('Remarks', answer['remarks'])


class Show(base.Show):
    """Print what a host carries, and its instances."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('host', metavar='HOST')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the row of a host in "fleet", and its instances."""
        fleet, head = open_view(self.store, self.conf)
        its_rows = host_rows(fleet, arguments.host)
        add_episodes(fleet, its_rows, head['remarks'])
        return {**its_rows[0], 'room': None,
                'instances_on_host': instance_rows(fleet, arguments.host),
                'spent_by': rows.spenders(fleet, arguments.host)}
