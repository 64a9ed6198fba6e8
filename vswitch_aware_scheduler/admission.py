# SPDX-License-Identifier: Apache-2.0
"""Which hosts can take one more instance, and what it would cost each.

:class:`LoadTable` keeps, for every host, what its residents ask of each limit
of its switch, as look-up tables; :meth:`LoadTable.assess` answers for any
number of hosts at once by table look-ups. This is the one piece of code that
decides, for the scheduler and for the evaluation alike. It knows no Nova, no
store and no clock; callers serialise access.

Hosts may share an uplink: then the residents of all of them together are held
against its limits too, in a table of the same kind.

Derivation: reference/admission.rst.
"""

import dataclasses
import functools
import typing

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import plain_text
from vswitch_aware_scheduler.traffic import law as sum_law
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.vswitch import tunnels

__all__ = ['AVERAGE', 'PROBABILITY', 'Assessment', 'HostPolicy', 'LoadTable',
           'Uplink', 'most_cautious']

#: Admission policies: the sum of averages against saturation (Figure 9 of
#: "Towards a Method Integrating Virtual Switch Performance Into Data Centre
#: Design"), or the probability of overload against the operator's limit.
AVERAGE = 'average'
PROBABILITY = 'probability'

#: Probabilities are compared with this relative tolerance: equality happens.
_TOLERANCE = 1e-9

#: More residents that change at once are no change but another host: so many,
#: and of a great many, as behind an uplink, one of so many.
_FEW, _FEW_OF = 4, 50

#: Of so many who are gone the tables of a host tell what is left at least.
_MOST_GONE = 2

#: Below it a float is whole only if it is meant to be.
_WHOLE = 2.0 ** 53

_REGIMES = len(model.REGIMES)
_SHARES = model.REGIME_SHARES[:, None]

# Why a host is refused, in the order of the checks.
ADMITTED, NO_PROFILE, TOO_MANY, PEAK, MEAN, OVERLOAD, UPLINK = range(7)

# What is counted, in words, by place in tunnels.COUNTED.
_COUNTED = ('instances', 'interfaces', 'networks', 'remote VTEPs',
            'virtual functions in use')


def most_cautious(policies):
    """Return the admission policy that admits least, of one or more."""
    return PROBABILITY if PROBABILITY in policies else AVERAGE


@dataclasses.dataclass(frozen=True, eq=False)
class HostPolicy:
    """What a host can carry and how it is judged.

    Compared by identity: hosts that share one share all that is derived.

    :ivar profile: SwitchProfile, or None when nothing is known of the switch
    :ivar policy: AVERAGE or PROBABILITY
    :ivar overload_probability: limit of PROBABILITY, 0..1
    :ivar pass_unknown: whether a host without profile passes
    :ivar uplinks: tuple of the :class:`Uplink` that all its traffic takes too
    :ivar tunnel_key: what says how many tunnels there can be, for people
    :ivar asked_probability: the limit that was asked for, for people, where
        another one is decided with; else None
    :ivar judged: False where the host passes whatever it carries, as bare
        metal does; then ``profile`` is None and ``pass_unknown`` is True
    """

    profile: object
    policy: str = PROBABILITY
    overload_probability: float = 0.01
    pass_unknown: bool = True
    uplinks: tuple = ()
    tunnel_key: str = 'max_tunnels'
    asked_probability: float | None = None
    judged: bool = True

    def __post_init__(self):
        if self.policy not in (AVERAGE, PROBABILITY):
            raise exceptions.InvalidOverride(
                f'admission policy is {self.policy!r}, wanted {AVERAGE!r} or '
                f'{PROBABILITY!r}')
        if not 0 <= self.overload_probability <= 1:
            raise exceptions.InvalidOverride(
                f'overload probability is {self.overload_probability!r}, '
                f'wanted 0..1')

    @functools.cached_property
    def limits(self):
        """[(weights, capacity, most of one instance)] of the profile."""
        return [] if self.profile is None else _limits_of(self.profile)

    @functools.cached_property
    def limits_on_one(self):
        """[(weights, packet_bytes, most)]: what one instance may have.

        Above it no such host takes an instance, as ``PEAK`` tells, nor does
        any of its uplinks.
        """
        return [(weights, one.profile.typical_packet_bytes, most)
                for one in (self, *(uplink.policy for uplink in self.uplinks))
                for weights, _, most in one.limits]

    def fitting(self, law, group=None):
        """Return a prior as an instance on such a host can have it.

        An instance of which only the prior is known is never refused for the
        peak of another one.

        :param law: RateLaw
        :param group: as of :func:`.prior.cut`
        """
        return prior.cut(law, self.limits_on_one, self.capacities, group)

    @functools.cached_property
    def capacities(self):
        """[(weights, packet_bytes, capacity)]: what all instances may have.

        What is above one of these overloads each such host, or one of its
        uplinks, alone.
        """
        return [(weights, one.profile.typical_packet_bytes, capacity)
                for one in (self, *(uplink.policy for uplink in self.uplinks))
                for weights, capacity, _ in one.limits]

    @functools.cached_property
    def counts(self):
        """{one of :data:`.tunnels.COUNTED`: the most} of the profile."""
        return {} if self.profile is None else self.profile.counts


@dataclasses.dataclass(frozen=True, eq=False)
class Uplink:
    """What several hosts share: a ToR's uplink, a gateway, that of a silo.

    :ivar name: hosts whose uplinks have one name share it
    :ivar policy: HostPolicy of it, as if it were one host with the residents
        of all; every network counts as tunnelled, for a gateway maps it
    """

    name: str
    policy: HostPolicy


class LoadTable:
    """The load of hosts, kept ready for the next question.

    :param cells: grid cells up to a capacity; a state's rate counts up to a
        cell too much, never too little
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
        self._uplinks = None     # _Uplinks, once there are any
        self._hosts = {}         # host -> _Host
        self._slots = []         # slot -> _Host
        self._slot_of = {}       # host -> slot
        self._units = {}         # (weights, packet bytes) -> unit number
        self._unit_keys = []
        self._last_levels = None, 0, None    # of the last law that was asked
        # By slot and limit, LIMITS wide: what the vectorised path reads.
        self._numbers = np.zeros((0, 0, _NUMBERS))
        self._unit = np.zeros((0, 0), dtype=np.int64)
        self._row = np.zeros((0, 0), dtype=np.int64)
        # By slot.
        self._rules = np.zeros((0, _RULES))
        # Rows of look-up tables, handed out as they are needed.
        self._tails = np.zeros((0, cells + 2, _REGIMES))
        self._excesses = np.zeros((0, cells + 2, _REGIMES))
        self._phases = np.zeros(0)
        self._free_rows = []
        #: Counts changes, so that a caller can tell whether an Assessment is
        #: still about the table as it is.
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
            self._grow(len(self._slots), 1)
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
        if entry.policy is not policy \
                or len(residents) > len(known) + _few(known) \
                or known.items() - residents.items() \
                or self._follow([_Change(entry, [
                    law for _, law in residents.items() - known.items()],
                    [])]):
            entry.policy = policy
            self._fill(entry)
        return entry.slot

    def change(self, changes):
        """Set who has come to some hosts and who has gone.

        :param changes: {host: (came, went)}: mapping of instance uuid to
            RateLaw, and instance uuids
        :returns: list of the hosts that this cannot be: what they have is no
            change of what was described; :meth:`describe` them
        """
        unlike, followed = [], []
        for host, (came, went) in changes.items():
            entry = self._hosts.get(host)
            residents = {} if entry is None else entry.residents
            if entry is None or not residents.keys().isdisjoint(came) \
                    or not all(map(residents.__contains__, went)):
                unlike.append(host)
                continue
            followed.append(_Change(entry, list(came.values()),
                                    list(map(residents.pop, went))))
            residents.update(came)
            if entry.policy.uplinks:
                self._uplinks.change(entry.policy.uplinks, came, went)
            if entry.slot in self._tunnels:
                self._attach_changed(entry.slot, came, went)
        if followed:
            self.version += 1
        for entry in self._follow(followed):
            self._fill(entry)
        return unlike

    def _follow_uplinks(self, entry, policy, residents):
        """Tell the uplinks of a host, before and now, what will be new."""
        if self._uplinks is None:
            self._uplinks = _Uplinks(self._cells, self._attachments)
        before = entry.policy.uplinks if entry.policy else ()
        names = {one.name for one in before}
        stay = [one for one in policy.uplinks if one.name in names]
        names = {one.name for one in stay}
        self._uplinks.belongs(entry.slot, policy.uplinks)
        self._uplinks.change([one for one in before if one.name not in names],
                             {}, entry.residents)
        self._uplinks.change([one for one in policy.uplinks
                              if one.name not in names], residents, ())
        new = residents.items() - entry.residents.items()
        old = entry.residents.items() - residents.items()
        self._uplinks.change(stay, dict(new), [uuid for uuid, _ in old])
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
        """Ask anew what some instances are attached to."""
        slot = self._slot_of[host]
        if slot in self._tunnels:
            for uuid in uuids:
                self._tunnels.renew(
                    slot, uuid, self._attachments(uuid) or tunnels.UNKNOWN)

    def loose(self):
        """Return the hosts whose tables still have somebody who is gone.

        They say too much, never too little, and :meth:`assess` makes them
        anew before they refuse, unless the host would refuse anyway;
        :meth:`tighten` does at any time. Uplinks are among them, as something
        that only :meth:`tighten` understands.
        """
        loose = [self._slots[slot].host for slot in np.flatnonzero(
            self._rules[:len(self._slots), _LOOSE]).tolist()]
        if self._uplinks is not None:
            loose.extend(map(_Shared, self._uplinks.table.loose()))
        return loose

    def tighten(self, host):
        """Make the look-up tables of a host anew if they are loose."""
        if isinstance(host, _Shared):
            self.version += 1
            self._uplinks.table.tighten(host.name)
            return
        entry = self._hosts[host]
        if self._rules[entry.slot, _LOOSE]:
            self.version += 1
            had = self._row[entry.slot] >= 0
            sources = self._fill(entry)
            for position in np.flatnonzero(had).tolist():
                self._build(entry.slot, position, sources)

    def _fill(self, entry):
        """Take in what a host can carry and all that is on it.

        :returns: _Sources of its residents
        """
        slot, policy, residents = entry.slot, entry.policy, entry.residents
        profile = policy.profile
        self._free_rows.extend(
            row for row in self._row[slot].tolist() if row >= 0)
        self._row[slot] = _NO_ROW
        self._grow(0, len(policy.limits))
        self._numbers[slot] = _UNLIMITED
        self._unit[slot] = 0
        self._rules[slot] = (
            profile is not None, profile is not None or policy.pass_unknown,
            policy.policy == AVERAGE,
            policy.overload_probability * (1 + _TOLERANCE), False)
        entry.limits = len(policy.limits)
        entry.gone, entry.refuses = [], None
        sources = _Sources(residents.values())
        for position, (weights, capacity, vm_peak) in enumerate(
                policy.limits):
            unit = self._unit_number(weights, profile.typical_packet_bytes)
            self._unit[slot, position] = unit
            unit_key = self._unit_keys[unit]
            self._numbers[slot, position] = (
                capacity, *sources.step(unit_key, capacity, self._cells),
                *sources.mean_peak_uneven(unit_key), vm_peak)
        return sources

    def _follow(self, changes):
        """Take in who came and who went where the grids can stay.

        All hosts at once: there are many, and each is little work.

        :param changes: list of :class:`_Change`, whose hosts have their new
            residents already
        :returns: list of the hosts that have to be filled anew
        """
        if not changes:
            return []
        laws = [law for one in changes for law in (*one.new, *one.gone)]
        counts = np.array([(len(one.new), len(one.gone)) for one in changes],
                          dtype=np.int64).reshape(-1, 2)
        # Of each change: is it a small one? Of each law: of which change is
        # it, the how manyeth, and did it come?
        stays = np.array([
            len(one.new) + len(one.gone) <= _few(one.entry.residents)
            and 0 < len(one.entry.residents) > len(one.new)
            for one in changes], dtype=bool)
        of = np.repeat(np.arange(len(changes)), counts.sum(axis=1))
        nth = np.arange(of.size) - np.searchsorted(of, of)
        came = nth < counts[of, 0]
        slots = np.array([one.entry.slot for one in changes], dtype=np.int64)
        sources = _Sources(laws)
        by_unit = np.array([sources.values(key) for key in self._unit_keys])
        found = []
        for position in range(max(one.entry.limits for one in changes)):
            common = self._numbers[slots, position, _COMMON]
            # A lattice may begin where there was none without those.
            stays &= common >= 0
            values = sources.chosen(by_unit, self._unit[slots[of], position])
            if common.any() and came.any():
                off = came & ~sources.on_lattice(values, common[of])
                stays[of[off]] = False
            found.append(values)
        signs = np.where(came, 1.0, -1.0) * stays[of]
        for position, values in enumerate(found):
            self._shift(position, slots, values, sources, of, signs)
            for n in range(nth.max(initial=-1) + 1):
                self._widen(position, slots[of], values, sources,
                            np.flatnonzero(came & stays[of] & (nth == n)))
        # Of a great many, who comes is rounded more than with the others.
        many = np.array([len(one.entry.residents) > sum_law.MANY
                         for one in changes], dtype=bool)
        self._rules[slots[stays & (many | (counts[:, 1] > 0))], _LOOSE] = True
        for one, same in zip(changes, stays.tolist()):
            one.entry.refuses = None
            if same:
                one.entry.gone.extend(one.gone)
        return [changes[i].entry for i in np.flatnonzero(~stays).tolist()]

    def _shift(self, position, slots, values, sources, of, signs):
        """Add sources to the sums of a limit, or take them away.

        :param slots: (h,) int, of different hosts
        :param of: (n,) int, which of these each source is of
        :param signs: (n,) 1 to add a source, -1 to take it away, or 0
        """
        for column, amounts in ((_MEAN, sources.means(values)),
                                (_PEAK, sources.peaks(values)),
                                (_UNEVEN, sources.uneven(values))):
            self._numbers[slots, position, column] += np.bincount(
                of, signs * amounts, slots.size)

    def _widen(self, position, slots, values, sources, which):
        """Put sources into the look-up tables of a limit, one for a host.

        :param which: (n,) int, of the sources
        """
        rows = self._row[slots[which], position]
        which, rows = which[rows >= 0], rows[rows >= 0]
        if rows.size:
            self._tails[rows], self._excesses[rows], self._phases[rows] = \
                sum_law.tables_plus(
                    self._tails[rows], self._excesses[rows],
                    self._phases[rows],
                    self._numbers[slots[which], position, _STEP],
                    *sources.padded(values, which))

    def _unit_number(self, weights, packet_bytes):
        key = (tuple(weights), packet_bytes if weights[2] else None)
        number = self._units.get(key)
        if number is None:
            number = self._units[key] = len(self._unit_keys)
            self._unit_keys.append(key)
        return number

    def _grow(self, slots, limits):
        have_slots, have_limits = self._row.shape
        if slots <= have_slots and limits <= have_limits:
            return
        size = (max(have_slots, slots + slots // 2),
                max(have_limits, limits))

        def grown(array, shape, fill):
            new = np.empty(shape, dtype=array.dtype)
            new[...] = fill
            new[tuple(slice(n) for n in array.shape)] = array
            return new

        self._numbers = grown(self._numbers, size + (_NUMBERS,), _UNLIMITED)
        self._unit = grown(self._unit, size, 0)
        self._row = grown(self._row, size, _NO_ROW)
        self._rules = grown(self._rules, (size[0], _RULES), 0.0)

    def _build(self, slot, position, sources=None):
        """Make the look-up tables of one limit of one host."""
        if sources is None:
            sources = _Sources(self._slots[slot].residents.values())
        capacity, step, common = self._numbers[slot, position, :3].tolist()
        laws = sources.sum_laws(
            self._unit_keys[self._unit[slot, position]], capacity, step,
            common > 0)
        if not self._free_rows:
            have = self._phases.size
            size = max(64, 2 * have)
            for name in ('_tails', '_excesses', '_phases'):
                old = getattr(self, name)
                new = np.zeros((size, *old.shape[1:]))
                new[:have] = old
                setattr(self, name, new)
            self._free_rows.extend(range(size - 1, have - 1, -1))
        row = self._free_rows.pop()
        for regime, law in enumerate(laws):
            self._tails[row, :, regime], self._excesses[row, :, regime], \
                self._phases[row] = law.tables(self._cells)
        self._row[slot, position] = row

    def prepare(self, host, other):
        """Make the look-up tables now that another table has for a host."""
        slot, there = self._hosts[host].slot, other._hosts.get(host)
        if there is None:
            return
        for position in range(self._hosts[host].limits):
            if position < there.limits and \
                    other._row[there.slot, position] >= 0 > \
                    self._row[slot, position]:
                self._build(slot, position)

    def settle(self):
        """Bring the uplinks up to date, which :meth:`assess` does else."""
        if self._uplinks is not None:
            self._uplinks.settle()

    def prepare_uplinks(self, other):
        """Do as :meth:`prepare` for all the uplinks there are."""
        if self._uplinks is not None and other._uplinks is not None:
            for name in self._uplinks.table._hosts:
                self._uplinks.table.prepare(name, other._uplinks.table)

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
        loose = np.flatnonzero((result.reason == OVERLOAD)
                               & (self._rules[slots, _LOOSE] > 0))
        if loose.size:
            loose = loose[~self._surely_exceed(slots[loose], law)]
        if loose.size:
            for slot in set(slots[loose].tolist()):
                self.tighten(self._slots[slot].host)
            result.replace(loose, self._assess(slots[loose], law,
                                               full[loose]))
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

    def _surely_exceed(self, slots, law):
        """Return which loose hosts refuse a law, made anew as well.

        Where the tables do not tell, False.
        Derivation: reference/admission.rst, "Look-up tables".
        """
        entries = [self._slots[slot] for slot in slots.tolist()]
        sure = np.array([one.refuses == law for one in entries])
        if sure.all():
            return sure
        told = ~sure & [
            0 < len(one.gone) <= _MOST_GONE
            and len(one.residents) + len(one.gone) <= sum_law.MANY
            for one in entries]
        least = np.zeros(slots.size)
        sources = _Sources(
            law for one, tells in zip(entries, told.tolist())
            for law in (one.gone if tells else []) + [_NO_LAW] * (
                _MOST_GONE - len(one.gone) * tells))
        by_unit = np.array([sources.values(key) for key in self._unit_keys])
        rates, _, _, weights = self._levels(law)
        for position in range(max(one.limits for one in entries)):
            rows, units = self._row[slots, position], \
                self._unit[slots, position]
            numbers = self._numbers[slots, position]
            # Made anew they may be on a lattice, where they are not now.
            stays = (numbers[:, _COMMON] > 0) | (numbers[:, _UNEVEN] > 0)
            which = np.flatnonzero(told & stays & (rows != _NO_ROW))
            if not which.size:
                continue
            rows = rows[which]
            taken = which[:, None] * _MOST_GONE + np.arange(_MOST_GONE)
            tails = sum_law.tails_without(
                self._tails, rows, self._phases[rows], numbers[which, _STEP],
                *sources.padded(sources.chosen(
                    by_unit, np.repeat(units, _MOST_GONE)), taken),
                rates[units[which]])
            least[which] += tails.reshape(which.size, -1) @ weights
        found = least > self._rules[slots, _LIMIT]
        for i in np.flatnonzero(found).tolist():
            entries[i].refuses = law
        return sure | found

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
        first, *others = positions or [_NO_LAW]
        result = self.assess(slots, first, exclude, attachments)
        for law in others:
            where = positions[law]
            result.replace(where, self.assess(slots[where], law, exclude,
                                              attachments))
        return result

    def _assess(self, slots, law, full):
        count = slots.size
        numbers = self._numbers[slots]              # (h, l, _NUMBERS)
        rules = self._rules[slots]                  # (h, _RULES)
        units = self._unit[slots]                   # (h, l)
        values, means, peaks, weights = self._levels(law)
        capacity, mean, peak, vm_peak = (
            numbers[..., i] for i in (_CAPACITY, _MEAN, _PEAK, _VM_PEAK))
        mean_with = mean + means[units]
        slack = 1 + sum_law.TOLERANCE
        # Where all peaks together fit there is no overload: no table needed.
        exceeds = peak + peaks[units] > capacity * slack
        probability = np.zeros(exceeds.shape)
        excess = np.zeros(exceeds.shape)
        where, limit = np.nonzero(exceeds)
        if where.size:
            rows = self._row[slots[where], limit]
            for i in np.flatnonzero(rows < 0).tolist():
                self._build(int(slots[where[i]]), int(limit[i]))
            rows = self._row[slots[where], limit]
            step = numbers[where, limit, _STEP][:, None]
            phase = self._phases[rows][:, None]
            rate = values[units[where, limit]]      # (f, states)
            threshold = np.ceil(rate / step - phase - sum_law.TOLERANCE)
            # Beyond the table, below any sum there is, the tail is 1.
            k = np.clip(threshold, 0, self._cells + 1).astype(np.int64)
            at = (rows * (self._cells + 2))[:, None] + k
            tail = self._tails.reshape(-1, _REGIMES).take(at, axis=0)
            above = self._excesses.reshape(-1, _REGIMES).take(at, axis=0)
            above += (rate - (phase + k) * step)[..., None] * tail
            np.maximum(above, 0.0, out=above)
            probability[where, limit] = tail.reshape(len(at), -1) @ weights
            excess[where, limit] = above.reshape(len(at), -1) @ weights
        # The union bound: never less than the risk of any limit at once.
        overload = np.minimum(probability.sum(axis=1), 1.0)
        # What is more than a float can hold is lost as good as entirely.
        finite = np.isfinite(mean_with)
        loss = np.divide(excess, mean_with, out=np.where(finite, 0.0, 1.0),
                         where=finite & (excess > 0))
        loss = np.minimum(loss.sum(axis=1), 1.0)
        average = rules[:, _AVERAGE] > 0
        too_much = (mean_with > capacity * slack).any(axis=1)
        reason = np.full(count, ADMITTED)
        # The first that holds is told, so it is written last.
        for which, why in (
                (~average & (overload > rules[:, _LIMIT]), OVERLOAD),
                (average & too_much, MEAN),
                ((peaks[units] > vm_peak * slack).any(axis=1), PEAK),
                (full > 0, TOO_MANY),
                (rules[:, _PASSES] == 0, NO_PROFILE)):
            reason[which] = why
        with np.errstate(invalid='ignore'):
            used = np.where(np.isfinite(capacity), mean_with / capacity, 0.0)
        return Assessment(
            self, slots, reason, overload, loss,
            used.max(axis=1) if used.size else np.zeros(count),
            rules[:, _KNOWN] > 0, mean_with, peaks[units], full.copy())

    def _levels(self, law):
        """Return what a law is in each unit.

        :returns: (u, n) rates of its states, (u,) means, (u,) peaks, and the
            (n * g,) probabilities of state and regime at once, as the
            look-up tables have them
        """
        known, units, found = self._last_levels
        if known != law or units != len(self._unit_keys):
            values = np.array([law.values(*key) for key in self._unit_keys]
                              or [np.zeros(law.probabilities.size)])
            found = (values, values @ law.probabilities, values.max(axis=1),
                     (law.by_regime * _SHARES).T.ravel())
            self._last_levels = law, len(self._unit_keys), found
        return found

    # For explanations.

    def _entry(self, slot):
        return self._slots[slot]


@dataclasses.dataclass(eq=False)
class Assessment:
    """What one more instance would do to each of h hosts.

    :ivar slots: (h,) slots of the hosts
    :ivar reason: (h,) ADMITTED, or why not
    :ivar overload_probability: (h,) bound of P(any limit is exceeded)
    :ivar loss_fraction: (h,) share of the host's traffic that is cut away
    :ivar utilisation: (h,) mean rate over capacity of the tightest limit
    :ivar known: (h,) whether the host has a switch profile

    Of a host with an uplink the three numbers are the larger ones of the two.
    """

    _table: LoadTable
    slots: np.ndarray
    reason: np.ndarray
    overload_probability: np.ndarray
    loss_fraction: np.ndarray
    utilisation: np.ndarray
    known: np.ndarray
    _means: np.ndarray
    _peaks: np.ndarray
    # What has no room, as TunnelTable.refused tells.
    _full: np.ndarray
    # Attachments and uuid to exclude, as the question had them.
    _candidate: tuple = (tunnels.UNKNOWN, None)
    # Assessments of uplinks, and (h, 2): which of these, and which uplink in
    # it, decides on a host.
    _uplinks: list = dataclasses.field(default_factory=list)
    _uplink_of: np.ndarray | None = None

    @property
    def admitted(self):
        """(h,) bool."""
        return self.reason == ADMITTED

    def replace(self, where, other):
        """Put the hosts of another Assessment in place of some of these.

        :param where: (n,) int, places of the n hosts of the other
        """
        for name in ('reason', 'overload_probability', 'loss_fraction',
                     'utilisation', '_full'):
            getattr(self, name)[where] = getattr(other, name)
        if other._uplink_of is not None:
            self._uplink_of[where] = other._uplink_of + (
                len(self._uplinks), 0)
            self._uplinks = self._uplinks + other._uplinks
        width = other._means.shape[1]
        self._means[where, :width] = other._means
        self._peaks[where, :width] = other._peaks

    def share(self, uplinks, of):
        """Hold what the uplinks of the hosts say against them too.

        :param uplinks: Assessment of u uplinks
        :param of: (h, m) int, the uplinks of each host, u where it has no
            more
        """
        if not of.size:
            return
        refused = np.append(~uplinks.admitted, False)[of]
        overload = np.append(uplinks.overload_probability, -1.0)[of]
        first = np.where(refused.any(axis=1), refused.argmax(axis=1),
                         overload.argmax(axis=1))
        self._uplinks = [uplinks]
        self._uplink_of = np.stack([np.zeros_like(first), of[
            np.arange(len(of)), first]], axis=1)
        self.reason[self.admitted & refused.any(axis=1)] = UPLINK
        for name in ('overload_probability', 'loss_fraction', 'utilisation'):
            worst = np.append(getattr(uplinks, name), 0.0)[of].max(axis=1)
            np.maximum(getattr(self, name), worst, out=getattr(self, name))

    def explain(self, i):
        """Return in words, with the numbers that decided, why host i is so."""
        entry = self._table._entry(self.slots[i])
        profile = entry.policy.profile
        reason = self.reason[i]
        if reason == UPLINK:
            which, at = self._uplink_of[i].tolist()
            return self._uplinks[which]._explain_uplink(at)
        if profile is None:
            return ('no switch profile is known for it, unknown hosts %s'
                    % ('pass' if entry.policy.pass_unknown else 'are refused'))
        name = profile.name
        if reason == TOO_MANY:
            return self._explain_count(i, entry)
        limits = entry.policy.limits
        if reason == PEAK:
            for j, (weights, _, most) in enumerate(limits):
                if self._peaks[i, j] > most * (1 + sum_law.TOLERANCE):
                    peak, most = plain_text.distinct(
                        self._peaks[i, j], most)
                    return (f"the instance's peak of {peak} "
                            f'{_unit_text(weights)} is above the {most} '
                            f'that one instance can have on profile {name}')
        if reason == MEAN:
            for j, (weights, capacity, _) in enumerate(limits):
                if self._means[i, j] > capacity * (1 + sum_law.TOLERANCE):
                    mean, capacity = plain_text.distinct(
                        self._means[i, j], capacity)
                    return (f'with it the average would be {mean} '
                            f'{_unit_text(weights)}, above the {capacity} '
                            f'of profile {name}')
        verb = 'above' if reason == OVERLOAD else 'within'
        asked = entry.policy.asked_probability
        corrected = '' if asked is None else (
            f', which trials say keeps the {asked:g} that is asked for')
        overload, limit = plain_text.distinct(
            self.overload_probability[i], entry.policy.overload_probability,
            3)
        return (f'with it the overload probability would be {overload}, '
                f'{verb} the limit of {limit}{corrected} '
                f'(profile {name}, '
                f'{len(entry.residents)} instances, average utilisation '
                f'{self.utilisation[i]:.3g})')

    def _explain_uplink(self, i):
        entry = self._table._entry(self.slots[i])
        return f'its uplink {entry.host}: {self.explain(i)}'

    def _explain_count(self, i, entry):
        place = int(self._full[i]) - 1
        unit = tunnels.COUNTED[place]
        have, more, most = self._table._tunnels.numbers(
            entry.slot, self._candidate[0], place, self._candidate[1])
        if have + more <= most:
            return (f'a host that its networks are on has no room for one '
                    f'more of the {_COUNTED[place]} that its profile limits')
        key = ('max_virtual_functions' if unit == tunnels.FUNCTIONS
               else entry.policy.tunnel_key)
        return (f'it has {have} {_COUNTED[place]}, the instance adds {more}, '
                f'and {key} of profile {entry.policy.profile.name} is '
                f'{most:g}')


class _Uplinks:
    """The uplinks that hosts of a LoadTable share.

    Who comes and who goes is collected until somebody asks: one who moves
    from host to host behind an uplink does neither.
    """

    def __init__(self, cells, attachments):
        self._attachments = attachments
        self.table = LoadTable(cells, self._all_tunnelled)
        self._policies = {}      # name -> HostPolicy
        # name -> {uuid: [came less went, its law if it came]}
        self._moved = {}
        self._renew = {}         # name -> uuids
        self._of = np.full((0, 0), _NO_ROW)  # by slot of a host: its uplinks

    def _all_tunnelled(self, uuid):
        found = self._attachments(uuid)
        return found and found.all_tunnelled

    def belongs(self, slot, uplinks):
        """Set the uplinks of a host."""
        for one in uplinks:
            if self._policies.get(one.name) is not one.policy:
                self._policies[one.name] = one.policy
                self._moved.setdefault(one.name, {})
                if one.name not in self.table:
                    self.table.describe(one.name, one.policy, {})
        size = (max(slot + 1, len(self._of)),
                max(len(uplinks), self._of.shape[1]))
        if size != self._of.shape:
            grown = np.full((size[0] + slot // 2, size[1]), _NO_ROW)
            grown[:len(self._of), :self._of.shape[1]] = self._of
            self._of = grown
        self._of[slot] = _NO_ROW
        self._of[slot, :len(uplinks)] = self.table.slots_of(
            one.name for one in uplinks)

    def change(self, uplinks, came, went):
        """Take in who came to a host behind some uplinks, and who went."""
        for uplink in uplinks:
            moved = self._moved.setdefault(uplink.name, {})
            for uuid, law in came.items():
                change = moved.setdefault(uuid, [0, None])
                change[0] += 1
                change[1] = law
            for uuid in went:
                moved.setdefault(uuid, [0, None])[0] -= 1

    def renew(self, uplinks, uuids):
        """Ask anew what some instances are attached to."""
        for uplink in uplinks:
            if uplink.policy.counts:
                self._renew.setdefault(uplink.name, set()).update(uuids)

    def settle(self):
        """Bring the table of the uplinks up to date."""
        moved, self._moved = self._moved, {}
        for name, changes in moved.items():
            known = self.table.residents(name)
            came, went = {}, []
            for uuid, (net, law) in changes.items():
                has = known.get(uuid)
                stays = (has is not None) + net > 0
                if has is not None and not (stays and law in (None, has)):
                    went.append(uuid)
                if stays and law not in (None, has):
                    came[uuid] = law
            policy = self._policies[name]
            if len(came) + len(went) > _few(known) \
                    or self.table.policy(name) is not policy:
                gone = set(went)
                self.table.describe(name, policy, {
                    **{uuid: law for uuid, law in known.items()
                       if uuid not in gone}, **came})
                continue
            # The same one may go with one law and come with another.
            self.table.change({name: ({}, went)} if went else {})
            self.table.change({name: (came, ())} if came else {})
        renew, self._renew = self._renew, {}
        for name, uuids in renew.items():
            self.table.renew(name, uuids)

    def judge(self, result, law, exclude, attachments):
        """Let an Assessment of hosts tell of their uplinks too."""
        self.settle()
        of = np.full((len(result.slots), self._of.shape[1]), _NO_ROW)
        inside = result.slots < len(self._of)
        of[inside] = self._of[result.slots[inside]]
        used = np.unique(of[of != _NO_ROW])
        found = self.table.assess(used, law, exclude,
                                  attachments.all_tunnelled)
        result.share(found, np.append(
            _places(used, len(self.table)), used.size)[of])


def _places(used, size):
    """Return where each of ``size`` numbers is among the used ones."""
    places = np.zeros(size, dtype=np.int64)
    places[used] = np.arange(used.size)
    return places


@dataclasses.dataclass(frozen=True)
class _Shared:
    """Stands for an uplink where the others are hosts."""

    name: str


class _Host:
    """One host of the table."""

    __slots__ = ('host', 'slot', 'policy', 'residents', 'limits', 'gone',
                 'refuses')

    def __init__(self, host, slot):
        self.host = host
        self.slot = slot
        self.policy = None
        self.residents = {}      # uuid -> RateLaw
        self.limits = 0          # how many limits it has
        self.gone = []           # laws that are in its loose tables still
        self.refuses = None      # the last law that it refuses without them


class _Change(typing.NamedTuple):
    """Laws of those that came to a host, and of those that went."""

    entry: _Host
    new: list
    gone: list


class _Sources:
    """The laws of many instances in one array."""

    def __init__(self, laws):
        laws = list(laws)
        rows = np.frombuffer(b''.join(laws), '<f8').reshape(
            -1, model.LAW_COLUMNS)
        self._by_regime, self._rates = rows[:, :-3].T, rows[:, -3:]
        sizes = np.fromiter(map(len, laws), np.int64, len(laws))
        sizes //= 8 * model.LAW_COLUMNS
        self._sizes = sizes
        self._starts = np.cumsum(sizes) - sizes
        self._laws = laws

    def values(self, unit):
        """Return the rates of all in a unit, one source after the other."""
        weights, packet_bytes = unit
        if packet_bytes is None:
            return self._rates @ np.array(weights)
        return np.concatenate([law.values(weights, packet_bytes)
                               for law in self._laws])

    def mean_peak_uneven(self, unit):
        """Return the sums of means and peaks, and how many are uneven."""
        if not self._starts.size:
            return 0.0, 0.0, 0.0
        values = self.values(unit)
        return (float(self._by_regime @ values @ model.REGIME_SHARES),
                float(self.peaks(values).sum()),
                float(np.count_nonzero(self.uneven(values))))

    def means(self, values):
        """Return the mean of each source."""
        return np.add.reduceat(
            model.REGIME_SHARES @ self._by_regime * values, self._starts)

    def peaks(self, values):
        """Return the largest rate of each source."""
        return np.maximum.reduceat(values, self._starts)

    def chosen(self, by_unit, units):
        """Return the rates of each source in a unit of its own.

        :param by_unit: (u, states of all) :meth:`values` of each unit
        :param units: (n,) their numbers
        """
        return by_unit[np.repeat(units, self._sizes),
                       np.arange(by_unit.shape[1])]

    def on_lattice(self, values, common):
        """Return whether each source has but multiples of a number.

        :param common: (n,) those numbers; 0: whatever the rates are
        """
        above = self._above(values)
        common = np.repeat(common, self._sizes)
        return np.logical_and.reduceat(
            (common <= 0) | (above % np.maximum(common, 1.0) == 0),
            self._starts)

    def uneven(self, values):
        """Return whether each source is on no lattice of whole numbers."""
        return np.logical_or.reduceat(
            _fractional(self._above(values)), self._starts)

    def _above(self, values):
        """Return how far each rate is above the lowest of its source."""
        return values - np.repeat(
            np.minimum.reduceat(values, self._starts), self._sizes)

    def padded(self, values, which):
        """Return some sources as rectangular arrays.

        :param which: (...,) int
        :returns: rates (..., m) and probabilities (..., m, g) in each regime;
            what a source has not is as its last state and of no probability
        """
        states = np.arange(self._sizes[which].max(initial=0))
        sizes = self._sizes[which][..., None]
        at = self._starts[which][..., None] + np.minimum(states, sizes - 1)
        masses = np.where((states < sizes)[..., None],
                          self._by_regime.T[at], 0.0)
        return values[at], masses

    def step(self, unit, capacity, cells):
        """Return (width of a grid cell, common divisor).

        That of a lattice which every sum is on, where so many cells reach
        the capacity on one: rates in round numbers are then added exactly.
        The divisor is 0 when there is no such lattice, and -1 when there may
        be one with the next source.
        """
        if self._starts.size:
            above = self._above(self.values(unit))
            if above.any():
                common = _common(above)
                if common * cells >= capacity:
                    return float(common), common
                return capacity / cells, 0
        return capacity / cells, -1

    def sum_laws(self, unit, capacity, step, exact):
        """Return the GridLaw of all together, in each regime.

        :param exact: whether all are on a lattice of that step
        """
        if not self._starts.size:
            return [sum_law.GridLaw(capacity, step)] * _REGIMES
        masses = self._by_regime
        if np.array_equal(*masses):
            masses = masses[:1]
        # On a lattice that all are on there is nothing to round.
        add = (sum_law.GridLaw.of_sources if exact
               else sum_law.GridLaw.of_many)
        laws = add(capacity, step, self.values(unit), masses, self._starts)
        return laws * (_REGIMES // len(laws))


def _few(residents):
    """Return how many of them may change at once."""
    return max(_FEW, len(residents) // _FEW_OF)


def _fractional(rates):
    """Return which rates are not whole, or too large to tell."""
    return (rates != np.rint(rates)) | (rates >= _WHOLE)


def _common(rates):
    """Return the common divisor of whole rates; 0 without any."""
    if _fractional(rates).any():
        return 0
    return int(np.gcd.reduce(rates.astype(np.int64), initial=0))


# Columns of the arrays of LoadTable.
(_CAPACITY, _STEP, _COMMON, _MEAN, _PEAK, _UNEVEN, _VM_PEAK,
 _NUMBERS) = range(8)
_KNOWN, _PASSES, _AVERAGE, _LIMIT, _LOOSE, _RULES = range(6)
_UNLIMITED = (np.inf, 1.0, 0.0, 0.0, 0.0, 0.0, np.inf)
_NO_ROW = -1
_NO_LAW = model.RateLaw.from_arrays([1.0], [[0.0, 0.0, 0.0]])


def _limits_of(profile):
    """Return [(weights, capacity, most of one instance)] of a profile."""
    most = np.inf if profile.vm_peak_kbps is None else profile.vm_peak_kbps
    saturation = tuple(
        model.dimension_weights(profile.saturation_dimension).tolist())
    limits = [
        [tuple(limit.weights), limit.capacity, limit.capacity]
        for limit in profile.limits()]
    for limit in limits:
        if limit[0] == saturation:
            limit[2] = min(limit[2], most)
            return limits
    if most < np.inf:
        # A limit on one instance where there is none on all together.
        limits.append([saturation, np.inf, most])
    return limits


def _unit_text(weights):
    return {(1.0, 1.0, 0.0): 'kbit/s', (1.0, 0.0, 0.0): 'kbit/s of egress',
            (0.0, 1.0, 0.0): 'kbit/s of ingress',
            (0.0, 0.0, 1.0): 'kilo-packets/s'}.get(tuple(weights), 'units')
