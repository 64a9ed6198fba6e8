# SPDX-License-Identifier: Apache-2.0
"""The networks that an instance is attached to.

Pure: which instance has which networks is handed in; knows no Neutron.
"""

import dataclasses

from vswitch_aware_scheduler import exceptions

__all__ = ['Attachments', 'TYPES_WITHOUT', 'UNKNOWN', 'VNIC_TYPES']

#: Neutron's types of networks that need no tunnel.
TYPES_WITHOUT = ('flat', 'local', 'vlan')

#: Neutron's types of interfaces that take a function of the NIC, each one.
VNIC_TYPES = ('accelerator-direct', 'direct', 'direct-physical', 'macvtap',
              'remote-managed', 'vdpa', 'virtio-forwarder')


@dataclasses.dataclass(frozen=True, slots=True)
class Attachments:
    """The networks that one instance is attached to; false when to none.

    :param networks: the network (VNI) of each of its interfaces that goes
        through a tunnel, or may; None for a network that is not known, which
        counts as one that nobody else is on
    :param others: likewise of its interfaces that need no tunnel
    :param virtual_functions: how many of its interfaces have one, >= 0
    :raises InvalidInput: naming the value and what was wanted
    """

    networks: tuple = ()
    others: tuple = ()
    virtual_functions: int = 0

    def __post_init__(self):
        for name in ('networks', 'others'):
            value = getattr(self, name)
            if isinstance(value, str):
                raise exceptions.InvalidInput(
                    f'{name} are {value!r}, wanted one for each interface')
            value = tuple(value)
            for one in value:
                if one is not None and not (
                        isinstance(one, str) and 0 < len(one) <= 36):
                    raise exceptions.InvalidInput(
                        f'a network of {name} is {one!r}, wanted a string of '
                        f'1 to 36 characters')
            object.__setattr__(self, name, value)
        if not (isinstance(self.virtual_functions, int)
                and self.virtual_functions >= 0):
            raise exceptions.InvalidInput(
                f'virtual_functions is {self.virtual_functions!r}, wanted a '
                f'whole number >= 0')

    def __bool__(self):
        return bool(self.networks or self.others or self.virtual_functions)

    @property
    def all_tunnelled(self):
        """These Attachments, as seen where every network needs a tunnel."""
        if not self.others:
            return self
        return Attachments(self.networks + self.others, (),
                           self.virtual_functions)

    def to_data(self):
        """Return plain values for JSON: a list where that says all."""
        if self.others or self.virtual_functions:
            return {'networks': list(self.networks),
                    'others': list(self.others),
                    'virtual_functions': self.virtual_functions}
        return list(self.networks)

    @classmethod
    def from_data(cls, data):
        """Return the Attachments that :meth:`to_data` wrote.

        :raises InvalidInput: when it has not
        """
        try:
            return cls(**data) if isinstance(data, dict) else cls(data)
        except TypeError as error:
            raise exceptions.InvalidInput(
                f'attachments are {data!r}, wanted a list of networks, or a '
                f'mapping with networks, others and virtual_functions'
            ) from error


#: What is assumed of an instance of which nothing is known: one of each.
UNKNOWN = Attachments((None,), (), 1)
