# SPDX-License-Identifier: Apache-2.0
"""Adds the traffic of an instance to the resources that Nova claims.

Placement returns, together with the allocation candidates of a request, the
capacity and the usage of all resource providers of their hosts. Nova claims
one candidate after the filters have run. :class:`Candidates` removes the hosts
without enough free capacity, and adds the traffic of the instance to the
candidates of the other hosts. If two requests compete, Placement refuses the
later claim.
"""

import threading

from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler import logs

__all__ = ['Candidates']

LOG = logs.get_logger(__name__)


class Candidates:
    """The allocation candidates of the request that each thread handles.

    :param report: callable(topic, problem or None), receives problems
    """

    def __init__(self, report):
        self._report = report
        self._of_thread = threading.local()
        self._without = set()    # hosts without an inventory

    def began(self):
        """Forget the previous request of this thread."""
        self._of_thread.rooms = {}

    def offered(self, summaries):
        """Store the free capacity of the providers of a request.

        :param summaries: {provider uuid: summary}, as in the answer to GET
            /allocation_candidates
        """
        rooms = self._rooms()
        for uuid, summary in summaries.items():
            inventory = summary['resources'].get(
                effective_limit.RESOURCE_CLASS)
            if inventory is not None:
                rooms[summary['root_provider_uuid']] = _Room(
                    uuid, inventory['capacity'] - inventory['used'])

    def book(self, host_states, amounts, enforced):
        """Return the hosts with room, with the amounts in their candidates.

        A host without an inventory in Placement passes unchanged, because
        Placement would refuse the claim. A host that is only observed also
        passes unchanged, because Placement could refuse the claim of the
        instance there.

        :param host_states: list of nova HostState
        :param amounts: list of the amounts in kbit/s that the instance would
            take on each host; None for a host without a limit
        :param enforced: list of bool, whether each host may be refused
        :returns: (list of the hosts that pass, {host: (amount, free kbit/s)}
            of the hosts without room)
        """
        rooms = self._rooms()
        passing, no_room = [], {}
        for host_state, amount, may_refuse in zip(host_states, amounts,
                                                  enforced):
            candidates = host_state.allocation_candidates
            # Nova claims nothing if there are no candidates.
            if not candidates or amount is None:
                self._without.discard(host_state.host)
                passing.append(host_state)
                continue
            room = rooms.get(host_state.uuid)
            if room is None:
                self._without.add(host_state.host)
                passing.append(host_state)
                continue
            self._without.discard(host_state.host)
            if amount > room.free:
                no_room[host_state.host] = amount, room.free
                LOG.debug('%s fails the virtual switch check: %s',
                          host_state, explanation.no_room(amount, room.free))
            if not may_refuse:
                passing.append(host_state)
            elif amount <= room.free:
                room.requested = amount
                # Change copies, because other objects use these candidates.
                host_state.allocation_candidates = [
                    _with(candidate, room.provider, amount)
                    for candidate in candidates]
                passing.append(host_state)
        # Copy the set: other threads change it.
        without = sorted(self._without)
        self._report('strict mode', (
            f'placement has no inventory of '
            f'{effective_limit.RESOURCE_CLASS} for {len(without)} hosts, '
            f'{without[0]} among them: it refuses '
            f'nothing there; is a vswitch-modeler running with strict set?')
            if without else None)
        return passing, no_room

    def placed(self, host_state):
        """Subtract from the free capacity what Nova has claimed on a host.

        :param host_state: nova HostState that Nova selected for this request
        """
        room = self._rooms().get(host_state.uuid)
        if room is not None:
            room.free -= room.requested
            room.requested = 0

    def forget(self, host):
        """Drop what is stored about a host that no longer exists.

        :param host: name of the host
        """
        self._without.discard(host)

    def _rooms(self):
        try:
            return self._of_thread.rooms
        except AttributeError:
            rooms = self._of_thread.rooms = {}
            return rooms


class _Room:
    """The free capacity of a host.

    :param provider: uuid of the resource provider with the inventory
    :param free: kbit/s
    :ivar provider: uuid of the resource provider with the inventory
    :ivar free: kbit/s
    :ivar requested: kbit/s that the request takes if Nova selects this host
    """

    __slots__ = ('provider', 'free', 'requested')

    def __init__(self, provider, free):
        self.provider = provider
        self.free = free
        self.requested = 0


def _with(candidate, provider, amount):
    """Return a candidate that also takes an amount of a provider."""
    return {**candidate, 'allocations': {
        **candidate['allocations'],
        provider: {'resources': {effective_limit.RESOURCE_CLASS: amount}}}}
