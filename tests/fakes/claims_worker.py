# SPDX-License-Identifier: Apache-2.0
"""A scheduler worker that knows one host, and claims it for instances."""

import threading

from tests.fakes import store as fake_store
from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler import store

PATIENCE_SECONDS = 20.0


class Worker:
    """A worker that knows one host with room for ``room`` instances."""

    def __init__(self, test, shared, room, patience=PATIENCE_SECONDS):
        self.lock = threading.RLock()
        self.counted, self.problems = set(), []
        self.all_problems = []
        self.room = room
        self.claims = claims.Claims(
            shared, 0.05, patience, self.lock, self.receive, self.count,
            'me', self.report)
        test.addCleanup(self.claims.stop)

    def report(self, topic, problem):
        self.problems.append(problem)
        self.all_problems.append((topic, problem))

    def receive(self, foreign):
        for claim in foreign:
            self.count(claim, claim.state == store.CLAIMED)

    def count(self, claim, admitted=True):
        if admitted:
            self.counted.add(claim.instance_uuid)
        else:
            self.counted.discard(claim.instance_uuid)

    def claim(self, number, waits=True, judged=True):
        uuid = fake_store.instance_uuid(number)

        def judge():
            return len(self.counted - {uuid}) < self.room

        self.claims.start()
        return self.claims.claim(
            judge if judged else None, waits, instance_uuid=uuid, host='h',
            source=None, law=fake_store.LAW, rule='flavor')

    def withdraw(self, pending):
        with self.lock:
            self.counted.discard(pending.stored.instance_uuid)
        self.claims.withdraw(pending)

    @property
    def problem(self):
        return self.problems[-1] if self.problems else None
