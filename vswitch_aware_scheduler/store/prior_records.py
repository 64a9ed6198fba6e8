# SPDX-License-Identifier: Apache-2.0
"""Records of priors, the expected traffic of instances without a model."""

import dataclasses
import math

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Prior']


@dataclasses.dataclass(frozen=True)
class Prior:
    """The expected traffic of an instance without a model.

    A prior belongs to a group (a flavor and a project, a flavor, a project, or
    all instances) or to one instance with a short history.

    :ivar instance_uuid: None for a group
    :ivar flavor: name, or None for any flavor
    :ivar project: id, or None for any project
    :ivar law: RateLaw
    :ivar members: number of instances of the group that have a law, or number
        of samples of the instance; above 0
    :ivar updated_at: time of the write, seconds UTC; set by the store
    :raises InvalidModel: if a value is invalid; the message names the group,
        the value and the valid values
    """

    flavor: str | None
    project: str | None
    law: rate_law.RateLaw
    members: float
    instance_uuid: str | None = None
    updated_at: float | None = None

    def __post_init__(self):
        for name, limit in (('flavor', 255), ('project', 255),
                            ('instance_uuid', 36)):
            if getattr(self, name) is not None:
                packing.check_text(
                    getattr(self, name), limit, 'prior', self.key, name
                )
        if not (math.isfinite(self.members) and self.members > 0):
            raise exceptions.InvalidModel(
                f'prior {self.key}: members: {self.members}; expected a '
                f'finite number > 0')

    @property
    def key(self):
        """(flavor, project) of a group, or the uuid of an instance."""
        return self.instance_uuid or (self.flavor, self.project)
