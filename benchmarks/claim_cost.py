#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What claims cost a scheduler worker, and how long requests wait for them.

Prints, for the store of --url (SQLite by default):

* wall and processor time of a reading that finds no new claim, and of a
  transaction that reads one claim of another worker and writes one claim;
* time that a request waits in Claims.claim, for each number of workers and of
  requests that each worker handles at once. Workers are processes, and hosts
  always have room. Also the processor time of a worker for each claim, and the
  number of misses: claims that the store has not accepted within --patience.

Median, quartiles and maximum; --json for a machine. The store must be empty or
absent.
"""

import argparse
import concurrent.futures
import functools
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
import uuid

from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.traffic import model

LAW = model.TrafficModel.on_off(500, 200, on_seconds=30, off_seconds=90).law

#: Seconds between two readings, the default of claims_refresh_seconds.
_REFRESH_SECONDS = 0.25

#: Rounds before those that count: statements are compiled, connections opened.
_WARM_UP = 3


def values_of(number):
    return {'instance_uuid': str(uuid.uuid4()), 'host': f'host{number:05}',
            'source': None, 'law': LAW, 'rule': 'flavor'}


def stored(author, number):
    return store.StoredClaim(token=f'{author}-{number}', claimed_by=author,
                             **values_of(number))


def timed(function):
    """Return (wall, processor) milliseconds of one call."""
    wall, cpu = time.perf_counter(), time.thread_time()
    function()
    return ((time.perf_counter() - wall) * 1e3,
            (time.thread_time() - cpu) * 1e3)


def distribution(values):
    low, median, high = statistics.quantiles(values, n=4)
    return {'median': median, 'quartiles': [low, high], 'most': max(values)}


def write(target, since, *written):
    """Write claims in one transaction; return the ClaimsSeen."""
    with target.claiming(since) as (changes, write_claims):
        write_claims(written)
    return changes.seen


def transactions(url, options):
    """Return {name: {clock: distribution in milliseconds}}."""
    own, other = store.Store(url), store.Store(url)
    seen = write(own, None, *(stored('before', number)
                              for number in range(options.rows)))
    spent = {'idle reading': [], 'transaction': []}
    for number in range(_WARM_UP + options.rounds):
        spent['idle reading'].append(
            timed(functools.partial(own.read_claims, seen)))
        write(other, seen, stored('other', number))
        spent['transaction'].append(timed(functools.partial(
            write, own, seen, stored('own', number))))
        seen = own.read_claims(seen).seen
    return {name: dict(zip(('wall', 'processor'), map(
        distribution, zip(*times[_WARM_UP:]))))
        for name, times in spent.items()}


def work(url, options, at_once, barrier, results):
    """Be one worker: claim hosts for some requests at once, in rounds."""
    waits, everyone = [], threading.Barrier(at_once)
    worker = claims.Claims(
        store.Store(url, 2.0), _REFRESH_SECONDS, options.patience,
        threading.RLock(), lambda foreign: None, lambda *_: None,
        f'bench:{os.getpid()}',
        lambda topic, problem: problem and print(topic, problem))

    def request(number):
        everyone.wait()
        began = time.perf_counter()
        worker.claim(lambda: True, True, **values_of(number))
        waits.append(1e3 * (time.perf_counter() - began))

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        worker.wait_until_read()
        for number in range(_WARM_UP + options.rounds):
            barrier.wait()
            if number == _WARM_UP:
                waits.clear()
                before = time.process_time(), worker.counts['claim_misses']
            list(pool.map(request, range(at_once)))
    worker.stop()
    results.put((waits, 1e3 * (time.process_time() - before[0]) / len(waits),
                 worker.counts['claim_misses'] - before[1]))


def requests(url, options, workers, at_once):
    """Return the figures of requests at once in some workers."""
    # Threads of this process would not survive a fork.
    context = multiprocessing.get_context('spawn')
    barrier, results = context.Barrier(workers), context.SimpleQueue()
    processes = [context.Process(
        target=work, args=(url, options, at_once, barrier, results))
        for _ in range(workers)]
    for process in processes:
        process.start()
    try:
        waits, spent, misses = zip(*(results.get() for _ in processes))
    finally:
        for process in processes:
            process.join()
    return {'workers': workers, 'at_once': at_once,
            'wait_ms': distribution([wait for some in waits for wait in some]),
            'processor_ms': statistics.mean(spent), 'misses': sum(misses),
            'claims': sum(map(len, waits))}


def text(of):
    return (f'{of["median"]:9.2f} ({of["quartiles"][0]:.2f} to '
            f'{of["quartiles"][1]:.2f}, most {of["most"]:.2f})')


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--url', help='of the store; SQLite by default')
    parser.add_argument('--rounds', type=int, default=100)
    parser.add_argument('--rows', type=int, default=200,
                        help='claims in the store')
    parser.add_argument('--workers', type=int, nargs='+', default=[1, 4])
    parser.add_argument('--at-once', type=int, nargs='+', default=[1, 20],
                        help='requests in each worker')
    parser.add_argument('--patience', type=float, default=2.0,
                        metavar='SECONDS')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        url = options.url or 'sqlite:///' + os.path.join(
            directory, 'vswitch.sqlite')
        migration.sync(url)
        found = {'milliseconds': transactions(url, options), 'requests': [
            requests(url, options, workers, at_once)
            for workers in options.workers for at_once in options.at_once]}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print('ms: median (quartiles, most)')
    for name, clocks in found['milliseconds'].items():
        for clock, of in clocks.items():
            print(f'{name}, {clock}: {text(of)}')
    for row in found['requests']:
        print(f'{row["workers"]} workers with {row["at_once"]} requests at '
              f'once: wait {text(row["wait_ms"])}, processor '
              f'{row["processor_ms"]:.2f} a claim, {row["misses"]} misses of '
              f'{row["claims"]}')


if __name__ == '__main__':
    main()
