# SPDX-License-Identifier: Apache-2.0
"""Determines which instances count on which host, and by which flavors.

Nova's record (the tables ``instances`` and ``migrations`` of its cells)
decides. A claim counts an instance from its placement until the record shows
the result. Until a cell has been read, Nova's lists of the instances of its
hosts stand for it. The result does not depend on the order in which these
arrive, only on which reading began after which claim (reference/claims.rst).

Pure: no clock, no thread, no database. Callers serialise access. All times are
monotonic seconds of this process.
"""

from collections import abc
import dataclasses
import typing

__all__ = ['CELL0', 'CellReading', 'Claim', 'OngoingMove', 'Residency',
           'Row']

#: Nova's cell of the instances that could not be built in any cell.
CELL0 = '00000000-0000-0000-0000-000000000000'

_BUILDING, _OFFLOADED, _ERROR, _RESIZED, _SPAWNING = (
    'building', 'shelved_offloaded', 'error', 'resized', 'spawning')


class Row(typing.NamedTuple):
    """The row of an instance in Nova's record that is not deleted.

    :ivar flavors: (current, old, new), each (name, extra specs) or None
    """

    host: str | None
    vm_state: str | None
    task_state: str | None
    flavors: tuple = (None, None, None)
    project_id: str | None = None
    type_id: int | None = None

    @property
    def kept_on(self) -> str | None:
        """The host that reserves the instance's resources, or None."""
        # Nova keeps the state until an instance that is unshelved runs.
        return None if self.vm_state == _OFFLOADED \
            and self.task_state != _SPAWNING else self.host

    @property
    def may_move(self) -> bool:
        """Whether a migration of the instance may be under way."""
        return not self.at_rest or self.vm_state == _RESIZED

    @property
    def at_rest(self) -> bool:
        """Whether no operation on the instance is under way."""
        return (self.task_state is None and self.vm_state != _BUILDING
                or self.vm_state == _ERROR and self.host is None)


class OngoingMove(typing.NamedTuple):
    """A migration in progress; ``left_over``: ignored once at rest."""

    instance_uuid: str
    source: str | None
    dest: str | None
    left_over: bool = False


@dataclasses.dataclass(frozen=True)
class CellReading:
    """The result of one reading of a cell.

    :ivar began: when the reading of all :meth:`Residency.unsettled` instances
        began; -inf for a reading of others, which ends no claim
    """

    cell: str
    began: float
    rows: dict = dataclasses.field(default_factory=dict)
    deleted: frozenset = frozenset()
    moves: dict = dataclasses.field(default_factory=dict)
    complete: bool = True


@dataclasses.dataclass(eq=False)
class Claim:
    """A placement that the record does not show yet; its sources or None."""

    stored: typing.Any
    received: float
    sources: frozenset | None = None
    foreign: bool = False
    unrequested_at: float | None = None

    @property
    def instance_uuid(self) -> str:
        """The uuid of the instance."""
        return self.stored.instance_uuid

    @property
    def host(self) -> str:
        """The claimed host."""
        return self.stored.host


class Residency:
    """Combines the record, the claims and Nova's lists.

    :ivar rows: {cell: {uuid: Row}}, changed only by :meth:`take`
    :ivar moves: {cell: {id: OngoingMove}}, changed only by :meth:`take`
    :ivar complete: set of the cells that have been read completely
    """

    def __init__(self) -> None:
        self.rows = {}
        self.moves = {}
        self.complete = set()
        self._busy = {}          # cell -> {uuid of an instance not at rest}
        self._moves_of = {}      # uuid -> {(cell, id): OngoingMove}
        self._read = {}          # cell -> start of its last reading
        self._cell_of = {}       # host -> cell
        self._claims = {}        # uuid -> {host: Claim}
        self._listed = {}        # host of an unread cell -> {uuid: cell}
        self._listed_on = {}     # uuid -> {host that lists it: unread cell}
        self._hosts = {}         # uuid -> {hosts on which it counts}
        self._on = {}            # host -> {uuid}
        self._changed = set()

    # Input: readings, lists and claims.

    def take(self, reading: CellReading) -> list[Claim]:
        """Store a reading of a cell."""
        cell, touched = reading.cell, set()
        rows, moves = self.rows.get(cell, {}), self.moves.get(cell, {})
        for uuid, row in reading.rows.items():
            if rows.get(uuid) != row:
                touched.add(uuid)
                _put(self.rows, cell, uuid, row)
                _put(self._busy, cell, uuid,
                     row is not None and not row.at_rest or None)
        for number, move in reading.moves.items():
            previous = moves.get(number)
            if previous != move:
                _put(self.moves, cell, number, move)
                for changed in filter(None, (previous, move)):
                    touched.add(changed.instance_uuid)
                    _put(self._moves_of, changed.instance_uuid,
                         (cell, number), move if changed is move else None)
        self._read[cell] = max(reading.began,
                               self._read.get(cell, reading.began))
        if reading.complete and cell not in self.complete:
            self.complete.add(cell)
            for host, listed in list(self._listed.items()):
                if cell in listed.values():
                    self._list(host, {})
        ended = [claim for claim in self.claims
                 if claim.received < reading.began
                 and self._is_ended(claim, reading)]
        for claim in ended:
            self._drop(claim)
        for uuid in touched:
            self._place(uuid)
        return ended

    def lack_build_requests(self, uuids: abc.Iterable[str],
                            began: float) -> None:
        """Store that instances have no build request.

        Nova inserts the row of an instance before it deletes the build
        request: a claim ends if a reading that begins later finds no row.
        """
        for claim in self.claims:
            if claim.instance_uuid in uuids and claim.received <= began:
                claim.unrequested_at = began

    def observe(self, hosts: list[str], cells: list[str],
                listings: list[abc.Iterable[str]]) -> None:
        """Store the cells of some hosts, and their lists in unread cells."""
        self._cell_of.update(zip(hosts, cells))
        unread = set(cells) - self.complete
        for host, cell, uuids in zip(hosts, cells, listings) if unread else ():
            if cell in unread:
                self._list(host, dict.fromkeys(uuids, cell))

    def forget_cells(self, mapped: abc.Set[str]) -> None:
        """Drop what is stored about cells that Nova has deleted."""
        for cell in {*self._read, *self._cell_of.values()} - mapped:
            self.take(CellReading(
                cell, float('-inf'), dict.fromkeys(self.rows.get(cell, ())),
                moves=dict.fromkeys(self.moves.get(cell, ()))))
            self.complete.discard(cell)
            del self._read[cell]
            for claim in self.claims:
                if self._cell_of.get(claim.host) == cell:
                    self._drop(claim)

    def claim(self, stored: typing.Any, now: float,
              foreign: bool = False) -> bool:
        """Count an instance on a host; return whether it replaces a claim."""
        replaced = False
        uuid, host, source = stored.instance_uuid, stored.host, stored.source
        if foreign:
            # The store has one claim of an instance, the latest. It replaces
            # earlier ones, except on the host that the instance moves from.
            for earlier in self._claims_of(uuid):
                if earlier.foreign and earlier.host not in (host, source):
                    self._drop(earlier)
                    replaced = True
        sources = {*self._recorded(uuid), source}
        for earlier in self._claims_of(uuid):
            sources.update(earlier.sources or ())
            if earlier.host != host:
                sources.add(earlier.host)
        sources.discard(None)
        is_recorded = bool(sources or self._rows_of(uuid))
        _put(self._claims, uuid, host, Claim(
            stored, now, frozenset(sources) if is_recorded else None, foreign))
        self._place(uuid)
        return replaced

    def withdraw(self, instance_uuid: str, host: str,
                 foreign: bool = False) -> None:
        """Drop the claim of an instance on a host."""
        for claim in self._claims_of(instance_uuid):
            if claim.foreign == foreign and claim.host == host:
                self._drop(claim)

    def forget_host(self, host: str) -> None:
        """Drop what is stored about a host without instances."""
        self._cell_of.pop(host, None)
        self._list(host, {})
        self._changed.discard(host)

    # Results.

    def residents(self, host: str) -> list[str]:
        """Return the list of the instances that count on a host."""
        return list(self._on.get(host, ()))

    def hosts_of(self, instance_uuid: str | None) -> abc.Set[str]:
        """Return the set of the hosts on which an instance counts."""
        return self._hosts.get(instance_uuid, frozenset())

    def take_changed(self) -> set[str]:
        """Return the hosts whose residents may have changed, once for each."""
        changed, self._changed = self._changed, set()
        return changed

    @property
    def claims(self) -> list[Claim]:
        """The list of the open claims."""
        return [claim for claims_by_host in self._claims.values()
                for claim in claims_by_host.values()]

    def flavors(self, instance_uuid: str,
                host: str) -> tuple[list[typing.Any], str | None]:
        """Return the flavors that an instance may have on a host."""
        rows = self._rows_of(instance_uuid)
        if not rows:
            return [], None
        flavors = self._kept(instance_uuid).get(host, rows[0].flavors[:1])
        return ([flavor for flavor in flavors if flavor is not None],
                rows[0].project_id)

    def claimed(self, instance_uuid: str, host: str) -> typing.Any:
        """Return the StoredClaim of an open claim on a host, or None."""
        claim = self._claims.get(instance_uuid, {}).get(host)
        return claim and claim.stored

    # For the reader of the record.

    def unsettled(self, cell: str) -> set[str]:
        """Return the claimed instances and those that are not at rest."""
        return {*self._claims, *self._busy.get(cell, ()), *(
            move.instance_uuid for move in self.moves.get(cell, {}).values()
            if not move.left_over)}

    def unseen(self) -> set[str]:
        """Return the claimed instances that the record does not have."""
        return {claim.instance_uuid for claim in self.claims
                if claim.unrequested_at is None
                and claim.instance_uuid not in self._moves_of
                and not self._rows_of(claim.instance_uuid)}

    def _is_ended(self, claim, reading):
        uuid = claim.instance_uuid
        row = self.rows.get(reading.cell, {}).get(uuid)
        hosts = {move.dest
                 for (cell, _), move in self._moves_of.get(uuid, {}).items()
                 if cell == reading.cell and not move.left_over} - {None}
        if claim.host in hosts:
            return True
        if row is None:
            if self._rows_of(uuid):
                return False
            if uuid in reading.deleted:
                return True
            home = self._cell_of.get(claim.host)
            cells = self.complete if home is None else {home}
            return (claim.unrequested_at is not None
                    and uuid not in self._moves_of
                    and all(self._read.get(cell, float('-inf'))
                            > claim.unrequested_at
                            for cell in {*cells, CELL0}))
        if row.kept_on is not None:
            hosts.add(row.kept_on)
            if claim.sources is None and row.task_state is not None \
                    and row.vm_state != _BUILDING:
                # The instance was there before, and its move is under way.
                claim.sources = frozenset(hosts)
            if not hosts <= (claim.sources or frozenset()):
                return True
        # Nova sets the task before it calls the scheduler.
        return row.at_rest

    def _drop(self, claim):
        _put(self._claims, claim.instance_uuid, claim.host, None)
        self._place(claim.instance_uuid)

    def _list(self, host, listed):
        """Replace the list of a host of an unread cell, as {uuid: cell}."""
        before = self._listed.pop(host, {})
        if listed:
            self._listed[host] = listed
        if before == listed:
            return
        for uuid, cell in before.items() ^ listed.items():
            _put(self._listed_on, uuid, host, listed.get(uuid))
            if uuid not in self.rows.get(cell, ()):
                self._place(uuid)

    def _recorded(self, uuid):
        """Return an instance's hosts by its record, or else by lists."""
        return {*self._kept(uuid), *(
            host for host, cell in self._listed_on.get(uuid, {}).items()
            if uuid not in self.rows.get(cell, ()))}

    def _rows_of(self, uuid):
        return [rows[uuid] for rows in self.rows.values() if uuid in rows]

    def _kept(self, uuid):
        """Return {host: flavors for which the record reserves resources}.

        Until a resize is confirmed, its source reserves for the old flavor and
        its destination for the new one. A left-over migration reserves nothing
        once the instance is at rest.
        """
        rows, flavors_by_host = self._rows_of(uuid), {}
        may_move = any(row.may_move for row in rows)
        for move in self._moves_of.get(uuid, {}).values() if rows else ():
            if may_move or not move.left_over:
                current, old, new = rows[0].flavors
                flavors_by_host.setdefault(
                    move.source, []).append(old or current)
                flavors_by_host.setdefault(
                    move.dest, []).append(new or current)
        for row in rows:
            flavors_by_host.setdefault(row.kept_on, [row.flavors[0]])
        flavors_by_host.pop(None, None)
        return flavors_by_host

    def _claims_of(self, uuid):
        return list(self._claims.get(uuid, {}).values())

    def _place(self, uuid):
        hosts = self._recorded(uuid) | self._claims.get(uuid, {}).keys()
        before = self._hosts.get(uuid, frozenset())
        for host in before ^ hosts:
            _put(self._on, host, uuid, host in hosts or None)
        if hosts:
            self._hosts[uuid] = hosts
        else:
            self._hosts.pop(uuid, None)
        self._changed.update(before, hosts)


def _put(index, key, item, value):
    """Set ``index[key][item]``, or delete it for None. Keep no empty dict."""
    items = index.setdefault(key, {})
    if value is not None:
        items[item] = value
    else:
        items.pop(item, None)
        if not items:
            del index[key]
