# SPDX-License-Identifier: Apache-2.0
"""Counts the tunnels of one host from its residents, without a TunnelTable."""

from vswitch_aware_scheduler.admission import tunnel_table
from vswitch_aware_scheduler.common import exceptions

__all__ = ['count', 'opened', 'room']


def count(unit, residents, peers=None):
    """Return the number of tunnels, or of virtual functions, of a host.

    :param unit: one of :data:`.tunnel_table.COUNTED`
    :param residents: iterable of the Attachments of each instance on the host
    :param peers: {network: the other hosts that have an instance on it},
        required for 'vteps'
    :raises InvalidInput: if the unit is unknown, or if peers lack a network
    """
    if unit not in tunnel_table.COUNTED:
        raise exceptions.InvalidInput(
            f'tunnel unit: {unit!r}; expected one of '
            f'{", ".join(tunnel_table.COUNTED)}')
    residents = list(residents)
    if unit == tunnel_table.FUNCTIONS:
        return sum(attachments.virtual_functions for attachments in residents)
    if unit == 'instances':
        return sum(bool(attachments.networks) for attachments in residents)
    if unit == 'interfaces':
        return sum(len(attachments.networks) for attachments in residents)
    requested_networks = [network for attachments in residents
                          for network in attachments.networks]
    # Each unknown network may be a different one.
    unknown = requested_networks.count(None)
    networks = {*requested_networks} - {None}
    if unit == 'networks':
        return len(networks) + unknown
    missing = sorted(map(str, networks - set(peers or ())))
    if missing:
        raise exceptions.InvalidInput(
            f'hosts on network {missing[0]}: not given; expected a '
            f'collection of hosts, to count remote VTEPs')
    return unknown + len(
        set().union(*(peers[network] for network in networks)))


def opened(unit, residents, new, peers=None):
    """Return how many tunnels one more instance opens on a host.

    In the units networks and VTEPs, an instance opens no tunnel for a network
    that the host already serves.

    :param unit: as in :func:`count`
    :param residents: as in :func:`count`
    :param new: Attachments of the new instance
    :param peers: as in :func:`count`
    """
    residents = list(residents)
    return (count(unit, [*residents, new], peers)
            - count(unit, residents, peers))


def room(switch, residents, new, peers=None):
    """Return whether the tunnels of one more instance fit a profile.

    An instance that opens no tunnel fits even if there are too many tunnels.

    :param switch: SwitchProfile
    :param residents: as in :func:`count`
    :param new: Attachments of the new instance
    :param peers: as in :func:`count`
    """
    if switch.max_tunnels is None:
        return True
    residents = list(residents)
    more = opened(switch.tunnel_unit, residents, new, peers)
    return more == 0 or count(
        switch.tunnel_unit, [*residents, new], peers) <= switch.max_tunnels
