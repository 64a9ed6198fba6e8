# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage fleet: prints the load of each host, from the store.

The inventory has the host of each instance, the modeler has written the policy
of each host, and the scheduler's LoadTable computes the sums. No request
is sent to a service.
"""

import collections
import dataclasses
import math
import time

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.admission import sizing
from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.modeler import budgets
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import superposition

__all__ = ['Fleet', 'List', 'SORTS', 'Show', 'sort']

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

_DAY_SECONDS = 86400.0


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


def sort(rows, key_name):
    """Sort rows of hosts by a key. Rows without a value come last.

    :param rows: list of rows, which is changed
    :param key_name: one of :data:`SORTS`
    """
    keys = {'risk': ('overload_probability', 'utilisation'),
            'budget': ('budget_left',)}.get(key_name, (key_name,))
    sign = -1.0 if SORTS[key_name] else 1.0
    if key_name != 'host':
        rows.sort(key=lambda row: [
            (row[key] is None, sign * (row[key] or 0.0)) for key in keys])


class Fleet:
    """The hosts of a store, as "fleet" and "explain" show them.

    :param store: Store
    :param conf: ConfigOpts with the options of this package
    :param clock: callable, returns seconds UTC; None uses ``time.time``
    :ivar stored: :class:`.StoredFleet`
    """

    def __init__(self, store, conf, clock=None):
        self._store = store
        self._options = conf[options.GROUP]
        self._now = (clock or time.time)()
        self.remarks = []
        self.generation = store.generation()
        self.inventory = store.inventory()
        facts = store.fleet('host')
        self.policies_read_at = facts.read_at
        self.aggregates_read_at = store.fleet('aggregate').read_at
        self.stored = wiring.read_fleet(store, self._options, facts.facts)
        problems = self.stored.problems
        for name, problem in sorted(problems.items())[:1]:
            self.remarks.append(
                f'the policies of {len(problems)} hosts or uplinks cannot be '
                f'used, {name} among them: {problem}; they are not judged')
        self._remark_ages()

    def _remark_ages(self):
        interval = self._options.modeler_interval_seconds
        old = max(_PASSES * interval, 900.0)
        if self.policies_read_at is None:
            self.remarks.append(
                'no modeler has stored the policies of hosts: they follow '
                'from the options of this command and the store, without '
                'aggregates of Nova that are not in the store; start '
                'vswitch-modeler')
        elif self._now - self.policies_read_at > old:
            self.remarks.append(
                f'policies of hosts are {self._ago(self.policies_read_at)} '
                f'old; expected at most {old:.0f} s: is vswitch-modeler '
                f'running?')
        if self.policies_read_at is not None:
            if self.aggregates_read_at is None:
                self.remarks.append(
                    f'aggregates of Nova are not known: set auth_type in the '
                    f'group [{options.INVENTORY_GROUP}] for vswitch-modeler')
            elif self.policies_read_at - self.aggregates_read_at > 1.0:
                self.remarks.append(
                    f'aggregates of Nova are '
                    f'{self._ago(self.aggregates_read_at)} old: the modeler '
                    f'may not read them any more')
        if self.inventory is None:
            self.remarks.append(
                'the store has no inventory, so no instance is known to be on '
                'a host; set auth_type or path in the group '
                f'[{options.INVENTORY_GROUP}] for vswitch-modeler')
        elif self._now - self.inventory.seen_at > max(
                _INVENTORY_SECONDS, old):
            self.remarks.append(
                f'the inventory is {self._ago(self.inventory.seen_at)} old: '
                f'does vswitch-modeler run?')
        settled = max((budget.until for budget
                       in self.stored.error_budgets.values()),
                      default=self._now)
        if self._now - settled > max(old, model_store.FRESH_SECONDS):
            self.remarks.append(
                f'error budgets were computed up to {self._ago(settled)} ago: '
                f'is error_budgets set, and does vswitch-modeler run?')
        if not self.generation.number:
            self.remarks.append('nothing has been learned yet: no instance '
                                'has a model')
        elif self._options.max_generation_age_seconds and (
                self._now - self.generation.published_at
                > self._options.max_generation_age_seconds):
            self.remarks.append(
                f'the last generation is '
                f'{self._ago(self.generation.published_at)} old')

    def _ago(self, seconds):
        return f'{self.age(seconds):.0f} s'

    def age(self, seconds):
        """Return the age of a time in seconds; None for None.

        :param seconds: seconds UTC, or None
        """
        return None if seconds is None else max(self._now - seconds, 0.0)

    @property
    def hosts(self):
        """Names of all hosts, sorted."""
        return sorted(self.stored.policies, key=base.natural)

    # What hosts carry

    def host_rows(self, only_host=None, progress=None):
        """Return a dictionary for each host, sorted by name.

        :param only_host: name of the only host, or None for all
        :param progress: None, or callable(done, total)
        :raises InvalidInput: if the requested host is unknown
        """
        hosts = self.hosts
        if only_host is not None:
            if only_host not in hosts:
                raise exceptions.InvalidInput(
                    f'host: {only_host!r}; expected a host in the store: '
                    '"vswitch-manage fleet -c host" prints them')
            hosts = [only_host]
        return [self._host_row(host, load) for host, load
                in zip(hosts, self.stored.loads(hosts, progress))]

    def uplink_rows(self):
        """Return a dictionary for each uplink, sorted by name."""
        stored = self.stored
        names = sorted(stored.uplinks, key=base.natural)
        hosts_behind = stored.hosts_behind()
        return [{
            'uplink': name, 'hosts': len(hosts_behind.get(name, ())),
            'instances': len(stored.uplink_table.residents(name)),
            **self._numbers(stored.uplinks[name].policy, load),
            **_budget(stored.error_budgets.get((model_store.UPLINK, name)))}
            for name, load in zip(names, stored.uplink_loads(names))]

    def project_rows(self):
        """Return a dictionary for each project, those that spent most first.

        The numbers are those of the last seven days.
        """
        spent = self._spent(self._store.charges())
        times = model_store.of_projects(self._store.vm_times())
        return [{
            'project': project,
            'vm_hours': times[project].seconds / 3600
            if project in times else 0.0,
            'vm_overload': times[project].vm_overload_share
            if project in times else None,
            'spent_seconds': spent.get(project, 0.0)}
            for project in sorted(times.keys() | spent.keys() - {None},
                                  key=lambda name: (-spent.get(name, 0.0),
                                                    name))]

    def spenders(self, host):
        """Return {project or None: seconds of overload of a host it made}.

        :param host: name of the host
        """
        return self._spent(
            charge for charge in self._store.charges()
            if (charge.kind, charge.name) == (model_store.HOST, host))

    @staticmethod
    def _spent(charges):
        spent = collections.Counter()
        for charge in charges:
            spent[charge.project] += charge.seconds
        return dict(spent.most_common())

    def _host_row(self, host, load):
        rules = [rule for _, rule in self.stored.demands(host).values()]
        policy = self.stored.policies[host]
        origins = self.stored.origins.get(host, {})
        return {
            'host': host,
            'profile': policy.profile and policy.profile.name,
            'origin': origins.get('profile'), 'origins': origins,
            'judged': policy.judged, 'enforced': policy.enforced,
            'instances': len(rules),
            'with_model': rules.count(demand_rules.MODEL),
            'with_flavor': rules.count(demand_rules.FLAVOR),
            'with_prior': rules.count(demand_rules.PRIOR),
            'unknown': rules.count(demand_rules.DEFAULT),
            **self._numbers(policy, load),
            **_budget(self.stored.error_budgets.get((model_store.HOST, host))),
            'uplinks': [uplink.name for uplink in policy.uplinks]}

    def _numbers(self, policy, load):
        has_profile = policy.profile is not None
        limited = has_profile and policy.policy == admission.PROBABILITY
        return {
            'admission_policy': policy.policy,
            'utilisation': load.utilisation if has_profile else None,
            'overload_probability': (load.overload_probability
                                     if has_profile else None),
            'loss_fraction': load.loss_fraction if has_profile else None,
            'limit': load.limit,
            'prediction_margin': policy.prediction_margin,
            'asked_limit': policy.overload_probability if limited else None}

    # Episodes

    def add_episodes(self, rows):
        """Add the number of overload episodes per day to rows of hosts.

        The number follows from the overload probability and the mean length of
        an episode. For that length, instances count as independent of each
        other, and those without a model with their mean rate.

        :param rows: list of rows of hosts
        """
        if len(rows) > MOST_EPISODES:
            for row in rows:
                row['episodes_per_day'] = row['mean_episode_seconds'] = None
            self.remarks.append(
                f'episodes are computed of at most {MOST_EPISODES} hosts; '
                f'restrict the list by --limit or --host')
            return
        for row in rows:
            seconds = self._episode_seconds(row['host'])
            overload = row['overload_probability']
            row['episodes_per_day'] = None if overload is None else (
                overload * _DAY_SECONDS / seconds if seconds else 0.0)
            row['mean_episode_seconds'] = seconds

    def _episode_seconds(self, host):
        """Return the mean length of an episode, or None without episodes."""
        policy = self.stored.policies[host]
        if policy.profile is None:
            return None
        laws = self.stored.laws(host)
        chains, average = [], np.zeros(3)
        if any(_may_overload(laws.values(), policy, limit)
               for limit in policy.limits):
            chains_by_uuid = self._store.chains(laws)
            chains = [chain for _, chain in chains_by_uuid.values()]
            average = sum((law.mean for uuid, law in laws.items()
                           if uuid not in chains_by_uuid), average)
        share = rate = 0.0
        for limit in policy.limits if chains else ():
            if _may_overload(laws.values(), policy, limit):
                added = _overload_of(chains, average, policy, limit)
                share, rate = share + added[0], rate + added[1]
        return share / rate if share and rate else None

    # Room

    def add_room(self, rows, flavor, project=None, progress=None):
        """Add how many more instances of a flavor fit on each host.

        :param rows: list of rows of hosts
        :param flavor: name of the flavor
        :param project: id of the project, or None
        :param progress: None, or callable(done, total)
        :returns: the rule that gave the demand, in words
        """
        demand = self._new_demand(flavor, project)
        hosts = [row['host'] for row in rows]
        policies, uplinks = self.stored.policies, self.stored.uplinks
        rooms = _rooms(
            self.stored.host_table, hosts,
            [demand.law_on(policies[host]) for host in hosts], progress)
        names = sorted({name for row in rows for name in row['uplinks']})
        if names:
            self.uplink_rows()
            of_uplink = dict(zip(names, _rooms(
                self.stored.uplink_table, names,
                [demand.law_on(uplinks[name].policy) for name in names])))
        for row, room in zip(rows, rooms):
            row['room'] = min([room, *(of_uplink[name]
                                       for name in row['uplinks'])])
            if not row['judged'] or (row['profile'] is None
                                     and not row['uplinks']):
                row['room'] = None
        return demand.rule

    def _new_demand(self, flavor, project):
        """Return the Demand of a new instance, without busy times.

        Several new instances are not busy at the same times.
        """
        flavors = self.stored.flavors
        if self.stored.flavors_read_at is not None and flavor not in flavors:
            existing = ', '.join(
                sorted(flavors)) or 'those of Nova: it has none'
            raise exceptions.InvalidInput(
                f'flavor: {flavor!r}; expected one of {existing}')
        self.remarks += [
            f'No instance has {kind} {value!r}: that is how a new one counts.'
            for kind, value, _ in instances.unseen_groups(
                self._store, None if flavors.get(flavor) else flavor, project)]
        demand = self.stored.demand(None, flavor, project)
        return dataclasses.replace(demand, law=demand.law.independent())

    # Instances of a host

    def instance_rows(self, host):
        """Return a dictionary for each instance of a host, by contribution.

        The contribution of an instance is the difference to the host without
        it.

        :param host: name of the host
        """
        self.host_rows(host)
        policy, demands = self.stored.policies[host], self.stored.demands(host)
        slot = [self.stored.host_table.slot(host)]
        with_all = self.stored.host_table.assess(slot, rate_law.SILENT)
        names = self._store.chains(demands)
        has_profile = policy.profile is not None
        rows = []
        for uuid, (law, rule) in demands.items():
            without_it = self.stored.host_table.assess(slot, rate_law.SILENT,
                                                       uuid)
            adds = [float(getattr(with_all, name)[0]
                          - getattr(without_it, name)[0])
                    if has_profile else None for name in (
                        'overload_probability', 'loss_fraction',
                        'utilisation')]
            flavor, project = self.stored.instances(host)[uuid]
            rows.append({
                'instance_uuid': uuid, 'name': names.get(uuid, (None,))[0],
                'flavor': flavor, 'project': project,
                'rule': rule,
                'mean': rates.by_name(law.mean.tolist(), law.packets_known),
                'adds_overload_probability': adds[0],
                'adds_loss_fraction': adds[1], 'adds_utilisation': adds[2]})
        rows.sort(key=lambda row: [
            -(row[key] or 0.0) for key in (
                'adds_overload_probability', 'adds_utilisation')])
        return rows


def _may_overload(laws, policy, limit):
    weights, capacity, _ = limit
    if not math.isfinite(capacity):
        return False
    packet_bytes = policy.profile.typical_packet_bytes
    return sum(float(law.values(weights, packet_bytes).max())
               for law in laws) > capacity


def _overload_of(chains, average, policy, limit):
    """Return the overload of one limit: (share of time, overloads/s).

    :param average: sum of the mean rates of instances without a model
    """
    weights, capacity, _ = limit
    free = capacity - float(np.dot(weights, average))
    if free <= 0:
        return 0.0, 0.0
    if weights[2]:
        packet_bytes = policy.profile.typical_packet_bytes
        chains = [chain if chain.packets_known
                  else chain.with_packets(packet_bytes)
                  for chain in chains]
    total = superposition.Superposition(chains, free, weights)
    return total.overload_probability(), total.episodes_per_second()


def _rooms(table, names, laws, progress=None):
    """Return how many more instances some hosts of a table admit.

    The table is unchanged afterwards.

    :param laws: RateLaw of a new instance, for each host
    :returns: list of numbers between 0 and sizing.MOST
    """
    low, high = [0] * len(names), [None] * len(names)
    dummies = [0] * len(names)
    rounds = 0
    while True:
        active = [i for i in range(len(names))
                  if high[i] is None or high[i] - low[i] > 1]
        active = [i for i in active if low[i] < sizing.MOST]
        if not active:
            break
        if progress is not None:
            rounds += 1
            progress(min(rounds, 20), 21)
        number = {i: min(max(2 * low[i], 1), sizing.MOST)
                  if high[i] is None else (low[i] + high[i]) // 2
                  for i in active}
        _set_dummies(table, names, laws, dummies,
                     {i: number[i] - 1 for i in active})
        assessment = table.assess_each(
            table.slots_of([names[i] for i in active]),
            [laws[i] for i in active])
        for i, fits in zip(active, assessment.fits.tolist()):
            if fits:
                low[i] = number[i]
            else:
                high[i] = number[i]
    _set_dummies(table, names, laws, dummies,
                 dict.fromkeys(range(len(names)), 0))
    return low


def _set_dummies(table, names, laws, dummies, numbers):
    changes = {}
    for i, number in numbers.items():
        added = {('new', k): laws[i] for k in range(dummies[i], number)}
        removed = [('new', k) for k in range(number, dummies[i])]
        if added or removed:
            changes[names[i]] = added, removed
        dummies[i] = number
    table.change(changes)


def _budget(budget):
    """Return what rows have of an ErrorBudget, or of None."""
    if budget is None:
        return {'budget_left': None, 'burn_rate': None, 'error_budget': None}
    return {
        'budget_left': budget.left, 'burn_rate': budget.burn.get('21600'),
        'error_budget': {
            'left_seconds': budget.balance, 'left_days': budget.days,
            'in_debt': budget.in_debt, 'accepts': budget.accepts,
            'asked_limit': budget.overload_probability,
            'earned_share': budget.earned_share,
            'limits': budgets.limits_in_words(budget.limits),
            'since_at': budget.since, 'why': budget.why,
            'settled_until': budget.until,
            'measured_seconds': budget.measured_seconds,
            'overload_seconds': budget.overload_seconds,
            'unknown_seconds': budget.unknown_seconds,
            'unknown_why': budget.unknown_why,
            'vm_seconds': budget.vm_seconds,
            'vm_overload_seconds': budget.vm_overload_seconds,
            'burn_rates': {f'{int(window) // 3600}h': rate
                           for window, rate in sorted(
                               budget.burn.items(), key=_window)}}}


def _window(item):
    return int(item[0])


# Columns

def _percent(value):
    return f'{100 * value:.1f}%'


def _loss(value):
    return plain_text.chance(value, '.2g')


_column = base.Column

_NUMBERS = [
    _column('USED', 'utilisation', _percent),
    _column('P(OVERLOAD)', 'overload_probability', plain_text.chance),
    _column('LIMIT', 'limit', '{:.3g}'.format),
    _column('LOSS', 'loss_fraction', _loss),
    _column('BUDGET', 'budget_left', _percent),
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

_PROJECTS = [_column('PROJECT', 'project'),
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

    def add_arguments(self, parser):
        """Add the arguments of the command."""
        _add_arguments(parser)

    def answer(self, arguments):
        """Return the hosts, uplinks or projects."""
        self._fleet = fleet = Fleet(self.store, self.all_options)
        facts = {'generation': fleet.generation.number,
                 'published_at': (fleet.generation.published_at
                                  if fleet.generation.number else None),
                 'policies_read_at': fleet.policies_read_at,
                 'aggregates_read_at': fleet.aggregates_read_at,
                 'inventory_seen_at': (fleet.inventory
                                       and fleet.inventory.seen_at),
                 'remarks': fleet.remarks}
        if arguments.projects:
            self.rows_key, self.columns = 'projects', _PROJECTS
            rows = fleet.project_rows()
        elif arguments.uplinks:
            self.rows_key, self.columns = 'uplinks', _UPLINKS
            rows = fleet.uplink_rows()
        else:
            self.rows_key = 'hosts'
            rows = self._host_rows(arguments, facts)
        self.below = self.rows_key
        return {**facts, self.rows_key: rows}

    def _host_rows(self, arguments, facts):
        with terminal.progress('summing') as progress:
            rows = self._fleet.host_rows(arguments.host, progress)
        self.columns = [
            *_HOSTS, *([_ROOM] if arguments.flavor is not None else []),
            *([_column('UPLINKS', 'uplinks')]
              if any(row['uplinks'] for row in rows) else [])]
        # Compute slow values only for the rows that are printed, unless they
        # determine which rows these are.
        self._pending = {'room': self._add_room, 'episodes_per_day':
                         lambda arguments, rows, facts:
                         self._fleet.add_episodes(rows)}
        for key in list(self._pending):
            if key == arguments.sort or self.sorts_by(arguments, key):
                self._pending.pop(key)(arguments, rows, facts)
        sort(rows, arguments.sort)
        return rows

    def complete(self, arguments, rows, answer):
        """Add room, episodes and the instances of a host."""
        if self.rows_key != 'hosts':
            return
        for add in self._pending.values():
            add(arguments, rows, answer)
        if arguments.host is not None:
            answer['instances'] = self._fleet.instance_rows(arguments.host)
            answer['spent_by'] = self._fleet.spenders(arguments.host)
        if 'demand_by' in answer:
            self.below = (f'hosts; room for instances whose demand is by '
                          f'{answer["demand_by"]}')

    def _add_room(self, arguments, rows, facts):
        if arguments.flavor is None:
            for row in rows:
                row['room'] = None
            return
        with terminal.progress('searching') as progress:
            facts['demand_by'] = self._fleet.add_room(
                rows, arguments.flavor, arguments.project, progress)

    def describe(self, answer, rows):
        """Print the instances of a host, and the remarks."""
        if 'instances' in answer:
            terminal.print_line()
            terminal.print_fields(list(zip(*base.fields_of({
                **(rows[0]['error_budget'] or {}),
                'spent_by': answer['spent_by']}))))
            terminal.print_below('Instances, by the load that they add')
            terminal.print_table(*base.table_of(answer['instances'],
                                                _INSTANCES))
        terminal.print_remarks('Remarks', answer['remarks'])


class Show(base.Show):
    """Print what a host carries, and its instances."""

    def add_arguments(self, parser):
        """Add the arguments of the command."""
        parser.add_argument('host', metavar='HOST')

    def answer(self, arguments):
        """Return the row of a host in "fleet", and its instances."""
        fleet = Fleet(self.store, self.all_options)
        rows = fleet.host_rows(arguments.host)
        fleet.add_episodes(rows)
        return {**rows[0], 'room': None,
                'instances_on_host': fleet.instance_rows(arguments.host),
                'spent_by': fleet.spenders(arguments.host)}
