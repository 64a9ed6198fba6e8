# SPDX-License-Identifier: Apache-2.0
"""What the filter and the weigher of one scheduler process share.

Making a :class:`SchedulerState` opens nothing; Nova makes plugins before it
forks its workers.
"""

import functools
import itertools
import operator
import os
import secrets
import socket
import threading
import time

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler import feedback
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler import policies as host_policies
from vswitch_aware_scheduler.scheduler import aggregates
from vswitch_aware_scheduler.scheduler import candidates
from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler.scheduler import exchange
from vswitch_aware_scheduler.scheduler import health
from vswitch_aware_scheduler.scheduler import inquiry
from vswitch_aware_scheduler.scheduler import laws
from vswitch_aware_scheduler.scheduler import request
from vswitch_aware_scheduler.scheduler import turn
from vswitch_aware_scheduler import snapshot as snapshots
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler import strict
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler import uplinks
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

LOG = logs.get_logger(__name__)

#: How often the list of a host's instances is compared key by key. In
#: between, a change of the same dictionary shows in its length or its last
#: key, unless that key went and came back meanwhile.
_COMPARE_SECONDS = 1.0

#: Type of the hypervisor of bare metal, as Nova's Ironic driver reports it.
_IRONIC = 'ironic'

#: Longest time for which one request keeps others from judging hosts.
_TURN_SECONDS = 5.0

#: A request that begins has claims of others read anew unless that was done
#: so lately; by when it judges hosts they are there.
_FRESH_SECONDS = 0.02

#: Claims have to come soon: what takes longer is tried again.
_EXCHANGE_TIMEOUT_SECONDS = 2.0

#: Hosts of a new snapshot that are computed at once.
_TOGETHER = 16

#: Why a host is refused that could pass without some of its instances.
_FULL = (admission.TOO_MANY, admission.MEAN, admission.OVERLOAD,
         admission.UPLINK)

#: What happens to hosts without a profile, by unknown_host_policy.
_UNKNOWN_HOSTS = {'pass': 'checks nothing and lets every instance pass',
                  'reject': 'refuses every host'}

_HOST, _INSTANCES, _AGGREGATES = map(
    operator.attrgetter, ('host', 'instances', 'aggregates'))


class SchedulerState:
    """The loads of all hosts as one process knows them.

    Thread-safe. Methods may raise; the plugins catch.

    :param conf: ConfigOpts with the [vswitch_scheduler] group registered
    :param clock: callable, seconds UTC
    """

    def __init__(self, conf, clock=time.time):
        self._conf = conf.vswitch_scheduler
        self._clock = clock
        self.report = health.HealthLog()
        self._candidates = candidates.Candidates(self.report)
        self._lock = threading.RLock()
        self._ready = False
        self._recent = threading.local()
        # From judging the hosts to placing the instance: two requests that
        # judge at once would both take the last room of a host.
        self._turn = turn.Turn(_TURN_SECONDS)

    def _prepare(self):
        """Read the configuration, once, at the first request."""
        conf = self._conf
        try:
            profiles = vswitch_profile.profiles(conf.switch_profiles_file)
            self.report('switch profiles', None)
        except Exception as error:
            profiles = vswitch_profile.profiles()
            self.report('switch profiles',
                        f'{error}; only the built-in profiles are used')
        default = conf.default_switch_profile or None
        if default is not None and default not in profiles:
            self.report('default_switch_profile', (
                f'[vswitch_scheduler]/default_switch_profile is {default!r}, '
                f'wanted one of {", ".join(sorted(profiles))}; it is '
                f'ignored'))
            default = None
        self._aggregates = aggregates.Aggregates(
            host_policies.HostPolicies(
                profiles, default, conf.admission_policy,
                conf.overload_probability,
                conf.unknown_host_policy == 'pass', self.report),
            uplinks.UplinkPolicies(
                profiles, conf.admission_policy, conf.overload_probability,
                self.report), conf.strict, self.report)
        self._default_law = model.TrafficModel.on_off(
            **opts.default_demand(conf)).law
        shared = conf.claims_refresh_seconds > 0
        self._residency = claims.Residency(
            secrets.token_hex(8) if shared else None,
            f'{socket.gethostname()}:{os.getpid()}'[:255])
        self._exchange = exchange.ClaimExchange(
            self._make_store(_EXCHANGE_TIMEOUT_SECONDS),
            conf.claims_refresh_seconds, conf.snapshot_first_wait_seconds,
            self._words_to_tell, self._take_words,
            self.report) if shared else None
        self._snapshot = snapshots.Snapshot()
        self._table = self._new_table(self._snapshot)
        self._hosts = {}         # host -> _HostView
        self._last_asked = None  # _Asked
        self._outdated = set()   # hosts to describe anew
        self._described = set()  # hosts described since the last adoption
        self._next_expiry = self._next_comparison = 0.0
        self._laws = laws.Laws(
            self._residency, self._hosts,
            None if conf.unknown_instance_policy == 'ignore'
            else self._default_law)
        self._inquiry = inquiry.Inquiry(
            self._lock, self._residency, self._laws,
            conf.claim_expiry_seconds, self._clock, self.report)
        self._limits = strict.EffectiveLimits(conf.strict_headroom)
        self._corrections = feedback.Corrections(
            conf.feedback_max if conf.feedback else 0.0, self._clock,
            self.report)
        self._multiples = {}     # kind of host -> by what its limit is
        # Whether any host seen has a virtual switch, and any has a limit.
        self._switch_seen = self._limit_seen = False
        self._unlimited = (
            f'no host that requests have been for has a switch profile or is '
            f'behind an uplink, so that VSwitchFilter '
            f'{_UNKNOWN_HOSTS[conf.unknown_host_policy]}; set '
            f'[vswitch_scheduler]/default_switch_profile, run '
            f'"vswitch-manage host set", or set vswitch:profile on an '
            f'aggregate')
        self._source = snapshots.SnapshotSource(
            self._make_store(), conf.snapshot_refresh_seconds,
            conf.snapshot_first_wait_seconds,
            conf.max_generation_age_seconds, self._clock,
            prepare=self._adopt, tidy=self._tidy)
        self._ready = True

    def _make_store(self, most_seconds=float('inf')):
        try:
            return store.Store(self._conf.store_url, min(
                self._conf.store_timeout_seconds, most_seconds))
        except Exception as error:
            return _NoStore(error)

    # What the plugins ask.

    def assess(self, host_states, spec_obj):
        """Judge every host for one request.

        :param host_states: list of nova HostState
        :param spec_obj: nova RequestSpec
        :returns: (Assessment, Demand) in the order of ``host_states``, or
            None when the operator wants every host to pass for the state the
            store is in
        """
        self._ensure_ready()
        if self._exchange is not None:
            self._exchange.begin()
        problem = self._source.current()[1]
        self.report('store', problem and (
            f'{problem}; ' + ('every host passes'
                              if self._conf.degraded_policy == 'pass' else
                              'deciding on what is known')))
        if problem and self._conf.degraded_policy == 'pass':
            return None
        if getattr(self._recent, 'requesting', False):
            self._turn.take()
            if self._exchange is not None and self._conf.claims_wait_seconds:
                self._exchange.freshen(self._conf.claims_wait_seconds)
        heard = self._residency.heard
        found = self._judge(host_states, spec_obj)
        if self._inquiry.verify(self._snapshot) | self._attend():
            found = self._judge(host_states, spec_obj)
        if self._inquiry.acquaint(self._snapshot):
            found = self._judge(host_states, spec_obj)
        # Asking takes its time, in which others go on placing.
        if self._settle(host_states, spec_obj, found[0]) \
                or heard != self._residency.heard:
            found = self._judge(host_states, spec_obj)
        if self._review(host_states, found[0]):
            found = self._judge(host_states, spec_obj)
        self.report('switch profiles of hosts',
                    self._unlimited if self._switch_seen
                    and not self._limit_seen else None)
        return found

    def _judge(self, host_states, spec_obj):
        with self._lock:
            self._expire_claims()
            hosts = self._observe(host_states)
            demand = self._demand(spec_obj)
            uuid = demand.instance_uuid
            exclude = None if self._residency.host_of(uuid) is None else uuid
            slots = self._last_asked.slots(self._table)
            attachments = self._wanted(spec_obj, uuid)
            if demand.same_on_all_hosts:
                assessment = self._table.assess(slots, demand.law, exclude,
                                                attachments)
            else:
                assessment = self._table.assess_each(
                    slots, [self._law_on(host, demand) for host in hosts],
                    exclude, attachments)
            self._recent.value = (spec_obj, demand.instance_uuid,
                                  self._table, self._table.version,
                                  host_states, assessment)
        return assessment, demand

    def book(self, host_states, demand):
        """Let placement refuse hosts, where the operator wants that.

        :param host_states: list of nova HostState that were judged
        :param demand: Demand that they were judged for
        :returns: list of those that placement has room on, their candidates
            with what the instance takes
        """
        if not self._conf.strict:
            return host_states
        amounts, of_policy = [], {}
        with self._lock:
            for host in map(_HOST, host_states):
                policy = self._hosts[host].policy
                if policy not in of_policy:
                    of_policy[policy] = self._amount(host, policy, demand)
                amounts.append(of_policy[policy])
        return self._candidates.book(host_states, amounts)

    def _amount(self, host, policy, demand):
        """Return what an instance takes of a host with a policy, or None."""
        limit = self._limits.of(policy)
        return limit and limit.amount(self._law_on(host, demand))

    def _law_on(self, host, demand):
        """Return the RateLaw that an instance is taken to have on a host."""
        law = demand.law
        if demand.is_prior:
            law = self._laws.fitting(law, host, self._laws.group(
                self._snapshot, demand.instance_uuid, demand.prior_of))
        view = self._hosts.get(host)
        return demand.law_on(law, view and view.policy)

    def offered(self, answer):
        """Take in the answer of placement to a request of this thread.

        :param answer: candidates, summaries of providers and a version, or
            None for no answer
        """
        if self._conf.strict and answer is not None and answer[1]:
            self._candidates.offered(answer[1])

    def is_rebuild(self, host_state, spec_obj):
        """Return whether a request rebuilds an instance on its own host.

        See :func:`.request.is_rebuild_on`.
        """
        self._ensure_ready()
        with self._lock:
            counted_on = {self._residency.host_of(
                request.instance_uuid_of(spec_obj))}
        return request.is_rebuild_on(spec_obj, host_state, counted_on)

    def recall(self, host_states, spec_obj):
        """Return an Assessment for hosts that may just have been filtered.

        :returns: (Assessment, positions of the hosts in it), or None as
            :meth:`assess`
        """
        recent = getattr(self._recent, 'value', None)
        self._recent.value = None
        if recent is not None:
            spec, uuid, table, version, known, assessment = recent
            if (spec is spec_obj and uuid == request.instance_uuid_of(spec_obj)
                    and table is self._table and version == table.version):
                at = {id(one): i for i, one in enumerate(known)}
                where = [at.get(id(one)) for one in host_states]
                if None not in where:
                    return assessment, where
        found = self.assess(host_states, spec_obj)
        return found and (found[0], range(len(host_states)))

    def chosen(self, host_states, spec_obj):
        """Count an instance on the first of the hosts, which Nova will take.

        What is left to do is to ask placement for its resources, and others
        need not wait for that. Should placement refuse, Nova goes on with the
        next host, or fails the request. Of several instances Nova sorts the
        hosts once more, for alternates to the last one: those are not taken.
        """
        if host_states and getattr(self._recent, 'requesting', False):
            self._place(host_states[0], spec_obj, sure=False)

    def placed(self, host_state, spec_obj):
        """Count an instance on the host that Nova has just chosen for it."""
        self._candidates.placed(host_state)
        self._place(host_state, spec_obj, sure=True)

    def _place(self, host_state, spec_obj, sure):
        self._ensure_ready()
        if self.is_rebuild(host_state, spec_obj):
            return
        host = host_state.host
        with self._lock:
            now = self._clock()
            demand = self._demand(spec_obj)
            uuid = demand.instance_uuid
            placed = self._placed_for(spec_obj)
            known, before, was_sure = placed.get(uuid, (None, None, False))
            if uuid is not None and known == host:
                placed[uuid] = host, before, sure or was_sure
            elif uuid is not None and not was_sure:
                if known is not None:
                    self._residency.withdraw(uuid, now)
                else:
                    before = self._residency.host_of(uuid)
                self._residency.claim(
                    uuid, host, self._law_on(host, demand),
                    now + self._conf.claim_expiry_seconds, now,
                    known=demand.rule not in ('default', 'unknown'),
                    attachments=self._wanted(spec_obj, uuid))
                placed[uuid] = host, before, sure
        self._tell_others()
        self._turn.give()

    def began(self):
        """Tell that a request begins in this thread, which will end.

        Only such a request takes its turn: nobody would give back that of a
        caller who merely asks.
        """
        self._recent.requesting = True
        self._candidates.began()
        self._tell_others(_FRESH_SECONDS)

    def finished(self, failed):
        """Tell that a request of this thread has ended.

        :param failed: whether what it has placed does not stay
        """
        self._recent.requesting = False
        # Of a request that ended before the weigher asked.
        self._recent.value = None
        self._turn.give()
        placed = self._placed_for(None)
        if failed and self._ready:
            with self._lock:
                now = self._clock()
                for instance_uuid, (_, before, _) in placed.items():
                    if before is None:
                        self._residency.forget(instance_uuid, now)
                    else:
                        # It was to move, and has not.
                        self._residency.withdraw(instance_uuid, now)
            self._tell_others()
        self._recent.placed = None

    def _tell_others(self, older_than_seconds=0.0):
        if self._ready and self._exchange is not None:
            self._exchange.wake(older_than_seconds)

    def _words_to_tell(self):
        with self._lock:
            return self._residency.take_words()

    def _take_words(self, told, late, changes):
        now = self._clock()
        with self._lock:
            # Where no request comes as well.
            self._expire_claims()
            self._residency.sent(told)
            for word in late.values():
                self._residency.take(word, now)
            if changes is not None:
                self._residency.take_in(changes, now)

    def _placed_for(self, spec_obj):
        """Return what a request has placed so far.

        :returns: {uuid: (host, the one that it counted on before, or None,
            whether Nova has taken that host)}
        """
        placed = getattr(self._recent, 'placed', None)
        if placed is None or spec_obj not in (None, placed[0]):
            placed = self._recent.placed = (spec_obj, {})
        return placed[1]

    @property
    def generation(self):
        """Number of the generation of the store in use, or None."""
        found = self._ready and self._snapshot.generation
        return found.number if found else None

    def counted(self):
        """Return who counts where.

        :returns: {host: {'profile': name or None, 'instances': [uuid],
            'claimed': [uuid], 'claimed_by_others': [uuid]}} of the hosts
            known so far; those claimed are among the instances and not yet
            reported by their host
        """
        if not self._ready:
            return {}
        with self._lock:
            claimed, foreign = {}, {}
            for claim in self._residency.claims:
                (foreign if self._residency.is_foreign(claim) else claimed
                 ).setdefault(claim.host, []).append(claim.instance_uuid)
            return {host: {
                'profile': view.policy and view.policy.profile
                and view.policy.profile.name,
                'instances': self._residency.residents(host),
                'claimed': claimed.get(host, []),
                'claimed_by_others': foreign.get(host, [])}
                for host, view in self._hosts.items()}

    def refresh(self):
        """Look at the store now, and not when it is due."""
        self._ensure_ready()
        self._source.refresh()

    def stop(self):
        """End the background threads, if there are any."""
        if self._ready:
            self._source.stop()
            if self._exchange is not None:
                self._exchange.stop()

    # How it knows.

    def _settle(self, host_states, spec_obj, assessment):
        """Ask the database where doubtful instances are.

        :returns: whether any of them is not what it seemed
        """
        if self._residency.certain:
            return False
        refused = {host_states[i].host for i in
                   np.flatnonzero(~assessment.admitted).tolist()}
        return self._inquiry.settle(
            self._snapshot, self._aggregates.sharing(refused),
            {*self._placed_for(spec_obj),
             request.instance_uuid_of(spec_obj)})

    def _review(self, host_states, assessment):
        """Ask the database who is on full hosts, before none passes.

        :returns: whether anybody is not where it seemed
        """
        if assessment.admitted.any():
            return False
        full = np.flatnonzero(np.isin(assessment.reason, _FULL))
        # Those that lack least are the likeliest to have room.
        full = full[np.argsort(assessment.overload_probability[full],
                               kind='stable')]
        return self._inquiry.review(self._snapshot, [
            host_states[i].host for i in full.tolist()])

    def _ensure_ready(self):
        if not self._ready:
            with self._lock:
                if not self._ready:
                    self._prepare()

    def _expire_claims(self):
        now = self._clock()
        if now >= self._next_expiry:
            for claim in self._residency.expire(now):
                LOG.debug('vswitch: host %s never reported instance %s: no '
                          'longer counted there', claim.host,
                          claim.instance_uuid)
            self._next_expiry = now + 1.0

    def _observe(self, host_states):
        """Take in what Nova says of some hosts; return their names.

        Most requests change nothing: that has to be found out fast.
        """
        now = self._clock()
        changed = self._outdated
        # The same hosts mostly are asked about again, in the same order; their
        # HostStates are others each time.
        last, hosts = self._last_asked, list(map(_HOST, host_states))
        if last is None or last.hosts != hosts:
            last = self._last_asked = self._ask_about(hosts, host_states)
        hosts, views = last.hosts, last.views
        listings = list(map(_INSTANCES, host_states))
        counts = list(map(len, listings))
        lasts = list(map(next, map(reversed, listings),
                         itertools.repeat(None)))
        if now >= self._next_comparison:
            self._next_comparison = now + _COMPARE_SECONDS
            new = range(len(hosts))
        else:
            new = last.changed(listings, counts, lasts)
        for i in new:
            listed = list(listings[i])
            self._residency.observe(hosts[i], listed, now)
            view = views[i]
            view.instances = listings[i]
            view.count = len(listed)
            view.last = listed[-1] if listed else None
        last.listings, last.counts, last.lasts = listings, counts, lasts
        for host in self._aggregates.observe(
                hosts, list(map(_AGGREGATES, host_states)), now):
            self._hosts[host].policy = None
            changed.add(host)
        self._follow(self._residency.take_steps(), changed)
        changed |= self._residency.take_changed()
        if changed:
            # In the order of the hosts, in which they are read each time:
            # neighbours in memory are read faster.
            due = [host for host in hosts if host in changed]
            # What is on the others counts on the uplinks they share.
            due.extend(
                changed.intersection(self._aggregates.behind).difference(due))
            for host in due:
                self._describe(self._table, self._snapshot, host)
            self._described.update(due)
            changed.difference_update(due)
        self._outdated = changed
        return hosts

    def _ask_about(self, hosts, host_states):
        """Return _Asked for hosts, of which some may be new."""
        for host, host_state in zip(hosts, host_states):
            if host not in self._hosts:
                view = self._hosts[host] = _HostView()
                view.bare_metal = _IRONIC == getattr(
                    host_state, 'hypervisor_type', None)
                self._inquiry.begins(host)
                self._outdated.add(host)
        return _Asked(hosts, list(map(self._hosts.get, hosts)))

    def _attend(self):
        """Ask the database who is on hosts that no request has had lately.

        Of those behind an uplink, for what they send takes it as well.

        :returns: whether anybody is not where it seemed
        """
        now = self._clock()
        hosts = self._aggregates.absent(now)
        found = hosts and self._inquiry.who_is_on(hosts)
        if not found:
            return False
        with self._lock:
            for host, uuids in found.items():
                view = self._hosts.get(host)
                if view is None:
                    view = self._hosts[host] = _HostView()
                    self._aggregates.admit(host)
                self._residency.observe(host, sorted(uuids), now)
                # What Nova lists for it is to be read anew.
                view.instances = self._last_asked = None
        return True

    def _follow(self, steps, changed):
        """Follow who came and went; add the hosts with more to ``changed``."""
        changes = {}
        for host, found in steps.items():
            if host in changed or len(found) > 1:
                changed.add(host)
                continue
            came, went = found[0]
            changes[host] = dict(zip(came, self._laws.of(
                self._snapshot, host, came))), went
        self._described.update(changes)
        changed.update(self._table.change(changes))

    def _describe(self, table, snapshot, host):
        view = self._hosts[host]
        view.policy = self._corrections.of(
            self._aggregates.policy(host, snapshot.host_profile(host),
                                    view.bare_metal), snapshot.outcomes)
        # Requests only read these.
        self._switch_seen |= not view.bare_metal
        self._limit_seen = self._limit_seen or _is_limited(view)
        uuids = self._residency.residents(host)
        table.describe(host, view.policy, dict(zip(
            uuids, self._laws.of(snapshot, host, uuids))))

    def _new_table(self, snapshot):
        return admission.LoadTable(attachments=functools.partial(
            self._attachments, snapshot))

    def _attachments(self, snapshot, uuid):
        """Return what an instance is attached to, None when nobody knows.

        By the inventory, by what its host tells with it, or as this worker
        or another one has placed it.
        """
        found = snapshot.attachments(uuid)
        if found is None:
            view = self._hosts.get(self._residency.host_of(uuid))
            found = request.attachments_of_instance(
                view and view.instances and view.instances.get(uuid))
        return self._residency.attached(uuid) if found is None else found

    def _wanted(self, spec_obj, uuid):
        """Return the Attachments of a request."""
        return request.attachments_of(
            spec_obj, uuid and self._attachments(self._snapshot, uuid))

    def _demand(self, spec_obj):
        return request.demand_of(
            spec_obj, self._snapshot.law, self._snapshot.prior,
            None if self._snapshot.generation is None
            else self._default_law, self.report)

    def _adopt(self, snapshot):
        """Get ready for a new snapshot, in the background, and switch."""
        with self._lock:
            hosts = list(self._hosts)
            self._described.clear()
        table = self._new_table(snapshot)
        for first in range(0, len(hosts), _TOGETHER):
            some = hosts[first:first + _TOGETHER]
            for host in some:
                with self._lock:
                    self._describe(table, snapshot, host)
            # Nobody else has this table yet: whatever is asked now need not
            # be computed in the first request.
            table.assess(table.slots_of(some), self._default_law)
        with self._lock:
            # What was learned meanwhile went into the table in use.
            self._outdated |= self._described
            self._table, self._snapshot = table, snapshot
            self._multiples = self._corrections.multiples(snapshot.outcomes)

    def _tidy(self):
        """Bring the table up to date with the time, in the background."""
        with self._lock:
            # Of outcomes that have become old meanwhile.
            multiples = self._corrections.multiples(self._snapshot.outcomes)
            if multiples != self._multiples:
                self._multiples = multiples
                self._outdated.update(self._hosts)
            # The last host with a limit may have lost it.
            self._limit_seen = any(map(_is_limited, self._hosts.values()))


def _is_limited(view):
    """Return whether anything is checked for a host, or is not known yet."""
    policy = view.policy
    return policy is None or policy.profile is not None \
        or bool(policy.uplinks)


class _HostView:
    """What was last seen of a host."""

    __slots__ = ('instances', 'count', 'last', 'policy', 'bare_metal')

    def __init__(self):
        self.bare_metal = False  # whether its instances have no switch
        self.instances = None
        self.count = 0
        self.last = None
        self.policy = None       # HostPolicy to decide with, if one is known


class _Asked:
    """Hosts that were asked about together, and what Nova listed for them.

    :ivar hosts: list of their names
    :ivar views: their _HostView
    """

    __slots__ = ('hosts', 'views', 'listings', 'counts', 'lasts', '_slots')

    def __init__(self, hosts, views):
        self.hosts = hosts
        self.views = views
        self.listings = [view.instances for view in views]
        self.counts = [view.count for view in views]
        self.lasts = [view.last for view in views]
        self._slots = None, None

    def changed(self, listings, counts, lasts):
        """Return the places of lists of instances that are not as they were.

        :param listings: what Nova lists for each of the hosts
        :param counts: how many these are
        :param lasts: the last one of each
        """
        if counts == self.counts and lasts == self.lasts and all(
                map(operator.is_, listings, self.listings)):
            return ()
        places = range(len(listings))
        return sorted({
            *itertools.compress(places, map(operator.is_not, listings,
                                            self.listings)),
            *itertools.compress(places, map(operator.ne, counts,
                                            self.counts)),
            *itertools.compress(places, map(operator.is_not, lasts,
                                            self.lasts))})

    def slots(self, table):
        """Return the (h,) slots in a LoadTable that has all of them."""
        if self._slots[0] is not table:
            self._slots = table, np.array(table.slots_of(self.hosts),
                                          dtype=np.int64)
        return self._slots[1]


class _NoStore:
    """Stands in for a store whose URL cannot be used."""

    def __init__(self, error):
        self._error = error

    def read_changes(self, since):
        raise self._error

    read_claims = write_claims = purge_claims = read_changes
