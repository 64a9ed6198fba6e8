# SPDX-License-Identifier: Apache-2.0
"""Which hosts can take one more instance, and what it would cost each.

:class:`LoadTable` keeps, for every host, what its residents ask of each limit
of its switch, as look-up tables; :meth:`LoadTable.assess` answers for any
number of hosts at once by table look-ups. This is the one piece of code that
decides, for the scheduler and for the evaluation alike. It knows no Nova, no
store and no clock; callers serialise access.

Derivation: reference/admission.rst.
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import law as sum_law
from vswitch_aware_scheduler.traffic import model

__all__ = ['AVERAGE', 'PROBABILITY', 'Assessment', 'HostPolicy', 'LoadTable']

#: Admission policies: the sum of averages against saturation (Figure 9 of
#: "Towards a Method Integrating Virtual Switch Performance Into Data Centre
#: Design"), or the probability of overload against the operator's limit.
AVERAGE = 'average'
PROBABILITY = 'probability'

#: Probabilities are compared with this relative tolerance: equality happens.
_TOLERANCE = 1e-9

#: More residents that change at once are no change but another host.
_FEW = 4

_REGIMES = len(model.REGIMES)
_SHARES = model.REGIME_SHARES[:, None]

# Why a host is refused, in the order of the checks.
ADMITTED, NO_PROFILE, TOO_MANY, PEAK, MEAN, OVERLOAD = range(6)


@dataclasses.dataclass(frozen=True, eq=False)
class HostPolicy:
    """What a host can carry and how it is judged.

    Compared by identity: hosts that share one share all that is derived.

    :ivar profile: SwitchProfile, or None when nothing is known of the switch
    :ivar policy: AVERAGE or PROBABILITY
    :ivar overload_probability: limit of PROBABILITY, 0..1
    :ivar pass_unknown: whether a host without profile passes
    """

    profile: object
    policy: str = PROBABILITY
    overload_probability: float = 0.01
    pass_unknown: bool = True

    def __post_init__(self):
        if self.policy not in (AVERAGE, PROBABILITY):
            raise exceptions.InvalidOverride(
                f'admission policy is {self.policy!r}, wanted {AVERAGE!r} or '
                f'{PROBABILITY!r}')
        if not 0 <= self.overload_probability <= 1:
            raise exceptions.InvalidOverride(
                f'overload probability is {self.overload_probability!r}, '
                f'wanted 0..1')


class LoadTable:
    """The load of hosts, kept ready for the next question.

    :param cells: grid cells up to a capacity; a state's rate counts up to a
        cell too much, never too little
    """

    def __init__(self, cells=256):
        self._cells = cells
        self._hosts = {}         # host -> _Host
        self._slots = []         # slot -> _Host
        self._slot_of = {}       # host -> slot
        self._units = {}         # (weights, packet bytes) -> unit number
        self._unit_keys = []
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
            return entry.slot
        self.version += 1
        known = entry.residents
        if entry.policy is not policy or not self._change(
                entry, [law for _, law in residents.items() - known.items()],
                [law for _, law in known.items() - residents.items()]):
            self._fill(entry, policy, residents)
        entry.residents = dict(residents)
        return entry.slot

    def change(self, host, came, went):
        """Set who has come to a host and who has gone since it was described.

        :param came: mapping of instance uuid to RateLaw
        :param went: instance uuids
        :returns: whether that could be done; if not, :meth:`describe` it
        """
        entry = self._hosts.get(host)
        if entry is None:
            return False
        residents = entry.residents
        if not residents.keys().isdisjoint(came) or not all(
                uuid in residents for uuid in went):
            return False
        if not self._change(entry, list(came.values()),
                            [residents[uuid] for uuid in went]):
            return False
        self.version += 1
        for uuid in went:
            del residents[uuid]
        residents.update(came)
        return True

    def _fill(self, entry, policy, residents):
        slot = entry.slot
        entry.policy = policy
        profile = policy.profile
        self._free_rows.extend(
            row for row in self._row[slot].tolist() if row >= 0)
        self._row[slot] = _NO_ROW
        limits = () if profile is None else _limits_of(profile)
        self._grow(0, len(limits))
        self._numbers[slot] = _UNLIMITED
        self._unit[slot] = 0
        most = None if profile is None else profile.max_instances
        self._rules[slot] = (
            len(residents), np.inf if most is None else most.count,
            profile is not None, profile is not None or policy.pass_unknown,
            policy.policy == AVERAGE,
            policy.overload_probability * (1 + _TOLERANCE))
        entry.limits = len(limits)
        sources = _Sources(residents.values())
        entry.not_whole = sources.not_whole()
        for position, (weights, capacity, vm_peak) in enumerate(limits):
            unit = self._unit_number(weights, profile.typical_packet_bytes)
            self._unit[slot, position] = unit
            unit_key = self._unit_keys[unit]
            self._numbers[slot, position] = (
                capacity, *sources.step(unit_key, capacity, self._cells),
                *sources.mean_and_peak(unit_key), vm_peak)

    def _change(self, entry, new, gone):
        """Follow who came and went, where the grids can stay as they are.

        :param new: list of RateLaw
        :param gone: list of RateLaw
        :returns: whether they could
        """
        slot = entry.slot
        residents = len(entry.residents) + len(new) - len(gone)
        if len(gone) + len(new) > _FEW or not residents \
                or len(gone) == len(entry.residents):
            return False
        not_whole = entry.not_whole + sum(map(_not_whole, new)) - sum(
            map(_not_whole, gone))
        numbers, added = self._numbers[slot], []
        for position in range(entry.limits):
            unit = self._unit_keys[self._unit[slot, position]]
            common = int(numbers[position, _COMMON])
            # Without those that went there may be a lattice, with those that
            # came a finer one.
            if common < 0 or gone and not common and not not_whole:
                return False
            values = [law.values(*unit) for law in new]
            if common and any(_common(one - one.min(), common) != common
                              for one in values):
                return False
            added.append((unit, values))
        for position, (unit, values) in enumerate(added):
            for law, one in zip(new, values):
                numbers[position, _MEAN] += one @ law.probabilities
                numbers[position, _PEAK] += one.max()
            for law in gone:
                one = law.values(*unit)
                numbers[position, _MEAN] -= one @ law.probabilities
                numbers[position, _PEAK] -= one.max()
            row = self._row[slot, position]
            if row >= 0 and gone:
                self._free_rows.append(row)
                self._row[slot, position] = _NO_ROW
            elif row >= 0:
                tables = (self._tails[row], self._excesses[row],
                          self._phases[row])
                for law, one in zip(new, values):
                    tables = sum_law.tables_plus(
                        *tables, numbers[position, _STEP], one,
                        law.by_regime)
                self._tails[row], self._excesses[row], self._phases[row] = \
                    tables
        self._rules[slot, _RESIDENTS] = residents
        entry.not_whole = not_whole
        return True

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

    def _build(self, slot, position):
        """Make the look-up tables of one limit of one host."""
        sources = _Sources(self._slots[slot].residents.values())
        capacity, step = self._numbers[slot, position, :2].tolist()
        laws = sources.sum_laws(
            self._unit_keys[self._unit[slot, position]], capacity, step)
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

    def assess(self, slots, law, exclude=None):
        """Judge what one more instance would do to each of some hosts.

        :param slots: (h,) int, of hosts that were described
        :param law: RateLaw of the instance
        :param exclude: uuid of the instance itself when it moves: where it
            is a resident, it is not counted twice
        :returns: Assessment, (h,) arrays in the order of ``slots``
        """
        slots = np.asarray(slots, dtype=np.int64)
        own = [] if exclude is None else [
            i for i, slot in enumerate(slots.tolist())
            if exclude in self._slots[slot].residents]
        result = self._assess(slots, law)
        for i in own:
            entry = self._slots[slots[i]]
            others = {uuid: one for uuid, one in entry.residents.items()
                      if uuid != exclude}
            alone = LoadTable(self._cells)
            slot = alone.describe(entry.host, entry.policy, others)
            result.replace(i, alone.assess([slot], law))
        return result

    def _assess(self, slots, law):
        count = slots.size
        numbers = self._numbers[slots]              # (h, l, _NUMBERS)
        rules = self._rules[slots]                  # (h, _RULES)
        units = self._unit[slots]                   # (h, l)
        values = np.array([law.values(*key) for key in self._unit_keys]
                          or [np.zeros(law.probabilities.size)])
        means = values @ law.probabilities
        # Of state and regime at once, as the tables have them.
        weights = (law.by_regime * _SHARES).T.ravel()
        peaks = values.max(axis=1)
        capacity, mean, peak, vm_peak = (
            numbers[..., i] for i in (_CAPACITY, _MEAN, _PEAK, _VM_PEAK))
        mean_with = mean + means[units]
        slack = 1 + sum_law.TOLERANCE
        # Where all peaks together fit there is no overload: no table needed.
        full = peak + peaks[units] > capacity * slack
        probability = np.zeros(full.shape)
        excess = np.zeros(full.shape)
        where, limit = np.nonzero(full)
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
        reason = np.select(
            [rules[:, _PASSES] == 0,
             rules[:, _RESIDENTS] + 1 > rules[:, _MOST],
             (peaks[units] > vm_peak * slack).any(axis=1),
             average & too_much,
             ~average & (overload > rules[:, _LIMIT])],
            [NO_PROFILE, TOO_MANY, PEAK, MEAN, OVERLOAD], ADMITTED)
        with np.errstate(invalid='ignore'):
            used = np.where(np.isfinite(capacity), mean_with / capacity, 0.0)
        return Assessment(
            self, slots, reason, overload, loss,
            used.max(axis=1) if used.size else np.zeros(count),
            rules[:, _KNOWN] > 0, mean_with, peaks[units])

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

    @property
    def admitted(self):
        """(h,) bool."""
        return self.reason == ADMITTED

    def replace(self, i, other):
        """Put the only host of another Assessment in place of host i."""
        for name in ('reason', 'overload_probability', 'loss_fraction',
                     'utilisation'):
            getattr(self, name)[i] = getattr(other, name)[0]
        width = other._means.shape[1]
        self._means[i, :width] = other._means[0]
        self._peaks[i, :width] = other._peaks[0]

    def explain(self, i):
        """Return in words, with the numbers that decided, why host i is so."""
        entry = self._table._entry(self.slots[i])
        profile = entry.policy.profile
        reason = self.reason[i]
        if profile is None:
            return ('no switch profile is known for it, unknown hosts %s'
                    % ('pass' if entry.policy.pass_unknown else 'are refused'))
        name = profile.name
        if reason == TOO_MANY:
            most = profile.max_instances
            return (f'it has {len(entry.residents)} instances and {most.key} '
                    f'of profile {name} is {most.count}')
        limits = _limits_of(profile)
        if reason == PEAK:
            for j, (weights, _, most) in enumerate(limits):
                if self._peaks[i, j] > most * (1 + sum_law.TOLERANCE):
                    return (f"the instance's peak of {self._peaks[i, j]:g} "
                            f'{_unit_text(weights)} is above the {most:g} '
                            f'that one instance can have on profile {name}')
        if reason == MEAN:
            for j, (weights, capacity, _) in enumerate(limits):
                if self._means[i, j] > capacity * (1 + sum_law.TOLERANCE):
                    return (f'with it the average would be '
                            f'{self._means[i, j]:g} {_unit_text(weights)}, '
                            f'above the {capacity:g} of profile {name}')
        verb = 'above' if reason == OVERLOAD else 'within'
        return (f'with it the overload probability would be '
                f'{self.overload_probability[i]:.3g}, {verb} the limit of '
                f'{entry.policy.overload_probability:g} (profile {name}, '
                f'{len(entry.residents)} instances, average utilisation '
                f'{self.utilisation[i]:.3g})')


class _Host:
    """One host of the table."""

    __slots__ = ('host', 'slot', 'policy', 'residents', 'limits',
                 'not_whole')

    def __init__(self, host, slot):
        self.host = host
        self.slot = slot
        self.policy = None
        self.residents = {}      # uuid -> RateLaw
        self.limits = 0          # how many limits it has
        self.not_whole = 0       # residents with rates that are not whole


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

    def _values(self, unit):
        weights, packet_bytes = unit
        if packet_bytes is None:
            return self._rates @ np.array(weights)
        return np.concatenate([law.values(weights, packet_bytes)
                               for law in self._laws])

    def not_whole(self):
        """Return how many have rates that are not whole numbers."""
        if not self._starts.size:
            return 0
        fractional = (self._rates != np.rint(self._rates)).any(axis=1)
        return int(np.count_nonzero(
            np.logical_or.reduceat(fractional, self._starts)))

    def mean_and_peak(self, unit):
        """Return the sum of the means and that of the peaks."""
        if not self._starts.size:
            return 0.0, 0.0
        values = self._values(unit)
        return (float(self._by_regime @ values @ model.REGIME_SHARES),
                float(np.maximum.reduceat(values, self._starts).sum()))

    def step(self, unit, capacity, cells):
        """Return (width of a grid cell, common divisor).

        That of a lattice which every sum is on, where so many cells reach
        the capacity on one: rates in round numbers are then added exactly.
        The divisor is 0 when there is no such lattice, and -1 when there may
        be one with the next source.
        """
        if self._starts.size:
            values = self._values(unit)
            above = values - np.repeat(
                np.minimum.reduceat(values, self._starts), self._sizes)
            if above.any():
                common = _common(above)
                if common * cells >= capacity:
                    return float(common), common
                return capacity / cells, 0
        return capacity / cells, -1

    def sum_laws(self, unit, capacity, step):
        """Return the GridLaw of all together, in each regime."""
        if not self._starts.size:
            return [sum_law.GridLaw(capacity, step)] * _REGIMES
        masses = self._by_regime
        if np.array_equal(*masses):
            masses = masses[:1]
        laws = sum_law.GridLaw.of_sources(
            capacity, step, self._values(unit), masses, self._starts)
        return laws * (_REGIMES // len(laws))


def _not_whole(law):
    rates = law.rates
    return bool((rates != np.rint(rates)).any())


def _common(rates, common=0):
    """Return the common divisor of whole rates and another; 0 without any."""
    if rates.max() >= 2.0 ** 53 or (rates != np.rint(rates)).any():
        return 0
    return int(np.gcd.reduce(rates.astype(np.int64), initial=common))


# Columns of the arrays of LoadTable.
_CAPACITY, _STEP, _COMMON, _MEAN, _PEAK, _VM_PEAK, _NUMBERS = range(7)
_RESIDENTS, _MOST, _KNOWN, _PASSES, _AVERAGE, _LIMIT, _RULES = range(7)
_UNLIMITED = (np.inf, 1.0, 0.0, 0.0, 0.0, np.inf)
_NO_ROW = -1


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
