# SPDX-License-Identifier: Apache-2.0
"""A fleet for the tests of rebalancing: Nova and Placement at the wire.

In the form that Nova 34 and placement 16 were seen to answer in;
tests/functional runs the same against the real ones.
"""

import dataclasses
import datetime
import itertools
import uuid as uuids

import numpy as np

from tests.contract import telemetry_stand_ins as stand_ins
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.telemetry import base as telemetry_base
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import profile

#: Slots of five minutes; times of the tests begin here.
PERIOD, SLOTS = 300.0, 288
NOW = 1_700_000_100.0 // PERIOD * PERIOD
BANDWIDTH = (1.0, 0.0, 0.0)

#: Whether an instance is busy: one slot of ten.
BUSY = np.arange(SLOTS) % 10 == 9


def uuid_of(name):
    """Return the uuid of an instance or a compute node by its name."""
    return str(uuids.uuid5(uuids.NAMESPACE_DNS, name))


def iso(seconds):
    """Return a time as Nova writes it in its record of migrations."""
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.000000')


class Cloud(stand_ins.OpenStack):
    """Nova and Placement of some hosts of 16 cores and 64 GiB.

    :ivar servers: {uuid: dictionary as of the API}
    :ivar services: {host: dictionary as of the API}
    :ivar aggregates: [(metadata, hosts)]
    :ivar groups: [dictionary as of the API]
    :ivar migrations: list as of the API, the oldest first
    :ivar on_migrate: called with (server, host) for each live migration that
        is asked for; by default it is completed at once
    :ivar failure: why live migrations failed, as Nova's record has it
    :ivar asked: [(name, host)] of the live migrations
    """

    def __init__(self, *hosts):
        super().__init__()
        self.servers, self.services = {}, {}
        self.aggregates, self.groups, self.migrations = [], [], []
        self.asked = []
        self.failure = 'No valid host was found. none'
        self.on_migrate = self.complete
        self._numbers = itertools.count(1)
        for host in hosts:
            self.services[host] = {
                'binary': 'nova-compute', 'host': host, 'zone': 'nova',
                'status': 'enabled', 'state': 'up', 'forced_down': False,
                'disabled_reason': None}

    def boot(self, name, host, vcpus=1, memory=1024, **more):
        """Add an instance; return its uuid."""
        flavor = {'vcpus': vcpus, 'ram': memory, 'disk': 1, 'ephemeral': 0,
                  'swap': 0, 'original_name': 'm', 'extra_specs':
                      more.pop('extra_specs', {})}
        self.servers[uuid_of(name)] = {
            'id': uuid_of(name), 'name': name, 'status': 'ACTIVE',
            'OS-EXT-SRV-ATTR:host': host, 'OS-EXT-STS:vm_state': 'active',
            'OS-EXT-STS:task_state': None, 'locked': False, 'metadata': {},
            'flavor': flavor, 'image': {'id': 'i'}, **more}
        return uuid_of(name)

    def migration(self, name, source, destination, status='completed',
                  at=NOW, kind='live-migration'):
        """Add a migration to Nova's record and return it."""
        number = next(self._numbers)
        self.migrations.append({
            'id': number, 'uuid': uuid_of(f'm{number}'),
            'instance_uuid': uuid_of(name), 'migration_type': kind,
            'status': status, 'source_compute': source,
            'dest_compute': destination, 'created_at': iso(at),
            'updated_at': None})
        return self.migrations[-1]

    def complete(self, server, host, status='completed'):
        """Live migrate at once."""
        self.migration(server['name'], server['OS-EXT-SRV-ATTR:host'], host,
                       status)
        if status == 'completed':
            server['OS-EXT-SRV-ATTR:host'] = host

    def client(self):
        """Return the :class:`.CloudApi` that asks this one."""
        def access(path):
            return http.Access(url=self.url + path, retries=0,
                               auth={'auth_type': 'none'},
                               requests_per_second=1e5)
        return nova.CloudApi(access('/v2.1'), access('/placement'))

    def aggregate_facts(self):
        """Return {name: dictionary} of the aggregates."""
        return {f'a{number}': {
            'name': f'a{number}', 'metadata': metadata, 'hosts': hosts}
            for number, (metadata, hosts) in enumerate(self.aggregates)}

    # Answers

    def answer(self, method, path, parameters, body):
        if path == '/placement/allocation_candidates':
            return 200, self._candidates(parameters)
        path = path.removeprefix('/v2.1')
        if path == '/os-services':
            return 200, {'services': list(self.services.values())}
        if path == '/os-aggregates':
            return 200, {'aggregates': list(self.aggregate_facts().values())}
        if path == '/os-hypervisors/detail':
            return 200, {'hypervisors': [
                {'id': uuid_of(host), 'service': {'host': host}}
                for host in self.services]}
        if path == '/flavors/detail':
            return 200, {'flavors': []}
        if path == '/os-server-groups':
            return 200, {'server_groups': self.groups[
                int(parameters['offset'][0]):]}
        if path == '/os-migrations':
            return 200, {'migrations': self._migrations(parameters)}
        if path == '/servers/detail':
            return 200, {'servers': [] if 'marker' in parameters else [
                server for server in self.servers.values()
                if server['OS-EXT-SRV-ATTR:host'] == parameters['host'][0]]}
        _, _, uuid, *rest = path.split('/')
        if uuid not in self.servers:
            return 404, {'itemNotFound': {}}
        if rest == ['action']:
            return self._act(self.servers[uuid], body)
        if rest == ['os-instance-actions']:
            return 200, {'instanceActions': [
                {'action': 'live-migration', 'request_id': 'r1'}]}
        if rest:
            return 200, {'instanceAction': {'events': [
                {'result': 'Error', 'traceback': 'Traceback\n  raise result',
                 'details': self.failure}]}}
        return 200, {'server': self.servers[uuid]}

    def _act(self, server, body):
        action = body['os-migrateLive']
        self.asked.append((server['name'], action['host']))
        if server['OS-EXT-STS:task_state'] is not None:
            return 409, {'conflictingRequest': {'message': 'task'}}
        self.on_migrate(server, action['host'])
        return 202, None

    def _migrations(self, parameters):
        if 'marker' in parameters:
            return []
        uuid = parameters.get('instance_uuid', [None])[0]
        return [migration for migration in reversed(self.migrations)
                if uuid in (None, migration['instance_uuid'])]

    def _candidates(self, parameters):
        amounts = {name: int(amount) for name, _, amount in (
            text.partition(':')
            for text in parameters['resources'][0].split(','))}
        summaries, requests = {}, []
        for host in self.services:
            used = {'VCPU': 0, 'MEMORY_MB': 0, 'DISK_GB': 0}
            for server in self.servers.values():
                if server['OS-EXT-SRV-ATTR:host'] == host:
                    used['VCPU'] += server['flavor']['vcpus']
                    used['MEMORY_MB'] += server['flavor']['ram']
                    used['DISK_GB'] += server['flavor']['disk']
            capacity = {'VCPU': 16, 'MEMORY_MB': 65536, 'DISK_GB': 100}
            summaries[uuid_of(host)] = {'resources': {
                name: {'capacity': capacity[name], 'used': used[name]}
                for name in capacity}}
            if all(used[name] + amount <= capacity[name]
                   for name, amount in amounts.items()):
                requests.append({'allocations': {
                    uuid_of(host): {'resources': amounts}}})
        return {'provider_summaries': summaries,
                'allocation_requests': requests}


class Driver(telemetry_base.Driver):
    """Telemetry of some instances.

    :ivar rates: {name of an instance: (t,) kbit/s of the last slots}
    :ivar read: names of the instances whose samples were read
    """

    source = 'test'

    def __init__(self):
        super().__init__()
        self.rates = {}
        self.read = []

    def instances(self):
        return [telemetry_base.Instance(uuid_of(name), name)
                for name in self.rates]

    def _series(self, start, end, instances, progress):
        for name, rates in self.rates.items():
            if instances is not None and uuid_of(name) not in instances:
                continue
            self.read.append(name)
            times = NOW - PERIOD * np.arange(len(rates), 0, -1)
            inside = (times >= start) & (times < end)
            yield series.RateSeries.from_samples(
                uuid_of(name), PERIOD, times[inside], rates[inside],
                0 * rates[inside])


def policy_of(capacity, **limits):
    """Return the HostPolicy of a host with one limit, on its egress."""
    return admission.HostPolicy(profile.SwitchProfile(
        'p', saturation_kbps=capacity, saturation_dimension='egress',
        **limits))


def read_fleet(store):
    """Return the FleetView of a store that :meth:`Fleet.write` filled."""
    return view.FleetView(store)


def account(host, balance, limit=.01, now=NOW):
    """Return the error budget of a host, which began a month ago."""
    return model_store.ErrorBudget(
        'host', host, limit, .6, 1.0, 30.0, 'limits', now - 30 * 86400.0,
        None, now, balance)


def sums(host, totals, capacity=1000.0, alone=None, now=NOW):
    """Return the Sums of a host with one limit, on its egress."""
    totals = np.asarray(totals, dtype=float)
    return packed.Sums(
        host, PERIOD, int(now / PERIOD) - len(totals),
        ((BANDWIDTH, 1500.0, capacity),), totals[None],
        np.zeros((1, len(totals)), dtype=bool) if alone is None
        else np.asarray(alone)[None])


class Fleet:
    """A cloud, its telemetry and what the store has measured of it.

    :param hosts: names; each host has an error budget
    """

    def __init__(self, *hosts):
        self.cloud = Cloud(*hosts)
        self.driver = Driver()
        self.balance = dict.fromkeys(hosts, 100.0)
        self.capacity = dict.fromkeys(hosts, 1000.0)
        #: {name of an instance: its Attachments}
        self.attachments = {}
        #: {name: (hosts, capacity, balance)}
        self.uplinks = {}
        #: {name of an instance: TrafficModel}; the filter counts the others
        #: as silent
        self.models = {}
        #: other numbers of the switch profile of all hosts
        self.limits = {}
        #: {host: (t,) bool: whether one instance exceeds its capacity}
        self.alone = {}

    def boot(self, name, host, rates, **more):
        """Add an instance with the traffic of the last day."""
        self.driver.rates[name] = np.broadcast_to(
            np.asarray(rates, dtype=float), SLOTS).copy()
        return self.cloud.boot(name, host, **more)

    def totals(self, host):
        """Return (t,) what the instances of a host ask for."""
        return sum((self.driver.rates.get(server['name'], 0.0)
                    for server in self.cloud.servers.values()
                    if server['OS-EXT-SRV-ATTR:host'] == host),
                   np.zeros(SLOTS))

    def accounts(self):
        """Return {(kind, name): error budget}."""
        return {**{('host', host): account(host, balance)
                   for host, balance in self.balance.items()},
                **{('uplink', name): dataclasses.replace(
                    account(name, balance), kind='uplink')
                   for name, (_, _, balance) in self.uplinks.items()}}

    def history(self):
        """Return {host: Sums}."""
        return {host: sums(host, self.totals(host), self.capacity[host],
                           self.alone.get(host))
                for host in self.balance}

    def write(self, store):
        """Write to a store what modelers write of this fleet."""
        store.write(placements=[
            model_store.InstanceRecord(
                server['id'], server['OS-EXT-SRV-ATTR:host'], 'm', 'p',
                self.attachments.get(server['name']))
            for server in self.cloud.servers.values()])
        earlier, accounts = store.error_budgets(), self.accounts()
        store.settle_budgets(
            model_store.BudgetState(PERIOD, NOW), [
                (earlier[key].until if key in earlier else None, server)
                for key, server in accounts.items()],
            [stored for server in self.history().values()
             for stored in days_of(server)] + [
                 dataclasses.replace(stored, kind='uplink')
                 for name, (hosts, capacity, _) in self.uplinks.items()
                 for stored in days_of(sums(name, sum(
                     map(self.totals, hosts)), capacity))],
            earlier.keys() - accounts.keys())
        store.write_fleet({'host': {host: {**policy_in_force.pack(
            policy_of(self.capacity[host], **self.limits)), 'uplinks': [
                name for name, (hosts, _, _) in self.uplinks.items()
                if host in hosts], 'nodes': {uuid_of(host): False}}
            for host in self.balance}, 'node': {},
            'aggregate': self.cloud.aggregate_facts(),
            'uplink': {name: policy_in_force.pack(policy_of(capacity))
                       for name, (_, capacity, _) in self.uplinks.items()}},
            NOW)
        store.write([model_store.StoredModel(uuid_of(name), law)
                     for name, law in self.models.items()])


def start_hot(test):
    """Return a Fleet whose cloud answers until a test ends.

    host1 is in debt: its two instances overload it for a tenth of the time.
    host2 has room for one of them.

    :param test: TestCase
    """
    started = Fleet('host1', 'host2')
    started.cloud.setUp()
    test.addCleanup(started.cloud.cleanUp)
    for name in ('vm1', 'vm2'):
        started.boot(name, 'host1', np.where(BUSY, 600, 100))
        started.models[name] = model.TrafficModel.on_off(
            600.0, 0.0, on_seconds=60.0, off_seconds=540.0)
    for number in range(2):
        started.boot(f'idle{number}', 'host2', 0)
        started.models[f'idle{number}'] = model.TrafficModel.constant(1.0)
    started.balance['host1'] = -600.0
    return started


def days_of(history):
    """Yield the StoredSums of Sums, day by day."""
    capacities = [limit[2] for limit in history.limits]
    day, end = int(history.first * PERIOD
                   // 86400), history.first + history.sums.shape[1]
    while packed.slots_of_day(day, PERIOD)[0] < end:
        first, end_day = packed.slots_of_day(day, PERIOD)
        at = np.arange(first, end_day) - history.first
        inside = (at >= 0) & (at < history.sums.shape[1])
        totals = np.full((len(capacities), end_day - first), np.nan)
        alone = np.zeros(totals.shape, dtype=bool)
        totals[:, inside] = history.sums[:, at[inside]]
        alone[:, inside] = history.alone[:, at[inside]]
        yield model_store.StoredSums(
            'host', history.name, day, PERIOD, history.limits,
            packed.pack_day(totals, alone, capacities))
        day += 1
