# SPDX-License-Identifier: Apache-2.0
"""What an instance takes of a host's switch, in what Nova claims of it.

Placement tells with the candidates of a request what all the providers of
their hosts have and have given away; Nova claims one of the candidates when
the filters have passed. In between :class:`Candidates` leaves out the hosts
where there is no room and adds to the candidates of the others what the
instance takes, so that placement refuses whoever comes too late.
"""

import threading

from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler import logs

__all__ = ['Candidates']

LOG = logs.get_logger(__name__)


class Candidates:
    """The candidates of the request of each thread.

    :param report: callable(topic, problem or None)
    """

    def __init__(self, report):
        self._report = report
        self._of_thread = threading.local()
        self._without = set()    # hosts that should have an inventory

    def began(self):
        """Forget the request before."""
        self._of_thread.rooms = {}

    def offered(self, summaries):
        """Take in what placement says of the providers of a request.

        :param summaries: {provider uuid: summary}, as in the answer to GET
            /allocation_candidates
        """
        rooms = self._rooms()
        for uuid, summary in summaries.items():
            there = summary['resources'].get(effective_limit.RESOURCE_CLASS)
            if there is not None:
                rooms[summary['root_provider_uuid']] = _Room(
                    uuid, there['capacity'] - there['used'])

    def book(self, host_states, amounts, enforced):
        """Return the hosts with room, the amounts among their candidates.

        Hosts of which placement keeps no inventory pass as they are: a claim
        of what they do not have would be refused. So do hosts that are only
        observed: what an instance claims there, placement could refuse.

        :param host_states: list of nova HostState
        :param amounts: what the instance would take of each; None where the
            host has no limit
        :param enforced: list of bool, whether each host may be refused
        :returns: (list of the hosts that pass, {host: (amount, kbit/s that
            are free)} of those without room)
        """
        rooms = self._rooms()
        passing, no_room = [], {}
        for host_state, amount, may_refuse in zip(host_states, amounts,
                                                  enforced):
            candidates = host_state.allocation_candidates
            # Without any nothing is claimed.
            if not candidates or amount is None:
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
                room.asked = amount
                # Others hold on to the old ones.
                host_state.allocation_candidates = [
                    _with(one, room.provider, amount) for one in candidates]
                passing.append(host_state)
        # A copy: other threads change it.
        without = sorted(self._without)
        self._report('strict mode', (
            f'placement has no inventory of '
            f'{effective_limit.RESOURCE_CLASS} for {len(without)} hosts, '
            f'{without[0]} among them: it refuses '
            f'nothing there; is a vswitch-modeler running with strict set?')
            if without else None)
        return passing, no_room

    def placed(self, host_state):
        """Take note that Nova has claimed a host for this request."""
        room = self._rooms().get(host_state.uuid)
        if room is not None:
            room.free -= room.asked
            room.asked = 0

    def _rooms(self):
        try:
            return self._of_thread.rooms
        except AttributeError:
            rooms = self._of_thread.rooms = {}
            return rooms


class _Room:
    """What a host has left.

    :ivar provider: uuid of the provider that keeps it
    :ivar free: kbit/s
    :ivar asked: kbit/s that the request takes, if it comes there
    """

    __slots__ = ('provider', 'free', 'asked')

    def __init__(self, provider, free):
        self.provider = provider
        self.free = free
        self.asked = 0


def _with(candidate, provider, amount):
    """Return a candidate that takes so much of a provider."""
    return {**candidate, 'allocations': {
        **candidate['allocations'],
        provider: {'resources': {effective_limit.RESOURCE_CLASS: amount}}}}
