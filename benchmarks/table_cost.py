#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to know the load of every host.

Builds the look-up tables of all hosts from nothing, then changes one host at
a time: an instance comes, an instance goes, and the host is described from
nothing, each with its tables. The question that follows is measured apart.
Prints medians and spread; --json for a machine. All times are processor time
of the thread, so that other work on the machine counts less.
"""

import argparse
import json
import statistics
import time
import tracemalloc

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import instants
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile


def make_laws(count, generator):
    """Return random laws of eight states, heavy-tailed, mostly quiet.

    All but the first, with which questions are asked, were sampled. At some
    instants, many are in one of the last two states.
    """
    levels = np.array([.1, .2, .5, 1, 2, 4, 8, 20])
    shares = [.5, .25, .15, .05, .03, .01, .007, .003]
    busy = generator.random(instants.INSTANTS) < .02

    def rows():
        drawn = generator.choice(8, instants.INSTANTS, p=shares)
        return np.where(busy & (generator.random(drawn.size) < .2),
                        np.maximum(drawn, 6), drawn)

    return [rate_law.RateLaw.from_arrays(
        shares, np.outer(generator.lognormal(5, 1.5) * levels,
                         [1.0, .5, 0.0]),
        rows() if number else None) for number in range(count)]


def build(hosts, instances, laws, policy, generator):
    """Return (table, residents by host) with every table made."""
    residents = [{f'{host}-{i}': laws[k] for i, k in enumerate(
        generator.integers(len(laws), size=instances))}
        for host in range(hosts)]
    table = admission.LoadTable()
    start = time.thread_time()
    for host in range(hosts):
        table.describe(f'host{host}', policy, residents[host])
    table.assess(range(hosts), laws[0])
    return table, residents, time.thread_time() - start


def describe(table, name, policy):
    """Describe a host as one that is not known yet."""
    residents = dict(table.residents(name))
    table.describe(name, admission.HostPolicy(policy.profile), residents)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--hosts', type=int, default=10_000)
    parser.add_argument('--instances', type=int, default=50)
    parser.add_argument('--saturation-kbps', type=float, default=100_000.0)
    parser.add_argument('--changes', type=int, default=300)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    generator = np.random.default_rng(1)
    laws = make_laws(500, generator)
    policy = admission.HostPolicy(profile.SwitchProfile(
        'benchmark', saturation_kbps=options.saturation_kbps))
    table, residents, seconds = build(
        options.hosts, options.instances, laws, policy, generator)
    changes = {'one_more_us': [], 'one_less_us': [], 'anew_us': [],
               'question_us': []}
    for number, host in enumerate(
            generator.integers(options.hosts, size=options.changes)):
        name, row = f'host{host}', [table.row(f'host{host}')]
        # Another law each time, as requests of a cloud have.
        new, law = f'new-{number}', laws[number % len(laws)]
        gone = next(iter(residents[host]))
        del residents[host][gone]
        for key, change in (
                ('one_more_us', lambda: table.change(
                    {name: ({new: law}, [])})),
                ('one_less_us', lambda: table.change({name: ({}, [gone])})),
                ('anew_us', lambda: describe(table, name, policy))):
            start = time.thread_time()
            change()
            # The first question may still have to make the tables.
            table.assess(row, laws[0])
            changed = time.thread_time()
            table.assess(row, laws[0])
            asked = time.thread_time()
            question = (asked - changed) * 1e6
            changes['question_us'].append(question)
            changes[key].append((changed - start) * 1e6 - question)
    tracemalloc.start()
    kept = build(options.hosts, options.instances, laws, policy, generator)
    memory = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    del kept
    if options.json:
        print(json.dumps({
            'hosts': options.hosts, 'instances': options.instances,
            'build_seconds': seconds, 'memory_mib': memory,
            **{key: statistics.median(values)
               for key, values in changes.items()}}))
        return
    print(f'{options.hosts} hosts of {options.instances} instances: built in '
          f'{seconds:.2f} s, {memory:.0f} MiB with what callers hold')
    for key, values in changes.items():
        print(f'{key:12} median {statistics.median(values):8.0f}  '
              f'min {min(values):8.0f}  max {max(values):8.0f}')


if __name__ == '__main__':
    main()
