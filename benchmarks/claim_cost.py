#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sharing claims costs a worker: reads, writes, and how soon others know.

All with one store, in turn. Prints medians of wall and of processor time;
--json for a machine. Nothing of it is in the path of a request.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
import uuid

from vswitch_aware_scheduler.scheduler import claims_broadcast
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.traffic import model

LAW = model.TrafficModel.on_off(500, 200, on_seconds=30, off_seconds=90).law


def claim(number):
    return store.StoredClaim(
        str(uuid.uuid4()), f'bench-{number}', store.ASSUMED, 'host',
        None, LAW, True, 600.0, 'bench:1')


def timed(function):
    """Return (wall, processor) milliseconds of one call."""
    wall, cpu = time.perf_counter(), time.thread_time()
    function()
    return ((time.perf_counter() - wall) * 1e3,
            (time.thread_time() - cpu) * 1e3)


def measure(url, rounds, rows):
    """Return {name: [(wall, processor) milliseconds]}."""
    one, other = store.Store(url), store.Store(url)
    one.write_claims([claim(number) for number in range(rows)])
    seen = other.read_claims().seen
    found = {'idle_read': [], 'write_one': [], 'read_one': []}
    for number in range(rounds):
        found['idle_read'].append(timed(lambda: other.read_claims(seen)))
        words = [claim(rows + number)]
        found['write_one'].append(timed(lambda: one.write_claims(words)))
        found['read_one'].append(timed(lambda: other.read_claims(seen)))
        seen = other.read_claims(seen).seen
    return found


def delays(url, rounds, refresh_seconds):
    """Return [milliseconds] from telling a claim until another has read it."""
    heard = {}

    def hear(words):
        heard.update((word.token, time.perf_counter()) for word, _ in words)

    def make(hear):
        return claims_broadcast.ClaimsBroadcast(
            store.Store(url), refresh_seconds, hear, 'bench:1',
            lambda topic, problem: problem and print(problem))

    with contextlib.ExitStack() as stack:
        teller, hearer = make(lambda words: None), make(hear)
        for one in (teller, hearer):
            stack.callback(one.stop)
            one.start()
        time.sleep(2 * refresh_seconds)
        found = []
        for number in range(rounds):
            began = time.perf_counter()
            token = teller.placed(str(uuid.uuid4()), 'host', None, LAW, True,
                                  None).token
            while token not in heard:
                time.sleep(.0005)
            found.append((heard[token] - began) * 1e3)
            # At any moment between two reads.
            time.sleep(refresh_seconds * (number * .618 % 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--url', help='of a store; SQLite by default')
    parser.add_argument('--rounds', type=int, default=100)
    parser.add_argument('--rows', type=int, default=200,
                        help='claims that there are')
    parser.add_argument('--refresh-seconds', type=float, default=.25)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        url = options.url or 'sqlite:///' + os.path.join(
            directory, 'vswitch.sqlite')
        migration.sync(url)
        found = measure(url, options.rounds, options.rows)
        late = delays(url, options.rounds, options.refresh_seconds)
    medians = {name: [statistics.median(one) for one in zip(*values)]
               for name, values in found.items()}
    medians['heard_after_ms'] = [statistics.median(late), max(late)]
    if options.json:
        print(json.dumps(medians))
        return
    print(f'{"":12}{"wall ms":>10}{"cpu ms":>10}, medians')
    for name in found:
        print(f'{name:12}{medians[name][0]:10.2f}{medians[name][1]:10.2f}')
    print(f'another worker has read a claim after '
          f'{statistics.median(late):.0f} ms (median), {max(late):.0f} ms '
          f'(most), when it reads every {options.refresh_seconds:g} s')


if __name__ == '__main__':
    main()
