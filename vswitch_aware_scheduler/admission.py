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

import collections
import dataclasses
import functools
import itertools

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import plain_text
from vswitch_aware_scheduler.traffic import fourier_sum
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

#: Probabilities are known up to this, and to that relative tolerance.
_NOISE = 1e-12

#: Smooth tails are known up to this, relatively.
_ERROR = 1e-3

_SLACK = 1 + fourier_sum.TOLERANCE
_NEAR = fourier_sum.NEAR

#: How a sum is kept. Many rates are on no grid: the tail is smooth; many are
#: on none, but vary together by a few cells only: a finer scale is wanted; few
#: are on none, and are rounded to a finer grid; all are on the grid of the
#: tables; all are on a finer grid, and the tables are as well.
_SMOOTH, _NARROW, _ROUNDED, _ON_GRID, _FINE = range(5)
_FINER = 8

#: Sums with a smaller standard deviation, in cells, are narrow.
_FEW_CELLS = 2.5

#: Up to so many sources are few: they are computed anew when one changes.
_FEW = 20

#: Overload that there is, however seldom.
_LEAST = 1e-250

#: Up to so many sources that come and go are taken one by one.
_ONE_BY_ONE = 2

#: Laws that are kept in the units of limits.
_MOST_LAWS = 1024

#: Hosts that are computed at once.
_TOGETHER = 64

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
        self._uplinks = None     # _Uplinks, once there are any
        self._hosts = {}         # host -> _Host
        self._slots = []         # slot -> _Host
        self._slot_of = {}       # host -> slot
        self._units = {}         # (weights, packet bytes) -> unit number
        self._unit_keys = []
        self._levels = {}        # RateLaw -> _Levels
        # _Host -> laws that came and laws that went since somebody asked.
        self._pending = {}
        # By slot and limit, LIMITS wide: what the vectorised path reads.
        self._numbers = np.zeros((0, 0, _NUMBERS))
        self._unit = np.zeros((0, 0), dtype=np.int64)
        self._row = np.zeros((0, 0), dtype=np.int64)     # of look-up tables
        self._kept = np.zeros((0, 0), dtype=np.int64)    # row of spectra
        # By slot.
        self._rules = np.zeros((0, _RULES))
        self._stale = np.zeros(0, dtype=bool)
        # Regimes that are told apart: one until a law differs by regime.
        self._regimes = 1
        # By kind.
        self._grids = [fourier_sum.grid(cells, on_grid=False),
                       fourier_sum.grid(cells, _FINER, on_grid=False),
                       fourier_sum.grid(cells, _FINER, reach=4),
                       fourier_sum.grid(cells, reach=4),
                       fourier_sum.grid(cells * _FINER, reach=4)]
        # By whether they are fine.
        self._tables = [_Rows(cells + 2), _Rows(cells * _FINER + 2)]
        # The mean stands behind the frequencies.
        self._spectra = _Rows(self._grids[0].frequencies + 1)
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
        if entry.policy is policy:
            came = [law for uuid, law in residents.items()
                    if known.get(uuid) != law]
            self._follow_later(entry, came, [
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
            self._follow_later(entry, list(came.values()),
                               list(gone.values()))
            residents.update(came)
            if entry.policy.uplinks:
                self._uplinks.change(entry.policy.uplinks, came, gone)
            if entry.slot in self._tunnels:
                self._attach_changed(entry.slot, came, went)
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
        """Ask anew what some instances are attached to."""
        slot = self._slot_of[host]
        if slot in self._tunnels:
            for uuid in uuids:
                self._tunnels.renew(
                    slot, uuid, self._attachments(uuid) or tunnels.UNKNOWN)

    # What hosts ask of their limits.

    def _set_limits(self, entry):
        """Take in what a host can carry."""
        slot, policy, profile = entry.slot, entry.policy, entry.policy.profile
        self._grow(0, len(policy.limits))
        self._outdate([slot])
        self._numbers[slot] = _UNLIMITED
        self._unit[slot] = 0
        risk = policy.overload_probability
        self._rules[slot] = (
            profile is not None, profile is not None or policy.pass_unknown,
            policy.policy == AVERAGE,
            risk * (1 + _TOLERANCE) + _NOISE if risk else 0.0)
        for position, (weights, capacity, most) in enumerate(policy.limits):
            self._unit[slot, position] = self._unit_number(
                weights, profile.typical_packet_bytes)
            self._numbers[slot, position, [_CAPACITY, _VM_PEAK]] = \
                capacity, most

    def _outdate(self, slots):
        """Drop what was computed of some hosts, until somebody asks."""
        slots = np.asarray(slots, dtype=np.int64)
        slots = slots[~self._stale[slots]]
        if not slots.size:
            return
        self._stale[slots] = True
        fine = self._numbers[slots, :, _KIND] == _FINE
        rows, kept = self._row[slots], self._kept[slots]
        self._tables[False].free(rows[(rows >= 0) & ~fine])
        self._tables[True].free(rows[(rows >= 0) & fine])
        self._spectra.free(kept[kept >= 0])
        self._row[slots] = self._kept[slots] = _NO_ROW

    def _refresh(self, slots):
        """Compute what outdated hosts ask of their limits."""
        for first in range(0, slots.size, _TOGETHER):
            some = slots[first:first + _TOGETHER]
            # One array for all is made, and not copied again and again.
            self._tables[False].expected = self._spectra.expected = \
                slots.size - first if first else 0
            sources = self._sources_of(some)
            for position in range(self._row.shape[1]):
                self._add_up(some, position, sources)
            self._stale[some] = False
            numbers = self._numbers[some]
            for position in range(self._row.shape[1]):
                above = numbers[:, position, _PEAK] \
                    > numbers[:, position, _CAPACITY] * _SLACK
                self._build(some, position, np.flatnonzero(above), sources)

    def _sources_of(self, slots):
        """Return the _Sources of some hosts: each law of a host once."""
        laws = [collections.Counter(self._slots[slot].residents.values())
                for slot in slots.tolist()]
        return _Sources(
            list(itertools.chain.from_iterable(laws)),
            np.repeat(np.arange(slots.size), list(map(len, laws))),
            np.array(list(itertools.chain.from_iterable(
                one.values() for one in laws)), dtype=float))

    def _add_up(self, slots, position, sources, anew=True):
        """Set the sums of a limit, or add to them.

        :param slots: (h,) int, of different hosts
        :param sources: _Sources of these
        :returns: rates of the sources
        """
        values = sources.values(self._unit_keys, self._unit[slots, position])
        # More than a float can hold is too much, whatever there is.
        with np.errstate(over='ignore', invalid='ignore'):
            sums = sources.sums(values) * sources.counts
            if slots.size == 1:
                total = sums.sum(axis=1)
            else:
                total = np.stack([np.bincount(sources.of, one, slots.size)
                                  for one in sums], axis=-1)
            if anew:
                self._numbers[slots, position, _SUMS] = total
            else:
                self._numbers[slots, position, _SUMS] += total
        return values

    def _build(self, slots, position, which, sources):
        """Make the look-up tables of a limit of some hosts.

        :param slots: (h,) int, of different hosts
        :param which: (r,) int, the hosts among these
        :param sources: _Sources of all of them
        """
        if not which.size:
            return
        self._tell_regimes_apart(sources)
        rates, masses, counts, of = sources.chosen(sources.values(
            self._unit_keys, self._unit[slots, position]), which, slots.size,
            self._regimes)
        numbers = self._numbers[slots[which], position]
        capacity = numbers[:, _CAPACITY]
        # Whoever is above the capacity alone is above it with others, too.
        common = fourier_sum.common_step(
            np.where(rates > capacity[of, None], 0.0, rates), of, capacity,
            self._cells * _FINER)
        kind = np.select(
            [common * self._cells >= capacity / _SLACK, common > 0,
             numbers[:, _ACTIVE] <= _FEW, self._is_narrow(numbers)],
            [_ON_GRID, _FINE, _ROUNDED, _NARROW], _SMOOTH)
        cells = np.where(kind == _FINE, self._cells * _FINER, self._cells)
        unit = np.where(np.isfinite(common) & (common > 0), common, capacity)
        step = unit / np.floor(unit * cells / capacity * _SLACK)
        levels = rates / step[of, None]
        numbers[:, _STEP], numbers[:, _KIND] = step, kind
        numbers[:, _OFF] = np.bincount(of, counts * _off_grid(levels),
                                       which.size)
        self._numbers[slots[which], position] = numbers
        for one in set(kind.tolist()):
            rows = kind == one
            inside, same = rows[of], None
            if rows.all():
                inside = slice(None)
                if (step == step[0]).all() and which.size > 1:
                    same = sources.same(of.size)
            self._make(slots[which[rows]], position, one, *self._grids[
                one].products(levels[inside], masses[inside], counts[inside],
                              (np.cumsum(rows) - 1)[of[inside]],
                              np.count_nonzero(rows), same))

    def _is_narrow(self, numbers):
        return numbers[..., _VARIANCE] < (
            _FEW_CELLS / self._cells * numbers[..., _CAPACITY]) ** 2

    def _make(self, slots, position, kind, spectra, means):
        """Store the look-up tables, and the spectra of many sources."""
        store = self._tables[kind == _FINE]
        rows = self._row[slots, position] = store.take(
            slots.size, self._regimes)
        store.values[rows] = self._grids[kind].tables(
            spectra, means)
        if kind == _SMOOTH:
            kept = self._kept[slots, position] = self._spectra.take(
                slots.size, self._regimes)
            self._spectra.values[kept, :, :-1] = spectra
            self._spectra.values[kept, :, -1] = means

    def _tell_regimes_apart(self, sources):
        if sources.regimes > self._regimes:
            self._regimes = sources.regimes
            for store in (*self._tables, self._spectra):
                store.values = np.repeat(store.values, sources.regimes, 1)

    def _follow_later(self, entry, came, went):
        """Note which laws came to a host and which went."""
        if not self._stale[entry.slot]:
            pending = self._pending.setdefault(entry, ([], []))
            pending[0].extend(came)
            pending[1].extend(went)

    def _follow(self):
        """Take in who came and who went: factors of what is kept.

        All hosts at once: there are many, and each is little work.
        """
        changes = [(entry, came, went)
                   for entry, (came, went) in self._pending.items()
                   if not self._stale[entry.slot]]
        self._pending.clear()
        if sum(len(came) + len(went)
               for _, came, went in changes) <= _ONE_BY_ONE:
            for entry, came, went in changes:
                if not (all(self._step(entry, law, 1.0) for law in came)
                        and all(self._step(entry, law, -1.0)
                                for law in went)):
                    self._outdate([entry.slot])
            return
        slots = np.array([one[0].slot for one in changes], dtype=np.int64)
        sources = _Sources(
            [law for _, came, went in changes for law in (*came, *went)],
            np.repeat(np.arange(slots.size), [
                len(came) + len(went) for _, came, went in changes]),
            np.concatenate([np.repeat([1.0, -1.0], [len(came), len(went)])
                            for _, came, went in changes]))
        self._tell_regimes_apart(sources)
        outdated = np.array([
            bool(went) and len({*entry.residents.values()}) <= _FEW
            for entry, _, went in changes], dtype=bool)
        for position in range(self._row.shape[1]):
            values = self._add_up(slots, position, sources, anew=False)
            # A table without spectra is made anew.
            kept = self._kept[slots, position] >= 0
            numbers = self._numbers[slots, position]
            outdated |= ~kept & (self._row[slots, position] >= 0) | kept & (
                (numbers[:, _ACTIVE] <= _FEW) | self._is_narrow(numbers))
            self._multiply(slots, position, np.flatnonzero(
                kept & ~outdated), sources, values, outdated)
        if outdated.any():
            self._outdate(slots[outdated])

    def _step(self, entry, law, count):
        """Take in one instance that came, or went: count 1 or -1.

        :returns: whether the host need not be made anew
        """
        if count < 0 and len({*entry.residents.values()}) <= _FEW:
            return False
        slot, levels = entry.slot, self._levels_of(law)
        if levels.regimes > self._regimes:
            return False
        for position in range(len(entry.policy.limits)):
            numbers = self._numbers[slot, position]
            unit, kept = self._unit[slot, position], self._kept[slot, position]
            numbers[_SUMS] += count * levels.sums[unit]
            if kept == _NO_ROW:
                if self._row[slot, position] != _NO_ROW:
                    return False
                continue
            cells = levels.above[unit] / numbers[_STEP]
            if np.abs(cells - np.rint(cells)).max() > _NEAR:
                numbers[_OFF] += count
            masses = levels.by_regime[:self._regimes]
            row, grid = self._spectra.values[kept], self._grids[_SMOOTH]
            product, mean = row[:, :-1], row[:, -1]
            mean += count * (masses @ cells)
            if not (numbers[_ACTIVE] > _FEW and numbers[_OFF] > 0
                    and not self._is_narrow(numbers)
                    and grid.multiply(product, cells, masses, count < 0)):
                return False
            self._tables[False].values[self._row[slot, position]] = \
                grid.tables(product, mean.real)
        return True

    def _multiply(self, slots, position, which, sources, values, outdated):
        """Multiply the spectra of a limit of some hosts, and divide them.

        :param which: (r,) int, among the hosts
        :param outdated: (h,) bool, set for hosts that have to be made anew
        """
        if not which.size:
            return
        rates, masses, counts, of = sources.chosen(
            values, which, outdated.size, self._regimes)
        at = slots[which], position
        numbers = self._numbers[at]
        levels = rates / numbers[of, _STEP, None]
        off = numbers[:, _OFF] + np.bincount(
            of, counts * _off_grid(levels), which.size)
        self._numbers[(*at, _OFF)] = off
        kept, grid = self._kept[at], self._grids[_SMOOTH]
        if kept.size == 1:
            # A view, where one row is worth it.
            kept = slice(kept[0], kept[0] + 1)
        spectra, means = grid.products(levels, masses, counts, of, which.size)
        row = self._spectra.values[kept]
        spectra *= row[..., :-1]
        means += row[..., -1].real
        row[..., :-1], row[..., -1] = spectra, means
        self._spectra.values[kept] = row
        self._tables[False].values[self._row[at]] = grid.tables(spectra, means)
        # NaN as well.
        outdated[which] |= (off <= 0) | ~(
            np.abs(spectra) > fourier_sum.LEAST_PRODUCT).all(axis=(1, 2))

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
        self._kept = grown(self._kept, size, _NO_ROW)
        self._rules = grown(self._rules, (size[0], _RULES), 0.0)
        self._stale = grown(self._stale, size[:1], True)

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
        if self._pending:
            self._follow()
        stale = self._stale[slots]
        if stale.any():
            self._refresh(np.unique(slots[stale]))
        count = slots.size
        numbers = self._numbers[slots]              # (h, l, _NUMBERS)
        rules = self._rules[slots]                  # (h, _RULES)
        units = self._unit[slots]                   # (h, l)
        levels = self._levels_of(law)
        means, peaks = levels.means, levels.peaks
        capacity, mean, peak, vm_peak = (
            numbers[..., i] for i in (_CAPACITY, _MEAN, _PEAK, _VM_PEAK))
        with np.errstate(over='ignore'):
            mean_with = mean + means[units]
        # Where all peaks together fit there is no overload: no table needed.
        exceeds = peak + peaks[units] > capacity * _SLACK
        probability = np.zeros(exceeds.shape)
        excess = np.zeros(exceeds.shape)
        where, limit = np.nonzero(exceeds)
        if where.size:
            at = slots[where], limit
            self._build_missing(*at)
            rows, numbers = self._row[at], self._numbers[at]
            weights = levels.weights(self._regimes)
            rates = levels.values[units[where, limit]]
            fine = numbers[:, _KIND] == _FINE
            if not fine.any():
                found = self._tables[False].look_up(
                    rows, numbers, rates, weights)
            else:
                found = np.empty((where.size, 2))
                for which in (~fine, fine):
                    if which.any():
                        found[which] = self._tables[which is fine].look_up(
                            rows[which], numbers[which], rates[which],
                            weights)
            # There is overload where not all peaks fit, however seldom.
            probability[where, limit] = np.maximum(found[:, 0], _LEAST)
            excess[where, limit] = found[:, 1]
        # The union bound: never less than the risk of any limit at once.
        overload = np.minimum(probability.sum(axis=1), 1.0)
        # What is more than a float can hold is lost as good as entirely.
        finite = np.isfinite(mean_with)
        loss = np.divide(excess, mean_with, out=np.where(finite, 0.0, 1.0),
                         where=finite & (excess > 0))
        loss = np.minimum(loss.sum(axis=1), 1.0)
        average = rules[:, _AVERAGE] > 0
        too_much = (mean_with > capacity * _SLACK).any(axis=1)
        reason = np.full(count, ADMITTED)
        # The first that holds is told, so it is written last.
        for which, why in (
                (~average & self._exceeds(slots, overload), OVERLOAD),
                (average & too_much, MEAN),
                ((peaks[units] > vm_peak * _SLACK).any(axis=1), PEAK),
                (full > 0, TOO_MANY),
                (rules[:, _PASSES] == 0, NO_PROFILE)):
            reason[which] = why
        with np.errstate(invalid='ignore'):
            used = np.where(np.isfinite(capacity), mean_with / capacity, 0.0)
        return Assessment(
            self, slots, reason, overload, loss,
            used.max(axis=1) if used.size else np.zeros(count),
            rules[:, _KNOWN] > 0, mean_with, peaks[units], full.copy())

    def _exceeds(self, slots, overload):
        """Return which hosts have more overload than their limit.

        A smooth tail is known to its error, and no instance is refused for
        that.
        """
        limit = self._rules[slots, _LIMIT]
        found = overload > limit
        if found.any():
            smooth = (self._kept[slots] >= 0).any(axis=1)
            found &= ~smooth | (overload > limit * (1 + _ERROR))
        return found

    def _build_missing(self, slots, limits):
        """Make the look-up tables that these limits of these hosts lack."""
        lacking = self._row[slots, limits] == _NO_ROW
        if not lacking.any():
            return
        for position in np.unique(limits[lacking]).tolist():
            some = np.unique(slots[lacking & (limits == position)])
            for first in range(0, some.size, _TOGETHER):
                part = some[first:first + _TOGETHER]
                self._build(part, position, np.arange(part.size),
                            self._sources_of(part))

    def _levels_of(self, law):
        """Return the _Levels of a law, in all units."""
        found = self._levels.get(law)
        if found is None or found.units < len(self._unit_keys):
            if len(self._levels) >= _MOST_LAWS:
                self._levels.clear()
            found = self._levels[law] = _Levels(law, self._unit_keys)
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
                if self._peaks[i, j] > most * (1 + fourier_sum.TOLERANCE):
                    peak, most = plain_text.distinct(
                        self._peaks[i, j], most)
                    return (f"the instance's peak of {peak} "
                            f'{_unit_text(weights)} is above the {most} '
                            f'that one instance can have on profile {name}')
        if reason == MEAN:
            for j, (weights, capacity, _) in enumerate(limits):
                if self._means[i, j] > capacity * (1 + fourier_sum.TOLERANCE):
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
    from host to host behind an uplink does neither. One who is on two hosts
    behind it, during a move, counts once until it has left both.
    """

    def __init__(self, cells, attachments):
        self._attachments = attachments
        self.table = LoadTable(cells, self._all_tunnelled)
        self._policies = {}      # name -> HostPolicy
        # name -> {uuid: laws, one for each host that has it}
        self._laws = {}
        # name -> {uuid: (laws that came, laws that went)}
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
        """Take in who came to a host behind some uplinks, and who went.

        :param came: {instance uuid: RateLaw}
        :param went: likewise
        """
        for uplink in uplinks:
            moved = self._moved.setdefault(uplink.name, {})
            for which, laws in enumerate((came, went)):
                for uuid, law in laws.items():
                    moved.setdefault(uuid, ([], []))[which].append(law)

    def renew(self, uplinks, uuids):
        """Ask anew what some instances are attached to."""
        for uplink in uplinks:
            if uplink.policy.counts:
                self._renew.setdefault(uplink.name, set()).update(uuids)

    def _settle(self):
        """Bring the table of the uplinks up to date."""
        moved, self._moved = self._moved, {}
        for name, changes in moved.items():
            known, policy = self.table.residents(name), self._policies[name]
            laws_of = self._laws.setdefault(name, {})
            came, went = {}, []
            for uuid, (new, old) in changes.items():
                laws = laws_of.pop(uuid, []) + new
                for law in old:
                    laws.remove(law)
                if laws:
                    laws_of[uuid] = laws
                # It counts as the host says that has got it last.
                law, has = laws[-1] if laws else None, known.get(uuid)
                if law == has:
                    continue
                if has is not None:
                    went.append(uuid)
                if law is not None:
                    came[uuid] = law
            if self.table.policy(name) is not policy:
                self.table.describe(name, policy, known)
            # The same one may go with one law and come with another.
            self.table.change({name: ({}, went)} if went else {})
            self.table.change({name: (came, ())} if came else {})
        renew, self._renew = self._renew, {}
        for name, uuids in renew.items():
            self.table.renew(name, uuids)

    def judge(self, result, law, exclude, attachments):
        """Let an Assessment of hosts tell of their uplinks too."""
        self._settle()
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


class _Host:
    """One host of the table."""

    __slots__ = ('host', 'slot', 'policy', 'residents')

    def __init__(self, host, slot):
        self.host = host
        self.slot = slot
        self.policy = None
        self.residents = {}      # uuid -> RateLaw


class _Rows:
    """Rows of complex numbers in each regime, handed out as needed."""

    def __init__(self, width):
        self.values = np.zeros((0, 1, width), dtype=complex)
        #: How many are likely to be taken soon.
        self.expected = 0
        self._free = []

    def take(self, count, regimes):
        """Return the numbers of some rows."""
        have = len(self.values)
        if len(self._free) < count:
            more = max(count, have // 8, 16, self.expected)
            grown = np.zeros((have + more, regimes, self.values.shape[2]),
                             dtype=complex)
            grown[:have] = self.values
            self.values = grown
            self._free.extend(range(have + more - 1, have - 1, -1))
        taken = self._free[-count:]
        del self._free[-count:]
        return np.array(taken, dtype=np.int64)

    def free(self, rows):
        """Take rows back."""
        self._free.extend(rows.tolist())

    def look_up(self, rows, numbers, rates, weights):
        """Return what one more source makes of sums.

        :param rows: (f,) int, of the look-up tables of the sums
        :param numbers: (f, _NUMBERS) of their limits
        :param rates: (f, n) of the source
        :param weights: (g * n,) its probabilities, regime by regime
        :returns: (f, 2): P(more than the capacity), mean excess
        """
        step = numbers[:, _STEP, None]
        place = (numbers[:, _CAPACITY, None] - numbers[:, _BASE, None]
                 - rates) / step
        _, regimes, width = self.values.shape
        below = np.clip(np.floor(place + _NEAR), 0, width - 2)
        part = place - below
        at = ((rows * (regimes * width))[:, None] + below.astype(np.int64))[
            :, None] + np.arange(0, regimes * width, width)[:, None]
        flat = self.values.reshape(-1)
        lower = flat.take(at)
        rise = flat.take(at + 1)
        rise -= lower
        # On the grid the tail has steps. Else it is a parabola between two
        # cells, of the mean that the excess says, and within their tails.
        line = (part * (numbers[:, _KIND, None] <= _ROUNDED))[:, None]
        bend = -6.0 * line * (1.0 - line) * (
            lower.real + 0.5 * rise.real + rise.imag)
        tail = lower.real + np.clip(rise.real * line + bend, rise.real, 0.0)
        excess = lower.imag + rise.imag * part[:, None]
        # Below any sum that there is.
        deep = (part < -_NEAR)[:, None]
        tail = np.where(deep, 1.0, tail)
        excess = np.where(deep, lower.imag - part[:, None], excess)
        found = np.empty((len(at), 2))
        found[:, 0] = tail.reshape(len(at), -1) @ weights
        found[:, 1] = excess.reshape(len(at), -1) @ weights * step[:, 0]
        return found


class _Levels:
    """What a law is in each of some units.

    :ivar units: how many
    :ivar values: (u, n) rates of its states
    :ivar means: (u,)
    :ivar peaks: (u,)
    :ivar by_regime: (2, n) probabilities of its states
    """

    def __init__(self, law, unit_keys):
        self.units = len(unit_keys)
        self.values = np.array([law.values(*key) for key in unit_keys]
                               or [np.zeros(law.probabilities.size)])
        self.by_regime, self._masses = law.by_regime, law.probabilities
        self.means = self.values @ self._masses
        self.peaks = self.values.max(axis=1)

    def weights(self, regimes):
        """Return the (g * n,) probabilities of regime and state at once."""
        return self._masses if regimes == 1 else (
            self.by_regime * _SHARES).ravel()

    @functools.cached_property
    def regimes(self):
        """How many regimes the law needs: 1 where it is the same in all."""
        return 1 if (self.by_regime[0] == self.by_regime[1]).all() \
            else len(model.REGIMES)

    @functools.cached_property
    def above(self):
        """(u, n) rates above the least one."""
        return self.values - self.values.min(axis=1)[:, None]

    @functools.cached_property
    def sums(self):
        """(u, 5): the columns :data:`_SUMS`."""
        square = self.above * self.above @ self._masses \
            - model.REGIME_SHARES @ (self.by_regime @ self.above.T) ** 2
        least = self.peaks - self.above.max(axis=1)
        return np.array([least, self.peaks, self.means,
                         least < self.peaks, square]).T


class _Sources:
    """The laws of many instances in one array.

    A law of fewer states than others has its last one again, never.

    :param laws: list of RateLaw
    :param of: (n,) int, increasing: of which host each is
    :param counts: (n,) how many have it; -1: one goes that had it
    """

    def __init__(self, laws, of, counts):
        self.of, self.counts, self._laws = of, counts, laws
        rows = np.frombuffer(b''.join(laws), '<f8').reshape(
            -1, model.LAW_COLUMNS)
        sizes = np.array([len(law) for law in laws], dtype=np.int64)
        sizes //= 8 * model.LAW_COLUMNS
        states = int(sizes.max(initial=1))
        if len(rows) == states * len(laws):
            rows = rows.reshape(-1, states, model.LAW_COLUMNS)
        else:
            starts = np.cumsum(sizes) - sizes
            place = np.arange(states)
            sizes = sizes[:, None]
            rows = rows[starts[:, None] + np.minimum(place, sizes - 1)]
            rows[..., :-3] *= (place < sizes)[..., None]
        self._rates, self._by_regime = rows[..., -3:], rows[..., :-3]
        #: How many regimes have to be told apart.
        self.regimes = 1 if (
            rows[..., 1:-3] == rows[..., :-4]).all() else len(model.REGIMES)

    def values(self, unit_keys, units):
        """Return the (n, m) rates of all in the units of their hosts.

        :param units: (h,) int, which of the units, for each host
        """
        used = set(units.tolist()) if unit_keys else ()
        if len(used) == 1:
            return self._in_unit(*unit_keys[used.pop()])
        found = np.zeros(self._rates.shape[:2])
        for unit in used:
            here = units[self.of] == unit
            found[here] = self._in_unit(*unit_keys[unit])[here]
        return found

    def _in_unit(self, weights, packet_bytes):
        """Return what :meth:`.RateLaw.values` does, of all at once."""
        values = self._rates @ np.array(weights)
        if packet_bytes is not None:
            bandwidth = self._rates[..., 0] + self._rates[..., 1]
            unknown = ~self._rates[..., 2].any(axis=1)
            values[unknown] += weights[2] * bandwidth[unknown] / (
                8.0 * packet_bytes)
        return values

    def sums(self, values):
        """Return (5, n): the columns :data:`_SUMS` of each source."""
        least, most = values.min(axis=1), values.max(axis=1)
        above = values - least[:, None]
        if self.regimes == 1:
            masses = self._by_regime[..., 0]
            means = (above * masses).sum(axis=1)
            mean, square = means, means * means
        else:
            masses = self._by_regime @ model.REGIME_SHARES
            means = (above[..., None] * self._by_regime).sum(axis=1)
            mean, square = (one @ model.REGIME_SHARES
                            for one in (means, means * means))
        return np.array([least, most, least + mean, most > least,
                         (above * above * masses).sum(axis=1) - square])

    def same(self, count):
        """Return equal numbers for equal laws, if ``count`` are all."""
        if count != len(self._laws):
            return None
        numbers = {}
        return np.array([numbers.setdefault(law, len(numbers))
                         for law in self._laws])

    def chosen(self, values, which, hosts, regimes):
        """Return the sources of some hosts.

        :param which: (r,) int, increasing, of the hosts
        :param hosts: how many hosts there are
        :returns: (n, m) rates above the least of each source, (n, g, m)
            probabilities, (n,) counts, (n,) int: which of the r hosts
        """
        masses = self._by_regime[..., :regimes].swapaxes(1, 2)
        counts, of = self.counts, self.of
        if which.size < hosts:
            place = np.full(hosts, -1)
            place[which] = np.arange(which.size)
            of = place[of]
            some = np.flatnonzero(of >= 0)
            values, masses, counts, of = (
                one[some] for one in (values, masses, counts, of))
        return values - values.min(axis=1, keepdims=True), masses, counts, of


def _off_grid(levels):
    """Return which sources have levels that are no whole numbers."""
    return (np.abs(levels - np.rint(levels)) > _NEAR).any(axis=1)


# Columns of the arrays of LoadTable.
(_CAPACITY, _VM_PEAK, _BASE, _PEAK, _MEAN, _ACTIVE, _VARIANCE, _STEP, _OFF,
 _KIND, _NUMBERS) = range(11)
_SUMS = slice(_BASE, _VARIANCE + 1)
_KNOWN, _PASSES, _AVERAGE, _LIMIT, _RULES = range(5)
_UNLIMITED = (np.inf, np.inf, *(0.0,) * 8)
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
