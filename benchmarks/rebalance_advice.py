#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it takes to propose migrations for a fleet.

Fills a new SQLite store with hosts, their error budgets and seven days of
sums, and with instances that are on them; some hosts are in debt. Nova and
telemetry answer at once, from memory. Prints seconds of wall clock and
processor of one proposal, and resident memory; --json for a machine.
"""

import argparse
import json
import math
import resource
import tempfile
import time
import uuid

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import proposal
from vswitch_aware_scheduler.budgets import rebalance_settings as settings
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.clients import placement
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import profile

_PERIOD, _SLOTS, _DAYS = 300.0, 2016, 7
_SHAPE = placement.Shape(2, 4096, 20)
_LIMIT = ((1.0, 0.0, 0.0), 1500.0)


class Fleet:
    """Hosts whose instances are bursty; a share of them carries too much.

    :param hosts: number of hosts
    :param on_each: instances on each host
    :param in_debt: hosts that carry too much
    """

    def __init__(self, hosts, on_each, in_debt):
        self.now = time.time() // _PERIOD * _PERIOD
        self.hosts = [f'compute{number:04}' for number in range(hosts)]
        self.on_each = on_each
        self.in_debt = set(self.hosts[:in_debt])
        # Mean 1 each; 1.35 times the mean of all is exceeded at times.
        self.capacity = 1.35 * on_each

    def uuids(self, host):
        """Return the uuids of the instances on a host."""
        first = self.hosts.index(host) * self.on_each
        return [str(uuid.UUID(int=first + number + 1))
                for number in range(self.on_each)]

    def rates(self, host):
        """Return (n, t) kbit/s of the instances of a host."""
        generator = np.random.default_rng(self.hosts.index(host))
        rates = generator.exponential(1.0, (self.on_each, _SLOTS))
        return rates * (1.2 if host in self.in_debt else 0.9)

    def fill(self, target):
        """Write the fleet to a store."""
        target.write(placements=[
            store.InstanceRecord(name, host, 'm', 'p')
            for host in self.hosts for name in self.uuids(host)],
            inventory=store.InventoryState('nova', self.now, self.now))
        target.write_fleet({
            'aggregate': {'1': {
                'name': 'a', 'metadata': {'availability_zone': 'nova'},
                'hosts': self.hosts}}, 'node': {},
            'host': {host: {'nodes': {host: False}} for host in self.hosts}},
            self.now)
        first = int(self.now / _PERIOD) - _SLOTS
        budgets, sums = [], []
        for host in self.hosts:
            totals = np.pad(self.rates(host).sum(axis=0)[None], (
                (0, 0), (0, 2 * 288)), constant_values=np.nan)
            budgets.append((None, store.ErrorBudget(
                'host', host, .01, .6, 1.0, 30.0, 'limits',
                self.now - 30 * 86400, None, self.now,
                -9000.0 if host in self.in_debt else 5000.0)))
            for day in range(int(first * _PERIOD // 86400),
                             int(self.now // 86400) + 1):
                begin, end = packed.slots_of_day(day, _PERIOD)
                at = np.arange(begin, end) - first
                part = np.where((at >= 0) & (at < _SLOTS),
                                totals[0][np.clip(at, 0, _SLOTS)], np.nan)
                sums.append(store.StoredSums(
                    'host', host, day, _PERIOD, ((*_LIMIT, self.capacity),),
                    packed.pack_day(part[None], np.zeros(
                        (1, end - begin), dtype=bool), [self.capacity])))
        target.settle_budgets(store.BudgetState(_PERIOD, self.now), budgets,
                              sums)


class Cloud:
    """What Nova and Placement say of a Fleet."""

    def __init__(self, fleet):
        self._fleet = fleet

    def services(self):
        return {host: nova.ComputeService(None, 'nova')
                for host in self._fleet.hosts}

    def room(self, shape):
        return {host: (32, 131072, math.inf) for host in self._fleet.hosts}

    def servers(self, host):
        return [nova.NovaServer(
            name, name, host, 'active', None, False, {}, {}, _SHAPE)
            for name in self._fleet.uuids(host)]

    def groups(self):
        return []

    def migrations(self, since=None):
        return []


class Driver:
    """Telemetry of a Fleet."""

    source = 'memory'

    def __init__(self, fleet):
        self._fleet = fleet
        self.samples = 0

    def series(self, start, end, instances, progress=None):
        times = self._fleet.now - _PERIOD * np.arange(_SLOTS, 0, -1)
        for host in self._fleet.hosts:
            names = self._fleet.uuids(host)
            if names[0] not in instances:
                continue
            for name, rates in zip(names, self._fleet.rates(host)):
                self.samples += len(rates)
                yield series.RateSeries.from_samples(
                    name, _PERIOD, times, rates, 0 * rates)


def read_fleet(target):
    """Return the fleet as the filter judges it; all instances have models."""
    policy = admission.HostPolicy(profile.SwitchProfile(
        'p', saturation_kbps=1e9))
    fleet = view.FleetView(target, model.TrafficModel.on_off(
        100.0, 100.0, on_seconds=60.0, off_seconds=600.0).law)
    fleet.policies = dict.fromkeys(fleet.policies, policy)
    return fleet


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--instances', type=int, default=50,
                        help='on each host (default: 50)')
    parser.add_argument('--in-debt', type=int, default=50,
                        help='hosts in debt (default: 50)')
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    fleet = Fleet(arguments.hosts, arguments.instances, arguments.in_debt)
    driver = Driver(fleet)
    with tempfile.TemporaryDirectory() as directory:
        url = f'sqlite:///{directory}/vswitch.sqlite'
        migration.sync(url)
        target = store.Store(url)
        fleet.fill(target)
        began = time.monotonic(), time.process_time()
        plan = proposal.propose(
            target, read_fleet, Cloud(fleet), driver,
            settings.RebalanceSettings(network=settings.SEPARATE), fleet.now)
        found = {
            'hosts': arguments.hosts,
            'instances': arguments.hosts * arguments.instances,
            'in_debt': len(plan.in_debt), 'moves': len(plan.moves),
            'held_back': plan.held_back, 'samples': driver.samples,
            'seconds': round(time.monotonic() - began[0], 2),
            'processor_seconds': round(time.process_time() - began[1], 2),
            'resident_mib': round(resource.getrusage(
                resource.RUSAGE_SELF).ru_maxrss / 1024)}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f'{name:18}{value}')


if __name__ == '__main__':
    main()
