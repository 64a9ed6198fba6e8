#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the plugin adds to a request of a real nova-scheduler.

One process with nova's conductor, placement and SQLite databases, and hosts
that are rows of these: nova-scheduler cannot tell them from real ones. Two
SchedulerManagers answer the same requests in turn, one with VSwitchFilter and
VSwitchWeigher and one without; what they claim is given back, which is not
measured. The store is in SQLite or, with --store, on a server that the script
starts; the databases of nova and placement are in SQLite.

Prints the median of select_destinations with and without, the ratio of the
medians and its spread over blocks of requests; the median share of a request
that passes in the plugin, by a clock around each of its calls, which other
load of the machine disturbs less. Of --at-once requests that start at the same
moment, --repeats times with and without in turn: the median time of
select_destinations with and without and the ratio of these medians; the median
and the interval of 95 % of the ratios of the single repetitions, for the
median request, for the time until all requests have ended, and for the time of
the processor, which other load of the machine does not touch; the time that a
request spends in claims, and the number of misses. Of --threads clients that
ask without a pause, the distribution of the time of a request, and of the time
in it that passes in the plugin. With --resizing, how much longer a
request takes while so many instances await the confirmation of a resize and
each statement of the database takes --query-ms more, in blocks with and
without these instances in turn. Then, each in processes of their own, the time
in which a scheduler is ready and its memory.

    in_place.py --hosts 6 100 1000

--json for a machine.
"""

import argparse
import concurrent.futures
import contextlib
import json
import logging
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import threading
import time
import traceback
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')

from tests.functional import base  # noqa: E402
from tests.integration import servers  # noqa: E402
from tests.integration import store_suite  # noqa: E402

from nova import context as nova_context  # noqa: E402
from nova.db.main import api as database  # noqa: E402
from nova import objects  # noqa: E402
from nova.scheduler.client import report  # noqa: E402
from nova.scheduler import manager  # noqa: E402
from oslo_utils import timeutils  # noqa: E402
from oslo_utils import uuidutils  # noqa: E402
import sqlalchemy as sa  # noqa: E402

from vswitch_aware_scheduler.scheduler import nova_hooks  # noqa: E402

#: What differs from host to host, or is the database's own.
_OWN = ('id', 'uuid', 'host', 'hypervisor_hostname', 'service_id',
        'created_at', 'updated_at', 'deleted_at', 'deleted')

#: Requests whose medians make one ratio.
_BLOCK = 10

#: {value of --store: fixture of its server}
_SERVERS = {'sqlite': None, 'mariadb': servers.MariaDB,
            'postgresql': servers.PostgreSQL}


class InPlace(base.VSwitchTestCase):
    """The cloud, and its two schedulers."""

    HOSTS = ('h1',)
    OPTIONS = {'default_switch_profile': 'ovs-vxlan'}

    def __init__(self, hosts, options):
        super().__init__('runTest')
        self._count = hosts
        self._instances = options.instances
        self._server = _SERVERS[options.store]
        self._patience_seconds = options.patience

    def runTest(self):
        """Nothing: the caller asks."""

    def make_store(self):
        if self._server is not None:
            self.store_url = store_suite.new_database(
                self.useFixture(self._server()))
        super().make_store()

    def setUp(self):
        super().setUp()
        self.flags(service_down_time=10 ** 6)
        self.flags(claim_patience_seconds=self._patience_seconds,
                   group='vswitch_scheduler')
        server = self.boot(self.flavor('small', egress_kbps=100))
        self.context = nova_context.get_admin_context()
        self.spec = objects.RequestSpec.get_by_instance_uuid(
            self.context, server['id'])
        # As a new instance has it, which is not stored.
        self.spec.requested_resources = []
        self.spec.request_level_params = objects.RequestLevelParams()
        self._add_hosts()
        self.placement_client = report.report_client_singleton()
        self.managers = {}
        for name, filters, weighers in (
                ('with', self.FILTERS, self.WEIGHERS),
                ('without', base.NOVA_FILTERS,
                 ['nova.scheduler.weights.all_weighers'])):
            self.flags(enabled_filters=filters, weight_classes=weighers,
                       group='filter_scheduler')
            self.managers[name] = manager.SchedulerManager()
        self.plugin = nova_hooks.current()
        self.addCleanup(self.plugin.stop)
        self._watch()

    def _add_hosts(self):
        cell = self.cell_mappings['cell1']
        with nova_context.target_cell(self.context, cell) as context:
            like = objects.ComputeNode.get_first_node_by_host_for_old_compat(
                context, 'h1')
            for number in range(self._count - 1):
                self._add_host(context, cell, like, f'row{number:05}')

    def _add_host(self, context, cell, like, host):
        service = objects.Service(
            context, host=host, binary='nova-compute', topic='compute',
            report_count=1, disabled=False)
        service.create()
        service.last_seen_up = timeutils.utcnow()
        service.save()
        node = objects.ComputeNode(context)
        for name in like.fields:
            if name not in _OWN and like.obj_attr_is_set(name):
                setattr(node, name, getattr(like, name))
        node.uuid = uuidutils.generate_uuid()
        node.host = node.hypervisor_hostname = host
        node.service_id = service.id
        node.create()
        objects.HostMapping(self.context, host=host,
                            cell_mapping=cell).create()
        provider = f'/resource_providers/{node.uuid}'
        for answer in (
                self.placement.post('/resource_providers', {
                    'uuid': node.uuid, 'name': host}, version='1.20'),
                self.placement.put(provider + '/inventories', {
                    'resource_provider_generation': 0, 'inventories': {
                        'VCPU': {'total': 1000},
                        'MEMORY_MB': {'total': 1000000},
                        'DISK_GB': {'total': 100000}}}, version='1.26'),
                self.placement.put(provider + '/traits', {
                    'resource_provider_generation': 1,
                    'traits': ['OWNER_NOVA']}, version='1.6')):
            if answer.status >= 300:
                raise RuntimeError(f'{answer.status} {answer.body}')
        for _ in range(self._instances):
            objects.Instance(
                context, uuid=uuidutils.generate_uuid(), host=host,
                project_id=self.spec.project_id, user_id='u',
                flavor=self.spec.flavor, vm_state='active').create()

    def _watch(self):
        """Count the seconds that pass in the plugin, of each thread."""
        self._inside = threading.local()
        ours = self.managers['with'].host_manager
        for owner, name in (
                (next(one for one in ours.enabled_filters
                      if type(one).__name__ == 'VSwitchFilter'),
                 'filter_all'),
                (next(one for one in ours.weighers
                      if type(one).__name__ == 'VSwitchWeigher'),
                 'weigh_objects'),
                (self.plugin, 'claim_host'),
                (self.plugin, 'host_consumed'),
                (self.plugin, 'request_started'),
                (self.plugin, 'request_finished')):
            setattr(owner, name, self._timed(name, getattr(owner, name)))

    def _timed(self, name, function):
        def timed(*arguments, **options):
            began = time.perf_counter()
            found = function(*arguments, **options)
            # A generator would do its work later.
            found = list(found) if hasattr(found, '__next__') else found
            seconds = time.perf_counter() - began
            self._inside.seconds += seconds
            if name == 'claim_host':
                self._inside.claiming += seconds
            return found
        return timed

    def ask(self, name):
        """Return (seconds, those in the plugin) of one request."""
        with self._hooks_of(name):
            return self._asked(name)

    def _asked(self, name):
        uuid = uuidutils.generate_uuid()
        seconds = self._select(name, uuid)
        inside = self._inside.seconds
        self._give_back(name, uuid)
        return seconds, inside

    def at_once(self, name, count):
        """Let requests start at the same moment.

        :returns: ([seconds of each request], [of these, in claims], seconds
            until all have ended, seconds of the processor)
        """
        uuids = [uuidutils.generate_uuid() for _ in range(count)]
        started = []
        everyone = threading.Barrier(count, lambda: started.extend(
            (time.perf_counter(), time.process_time())))

        def select(uuid):
            everyone.wait()
            return self._select(name, uuid), self._inside.claiming

        with self._hooks_of(name), \
                concurrent.futures.ThreadPoolExecutor(count) as pool:
            seconds, claiming = zip(*pool.map(select, uuids))
            ended = time.perf_counter(), time.process_time()
            for uuid in uuids:
                self._give_back(name, uuid)
        return seconds, claiming, *(
            end - start for start, end in zip(started, ended))

    def back_to_back(self, name, threads, count):
        """Return [(seconds, those in the plugin)] of clients without pause."""
        with self._hooks_of(name), \
                concurrent.futures.ThreadPoolExecutor(threads) as pool:
            return [one for some in pool.map(
                lambda _: [self._asked(name) for _ in range(count)],
                range(threads)) for one in some]

    def add_resizing(self, count):
        """Add instances whose resize is to be confirmed, on all hosts."""
        cell = self.cell_mappings['cell1']
        hosts = [f'row{number:05}' for number in range(self._count - 1)]
        with nova_context.target_cell(self.context, cell) as context:
            for number in range(count):
                source, dest = (hosts[(number + i) % len(hosts)]
                                for i in range(2))
                one = objects.Instance(
                    context, uuid=uuidutils.generate_uuid(), host=dest,
                    project_id=self.spec.project_id, user_id='u',
                    flavor=self.spec.flavor, vm_state='resized')
                one.create()
                objects.Migration(
                    context, instance_uuid=one.uuid, source_compute=source,
                    dest_compute=dest, status='finished',
                    migration_type='resize').create()

    def set_resizing(self, resizing):
        """Let these await confirmation, or have it."""
        cell = self.cell_mappings['cell1']
        now = timeutils.utcnow()
        with nova_context.target_cell(self.context, cell) as context, \
                database.get_context_manager(
                    context).writer.connection.using(context) as connection:
            connection.execute(sa.text(
                'UPDATE migrations SET status = :to, updated_at = :now '
                'WHERE status = :was'), {
                    'now': now, 'to': 'finished' if resizing else 'confirmed',
                    'was': 'confirmed' if resizing else 'finished'})
        self.plugin._record.refresh()

    @contextlib.contextmanager
    def slow_statements(self, seconds):
        """Let each statement take longer."""
        def wait(*_):
            time.sleep(seconds)

        sa.event.listen(sa.engine.Engine, 'before_cursor_execute', wait)
        try:
            yield
        finally:
            sa.event.remove(sa.engine.Engine, 'before_cursor_execute', wait)

    def _hooks_of(self, name):
        # A scheduler without the plugin has no hooks of it.
        return mock.patch.object(nova_hooks, '_current',
                                 self.plugin if name == 'with' else None)

    def _select(self, name, uuid):
        """Return the seconds of select_destinations for one instance."""
        self._inside.seconds = self._inside.claiming = 0.0
        spec = self.spec.obj_clone()
        spec.instance_uuid = uuid
        began = time.perf_counter()
        self.managers[name].select_destinations(
            self.context, spec_obj=spec, instance_uuids=[uuid],
            return_objects=True, return_alternates=True)
        return time.perf_counter() - began

    def _give_back(self, name, uuid):
        """Give back what a request has claimed."""
        self.placement_client.delete_allocation_for_instance(
            self.context, uuid, force=True)
        if name == 'with':
            with self.plugin._lock:
                for claim in self.plugin._residency.claims:
                    if claim.instance_uuid == uuid:
                        self.plugin._residency.withdraw(uuid, claim.host)


def measure(hosts, options):
    """Return the figures of one size of cloud."""
    cloud = InPlace(hosts, options)
    cloud.setUp()
    try:
        for name in cloud.managers:
            for _ in range(3):
                cloud.ask(name)
        seconds = {name: [] for name in cloud.managers}
        shares = []
        for number in range(options.requests):
            # Neither always follows the other.
            for name in sorted(seconds, reverse=number % 2):
                whole, inside = cloud.ask(name)
                seconds[name].append(whole)
                if name == 'with':
                    shares.append(inside / (whole - inside))
        blocks = [
            statistics.median(seconds['with'][first:first + _BLOCK])
            / statistics.median(seconds['without'][first:first + _BLOCK])
            for first in range(0, options.requests, _BLOCK)]
        at_once = {name: [] for name in seconds}
        counts = cloud.plugin.claims.counts
        before = dict(counts)
        for number in range(options.repeats):
            for name in sorted(at_once, reverse=number % 2):
                at_once[name].append(cloud.at_once(name, options.at_once))
        counts = {name: counts[name] - before[name] for name in (
            'claims_made', 'claim_conflicts', 'claim_misses')}
        back_to_back = {name: cloud.back_to_back(
            name, options.threads, options.requests) for name in seconds}
        resizing = _resizing(cloud, options) if options.resizing else None
    finally:
        cloud.doCleanups()
    medians = {name: statistics.median(spent)
               for name, spent in seconds.items()}
    return {
        'hosts': hosts, 'instances_per_host': options.instances,
        'seconds': medians,
        'ratio': medians['with'] / medians['without'],
        'ratio_of_blocks': [min(blocks), max(blocks)],
        'share': statistics.median(shares),
        'share_quartiles': statistics.quantiles(shares, n=4)[::2],
        'store': options.store,
        'at_once': {
            'requests': options.at_once, **counts, **_at_once(at_once)},
        'back_to_back_ms': {
            name: [_distribution(column) for column in zip(*found)]
            for name, found in back_to_back.items()},
        'resizing_ms': resizing}


def _at_once(found):
    """Return the figures of requests that start at the same moment.

    :param found: {'with' and 'without': results of InPlace.at_once, in turn}
    """
    def all_of(column, name):
        return [seconds for burst in found[name] for seconds in burst[column]]

    def ratios(value):
        return _median_and_interval([
            value(with_) / value(without) for with_, without in zip(
                found['with'], found['without'])])

    medians = {name: statistics.median(all_of(0, name)) for name in found}
    return {
        'seconds': medians,
        'ratio_of_medians': medians['with'] / medians['without'],
        'ratio': ratios(lambda burst: statistics.median(burst[0])),
        'ratio_of_all': ratios(lambda burst: burst[2]),
        'ratio_processor': ratios(lambda burst: burst[3]),
        'claim_ms': _distribution(all_of(1, 'with'))}


def _distribution(seconds):
    ordered = sorted(seconds)
    return {name: 1e3 * ordered[int(share * (len(ordered) - 1))]
            for name, share in (('median', .5), ('p99', .99), ('most', 1))}


def _resizing(cloud, options):
    """Return how many ms more a request takes, by time and processor.

    Each a median and an interval.
    """
    cloud.add_resizing(options.resizing)
    more = []
    for number in range(options.repeats):
        spent = {}
        for resizing in sorted((False, True), reverse=number % 2):
            cloud.set_resizing(resizing)
            with cloud.slow_statements(options.query_ms / 1e3):
                cpu = time.process_time()
                median = statistics.median(
                    cloud.ask('with')[0] for _ in range(5))
                spent[resizing] = median, (time.process_time() - cpu) / 5
        more.append([1e3 * (with_ - without) for with_, without in zip(
            spent[True], spent[False])])
    return [_median_and_interval(column) for column in zip(*more)]


def _median_and_interval(values):
    """Return (median, lowest, highest) with a confidence of 95 %.

    By order statistics: the number of values below the median is binomial.
    """
    ordered, count = sorted(values), len(values)
    cut = 0
    while cut < count // 2 and sum(
            math.comb(count, k) for k in range(cut + 1)) / 2 ** count <= .025:
        cut += 1
    return (statistics.median(ordered), ordered[max(0, cut - 1)],
            ordered[min(count, count + 1 - cut) - 1])


_READY = '''
import os, sys, time
began = time.perf_counter()
os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
from nova import config, objects
import nova.conf
from nova.scheduler import manager
objects.register_all()
nova.conf.CONF([], project='nova', default_config_files=[])
set_ = nova.conf.CONF.set_override
set_('track_instance_changes', False, 'filter_scheduler')
if sys.argv[1] == 'with':
    set_('available_filters', ['nova.scheduler.filters.all_filters',
         'vswitch_aware_scheduler.scheduler.filters.VSwitchFilter'],
         'filter_scheduler')
    set_('enabled_filters', [
         *nova.conf.CONF.filter_scheduler.enabled_filters, 'VSwitchFilter'],
         'filter_scheduler')
    set_('weight_classes', ['nova.scheduler.weights.all_weighers',
         'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'],
         'filter_scheduler')
from nova.scheduler import host_manager
# These ask the database, which there is none of here.
host_manager.HostManager._init_aggregates = lambda self: None
host_manager.HostManager.refresh_cells_caches = lambda self: None
host_manager.HostManager()
with open('/proc/self/status') as stream:
    kilobytes, = [int(line.split()[1]) for line in stream
                  if line.startswith('VmRSS')]
print(time.perf_counter() - began, kilobytes / 1024)
'''


def ready(repeats):
    """Return {'with' and 'without': [seconds, MiB], medians}."""
    found = {'with': [], 'without': []}
    for _ in range(repeats):
        for name, runs in found.items():
            done = subprocess.run(
                [sys.executable, '-W', 'ignore', '-c', _READY, name],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                check=True)
            runs.append(tuple(map(float, done.stdout.split()[-2:])))
    return {name: [statistics.median(column) for column in zip(*runs)]
            for name, runs in found.items() if runs}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--hosts', type=int, nargs='+', default=[6, 100])
    parser.add_argument('--instances', type=int, default=0, metavar='M',
                        help='on each host that is a row (default: 0)')
    parser.add_argument('--requests', type=int, default=30)
    parser.add_argument('--at-once', type=int, default=20)
    parser.add_argument('--store', choices=sorted(_SERVERS),
                        default='sqlite')
    parser.add_argument('--patience', type=float, default=0.3,
                        metavar='SECONDS',
                        help='claim_patience_seconds (default: 0.3)')
    parser.add_argument('--repeats', type=int, default=15)
    parser.add_argument('--starts', type=int, default=5,
                        help='of a scheduler, with and without (default: 5)')
    parser.add_argument('--threads', type=int, default=8)
    parser.add_argument('--resizing', type=int, default=0)
    parser.add_argument('--query-ms', type=float, default=3)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    sizes = [measure(hosts, options) for hosts in options.hosts]
    found = {'ready': ready(options.starts), 'sizes': sizes}
    found['peak_memory_mib'] = resource.getrusage(
        resource.RUSAGE_SELF).ru_maxrss / 1024
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for one in sizes:
        seconds, at_once = one['seconds'], one['at_once']
        low, high = one['ratio_of_blocks']
        print(f'{one["hosts"]} hosts of {one["instances_per_host"]} '
              f'instances: {1e3 * seconds["with"]:.1f} ms with, '
              f'{1e3 * seconds["without"]:.1f} ms without, ratio '
              f'{one["ratio"]:.3f} ({low:.3f} to {high:.3f}); in the plugin '
              f'{one["share"]:.2%} of the rest (quartiles '
              f'{one["share_quartiles"][0]:.2%} and '
              f'{one["share_quartiles"][1]:.2%})')
        claiming = at_once['claim_ms']
        print(f'  {at_once["requests"]} at once, store on {one["store"]}: '
              f'{1e3 * at_once["seconds"]["with"]:.0f} ms with, '
              f'{1e3 * at_once["seconds"]["without"]:.0f} ms without, ratio '
              f'of medians {at_once["ratio_of_medians"]:.3f}; of single '
              'repetitions {:.3f} ({:.3f} to {:.3f}), until all have ended '
              '{:.3f} ({:.3f} to {:.3f}), of the processor {:.3f} ({:.3f} to '
              '{:.3f})'.format(*at_once['ratio'], *at_once['ratio_of_all'],
                               *at_once['ratio_processor']))
        print(f'  claims of a request at once: {claiming["median"]:.1f} ms '
              f'(median), {claiming["p99"]:.1f} (99 %), '
              f'{claiming["most"]:.1f} (most); {at_once["claims_made"]} '
              f'claims, {at_once["claim_conflicts"]} conflicts, '
              f'{at_once["claim_misses"]} misses')
        for name, columns in one['back_to_back_ms'].items():
            for what, ms in zip(('request', 'of it in the plugin'), columns):
                print(f'  {options.threads} threads without pause, {name}: '
                      f'{what} {ms["median"]:.1f} ms (median), '
                      f'{ms["p99"]:.1f} (99 %), {ms["most"]:.1f} (most)')
        if one['resizing_ms']:
            by_time, by_processor = one['resizing_ms']
            print('  {} to be confirmed, {:g} ms a statement: {:+.1f} ms a '
                  'request ({:+.1f} to {:+.1f}), {:+.1f} ms of the processor '
                  '({:+.1f} to {:+.1f})'.format(
                      options.resizing, options.query_ms, *by_time,
                      *by_processor))
    for name, (seconds, mebibytes) in found['ready'].items():
        print(f'scheduler {name}: ready in {seconds:.2f} s, '
              f'{mebibytes:.0f} MiB')
    return 0


if __name__ == '__main__':
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    # The timers of nova's services would keep the process for ever.
    os._exit(code)
