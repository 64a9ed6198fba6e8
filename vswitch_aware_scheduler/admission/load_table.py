# SPDX-License-Identifier: Apache-2.0
"""The load of hosts, kept ready for the next question.

:class:`LoadTable` keeps, for every host, what its residents ask of each limit
of its switch, as look-up tables; :meth:`LoadTable.assess` answers for any
number of hosts at once by table look-ups.

Hosts may share an uplink: then the residents of all of them together are held
against its limits too, in a table of the same kind.

Derivation: reference/admission.rst.
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.admission import assessment
from vswitch_aware_scheduler.admission import limit_sums
from vswitch_aware_scheduler.admission import policy as admission_policy
from vswitch_aware_scheduler.admission import shared_uplinks
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import tunnels

__all__ = ['LoadTable']

#: Probabilities are compared with this relative tolerance: equality happens.
_TOLERANCE = 1e-9

#: Probabilities are known up to this, and to that relative tolerance.
_NOISE = 1e-12

# Columns of LoadTable._rules.
_KNOWN, _PASSES, _AVERAGE, _LIMIT, _ENFORCED, _RULES = range(6)


class LoadTable:
    """The load of hosts, kept ready for the next question.

    Callers rely on these alone: :meth:`describe` sets a host, :meth:`change`
    adds and removes residents, :meth:`assess` and :meth:`assess_each` judge
    hosts by slot, and :attr:`version` changes whenever an answer may. They
    may be called in any order. What a host asks of its limits is computed
    when somebody first asks about the host: to have a new table ready before
    it is used, ask it about its hosts, some at a time.

    :param cells: cells of the look-up tables up to a capacity
    :param attachments: callable, instance uuid -> :class:`.Attachments`, None
        when nothing is known of them; asked only where something is counted.
        An instance without any interface counts as one of which nothing is
        known: it may get one while it runs.
    """

    def __init__(self, cells=256, attachments=lambda uuid: None):
        self._cells = cells
        self._attachments = attachments
        self._tunnels = tunnels.TunnelTable()
        # Remote VTEPs cannot be counted without knowing every host.
        self._all_attached = False
        self._uplinks = None     # SharedUplinks, once there are any
        self._hosts = {}         # host -> _Host
        self._slots = []         # slot -> _Host
        self._slot_of = {}       # host -> slot
        self._rules = np.zeros((0, _RULES))              # by slot
        self._sums = limit_sums.LimitSums(cells, self._slots)
        #: Counts changes: an Assessment is out of date when the version
        #: is another one.
        self.version = 0

    def __contains__(self, host):
        return host in self._hosts

    def __len__(self):
        return len(self._hosts)

    def slot(self, host):
        """Return the slot of a host that was described, else None."""
        return self._slot_of.get(host)

    def slots_of(self, hosts):
        """Return the list of :meth:`slot` of some hosts."""
        return list(map(self._slot_of.get, hosts))

    def describe(self, host, policy, residents):
        """Set what a host can carry and who is on it.

        :param host: name
        :param policy: HostPolicy
        :param residents: mapping of instance uuid to RateLaw
        :returns: the host's slot, for :meth:`assess`
        """
        entry = self._hosts.get(host)
        if entry is None:
            entry = _Host(host, len(self._slots))
            self._hosts[host] = entry
            self._slots.append(entry)
            self._slot_of[host] = entry.slot
            if len(self._rules) < len(self._slots):
                self._rules = np.concatenate([
                    self._rules, np.zeros((len(self._slots), _RULES))])
        elif entry.policy is policy and entry.residents == residents:
            if entry.slot in self._tunnels:
                self._attach(entry)
            if policy.uplinks:
                self._uplinks.renew(policy.uplinks, residents)
            return entry.slot
        self.version += 1
        if policy.uplinks or entry.policy and entry.policy.uplinks:
            self._follow_uplinks(entry, policy, residents)
        known, entry.residents = entry.residents, dict(residents)
        if policy.counts or self._all_attached or entry.slot in self._tunnels:
            self._attach(entry, policy)
        if entry.policy is policy:
            came = [law for uuid, law in residents.items()
                    if known.get(uuid) != law]
            self._sums.change(entry, came, [
                law for uuid, law in known.items()
                if residents.get(uuid) != law])
        else:
            entry.policy = policy
            self._set_limits(entry)
        return entry.slot

    def change(self, changes):
        """Set who has come to some hosts and who has gone.

        :param changes: {host: (came, went)}: mapping of instance uuid to
            RateLaw, and instance uuids
        :returns: list of the hosts that this cannot be: what they have is no
            change of what was described; :meth:`describe` them
        """
        unlike = []
        for host, (came, went) in changes.items():
            entry = self._hosts.get(host)
            residents = {} if entry is None else entry.residents
            if entry is None or not residents.keys().isdisjoint(came) \
                    or not all(map(residents.__contains__, went)):
                unlike.append(host)
                continue
            self.version += 1
            gone = {uuid: residents.pop(uuid) for uuid in went}
            self._sums.change(entry, list(came.values()),
                              list(gone.values()))
            residents.update(came)
            if entry.policy.uplinks:
                self._uplinks.change(entry.policy.uplinks, came, gone)
            if entry.slot in self._tunnels:
                self._attach_changed(entry.slot, came, went)
        return unlike

    def _follow_uplinks(self, entry, policy, residents):
        """Report to the uplinks of a host, old and new, what changes."""
        if self._uplinks is None:
            self._uplinks = shared_uplinks.SharedUplinks(
                self._attachments, lambda attachments: LoadTable(
                    self._cells, attachments))
        before = entry.policy.uplinks if entry.policy else ()
        names = {one.name for one in before}
        stay = [one for one in policy.uplinks if one.name in names]
        names = {one.name for one in stay}
        self._uplinks.belongs(entry.slot, policy.uplinks)
        self._uplinks.change([one for one in before if one.name not in names],
                             {}, entry.residents)
        self._uplinks.change([one for one in policy.uplinks
                              if one.name not in names], residents, {})
        self._uplinks.change(
            stay, dict(residents.items() - entry.residents.items()),
            dict(entry.residents.items() - residents.items()))
        self._uplinks.renew(policy.uplinks, residents)

    def _attach(self, entry, policy=None):
        """Count what the residents of a host are attached to."""
        policy = policy or entry.policy
        if 'vteps' in policy.counts and not self._all_attached:
            self._all_attached = True
            for other in self._slots:
                if other is not entry:
                    self._attach(other)
        if policy.counts or self._all_attached:
            self._tunnels.describe(entry.slot, policy.counts, {
                uuid: self._attachments(uuid) or tunnels.UNKNOWN
                for uuid in entry.residents})
        else:
            self._tunnels.forget(entry.slot)

    def _attach_changed(self, slot, came, went):
        for uuid in went:
            self._tunnels.remove(slot, uuid)
        for uuid in came:
            self._tunnels.add(slot, uuid,
                              self._attachments(uuid) or tunnels.UNKNOWN)

    def residents(self, host):
        """Return {instance uuid: RateLaw} of a host; not to be changed."""
        return self._hosts[host].residents

    def policy(self, host):
        """Return the HostPolicy of a host."""
        return self._hosts[host].policy

    def renew(self, host, uuids):
        """Read again what some instances are attached to."""
        slot = self._slot_of[host]
        if slot in self._tunnels:
            for uuid in uuids:
                self._tunnels.renew(
                    slot, uuid, self._attachments(uuid) or tunnels.UNKNOWN)

    # What hosts ask of their limits.

    def _set_limits(self, entry):
        """Take in what a host can carry."""
        policy, profile = entry.policy, entry.policy.profile
        risk = policy.overload_probability
        self._rules[entry.slot] = (
            profile is not None, profile is not None or policy.pass_unknown,
            policy.policy == admission_policy.AVERAGE,
            risk * (1 + _TOLERANCE) + _NOISE if risk else 0.0,
            policy.enforced)
        self._sums.set_limits(entry)

    def assess(self, slots, law, exclude=None, attachments=tunnels.UNKNOWN):
        """Judge what one more instance would do to each of some hosts.

        :param slots: (h,) int, of hosts that were described
        :param law: RateLaw of the instance
        :param exclude: uuid of the instance itself when it moves: where it
            is a resident, it is not counted twice
        :param attachments: its :class:`.Attachments`
        :returns: Assessment, (h,) arrays in the order of ``slots``
        """
        slots = np.asarray(slots, dtype=np.int64)
        attachments = attachments or tunnels.UNKNOWN
        own = [] if exclude is None else [
            i for i, slot in enumerate(slots.tolist())
            if exclude in self._slots[slot].residents]
        full = (self._tunnels.refused(slots, attachments, exclude)
                if self._tunnels.limited
                else np.zeros(slots.size, dtype=np.int64))
        result = self._assess(slots, law, full)
        result._candidate = attachments, exclude
        for i in own:
            entry = self._slots[slots[i]]
            others = {uuid: one for uuid, one in entry.residents.items()
                      if uuid != exclude}
            alone = LoadTable(self._cells)
            slot = alone.describe(entry.host, dataclasses.replace(
                entry.policy, uplinks=()), others)
            result.replace([i], alone._assess(np.array([slot]), law,
                                              full[[i]]))
        if self._uplinks is not None:
            self._uplinks.judge(result, law, exclude, attachments)
        return result

    def stretch(self, slot):
        """Return :meth:`.LimitSums.stretch` of a host."""
        return self._sums.stretch(slot)

    def assess_each(self, slots, laws, exclude=None,
                    attachments=tunnels.UNKNOWN):
        """Judge what one instance would do whose law differs by host.

        :param slots: (h,) int, of hosts that were described
        :param laws: h RateLaw
        :param exclude: as in :meth:`assess`, which this one is otherwise
        """
        positions = {}
        for i, law in enumerate(laws):
            positions.setdefault(law, []).append(i)
        slots = np.asarray(slots, dtype=np.int64)
        first, *others = positions or [model.SILENT]
        result = self.assess(slots, first, exclude, attachments)
        for law in others:
            where = positions[law]
            result.replace(where, self.assess(slots[where], law, exclude,
                                              attachments))
        return result

    def _assess(self, slots, law, full):
        load = self._sums.with_source(slots, law)
        rules = self._rules[slots].T                # (_RULES, h)
        # The union bound: never less than the risk of any limit at once.
        overload = np.minimum(load.overload_probability.sum(axis=0), 1.0)
        # What is more than a float can hold is lost as good as entirely.
        finite = np.isfinite(load.mean)
        loss = np.divide(load.excess, load.mean,
                         out=np.where(finite, 0.0, 1.0),
                         where=finite & (load.excess > 0))
        loss = np.minimum(loss.sum(axis=0), 1.0)
        average = rules[_AVERAGE] > 0
        too_much = load.mean > load.capacity * limit_sums.SLACK
        too_high = load.instance_peak > load.vm_peak * limit_sums.SLACK
        reason = np.full(slots.size, assessment.ADMITTED)
        # The first check that refuses is reported, so it is written last.
        for which, why in (
                (~average & self._exceeds(slots, overload),
                 assessment.OVERLOAD),
                (average & too_much.any(axis=0), assessment.MEAN),
                (too_high.any(axis=0), assessment.PEAK),
                (full > 0, assessment.TOO_MANY),
                (rules[_PASSES] == 0, assessment.NO_PROFILE)):
            reason[which] = why
        with np.errstate(invalid='ignore'):
            used = np.where(np.isfinite(load.capacity),
                            load.mean / load.capacity, 0.0)
        return assessment.Assessment(
            self, slots, reason, overload, loss,
            used.max(axis=0, initial=0.0), rules[_KNOWN] > 0,
            rules[_ENFORCED] > 0, load.mean.T, load.instance_peak.T,
            load.capacity.T, load.vm_peak.T, rules[_LIMIT], full.copy())

    def _exceeds(self, slots, overload):
        """Return which hosts have more overload than their limit.

        A smooth tail is known to its error, and no instance is refused for
        that.
        """
        limit = self._rules[slots, _LIMIT]
        found = overload > limit
        if found.any():
            found &= ~self._sums.are_smooth(slots) | (
                overload > limit * (1 + limit_sums.ERROR))
        return found

    # For explanations.

    def _entry(self, slot):
        return self._slots[slot]


class _Host:
    """One host of the table."""

    __slots__ = ('host', 'slot', 'policy', 'residents')

    def __init__(self, host, slot):
        self.host = host
        self.slot = slot
        self.policy = None
        self.residents = {}      # uuid -> RateLaw
