# SPDX-License-Identifier: Apache-2.0
"""What is played on the cloud, one after the other.

Each takes a :class:`Stage` and raises when something is not as it should be;
what it returns is a remark for the table. All flavors have a constant rate,
so that how many instances a host can carry is plain.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from tests.cloud import client as api
from tests.cloud import services
from tests.cloud import telemetry
from tests.unit.budgets import fleet
from vswitch_aware_scheduler import store

#: What each host carries, and an instance of each flavor asks for, kbit/s.
CAPACITY_KBPS = 10_000
RATES_KBPS = {'small': 1_000, 'large': 4_000, 'huge': 20_000}

ALL = []

#: Tables of the store that a scenario leaves empty.
_OF_SCENARIOS = ('budget_state', 'decision', 'error_budget', 'measured_rate',
                 'modeler', 'rebalance_move', 'rebalance_plan', 'stay',
                 'sum_history')


@dataclasses.dataclass
class Stage:
    """What scenarios play on.

    :ivar flavors: {name: flavor}
    :ivar refused: number of requests so far that were to be refused
    """

    cloud: services.Cloud
    client: api.Client
    flavors: dict

    @property
    def hosts(self):
        return self.cloud.openstack.computes

    def boot(self, name, flavor='small', **more):
        """Boot a server, which has to succeed."""
        server = self.client.boot(name, self.flavors[flavor], **more)
        require(server.status == 'ACTIVE', f'{name} is {server.status}: '
                f'{server.fault and server.fault.get("message")}')
        return server

    def boot_many(self, count, at_once, flavor='small'):
        """Return the servers of many requests, some at a time."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(
                lambda number: self.client.boot(
                    f'many-{number}', self.flavors[flavor]), range(count)))

    def set_hosts(self):
        """Give each host its switch and its limit."""
        self.client.set_aggregate(
            'all', self.hosts, profile='ovs-vxlan',
            saturation_kbps=CAPACITY_KBPS, vm_peak_kbps=10_000,
            overload_probability=0, enforcement=None)

    def clear(self):
        """Delete all servers, and wait until nothing counts any of them."""
        self.client.delete_all()
        openstack = self.cloud.openstack
        limit = time.monotonic() + api.TIMEOUT_SECONDS
        while True:
            left = {
                'claims': openstack.total('claims')
                + openstack.total('claims_of_others'),
                'allocations': len(self.cloud.database.rows(
                    'placement', 'SELECT id FROM allocations'))}
            if not any(left.values()):
                left['instances'] = sum(
                    len(uuids) for counted in openstack.reports().values()
                    for uuids in counted.values())
                if not any(left.values()):
                    return
            if time.monotonic() > limit:
                raise TimeoutError(f'left after the deletion: {left}')
            time.sleep(1)

    def restore(self):
        """Leave nothing of a scenario to the next one."""
        openstack = self.cloud.openstack
        for host in self.hosts:
            if openstack.processes[f'compute-{host}'].poll() is not None:
                openstack.start_service(f'compute-{host}')
        compute = self.client.compute
        for service in compute.services(binary='nova-compute'):
            if service.status == 'disabled':
                compute.enable_service(service, service.host, service.binary)
            if service.is_forced_down:
                end_forced_down(compute, service, service.host,
                                api.TIMEOUT_SECONDS)
        self.set_hosts()
        self.clear()
        self.forget()
        self.cloud.configure_modeler()

    def forget(self):
        """Delete what modelers learned, measured, decided and reported."""
        for table in _OF_SCENARIOS:
            self.cloud.store.execute(f'DELETE FROM vswitch.{table}')

    def act(self, server, action, *arguments, states=('ACTIVE',), **more):
        """Do something to a server and return it once that is over."""
        getattr(self.client.compute, action)(server, *arguments, **more)
        time.sleep(1)
        return self.client.settled(server, *states)


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def scenario(function):
    ALL.append(function)
    return function


def room(kbps, hosts):
    """Return how many instances of a constant rate fit on hosts."""
    return CAPACITY_KBPS // kbps * hosts


@scenario
def boot(stage):
    """One boot, and one that no host can carry."""
    server = stage.boot('one')
    refused = stage.client.boot('too-large', stage.flavors['huge'])
    require(refused.status == 'ERROR', f'a server whose peak no switch can '
            f'carry is {refused.status}')
    require('No valid host' in refused.fault['message'],
            refused.fault['message'])
    return f'on {server.compute_host}'


@scenario
def more_at_once_than_fit(stage):
    """Boots from 10 clients, of which 20 find no room: exactly those fail."""
    fit = room(RATES_KBPS['small'], 1)
    places = fit * len(stage.hosts)
    outcome = outcome_of(stage.boot_many(places + 20, 10), fit)
    require((outcome['placed'], outcome['refused']) == (places, 20),
            f'{outcome}; expected {places} placed and 20 refused')
    require(not outcome['over'] and not outcome['failed'], str(outcome))
    return f'{places} placed, 20 refused'


def outcome_of(servers, fit):
    """Return what became of servers that were booted.

    :param servers: list of servers, ACTIVE or ERROR
    :param fit: number of them that a host can carry
    :returns: {'placed': number, 'refused': number, 'over': {host: number of
        servers too many}, 'failed': messages of other failures}
    """
    on_host = collections.Counter(server.compute_host for server in servers
                                  if server.status == 'ACTIVE')
    messages = [(server.fault or {}).get('message', '') for server in servers
                if server.status != 'ACTIVE']
    failed = [message for message in messages
              if 'No valid host' not in message]
    return {'placed': sum(on_host.values()),
            'refused': len(messages) - len(failed),
            'over': {host: count - fit for host, count
                     in sorted(on_host.items()) if count > fit},
            'failed': failed}


@scenario
def multi_create(stage):
    """40 servers in one request."""
    first = stage.client.boot('multi', stage.flavors['small'], wait=False,
                              min_count=40, max_count=40)
    states = [server.status for server in stage.client.all_settled(40)]
    require(states.count('ACTIVE') == 40, f'{states.count("ACTIVE")} of 40 '
            f'are ACTIVE, the first is {stage.client.get(first).status}')


@scenario
def full(stage):
    """As many as fit, and not one more."""
    return fill(stage, room(RATES_KBPS['large'], len(stage.hosts)))


def fill(stage, places):
    """Boot large servers until two are refused, of which ``most`` fit."""
    servers = [stage.client.boot(f'full-{number}', stage.flavors['large'])
               for number in range(places + 2)]
    active = sum(server.status == 'ACTIVE' for server in servers)
    require(active == places, f'{active} are ACTIVE, {places} fit')
    return f'{active} of {len(servers)}'


@scenario
def resize_and_revert(stage):
    """To a larger flavor, and back."""
    server = stage.boot('resized')
    before = server.compute_host
    server = stage.act(server, 'resize_server', stage.flavors['large'].id,
                       states=('VERIFY_RESIZE',))
    server = stage.act(server, 'revert_server_resize')
    require((server.status, server.compute_host) == ('ACTIVE', before),
            f'{server.status} on {server.compute_host}, was on {before}')


@scenario
def resize_on_the_same_host(stage):
    """While no other host takes any; confirmed, and reverted."""
    server = stage.boot('resized')
    host = server.compute_host
    compute = stage.client.compute
    services_ = [service for service in compute.services(binary='nova-compute')
                 if service.host != host]
    for service in services_:
        compute.disable_service(service, service.host, service.binary)
    try:
        for end, flavor in (('confirm', 'large'), ('revert', 'small')):
            server = stage.act(server, 'resize_server',
                               stage.flavors[flavor].id,
                               states=('VERIFY_RESIZE',))
            require((server.status, server.compute_host) == (
                'VERIFY_RESIZE', host),
                f'{server.status} on {server.compute_host}, was on {host}')
            server = stage.act(server, f'{end}_server_resize')
            require(server.status == 'ACTIVE', server.status)
    finally:
        for service in services_:
            compute.enable_service(service, service.host, service.binary)
    return fill(stage, room(RATES_KBPS['large'], len(stage.hosts)) - 1)


@scenario
def cold_migration(stage):
    """To another host that the scheduler chooses, and to one asked for."""
    server = stage.boot('migrated')
    before = server.compute_host
    server = stage.act(server, 'migrate_server', states=('VERIFY_RESIZE',))
    require(server.compute_host != before, f'still on {before}')
    server = stage.act(server, 'confirm_server_resize')
    require(server.status == 'ACTIVE', server.status)
    server = stage.act(server, 'migrate_server', host=before,
                       states=('VERIFY_RESIZE',))
    require(server.compute_host == before, f'on {server.compute_host}, asked '
            f'for {before}')
    server = stage.act(server, 'confirm_server_resize')
    require(server.status == 'ACTIVE', server.status)


@scenario
def live_migration(stage):
    """To a host that the scheduler chooses, and to a forced one."""
    server = stage.boot('moving')
    before = server.compute_host
    server = stage.act(server, 'live_migrate_server', host=None,
                       block_migration='auto')
    require(server.compute_host != before, f'still on {before}')
    other = next(host for host in stage.cloud.openstack.cell_of(before)
                 if host != server.compute_host)
    server = stage.act(server, 'live_migrate_server', host=other,
                       block_migration='auto')
    require(server.compute_host == other, f'on {server.compute_host}, asked '
            f'for {other}')


@scenario
def shelved_again(stage):
    """Off its host, back on one, and off that: it holds room nowhere."""
    server = stage.boot('shelved', 'large')
    for action, status in (('shelve', 'SHELVED_OFFLOADED'),
                           ('unshelve', 'ACTIVE'),
                           ('shelve', 'SHELVED_OFFLOADED')):
        server = stage.act(server, f'{action}_server', states=(status,))
        require(server.status == status, server.status)
    stage.cloud.openstack.await_readings()
    return full(stage)


@scenario
def delete_during_build(stage):
    """A server that is deleted before it is there."""
    openstack, servers = stage.cloud.openstack, 5
    claims = openstack.total('claims_made_total')
    for number in range(servers):
        server = stage.client.boot(f'short-{number}',
                                   stage.flavors['large'], wait=False)
        stage.client.compute.delete_server(server)
    stage.client.delete_all()
    # Nova places a server even if it is deleted meanwhile.
    api.await_fact(lambda: openstack.total('claims_made_total') - claims
                   >= servers, f'claims of {servers} servers')
    # Nova has none of them: their claims end with their requests.
    stage.clear()
    return full(stage)


@contextlib.contextmanager
def failing(stage, *hosts):
    """Let computes fail the first build of each instance."""
    openstack = stage.cloud.openstack
    for host in hosts:
        openstack.restart_compute(host, failing=True)
    try:
        yield
    finally:
        for host in hosts:
            openstack.restart_compute(host)


def tried(stage, server):
    """Return the hosts on which a server was built, in their order."""
    return [row['host'] for row in stage.cloud.openstack.cell_rows(f"""
        SELECT e.host FROM instance_actions_events e
        JOIN instance_actions a ON a.id = e.action_id
        WHERE a.instance_uuid = '{server.id}'
        AND e.event = 'compute__do_build_and_run_instance'
        ORDER BY e.id""")]


@scenario
def rescheduled_build(stage):
    """A build that fails on the first host goes to an alternate."""
    first = stage.hosts[-1]
    for host in stage.hosts[:-1]:
        # What is left is the first choice of each weigher.
        stage.boot(f'on-{host}', availability_zone=f'nova:{host}')
    with failing(stage, first):
        server = stage.boot('rescheduled', 'large')
        hosts = tried(stage, server)
        require(hosts == [first, server.compute_host] and hosts[1] != first,
                f'tried on {hosts}, runs on {server.compute_host}; expected '
                f'{first} and then another one')
    # Neither does it take room on the first host, nor none on the second.
    stage.cloud.openstack.await_readings()
    return (f'on {server.compute_host}; '
            + fill(stage, room(RATES_KBPS['large'], len(stage.hosts)) - 1))


@scenario
def build_that_fails_everywhere(stage):
    """Nothing of it stays when there is no alternate left."""
    with failing(stage, *stage.hosts[:3]):
        for host in stage.hosts[3:]:
            for number in range(2):
                stage.boot(f'on-{host}-{number}', 'large',
                           availability_zone=f'nova:{host}')
        server = stage.client.boot('nowhere', stage.flavors['large'])
        require(server.status == 'ERROR', f'it is {server.status}')
        hosts = tried(stage, server)
        require(sorted(hosts) == stage.hosts[:3], f'tried on {hosts}')
    return fill(stage, room(RATES_KBPS['large'], 3))


@scenario
def aggregates_change(stage):
    """A switch that is said to carry less takes less, at once."""
    stage.client.set_aggregate('all', stage.hosts, saturation_kbps=1_500)
    try:
        servers = [stage.client.boot(f'tight-{number}',
                                     stage.flavors['small'])
                   for number in range(len(stage.hosts) + 1)]
    finally:
        stage.client.set_aggregate('all', stage.hosts,
                                   saturation_kbps=CAPACITY_KBPS)
    active = sum(server.status == 'ACTIVE' for server in servers)
    require(active == len(stage.hosts), f'{active} are ACTIVE, '
            f'{len(stage.hosts)} fit')


@scenario
def scheduler_restarted(stage):
    """A scheduler that starts anew counts who is there."""
    places = room(RATES_KBPS['large'], len(stage.hosts))
    for number in range(places - 1):
        stage.boot(f'before-{number}', 'large')
    openstack = stage.cloud.openstack
    for name in openstack.schedulers:
        openstack.kill(name)
        openstack.start_service(name)
    states = [stage.client.boot(f'after-{number}',
                                stage.flavors['large']).status
              for number in range(3)]
    require(states.count('ACTIVE') == 1, f'of 3 for one place: {states}')


@scenario
def store_stopped(stage):
    """Without our store requests go on, by what is known."""
    store = stage.cloud.store
    return _without_store(stage, store.stop_server, store.start_server)


@scenario
def store_stalled(stage):
    """So they do while it takes connections and does not answer."""
    server = stage.cloud.store.process
    return _without_store(
        stage, lambda: server.send_signal(signal.SIGSTOP),
        lambda: server.send_signal(signal.SIGCONT))


def _without_store(stage, stop, start):
    small, large = RATES_KBPS['small'], RATES_KBPS['large']
    # One for each worker, about.
    boots = stage.cloud.openstack.workers
    on_host = collections.Counter([stage.boot('before').compute_host])
    stop()
    try:
        began = time.monotonic()
        on_host.update(stage.boot(f'without-{number}').compute_host
                       for number in range(boots))
        seconds = (time.monotonic() - began) / boots
    finally:
        start()
    stage.cloud.openstack.await_readings()
    # What was placed meanwhile counts, and the store is used again.
    return f'{seconds:.1f} s a boot without it; ' + fill(stage, sum(
        (CAPACITY_KBPS - on_host[host] * small) // large
        for host in stage.hosts))


@scenario
def store_of_another_version(stage):
    """A newer release has migrated our store: boots go on, said once."""
    openstack, telemetry = stage.cloud.openstack, stage.cloud.telemetry
    telemetry.publish({stage.boot('before').id: 1_000.0})
    _, logged = openstack.complaints()
    version, = stage.cloud.store.rows(
        'vswitch', 'SELECT version_num FROM alembic_version')

    def set_version(text):
        stage.cloud.store.execute('UPDATE vswitch.alembic_version '
                                  f"SET version_num = '{text}'")

    set_version('9999_newer')
    try:
        stage.boot_many(2 * openstack.workers, openstack.workers)
        status, output = telemetry.learn()
        require(status == 1 and 'it was written by a newer release' in output,
                f'the modeler exited with {status}: {output}')
    finally:
        set_version(version['version_num'])
    said = collections.Counter(
        line.split(': ')[0] + line.partition(' vswitch: ')[2]
        for line in openstack.complaints(logged)[0] if '9999_newer' in line)
    # By each worker, about the models and about the claims.
    require(said and max(said.values()) <= openstack.workers // len(
        openstack.schedulers), f'said: {said}')
    learn(stage)
    openstack.await_readings()
    stage.client.delete_all()
    return full(stage)


@scenario
def read_only_root(stage):
    """Schedulers and a modeler run where no file can be written."""
    if os.getuid():
        return 'not played: only root may mount'
    openstack, telemetry = stage.cloud.openstack, stage.cloud.telemetry
    for name in openstack.schedulers:
        openstack.kill(name)
        openstack.start_service(name, read_only=True)
    try:
        remark = full(stage)
        server = stage.client.servers()[0]
        telemetry.publish({server.id: 1_000.0})
        status, output = telemetry.learn(services.READ_ONLY)
        require(status == 0, output)
        await_generation(stage)
        failures = [line for name in openstack.schedulers
                    for line in openstack.log_of(name).splitlines()
                    if 'Read-only file system' in line]
        require(not failures, failures[:1])
        return remark
    finally:
        restart_schedulers(stage)


def learn(stage):
    """Make a pass of the modeler, which has to succeed."""
    status, output = stage.cloud.telemetry.learn()
    require(status == 0, output)
    await_generation(stage)


def await_generation(stage):
    """Wait until the schedulers use what is in the store."""
    row, = stage.cloud.store.rows('vswitch', 'SELECT number FROM generation')
    stage.cloud.openstack.await_generation(row['number'])


@scenario
def learned_traffic(stage):
    """What instances are measured to send counts, not what was stated."""
    hosts = len(stage.hosts)
    servers = [stage.boot(f'quiet-{number}', 'large')
               for number in range(2 * hosts)]
    require(stage.client.boot('before', stage.flavors['large']).status
            == 'ERROR', 'there was room before anything was learned')
    telemetry = stage.cloud.telemetry
    telemetry.publish({server.id: 1_000.0 for server in servers})
    learn(stage)
    # Two of 1 Mbit/s leave room for two of 4 on each host.
    active = sum(stage.client.boot(
        f'more-{number}', stage.flavors['large']).status == 'ACTIVE'
        for number in range(2 * hosts + 1))
    require(active == 2 * hosts, f'{active} more are ACTIVE, {2 * hosts} fit')


@scenario
def telemetry_outage(stage):
    """Without telemetry the models stay, and so does what is decided."""
    telemetry, openstack = stage.cloud.telemetry, stage.cloud.openstack
    telemetry.publish({stage.boot('learned').id: 1_000.0})
    learn(stage)
    _, logged = openstack.complaints()
    telemetry.source.stop()
    try:
        status, output = telemetry.learn()
        require(status == 1, f'the modeler exited with {status}: {output}')
        # It has been so for a day and an hour.
        stage.cloud.store.execute('UPDATE vswitch.generation '
                                  'SET published_at = published_at - 90000')
        remark = full(stage)
        api.await_fact(lambda: any(
            'its last generation is 9' in line
            for line in openstack.complaints(logged)[0]),
            'a scheduler that says that models are old')
    finally:
        telemetry.source.start()
    stage.client.delete_all()
    telemetry.publish({stage.boot('after').id: 1_000.0})
    learn(stage)
    return remark


def restart_schedulers(stage, **options):
    """Restart all schedulers with options in their nova.conf."""
    openstack = stage.cloud.openstack
    openstack.configure_scheduler(**options)
    for name in openstack.schedulers:
        openstack.kill(name)
        openstack.start_service(name)


@scenario
def roll_out(stage):
    """Observe, compare with measured traffic, enforce a rack, enforce all."""
    telemetry = stage.cloud.telemetry
    hot, calm = stage.hosts[:3], stage.hosts[3:]
    stage.client.set_aggregate('all', stage.hosts, overload_probability=.01)
    try:
        restart_schedulers(stage, enforcement='observe',
                           vswitch_weight_multiplier=0)
        remark = _observe(stage, hot, calm)
        _enforce(stage, *hot[:2])
    finally:
        stage.client.set_aggregate('all', stage.hosts, overload_probability=0)
        stage.client.set_aggregate('rack', hot[:1], enforcement=None)
        stage.client.leave_aggregate('rack', hot[0])
        telemetry.configure()
        restart_schedulers(stage)
    # Observed hosts may be above their limit.
    stage.client.delete_all()
    return remark


def _observe(stage, hot, calm):
    """Fill some hosts above their limit; return what measured traffic says."""
    telemetry = stage.cloud.telemetry
    servers = [stage.boot(f'{host}-{number}', 'large',
                          availability_zone=f'nova:{host}')
               for host in hot for number in range(2)]
    # Asked for by name, a host is judged; by zone it is not.
    servers += [stage.boot(f'{host}-last', 'large', host=host)
                for host in hot + calm]
    expected = {**dict.fromkeys(hot, (1, 1)), **dict.fromkeys(calm, (1, 0))}

    def decisions():
        return {row['host']: (row['hosts'], row['observed']) for row in
                _answer(telemetry, 'decision', 'list')['decisions']}

    api.await_fact(lambda: decisions() == expected,
                   lambda: f'{decisions()}; expected {expected}')
    code, details = telemetry.checks()['Options']
    require(code == 1 and 'enforcement' in details, f'options: {details}')
    telemetry.configure(enforcement='observe')
    code, details = telemetry.checks()['Options']
    require(code == 0, f'options: {details}')
    telemetry.publish({server.id: 4_000.0 for server in servers})
    learn(stage)
    remarks = _answer(telemetry, 'decision', 'compare')['remarks']
    require(all('wait for traffic' in remark for remark in remarks),
            f'at once: {remarks}')
    # They were made a day ago.
    stage.cloud.store.execute('UPDATE vswitch.decision '
                              'SET decided_at = decided_at - 86400')
    answer = _answer(telemetry, 'decision', 'compare')
    compared = {row['host']: (row['group'], row['realised'])
                for row in answer['hosts']}
    expected = {**dict.fromkeys(hot, ('refused', 1.0)),
                **dict.fromkeys(calm, ('admitted', 0.0))}
    require(compared == expected, f'{compared}; expected {expected}')
    slots = min(row['slots'] for row in answer['hosts'])
    require(slots > 250, f'measured for {slots} slots')
    require(f'more often than admitted ones: {len(hot)} of {len(hot)} and 0 '
            in answer['remarks'][0], f'later: {answer["remarks"]}')
    return (f'{len(hot)} refused hosts overloaded in all of {slots} slots, '
            f'{len(calm)} admitted ones in none')


def _enforce(stage, first, second):
    """Enforce one full host by its aggregate, and then all."""
    def states(*hosts):
        return [stage.client.boot(f'one-more-{host}', stage.flavors['large'],
                                  host=host).status for host in hosts]

    stage.client.set_aggregate('rack', [first], enforcement='enforce')
    statuses = states(first, second)
    require(statuses == ['ERROR', 'ACTIVE'], f'one aggregate: {statuses}')
    stage.client.set_aggregate('rack', [first], enforcement=None)
    restart_schedulers(stage)
    statuses = states(first, second)
    require(statuses == ['ERROR', 'ERROR'], f'all: {statuses}')


def _answer(telemetry, *words):
    status, output = telemetry.manage(*words, '--json')
    require(status == 0, output)
    return json.loads(output)


@scenario
def rebuild(stage):
    """In place, with no question to the scheduler's filters."""
    server = stage.boot('rebuilt')
    before = server.compute_host
    image = stage.client.image()
    server = stage.act(server, 'rebuild_server', image.id)
    require((server.status, server.compute_host) == ('ACTIVE', before),
            f'{server.status} on {server.compute_host}, was on {before}')


@scenario
def reload_of_the_schedulers(stage):
    """SIGHUP, which Nova takes as the wish to read its options again."""
    stage.boot('before', 'large')
    for name in stage.cloud.openstack.schedulers:
        stage.cloud.openstack.processes[name].send_signal(signal.SIGHUP)
    # No fact shows that a worker has read its options again.
    time.sleep(10)
    # New workers know the aggregates of when their parent started, until
    # Nova tells them of a change.
    stage.client.set_aggregate('all', stage.hosts, reloaded='yes')
    return fill(stage, room(RATES_KBPS['large'], len(stage.hosts)) - 1)


def end_forced_down(compute, service, host, seconds):
    """Take the mark "forced down" off a restarted nova-compute.

    Nova refuses that until the service has settled its evacuations.

    :param compute: proxy of openstacksdk
    :param service: id of the service, or the service
    :param seconds: how long it is tried
    :raises Exception: the last refusal, when the time is over
    """
    limit = time.monotonic() + seconds
    while True:
        try:
            compute.update_service_forced_down(
                service, host, 'nova-compute', False)
            break
        except Exception:
            if time.monotonic() > limit:
                raise
            time.sleep(2)


@scenario
def evacuation(stage):
    """Off a host whose compute was killed."""
    server = stage.boot('evacuated')
    host = server.compute_host
    openstack = stage.cloud.openstack
    openstack.kill(f'compute-{host}')
    compute = stage.client.compute
    service, = [item for item in compute.services(binary='nova-compute')
                if item.host == host]
    compute.update_service_forced_down(service, host, 'nova-compute', True)
    server = stage.act(server, 'evacuate_server')
    # It is active before it has its host.
    api.await_fact(lambda: stage.client.get(server).compute_host != host,
                   f'a host other than {host}')
    openstack.start_service(f'compute-{host}')
    end_forced_down(compute, service, host, api.TIMEOUT_SECONDS)


def _hot_host(stage):
    """Make a host by hand that is in debt; return (servers on it, host).

    Two instances that stated little need 12 of 10 Mbit/s together, a tenth of
    the time. The store has what a modeler would have measured in a day.
    """
    hot = stage.hosts[0]
    servers = [stage.boot(f'hot-{number}', 'small',
                          availability_zone=f'nova:{hot}')
               for number in range(2)]
    slots = 288
    busy = np.where(np.arange(slots) % 10 == 9, 6_000.0, 1_000.0)
    stage.cloud.telemetry.publish_rates(
        {server.id: busy for server in servers})
    stage.cloud.telemetry.configure(rebalance_network='separate')
    # The facts of hosts and aggregates are those of a modeler.
    learn(stage)
    stage.forget()
    target = store.Store(stage.cloud.store_url, 30.0)
    target.write(placements=[store.InstanceRecord(
        server.id, hot, 'small', server.project_id) for server in servers])
    now = time.time() // fleet.PERIOD * fleet.PERIOD
    accounts = [fleet.account(host, -600.0 if host == hot else 100.0, now=now)
                for host in stage.hosts]
    sums = [fleet.sums(host, 2 * busy if host == hot else 0 * busy,
                       CAPACITY_KBPS, now=now) for host in stage.hosts]
    target.settle_budgets(
        store.BudgetState(fleet.PERIOD, now),
        [(None, account) for account in accounts],
        [stored for total in sums for stored in fleet.days_of(total)])
    return servers, hot


def _relieved(stage, servers, hot):
    """Check that one instance has left; return the record of its move."""
    remaining = [server for server in map(stage.client.get, servers)
                 if server.compute_host == hot]
    require(len(remaining) == 1,
            f'{len(remaining)} instances are left on {hot}')
    moves = _answer(stage.cloud.telemetry, 'rebalance', '--history')['moves']
    require([move['state'] for move in moves] == ['done'], f'record: {moves}')
    return moves[0]['reason']


@scenario
def relieved_by_command(stage):
    """vswitch-manage rebalance relieves a hot host, also twice at once."""
    servers, hot = _hot_host(stage)
    plan = _answer(stage.cloud.telemetry, 'rebalance', '--checks', '1')
    require(len(plan['moves']) == 1, f'plan: {plan}')
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ended = sorted(pool.map(
            lambda _: stage.cloud.telemetry.manage(
                'rebalance', '--execute', '--checks', '1'), range(2)))
    # The second one waits for nothing, or has nothing left to do.
    require(ended[0][0] == 0 and (
        ended[1][0] == 0 or 'held by' in ended[1][1]), f'{ended}')
    return _relieved(stage, servers, hot)


@contextlib.contextmanager
def _measured_host(stage):
    """Let a modeler measure a hot host; yields (its servers, host, remark).

    Two instances that stated 1 of 10 Mbit/s need 12 together, a tenth of the
    time. All figures come from the telemetry of the day before.
    """
    telemetry, hot = stage.cloud.telemetry, stage.hosts[0]
    stage.client.set_aggregate('all', stage.hosts, overload_probability=.01)
    try:
        servers = [stage.boot(f'{host}-{number}', 'small',
                              availability_zone=f'nova:{host}')
                   for host in stage.hosts
                   for number in range(2 if host == hot else 1)]
        yield ([server for server in servers
                if server.compute_host == hot], hot,
               _measure(stage, telemetry, servers, hot))
    finally:
        # By what was measured, they are above a limit of 0.
        stage.client.delete_all()
        stage.client.set_aggregate('all', stage.hosts, overload_probability=0)


def _measure(stage, telemetry, servers, hot):
    """Let the modeler measure a day with debt; return the budgets in words."""
    busy = np.where(np.arange(288) % 10 == 9, 6_000.0, 1_000.0)
    telemetry.publish_rates({
        server.id: busy if server.compute_host == hot else 0 * busy + 500.0
        for server in servers})
    telemetry.configure(rebalance_network='separate')
    learn(stage)
    # They were booted, and the budgets began, a day ago.
    stage.cloud.store.execute('UPDATE vswitch.stay SET since = since - 86400')
    stage.cloud.store.execute('UPDATE vswitch.error_budget SET '
                              'since = since - 86400, until = until - 86400')
    learn(stage)
    rows = {row['host']: row for row in _answer(telemetry, 'fleet')['hosts']}
    days = {host: 30 * row['budget_left'] for host, row in rows.items()}
    # It began with one day's worth and has earned another one; 28 of 288
    # periods at least, of 300 s each, were overload: 518 s a day.
    require(days[hot] < -10, f'budgets in days: {days}')
    least_days = min(value for host, value in days.items() if host != hot)
    require(least_days > 1.5, f'budgets in days: {days}')
    return f'budget of {hot}: {days[hot]:.1f} days, others {least_days:.1f}'


@scenario
def relieved_after_measurement(stage):
    """A modeler measures a hot host, and the command relieves it."""
    telemetry = stage.cloud.telemetry
    with _measured_host(stage) as (servers, hot, remark):
        plan = _answer(telemetry, 'rebalance', '--checks', '1')
        require([move['source'] for move in plan['moves']] == [hot],
                f'plan: {plan}')
        require(all(stage.client.get(server).compute_host == hot
                    for server in servers), 'the plan alone has moved one')
        status, output = telemetry.manage('rebalance', '--execute',
                                          '--checks', '1')
        require(status == 0, output)
        _relieved(stage, servers, hot)
        move, = plan['moves']
        return (f'{remark}; to {move["destination"]}: overload '
                f'{move["overload_before"]:.1%} -> '
                f'{move["overload_after"]:.1%}')


def _await_move(stage, modeler, *states):
    """Wait until the only move in the store has one of some states."""
    def is_there():
        require(modeler.poll() is None, 'the modeler has ended')
        of_moves = [row['state'] for row in stage.cloud.store.rows(
            'vswitch', 'SELECT state FROM rebalance_move')]
        require(len(of_moves) <= 1, f'states of moves: {of_moves}')
        return of_moves and of_moves[0] in states

    # The lock of a modeler that was killed expires first.
    api.await_fact(is_there, f'a move that is {" or ".join(states)}', 600)


@scenario
def modeler_killed_in_a_plan(stage):
    """A modeler is killed while an instance migrates; another one goes on."""
    telemetry = stage.cloud.telemetry
    with _measured_host(stage) as (servers, hot, remark):
        telemetry.configure(
            rebalance_network='separate', rebalance_mode='execute',
            rebalance_checks=1, modeler_interval_seconds=10)
        with telemetry.modeler() as killed:
            _await_move(stage, killed, 'begun')
            killed.kill()
        began = time.monotonic()
        with telemetry.modeler() as following:
            _await_move(stage, following, 'done')
            seconds = time.monotonic() - began
            following.terminate()
            require(following.wait(60) == 0,
                    f'exit status {following.returncode}')
        _relieved(stage, servers, hot)
        migrations = stage.client.compute.get(
            '/os-migrations?migration_type=live-migration',
            microversion='2.59').json()['migrations']
        live = [row for row in migrations
                if row['instance_uuid'] in {server.id for server in servers}]
        require([row['status'] for row in live] == ['completed'],
                f'live migrations: {live}')
        return f'{remark}; done {seconds:.0f} s after the death of the first'


def _survey(stage, url, *words, **environment):
    """Run vswitch-manage survey as its reader would; return (status, text).

    :param url: of Prometheus
    :param environment: other variables than those of the administrator
    """
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, '-m', 'vswitch_aware_scheduler.cmd.manage',
             'survey', '--prometheus', url, '--days', '2', *words],
            env={'HOME': home, 'PATH': os.environ['PATH'],
                 'PYTHONPATH': os.environ.get('PYTHONPATH', ''),
                 **{f'OS_{key.upper()}': value for key, value
                    in stage.cloud.openstack.auth.items()}, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=600)
    return done.returncode, done.stdout + done.stderr


def _backdate(stage, server, hours):
    """Let Nova's record say that all about a server was so long ago."""
    for database, name in ((stage.cloud.database, 'nova'),
                           (stage.cloud.cell2, 'cell2')):
        for table, column, times in (
                ('instances', 'uuid',
                 ('created_at', 'updated_at', 'launched_at')),
                ('migrations', 'instance_uuid',
                 ('created_at', 'updated_at'))):
            database.execute(f'UPDATE {name}.{table} SET ' + ', '.join(
                f'{time} = {time} - INTERVAL {hours} HOUR' for time in times)
                + f" WHERE {column} = '{server.id}'")


@scenario
def survey(stage):
    """One command tells an operator what the plugin would have done."""
    hot, cool, other = stage.hosts[:3]
    stage.client.set_aggregate('all', stage.hosts, overload_probability=.01)
    try:
        with telemetry.SOURCES['prometheus']() as prometheus:
            url = prometheus.options['endpoint_override']
            status, text = _survey(stage, url)
            require((status, text.count('\n')) == (6, 1),
                    f'without telemetry: {status}, {text}')
            # What they state fits, what they send does not.
            servers = [stage.boot(name, flavor,
                                  availability_zone=f'nova:{host}')
                       for name, host, flavor in (
                           ('old-1', hot, 'small'), ('old-2', hot, 'small'),
                           ('late', hot, 'large'), ('alone', cool, 'small'),
                           ('moves', other, 'small'))]
            moved = servers[-1]
            stage.act(moved, 'live_migrate_server', cool,
                      block_migration='auto')
            for server, hours in zip(servers, (60, 60, 20, 60, 24)):
                _backdate(stage, server, hours)
            slots = 49 * 12
            rates = dict(zip((server.id for server in servers), (
                4_000.0, 4_000.0, 4_000.0, 1_000.0, 2_000.0)))
            telemetry.Telemetry.publish_to(prometheus, {
                uuid: np.full(slots, kbps) for uuid, kbps in rates.items()})
            status, text = _survey(stage, url)
            require(status == 0, text)
            print(text, file=sys.stderr)
            status, output = _survey(stage, url, '--json')
            require(status == 0, output)
            answer = json.loads(output)
            rows = {row['host']: row for row in answer['hosts']}
            require([host for host, row in rows.items()
                     if row['overloaded']] == [hot], f'overloaded: {rows}')
            outcomes = {row['instance']['name']: row['outcome']
                        for row in answer['decisions']['list']}
            # Nova has the deleted instances of other scenarios, too.
            expected = {'late': 'elsewhere', 'moves': 'same'}
            require(expected.items() <= outcomes.items(),
                    f'decisions: {outcomes}')
            require(answer['decisions']['wrong_refusals'] == 0, output)
            status, output = _survey(stage, url, '--json', '--anonymous')
            named = [name for name in (hot, 'old-1', servers[0].id)
                     if f'"{name}"' in output]
            require(status == 0 and not named, f'named: {named}')
            _survey_fails(stage, url)
        return answer['verdict'][0]
    finally:
        stage.client.delete_all()
        stage.client.set_aggregate('all', stage.hosts, overload_probability=0)


def _survey_fails(stage, url):
    """Check what a survey says to who may not make one."""
    identity = stage.client.connection.identity
    user = identity.create_user(name='tenant', password='tenant',
                                domain_id='default')
    project = identity.find_project('admin')
    role = identity.find_role('member') or identity.create_role(name='member')
    identity.assign_project_role_to_user(project, user, role)
    try:
        for expected, environment in (
                (3, {'OS_AUTH_URL': 'http://127.0.0.1:9/v3'}),
                (4, {'OS_PASSWORD': 'wrong'}),
                (5, {'OS_USERNAME': 'tenant', 'OS_PASSWORD': 'tenant'})):
            status, text = _survey(stage, url, **environment)
            print(text, file=sys.stderr)
            require((status, text.count('\n')) == (expected, 1),
                    f'expected {expected}: {status}, {text}')
        status, text = _survey(stage, 'http://127.0.0.1:9')
        require((status, text.count('\n')) == (6, 1), f'{status}, {text}')
    finally:
        identity.delete_user(user)


@scenario
def relieved_by_watcher(stage):
    """An audit of Watcher proposes a migration, its action plan makes it."""
    servers, hot = _hot_host(stage)
    audit, plan = stage.cloud.watcher.audit(checks=1)
    require(audit['state'] == 'SUCCEEDED', f'audit: {audit}')
    plan, actions = stage.cloud.watcher.execute(plan)
    require(plan['state'] == 'SUCCEEDED', f'action plan: {plan}, {actions}')
    require([row['action_type'] for row in actions] == ['vswitch_migrate'],
            f'actions: {actions}')
    return _relieved(stage, servers, hot)
