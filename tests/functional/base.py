# SPDX-License-Identifier: Apache-2.0
"""Nova's own functional fixtures, with this project's plugin enabled."""

import atexit
from concurrent import futures
import contextlib
import functools
import gc
import logging
import math
import os
import pathlib
import re
import sys
import tempfile
import threading
import time
from unittest import mock

# Decides on native threads for the whole process, so it comes before the rest
# of nova.
import nova.tests.functional  # noqa: F401

import fixtures
from nova.api.openstack import common as nova_common
from nova import context as nova_context
from nova import exception
from nova.scheduler import host_manager
from nova.scheduler import rpcapi as scheduler_rpcapi
from nova.tests.functional.api import client
from nova.tests.functional import integrated_helpers
from oslo_config import cfg
import sqlalchemy

from tests.fakes import clock as fake_clock
from tests.fakes import logs as fake_logs
from tests.fakes import store as fake_store
from tests.functional import databases
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.lab.demo import cell_lock
from vswitch_aware_scheduler.scheduler import nova_hooks
from vswitch_aware_scheduler.scheduler import nova_record
from vswitch_aware_scheduler.scheduler import weights
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model

#: The wheel of nova has it below the prefix, its tests look elsewhere.
_API_PASTE = pathlib.Path(sys.prefix, 'etc/nova/api-paste.ini')

NOVA_FILTERS = ['ComputeFilter', 'ComputeCapabilitiesFilter',
                'ImagePropertiesFilter', 'ServerGroupAntiAffinityFilter',
                'ServerGroupAffinityFilter']
OUR_WEIGHER = 'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'

#: Options of [vswitch_scheduler] with limits that a busy machine keeps.
UNHURRIED = {'record_refresh_seconds': 0.5, 'record_timeout_seconds': 3600,
             'snapshot_first_wait_seconds': 60}

#: Longest wait for anything: this machine may be busy with other things.
TIMEOUT_SECONDS = 300.0

#: Parts of the warnings that tell of a bug of ours. Requests go on without
#: us, so a test would not notice.
_BUGS = ('VSwitchFilter: ', 'VSwitchWeigher: ', 'hook ', "Nova's record: ",
         'record of cell ')


#: How warnings of the deployment begin, see scheduler.worker_report, and those
#: of the threads that write to the store.
_NOT_OF_REQUESTS = tuple(f'vswitch: {topic}: ' for topic in (
    'modeler', 'options', 'plugins', 'traffic models', 'claims',
    'claims of other workers', 'recording of decisions', 'worker report')) + (
        'vswitch: hosts of ',)


_INSTANCE_ROWS = sqlalchemy.text(
    'SELECT host, vm_state, task_state FROM instances'
    ' WHERE :instances IN (uuid, reservation_id)'
    ' AND deleted = 0 AND NOT hidden')


@functools.cache
def api_paste():
    """Return the path of nova's api-paste.ini without API version 2.

    The file is written once in a process. No test calls version 2, which takes
    each test as long to load as version 2.1.
    """
    directory = tempfile.TemporaryDirectory(prefix='vswitch-api-paste-')
    atexit.register(directory.cleanup)
    path = pathlib.Path(directory.name, 'api-paste.ini')
    path.write_text(re.sub(r'^/v2(/\+)?: .*\n', '', _API_PASTE.read_text(),
                           flags=re.MULTILINE))
    return str(path)


def overload_probability(count, share_on, fit):
    """Return P(more than ``fit`` of ``count`` like instances are on)."""
    return sum(math.comb(count, on)
               * share_on ** on * (1 - share_on) ** (count - on)
               for on in range(fit + 1, count + 1))


def most_instances(share_on, fit, limit):
    """Return how many like instances keep the overload within a limit.

    :param fit: how many may be on at once
    """
    count = fit
    while overload_probability(count + 1, share_on, fit) <= limit:
        count += 1
    return count


def make_conf(**options):
    """Return the defaults, with other values for some options of ours."""
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([], default_config_files=[])
    for name, value in options.items():
        conf.set_override(name, value, opts.GROUP)
    return conf


def known_aggregates():
    """Return a fixture: the scheduler has an aggregate when the API answers.

    Nova only sends a change to the schedulers. A request that follows at once
    may be judged without it, and of two changes the first may arrive last.
    """
    def update(api, context, aggregates):
        api.client.prepare(version='4.1').call(
            context, 'update_aggregates', aggregates=aggregates)

    return fixtures.MockPatchObject(
        scheduler_rpcapi.SchedulerAPI, 'update_aggregates', update)


class LogRecords(fake_logs.LogRecords):
    """What this project logged since the last look."""

    @property
    def warnings(self):
        """The messages of level warning and above.

        Without what a worker says of the deployment, because these clouds have
        no modeler and few have models, and without what depends on the moment
        at which a background thread writes to the store.
        """
        return [text for text in self.messages(logging.WARNING)
                if not text.startswith(_NOT_OF_REQUESTS)]

    def lines(self, *parts):
        """Return the messages that contain all of these texts."""
        return [text for text in self.messages()
                if all(part in text for part in parts)]


@functools.cache
def _freeze():
    """Let the garbage collector pass over what was imported."""
    gc.freeze()


class Requests:
    """What a test case of a cloud asks of Nova, and what it waits for.

    Mixin of a test case of Nova with ``admin_api`` and ``scheduler_service``.
    """

    #: {host: cell}, those that are not in the first cell.
    CELLS = {}
    TRACK_INSTANCE_CHANGES = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.clock = fake_clock.RunningClock()
        self.aggregates, self._flavors = {}, {}

    def find_plugin(self):
        """Set what the plugin of a scheduler that begins has."""
        self.plugin = nova_hooks.current()
        self.plugin._clock = self.clock
        self.plugin._monotonic = self.clock.monotonic
        self.addCleanup(self.plugin.stop)

    # Waiting, instead of nova's own waits of five seconds.

    def hours_pass(self, hours=5):
        """Put the clock of the scheduler forward."""
        self.clock.ahead += 3600 * hours

    def wait_for(self, function, what):
        """Return what a function returns once that is true.

        :param what: what is waited for in words, or a function that tells
        """
        end = time.monotonic() + TIMEOUT_SECONDS
        while True:
            result = function()
            if result:
                return result
            if time.monotonic() > end:
                self.fail(f'waited {TIMEOUT_SECONDS:g} s for '
                          f'{what() if callable(what) else what}')
            time.sleep(0.03)

    @contextlib.contextmanager
    def held(self, owner, name):
        """Hold all calls of a method until the second event is set.

        Yields two events: a call is held; calls go on, as they do at the end.
        """
        called, go_on = threading.Event(), threading.Event()
        method = getattr(owner, name)

        def wait(*args, **kwargs):
            called.set()
            go_on.wait(TIMEOUT_SECONDS)
            return method(*args, **kwargs)

        with mock.patch.object(owner, name, wait):
            try:
                yield called, go_on
            finally:
                go_on.set()

    @functools.cached_property
    def _cell_engines(self):
        engines = []
        context = nova_context.get_admin_context()
        for mapping in self.cell_mappings.values():
            with nova_context.target_cell(context, mapping) as in_cell:
                engines.append(in_cell.db_connection.reader.get_engine())
        return engines

    def _instance_rows(self, instances):
        """Return the rows of instances in the databases of Nova's cells.

        A request to the API costs fifty times as much: the threads of Nova
        that a test waits for would wait for the processor.

        :param instances: uuid of an instance, or the id of a reservation
        :returns: list of rows with host, vm_state and task_state; none before
            an instance is scheduled and after its deletion
        """
        rows = []
        for engine in self._cell_engines:
            with engine.connect() as connection:
                rows += connection.execute(
                    _INSTANCE_ROWS, {'instances': instances}).all()
        return rows

    def _statuses(self, instances):
        """Return the status of each instance, as the API names it."""
        return [nova_common.status_from_state(row.vm_state, row.task_state)
                for row in self._instance_rows(instances)]

    def _wait_for_server_parameter(self, server, expected_params,
                                   max_retries=None, api=None,
                                   wait_for_fault_key=True):
        last_seen = {}
        status = expected_params.get('status')
        ends = {status, 'ACTIVE', 'ERROR'} if status in (
            'ACTIVE', 'ERROR') else {status}

        def reached():
            if status is not None and ends.isdisjoint(
                    self._statuses(server['id'])):
                return False
            last_seen.update(self.admin_api.get_server(server['id']))
            self._fail_early(last_seen, status)
            return all(last_seen[key] == value for key, value
                       in expected_params.items()) and (
                           'fault' in last_seen or status != 'ERROR'
                           or not wait_for_fault_key)

        self.wait_for(reached, lambda: f'{expected_params}, seen {last_seen}')
        return last_seen

    def _fail_early(self, server, expected_state):
        # A server that is built does not fail any more, nor the other way.
        if {server['status'], expected_state} == {'ACTIVE', 'ERROR'}:
            self.fail(
                f'server {server["id"]}: {server["status"]} on '
                f'{server["OS-EXT-SRV-ATTR:host"]}; expected {expected_state}'
                f': {server.get("fault", {}).get("message")}')

    def _wait_for_migration_status(self, server, expected_statuses):
        statuses = {status.lower() for status in expected_statuses}
        migrations = []

        def reached():
            migrations[:] = [
                migration for migration in self.admin_api.api_get(
                    '/os-migrations').body['migrations']
                if migration['instance_uuid'] == server['id']]
            # The newest comes first.
            newest = migrations[0] if migrations else None
            return newest and newest['status'].lower() in statuses and newest

        return self.wait_for(reached, lambda: f'{statuses}, seen {migrations}')

    def _wait_until_deleted(self, server):
        def gone():
            if self._instance_rows(server['id']):
                return False
            try:
                self.admin_api.get_server(server['id'])
            except client.OpenStackApiNotFoundException:
                return True
            return False

        self.wait_for(gone, f'the end of server {server["id"]}')

    def _wait_for_instance_action_event(self, server, action_name,
                                        event_name, event_result):
        def event():
            # The newest comes first.
            for action in [
                    item for item in self.admin_api.get_instance_actions(
                        server['id']) if item['action'] == action_name][:1]:
                for event_ in self.admin_api.get_instance_action_details(
                        server['id'], action['request_id'])['events']:
                    if event_['event'] == event_name and (
                            event_['result'] or '').lower() == event_result:
                        return event_
            return None

        return self.wait_for(event, f'{event_name} of {action_name}')

    # What a host can carry.

    def aggregate(self, name, *hosts, **metadata):
        """Make an aggregate of hosts, with metadata; return its id."""
        made = self.admin_api.post_aggregate({'aggregate': {'name': name}})
        for host in hosts:
            self.admin_api.add_host_to_aggregate(made['id'], host)
        self.set_metadata(made['id'], **metadata)
        return made['id']

    def set_metadata(self, aggregate_id, **metadata):
        """Set ``vswitch:`` metadata, or remove what is None."""
        if metadata:
            self.admin_api.post_aggregate_action(aggregate_id, {
                'set_metadata': {'metadata': {
                    (key if key.endswith('_multiplier')
                     else f'vswitch:{key}'):
                    None if value is None else str(value)
                    for key, value in metadata.items()}}})

    def remove_from_aggregate(self, aggregate_id, host):
        """Remove a host from an aggregate."""
        self.admin_api.post_aggregate_action(
            aggregate_id, {'remove_host': {'host': host}})

    def describe_host(self, host, **metadata):
        """Set the ``vswitch:`` metadata of a host's own aggregate."""
        if host not in self.aggregates:
            self.aggregates[host] = self.aggregate(host, host)
        self.set_metadata(self.aggregates[host], **metadata)

    def describe_hosts(self, *saturations_kbps):
        """Give the hosts, in order, a saturation of so many kbit/s."""
        for host, saturation in zip(self.HOSTS, saturations_kbps):
            self.describe_host(host, saturation_kbps=saturation)

    # What an instance demands.

    def flavor(self, name, **extra_specs):
        """Return the id of a new flavor with ``vswitch:`` extra specs."""
        return self._create_flavor(
            name=name, vcpu=1, memory_mb=64, disk=1, ephemeral=0,
            extra_spec={f'vswitch:{key}': str(value)
                        for key, value in extra_specs.items()})

    def on_off_flavor(self, name, egress_kbps, share_on):
        """Return the id of a flavor that is on for a share of the time."""
        return self.flavor(name, egress_kbps=egress_kbps,
                           on_seconds=round(1000 * share_on),
                           off_seconds=round(1000 * (1 - share_on)))

    def of(self, kbps):
        """Return the id of the flavor that always demands so much egress."""
        if kbps not in self._flavors:
            self._flavors[kbps] = self.flavor(f'f{kbps}', egress_kbps=kbps)
        return self._flavors[kbps]

    def room(self, host, kbps):
        """Assert that a host has room for this demand and no more."""
        if kbps:
            self.delete(self.boot(self.of(kbps), host, host=host))
        self.boot_refused(self.of(kbps + 1), host=host)

    # What is known.

    def learn(self, *instance_uuids, **rates):
        """Store a model for instances and let the scheduler see it.

        :param rates: as of TrafficModel.constant, or of on_off
        """
        kind = (model.TrafficModel.on_off if 'on_seconds' in rates
                else model.TrafficModel.constant)
        self.store.write(models=[
            store.StoredModel(uuid, kind(**rates), source='test')
            for uuid in instance_uuids])
        self.plugin.refresh()

    @contextlib.contextmanager
    def weighed(self):
        """Collect what the weigher returns meanwhile: a list for a request."""
        answers = []
        weigh = weights.VSwitchWeigher.weigh_objects

        def weigh_objects(*args):
            answers.append(weigh(*args))
            return answers[-1]

        with mock.patch.object(weights.VSwitchWeigher, 'weigh_objects',
                               weigh_objects):
            yield answers

    # Requests.

    def _request(self, flavor_id, group=None, networks='none', **kwargs):
        body = {'server': self._build_server(
            flavor_id=flavor_id, networks=networks,
            image_uuid='155d900f-4e14-4e4c-a73d-069cbf4541e6', **kwargs)}
        if group is not None:
            body['os:scheduler_hints'] = {'group': group}
        return body

    def post(self, flavor_id, **kwargs):
        """Ask for an instance and return its server, still BUILD.

        :param kwargs: ``host`` for a requested destination, ``az``, ``name``,
            ``networks``, and ``group`` for the uuid of a server group
        """
        return self.admin_api.post_server(self._request(flavor_id, **kwargs))

    def boot(self, flavor_id, expected_host=None, **kwargs):
        """Boot an instance and return its server, ACTIVE and reported."""
        server = self._wait_for_state_change(
            self.post(flavor_id, **kwargs), 'ACTIVE')
        if expected_host is not None:
            self.assertEqual(expected_host, self.host_of(server))
        return self.reported(server)

    def boot_refused(self, flavor_id, **kwargs):
        """Boot an instance and expect that no host takes it."""
        server = self._wait_for_state_change(
            self.post(flavor_id, **kwargs), 'ERROR')
        self.assertIn('No valid host', server['fault']['message'])
        self._delete_server(server)

    def boot_many(self, flavor_id, count, expected_state='ACTIVE', **kwargs):
        """Boot so many in one request; return their servers."""
        body = self._request(flavor_id, **kwargs)
        body['server'].update(min_count=count, max_count=count,
                              return_reservation_id=True)
        reservation_id = self.admin_api.post_server(body)['reservation_id']

        def all_there():
            statuses = self._statuses(reservation_id)
            if len(statuses) < count or not {'ACTIVE', 'ERROR'}.issuperset(
                    statuses):
                return False
            servers = self.admin_api.get_servers(
                detail=True, search_opts={'reservation_id': reservation_id})
            for server in servers:
                self._fail_early(server, expected_state)
            return len(servers) == count and all(
                server['status'] == expected_state for server in servers
            ) and servers

        servers = self.wait_for(
            all_there, f'{count} servers to be {expected_state}')
        if expected_state == 'ACTIVE':
            self.reported(*servers)
        return servers

    def boot_many_refused(self, flavor_id, count, **kwargs):
        """Boot so many in one request and expect that not all fit."""
        servers = self.boot_many(flavor_id, count, 'ERROR', **kwargs)
        for server in servers:
            self.admin_api.delete_server(server['id'])
        for server in servers:
            self._wait_until_deleted(server)

    def move_refused(self, server, name, **body):
        """Resize or migrate a server and expect that no host takes it.

        :param name: of the action in the API
        """
        before = self.host_of(server)
        self.action(server, name, **body)
        action, event = {
            'os-migrateLive': ('live-migration',
                               'conductor_live_migrate_instance'),
            'migrate': ('migrate', 'conductor_migrate_server'),
            'resize': ('resize', 'conductor_migrate_server')}[name]
        event_row = self._wait_for_instance_action_event(
            server, action, event, 'error')
        self.assertIn('NoValidHost', event_row['traceback'])
        self._wait_for_server_parameter(server, {
            'status': 'ACTIVE', 'OS-EXT-STS:task_state': None})
        self.assertEqual(before, self.host_of(server))

    #: Of actions whose body is not null.
    _BODIES = {'evacuate': {},
               'os-migrateLive': {'host': None, 'block_migration': 'auto'}}

    def action(self, server, name, **body):
        """Call an action of a server."""
        defaults = self._BODIES.get(name)
        return self.admin_api.post_server_action(
            server['id'], {name: {**(defaults or {}), **body} or defaults})

    def resize(self, server, flavor_id):
        """Resize a server, wait until it is to be confirmed; return it."""
        self.action(server, 'resize', flavorRef=flavor_id)
        return self.reported(
            self._wait_for_state_change(server, 'VERIFY_RESIZE'))

    def confirm(self, server):
        """Confirm a resize or cold migration."""
        return self._end_resize(server, 'confirmResize', 'confirmed')

    def revert(self, server):
        """Revert a resize or cold migration."""
        return self._end_resize(server, 'revertResize', 'reverted')

    def _end_resize(self, server, action, status):
        self.action(server, action)
        self._wait_for_migration_status(server, [status])
        server = self._wait_for_state_change(server, 'ACTIVE')
        self.read_record()
        return server

    def migrate(self, server, host=None):
        """Cold migrate a server, wait until it is to be confirmed."""
        self.action(server, 'migrate', host=host)
        return self.reported(
            self._wait_for_state_change(server, 'VERIFY_RESIZE'))

    def live_migrate(self, server, host=None):
        """Live migrate a server and return it."""
        before = self.host_of(server)
        self.action(server, 'os-migrateLive', host=host)
        self.wait_for(lambda: self.host_of(server) != before,
                      f'server {server["id"]} to have left {before}')
        # An earlier migration of the server has ended, too.
        self.wait_for(lambda: all(
            migration['status'] in nova_record.ENDED
            for migration in self.admin_api.api_get('/os-migrations').body[
                'migrations'] if migration['instance_uuid'] == server['id']),
            f'the migration of server {server["id"]} to end')
        server = self._wait_for_state_change(server, 'ACTIVE')
        self.read_record()
        return server

    def set_service(self, host, **changes):
        """Change the compute service of a host, as the API names it."""
        service, = self.admin_api.get_services(
            host=host, binary='nova-compute')
        self.admin_api.put_service(service['id'], changes)

    def evacuate(self, server):
        """Evacuate a server from its host, which is up again afterwards."""
        host = self.host_of(server)
        self.computes[host].stop()
        self.set_service(host, forced_down=True)
        self._evacuate_server(server, expected_state='SHUTOFF')
        self.computes[host].start()
        self.set_service(host, forced_down=False)
        self.read_record()

    def delete(self, *servers):
        """Delete servers and wait until their hosts have said so."""
        for server in servers:
            self.admin_api.delete_server(server['id'])
        for server in servers:
            self._wait_until_deleted(server)
            self.wait_for(
                lambda uuid=server['id']: not self._lists(uuid),
                f'no host to list server {server["id"]}')
        self.read_record()

    def delete_without_reading(self, server):
        """Delete a server; the record is read when that is due."""
        self.admin_api.delete_server(server['id'])
        self._wait_until_deleted(server)

    # Who is where.

    def host_of(self, server):
        """Return the host that nova says a server is on."""
        rows = self._instance_rows(server['id'])
        self.assertEqual(1, len(rows), f'cells with server {server["id"]}')
        return rows[0].host

    def hosts_of(self, servers):
        """Return {host: number of servers there}."""
        counts = {}
        for server in servers:
            host = self.host_of(server)
            counts[host] = counts.get(host, 0) + 1
        return counts

    def residents(self, host):
        """Return the uuids that our plugin counts on a host."""
        with self.plugin._lock:
            return set(self.plugin._residency.residents(host))

    def decisions(self):
        """Return the decisions in the store, oldest first."""
        # Its thread would have some in hand that are not written yet.
        self.plugin.decisions.stop()
        self.plugin.decisions.step()
        return self.store.decisions()[::-1]

    # What hosts report to the scheduler.

    @property
    def _nova_view(self):
        return self.scheduler_service.manager.host_manager._instance_info

    def _lists(self, uuid, host=None):
        """Whether nova's scheduler lists an instance on a host, or any."""
        return any(uuid in info['instances']
                   for name, info in list(self._nova_view.items())
                   if host in (None, name))

    def read_record(self):
        """Let the scheduler read Nova's record, as it does all the time.

        What goes wrong with that is for the thread to tell.
        """
        self.plugin._ensure_ready()
        with contextlib.suppress(exception.CellTimeout):
            self.plugin._record.refresh()

    def reported(self, *servers):
        """Wait until the scheduler lists servers where they are.

        :returns: the first of them
        """
        self.read_record()
        if self.TRACK_INSTANCE_CHANGES and not self._unheard:
            for server in servers:
                host = self.host_of(server)
                self.wait_for(lambda: self._lists(server['id'], host),
                              f'{host} to report server {server["id"]}')
        return servers[0]

    _unheard = False

    @contextlib.contextmanager
    def reports_lost(self):
        """Let the scheduler hear nothing of what computes report."""
        with contextlib.ExitStack() as stack:
            for name in ('update_instance_info', 'delete_instance_info',
                         'sync_instance_info'):
                stack.enter_context(mock.patch.object(
                    host_manager.HostManager, name, autospec=True))
            self._unheard = True
            try:
                yield
            finally:
                self._unheard = False

    def sync_reports(self, hosts=None):
        """Let every compute report what it has, as it does now and then.

        :param hosts: {uuid of a server: its host}, of all servers; None to
            ask Nova
        """
        if not self.TRACK_INSTANCE_CHANGES:
            return
        context = nova_context.get_admin_context()
        uuids = {host: set() for host in self.computes}
        if hosts is None:
            hosts = {server['id']: server['OS-EXT-SRV-ATTR:host'] for server
                     in self.admin_api.get_servers(detail=True)}
        for uuid, host in hosts.items():
            uuids.get(host, set()).add(uuid)

        def in_step():
            late = [host for host in uuids
                    if not self._nova_view.get(host, {}).get('updated')
                    or set(self._nova_view[host]['instances']) != uuids[host]]
            # The first report of a host, and one that shows a difference,
            # only make nova ask the database.
            for host in late:
                with nova_context.target_cell(context, self.cell_mappings[
                        self.CELLS.get(host, 'cell1')]) as in_cell:
                    self.computes[host].manager._sync_scheduler_instance_info(
                        in_cell)
            return not late

        self.wait_for(in_step, 'every host to have reported')

    def restart_scheduler(self):
        """Let the scheduler forget all, as a new process would."""
        self.plugin.stop()
        nova_hooks.reset()
        self.scheduler_service.manager.host_manager = \
            host_manager.HostManager()
        self.find_plugin()
        self.plugin._ensure_ready()
        # What others have placed lately; the record ends what is old.
        self.plugin.claims.step()
        self.read_record()
        self.sync_reports()

    # Several requests at once.

    def in_parallel(self, functions):
        """Call functions in threads of their own; return their results."""
        with futures.ThreadPoolExecutor(len(functions)) as pool:
            return list(pool.map(lambda function: function(), functions,
                                 timeout=TIMEOUT_SECONDS))


class VSwitchTestCase(Requests, integrated_helpers.ProviderUsageBaseTestCase):
    """A cloud of fake computes that only their virtual switch can fill.

    The plugin is enabled as the manual says: by options of nova.conf.
    """

    compute_driver = 'fake.FakeDriver'
    HOSTS = ('host1', 'host2', 'host3')
    #: Of [vswitch_scheduler].
    OPTIONS = {}
    AVAILABLE_FILTERS = [
        'nova.scheduler.filters.all_filters',
        'vswitch_aware_scheduler.scheduler.filters.VSwitchFilter']
    FILTERS = NOVA_FILTERS + ['VSwitchFilter']
    WEIGHERS = ['nova.scheduler.weights.all_weighers', OUR_WEIGHER]
    #: Whether there is a store when the services start.
    WITH_STORE = True

    def setUp(self):
        # Threads of an earlier test end when their pools are freed.
        gc.collect()
        _freeze()
        # One that is left over would read the databases of this test.
        self.wait_for(lambda: not self._threads(),
                      lambda: f'threads of an earlier test: {self._threads()}')
        self.store_path = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'vswitch.sqlite')
        self.store_url = f'sqlite:///{self.store_path}'
        if self.WITH_STORE:
            self.make_store()
        self.useFixture(cell_lock.fixture())
        self.useFixture(databases.PooledSqlite())
        self.useFixture(databases.CompiledOnce())
        self.useFixture(known_aggregates())
        self.log = LogRecords()
        logger = logging.getLogger('vswitch_aware_scheduler')
        logger.addHandler(self.log)
        self.addCleanup(logger.removeHandler, self.log)
        self.bugs_expected = False
        self.flags(api_paste_config=api_paste(), group='wsgi')
        # That Nova answers as its own schemas say is for Nova's tests.
        self.flags(response_validation='ignore', group='api')
        self.flags(
            available_filters=self.AVAILABLE_FILTERS,
            enabled_filters=self.FILTERS,
            weight_classes=self.WEIGHERS,
            track_instance_changes=self.TRACK_INSTANCE_CHANGES,
            group='filter_scheduler')
        # The store is looked at when a test says so.
        # Tests compute which probability is exactly within the limit.
        self.flags(group='vswitch_scheduler', **{
            'store_url': self.store_url, 'snapshot_refresh_seconds': 3600,
            'prediction_margin': 1.0, **UNHURRIED, **self.OPTIONS})
        # A stopped service never answers. A caller waits for the last of
        # these times, and the end of the test waits for the caller.
        self.flags(allow_resize_to_same_host=True, service_down_time=3600,
                   long_rpc_timeout=int(TIMEOUT_SECONDS))
        self.flags(instances=-1, cores=-1, ram=-1, group='quota')
        nova_hooks.reset()
        super().setUp()
        # Idle threads of Nova's pools look for their end less often.
        self.useFixture(fixtures.MonkeyPatch(
            'futurist._thread.ThreadWorker.MAX_IDLE_FOR', 0.05))
        self.addCleanup(self._check_for_bugs)
        self.find_plugin()
        for host in self.HOSTS:
            self._start_compute(host, self.CELLS.get(host))
        if self.TRACK_INSTANCE_CHANGES:
            # Until a host has reported once, nova asks the database.
            self.sync_reports({})
        self.log.clear()

    def _threads(self):
        return [thread.name for thread in threading.enumerate()
                if thread.name.startswith('vswitch')]

    def _check_for_bugs(self):
        if not self.bugs_expected:
            self.assertEqual([], [
                text for text in self.log.warnings
                if any(bug in text for bug in _BUGS)])

    def make_store(self):
        """Make a new, empty store where the options say it is."""
        fake_store.make_empty(self.store_url)
        self.store = store.Store(self.store_url)
        self.store.write()
