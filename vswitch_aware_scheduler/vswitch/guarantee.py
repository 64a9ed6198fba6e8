# SPDX-License-Identifier: Apache-2.0
"""The rates that QoS policies guarantee to the ports of an instance.

Nova and Neutron state them as resources of Placement. Pure.
"""

from collections import abc

__all__ = ['NONE', 'of_resources']

#: (egress_kbps, ingress_kbps, kpps) of an instance without a guarantee.
NONE = (0.0, 0.0, 0.0)

#: Resource classes of ports with a QoS policy: columns of a rate.
_COLUMNS = {
    'NET_BW_EGR_KILOBIT_PER_SEC': 0,
    'NET_BW_IGR_KILOBIT_PER_SEC': 1,
    'NET_PACKET_RATE_KILOPACKET_PER_SEC': 2,
    'NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC': 2,
    'NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC': 2,
}


def of_resources(
        amounts: abc.Iterable[abc.Mapping[str, float]]
) -> tuple[float, float, float]:
    """Return the sum of the rates that ports guarantee.

    Other resource classes are ignored.

    :returns: (egress_kbps, ingress_kbps, kpps)
    """
    rates = [0.0, 0.0, 0.0]
    for resources in amounts:
        for resource, amount in resources.items():
            column = _COLUMNS.get(resource)
            if column is not None:
                rates[column] += amount
    return rates[0], rates[1], rates[2]
