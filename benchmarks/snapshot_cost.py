#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs a scheduler to know every model of the store.

Fills a new SQLite store, with the placement of each instance too, then, in a
process of its own, reads all of it into a snapshot, as a scheduler that starts
does, and what 1 % of new models adds. Of ten instances one is on two networks;
there are a network for ten and a project for a hundred, fifty on a host.
Prints medians, spread and resident memory; --json for a machine.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

import numpy as np

from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import instants
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import attachments

#: Records of one write, for memory.
_TOGETHER = 20_000


def make_models(count, generator):
    """Return models of eight states."""
    jump = (np.ones((8, 8)) - np.eye(8)) / 7
    found = []
    for _ in range(count):
        found.append(model.TrafficModel(
            generator.lognormal(5, 2, (8, 3)), jump,
            1000 * generator.dirichlet(np.ones(8)),
            generator.integers(0, 8, instants.INSTANTS)))
    return found


def write(target, names, models, placed=True):
    for first in range(0, len(names), _TOGETHER):
        some = names[first:first + _TOGETHER]
        target.write(models=[
            store.StoredModel(name, models[i % len(models)])
            for i, name in enumerate(some)], placements=[
            place(name, first + i, len(names) // 10 + 1)
            for i, name in enumerate(some)] if placed else ())


def place(name, number, networks):
    """Return the placement of an instance by its number."""
    on = [str(uuid.UUID(int=i % networks)) for i in (
        number * 7919, number * 104729)[:1 + (number % 10 == 0)]]
    return store.InstanceRecord(
        name, f'compute-{number // 50}.example.org', f'm1.{number % 20}',
        uuid.UUID(int=number * 7919 % networks // 10).hex,
        attachments.Attachments(on))


def reader(url):
    """Read all, then, for each line of input, what is new; tell times."""
    target = store.Store(url, 600)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    view = snapshot.Snapshot().updated(target.read_changes())
    seconds = time.perf_counter() - began
    with open('/proc/self/statm') as stream:
        resident = int(stream.read().split()[1]) * resource.getpagesize()
    print(json.dumps({
        'read_s': seconds, 'instances': len(view),
        'resident_mib': resident / 2 ** 20,
        'peak_mib': resource.getrusage(
            resource.RUSAGE_SELF).ru_maxrss / 2 ** 10,
        'before_mib': before / 2 ** 10}), flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        view = view.updated(target.read_changes(view.generation))
        print(json.dumps(time.perf_counter() - began), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--instances', type=int, default=1_000_000)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--read', metavar='URL', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        reader(options.read)
        return 0
    models = make_models(1000, np.random.default_rng(1))
    names = [str(uuid.UUID(int=i)) for i in range(options.instances)]
    with tempfile.TemporaryDirectory() as directory:
        url = f'sqlite:///{os.path.join(directory, "vswitch.sqlite")}'
        migration.sync(url)
        target = store.Store(url, 600)
        began = time.perf_counter()
        write(target, names, models)
        filled = time.perf_counter() - began
        with subprocess.Popen(
                [sys.executable, __file__, '--read', url], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            answer = json.loads(child.stdout.readline())
            few = max(1, options.instances // 100)
            refresh = []
            for number in range(options.rounds):
                write(target, names[number * few:(number + 1) * few], models,
                      placed=False)
                child.stdin.write('\n')
                child.stdin.flush()
                refresh.append(json.loads(child.stdout.readline()))
            child.stdin.close()
    answer |= {'filled_s': filled, 'refresh_s': statistics.median(refresh)}
    if options.json:
        print(json.dumps({**answer, 'all_refresh_s': refresh}, indent=2))
        return 0
    print(f'{answer["instances"]} models, written in {filled:.0f} s: read in '
          f'{answer["read_s"]:.2f} s; resident {answer["resident_mib"]:.0f} '
          f'MiB, at the most {answer["peak_mib"]:.0f} MiB, before '
          f'{answer["before_mib"]:.0f} MiB')
    print(f'1 % new: median {statistics.median(refresh):.2f} s  min '
          f'{min(refresh):.2f}  max {max(refresh):.2f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
