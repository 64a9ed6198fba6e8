#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it takes to show a fleet from the store.

Fills a new SQLite store with hosts and instances that are on them, nine of ten
with a model of two to eight states, and runs ``vswitch-manage fleet`` on it in
a process of its own. Prints seconds of wall clock and processor, and resident
memory; --json for a machine.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid

import numpy as np

from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.traffic import instants
from vswitch_aware_scheduler.traffic import model

#: Hosts of one write, for memory, and different models.
_TOGETHER, _MODELS = 1000, 300


def make_models(generator):
    """Return models of two to eight states."""
    found = []
    for _ in range(_MODELS):
        count = int(generator.integers(2, 9))
        levels = np.sort(generator.lognormal(8, 1.2, count))
        jump = generator.random((count, count))
        np.fill_diagonal(jump, 0)
        found.append(model.TrafficModel(
            np.stack([levels, .7 * levels, 0 * levels], 1),
            jump / jump.sum(1)[:, None], np.linspace(3000, 300, count),
            generator.integers(0, count, instants.INSTANTS)))
    return found


def fill(url, hosts, on_each):
    """Make a store with a fleet in it."""
    migration.sync(url)
    target, now = store.Store(url), time.time()
    generator = np.random.default_rng(1)
    models = make_models(generator)
    for first in range(0, hosts, _TOGETHER):
        stored, placed = [], []
        for host in range(first, min(first + _TOGETHER, hosts)):
            for number in range(on_each):
                name = str(uuid.UUID(int=host * on_each + number + 1))
                placed.append(store.InstanceRecord(
                    name, f'compute{host}', 'small', f'p{number % 4}'))
                if number % 10:
                    stored.append(store.StoredModel(
                        name, models[int(generator.integers(_MODELS))]))
        target.write(stored, placements=placed, inventory=store.InventoryState(
            'nova', now, now))


def run(directory, url, words):
    """Return (seconds, seconds of the processor, MiB) of the command."""
    path = os.path.join(directory, 'vswitch.conf')
    with open(path, 'w') as file:
        file.write(f'[vswitch_scheduler]\nstore_url = {url}\n'
                   f'default_switch_profile = ovs-vxlan-1g\n')
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, '-m', 'vswitch_aware_scheduler.cmd.manage',
         '--config-file', path, 'fleet', *words],
        check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (time.monotonic() - began,
            after.ru_utime + after.ru_stime
            - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--instances', type=int, default=20,
                        help='on each host (default: 20)')
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    found = {'hosts': arguments.hosts,
             'instances': arguments.hosts * arguments.instances}
    with tempfile.TemporaryDirectory() as directory:
        url = f'sqlite:///{directory}/vswitch.sqlite'
        fill(url, arguments.hosts, arguments.instances)
        for name, words in (
                ('riskiest', ['--sort', 'risk', '--limit', '10']),
                ('all', ['-f', 'json']),
                ('room', ['-f', 'json', '--flavor', 'small'])):
            seconds, processor, memory = run(directory, url, words)
            found[name] = {'seconds': round(seconds, 2),
                           'processor_seconds': round(processor, 2),
                           'resident_mib': round(memory)}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f'{found["hosts"]} hosts, {found["instances"]} instances')
    for name in ('riskiest', 'all', 'room'):
        print(f'{name:9}' + ', '.join(
            f'{what} {value}' for what, value in found[name].items()))


if __name__ == '__main__':
    main()
