# SPDX-License-Identifier: Apache-2.0
"""The state that the filter and the weigher of one scheduler process share.

The constructor of :class:`SchedulerState` opens nothing, because Nova creates
plugins before it forks its workers.
"""

from __future__ import annotations

import collections
from collections import abc
import dataclasses
import functools
import itertools
import operator
import threading
import time
import typing

from nova import objects
from nova.scheduler import host_manager
import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler.scheduler import decisions
from vswitch_aware_scheduler.scheduler import metrics
from vswitch_aware_scheduler.scheduler import nova_record
from vswitch_aware_scheduler.scheduler import problem_log
from vswitch_aware_scheduler.scheduler import request
from vswitch_aware_scheduler.scheduler import request_demand
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler.scheduler import resident_laws
from vswitch_aware_scheduler.scheduler import snapshot_source
from vswitch_aware_scheduler.scheduler import wiring
from vswitch_aware_scheduler.scheduler import worker_report
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import snapshot as snapshots
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law

LOG = logs.get_logger(__name__)

_HostState: typing.TypeAlias = host_manager.HostState

#: When a request starts, the claims of others are read unless the last reading
#: is younger than this. They arrive before the hosts are judged.
_FRESH_SECONDS = 0.02

#: Time limit in seconds for a transaction of claims, unless requests wait
#: longer. A slower one is retried.
_CLAIMS_TIMEOUT_SECONDS = 2.0

#: Number of refused requests that are compared with later withdrawals.
_MOST_REFUSED = 1000

#: A host without instances is dropped if no request had it for _DROP_SECONDS.
_DROP_SECONDS = 120.0

#: Interval in seconds at which it is stored which hosts requests have, and
#: which instances these hosts list, while no request has a new host. The lists
#: matter once a policy counts attachments.
_NOTE_SECONDS = 10.0

#: Pause after changed hosts were described in the background, as a multiple of
#: the time that it took: the first reading of a large cell changes each host
#: many times. A request describes the changed hosts that it needs itself.
_DESCRIBE_REST = 3.0

#: Number of hosts that are described and computed at a time while requests
#: wait, from nothing and after a few changes: about two milliseconds of
#: processor time. Then the background thread pauses, so that a waiting request
#: gets the lock and the interpreter.
_FEW_HOSTS = 4
_FEW_CHANGED = 8
_PAUSE_SECONDS = 0.0005

#: Maximum number of times that a host is described, on average, before a new
#: snapshot is used.
_MOST_ROUNDS = 5

#: Policy of a host whose policy cannot be determined.
_UNJUDGED = admission.HostPolicy(None, judged=False)

#: Hypervisor type of bare metal nodes, as Nova's Ironic driver reports it.
_IRONIC = 'ironic'


class SchedulerState:
    """The loads of all hosts in one scheduler process.

    Thread-safe. Methods may raise; the plugins catch. Only the first request
    in a process waits for a database. No method waits for another request.
    """

    def __init__(self, conf: typing.Any,
                 clock: abc.Callable[[], float] = time.time,
                 monotonic: abc.Callable[[], float] = time.monotonic) -> None:
        self._conf = conf.vswitch_scheduler
        self._clock = clock
        self._monotonic = monotonic
        self.report = problem_log.ProblemLog()
        self.metrics = metrics.Metrics()
        #: Roles of the plugins of Nova that share this.
        self.plugins = set()
        self._lock = threading.RLock()
        self._request = request.Request()
        self.decisions = decisions.Decisions(
            self._request, self._lock, lambda: self._clock(), self.report)
        self._ready = False
        self._all_aggregates: typing.Any = None

    def _prepare(self):
        """Read the configuration, once, at the first request."""
        conf = self._conf
        self._aggregates = wiring.make_aggregates(conf, self.report)
        if self._all_aggregates is not None:
            self._aggregates.take_all(self._all_aggregates)
        self._default_law = model.TrafficModel.on_off(
            **opts.default_demand(conf)).law
        self._residency = residency.Residency()
        self._statements = request_demand.Statements()
        self.claims = claims.Claims(
            wiring.make_store(conf, _claims_timeout_seconds(conf)),
            conf.claims_refresh_seconds, conf.claim_patience_seconds,
            self._lock, self._receive_claims, self._count_own,
            worker_report.name(), self.report)
        # The last requests that hosts were refused to.
        self._refused = collections.deque(maxlen=_MOST_REFUSED)
        # The first reading verifies the claims of others: those of the last
        # ten minutes may concern instances that were moved or deleted since.
        self._record = nova_record.NovaRecord(
            self._take_reading, self._residency, self._lock, conf,
            self.report, lambda: self._monotonic(),
            self.claims.wait_until_read)
        if conf.decisions_kept:
            self.decisions.open(
                wiring.make_store(conf), conf.decisions_kept,
                conf.decisions_age_seconds, worker_report.name())
        self._snapshot = snapshots.Snapshot()
        self._table = self._new_table(self._snapshot)
        self._policies = {}      # host -> HostPolicy, None: not yet determined
        self._listings = {}      # host -> instances that Nova lists for it
        self._counts = {}        # host -> number of these instances
        self._bare_metal = set()
        self._members = {}       # hosts that are listed for uplinks
        self._had_at = {}        # host -> time of the last request with it
        self._last_hosts = []    # hosts of the last request
        self._unread_cells = set()
        self._outdated = set()   # hosts to describe
        self._described = set()  # hosts described since the last adoption
        self._next_note = self._describe_at = float('-inf')
        self._unknown_law = None if conf.unknown_instance_policy == 'ignore' \
            else self._default_law
        # Whether any host seen has a virtual switch, and any has a limit.
        self._switch_seen = self._limit_seen = False
        self._unlimited = wiring.nothing_limited(conf)
        self._source = snapshot_source.SnapshotSource(
            wiring.make_store(conf), conf.snapshot_refresh_seconds,
            conf.snapshot_first_wait_seconds,
            conf.max_generation_age_seconds, self._clock,
            prepare=self._adopt, tidy=self._tidy,
            monotonic=lambda: self._monotonic())
        self.metrics.open(conf, self.report, self._gauges)
        self._worker = worker_report.WorkerReport(
            wiring.make_store(conf), self.report, self._facts, self._clock)
        self._ready = True

    def _ensure_ready(self):
        if not self._ready:
            with self._lock:
                if not self._ready:
                    self._prepare()

    # Called by the plugins.

    def assess(
            self, host_states: list[_HostState], spec_obj: objects.RequestSpec
    ) -> tuple[admission.Assessment, demand_rules.Demand] | None:
        """Judge every host for one request.

        :returns: (Assessment, Demand) in the order of ``host_states``, or None
            if the store has a problem and degraded_policy lets every host pass
        """
        self._ensure_ready()
        self._start()
        problem = self._source.current()[1]
        self.report('store', problem and (
            f'{problem}; ' + ('every host passes'
                              if self._conf.degraded_policy == 'pass' else
                              'deciding on what is known')))
        if problem and self._conf.degraded_policy == 'pass':
            return None
        self._record.wait()
        with self._lock:
            hosts = self._observe(host_states)
            demand = self._demand(spec_obj)
            assessment = self._judge(hosts, demand, self._wanted(
                spec_obj, demand.instance_uuid))
            self._request.judged = (spec_obj, demand.instance_uuid,
                                    self._version, host_states, assessment)
            self._request.passing = None
        self.report('switch profiles of hosts',
                    self._unlimited if self._switch_seen
                    and not self._limit_seen else None)
        return assessment, demand

    def _start(self):
        self.claims.start()
        self._record.start()
        self._worker.start()

    @property
    def _version(self):
        """What a judgement depends on, apart from the request."""
        return self._table, self._table.version

    def _judge(self, hosts, demand, attachments):
        uuid, rows = demand.instance_uuid, self._table.rows_of(hosts)
        exclude = uuid if self._residency.hosts_of(uuid) else None
        if demand.same_on_all_hosts:
            return self._table.assess(rows, demand.law, exclude, attachments,
                                      demand.project)
        return self._table.assess_each(
            rows, map(demand.law_on, map(self._policies.get, hosts)), exclude,
            attachments, demand.project)

    def hosts_filtered(self, host_states: list[_HostState]) -> None:
        """Store which hosts pass the filter, by the last judgement."""
        # The weigher may judge again, by a newer version, and keeps each host.
        self._request.filtered = self._request.judged[1:3]
        self._request.passing = host_states
        if not host_states:
            with self._lock:
                self._note_refused(_hosts(self._request.judged[3]))

    def is_rebuild(self, host_state: _HostState,
                   spec_obj: objects.RequestSpec) -> bool:
        """Return whether a request rebuilds an instance on its own host."""
        self._ensure_ready()
        with self._lock:
            counted_on = self._residency.hosts_of(
                request_demand.instance_uuid_of(spec_obj))
        return request_demand.is_rebuild_on(spec_obj, host_state, counted_on)

    def recall(
            self, host_states: list[_HostState], spec_obj: objects.RequestSpec
    ) -> tuple[admission.Assessment, np.ndarray] | None:
        """Return an Assessment of hosts that may just have been filtered.

        :returns: (Assessment, positions of the hosts in it), or None as
            :meth:`assess`
        """
        spec, uuid, version, judged_states, assessment = self._request.judged
        if (
            spec is spec_obj
            and uuid == request_demand.instance_uuid_of(spec_obj)
            and version == self._version
        ):
            if host_states == self._request.passing:
                # No later filter has refused a host.
                return assessment, np.flatnonzero(assessment.passing)
            position_of = dict(zip(map(id, judged_states), itertools.count()))
            positions = list(map(position_of.get, map(id, host_states)))
            if None not in positions:
                return assessment, np.array(positions)
        assessed = self.assess(host_states, spec_obj)
        return assessed and (assessed[0], np.arange(len(host_states)))

    # Called by the wrappers of Nova's methods, in the thread of the request.

    def request_started(
            self, aggregates: list[objects.Aggregate] | None = None) -> None:
        """Forget the previous request of this thread and read the changes."""
        self._request.begin(True)
        if not self._ready:
            self._all_aggregates = aggregates
            return
        if aggregates is not None:
            with self._lock:
                self._aggregates.take_all(aggregates)
        self._start()
        self._record.wake()
        self.claims.wake(_FRESH_SECONDS)

    def claim_host(self, provider_uuids: abc.Container[str],
                   spec_obj: objects.RequestSpec) -> bool:
        """Claim a host before Nova sends the claim to Placement.

        Others may have placed instances since the hosts were judged: the host
        is judged again, unless Nova was forced to use it.
        """
        host_state = self._request.host_state(provider_uuids)
        if not self._request.requesting or host_state is None \
                or self.is_rebuild(host_state, spec_obj):
            return True
        return self._claim(host_state, spec_obj)

    def host_consumed(self, host_state: _HostState,
                      spec_obj: objects.RequestSpec) -> None:
        """Count an instance on the host that Nova has selected for it."""
        uuid = request_demand.instance_uuid_of(spec_obj)
        self.decisions.placed(uuid, host_state.host)
        # An instance that was claimed counts on the host, too. That is no
        # rebuild, even if a tenant says so.
        if uuid is None or uuid in self._request.claims \
                or self.is_rebuild(host_state, spec_obj):
            return
        if not self._request.requesting:
            self._request.begin(False)
        self._request.filtered = None, None
        self._claim(host_state, spec_obj)

    def _claim(self, host_state, spec_obj):
        recent, host = self._request, host_state.host
        with self._lock:
            demand = self._demand(spec_obj)
            uuid = demand.instance_uuid
            attachments = self._wanted(spec_obj, uuid)
            filtered_uuid, version = recent.filtered
            judge = None
            if filtered_uuid == uuid:
                judge = functools.partial(self._fits, host_state, version,
                                          demand, attachments)
            values = {
                'instance_uuid': uuid, 'host': host,
                'source': min(self._residency.hosts_of(uuid), default=None),
                'law': dataclasses.replace(
                    demand, guaranteed=None).law_on(
                        self._policies.get(host)),
                'rule': demand.rule, 'guaranteed': demand.guaranteed,
                'attachments': attachments, 'conflicts': recent.conflicts}
        pending = self.claims.claim(judge, not recent.missed, **values)
        recent.missed |= pending.missed
        self.metrics.took(metrics.CLAIM, pending.age())
        if pending.admitted:
            recent.claims[uuid] = pending
            return True
        recent.conflicts += 1
        LOG.debug('vswitch: %s has no room any more for instance %s',
                  host_state, uuid)
        # Otherwise Nova would offer the host as an alternate.
        host_state.allocation_candidates = []
        self._record_refusal(demand, spec_obj, attachments)
        return False

    def _fits(self, host_state, version, demand, attachments):
        """Return whether a host has room, for a claim. Called with the lock.

        Other workers wait, so that no other host is described.
        """
        host, behind = host_state.host, self._aggregates.behind
        if host not in self._policies:
            # It was dropped while the request waited.
            self._observe([host_state])
        shared = set(behind.get(host, ()))
        self._describe_due(among={host, *(
            other for other, uplinks in behind.items()
            if not shared.isdisjoint(uplinks))} if shared else {host})
        return version == self._version or bool(self._judge(
            [host], demand, attachments).passing[0])

    def _record_refusal(self, demand, spec_obj, attachments):
        host_states = self._request.judged[3]
        with self._lock:
            hosts = self._observe(host_states)
            assessment = self._judge(hosts, demand, attachments)
            self._note_refused(hosts)
        self.decisions.judged(assessment, demand, spec_obj,
                              bool(assessment.passing.any()))

    def _note_refused(self, hosts):
        """Store which claims may have caused a refusal, with the lock."""
        recent, hosts = self._request, set(hosts)
        if recent.refusal is None:
            # A request that has several conflicts counts once.
            recent.refusal = request.RefusedRequest()
            self._refused.append(recent.refusal)
        recent.refusal.claimed.update(
            claim.instance_uuid for claim in self._residency.claims
            if claim.host in hosts)

    def _withdrawn(self, instance_uuid):
        """Count the refusals by a claim that is void now, with the lock."""
        for refusal in self._refused:
            if instance_uuid in refusal.claimed and not refusal.withdrawn:
                refusal.withdrawn = True
                self._count_refusal(refusal)

    def _count_refusal(self, refusal):
        self.claims.counts['requests_refused_by_withdrawn_claims'] += \
            refusal.failed and refusal.withdrawn

    def claim_failed(self, instance_uuid: str) -> None:
        """Withdraw a claim of this thread, which Placement has refused."""
        pending = self._request.claims.pop(instance_uuid, None)
        if pending is not None:
            self._withdraw(pending)

    def _withdraw(self, pending):
        uuid = pending.stored.instance_uuid
        with self._lock:
            self._residency.withdraw(uuid, pending.stored.host)
            self._withdrawn(uuid)
        self.claims.withdraw(pending)

    def _count(self, stored, foreign=False):
        """Count an instance where it was claimed, with the lock."""
        uuid = stored.instance_uuid
        if self._residency.claim(stored, self._monotonic(), foreign):
            self._withdrawn(uuid)
        # Nova's record contains the flavor but no guarantee of ports.
        if self._statements.add(uuid, stored.guaranteed, stored.attachments):
            self._outdated.update(filter(self._policies.__contains__,
                                         self._residency.hosts_of(uuid)))

    def _count_own(self, stored, admitted):
        """Count a claim of this worker, or no longer, with the lock."""
        if admitted:
            self._count(stored)
        else:
            self._residency.withdraw(stored.instance_uuid, stored.host)

    def request_finished(self, failed: bool) -> None:
        """End the request of this thread; Nova withdraws a failed one."""
        pending_claims, refusal = self._request.claims, self._request.refusal
        self.decisions.request_finished(failed)
        self._request.begin(False)
        if failed and refusal is not None:
            with self._lock:
                refusal.failed = True
                self._count_refusal(refusal)
        if failed:
            for pending in pending_claims.values():
                self._withdraw(pending)

    # Called by the background threads.

    def _take_reading(self, reading):
        with self._lock:
            ended = self._residency.take(reading)
            for claim in ended:
                hosts = self._residency.hosts_of(claim.instance_uuid)
                self.claims.counts['claims_elsewhere'] += bool(
                    hosts and claim.host not in hosts and not claim.foreign)
        for claim in ended:
            LOG.debug('vswitch: claim of instance %s on host %s ended',
                      claim.instance_uuid, claim.host)
        began = self._monotonic()
        if began >= self._describe_at:
            self._describe_in_turn()
            now = self._monotonic()
            self._describe_at = now + _DESCRIBE_REST * (now - began)

    def _receive_claims(self, foreign_claims):
        with self._lock:
            for claim in foreign_claims:
                if claim.state == store.CLAIMED:
                    self._count(claim, foreign=True)
                else:
                    self._residency.withdraw(claim.instance_uuid, claim.host,
                                             foreign=True)
                    self._withdrawn(claim.instance_uuid)

    # Called to display the state.

    @property
    def generation(self) -> int | None:
        """Number of the generation of the store in use, or None."""
        generation = self._ready and self._snapshot.generation
        return generation.number if generation else None

    def counted(self) -> dict[str, dict[str, typing.Any]]:
        """Return which instances count on which host.

        :returns: {host: {'profile': name or None, 'instances': [uuid],
            'claimed': [uuid], 'claimed_by_others': [uuid]}}; claimed instances
            are also listed as instances
        """
        if not self._ready:
            return {}
        with self._lock:
            claimed, foreign = {}, {}
            for claim in self._residency.claims:
                (foreign if claim.foreign else claimed).setdefault(
                    claim.host, []).append(claim.instance_uuid)
            return {host: {
                'profile': policy and policy.profile and policy.profile.name,
                'instances': self._residency.residents(host),
                'claimed': claimed.get(host, []),
                'claimed_by_others': foreign.get(host, [])}
                for host, policy in self._policies.items()}

    def _gauges(self):
        with self._lock:
            claims = [claim.foreign for claim in self._residency.claims]
            hosts = len(self._policies)
        ages: list[typing.Any] = list(self._record.ages().values())
        return {
            'degraded': self._source.current()[1] is not None,
            'generation': self.generation, 'hosts': hosts,
            'claims': len(claims) - sum(claims),
            'claims_of_others': sum(claims),
            'record_age_seconds': max(ages) if ages and None not in ages
            else None, 'risks': self._risks(),
            'counts': dict(self.claims.counts)}

    def _risks(self):
        with self._lock:
            policies = {
                host: policy for host, policy in self._policies.items()
                if policy is not None and policy.profile is not None}
            assessment = self._table.assess(self._table.rows_of(policies),
                                            rate_law.SILENT)
        of_profile = {}
        for policy, overload, is_above in zip(
                policies.values(), assessment.overload_probability.tolist(),
                assessment.above.tolist()):
            of_profile.setdefault(policy.profile.name, []).append(
                (overload, is_above))
        return {name: metrics.Risk(
            len(hosts), sum(overload for overload, _ in hosts) / len(hosts),
            max(overload for overload, _ in hosts),
            sum(above for _, above in hosts))
            for name, hosts in of_profile.items()}

    def refresh(self) -> None:
        """Read the store and Nova's record now."""
        self._ensure_ready()
        self._start()
        self._source.refresh()
        self._record.refresh()

    def stop(self) -> None:
        """End the background threads, if they run."""
        self.decisions.stop()
        self.metrics.close()
        if self._ready:
            self._source.stop()
            self._record.stop()
            self._worker.stop()
            self.claims.stop()

    # The hosts.

    def _observe(self, host_states):
        """Store what Nova reports about some hosts. Return their names."""
        now, hosts = self._monotonic(), _hosts(host_states)
        # Most requests have the same hosts in the same order. Functions that
        # get the same list object again can reuse their results.
        if hosts == self._last_hosts:
            hosts = self._last_hosts
        note = now >= self._next_note or hosts is not self._last_hosts \
            and not all(map(self._had_at.__contains__, hosts))
        self._last_hosts = hosts
        if note:
            self._note(hosts, host_states, now)
        # The instances that hosts list matter only in unread cells, and if
        # attachments are counted.
        if note or self._unread_cells or self._table.counts_attachments:
            self._take_lists(hosts, host_states)
        for host in self._aggregates.observe(
                hosts, [host_state.aggregates for host_state in host_states]):
            self._policies[host] = None
            self._outdated.add(host)
        # Instances on hosts that no request has use the uplinks as well.
        self._members = self._aggregates.members
        self._describe_due()
        return hosts

    def _note(self, hosts, host_states, now):
        self._next_note = now + _NOTE_SECONDS
        for host, host_state in zip(hosts, host_states):
            if host not in self._had_at:
                self._policies[host] = None
                self._outdated.add(host)
                if getattr(host_state, 'hypervisor_type', 0) == _IRONIC:
                    self._bare_metal.add(host)
        self._had_at.update(dict.fromkeys(hosts, now))

    def _take_lists(self, hosts, host_states):
        cells = [host_state.cell_uuid for host_state in host_states]
        listings = [host_state.instances for host_state in host_states]
        counts = list(map(len, listings))
        if self._table.counts_attachments:
            # A new instance also brings its attachments.
            self._outdated.update(itertools.compress(hosts, map(
                operator.ne, counts, map(self._counts.get, hosts))))
        self._listings.update(zip(hosts, listings))
        self._counts.update(zip(hosts, counts))
        self._residency.observe(hosts, cells, listings)
        self._unread_cells = self._unread_cells.union(
            cells) - self._residency.complete
        unread = self._unread_cells.intersection(cells)
        self.report('hosts of unread cells', (
            f'{len(unread)} cells could not be read yet, '
            f"{min(map(str, unread))} among them: using Nova's lists of "
            f'instances') if unread else None)

    def _describe_due(self, most=None, among=None):
        """Update the description of changed hosts, and return these hosts."""
        due = self._outdated
        due.update(filter(self._policies.__contains__,
                          self._residency.take_changed()))
        hosts = list(itertools.islice(
            due if among is None else due & among, most))
        for host in hosts:
            self._describe(self._table, self._snapshot, host)
        self._described.update(hosts)
        due.difference_update(hosts)
        return hosts

    def _describe_in_turn(self):
        """Describe changed hosts in the background instead of in a request."""
        while True:
            with self._lock:
                described = self._describe_due(_FEW_CHANGED)
                if not described:
                    return
                self._table.assess(self._table.rows_of(described),
                                   self._default_law)
            time.sleep(_PAUSE_SECONDS)

    def _describe(self, table, snapshot, host):
        uuids = self._residency.residents(host)
        try:
            policy = self._policies[host] = self._aggregates.policy(
                host, snapshot.host_profile(host), host in self._bare_metal)
            # Requests only read these dicts.
            self._switch_seen |= host not in self._bare_metal
            self._limit_seen = self._limit_seen or _is_limited(policy)
            table.describe(host, policy, dict(zip(
                uuids, resident_laws.laws_of(
                    uuids, host, policy, snapshot, self._residency,
                    self._statements, self._unknown_law))))
            self.report(f'host {host}', None)
        except Exception as error:
            # An error in one host does not affect the other hosts.
            table.describe(host, _UNJUDGED, {})
            self._policies[host] = _UNJUDGED
            self.report(f'host {host}', (
                f'{type(error).__name__}: {error}; it passes unjudged'))

    def _new_table(self, snapshot):
        return admission.LoadTable(
            attachments=functools.partial(self._attachments, snapshot),
            debts=snapshot.debts() if self._conf.error_budgets else None)

    def _attachments(self, snapshot, uuid):
        """Return the Attachments of an instance, by the best source."""
        attachments = snapshot.attachments(uuid)
        for host in () if attachments is not None \
                else self._residency.hosts_of(uuid):
            attachments = request_demand.attachments_of_instance(
                (self._listings.get(host) or {}).get(uuid))
            if attachments is not None:
                break
        if attachments is None:
            return self._statements.attachments(uuid)
        return attachments

    def _wanted(self, spec_obj, uuid):
        return request_demand.attachments_of(
            spec_obj, uuid and self._attachments(self._snapshot, uuid))

    def _demand(self, spec_obj):
        """Return the Demand of a request, determined once for a snapshot."""
        uuid = request_demand.instance_uuid_of(spec_obj)
        spec, known_uuid, snapshot, demand = self._request.demand
        if spec is not spec_obj or known_uuid != uuid \
                or snapshot is not self._snapshot:
            demand = request_demand.demand_of(
                spec_obj, self._snapshot, None
                if self._snapshot.generation is None else self._default_law,
                self.report)
            self._request.demand = spec_obj, uuid, self._snapshot, demand
        return demand

    def _adopt(self, snapshot):
        """Prepare the table of a new snapshot in the background and use it."""
        table = self._new_table(snapshot)
        with self._lock:
            # Hosts that change meanwhile are described again: only the table
            # in use has these changes.
            due = self._described = set(self._policies)
        for _ in range(0, _MOST_ROUNDS * len(due), _FEW_HOSTS):
            with self._lock:
                few_hosts = list(itertools.islice(due, _FEW_HOSTS))
                due.difference_update(few_hosts)
            for host in few_hosts:
                with self._lock:
                    self._describe(table, snapshot, host)
            # No request uses this table yet. Computing its values now saves
            # the first request the time.
            table.prepare(few_hosts, self._default_law, self._table)
            time.sleep(_PAUSE_SECONDS)
            if not due:
                break
        with self._lock:
            self._outdated.update(due)
            replaced_table, self._table, self._snapshot = (
                self._table, table, snapshot)
        # Freeing all residents at once would stop all other threads.
        for _ in replaced_table.drop_residents(_FEW_CHANGED):
            time.sleep(_PAUSE_SECONDS)

    def _tidy(self):
        with self._lock:
            dropped = self._drop_hosts()
            # The only host with a limit may have lost it.
            self._limit_seen = any(map(_is_limited, self._policies.values()))
        if dropped:
            # A LoadTable never drops a host, so that a new one is needed.
            self._adopt(self._snapshot)
        self._describe_in_turn()

    def _facts(self):
        return (self.plugins, None if self._snapshot.generation is None
                else len(self._snapshot), self._record.ages(),
                opts.alike(self._conf), dict(self.claims.counts))

    def _drop_hosts(self):
        """Drop the hosts that requests no longer have. Return their number."""
        # Count from the latest request: without requests no host is outdated.
        oldest = max(self._had_at.values(), default=0.0) - _DROP_SECONDS
        outdated_hosts = [host for host in self._policies
                          if self._had_at.get(host, float('-inf')) < oldest
                          and host not in self._members
                          and not self._residency.residents(host)]
        for host in outdated_hosts:
            for by_host in (self._had_at, self._policies, self._listings,
                            self._counts):
                by_host.pop(host, None)
            self._bare_metal.discard(host)
            self._outdated.discard(host)
            self._residency.forget_host(host)
            self._aggregates.forget(host)
            self._table.forget(host)
            # Otherwise the worker would report these problems for ever.
            for topic in (f'host {host}',
                          f'host {host} vswitch_weight_multiplier'):
                self.report.forget(topic)
        # A dropped host may be among the hosts of the last request.
        self._last_hosts = []
        return len(outdated_hosts)


def _claims_timeout_seconds(conf):
    """Return the time limit for a transaction of claims, in seconds."""
    return max(min(conf.store_timeout_seconds, _CLAIMS_TIMEOUT_SECONDS),
               1.25 * conf.claim_patience_seconds + 1.5)


def _hosts(host_states):
    # Three times as fast as map() with operator.attrgetter.
    return [host_state.host for host_state in host_states]


def _is_limited(policy):
    """Return whether a policy limits its host, or is still unknown."""
    return policy is None or policy.profile is not None \
        or bool(policy.uplinks)
