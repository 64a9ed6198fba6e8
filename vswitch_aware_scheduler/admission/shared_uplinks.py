# SPDX-License-Identifier: Apache-2.0
"""The uplinks that hosts of a LoadTable share. Pure."""

import numpy as np

__all__ = ['SharedUplinks']

_NO_ROW = -1


class SharedUplinks:
    """The uplinks that hosts of a LoadTable share.

    Who comes and who goes is collected until somebody asks: one who moves
    from host to host behind an uplink does neither. One who is on two hosts
    behind it, during a move, counts once until it has left both.
    """

    def __init__(self, attachments, make_table):
        self._attachments = attachments
        self.table = make_table(self._all_tunnelled)
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
        """Read again what some instances are attached to."""
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
        """Add the answers of the uplinks to an Assessment of hosts."""
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
