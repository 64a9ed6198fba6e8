# SPDX-License-Identifier: Apache-2.0
"""Whether what the scheduler did is right, judged without its code.

Reads Nova's and placement's databases, the store and the reports of the
schedulers, and works out the load of each host by its own arithmetic.
"""

import collections
import json

import numpy as np

#: Steps of the grid, rounded down: what is above a limit here is above it.
_CELLS = 4000

#: Statuses of migrations that have ended.
_ENDED = ('confirmed', 'reverted', 'error', 'failed', 'completed',
          'cancelled', 'done')


class Auditor:
    """Judges a :class:`~.services.Cloud` whose hosts have one capacity.

    :param capacity_kbps: saturation of each host, egress and ingress together
    :param limit: overload probability that hosts may have
    """

    def __init__(self, cloud, capacity_kbps, limit):
        self._database, self._store = cloud.database, cloud.store
        self._rows = cloud.openstack.cell_rows
        self._capacity = capacity_kbps
        self._limit = limit

    def instances(self):
        """Return {uuid: (host, flavor's extra specs)} of what runs."""
        rows = self._rows('''
            SELECT i.uuid, i.host, e.flavor FROM instances i
            JOIN instance_extra e ON e.instance_uuid = i.uuid
            WHERE i.deleted = 0 AND i.host IS NOT NULL''')
        return {row['uuid']: (row['host'], json.loads(row['flavor'])[
            'cur']['nova_object.data']['extra_specs']) for row in rows}

    def residency(self):
        """Return {uuid: ({host: kbit/s}, is it at rest)} of each instance.

        Both hosts of a migration in progress have it, the source with the old
        and the destination with the new flavor. A reverted one is in progress
        until the source has the instance again. Softly deleted and shelved
        ones are on the host that keeps them.
        """
        moves = collections.defaultdict(list)
        for row in self._rows(f'''
                SELECT instance_uuid, source_compute, dest_compute
                FROM migrations m WHERE deleted = 0
                AND (status NOT IN {_ENDED} OR status = 'reverted' AND id = (
                    SELECT max(l.id) FROM migrations l
                    JOIN instances i ON i.uuid = l.instance_uuid
                    AND i.deleted = 0 AND i.task_state = 'resize_reverting'
                    WHERE l.instance_uuid = m.instance_uuid))'''):
            moves[row['instance_uuid']].append(
                (row['source_compute'], row['dest_compute']))
        instances = {}
        for row in self._rows('''
                SELECT i.uuid, i.host, i.vm_state, i.task_state, e.flavor
                FROM instances i
                JOIN instance_extra e ON e.instance_uuid = i.uuid
                WHERE i.deleted = 0'''):
            current, old, new = (
                self._kbps(flavor) for flavor in map(json.loads(
                    row['flavor']).get, ('cur', 'old', 'new')))
            hosts = collections.defaultdict(float)
            if row['host'] and row['vm_state'] != 'shelved_offloaded':
                hosts[row['host']] = current
            for source, dest in moves[row['uuid']]:
                for host, kbps in ((source, old or current),
                                   (dest, new or current)):
                    if host:
                        hosts[host] = max(kbps, hosts[host] * (source == dest))
            instances[row['uuid']] = dict(hosts), (
                row['task_state'] is None and row['vm_state'] != 'building')
        return instances

    def _kbps(self, flavor):
        specs = flavor and flavor['nova_object.data']['extra_specs']
        return specs and float(_of_flavor(specs)[1][1])

    def loads(self, without=()):
        """Return {host: kbit/s} of what is there, as constant demands.

        :param without: set of (uuid, host) that do not count
        """
        loads = collections.Counter()
        for uuid, (hosts, _) in self.residency().items():
            loads.update({host: kbps for host, kbps in hosts.items()
                          if (uuid, host) not in without})
        return loads

    def alternates(self):
        """Return {(uuid, host)} that Nova's conductor chose by itself.

        A host on which an action was tried after it had failed on another.
        """
        tried = collections.defaultdict(list)
        for row in self._rows('''
                SELECT a.instance_uuid, a.id, e.host
                FROM instance_actions_events e
                JOIN instance_actions a ON a.id = e.action_id
                WHERE e.event IN ('compute__do_build_and_run_instance',
                                  'compute_prep_resize')
                ORDER BY e.id'''):
            tried[row['instance_uuid'], row['id']].append(row['host'])
        return {(uuid, host) for (uuid, _), hosts in tried.items()
                for host in hosts if host != hosts[0]}

    def occupants(self, host):
        """Return what counts on a host, as sentences, for a reader."""
        there = [uuid for uuid, (hosts, _) in self.residency().items()
                 if host in hosts]
        rows = self._rows('''
            SELECT i.uuid, i.host, i.vm_state, i.task_state, m.migration_type,
            m.status, m.source_compute, m.dest_compute
            FROM instances i LEFT JOIN migrations m
            ON m.instance_uuid = i.uuid AND m.deleted = 0''')
        events = self._rows('''
            SELECT a.instance_uuid, e.event, e.host, e.result, e.start_time
            FROM instance_actions_events e
            JOIN instance_actions a ON a.id = e.action_id ORDER BY e.id''')
        return [str(row) for row in rows if row['uuid'] in there] + [
            str(event) for event in events if event['instance_uuid'] in there]

    def unsettled(self):
        """Return the instances with which something is under way."""
        return [uuid for uuid, (_, at_rest) in self.residency().items()
                if not at_rest]

    def differences(self, reports):
        """Return how workers and Nova differ about instances at rest.

        :param reports: {worker: {host: uuids}}
        """
        residency = self.residency()
        remarks = []
        for worker, counted in sorted(reports.items()):
            if not counted:
                remarks.append(f'worker {worker} knows no host')
            on = collections.defaultdict(set)
            for host, uuids in counted.items():
                for uuid in uuids:
                    on[uuid].add(host)
            for uuid in on.keys() | residency.keys():
                hosts, at_rest = residency.get(uuid, ({}, True))
                if at_rest and on[uuid] != hosts.keys():
                    remarks.append(
                        f'worker {worker} counts {uuid} on '
                        f'{sorted(on[uuid])}, Nova has {sorted(hosts)}')
        return remarks

    def laws(self, instances):
        """Return {uuid: [(probability, kbps)]}.

        Of the learned model, or else of what the flavor says.
        """
        learned = {row['instance_uuid']: json.loads(row['model'])
                   for row in self._store.rows('vswitch', (
                       'SELECT instance_uuid, model '
                       'FROM traffic_model_detail'))}
        return {uuid: _of_model(learned[uuid]) if uuid in learned
                else _of_flavor(specs)
                for uuid, (_, specs) in instances.items()}

    def overloads(self):
        """Return the hosts that are above their limit, as sentences."""
        instances = self.instances()
        laws = self.laws(instances)
        on_host = collections.defaultdict(list)
        for uuid, (host, _) in instances.items():
            on_host[host].append(uuid)
        remarks = []
        for host, uuids in sorted(on_host.items()):
            risk = self.overload([laws[uuid] for uuid in uuids])
            if risk > self._limit * (1 + 1e-9):
                remarks.append(f'{host} with {len(uuids)} instances is '
                               f'overloaded with probability {risk:.3g}, '
                               f'limit {self._limit:g}')
        return remarks

    def misallocated(self):
        """Return the instances whose allocations are not on their host."""
        instances = self.instances()
        rows = self._database.rows('placement', '''
            SELECT DISTINCT a.consumer_id, r.name FROM allocations a
            JOIN resource_providers p ON p.id = a.resource_provider_id
            JOIN resource_providers r ON r.id = p.root_provider_id''')
        hosts = collections.defaultdict(set)
        for row in rows:
            hosts[row['consumer_id']].add(row['name'])
        return [f'instance {uuid} is on {host} and has allocations on '
                f'{sorted(hosts[uuid]) or "no host"}'
                for uuid, (host, _) in instances.items()
                if hosts[uuid] != {host}]

    def overload(self, laws):
        """Return a lower bound of P(sum > capacity) of independent laws.

        What instances have in common makes it larger only.
        """
        step = self._capacity / _CELLS
        held = np.ones(1)
        for levels in laws:
            kernel = np.zeros(1 + max(
                int(kbps / step + 1e-9) for _, kbps in levels))
            for probability, kbps in levels:
                kernel[int(kbps / step + 1e-9)] += probability
            held = np.convolve(held, kernel)
        return float(held[_CELLS + 1:].sum())

    def miscounted(self, reports):
        """Return how the workers' counts differ from where instances are.

        :param reports: list of {host: set of uuids}, one for each worker
        """
        truth = {uuid: host for uuid, (host, _) in self.instances().items()}
        remarks = []
        for worker, counted in sorted(reports.items()):
            hosts = collections.defaultdict(list)
            for host, uuids in counted.items():
                for uuid in uuids:
                    hosts[uuid].append(host)
            twice = sum(len(places) > 1 for places in hosts.values())
            wrong = sum(hosts.get(uuid, [None])[0] != host
                        for uuid, host in truth.items())
            ghosts = len(hosts.keys() - truth.keys())
            if twice or wrong or ghosts:
                remarks.append(f'worker {worker} counts {twice} instances '
                               f'twice, {wrong} not where they are, {ghosts} '
                               f'that are no more')
        return remarks


def _of_flavor(specs):
    kbps = sum(int(specs.get(f'vswitch:{direction}_kbps', 0))
               for direction in ('egress', 'ingress'))
    on = int(specs.get('vswitch:on_seconds', 1))
    off = int(specs.get('vswitch:off_seconds', 0))
    return [(off / (on + off), 0.0), (on / (on + off), float(kbps))]


def _of_model(stored):
    rates = [row[0] + row[1] for row in stored['rates']]
    sojourn = np.array(stored['sojourn_seconds'])
    jump = np.array(stored['jump'])
    size = len(sojourn)
    # Visits: v = v J, sum 1.
    equations = np.vstack([jump.T - np.eye(size), np.ones(size)])
    visits = np.linalg.lstsq(
        equations, np.append(np.zeros(size), 1.0), rcond=None)[0]
    law = visits * sojourn
    return list(zip((law / law.sum()).tolist(), rates))
