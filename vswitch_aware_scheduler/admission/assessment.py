# SPDX-License-Identifier: Apache-2.0
"""The effect of one more instance on hosts, in numbers and in words. Pure."""

from __future__ import annotations

import dataclasses
import typing

import numpy as np

from vswitch_aware_scheduler.admission import policy as admission_policy
from vswitch_aware_scheduler.admission import tunnel_table
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['ADMITTED', 'CHECKS', 'DEBT', 'FUNCTIONS', 'GIANT', 'MEAN',
           'NO_PROFILE', 'OVERLOAD', 'PEAK', 'TOO_MANY', 'UPLINK',
           'Assessment']

# Why a host is refused. The checks are made in this order. The last two refuse
# a host only if another host passes.
(ADMITTED, NO_PROFILE, TOO_MANY, PEAK, MEAN, OVERLOAD, UPLINK, DEBT,
 GIANT) = range(9)

#: The checks in words, by reason.
CHECKS = ('admitted', 'no profile', 'tunnels', 'peak', 'average',
          'overload probability', 'uplink', 'error budget', 'large neighbour')

#: Name of the check TOO_MANY if the virtual functions are not enough.
FUNCTIONS = 'virtual functions'

#: Units of sums by the weights of egress, ingress and packets.
UNITS = {(1.0, 1.0, 0.0): 'kbit/s', (1.0, 0.0, 0.0): 'kbit/s of egress',
         (0.0, 1.0, 0.0): 'kbit/s of ingress',
         (0.0, 0.0, 1.0): 'kilo-packets/s'}

# Fields of a LimitLoad, by which a host is explained, and which a check
# compares.
_EXPLAINED = 'mean', 'capacity', 'instance_peak', 'vm_peak'
_COMPARED = {PEAK: ('instance_peak', 'vm_peak'), MEAN: ('mean', 'capacity')}

_FULL_OF_FUNCTIONS = 1 + tunnel_table.COUNTED.index(tunnel_table.FUNCTIONS)

# Names of the counted quantities, in the order of tunnels.COUNTED.
_COUNTED = ('instances', 'interfaces', 'networks', 'remote VTEPs',
            'virtual functions in use')


@dataclasses.dataclass(eq=False)
class Assessment:
    """The effect of one more instance on each of h hosts.

    If a host has an uplink, overload_probability, loss_fraction and
    utilisation are the larger values of host and uplink.

    :ivar reason: (h,) ADMITTED, or the check that refuses the host
    :ivar overload_probability: (h,) upper bound of P(any limit is exceeded)
    :ivar loss_fraction: (h,) expected share of the host's traffic that is lost
    :ivar utilisation: (h,) mean rate divided by capacity, of the limit with
        the highest ratio
    :ivar avoided: (h,) why the host should get no new instance while another
        host passes: DEBT, GIANT, UPLINK if that applies to an uplink, or
        ADMITTED
    :ivar in_debt: (h,) whether the host or an uplink is in debt and does not
        recover
    """

    _table: typing.Any
    rows: np.ndarray
    reason: np.ndarray
    overload_probability: np.ndarray
    loss_fraction: np.ndarray
    utilisation: np.ndarray
    known: np.ndarray
    enforced: np.ndarray
    # LimitLoad, and (h,) the positions of the hosts in it; None: 0 to h - 1.
    _load: typing.Any
    _at: np.ndarray | None
    # (h,): the limits of overload_probability, with the numerical error.
    _limits: np.ndarray
    # The quantity that exceeds its maximum, as TunnelTable.refused returns it.
    _full: np.ndarray
    avoided: np.ndarray
    in_debt: np.ndarray
    # Attachments and uuid to exclude of the judged instance, and the
    # TunnelTable that counted.
    _candidate: typing.Any = (vswitch_attachments.UNKNOWN, None, None)
    # (h,): number of residents. The table may have changed since.
    _residents: typing.Any = None
    # Assessments of uplinks, and (h, 2): index of the Assessment and position
    # in it of the uplink that decides on a host.
    _uplinks: list[Assessment] = dataclasses.field(default_factory=list)
    _uplink_of: typing.Any = None
    # (h,): whether avoid() refuses the host.
    _not_needed: np.ndarray | None = None

    @property
    def admitted(self) -> np.ndarray:
        """(h,) bool, whether each host is admitted."""
        return self.reason == ADMITTED

    @property
    def passing(self) -> np.ndarray:
        """(h,) bool, whether each host is admitted or only observed."""
        return self.admitted | ~self.enforced

    def avoid(self) -> None:
        """Refuse the avoided hosts if another host passes."""
        avoided = self.admitted & (self.avoided != ADMITTED)
        if not avoided.any() or not (
                self.passing & (self.avoided == ADMITTED)).any():
            return
        self._not_needed = avoided
        self.reason[avoided] = self.avoided[avoided]
        for i in np.flatnonzero(avoided & (self.reason == UPLINK)).tolist():
            which, at = self._uplink_of[i].tolist()
            uplinks = self._uplinks[which]
            uplinks.reason[at] = uplinks.avoided[at]

    @property
    def fits(self) -> np.ndarray:
        """(h,) bool, whether a host is admitted without :meth:`avoid`."""
        return self.admitted if self._not_needed is None \
            else self.admitted | self._not_needed

    @property
    def last(self) -> np.ndarray:
        """(h,) bool, whether other hosts that pass come first."""
        return self.in_debt | (self.avoided != ADMITTED)

    @property
    def only_last(self) -> bool:
        """Whether hosts pass, all of which are avoided."""
        passing = self.passing
        return bool(passing.any() and (
            self.avoided[passing] != ADMITTED).all())

    @property
    def above(self) -> np.ndarray:
        """(h,) bool, whether the overload probability exceeds the limit."""
        return self.overload_probability > self._limits

    def replace(self, where: typing.Any, other: Assessment) -> None:
        """Replace the results of some hosts by those of another Assessment."""
        for name in ('reason', 'overload_probability', 'loss_fraction',
                     'utilisation', '_full', '_limits', 'avoided',
                     'in_debt'):
            getattr(self, name)[where] = getattr(other, name)
        if other._uplink_of is not None:
            self._uplink_of[where] = other._uplink_of + (
                len(self._uplinks), 0)
            self._uplinks = self._uplinks + other._uplinks
        if self._at is not None:
            # Copy, because a host may be listed twice.
            self._load = self._load.of(self._at)
            self._at = None
        for name in _EXPLAINED:
            values = other._of_limits(name, slice(None))
            getattr(self._load, name)[:values.shape[1], where] = values.T

    def _of_limits(self, name: str, where: typing.Any) -> np.ndarray:
        """Return a field of the LimitLoad of the given hosts, limits last."""
        if self._at is not None:
            where = self._at[where]
        return getattr(self._load, name)[:, where].T

    def share(self, uplinks: Assessment, of: np.ndarray) -> None:
        """Apply the results of the uplinks to their hosts.

        :param of: (h, m) positions of the uplinks of hosts, filled up with u
        """
        if not of.size:
            return
        refused = np.append(~uplinks.admitted, False)[of]
        avoided = np.append(uplinks.avoided != ADMITTED, False)[of]
        overload = np.append(uplinks.overload_probability, -1.0)[of]
        first = np.select(
            [refused.any(axis=1), avoided.any(axis=1)],
            [refused.argmax(axis=1), avoided.argmax(axis=1)],
            overload.argmax(axis=1))
        self._uplinks = [uplinks]
        self._uplink_of = np.stack([np.zeros_like(first), of[
            np.arange(len(of)), first]], axis=1)
        self.reason[self.admitted & refused.any(axis=1)] = UPLINK
        for name in ('overload_probability', 'loss_fraction', 'utilisation'):
            worst = np.append(getattr(uplinks, name), 0.0)[of].max(axis=1)
            np.maximum(getattr(self, name), worst, out=getattr(self, name))
        self.avoided[(self.avoided == ADMITTED)
                     & avoided.any(axis=1)] = UPLINK
        self.in_debt |= np.append(uplinks.in_debt, False)[of].any(axis=1)

    def host(self, i: int) -> str:
        """Return the name of a host."""
        return self._entry(i).host

    def _entry(self, i):
        return self._table._entries[self.rows[i]]

    def position(self, host: str) -> int | None:
        """Return the position of a host, or None if it was not judged."""
        places = np.flatnonzero(self.rows == self._table.row(host))
        return int(places[0]) if places.size else None

    def limit(self, i: int) -> float | None:
        """Return the limit in force of a host, or None without one."""
        entry = self._entry(i)
        if entry.policy.profile is None \
                or entry.policy.policy == admission_policy.AVERAGE:
            return None
        return entry.policy.limit_in_force

    def loads(self, i: int) -> list[tuple[str, float, float, float, float]]:
        """Return rates for each limit of a host.

        :returns: [(unit in words, mean with the instance, capacity, peak of
            the instance, limit of one instance)]
        """
        policy = self._entry(i).policy
        numbers = np.array([self._of_limits(name, i) for name in _EXPLAINED])
        return [(_unit_text(weights), *numbers[:, j].tolist())
                for j, (weights, _, _) in enumerate(policy.limits)]

    def counts(self, i: int) -> list[tuple[str, int, int, float]]:
        """Return [(quantity, number now, number added, maximum)] of a host."""
        policy = self._entry(i).policy
        attachments, exclude, table = self._candidate
        return [(_COUNTED[place], *table.numbers(
            int(self.rows[i]), attachments, place, exclude))
            for place, unit in enumerate(tunnel_table.COUNTED)
            if unit in policy.counts]

    def check(self, i: int) -> str:
        """Return the name of the check that refuses a host, see CHECKS."""
        if self.reason[i] == TOO_MANY \
                and self._full[i] == _FULL_OF_FUNCTIONS:
            return FUNCTIONS
        return CHECKS[self.reason[i]]

    def refused_for_functions(self) -> int:
        """Return the number of hosts without enough virtual functions."""
        return int(((self.reason == TOO_MANY)
                    & (self._full == _FULL_OF_FUNCTIONS)).sum())

    def decisive(self, i: int) -> tuple[float, float] | None:
        """Return (value, limit) of the check that refuses, if it has them."""
        reason = self.reason[i]
        if reason == UPLINK:
            which, at = self._uplink_of[i].tolist()
            return self._uplinks[which].decisive(at)
        if reason == TOO_MANY:
            count, added, maximum = self._counted(i)
            total = count + added
            return (total, maximum) if total > maximum else None
        if reason == OVERLOAD:
            return (float(self.overload_probability[i]),
                    self._entry(i).policy.limit_in_force)
        return self._exceeded(i)[1:] if reason in (PEAK, MEAN) else None

    def unit(self, i: int) -> str | None:
        """Return the unit of :meth:`decisive` in words, None for a share."""
        reason = self.reason[i]
        if reason == UPLINK:
            which, at = self._uplink_of[i].tolist()
            return self._uplinks[which].unit(at)
        if reason == TOO_MANY:
            return _COUNTED[int(self._full[i]) - 1]
        return _unit_text(self._entry(i).policy.limits[
            self._exceeded(i)[0]][0]) if reason in (PEAK, MEAN) else None

    def _exceeded(self, i: int) -> tuple[int, float, float]:
        """Return (index, value, limit) of the limit that a host exceeds."""
        values, limits = (self._of_limits(name, i) for name in (
            _COMPARED[int(self.reason[i])]))
        j = int(_over(values, limits).argmax())
        return j, float(values[j]), float(limits[j])

    def multiples(self, where: np.ndarray) -> np.ndarray:
        """Return (n,) values of refused hosts divided by their limits.

        Infinite if the check compares no numbers or counts something.
        """
        reasons = self.reason[where]
        multiples = np.full(reasons.size, np.inf)
        for reason, names in _COMPARED.items():
            refused = reasons == reason
            values, limits = (self._of_limits(name, where[refused])
                              for name in names)
            multiples[refused] = _over(values, limits).max(axis=1,
                                                           initial=0.0)
        refused = reasons == OVERLOAD
        multiples[refused] = _over(self.overload_probability[where[refused]],
                                   self._limits[where[refused]])
        for place in np.flatnonzero(reasons == DEBT).tolist():
            # The sooner the debt is repaid, the nearer the host is.
            multiples[place] = 1.0 + self._entry(where[place]).debt.days
        for place in np.flatnonzero(reasons == UPLINK).tolist():
            which, at = self._uplink_of[where[place]].tolist()
            multiples[place] = self._uplinks[which].multiples(
                np.array([at]))[0]
        return multiples

    def explain(self, i: int) -> str:
        """Return in words, with numbers, why a host is admitted or refused."""
        entry = self._entry(i)
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
        if reason in (PEAK, MEAN):
            j, value, limit = self._exceeded(i)
            unit = _unit_text(entry.policy.limits[j][0])
            shown, most = plain_text.distinct(value, limit)
            if reason == MEAN:
                return (f'with it the average would be {shown} {unit}, above '
                        f'the {most} of profile {name}')
            return (f"the instance's peak of {shown} {unit} is above the "
                    f'{most} that one instance can have on profile {name}')
        if reason == DEBT:
            return (f'its error budget is overspent by the amount that '
                    f'{entry.debt.days:.3g} days in use earn, the project '
                    f'spends it or the overload probability would be above '
                    f'{entry.policy.overload_probability:.3g}, and another '
                    f'host passes (profile {name}, '
                    f'{self._residents[i]:.0f} instances)')
        if reason == GIANT:
            return (f'one of its {self._residents[i]:.0f} instances exceeds '
                    f'the capacity of profile {name} alone and would overload '
                    f'the new instance, and another host passes')
        verb = 'above' if reason == OVERLOAD else 'within'
        margin = entry.policy.prediction_margin
        divided = '' if margin == 1 else (
            f', {entry.policy.overload_probability:.3g} divided by the '
            f'prediction margin {margin:g}')
        overload, most = plain_text.distinct(
            self.overload_probability[i], entry.policy.limit_in_force, 3)
        return (f'with it the overload probability would be {overload}, '
                f'{verb} the limit of {most}{divided} '
                f'(profile {name}, '
                f'{self._residents[i]:.0f} instances, average utilisation '
                f'{self.utilisation[i]:.3g})')

    def _explain_uplink(self, i: int) -> str:
        return f'its uplink {self.host(i)}: {self.explain(i)}'

    def _explain_count(self, i: int, entry: typing.Any) -> str:
        place = int(self._full[i]) - 1
        unit = tunnel_table.COUNTED[place]
        count, added, maximum = self._counted(i)
        if count + added <= maximum:
            return (f'a host that its networks are on has no room for one '
                    f'more of the {_COUNTED[place]} that its profile limits')
        key = ('max_virtual_functions' if unit == tunnel_table.FUNCTIONS
               else entry.policy.tunnel_key)
        return (f'it has {count} {_COUNTED[place]}, the instance adds '
                f'{added}, and {key} of profile {entry.policy.profile.name} '
                f'is {maximum:g}')

    def _counted(self, i: int) -> tuple[int, int, float]:
        attachments, exclude, table = self._candidate
        return table.numbers(int(self.rows[i]), attachments,
                             int(self._full[i]) - 1, exclude)


def _over(values: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return values divided by limits; 0 if both are 0."""
    with np.errstate(divide='ignore', invalid='ignore'):
        return np.nan_to_num(values / limits, nan=0.0, posinf=np.inf)


def _unit_text(weights):
    return UNITS.get(tuple(weights), 'units')
