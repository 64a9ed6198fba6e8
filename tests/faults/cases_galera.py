# SPDX-License-Identifier: Apache-2.0
"""A Galera cluster whose nodes refuse commits, die, or take no writes."""

import concurrent.futures
import contextlib
import threading
import time

import sqlalchemy as sa

from tests.fakes import claims_worker
from tests.faults import cases_store
from tests.faults import registry
from tests.integration import base
from tests.integration import modeler_processes
from tests.integration import servers
from tests.integration import store_suite
from vswitch_aware_scheduler import store

check = registry.check

#: Number of requests, each in a thread, and of places on their host.
REQUESTS, ROOM = 80, 50


@contextlib.contextmanager
def _cluster():
    """Yield (tool of an empty store, [the two nodes])."""
    with contextlib.ExitStack() as stack:
        nodes = [base.started(servers.GaleraNode())]
        stack.callback(nodes[0].cleanUp)
        nodes.append(base.started(servers.GaleraNode(nodes[0])))
        stack.callback(nodes[1].cleanUp)
        tool = cases_store.OnMariaDB()
        tool.server = nodes[0]
        tool.setUp()
        stack.callback(tool.doCleanups)
        tool.make_store()
        yield tool, nodes


def _boot(tool, ports, fault=lambda: None):
    """Let a worker for each port claim one host for 80 requests at once.

    Checks that the last room is used, and used once.

    :param fault: called as soon as the first claims are made
    :returns: number of claims that were decided without the store
    """
    workers = [claims_worker.Worker(tool, store.Store(
        sa.make_url(tool.url).set(port=port).render_as_string(
            hide_password=False), 10.0), ROOM, cases_store.LIMIT)
        for port in ports]
    for worker in workers:
        worker.claims.wait_until_read()
    begin = threading.Barrier(REQUESTS)

    def request(number):
        begin.wait()
        # Several transactions each worker, not one for all that wait.
        time.sleep(.02 * (number // len(workers)))
        return workers[number % len(workers)].claim(number).admitted

    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        admitted = [pool.submit(request, number)
                    for number in range(REQUESTS)]
        next(concurrent.futures.as_completed(admitted))
        fault()
        admitted = [future.result() for future in admitted]
    misses = sum(worker.claims.counts['claim_misses'] for worker in workers)
    problems = {problem for worker in workers
                for _, problem in worker.all_problems if problem}
    check.assertEqual((ROOM, 0), (sum(admitted), misses), problems)
    # What was refused after an attempt is withdrawn.
    numbers = [number for number, good in enumerate(admitted) if good]
    modeler_processes.wait_for(
        lambda: numbers == sorted(
            int(claim.instance_uuid[-12:], 16) for claim in
            workers[-1].claims._store.read_claims().claims
            if claim.state == store.CLAIMED), 'the claims that were admitted')


def _conflicts(node):
    """Return how many transactions of a node the others have defeated."""
    return sum(int(value) for _, value in store_suite.execute(
        node, "SHOW STATUS WHERE Variable_name IN "
        "('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')")[0])


@registry.fault('refused commit of Galera')
def claims_at_both_nodes_of_galera():
    with _cluster() as (tool, nodes):
        _boot(tool, [node.port for node in nodes for _ in range(2)])
        return sum(map(_conflicts, nodes))


@registry.fault('failover of Galera')
def killed_node_of_galera():
    with _cluster() as (tool, nodes):
        # As a proxy does, which sends all to one node and then to the other.
        proxy = modeler_processes.Proxy(nodes[0].port, nodes[1].port)
        tool.addCleanup(proxy.close)

        def fail_over():
            nodes[0].process.kill()
            nodes[0].process.wait()
            proxy.fail_over()

        _boot(tool, [proxy.port] * 4, fail_over)
    return 1
