# SPDX-License-Identifier: Apache-2.0
"""The hosts and uplinks of a store, their load and their budgets.

The inventory in the store has the host of each instance, the facts of hosts
have their policies, and the scheduler's LoadTable computes the sums. No
service is asked. Commands and the report add what they show.
"""

import dataclasses
import functools
import typing

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import snapshot as snapshots
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['FleetView', 'Load']

#: Number of hosts that are computed between two reports of progress.
_HOSTS_AT_ONCE = 200


@dataclasses.dataclass(frozen=True)
class Load:
    """The load of a host or of an uplink.

    :ivar overload_probability: share of time above a limit, 0 to 1
    :ivar loss_fraction: lost share of the traffic, 0 to 1
    """

    overload_probability: float
    loss_fraction: float
    utilisation: float
    limit: float | None
    above: bool


class FleetView:
    """The hosts of one state of the store, as the filter judges them.

    :param default_law: RateLaw of an instance about which nothing is known;
        None: it counts as silent
    :param uses_budgets: whether error budgets change decisions
    :param ignores_unknown: whether a resident about which nothing is known
        counts as silent; a new instance has the default law
    :param make_policies: callable(), returns (HostPolicies, UplinkPolicies)
        for hosts whose facts no modeler has stored yet; None: such hosts are
        not judged
    :ivar facts_read_at: when a modeler stored the facts of hosts, seconds UTC,
        or None
    :ivar flavors: {name of a flavor: its extra specs}
    :ivar debts: {(kind, name): Debt}, empty unless they change decisions
    :ivar uplink_table: LoadTable whose hosts are the uplinks
    """

    def __init__(self, store: model_store.Store,
                 default_law: rate_law.RateLaw | None = None,
                 uses_budgets: bool = False, ignores_unknown: bool = False,
                 make_policies: typing.Callable | None = None):
        self.store = store
        self.snapshot = snapshots.Snapshot().updated(store.read_changes())
        flavors = store.fleet('flavor')
        self.flavors, self.flavors_read_at = flavors.facts, flavors.read_at
        self.error_budgets = store.error_budgets()
        self.debts = self.snapshot.debts() if uses_budgets else {}
        self._default_law = default_law
        self._resident_default = None if ignores_unknown else default_law
        self._instances = {}     # host -> {uuid: (flavor, project)}
        for uuid, (host, flavor, project, *_) \
                in self.snapshot.placements().items():
            if host:
                self._instances.setdefault(host, {})[uuid] = flavor, project
        self._read_policies(make_policies)
        self._demands = {}       # host -> {uuid: (RateLaw, rule)}
        self.host_table = admission.LoadTable(
            attachments=self.snapshot.attachments, debts=self.debts)
        self.uplink_table = admission.LoadTable(
            attachments=self._is_tunnelled, debts={
                (model_store.HOST, name): debt
                for (kind, name), debt in self.debts.items()
                if kind == model_store.UPLINK})

    @functools.cached_property
    def inventory(self) -> model_store.InventoryState | None:
        """:class:`.InventoryState` of the store, or None."""
        return self.store.inventory()

    @functools.cached_property
    def charges(self) -> list[model_store.Charge]:
        """List of :class:`.Charge` of the last seven days."""
        return self.store.charges()

    @functools.cached_property
    def workers(self) -> list[model_store.Worker]:
        """List of :class:`~.Worker` of schedulers."""
        return self.store.workers()

    def read_at(self, kind: str) -> float | None:
        """Return when facts were last read completely, or None.

        :param kind: one of :data:`.FLEET_KINDS`
        """
        return self.store.fleet(kind).read_at

    def _read_policies(self, make_policies):
        """Read the facts of hosts; compute the policies of hosts without."""
        stored = self.store.fleet('host')
        self.facts_read_at = stored.read_at
        self.policies, self.uplinks, self.problems = policy_in_force.unpack(
            stored.facts, self.store.fleet('uplink').facts)
        self.origins = {host: data.get('origins') or {}
                        for host, data in stored.facts.items()}
        hosts = self._instances.keys() | {
            profile.host for profile in self.store.host_profiles()}
        missing = hosts - stored.facts.keys()
        if missing and make_policies is not None:
            computed = facts.policies(self.store, *make_policies(),
                                      placed_on=hosts)
            self.problems.update(computed.problems)
            for host in missing:
                self.policies[host] = computed.hosts[host]
                self.origins[host] = computed.origins[host]
            if not stored.facts:
                self.uplinks = computed.uplinks
        for host in (hosts | stored.facts.keys()) - self.policies.keys():
            self.policies[host] = admission.HostPolicy(None, judged=False)

    def _is_tunnelled(self, uuid):
        attachments = self.snapshot.attachments(uuid)
        return attachments and attachments.all_tunnelled

    def instances(self, host: str) -> dict[str, tuple]:
        """Return {uuid: (flavor, project)} of the instances on a host."""
        return self._instances.get(host, {})

    def demands(self, host: str) -> dict[str, tuple[rate_law.RateLaw, str]]:
        """Return {uuid: (RateLaw, kind of the rule that gave it)} of a host.

        The kinds are those of :data:`.demand.KINDS`.
        """
        if host not in self._demands:
            policy, demands = self.policies[host], {}
            for uuid, (flavor, project) in self.instances(host).items():
                demand = self._demand(uuid, flavor, project,
                                      self._resident_default)
                demands[uuid] = demand.law_on(policy), demand.kind
            self._demands[host] = demands
        return self._demands[host]

    def demand(self, uuid: str | None, flavor: str | None, project: str | None,
               report: typing.Callable | None = None) -> demand_rules.Demand:
        """Return the :class:`.Demand` of a request, as a scheduler does.

        :param uuid: uuid of the instance, or None for a new one
        :param report: as in :func:`.demand.of_instance`
        """
        return self._demand(uuid, flavor, project, self._default_law, report)

    def _demand(self, uuid, flavor, project, default, report=None):
        return demand_rules.of_instance(
            self.snapshot, uuid, [(flavor, self.flavors.get(flavor) or {})],
            project, default, report=report)

    def laws(self, host: str) -> dict[str, rate_law.RateLaw]:
        """Return {uuid: RateLaw} of the instances on a host."""
        return {uuid: law for uuid, (law, _) in self.demands(host).items()}

    def loads(self, hosts: list[str],
              progress: typing.Callable | None = None) -> list[Load]:
        """Return the :class:`Load` of hosts, without their uplinks."""
        alone = {}       # id of a policy -> it, and it without its uplinks
        loads = []
        for first in range(0, len(hosts), _HOSTS_AT_ONCE):
            if progress is not None:
                progress(first, len(hosts))
            described = []
            for host in hosts[first:first + _HOSTS_AT_ONCE]:
                policy = self.policies[host]
                if id(policy) not in alone:
                    alone[id(policy)] = policy, dataclasses.replace(
                        policy, uplinks=())
                described.append((host, alone[id(policy)][1],
                                  self.laws(host)))
            loads += _loads(self.host_table, described)
        return loads

    def overload_probabilities(
            self, progress: typing.Callable | None = None
    ) -> dict[str, float]:
        """Return {host: overload probability without its uplinks}."""
        hosts = list(self.policies)
        return {host: load.overload_probability for host, load
                in zip(hosts, self.loads(hosts, progress))}

    @functools.cached_property
    def hosts_behind(self) -> dict[str, list[str]]:
        """{name of an uplink: list of the hosts behind it}."""
        behind = {}
        for host, policy in self.policies.items():
            for uplink in policy.uplinks:
                behind.setdefault(uplink.name, []).append(host)
        return behind

    def uplink_loads(self, names: list[str]) -> list[Load]:
        """Return the :class:`Load` of some uplinks."""
        behind = self.hosts_behind
        return _loads(self.uplink_table, [
            (name, self.uplinks[name].policy,
             {uuid: law for host in behind.get(name, ())
              for uuid, law in self.laws(host).items()})
            for name in names])


def _loads(table, described):
    """Describe some rows of a table. Return their :class:`Load`."""
    table_rows = [table.describe(*row) for row in described]
    assessed = table.assess(table_rows, rate_law.SILENT)
    return [Load(*values) for values in zip(
        assessed.overload_probability.tolist(),
        assessed.loss_fraction.tolist(), assessed.utilisation.tolist(),
        map(assessed.limit, range(len(table_rows))), assessed.above.tolist())]
