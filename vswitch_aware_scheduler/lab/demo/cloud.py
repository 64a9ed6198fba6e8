# SPDX-License-Identifier: Apache-2.0
"""Nova in one process: API, conductor, scheduler, placement, fake computes.

It uses nova's own functional fixtures: SQLite in memory, messages in memory,
the fake driver. The demo runs it as ``python -m
vswitch_aware_scheduler.lab.demo.cloud JOB`` in a separate process, because the
fixtures change a process permanently. JOB is a JSON file. The answer goes to
standard output, one JSON object per line, see :func:`main`.
"""

import json
import logging
import os
import sys
import time
import unittest

# Imported before nova's fixtures forbid what numpy does during its import.
import numpy  # noqa: F401

# This import selects native threads for the whole process and has to precede
# the rest of nova.
import nova.tests.functional  # noqa: F401

import fixtures
from nova import config
from nova import context as nova_context
from nova import objects
from nova.tests.functional import integrated_helpers
from nova.virt import fake

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.lab.demo import cell_lock
from vswitch_aware_scheduler.lab.demo import rebalancing
from vswitch_aware_scheduler import store

#: Any image that nova's fixture of Glance has.
IMAGE = '155d900f-4e14-4e4c-a73d-069cbf4541e6'

#: Root disk of every VM, because traces do not state it.
DISK_GB = 20

_FILTER_LOG = 'vswitch_aware_scheduler.scheduler.filters'


class CloudError(Exception):
    """Nova did not do what was requested."""


class _Refusals(logging.Handler):
    """Stores why VSwitchFilter refused a host, by instance."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.reasons = {}        # uuid -> {host: why}

    def emit(self, record):
        args = record.args if isinstance(record.args, dict) else {}
        if 'uuid' in args and 'why' in args:
            host = getattr(args.get('host_state'), 'host', '?')
            self.reasons.setdefault(args['uuid'], {})[host] = args['why']


class _Warnings(logging.Handler):
    """Stores the warnings of our plugin."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        if record.name.startswith('vswitch_aware_scheduler'):
            self.messages.append(record.getMessage())


class FakeCloud(integrated_helpers.ProviderUsageBaseTestCase):
    """One cloud, which places one list of VMs.

    :param end: callable(message, status), sends a message and ends the process
    """

    compute_driver = 'fake.FakeDriver'

    def __init__(self, job: dict, send, end) -> None:
        super().__init__('place')
        self._job = job
        self._send = send
        self._end = end

    def setUp(self) -> None:
        # The whole configuration comes from the file, as in a real cloud. The
        # fixtures only set defaults and the databases.
        parse_args = config.parse_args
        conf_file = self._job['nova_conf']
        self.useFixture(fixtures.MonkeyPatch(
            'nova.config.parse_args',
            lambda argv, default_config_files=None, **kwargs: parse_args(
                argv, default_config_files=[conf_file], **kwargs)))
        for name in ('vcpus', 'memory_mb', 'local_gb'):
            self.useFixture(fixtures.MockPatchObject(
                fake.FakeDriver, name, self._job['host'][name]))
        self.useFixture(cell_lock.fixture())
        super().setUp()
        # In nova's fixtures, idle threads check for work a hundred times a
        # second, to stop quickly. Each boot leaves some of these threads.
        self.useFixture(fixtures.MonkeyPatch(
            'futurist._thread.ThreadWorker.MAX_IDLE_FOR', 10))
        # For drivers that move resources between providers, a compute reads
        # the allocations of all its instances at each boot. This would take a
        # third of the time, and the fake driver moves none.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.scheduler.client.report.SchedulerReportClient.'
            'get_allocations_for_provider_tree', lambda *args: {}))
        # Debug messages of nova, even unseen ones, cost a third of the time.
        root = logging.getLogger()
        root.setLevel(logging.INFO)
        log = logging.FileHandler(self._job['log'])
        log.setLevel(logging.INFO)
        log.setFormatter(logging.Formatter(
            '%(asctime)s %(levelname)s %(name)s %(message)s'))
        self._refusals, self._warnings = _Refusals(), _Warnings()
        for handler in (log, self._warnings):
            root.addHandler(handler)
            self.addCleanup(root.removeHandler, handler)
        filter_log = logging.getLogger(_FILTER_LOG)
        filter_log.setLevel(logging.DEBUG)
        filter_log.addHandler(self._refusals)
        filter_log.propagate = False

    def place(self) -> None:
        """Start the computes, boot the VMs in turn and return the result."""
        job, api = self._job, self.admin_api
        total = len(job['hosts']) + len(job['vms'])
        for done, (host, _) in enumerate(job['hosts'], 1):
            self._start_compute(host=host)
            self._send({'done': done, 'total': total})
        self._describe_switches()
        events = self.notifier.fake_versioned_notifier.versioned_notifications
        began = time.monotonic()
        context = nova_context.get_admin_context()
        servers = {}             # nova's uuid -> uuid in the trace
        for done, vm in enumerate(job['vms'], 1 + len(job['hosts'])):
            # Creating the flavor by two requests to the API for each VM would
            # take a sixth of the time.
            objects.Flavor(
                context, flavorid=vm['uuid'], name=f'trace-{vm["name"]}',
                vcpus=vm['vcpus'], memory_mb=vm['memory_mb'],
                root_gb=DISK_GB, ephemeral_gb=0, swap=0, rxtx_factor=1.0,
                disabled=False, is_public=True,
                extra_specs={'vswitch:model': vm['uuid']}).create()
            server = api.post_server({'server': {
                'name': f'vm-{vm["name"]}', 'flavorRef': vm['uuid'],
                'imageRef': IMAGE, 'networks': 'none'}})
            servers[server['id']] = vm['uuid']
            self._wait(events, server['id'])
            events.clear()
            self._send({'done': done, 'total': total})
        seconds = time.monotonic() - began
        answer = {**self._placed(servers),
                  'seconds_per_boot': seconds / max(1, len(servers))}
        if job.get('rebalancing') is not None:
            answer['rebalancing'] = self._rebalance(
                job['rebalancing'], servers, answer['placements'], total)
        self._end(answer)

    def _rebalance(self, job, servers, placements, done):
        """Replay traffic and migrate instances; return the result.

        :param servers: {uuid in Nova: uuid in the trace}
        :param placements: {uuid in the trace: host}
        """
        # Each request has the rights of an administrator, because these
        # services have no keystone.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.api.auth.NovaKeystoneContext._create_context',
            lambda env, **kwargs: nova_context.RequestContext(
                'admin', self.api.project_id, is_admin=True,
                roles=['admin', 'member', 'reader'], **kwargs)))

        def access(url):
            return http.Access(
                url=url, retries=0, requests_per_second=1000, auth={
                    'auth_type': 'admin_token', 'endpoint': url,
                    'token': 'admin'})

        placed = {server_id: uuid for server_id, uuid in servers.items()
                  if uuid in placements}
        replay = rebalancing.MigrationReplay(
            store.Store(job['store_url']), rebalancing.ReplayedCloud(
                access(self.admin_api.base_url),
                access(self.placement.fixture.endpoint)),
            rebalancing.read_traffic(job, placed),
            {server_id: placements[uuid]
             for server_id, uuid in placed.items()},
            self._job['hosts'], job['overload_probability'])
        replay.run(lambda *_: self._send({'done': done, 'total': done}))
        result = replay.summary()
        result['moves'] = [(sample, servers[server_id], host)
                           for sample, server_id, host in result['moves']]
        return result

    def _describe_switches(self):
        api, aggregates = self.admin_api, {}
        for host, profile in self._job['hosts']:
            if profile not in aggregates:
                aggregates[profile] = api.post_aggregate(
                    {'aggregate': {'name': profile}})['id']
                api.post_aggregate_action(aggregates[profile], {
                    'set_metadata': {'metadata': {
                        'vswitch:profile': profile}}})
            api.add_host_to_aggregate(aggregates[profile], host)

    def _wait(self, events, server_id):
        """Wait until nova has built a server or failed to.

        Notifications of nova show this. Polling the API would take longer than
        the rest of a boot.
        """
        deadline = time.monotonic() + self._job['boot_timeout_seconds']
        events_read = 0
        while time.monotonic() < deadline:
            for event in events[events_read:]:
                events_read += 1
                kind = event['event_type']
                data = event['payload'].get('nova_object.data', {})
                if server_id not in (data.get('uuid'),
                                     data.get('instance_uuid')):
                    continue
                if kind in ('instance.create.end', 'instance.create.error') \
                        or kind.startswith('compute_task.') \
                        and kind.endswith('.error'):
                    return
            time.sleep(0.005)
        raise CloudError(
            f'server {server_id}: nova has not built it within '
            f'{self._job["boot_timeout_seconds"]} s')

    def _placed(self, servers):
        """Return the hosts of the servers according to the API."""
        deadline = time.monotonic() + self._job['boot_timeout_seconds']
        while True:
            server_of = {server['id']: server for server
                         in self.admin_api.get_servers(detail=True)}
            if not any(server['status'] == 'BUILD'
                       for server in server_of.values()):
                break
            if time.monotonic() > deadline:
                raise CloudError('some servers are still in BUILD')
            time.sleep(0.5)
        placements, refusals = {}, {}
        for server_id, uuid in servers.items():
            server = server_of[server_id]
            host = server['OS-EXT-SRV-ATTR:host']
            if server['status'] == 'ACTIVE' and host:
                placements[uuid] = host
                continue
            refusals[uuid] = {
                'fault': server.get('fault', {}).get('message', ''),
                'reasons': self._refusals.reasons.get(server_id, {})}
        return {'placements': placements, 'refusals': refusals,
                'warnings': self._warnings.messages}


def main(argv: list) -> None:
    """Place the VMs of a job.

    The answer has lines ``{"done", "total"}`` during the work, then
    ``{"placements", "refusals", "warnings", "seconds_per_boot"}`` with exit
    status 0, or ``{"error"}`` with 1. With rebalancing, the answer also has
    ``"rebalancing"``, see :meth:`.MigrationReplay.summary`. The function does
    not return.

    :param argv: list with the path of the job: nova_conf, log,
        boot_timeout_seconds, host (vcpus, memory_mb, local_gb), hosts ([host,
        profile]), vms (uuid, name, vcpus, memory_mb), rebalancing (None, or
        store_url, overload_probability and what
        :func:`.rebalancing.read_traffic` reads)
    """
    with open(argv[0], encoding='utf-8') as stream:
        job = json.load(stream)
    # Output of nova or of a library must not get into the answer.
    answers = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)

    def send(message):
        answers.write(json.dumps(message) + '\n')
        answers.flush()

    def end(message, status):
        send(message)
        # End the process immediately. An orderly shutdown of the services
        # would take too long.
        os._exit(status)

    result = unittest.TestResult()
    FakeCloud(job, send, lambda answer: end(answer, 0)).run(result)
    problems = [text for _, text in result.errors + result.failures
                + result.skipped] or ['nova ended without an answer']
    sys.stderr.write('\n'.join(problems))
    end({'error': problems[0].strip().splitlines()[-1]}, 1)


if __name__ == '__main__':
    main(sys.argv[1:])
