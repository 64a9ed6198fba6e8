# SPDX-License-Identifier: Apache-2.0
"""Records of the switch profiles of hosts."""

import dataclasses
import json

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import packing

__all__ = ['HostProfile']


@dataclasses.dataclass(frozen=True)
class HostProfile:
    """The switch profile of a host, from discovery, calibration or operators.

    :ivar host: the host's name in nova
    :ivar profile: name of a switch profile, or None if there are only
        overrides
    :ivar overrides: numbers of the profile that differ on this host, a
        dictionary that JSON can represent
    :ivar source: where the profile comes from, for example 'operator' or
        'discovered'
    :ivar updated_at: time of the write, seconds UTC; set by the store
    :raises InvalidProfile: if a value is invalid; the message names the host,
        the value and the valid values
    """

    host: str
    profile: str | None
    overrides: dict = dataclasses.field(default_factory=dict)
    source: str = 'unknown'
    updated_at: float | None = None

    def __post_init__(self):
        error_class = exceptions.InvalidProfile
        packing.check_text(
            self.host, 255, 'host', self.host, 'its name', error_class
        )
        packing.check_text(
            self.source, 255, 'host', self.host, 'source', error_class
        )
        if self.profile is not None:
            packing.check_text(
                self.profile, 255, 'host', self.host, 'profile', error_class
            )
        try:
            if not isinstance(self.overrides, dict):
                raise TypeError
            json.dumps(self.overrides, allow_nan=False)
        except (TypeError, ValueError):
            raise error_class(
                f'host {self.host}: overrides: {self.overrides!r}; expected '
                f'a dictionary that JSON can hold') from None
