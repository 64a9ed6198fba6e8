#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one pass of our filter and weigher costs beside nova's own filters.

All run in one process on the same hosts, in turn, warm; the HostStates are
made anew for each pass, as Nova makes them for each request, and each request
has another demand. "Reordered" is a pass with the hosts in another order and
other dictionaries of instances. "Kernel" is the part of a pass that computes:
LoadTable.assess; "observe" is the part that reads HostStates.

Who is where is taken from Nova's record, as it is once the cell was read: a
thread takes changes in between requests ("reading"), and the request that
follows is measured apart. With --lists the cell cannot be read, so that Nova's
lists count, and requests take in the changes themselves.

"Adopting" is the time that requests for ten and for up to 1,000 hosts wait for
locks and the interpreter while a thread prepares a new generation; "alone" is
the same without this thread (Linux only). "Adopted" is the first request for
all hosts after that.

Prints medians, 99 %, spread and ratios; --json for a machine. All times but
those waits are processor time of the thread, so that other work on the machine
counts less.
"""

import argparse
import copy
import json
import os
import statistics
import tempfile
import threading
import time

import nova.conf
from nova import objects
from nova.scheduler.filters import compute_capabilities_filter
from nova.scheduler.filters import num_instances_filter
from nova.scheduler import host_manager
from nova.scheduler import weights as nova_weights
import numpy as np
from oslo_utils import uuidutils

from vswitch_aware_scheduler.scheduler import filters
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler.scheduler import weights
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.traffic import instants
from vswitch_aware_scheduler.traffic import model

CONF = nova.conf.CONF

#: Names of the waits of requests, with and without an adoption.
WAITS = tuple(f'{hosts}_{other}_ms' for hosts in ('few_hosts', 'hosts')
              for other in ('adopting', 'alone'))


def make_models(count, generator):
    """Return random models of eight states, heavy-tailed, mostly quiet.

    At some instants, many are in one of the last two states.
    """
    models = []
    busy = generator.random(instants.INSTANTS) < .02
    for _ in range(count):
        scale = generator.lognormal(5, 1.5)
        rates = np.zeros((8, 3))
        rates[:, 0] = scale * np.array([.1, .2, .5, 1, 2, 4, 8, 20])
        rates[:, 1] = rates[:, 0] * generator.random()
        law = np.array([.5, .25, .15, .05, .03, .01, .007, .003])
        jump = np.tile(law, (8, 1))
        np.fill_diagonal(jump, 0)
        jump /= jump.sum(axis=1, keepdims=True)
        models.append(model.TrafficModel(
            rates, jump, np.full(8, 300.0), np.where(
                busy & (generator.random(busy.size) < .2), 7,
                generator.choice(8, busy.size, p=law))))
    return models


def make_hosts(hosts, instances, generator, directory, behind=0):
    """Return (host states, spec) with a store of models for all instances.

    :param behind: so many hosts share an uplink, 0: none do
    """
    objects.register_all()
    url = f'sqlite:///{os.path.join(directory, "vswitch.sqlite")}'
    migration.sync(url)
    CONF.set_override('store_url', url, group='vswitch_scheduler')
    CONF.set_override('snapshot_refresh_seconds', 3600,
                      group='vswitch_scheduler')
    CONF.set_override('snapshot_first_wait_seconds', 60,
                      group='vswitch_scheduler')
    models = make_models(200, generator)
    uuids = [[uuidutils.generate_uuid() for _ in range(instances)]
             for _ in range(hosts)]
    store.Store(url, 600).write(models=[
        store.StoredModel(uuid, models[generator.integers(len(models))])
        for on_host in uuids for uuid in on_host])
    aggregates = [
        objects.Aggregate(id=i, name=f'rack{i}', hosts=[], metadata={
            'vswitch:profile': name})
        for i, name in enumerate(('ovs-vxlan', 'ovs-vxlan-1g', 'ovs-flat'))]
    states = []
    for i, on_host in enumerate(uuids):
        state = host_manager.HostState(f'host{i}', f'host{i}', 'cell')
        state.instances = {uuid: objects.Instance(uuid=uuid)
                           for uuid in on_host}
        state.num_instances = 0
        state.aggregates = [aggregates[i % 3]]
        states.append(state)
    # Of 200 Mbit/s for each host: some of them are near their limit.
    for first in range(0, hosts if behind else 0, behind or 1):
        uplink = objects.Aggregate(
            id=first + 3, name=f'tor{first}', metadata={
                'vswitch:uplink': f'tor{first}',
                'vswitch:uplink_saturation_kbps': str(200_000 * behind)},
            hosts=[state.host for state in states[first:first + behind]])
        for state in states[first:first + behind]:
            state.aggregates = [*state.aggregates, uplink]
    spec = objects.RequestSpec(
        instance_uuid=uuidutils.generate_uuid(),
        flavor=objects.Flavor(name='m1', vcpus=1, memory_mb=64, extra_specs={
            'vswitch:egress_kbps': '2000', 'vswitch:on_seconds': '30',
            'vswitch:off_seconds': '300', 'hw:cpu_policy': 'shared'}),
        scheduler_hints={}, requested_resources=[])
    return states, spec


def change(states, share, generator):
    """Replace one instance on a share of the hosts, as a cloud would."""
    for i in generator.choice(len(states), max(1, int(share * len(states))),
                              replace=False):
        instances = states[i].instances
        gone = next(iter(instances))
        instances[uuidutils.generate_uuid()] = instances.pop(gone)


def add(states, share, generator):
    """Put one instance more on a share of the hosts."""
    for i in generator.choice(len(states), max(1, int(share * len(states))),
                              replace=False):
        instances = states[i].instances
        instances[uuidutils.generate_uuid()] = next(iter(instances.values()))


class Record:
    """Nova's record of the hosts, as readings of a cell bring it."""

    def __init__(self, state):
        self._state = state
        self._rows = {}

    def read(self, states):
        """Take in who is where now; return milliseconds.

        A reading has the rows that have changed, and finding them is not
        timed: Nova's database does that.
        """
        rows = {uuid: residency.Row(state.host, 'active', None)
                for state in states for uuid in state.instances}
        changed = dict(rows.items() - self._rows.items())
        changed.update(dict.fromkeys(self._rows.keys() - rows.keys()))
        self._rows = rows
        reading = residency.CellReading('cell', time.monotonic(), changed)
        start = time.thread_time()
        self._state._take_reading(reading)
        return (time.thread_time() - start) * 1e3


def fresh(states):
    """Return HostStates as Nova makes them for its next request."""
    made = []
    for state in states:
        one = copy.copy(state)
        one.host = state.host[:1] + state.host[1:]
        one.aggregates = list(state.aggregates)
        made.append(one)
    return made


#: HostStates of the last passes: Nova has them until a request ends, so that
#: no filter frees them.
_kept = []


def reordered(states, generator):
    """Return HostStates in another order, with dictionaries made anew."""
    made = fresh([states[i]
                  for i in generator.permutation(len(states)).tolist()])
    for state in made:
        state.instances = dict(state.instances)
    return made


def demand_again(spec, generator):
    """Let a request ask for another demand than the ones before."""
    spec.flavor.extra_specs = {
        **spec.flavor.extra_specs,
        'vswitch:egress_kbps': str(int(generator.integers(500, 5000)))}


def kernel(ours, rows, law):
    """Return milliseconds of the part of a pass that computes."""
    start = time.thread_time()
    ours._state._table.assess(rows, law)
    return (time.thread_time() - start) * 1e3


def observe(ours, states):
    """Return milliseconds of the part of a pass that reads HostStates."""
    states = fresh(states)
    start = time.thread_time()
    ours._state._observe(states)
    milliseconds = (time.thread_time() - start) * 1e3
    _kept.append(states)
    return milliseconds


def filtered(chosen, states, spec):
    """Return (milliseconds of a pass of a filter, those that pass)."""
    states = fresh(states)
    start = time.thread_time()
    passed = list(chosen.filter_all(states, spec))
    milliseconds = (time.thread_time() - start) * 1e3
    _kept.append(states)
    del _kept[:-4]
    return milliseconds, passed


def weighed(weigher, states, spec):
    """Return milliseconds of a weigher for hosts that were just filtered."""
    objects_ = [nova_weights.WeighedHost(state, 0.0) for state in states]
    start = time.thread_time()
    weigher.weigh_objects(objects_, spec)
    return (time.thread_time() - start) * 1e3


def _scheduled():
    """Return nanoseconds that this thread ran, and waited for a processor."""
    path = f'/proc/self/task/{threading.get_native_id()}/schedstat'
    with open(path) as file:
        return [int(word) for word in file.read().split()[:2]]


def wait_of(ours, states, spec):
    """Return milliseconds that a request waits.

    It waits for locks and the interpreter, which other threads hold: the time
    that a request took, less the time that it ran or waited for a processor.
    """
    states, before, start = fresh(states), _scheduled(), time.perf_counter()
    ours.filter_all(states, spec)
    seconds = time.perf_counter() - start
    ran = sum(_scheduled()) - sum(before)
    time.sleep(.002)
    return max(0.0, seconds * 1e3 - ran / 1e6)


def waits(ours, states, spec):
    """Return the waits of requests while a generation is adopted, and alone.

    :returns: two lists of milliseconds of equal length
    """
    adoption = threading.Thread(
        target=ours._state._adopt, args=(ours._state._snapshot,))
    adoption.start()
    adopting = []
    while adoption.is_alive():
        adopting.append(wait_of(ours, states, spec))
    return adopting, [wait_of(ours, states, spec) for _ in adopting]


def measure(hosts, instances, rounds, seed, behind=0, lists=False):
    """Return {name: [milliseconds]} of an interleaved run."""
    generator = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as directory:
        CONF([], project='nova', default_config_files=[])
        states, spec = make_hosts(hosts, instances, generator, directory,
                                  behind)
        ours = filters.VSwitchFilter()
        weigher = weights.VSwitchWeigher()
        capabilities = \
            compute_capabilities_filter.ComputeCapabilitiesFilter()
        number = num_instances_filter.NumInstancesFilter()
        first, _ = filtered(ours, states, spec)
        found = {name: [] for name in (
            'filter_ms', 'kernel_ms', 'observe_ms', 'filter_reordered_ms',
            'filter_added_ms', 'filter_changed_ms', 'reading_ms',
            'weigher_ms', 'both_ms', 'compute_capabilities_ms',
            'num_instances_ms')}
        record = Record(ours._state)
        if not lists:
            record.read(states)
        filtered(ours, states, spec)
        for turn in range(rounds):
            demand_again(spec, generator)
            milliseconds, passed = filtered(ours, states, spec)
            found['filter_ms'].append(milliseconds)
            found['weigher_ms'].append(weighed(weigher, passed, spec))
            found['compute_capabilities_ms'].append(
                filtered(capabilities, states, spec)[0])
            found['num_instances_ms'].append(
                filtered(number, states, spec)[0])
            table = ours._state._table
            found['kernel_ms'].append(kernel(
                ours, table.rows_of(state.host for state in states),
                model.TrafficModel.on_off(
                    2001.0 + turn, on_seconds=30, off_seconds=300).law))
            found['observe_ms'].append(observe(ours, states))
            demand_again(spec, generator)
            found['filter_reordered_ms'].append(filtered(
                ours, reordered(states, generator), spec)[0])
            # Back in the order of the other passes.
            filtered(ours, states, spec)
            for name, changes in (('filter_added_ms', add),
                                  ('filter_changed_ms', change)):
                changes(states, .05, generator)
                found['reading_ms'].append(
                    0.0 if lists else record.read(states))
                demand_again(spec, generator)
                found[name].append(filtered(ours, states, spec)[0])
        found['both_ms'] = [a + b for a, b in zip(found['filter_ms'],
                                                  found['weigher_ms'])]
        found['few_hosts_ms'] = [
            filtered(ours, states[:10], spec)[0] for _ in range(200)]
        found['few_hosts_adopting_ms'], found['few_hosts_alone_ms'] = waits(
            ours, states[:10], spec)
        found['hosts_adopting_ms'], found['hosts_alone_ms'] = waits(
            ours, states[:1000], spec)
        ours._state._adopt(ours._state._snapshot)
        found['adopted_ms'] = [filtered(ours, states, spec)[0]]
        ours._state.stop()
    return found, first, len(passed)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--instances', type=int, default=50)
    parser.add_argument('--behind', type=int, default=0, metavar='HOSTS',
                        help='so many hosts share an uplink')
    parser.add_argument('--lists', action='store_true',
                        help="the cell cannot be read: Nova's lists count")
    parser.add_argument('--rounds', type=int, default=30)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    found, first, passed = measure(options.hosts, options.instances,
                                   options.rounds, options.seed,
                                   options.behind, options.lists)
    medians = {name: statistics.median(values)
               for name, values in found.items()}
    if options.json:
        print(json.dumps({
            **medians, 'hosts': options.hosts,
            'instances': options.instances, 'first_ms': first,
            'passed': passed, **{
                name.replace('_ms', f'_{word}_ms'): float(
                    np.quantile(found[name], share))
                for name in WAITS for word, share in (('99', .99),
                                                      ('most', 1.0))},
            'both_mean_ms': statistics.fmean(found['both_ms'])}))
        return
    print(f'{options.hosts} hosts of {options.instances} instances, '
          f'{passed} pass; first request {first:.0f} ms')
    print(f'{"":26}{"median":>10}{"min":>10}{"99 %":>10}{"max":>10}  '
          f'x ComputeCapabilitiesFilter')
    for name, values in found.items():
        print(f'{name:26}{medians[name]:10.3f}{min(values):10.3f}'
              f'{np.quantile(values, .99):10.3f}{max(values):10.3f}'
              f'{medians[name] / medians["compute_capabilities_ms"]:10.2f}')


if __name__ == '__main__':
    main()
