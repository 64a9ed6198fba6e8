# SPDX-License-Identifier: Apache-2.0
"""How many tunnels a host has, as its profile counts them.

Pure: who has which networks is handed in; knows no Neutron.
"""

import dataclasses

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['Attachments', 'count', 'opened', 'room']


@dataclasses.dataclass(frozen=True)
class Attachments:
    """The tunnelled networks of one instance.

    :param networks: the network (VNI) of each of its interfaces; interfaces
        of networks without tunnels are left out
    """

    networks: tuple = ()

    def __post_init__(self):
        if isinstance(self.networks, str):
            raise exceptions.InvalidInput(
                f'networks are {self.networks!r}, wanted one for each '
                f'interface')
        object.__setattr__(self, 'networks', tuple(self.networks))


def count(unit, residents, peers=None):
    """Return the tunnels of a host.

    :param unit: one of :data:`profile.TUNNEL_UNITS`
    :param residents: Attachments of each instance on the host
    :param peers: {network: the other hosts that have a VM on it}, wanted for
        'vteps'
    :raises InvalidInput: when the unit is not known, or a network's peers are
    """
    if unit not in profile.TUNNEL_UNITS:
        raise exceptions.InvalidInput(
            f'tunnel unit is {unit!r}, wanted one of '
            f'{", ".join(profile.TUNNEL_UNITS)}')
    residents = list(residents)
    if unit == 'instances':
        return sum(bool(one.networks) for one in residents)
    if unit == 'interfaces':
        return sum(len(one.networks) for one in residents)
    networks = {network for one in residents for network in one.networks}
    if unit == 'networks':
        return len(networks)
    missing = sorted(map(str, networks - set(peers or ())))
    if missing:
        raise exceptions.InvalidInput(
            f'the hosts on network {missing[0]} are not given, wanted them '
            f'to count remote VTEPs')
    return len(set().union(*(peers[network] for network in networks)))


def opened(unit, residents, new, peers=None):
    """Return how many tunnels one more instance opens on a host.

    None on a network that the host already serves, counted by networks or by
    VTEPs.
    """
    residents = list(residents)
    return (count(unit, [*residents, new], peers)
            - count(unit, residents, peers))


def room(switch, residents, new, peers=None):
    """Return whether the tunnels of one more instance fit a profile.

    An instance that opens none fits even where there are too many.

    :param switch: SwitchProfile
    """
    if switch.max_tunnels is None:
        return True
    residents = list(residents)
    more = opened(switch.tunnel_unit, residents, new, peers)
    return more == 0 or count(
        switch.tunnel_unit, [*residents, new], peers) <= switch.max_tunnels
