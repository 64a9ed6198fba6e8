# SPDX-License-Identifier: Apache-2.0
"""Keeps the load of hosts ready for the next request.

:class:`LoadTable` keeps, for each limit of each host, the sum of the rates of
its residents as a look-up table, so that any number of hosts is judged at
once. The residents of all hosts behind an uplink are also checked against its
limits, as if the uplink were one more host. Derivation:
reference/admission.rst.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

import numpy as np
from numpy import typing as npt

from vswitch_aware_scheduler.admission import assessment
from vswitch_aware_scheduler.admission import limit_sums
from vswitch_aware_scheduler.admission import policy as admission_policy
from vswitch_aware_scheduler.admission import tunnel_table
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['LoadTable']

#: Absolute error of probabilities, in addition to the tolerance of policies.
_NOISE = 1e-12

_NO_ROW = -1

#: Hosts are judged with the hosts between their rows, if there are no more
#: than this number for each of them.
_SPARSE = 1.25

# Rows of LoadTable._rules.
(_KNOWN, _PASSES, _AVERAGE, _LIMIT, _ENFORCED, _RESIDENTS, _LIMIT_IN_DEBT,
 _RULES) = range(8)

#: Kinds of what has an error budget, as in the store.
_HOST, _UPLINK = 'host', 'uplink'


_Residents: typing.TypeAlias = abc.Mapping[typing.Any, rate_law.RateLaw]
#: Attachments of the instance with a uuid, or None if they are unknown.
_Attachments: typing.TypeAlias = abc.Callable[
    [str], vswitch_attachments.Attachments | None]
#: Kind and name of what is in debt.
_Debts: typing.TypeAlias = dict[tuple[str, str], typing.Any]


class LoadTable:
    """The load of hosts, ready for the next request.

    :meth:`describe` sets a host, :meth:`change` adds and removes residents,
    :meth:`assess` and :meth:`assess_each` judge hosts by their rows.
    :attr:`version` changes whenever a result may change. The sums of a host
    are computed when the host is first judged; :meth:`prepare` computes them
    before a new table is used.

    :param attachments: returns what an instance is attached to; only called if
        a host counts something. An instance without interfaces counts as
        unknown, because it may get an interface while it runs.
    :param debts: {(kind, name): :class:`.budgets.Debt`} of the hosts ('host')
        and uplinks ('uplink') in debt
    """

    def __init__(self, cells: int = 256,
                 attachments: _Attachments = lambda uuid: None,
                 debts: _Debts | None = None) -> None:
        self._cells = cells
        self._debts = debts or {}
        self._row_of = {}        # host -> row
        self._last_rows: typing.Any = None, None    # of rows_of
        self._uplinks = {}       # name -> _Entry
        self._entries = []       # by row: hosts and uplinks
        self._rules = np.zeros((_RULES, 0))              # by row
        # By row of a host: rows of its uplinks.
        self._uplinks_of = np.full((0, 0), _NO_ROW)
        self._sums = limit_sums.LimitSums(cells, self._entries)
        self._attached = _Attached(attachments)
        self._attached_uplinks = _Attached(lambda uuid: (
            attachments(uuid) or vswitch_attachments.UNKNOWN).all_tunnelled)
        #: Counts changes: an Assessment is outdated if the version differs.
        self.version = 0

    def __len__(self) -> int:
        return len(self._row_of)

    def row(self, host: str) -> int | None:
        """Return the row of a host that was described, or None."""
        return self._row_of.get(host)

    def rows_of(self, hosts: list[str]) -> np.ndarray:
        """Return the (h,) rows of some hosts: their positions in the table.

        :param hosts: must not change; the same list object again is faster
        :raises KeyError: for a host that was not described
        """
        listed, rows = self._last_rows
        if hosts is not listed:
            rows = np.array(list(map(self._row_of.__getitem__, hosts)),
                            dtype=np.int64)
            self._last_rows = hosts, rows
        return rows

    @property
    def counts_attachments(self) -> bool:
        """Whether the attachments of instances are counted on any host."""
        return (self._attached.tunnels.limited
                or self._attached_uplinks.tunnels.limited)

    def describe(self, host: str, policy: admission_policy.HostPolicy,
                 residents: _Residents) -> int:
        """Set the policy and the residents of a host; return its row."""
        row = self._row_of.get(host)
        if row is None:
            row = self._row_of[host] = self._add_entry(host, _HOST).row
        entry = self._entries[row]
        old_policy, old_residents = entry.policy, entry.residents
        if old_policy is not policy or old_residents != residents:
            self.version += 1
            entry.residents = dict(residents)
            if old_policy is not policy:
                self._set_policy(entry, policy)
            self._residents_changed(entry)
            if old_policy is not policy or policy.uplinks:
                self._share(entry, old_policy, old_residents)
        self._attached.describe(entry)
        for uplink in self._uplinks_behind(entry):
            self._attached_uplinks.renew(uplink, residents)
        return row

    def change(
            self, changes: dict[str, tuple[_Residents, abc.Iterable[str]]]
    ) -> list[str]:
        """Add and remove residents of the given hosts.

        :param changes: {host: (added, removed)}
        :returns: the hosts to which the change does not apply, because their
            residents differ; use :meth:`describe` for them
        """
        differing = []
        for host, (added, removed) in changes.items():
            row = self._row_of.get(host)
            entry = None if row is None else self._entries[row]
            residents = {} if entry is None else entry.residents
            if entry is None or not residents.keys().isdisjoint(added) \
                    or not all(map(residents.__contains__, removed)):
                differing.append(host)
                continue
            self.version += 1
            removed_laws = {uuid: residents.pop(uuid) for uuid in removed}
            residents.update(added)
            self._residents_changed(entry)
            self._attached.change(entry, added, removed_laws)
            for uplink in self._uplinks_behind(entry):
                self._hold(uplink, host, removed_laws, added)
        return differing

    def _add_entry(self, name: str, kind: str) -> _Entry:
        entry = _Entry(name, kind, len(self._entries),
                       self._debts.get((kind, name)))
        self._entries.append(entry)
        if len(self._uplinks_of) <= entry.row:
            added_rows = entry.row // 2 + 1
            self._rules = np.pad(self._rules, [(0, 0), (0, added_rows)])
            self._uplinks_of = np.pad(
                self._uplinks_of, [(0, added_rows), (0, 0)],
                constant_values=_NO_ROW)
        return entry

    def _uplinks_behind(self, entry: _Entry) -> list[_Entry]:
        return [self._uplinks[link.name] for link in entry.policy.uplinks]

    def _share(self, entry, policy, old_residents):
        """Count the residents of a host behind its uplinks."""
        for link in entry.policy.uplinks:
            uplink = self._uplinks.get(link.name)
            if uplink is None:
                uplink = self._uplinks[link.name] = self._add_entry(
                    link.name, _UPLINK)
            if uplink.policy is not link.policy:
                self._set_policy(uplink, link.policy)
                self._attached_uplinks.describe(uplink)
        uplinks = self._uplinks_behind(entry)
        old_uplinks = [self._uplinks[link.name]
                       for link in policy.uplinks] if policy else []
        for uplink in dict.fromkeys(old_uplinks + uplinks):
            self._hold(uplink, entry.host,
                       old_residents if uplink in old_uplinks else {},
                       entry.residents if uplink in uplinks else {})
        missing_columns = len(uplinks) - self._uplinks_of.shape[1]
        if missing_columns > 0:
            self._uplinks_of = np.pad(
                self._uplinks_of, [(0, 0), (0, missing_columns)],
                constant_values=_NO_ROW)
        self._uplinks_of[entry.row] = _NO_ROW
        self._uplinks_of[entry.row, :len(uplinks)] = [
            uplink.row for uplink in uplinks]

    def _hold(self, uplink, host, before, after):
        """Replace the residents of a host behind an uplink.

        An instance on two of its hosts counts once, by the last law.
        """
        added, removed = {}, {}
        for uuid in {**before, **after}:
            law = after.get(uuid)
            if law == before.get(uuid):
                continue
            laws = uplink.laws.setdefault(uuid, {})
            laws.pop(host, None)
            if law is not None:
                laws[host] = law
            law = next(reversed(laws.values()), None)
            old_law = uplink.residents.pop(uuid, None)
            if law is None:
                del uplink.laws[uuid]
            else:
                uplink.residents[uuid] = law
            if law != old_law:
                added.update({} if law is None else {uuid: law})
                removed.update({} if old_law is None else {uuid: old_law})
        self._residents_changed(uplink)
        self._attached_uplinks.change(uplink, added, removed)

    def residents(self, host: str) -> _Residents:
        """Return the residents of a host, which must not be changed."""
        return self._entries[self._row_of[host]].residents

    def policy(self, host: str) -> admission_policy.HostPolicy:
        """Return the HostPolicy of a host."""
        return self._entries[self._row_of[host]].policy

    def forget(self, host: str) -> None:
        """Drop a host without residents. Its row is not used again."""
        self._row_of.pop(host, None)
        self._last_rows = None, None

    def drop_residents(self, hosts_in_step: int) -> abc.Iterator[None]:
        """Return an iterator that drops residents: the table has ended."""
        for number, entry in enumerate(self._entries):
            entry.residents, entry.laws = {}, {}
            if number % hosts_in_step == 0:
                yield

    # Loads of the limits.

    def _set_policy(self, entry, policy):
        entry.policy, risk = policy, policy.limit_in_force
        has_profile = policy.profile is not None
        self._rules[:, entry.row] = (
            has_profile, has_profile or policy.pass_unknown,
            policy.policy == admission_policy.AVERAGE,
            risk * (1 + admission_policy.TOLERANCE) + _NOISE if risk else 0.0,
            policy.enforced, len(entry.residents), np.nan)
        self._set_limit_in_debt(entry)
        self._sums.set_limits(entry)

    def _set_limit_in_debt(self, entry: _Entry) -> None:
        """Set the limit of a host in debt, for those who do not spend."""
        policy = entry.policy
        self._rules[_LIMIT_IN_DEBT, entry.row] = (
            policy.overload_probability / max(policy.prediction_margin, 1.0)
            * (1 + admission_policy.TOLERANCE) + _NOISE
            if entry.debt is not None and policy.profile is not None
            and policy.policy == admission_policy.PROBABILITY else np.nan)

    def set_debts(self, debts: _Debts) -> None:
        """Set which hosts and uplinks are in debt."""
        self._debts = debts
        self.version += 1
        for entry in self._entries:
            debt = debts.get((entry.kind, entry.host))
            if debt != entry.debt:
                entry.debt = debt
                if entry.policy is not None:
                    self._set_limit_in_debt(entry)

    def _residents_changed(self, entry: _Entry) -> None:
        self._rules[_RESIDENTS, entry.row] = len(entry.residents)
        self._sums.outdate(entry)

    def assess(
            self, rows: npt.ArrayLike, law: rate_law.RateLaw,
            exclude: str | None = None,
            attachments: vswitch_attachments.Attachments | None = None,
            project: str | None = None) -> assessment.Assessment:
        """Judge the effect of one more instance on each of the given hosts.

        A host that should get no new instances is refused only if another host
        passes, see :meth:`.Assessment.avoid`.

        :param rows: (h,) int, of hosts that were described
        :param exclude: uuid of the instance if it moves; it is then not
            counted twice on a host where it is a resident
        """
        result = self._assess_all(rows, law, exclude, attachments, project)
        result.avoid()
        return result

    def _assess_all(self, rows, law, exclude, attachments, project):
        """Judge hosts with their uplinks, each as if it were the only one."""
        rows = np.asarray(rows, dtype=np.int64)
        attachments = attachments or vswitch_attachments.UNKNOWN
        result = self._assess(rows, law, exclude, attachments, project,
                              self._attached.tunnels)
        if self._uplinks:
            of = self._uplinks_of[rows]
            used = np.flatnonzero(np.bincount(of[of != _NO_ROW]))
            places = np.full(len(self._entries) + 1, used.size)
            places[used] = np.arange(used.size)
            # The last position stands for _NO_ROW.
            result.share(self._assess(
                used, law, exclude, attachments.all_tunnelled, project,
                self._attached_uplinks.tunnels), places[of])
        return result

    def _assess(self, rows, law, exclude, attachments, project, table):
        """Judge hosts, or uplinks, whose attachments a TunnelTable counts."""
        full = (table.refused(rows, attachments, exclude) if table.limited
                else np.zeros(rows.size, dtype=np.int64))
        result = self._judge(rows, law, full)
        result._candidate = attachments, exclude, table
        result._residents = self._rules[_RESIDENTS].take(rows)
        for position in np.flatnonzero(result.in_debt).tolist():
            debt = self._entries[rows[position]].debt
            if project is not None and project in debt.projects:
                result.avoided[position] = assessment.DEBT
        for position, row in enumerate(rows.tolist() if exclude else ()):
            entry = self._entries[row]
            if exclude in entry.residents:
                # An uplink may have the name of a host.
                alone = LoadTable(self._cells)
                alone._sums.share_cache(self._sums)
                row_alone = alone.describe(
                    entry.host, dataclasses.replace(entry.policy, uplinks=()),
                    {uuid: resident_law for uuid, resident_law
                     in entry.residents.items() if uuid != exclude})
                result.replace([position], alone._judge(
                    np.array([row_alone]), law, full[[position]]))
                # The instance is not new there.
                result.avoided[position] = assessment.ADMITTED
        return result

    def prepare(self, hosts: list[str], law: rate_law.RateLaw,
                other: LoadTable) -> None:
        """Compute what a first request would; ``other``: table in use."""
        self._sums.expect(other._sums.expected)
        self.assess(self.rows_of(hosts), law)

    def assess_each(
            self, rows: npt.ArrayLike, laws: abc.Iterable[rate_law.RateLaw],
            exclude: str | None = None,
            attachments: vswitch_attachments.Attachments | None = None,
            project: str | None = None) -> assessment.Assessment:
        """Judge an instance whose law depends on the host: (h,) laws."""
        positions = {}
        for i, law in enumerate(laws):
            positions.setdefault(law, []).append(i)
        rows = np.asarray(rows, dtype=np.int64)
        first, *others = positions or [rate_law.SILENT]
        result = self._assess_all(rows, first, exclude, attachments, project)
        for law in others:
            where = positions[law]
            result.replace(where, self._assess_all(
                rows[where], law, exclude, attachments, project))
        result.avoid()
        return result

    def _judge(self, rows, law, full):
        self._sums.update(rows)
        part, at = _span(rows)
        load = self._sums.with_source(part, law)
        rules = self._rules[:, part]                # (_RULES, h)
        # The union bound is at least the probability that any limit is
        # exceeded.
        overload = np.minimum(load.overload_probability.sum(axis=0), 1.0)
        limits = rules[_LIMIT] * np.where(
            self._sums.are_smooth(part), 1 + limit_sums.ERROR, 1.0)
        # The first check that refuses is reported. It is therefore written
        # last.
        reason = np.where(overload > limits, assessment.OVERLOAD,
                          assessment.ADMITTED)
        average = rules[_AVERAGE] > 0
        if average.any():
            too_much = np.any(
                load.mean > load.capacity * limit_sums.SLACK, axis=0)
            reason[average] = np.where(too_much[average], assessment.MEAN,
                                       assessment.ADMITTED)
        avoided = np.where(overload > rules[_LIMIT_IN_DEBT], assessment.DEBT,
                           np.where(self._sums.have_giants(part) & ~average,
                                    assessment.GIANT, assessment.ADMITTED))
        too_high = load.instance_peak > load.vm_peak * limit_sums.SLACK
        reason[too_high.any(axis=0)] = assessment.PEAK
        with np.errstate(over='ignore', invalid='ignore'):
            # Ignore infinite rates divided by infinite capacities.
            used = np.fmax.reduce(load.mean / load.capacity, axis=0,
                                  initial=0.0)
        loss = np.minimum(load.loss.sum(axis=0), 1.0)
        if at is not None:
            rules = rules.take(at, axis=1)
            reason, overload, loss, used, limits, avoided = (
                values.take(at) for values in (
                    reason, overload, loss, used, limits, avoided))
        reason[full > 0] = assessment.TOO_MANY
        reason[rules[_PASSES] == 0] = assessment.NO_PROFILE
        return assessment.Assessment(
            self, rows, reason, overload, loss, used, rules[_KNOWN] > 0,
            rules[_ENFORCED] > 0, load, at, limits, full, avoided,
            ~np.isnan(rules[_LIMIT_IN_DEBT]))


class _Entry:
    """One host, or one uplink with laws as {uuid: {host: RateLaw}}."""

    __slots__ = ('host', 'kind', 'row', 'policy', 'residents', 'laws', 'debt')

    def __init__(self, host, kind, row, debt):
        self.host = host
        self.kind = kind
        self.row = row
        self.debt = debt
        self.policy: typing.Any = None
        self.residents = {}      # uuid -> RateLaw
        self.laws = {}


class _Attached:
    """The attachments of residents, if a host counts anything."""

    def __init__(self, attachments: _Attachments) -> None:
        self.tunnels = tunnel_table.TunnelTable()
        self._attachments = attachments
        self._entries = set()
        # Remote VTEPs can only be counted if every host is counted.
        self._all = False

    def _of(self, uuid: str) -> vswitch_attachments.Attachments:
        return self._attachments(uuid) or vswitch_attachments.UNKNOWN

    def describe(self, entry: _Entry) -> None:
        """Count the attachments of the residents of a host."""
        counts = entry.policy.counts
        self._entries.add(entry)
        if 'vteps' in counts and not self._all:
            self._all = True
            for other in self._entries:
                self.describe(other)
        elif counts or self._all:
            self.tunnels.describe(entry.row, counts, {
                uuid: self._of(uuid) for uuid in entry.residents})
        else:
            self.tunnels.forget(entry.row)

    def change(self, entry, added, removed):
        """Count added residents and stop counting removed ones."""
        if entry.row in self.tunnels:
            for uuid in removed:
                self.tunnels.remove(entry.row, uuid)
            for uuid in added:
                self.tunnels.add(entry.row, uuid, self._of(uuid))

    def renew(self, entry: _Entry, uuids: abc.Iterable[str]) -> None:
        """Read the attachments of the given residents again."""
        if entry.row in self.tunnels:
            for uuid in uuids:
                self.tunnels.renew(entry.row, uuid, self._of(uuid))


def _span(rows: np.ndarray) -> tuple[slice | np.ndarray, np.ndarray | None]:
    """Return a slice that contains some rows, because slices need no copy.

    :returns: (slice, positions of ``rows`` in it; None if it has exactly
        these rows in this order), or (``rows``, None) if they are scattered
    """
    first, end = (rows.min(), rows.max() + 1) if rows.size else (0, 0)
    if end - first > _SPARSE * rows.size:
        return rows, None
    at = rows - first
    return slice(first, end), None if (
        at.size == end - first and (at[1:] > at[:-1]).all()) else at
