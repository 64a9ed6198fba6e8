# SPDX-License-Identifier: Apache-2.0
"""The networks that an instance is attached to.

Pure: the caller passes the networks of an instance; no access to Neutron.
"""

from __future__ import annotations

import dataclasses
import typing

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions

__all__ = ['Attachments', 'TYPES_WITHOUT', 'UNKNOWN', 'VNIC_TYPES']

#: Neutron's types of networks that need no tunnel.
TYPES_WITHOUT = ('flat', 'local', 'vlan')

#: Neutron's types of interfaces that each use a function of the NIC.
VNIC_TYPES = ('accelerator-direct', 'direct', 'direct-physical', 'macvtap',
              'remote-managed', 'vdpa', 'virtio-forwarder')


_NETWORK, _COUNT = checks.text(36, default=None), checks.whole(0)


@dataclasses.dataclass(frozen=True, slots=True)
class Attachments:
    """The networks that one instance is attached to; falsy without any.

    :param networks: for each interface that uses or may use a tunnel, its
        network (VNI); None for an unknown network, which counts as a network
        without other instances
    :param others: the same for the interfaces that need no tunnel
    :param virtual_functions: number of interfaces with a virtual function, >=
        0
    :raises InvalidInput: if a value is invalid
    """

    networks: tuple[str | None, ...] = ()
    others: tuple[str | None, ...] = ()
    virtual_functions: int = 0

    def __post_init__(self) -> None:
        for name in ('networks', 'others'):
            value = getattr(self, name)
            if isinstance(value, str):
                raise exceptions.InvalidInput(
                    thing=name, value=value, expected='a collection with one '
                    'network for each interface')
            value = tuple(value)
            for network in value:
                checks.check(f'a network of {name}', network, _NETWORK)
            object.__setattr__(self, name, value)
        checks.check('virtual_functions', self.virtual_functions, _COUNT)

    def __bool__(self) -> bool:
        return bool(self.networks or self.others or self.virtual_functions)

    @property
    def all_tunnelled(self) -> Attachments:
        """These Attachments for a place where every network needs a tunnel."""
        if not self.others:
            return self
        return Attachments(self.networks + self.others, (),
                           self.virtual_functions)

    def to_data(self) -> list[str | None] | dict[str, typing.Any]:
        """Return plain values for JSON: a list if that is sufficient."""
        if self.others or self.virtual_functions:
            return {'networks': list(self.networks),
                    'others': list(self.others),
                    'virtual_functions': self.virtual_functions}
        return list(self.networks)

    @classmethod
    def from_data(cls, data: typing.Any) -> Attachments:
        """Return the Attachments of data that :meth:`to_data` returned.

        :raises InvalidInput: if the data are invalid
        """
        try:
            return cls(**data) if isinstance(data, dict) else cls(data)
        except TypeError as error:
            raise exceptions.InvalidInput(
                thing='attachments', value=data, expected='a list of '
                'networks, or a mapping with networks, others and '
                'virtual_functions') from error


#: Assumed attachments of an instance about which nothing is known: one unknown
#: network and one virtual function.
UNKNOWN = Attachments((None,), (), 1)
