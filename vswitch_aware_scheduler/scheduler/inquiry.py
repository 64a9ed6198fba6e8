# SPDX-License-Identifier: Apache-2.0
"""When Nova's database is asked, and what follows from its answers.

Who is where is told by hosts and by claims, and what a resident carries by
its model. :class:`Inquiry` asks where these leave a doubt that matters:
:mod:`.lookup` reads, and the answers go to the Residency and the Laws.
"""

from vswitch_aware_scheduler.scheduler import lookup

__all__ = ['Inquiry']

#: Instances looked up in one request at most, and how soon the same one
#: again: then, and later for one that was moved longer ago.
_MOST_LOOK_UPS = 16
_LOOK_UP_AGAIN_SECONDS = 0.5

#: Hosts that are asked for in one request at most before none passes, and how
#: soon the same one again.
_MOST_REVIEWED = 16
_REVIEW_AGAIN_SECONDS = 5.0

#: By so much an inventory has to be later than a claim to tell more: clocks
#: differ, and what is read takes its time.
_LATER_SECONDS = 60.0

#: Instances whose flavors are looked up in one request at most, and how soon
#: the database is asked again after it has failed.
_MOST_FLAVORS = 500
_ASK_AGAIN_SECONDS = 30.0


class Inquiry:
    """Asks Nova's database for one scheduler process.

    Thread-safe. What is in doubt is read under the lock, and so are answers
    taken in; the database is asked without it, so nobody may hold the lock
    who calls a method, except :meth:`begins`.

    :param lock: what callers of the Residency and of the Laws hold
    :param residency: Residency
    :param laws: Laws
    :param expiry_seconds: how long an instance counts where the database has
        it, unless its host tells of it
    :param clock: callable, seconds UTC
    :param report: callable(topic, problem or None)
    """

    def __init__(self, lock, residency, laws, expiry_seconds, clock, report):
        self._lock = lock
        self._residency = residency
        self._laws = laws
        self._expiry_seconds = expiry_seconds
        self._clock = clock
        self._report = report
        self._look_up_again = {}  # uuid -> seconds
        self._review_again = {}   # host -> seconds
        self._ask_again = 0.0
        # Hosts of which it was not asked yet who is on them.
        self._unverified = set()

    def begins(self, host):
        """Tell of a host that this process sees for the first time."""
        self._unverified.add(host)

    def verify(self, snapshot):
        """Ask who is on hosts that this process sees first.

        What Nova lists for them may be from before the process was forked,
        or not be read yet.

        :param snapshot: Snapshot in use
        :returns: whether anybody is not where it seemed
        """
        now = self._clock()
        # While the database does not answer these are many, each time.
        if not self._unverified or now < self._ask_again:
            return False
        with self._lock:
            hosts = sorted(self._unverified)

        def ask():
            found = lookup.uuids_on(hosts)
            with self._lock:
                absent = {uuid: host for host in hosts for uuid in
                          found[host].difference(
                              self._residency.residents(host))}
                nameless = [uuid for uuid in absent
                            if snapshot.law(uuid) is None]
            return absent, (lookup.flavors_of(nameless[:_MOST_FLAVORS])
                            if nameless else {})

        found = self._ask('database at the start', ask,
                          'going by what hosts report')
        if found is None:
            return False
        absent, flavors = found
        with self._lock:
            self._unverified.difference_update(hosts)
            for uuid, host in absent.items():
                if self._residency.claim_of(uuid) is not None:
                    # Newer than what the database says: it is under way.
                    continue
                law = snapshot.law(uuid) \
                    or self._laws.of_flavor(flavors.get(uuid), snapshot)
                self._residency.claim(
                    uuid, host, law or self._laws.unknown(snapshot),
                    now + self._expiry_seconds, now,
                    known=law is not None, shared=False)
        return bool(absent)

    def who_is_on(self, hosts):
        """Return {host: set of uuids} of hosts that no request has had.

        None when the database does not answer.

        :param hosts: list of names, behind uplinks
        """
        return self._ask('database of hosts behind uplinks',
                         lambda: lookup.uuids_on(hosts),
                         'going by what is known of them')

    def acquaint(self, snapshot):
        """Ask for the flavors of residents that nobody told.

        Another worker has placed them and this one has started since: of
        those that come later the hosts tell it.

        :param snapshot: Snapshot in use
        :returns: whether the demand of any is another one now
        """
        if not self._laws.has_strangers or self._clock() < self._ask_again:
            return False
        with self._lock:
            strangers = self._laws.strangers(_MOST_FLAVORS)
        flavors = self._ask(
            'flavors', lambda: lookup.flavors_of(list(strangers)),
            'instances without a model that were there before count by the '
            'default')
        if flavors is None:
            return False
        with self._lock:
            return self._laws.acquaint(strangers, flavors, snapshot)

    def settle(self, snapshot, refused, known):
        """Ask where instances are of which it is doubtful.

        :param snapshot: Snapshot in use
        :param refused: set of hosts that could pass without them
        :param known: uuids of which there is no doubt
        :returns: whether any of them is not what it seemed
        """
        now = self._clock()
        with self._lock:
            version = self._residency.version
            doubtful = {uuid: moved for uuid, moved
                        in self._residency.doubtful(refused).items()
                        if moved is not None or not self._inventoried(
                            snapshot, uuid, now)}
            again = self._look_up_again
            self._look_up_again = again = {
                uuid: again[uuid] for uuid in doubtful if uuid in again}
        due = [uuid for uuid in doubtful
               if uuid not in known and again.get(uuid, now) <= now]
        for uuid in self._look_up(snapshot, due, now):
            age = now - (doubtful[uuid] or now)
            again[uuid] = now + max(_LOOK_UP_AGAIN_SECONDS, age / 50)
        return version != self._residency.version

    def review(self, snapshot, hosts):
        """Ask whether those who count on hosts are still there.

        What Nova lists for a host may be late by minutes: when a host tells
        of all its instances while one of them is being deleted, Nova may put
        it back after it was taken off.

        :param snapshot: Snapshot in use
        :param hosts: list of hosts that could pass without some of them
        :returns: whether any is not where it seemed
        """
        now = self._clock()
        self._review_again = again = {
            host: then for host, then in self._review_again.items()
            if then > now}
        due = [host for host in hosts if host not in again][:_MOST_REVIEWED]
        if not due:
            return False
        found = self._ask('database of full hosts',
                          lambda: lookup.uuids_on(due),
                          'going by what hosts report')
        if found is None:
            return False
        again.update(dict.fromkeys(due, now + _REVIEW_AGAIN_SECONDS))
        with self._lock:
            version = self._residency.version
            absent = [uuid for host in due
                      for uuid in self._residency.residents(host)
                      if uuid not in found[host]
                      and self._residency.claim_of(uuid) is None]
        self._look_up(snapshot, absent, now)
        return version != self._residency.version

    def _look_up(self, snapshot, uuids, now):
        """Take in what the database says of instances.

        :returns: list of those that it has answered for
        """
        answered = []
        for uuid in uuids[:_MOST_LOOK_UPS]:
            try:
                found = lookup.look_up(uuid)
                self._report('database', None)
            except Exception as error:
                self._report('database', (
                    f'{type(error).__name__}: {error}; going by what hosts '
                    f'report'))
                break
            answered.append(uuid)
            with self._lock:
                if found is None or found.settled and found.host is None:
                    self._residency.remove(uuid, now)
                elif found.settled:
                    law = self._laws.of_flavor(found.flavor, snapshot)
                    if law is None and \
                            self._residency.claim_of(uuid) is None:
                        # Its host may not have told of it yet.
                        law = snapshot.law(uuid)
                    self._residency.settle(
                        uuid, found.host, now, found.confirmed, law,
                        now + self._expiry_seconds)
        return answered

    def _inventoried(self, snapshot, uuid, now):
        """Go by the inventory for one that is claimed; return if it knows.

        It does when it is later than the claim and has a host. That a resize
        may yet be reverted it does not tell.
        """
        claim = self._residency.claim_of(uuid)
        seen_at = snapshot.seen_at
        if seen_at is None or seen_at < claim.since + _LATER_SECONDS:
            return False
        host = (snapshot.placement(uuid) or (None,))[0]
        if host is not None and host != claim.host:
            self._residency.settle(
                uuid, host, now, expires=now + self._expiry_seconds)
        return host is not None

    def _ask(self, topic, ask, otherwise):
        """Return what the database answers, None when it does not.

        After a failure it is left alone for a while.

        :param topic: what is asked, a short string
        :param ask: callable
        :param otherwise: what happens without an answer, in words
        """
        now = self._clock()
        if now < self._ask_again:
            return None
        try:
            found = ask()
        except Exception as error:
            self._ask_again = now + _ASK_AGAIN_SECONDS
            self._report(
                topic, f'{type(error).__name__}: {error}; {otherwise}')
            return None
        self._report(topic, None)
        return found
