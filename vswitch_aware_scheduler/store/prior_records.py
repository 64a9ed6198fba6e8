# SPDX-License-Identifier: Apache-2.0
"""Records of priors."""

import dataclasses
import math

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import slots as sampled_slots

__all__ = ['Prior']


@dataclasses.dataclass(frozen=True)
class Prior:
    """What to expect of an instance without a model.

    Of a group: that of a flavor and a project, of one of both, or of all; or
    of one instance with a short history.

    :ivar flavor: name, or None: any
    :ivar project: id, or None: any
    :ivar law: RateLaw; that of a group has no bits
    :ivar members: number of instances of the group that have a law, or of the
        samples of the instance; above 0
    :ivar instance_uuid: None for a group
    :ivar updated_at: when it was written, seconds UTC; set by the store
    :ivar high_shares: of a group, as of :class:`.prior.Expected`
    :raises InvalidModel: naming the group, the value and what was wanted
    """

    flavor: str | None
    project: str | None
    law: rate_law.RateLaw
    members: float
    instance_uuid: str | None = None
    updated_at: float | None = None
    high_shares: bytes = bytes(sampled_slots.SLOTS)

    def __post_init__(self):
        for name, limit in (('flavor', 255), ('project', 255),
                            ('instance_uuid', 36)):
            if getattr(self, name) is not None:
                packing.check_text(
                    getattr(self, name), limit, 'prior', self.key, name
                )
        if not (math.isfinite(self.members) and self.members > 0):
            raise exceptions.InvalidModel(
                f'prior {self.key}: members is {self.members}, wanted a '
                f'finite number > 0')

    @property
    def key(self):
        """(flavor, project) of a group, or the uuid of an instance."""
        return self.instance_uuid or (self.flavor, self.project)
