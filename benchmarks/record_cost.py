#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reading Nova's record costs in a large cloud, and how late it is.

Starts a MariaDB with Nova's own tables and --instances rows, and --workers
processes that each keep what a worker of nova-scheduler keeps. One more
process changes rows at a steady rate: it boots, deletes, moves instances and
sets their task states, each in one transaction. Prints

* the share of a core that the database takes with the changes alone and with
  the workers reading them, and the share that the readings take in a worker;
* the lag: time from the commit of a boot, a deletion or a move until a worker
  counts by it;
* how long requests take while all instances are read, and while they are not:
  a thread of one worker has the hosts judged without a pause. "Less the wait
  for a processor" leaves out the time in which a thread was ready to run and
  the machine was busy with others, as the kernel counts it;
* for how much of the processor the readings hold the lock that requests need.

--json for a machine. It needs mariadbd, and nova's libraries.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')

_CELL = '11111111-1111-1111-1111-111111111111'
_CELL0 = '00000000-0000-0000-0000-000000000000'

#: Instances that one statement inserts.
_ROWS = 1000

#: Operations that are always under way: at 10,000 changes a minute each takes
#: some six seconds.
_UNDER_WAY = 500


def uuid_of(number):
    return f'00000000-0000-4000-8000-{number:012x}'


def host_of(number, hosts):
    return f'host{number % hosts:05}'


def flavor_text(number):
    """Return a serialised flavor, as Nova keeps it with an instance."""
    data = {'id': number, 'name': f'f{number}', 'memory_mb': 64, 'vcpus': 1,
            'root_gb': 1, 'ephemeral_gb': 0, 'flavorid': f'{number}',
            'swap': 0, 'rxtx_factor': 1.0, 'vcpu_weight': 0,
            'disabled': False, 'is_public': True, 'extra_specs': {
                'vswitch:egress_kbps': str(1000 + 100 * number),
                'vswitch:on_seconds': '30', 'vswitch:off_seconds': '300'}}
    return json.dumps({'cur': {
        'nova_object.version': '1.2', 'nova_object.name': 'Flavor',
        'nova_object.namespace': 'nova', 'nova_object.data': data},
        'old': None, 'new': None})


# The worker.


def use_databases(port):
    """Let nova's libraries of this process use the databases."""
    import nova.conf
    from nova import config
    from nova import objects
    import oslo_messaging as messaging

    objects.register_all()
    nova.conf.CONF.set_override(
        'connection', url_of(port, 'nova_api'), group='api_database')
    nova.conf.CONF.set_override(
        'connection', url_of(port, 'nova_cell0'), group='database')
    config.parse_args(['record_cost'], default_config_files=[],
                      init_rpc=False)
    # Cells are made of it.
    messaging.get_rpc_transport(nova.conf.CONF, 'fake:///')
    return nova.conf.CONF


def url_of(port, name):
    return f'mysql+pymysql://root@127.0.0.1:{port}/{name}'


class HeldLock:
    """A lock that notes for how much of the processor a thread holds it."""

    def __init__(self, lock):
        self._lock, self._local = lock, threading.local()
        self.held = []           # (name of the thread, seconds)

    def __enter__(self):
        self._lock.acquire()
        self._local.depth = getattr(self._local, 'depth', 0) + 1
        if self._local.depth == 1:
            self._local.began = time.thread_time()

    def __exit__(self, *_):
        self._local.depth -= 1
        if not self._local.depth:
            self.held.append((threading.current_thread().name,
                              time.thread_time() - self._local.began))
        self._lock.release()


class Worker:
    """What one worker of nova-scheduler keeps, and a client of it."""

    def __init__(self, options):
        conf = use_databases(options.port)
        from nova import objects
        from nova.scheduler import host_manager

        from vswitch_aware_scheduler.conf import opts
        from vswitch_aware_scheduler.scheduler import state
        from vswitch_aware_scheduler.store import migration

        opts.register_opts(conf)
        folder = tempfile.mkdtemp()
        url = f'sqlite:///{folder}/vswitch.sqlite'
        migration.sync(url)
        for name, value in (
                ('store_url', url), ('snapshot_first_wait_seconds', 60),
                # The claims are not of interest.
                ('claims_refresh_seconds', 60),
                ('record_full_seconds', options.full_seconds)):
            conf.set_override(name, value, group='vswitch_scheduler')
        aggregate = objects.Aggregate(id=1, name='all', hosts=[], metadata={
            'vswitch:profile': 'ovs-vxlan'})
        self._hosts = []
        for number in range(options.hosts):
            host = host_of(number, options.hosts)
            one = host_manager.HostState(host, host, _CELL)
            one.instances, one.aggregates = {}, [aggregate]
            self._hosts.append(one)
        self._objects = objects
        self._number = 0
        self.state = state.SchedulerState(conf)
        self.lock = self.state._lock = HeldLock(self.state._lock)
        began, cpu = time.monotonic(), time.process_time()
        self.request()
        while _CELL not in self.state._residency.complete:
            time.sleep(.1)
        self.first = (time.monotonic() - began, time.process_time() - cpu)
        self.record = self.state._record
        self.reader = self.record.readers[_CELL]
        self._seen = {}
        self._readings = []

    def request(self):
        """Have all hosts judged; return (seconds, of the processor)."""
        self._number += 1
        spec = self._objects.RequestSpec(
            instance_uuid=uuid_of(2 ** 40 + self._number),
            flavor=self._objects.Flavor(
                name='m1', vcpus=1, memory_mb=64, extra_specs={
                    'vswitch:egress_kbps': str(2000 + self._number % 100)}),
            scheduler_hints={}, requested_resources=[])
        began, cpu = time.monotonic(), time.thread_time()
        self.state.request_started()
        self.state.assess(self._hosts, spec)
        self.state.request_finished(False)
        return time.monotonic() - began, time.thread_time() - cpu

    def measure(self, seconds, pause):
        """Return what the worker spent, and {change: when it counted}."""
        take, seen, readings = self.record.take, {}, []

        def noted(reading):
            take(reading)
            if reading.cell == _CELL and reading.began > float('-inf'):
                readings.append(reading.began)
            now = time.monotonic()
            for uuid, row in reading.rows.items():
                seen.setdefault(f'{uuid} {row and row.host}', now)

        self.record.take = noted
        began, cpu, requests = time.monotonic(), time.process_time(), 0.0
        while time.monotonic() < began + seconds:
            requests += self.request()[1]
            time.sleep(pause)
        spent = time.process_time() - cpu - requests
        took = time.monotonic() - began
        self.record.take = take
        return {'share': spent / took, 'request_share': requests / took,
                'seen': seen, 'reads_a_minute': 60 * len(readings) / took}

    def pauses(self, seconds):
        """Return the times of requests with and without a full reading."""
        whole, threads = type(self.reader)._read_all, {}
        reading, spent = threading.Event(), []

        def read_all(reader):
            threads['reader'] = threading.get_native_id()
            began, cpu = time.monotonic(), time.thread_time()
            reading.set()
            try:
                whole(reader)
            finally:
                reading.clear()
                spent.append((time.monotonic() - began,
                              time.thread_time() - cpu))

        found = {'reading': [], 'quiet': []}
        type(self.reader)._read_all = read_all
        self.lock.held.clear()
        try:
            for _ in range(2):
                self.reader._full_at = float('-inf')
                limit = time.monotonic() + seconds
                while time.monotonic() < limit:
                    before = reading.is_set()
                    waits = _waited(threads)
                    took, _ = self.request()
                    if reading.is_set() == before:
                        waited = sum(_waited(threads)) - sum(waits)
                        found['reading' if before else 'quiet'].append(
                            (took, max(0.0, took - waited)))
                    time.sleep(.002)
        finally:
            type(self.reader)._read_all = whole
        return {'full_readings': spent, 'lock_held': _distribution([
            held for name, held in self.lock.held
            if name.startswith('vswitch-record')]), **{
            name: [_distribution(column) for column in zip(*values)]
            for name, values in found.items()}}


def _waited(threads):
    """Return for how long this and another thread waited for a processor."""
    found = []
    for thread in (threading.get_native_id(), threads.get('reader')):
        try:
            with open(f'/proc/self/task/{thread}/schedstat') as stream:
                found.append(int(stream.read().split()[1]) / 1e9)
        except (OSError, IndexError):
            found.append(0.0)
    return found


def _distribution(values):
    ordered = sorted(values)
    return {'count': len(ordered), **{
        name: 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]
        for name, share in (('median', .5), ('p99', .99), ('p99.9', .999),
                            ('most', 1))}}


def work(options):
    """Be a worker: answer the commands on standard input."""
    worker = Worker(options)
    print(json.dumps({'first': worker.first}), flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        found = getattr(worker, name)(*map(float, words))
        print(json.dumps(found), flush=True)
    os._exit(0)


# The databases, and who changes them.


def fill(database, options):
    """Make Nova's tables, and instances in them."""
    use_databases(database.port)
    from nova import context
    from nova.db import migration
    from nova import objects

    migration.db_sync(database='api')
    for name, uuid in (('nova_cell0', _CELL0), ('nova', _CELL)):
        cell = objects.CellMapping(
            context.get_admin_context(), uuid=uuid, name=name,
            database_connection=database.url_of(name),
            transport_url='none:///')
        cell.create()
        with context.target_cell(context.get_admin_context(), cell) as of:
            migration.db_sync(database='main', context=of)
    with database.connect() as connection, connection.cursor() as cursor:
        for first in range(0, options.instances + options.deleted, _ROWS):
            numbers = range(first, first + _ROWS)
            cursor.executemany(_INSERT, [
                (number, uuid_of(number), host_of(number, options.hosts),
                 number % 20, f'p{number % 100}',
                 number if number >= options.instances else 0)
                for number in numbers])
            cursor.executemany(_INSERT_EXTRA, [
                (uuid_of(number), flavor_text(number % 20))
                for number in numbers])
            connection.commit()
        cursor.execute('ANALYZE TABLE instances, instance_extra, migrations')


_INSERT = """
    INSERT INTO instances (id, uuid, host, instance_type_id, project_id,
        deleted, vm_state, created_at, updated_at)
    VALUES (%s + 1, %s, %s, %s, %s, %s, 'active',
        utc_timestamp() - INTERVAL 1 DAY, utc_timestamp() - INTERVAL 1 DAY)"""
_INSERT_EXTRA = """
    INSERT INTO instance_extra (instance_uuid, flavor, deleted, created_at)
    VALUES (%s, %s, 0, utc_timestamp())"""


class Changer(threading.Thread):
    """Changes rows at a steady rate, each in a transaction."""

    def __init__(self, database, options):
        super().__init__(daemon=True)
        self._database, self._options = database, options
        self._random = random.Random(1)
        self._next = options.instances + options.deleted
        self._under_way = collections.deque()    # (kind, number)
        self._touched = set()
        self.changed = {}        # "uuid host" -> (kind, when committed)
        self.count = 0
        self._stopped = threading.Event()

    def stop(self):
        self._stopped.set()
        self.join()

    def run(self):
        with self._database.connect() as connection, \
                connection.cursor() as cursor:
            began = time.monotonic()
            while not self._stopped.is_set():
                kind, change = self._change(cursor)
                connection.commit()
                if change is not None:
                    self.changed[change] = kind, time.monotonic()
                self.count += 1
                self._stopped.wait(max(0.0, began + 60 * self.count
                                       / self._options.changes
                                       - time.monotonic()))

    def _pick(self):
        """Return the number of an instance that nothing was done to."""
        while True:
            number = self._random.randrange(self._options.instances)
            if number not in self._touched:
                self._touched.add(number)
                return number

    def _change(self, cursor):
        """Make one change; return its kind and what is seen of it, or None.

        Each operation is two changes, its begin and its end, with others in
        between.
        """
        if len(self._under_way) < _UNDER_WAY or self._random.random() < .5:
            kind = self._random.choice(('boot', 'delete', 'move', 'reboot'))
            if kind == 'boot':
                number, self._next = self._next, self._next + 1
            else:
                number = self._pick()
            getattr(self, f'_begin_{kind}')(cursor, number)
            self._under_way.append((kind, number))
            return kind, None
        kind, number = self._under_way.popleft()
        host = getattr(self, f'_end_{kind}')(cursor, number)
        return kind, None if kind == 'reboot' else \
            f'{uuid_of(number)} {host}'

    def _begin_boot(self, cursor, number):
        cursor.execute("""
            INSERT INTO instances (id, uuid, instance_type_id, project_id,
                deleted, vm_state, task_state, created_at)
            VALUES (%s, %s, %s, 'p1', 0, 'building', 'scheduling',
                utc_timestamp())""", (
            number + 1, uuid_of(number), number % 20))
        cursor.execute(_INSERT_EXTRA, (uuid_of(number),
                                       flavor_text(number % 20)))

    def _end_boot(self, cursor, number):
        host = host_of(number, self._options.hosts)
        self._update(cursor, number, "vm_state = 'active', task_state = NULL, "
                     f"host = '{host}'")
        return host

    def _begin_delete(self, cursor, number):
        self._update(cursor, number, "task_state = 'deleting'")

    def _end_delete(self, cursor, number):
        # oslo.db keeps updated_at.
        cursor.execute('UPDATE instances SET deleted = id, '
                       'deleted_at = utc_timestamp() WHERE id = %s',
                       (number + 1,))

    def _begin_move(self, cursor, number):
        self._update(cursor, number, "task_state = 'migrating'")
        cursor.execute("""
            INSERT INTO migrations (uuid, instance_uuid, source_compute,
                dest_compute, status, migration_type, deleted, created_at)
            VALUES (%s, %s, %s, %s, 'running', 'live-migration', 0,
                utc_timestamp())""", (
            uuid_of(number), uuid_of(number),
            host_of(number, self._options.hosts),
            host_of(number + 1, self._options.hosts)))

    def _end_move(self, cursor, number):
        host = host_of(number + 1, self._options.hosts)
        cursor.execute("UPDATE migrations SET status = 'completed', "
                       'updated_at = utc_timestamp() WHERE uuid = %s',
                       (uuid_of(number),))
        self._update(cursor, number, f"task_state = NULL, host = '{host}'")
        return host

    def _begin_reboot(self, cursor, number):
        self._update(cursor, number, "task_state = 'rebooting'")

    def _end_reboot(self, cursor, number):
        self._update(cursor, number, 'task_state = NULL')

    def _update(self, cursor, number, what):
        cursor.execute(f'UPDATE instances SET {what}, '
                       'updated_at = utc_timestamp() WHERE id = %s',
                       (number + 1,))


def cpu_seconds(pid):
    """Return the seconds of processor that a process has taken."""
    with open(f'/proc/{pid}/stat') as stream:
        words = stream.read().rpartition(')')[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def share_of(pid, seconds):
    """Return the share of a core that a process takes from now on."""
    began, cpu = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - cpu) / (time.monotonic() - began)


def measure(options):
    """Return all figures."""
    import pymysql

    from tests.cloud import services

    class Database(services.Database):
        def connect(self):
            return pymysql.connect(host='127.0.0.1', port=self.port,
                                   user='root', database='nova')

    found = {'instances': options.instances, 'workers': options.workers,
             'changes_a_minute': options.changes}
    with Database(('nova_api', 'nova_cell0', 'nova')) as database:
        fill(database, options)
        changer = Changer(database, options)
        changer.start()
        mariadbd = database.process.pid
        found['load_before'] = os.getloadavg()[0]
        found['database_share_without'] = share_of(mariadbd, options.seconds)
        workers = []
        try:
            for number in range(options.workers):
                workers.append(subprocess.Popen(
                    [sys.executable, '-W', 'ignore', __file__, '--worker',
                     '--port', str(database.port), '--hosts',
                     str(options.hosts), '--full-seconds',
                     str(options.full_seconds)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    text=True, bufsize=1))
            first = [_answer(worker)['first'] for worker in workers]
            found['first_reading'] = [max(column) for column in zip(*first)]
            changer.changed.clear()
            for worker in workers:
                print(f'measure {options.seconds} {options.pause}',
                      file=worker.stdin)
            count, began = changer.count, time.monotonic()
            found['database_share'] = share_of(mariadbd, options.seconds)
            found['changes_a_minute'] = 60 * (changer.count - count) / (
                time.monotonic() - began)
            known = dict(changer.changed)
            until = time.monotonic() - options.grace
            spent = [_answer(worker) for worker in workers]
            found['lag_ms'] = {kind: _distribution([
                one['seen'].get(change, float('inf')) - at for one in spent
                for change, (of, at) in known.items()
                # What was changed last may not have been read.
                if of == kind and at < until])
                for kind in ('boot', 'delete', 'move')}
            found['worker_share'] = [one['share'] for one in spent]
            found['reads_a_minute'] = sum(
                one['reads_a_minute'] for one in spent)
            found['request_share'] = [one['request_share'] for one in spent]
            found['load_after'] = os.getloadavg()[0]
            for worker in workers[1:]:
                worker.stdin.close()
                worker.wait()
            print(f'pauses {options.seconds}', file=workers[0].stdin)
            found['pauses_ms'] = _answer(workers[0])
        finally:
            for worker in workers:
                worker.kill()
            changer.stop()
    return found


def _answer(worker):
    line = worker.stdout.readline()
    while line and not line.startswith('{'):
        line = worker.stdout.readline()
    return json.loads(line)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--instances', type=int, default=100_000)
    parser.add_argument('--deleted', type=int, default=20_000,
                        help='rows that are deleted and not archived')
    parser.add_argument('--hosts', type=int, default=2000)
    parser.add_argument('--workers', type=int, default=12)
    parser.add_argument('--changes', type=float, default=10_000,
                        help='a minute')
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--pause', type=float, default=5.0,
                        help='seconds between two requests of a worker')
    parser.add_argument('--grace', type=float, default=10.0,
                        help='seconds at the end whose changes do not count')
    parser.add_argument('--full-seconds', type=float, default=300)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--worker', action='store_true',
                        help=argparse.SUPPRESS)
    parser.add_argument('--port', type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    found = measure(options)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    pauses = found['pauses_ms']
    shares = found['worker_share']
    print(f'{found["instances"]} instances, '
          f'{found["changes_a_minute"]:.0f} changes a minute, '
          f'{found["workers"]} workers; load of the machine '
          f'{found["load_before"]:.1f} before, {found["load_after"]:.1f} '
          f'after')
    print(f'database: {found["database_share_without"]:.1%} of a core by the '
          f'changes alone, {found["database_share"]:.1%} with the workers, '
          f'which read {found["reads_a_minute"]:.0f} times a minute')
    print(f'a worker: {sum(shares) / len(shares):.1%} of a core for the '
          f'readings (most {max(shares):.1%}); its first reading '
          f'{found["first_reading"][0]:.1f} s, '
          f'{found["first_reading"][1]:.1f} s of processor')
    for kind, lag in found['lag_ms'].items():
        print(f'lag of {lag["count"]} times a {kind}: {lag["median"]:.0f} ms '
              f'(median), {lag["p99"]:.0f} (99 %), {lag["most"]:.0f} (most)')
    print('full readings of one worker: ' + ', '.join(
        f'{took:.1f} s ({cpu:.2f} s of processor)'
        for took, cpu in pauses['full_readings']))
    held = pauses['lock_held']
    print(f'lock held by readings: {held["median"]:.2f} ms of processor '
          f'(median), {held["p99"]:.2f} (99 %), {held["most"]:.2f} (most) of '
          f'{held["count"]} times')
    for name in ('quiet', 'reading'):
        for words, one in zip(('', ', less the wait for a processor'),
                              pauses[name]):
            print(f'requests, {name}{words}: {one["median"]:.2f} ms '
                  f'(median), {one["p99"]:.2f} (99 %), '
                  f'{one["p99.9"]:.2f} (99.9 %), {one["most"]:.2f} (most) '
                  f'of {one["count"]}')


if __name__ == '__main__':
    main()
