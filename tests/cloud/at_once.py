# SPDX-License-Identifier: Apache-2.0
"""More boots at once than there are places: how many get in, and how fast.

All schedulers are stopped until Nova's API has accepted all boots. Then they
choose hosts at the same time. After each round, all servers are deleted, and
the next round begins once no service counts any of them.
"""

import collections
import concurrent.futures
import contextlib
import glob
import json
import os
import signal
import time

import pymysql

from tests.cloud import scenarios
from tests.cloud import services

#: Number of servers that are booted in addition to those that fit.
TOO_MANY = 20

#: Number of requests to Nova's API at a time.
CLIENTS = 20

#: Time from the start of a round to its fault, and duration of the fault, in
#: seconds.
FAULT_AFTER_SECONDS, FAULT_SECONDS = 1.0, 5.0

#: Counters of the workers that are printed.
COUNTERS = ('claims_made', 'claim_conflicts', 'claim_misses',
            'claims_over_limit', 'requests_refused_by_withdrawn_claims')


@contextlib.contextmanager
def store_killed(cloud):
    """Kill the store, and start it again at the end."""
    cloud.store.process.kill()
    cloud.store.process.wait()
    try:
        yield
    finally:
        cloud.store.start_server()


@contextlib.contextmanager
def store_locked(cloud):
    """Lock the counter of claims in another session."""
    with pymysql.connect(host='127.0.0.1', port=cloud.store.port, user='root',
                         database=services.STORE) as connection, \
            connection.cursor() as cursor:
        cursor.execute('SELECT number FROM claim_counter FOR UPDATE')
        yield


@contextlib.contextmanager
def store_read_only(cloud):
    """Let the store refuse all writes."""
    cloud.store.execute('SET GLOBAL read_only = 1')
    try:
        yield
    finally:
        cloud.store.execute('SET GLOBAL read_only = 0')


@contextlib.contextmanager
def store_failed_over(cloud):
    """Kill the first node of Galera; the proxy connects to the other one."""
    cloud.nodes[0].process.kill()
    cloud.nodes[0].process.wait()
    cloud.proxy.fail_over()
    yield


FAULTS = {'mariadb': (store_killed, store_locked, store_read_only),
          'galera': (store_failed_over,)}


def play(stage, number, fault=None):
    """Play a round.

    :param stage: :class:`~.scenarios.Stage`
    :param number: of the round
    :param fault: one of those of the store, or None
    :returns: dict of what came of it, as of :func:`~.scenarios.outcome_of`
    """
    openstack = stage.cloud.openstack
    fit = scenarios.room(scenarios.RATES_KBPS['small'], 1)
    count = fit * len(stage.hosts) + TOO_MANY
    before = {name: openstack.total(f'{name}_total') for name in COUNTERS}
    Waits.forget(openstack)
    _signal_schedulers(openstack, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda index: stage.client.boot(
                f'at-once-{number}-{index}', stage.flavors['small'],
                wait=False), range(count)))
    finally:
        _signal_schedulers(openstack, signal.SIGCONT)
    began = time.monotonic()
    if fault is not None:
        time.sleep(FAULT_AFTER_SECONDS)
        with fault(stage.cloud):
            time.sleep(FAULT_SECONDS)
    servers = stage.client.all_settled(count)
    line = {'round': number, 'fault': fault and fault.__name__,
            **scenarios.outcome_of(servers, fit),
            'seconds': round(time.monotonic() - began, 1)}
    waits = Waits.read(openstack)
    line['claim_seconds'] = {
        'median': waits[len(waits) // 2], 'most': waits[-1]}
    line['slow_claims'] = sum(wait > .3 for wait in waits)
    line.update((name, int(openstack.total(f'{name}_total') - before[name]))
                for name in COUNTERS)
    line['refused_by_placement'] = (
        line['claims_made'] - line['claim_conflicts'] - line['placed'])
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda server: stage.client.compute.delete_server(
            server, ignore_missing=True), servers))
    stage.clear()
    line['clear_seconds'] = round(time.monotonic() - began, 1)
    return line


class Waits:
    """The time that requests have spent in the claim of a host."""

    @staticmethod
    def forget(openstack):
        """Remove the times of earlier calls."""
        for path in glob.glob(openstack.path('times', '*')):
            os.truncate(path, 0)

    @staticmethod
    def read(openstack):
        """Return the seconds of each call since then, in ascending order."""
        seconds = []
        for path in glob.glob(openstack.path('times', '*')):
            with open(path) as stream:
                for line in stream:
                    hook, _, elapsed = line.split()
                    if hook.startswith('claim_host'):
                        seconds.append(float(elapsed))
        return sorted(seconds) or [0.0]


def _signal_schedulers(openstack, number):
    for name in openstack.schedulers:
        os.killpg(openstack.processes[name].pid, number)


def describe(line):
    """Return what came of a round, or of all, in words."""
    failures = collections.Counter(line['failed'])
    return (f'round {line["round"]:>3} {line["fault"] or "":16}'
            f'{line["placed"]:4} placed, {line["refused"]} refused, '
            f'over {sum(line["over"].values())}, '
            f'failed {len(line["failed"])}; '
            + ', '.join(f'{line[name]} {name}' for name in (
                *COUNTERS, 'refused_by_placement'))
            + f'; claim {1e3 * line["claim_seconds"]["median"]:.0f} ms '
            f'(median), {1e3 * line["claim_seconds"]["most"]:.0f} ms (most), '
            f'{line["slow_claims"]} above 300 ms; '
            f'{line["seconds"]} s, cleared in {line["clear_seconds"]} s'
            + ''.join(f'\n    {number} times: {message}'
                      for message, number in failures.items()))


def sum_of(lines):
    """Return the sum of rounds."""
    over = collections.Counter()
    for line in lines:
        over.update(line['over'])
    return {
        'round': 'all', 'fault': None, 'over': dict(over),
        'failed': [text for line in lines for text in line['failed']],
        'claim_seconds': {
            'median': sorted(line['claim_seconds']['median']
                             for line in lines)[len(lines) // 2],
            'most': max(line['claim_seconds']['most'] for line in lines)},
        **{name: round(sum(line[name] for line in lines), 1) for name in (
            'placed', 'refused', 'seconds', 'clear_seconds', 'slow_claims',
            'refused_by_placement', *COUNTERS)}}


def is_good(line, fit, exact):
    """Return whether a round has gone as it should.

    :param fit: number of servers that fit
    :param exact: whether each place has to be used, and none twice
    """
    if line['failed']:
        return False
    if exact:
        return line['placed'] == fit and not line['over']
    # Without the store, workers decide alone.
    return line['placed'] >= fit if line['fault'] else not line['over']


def run(cloud_options, rounds, patience, refuse_every, faults, as_json,
        stage_of):
    """Start a cloud, play; print lines; return whether all was well.

    :param patience: the option claim_patience_seconds
    :param refuse_every: Placement refuses each claim of this number, or None
    :param faults: the faults of the rounds, by turns, or ()
    :param stage_of: callable(cloud), returns its Stage
    """
    environment = {'REFUSE_EVERY': str(refuse_every)} if refuse_every else {}
    lines = []
    with services.Cloud(
            **cloud_options,
            scheduler_options={'claim_patience_seconds': patience},
            environments={f'scheduler-{number}': environment
                          for number in range(3)}) as cloud:
        stage = stage_of(cloud)
        fit = scenarios.room(scenarios.RATES_KBPS['small'], len(stage.hosts))
        for number in range(1, rounds + 1):
            fault = faults[(number - 1) % len(faults)] if faults else None
            lines.append(play(stage, number, fault))
            lines[-1]['good'] = is_good(
                lines[-1], fit, not faults and not refuse_every)
            if not as_json:
                print('good' if lines[-1]['good'] else 'BAD ',
                      describe(lines[-1]), flush=True)
    total = sum_of(lines)
    print(json.dumps({'rounds': lines, 'all': total}) if as_json
          else f'     {describe(total)}')
    return all(line['good'] for line in lines)
