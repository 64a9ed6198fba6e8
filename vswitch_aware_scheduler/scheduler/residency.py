# SPDX-License-Identifier: Apache-2.0
"""Which instances count on which host, and what is known of their demand.

Nova's record (``instances`` and ``migrations`` of its cells) decides. Claims
bridge the seconds from a placement until the record shows what came of it.
Where a cell has never been read, Nova's lists stand in for it. The result
does not depend on the order in which these arrive, only on which reading
began after which claim (reference/claims.rst).

Pure: no clock, no thread, no database; callers serialise access. All times
are monotonic seconds of this process.
"""

import dataclasses
import typing

__all__ = ['CELL0', 'Claim', 'Move', 'Reading', 'Residency', 'Row']

#: Nova's cell of the instances that no cell could build.
CELL0 = '00000000-0000-0000-0000-000000000000'

#: A claim that the record does not show after this time came to nothing, if
#: the instance is at rest.
SETTLED_SECONDS = 60.0

_BUILDING, _OFFLOADED, _ERROR, _RESIZED = (
    'building', 'shelved_offloaded', 'error', 'resized')


class Row(typing.NamedTuple):
    """What Nova's record has of an instance that is not deleted.

    :ivar flavors: (current, old, new) flavor, each (name, extra specs) or
        None
    :ivar number: id of the row
    :ivar type_id: id of the current flavor
    """

    host: str | None
    vm_state: str | None
    task_state: str | None
    flavors: tuple = (None, None, None)
    project_id: str | None = None
    number: int = 0
    type_id: int | None = None

    @property
    def kept_on(self):
        """The host that keeps the instance's resources, or None."""
        return None if self.vm_state == _OFFLOADED else self.host

    @property
    def may_move(self):
        """Whether a migration of the instance may be under way."""
        return not self.at_rest or self.vm_state == _RESIZED

    @property
    def at_rest(self):
        """Whether no operation on the instance is under way."""
        return (self.task_state is None and self.vm_state != _BUILDING
                or self.vm_state == _ERROR and self.host is None)


class Move(typing.NamedTuple):
    """A migration that Nova's record has in progress.

    :ivar left_over: whether it was not changed for very long
    """

    instance_uuid: str
    source: str | None
    dest: str | None
    left_over: bool = False


@dataclasses.dataclass(frozen=True)
class Reading:
    """What one reading of a cell has found.

    :ivar cell: uuid of the cell
    :ivar began: when a reading of all :meth:`Residency.unsettled` instances
        began; -inf for one of other instances, which ends no claim
    :ivar rows: {uuid: Row, or None when the cell has no such instance}
    :ivar deleted: uuids among those that the cell has as deleted
    :ivar moves: {id: Move, or None when it has ended}
    :ivar complete: whether the whole cell has been read by now
    """

    cell: str
    began: float
    rows: dict = dataclasses.field(default_factory=dict)
    deleted: frozenset = frozenset()
    moves: dict = dataclasses.field(default_factory=dict)
    complete: bool = True


@dataclasses.dataclass(eq=False)
class Claim:
    """One placement that the record does not show yet.

    :ivar law: RateLaw that the instance was admitted with
    :ivar made: when the claim was made
    :ivar received: when this process heard of it; not before ``made``
    :ivar sources: hosts that had the instance before, None: not known
    :ivar token: what the broadcast calls it, or None
    :ivar foreign: whether another process has made it
    """

    instance_uuid: str
    host: str
    law: bytes
    made: float
    received: float
    sources: frozenset | None = None
    token: str | None = None
    foreign: bool = False


class Residency:
    """Record, claims and lists, put together."""

    def __init__(self):
        self._rows = {}          # cell -> {uuid: Row}
        self._busy = {}          # cell -> uuids of rows that are not at rest
        self._moves = {}         # cell -> {id: Move}
        self._moves_of = {}      # uuid -> {(cell, id): Move}
        self._read = {}          # cell -> when its last reading began
        self._complete = set()   # cells that have been read once
        self._cell_of = {}       # host -> cell
        self._claims = {}        # uuid -> {host: Claim}
        self._listed = {}        # host of an unread cell -> list of uuids
        self._listed_on = {}     # uuid -> {host} of these
        self._hosts = {}         # uuid -> {hosts that it counts on}
        self._on = {}            # host -> {uuid: None}
        self._changed = set()

    # What arrives.

    def take(self, reading):
        """Take in a reading of a cell; return the Claims that it ended."""
        cell = reading.cell
        rows = self._rows.setdefault(cell, {})
        moves = self._moves.setdefault(cell, {})
        busy = self._busy.setdefault(cell, set())
        touched = set()
        for uuid, row in reading.rows.items():
            if rows.get(uuid) != row:
                touched.add(uuid)
                if row is None:
                    del rows[uuid]
                else:
                    rows[uuid] = row
                (busy.discard if row is None or row.at_rest
                 else busy.add)(uuid)
        for number, move in reading.moves.items():
            known = moves.pop(number, None)
            if known is not None:
                of = self._moves_of[known.instance_uuid]
                del of[cell, number]
                if not of:
                    del self._moves_of[known.instance_uuid]
            if move is not None:
                moves[number] = move
                self._moves_of.setdefault(move.instance_uuid, {})[
                    cell, number] = move
            if known != move:
                touched.update(one.instance_uuid
                               for one in (known, move) if one)
        self._read[cell] = max(reading.began,
                               self._read.get(cell, reading.began))
        if reading.complete and cell not in self._complete:
            self._complete.add(cell)
            for host in [host for host in self._listed
                         if self._cell_of.get(host) == cell]:
                self._list(host, [])
        ended = [claim for claim in self.claims
                 if claim.received < reading.began
                 and self._is_ended(claim, reading)]
        for claim in ended:
            self._drop(claim)
        for uuid in touched:
            self._place(uuid)
        return ended

    def take_build_requests(self, began, uuids):
        """End the claims of instances of which Nova has nothing.

        :param began: when the build requests of :meth:`unseen` were read
        :param uuids: those of them that have one
        :returns: the Claims that this ended
        """
        ended = [claim for claim in self.claims
                 if claim.instance_uuid not in uuids
                 and self._is_unseen(claim, began)]
        for claim in ended:
            self._drop(claim)
        return ended

    def set_cells(self, hosts, cells):
        """Set in which cells some hosts are."""
        self._cell_of.update(zip(hosts, cells))

    def observe(self, host, cell, uuids):
        """Take in what Nova lists for a host, of use until its cell is read.

        :param uuids: iterable of instance uuids
        """
        self._cell_of[host] = cell
        listed = list(uuids)
        if cell not in self._complete and listed != self._listed.get(host):
            self._list(host, listed)

    def is_read(self, cell):
        """Return whether a cell has been read completely."""
        return cell in self._complete

    def claim(self, instance_uuid, host, law, now, age_seconds=0.0,
              source=None, token=None, foreign=False):
        """Count an instance on a host until the record shows it.

        :param law: RateLaw
        :param age_seconds: how long ago the claim was made
        :param source: a host that had it, if the caller knows one
        """
        made = now - age_seconds
        if foreign:
            # Of an instance the broadcast has the last word only: what was
            # said before is withdrawn, but for where it is moved from.
            for known in self._claims_of(instance_uuid):
                if known.foreign and known.made <= made \
                        and known.host not in (host, source):
                    self._drop(known)
        sources = {*self._recorded(instance_uuid), source}
        for known in self._claims_of(instance_uuid):
            sources.update(known.sources or ())
            if known.host != host:
                sources.add(known.host)
        sources.discard(None)
        self._claims.setdefault(instance_uuid, {})[host] = Claim(
            instance_uuid, host, law, made, now,
            frozenset(sources) or None, token, foreign)
        self._place(instance_uuid)

    def withdraw(self, instance_uuid, host=None, token=None):
        """Drop the claim of an instance on a host, or with a token."""
        for claim in self._claims_of(instance_uuid):
            if claim.token == token if host is None else claim.host == host:
                self._drop(claim)

    def forget_host(self, host):
        """Drop what is kept of a host that nobody is on."""
        self._cell_of.pop(host, None)
        self._list(host, [])
        self._listed.pop(host, None)
        self._changed.discard(host)

    # What follows.

    def residents(self, host):
        """Return the list of the instances that count on a host."""
        return list(self._on.get(host, ()))

    def hosts_of(self, instance_uuid):
        """Return the set of hosts that an instance counts on."""
        return self._hosts.get(instance_uuid, frozenset())

    def take_changed(self):
        """Return the hosts whose residents may have changed since asked."""
        changed, self._changed = self._changed, set()
        return changed

    @property
    def claims(self):
        """The open claims."""
        return [claim for of in self._claims.values()
                for claim in of.values()]

    def flavors(self, instance_uuid, host):
        """Return the flavors that an instance may have on a host.

        :returns: (list of (name, extra specs), project id or None)
        """
        rows = self._rows_of(instance_uuid)
        if not rows:
            return [], None
        kept = self._kept(instance_uuid).get(host, rows[0].flavors[:1])
        return [one for one in kept if one is not None], rows[0].project_id

    def claimed_law(self, instance_uuid, host):
        """Return the RateLaw of an open claim on a host, or None."""
        claim = self._claims.get(instance_uuid, {}).get(host)
        return claim and claim.law

    # What the reader of the record has to know.

    def cells(self):
        """Return the set of the cells that have instances or migrations."""
        return {cell for of in (self._rows, self._moves)
                for cell, found in list(of.items()) if found}

    def rows(self, cell):
        """Return {uuid: Row} of a cell; not to be changed."""
        return self._rows.setdefault(cell, {})

    def moves(self, cell):
        """Return {id: Move} of a cell; not to be changed."""
        return self._moves.setdefault(cell, {})

    def unsettled(self, cell):
        """Return the uuids that each reading of a cell has to look at.

        Those that are claimed, and those that something is under way with:
        whatever the clocks of those who write to the record say.
        """
        return {*self._claims, *self._busy.get(cell, ()), *(
            move.instance_uuid for move in self.moves(cell).values())}

    def unseen(self, now):
        """Return the uuids of claims that may have come to nothing."""
        return {claim.instance_uuid for claim in self.claims
                if self._is_unseen(claim, now)}

    def _is_unseen(self, claim, began):
        uuid = claim.instance_uuid
        since = claim.made + SETTLED_SECONDS
        home = self._cell_of.get(claim.host)
        cells = self._complete | {CELL0} if home is None else {home, CELL0}
        return (max(since, claim.received) <= began
                and uuid not in self._moves_of
                and not any(uuid in rows for rows in self._rows.values())
                and all(self._read.get(cell, float('-inf')) >= since
                        for cell in cells))

    def _is_ended(self, claim, reading):
        uuid = claim.instance_uuid
        row = self._rows[reading.cell].get(uuid)
        if any(cell == reading.cell and move.dest == claim.host
               for (cell, _), move in self._moves_of.get(uuid, {}).items()):
            return True
        if row is None:
            return uuid in reading.deleted and not any(
                uuid in rows for rows in self._rows.values())
        host = row.kept_on
        if host is not None:
            if claim.sources is None and row.task_state is not None \
                    and row.vm_state != _BUILDING:
                # It was there before, and is on its way.
                claim.sources = frozenset({host})
            if host not in (claim.sources or ()):
                return True
        return (row.at_rest
                and reading.began >= claim.made + SETTLED_SECONDS)

    def _drop(self, claim):
        of = self._claims[claim.instance_uuid]
        del of[claim.host]
        if not of:
            del self._claims[claim.instance_uuid]
        self._place(claim.instance_uuid)

    def _list(self, host, listed):
        known, uuids = set(self._listed.get(host, ())), set(listed)
        self._listed[host] = listed
        for uuid in known ^ uuids:
            on = self._listed_on.setdefault(uuid, set())
            (on.add if uuid in uuids else on.discard)(host)
            if not on:
                del self._listed_on[uuid]
            self._place(uuid)

    def _recorded(self, uuid):
        """Return the set of hosts where the record or a list has one."""
        return {*self._listed_on.get(uuid, ()), *self._kept(uuid)}

    def _rows_of(self, uuid):
        return [of[uuid] for of in self._rows.values() if uuid in of]

    def _kept(self, uuid):
        """Return {host: flavors whose room the record keeps there}.

        While a resize is not confirmed its source keeps the room of the old
        flavor and its destination that of the new one. A migration that was
        left over keeps none once the instance has come to rest.
        """
        rows, kept = self._rows_of(uuid), {}
        may_move = any(row.may_move for row in rows)
        for move in self._moves_of.get(uuid, {}).values() if rows else ():
            if may_move or not move.left_over:
                current, old, new = rows[0].flavors
                kept.setdefault(move.source, []).append(old or current)
                kept.setdefault(move.dest, []).append(new or current)
        for row in rows:
            kept.setdefault(row.kept_on, [row.flavors[0]])
        kept.pop(None, None)
        return kept

    def _claims_of(self, uuid):
        return list(self._claims.get(uuid, {}).values())

    def _place(self, uuid):
        """Work out where an instance counts."""
        hosts = self._recorded(uuid) | self._claims.get(uuid, {}).keys()
        before = self._hosts.get(uuid, frozenset())
        for host in before - hosts:
            on = self._on[host]
            del on[uuid]
            if not on:
                del self._on[host]
        for host in hosts - before:
            self._on.setdefault(host, {})[uuid] = None
        if hosts:
            self._hosts[uuid] = hosts
        else:
            self._hosts.pop(uuid, None)
        self._changed.update(before, hosts)
