# SPDX-License-Identifier: Apache-2.0
"""Records of Nova's instances."""

import dataclasses

from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['FormerInstance', 'InventoryState', 'InstanceRecord']


@dataclasses.dataclass(frozen=True)
class InstanceRecord:
    """The data of an instance that Nova reports.

    :ivar instance_uuid: 1 to 36 characters
    :ivar host: name of the host with the instance, or None
    :ivar flavor: name of its flavor, or None if unknown
    :ivar project: id of its project, or None if unknown
    :ivar attachments: :class:`.Attachments`, networks in order, or None if
        unknown
    :ivar running: whether the instance runs according to Nova, or None if
        unknown
    :ivar guaranteed: (egress_kbps, ingress_kbps, kpps) that QoS policies
        guarantee to its ports, or None if unknown
    :ivar began_at: time of the launch, or else of the creation, seconds UTC,
        or None. The store does not keep this value and ``changed_at``, and a
        comparison of records ignores them
    :ivar changed_at: time of the last change, seconds UTC, or None
    :raises InvalidModel: if a value is invalid; the message names the
        instance, the value and the valid values
    """

    instance_uuid: str
    host: str | None
    flavor: str | None = None
    project: str | None = None
    attachments: vswitch_attachments.Attachments | None = None
    running: bool | None = None
    guaranteed: tuple | None = None
    began_at: float | None = dataclasses.field(default=None, compare=False)
    changed_at: float | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self):
        uuid = self.instance_uuid
        packing.check_text(uuid, 36, 'instance', uuid, 'its uuid')
        for name in ('host', 'flavor', 'project'):
            if getattr(self, name) is not None:
                packing.check_text(
                    getattr(self, name), 255, 'instance', uuid, name
                )
        if self.guaranteed is not None:
            object.__setattr__(self, 'guaranteed', packing.guarantee_of(
                uuid, self.guaranteed))

    @property
    def networks(self):
        """Tuple of the networks of its interfaces; empty if unknown."""
        return () if self.attachments is None else (
            self.attachments.networks + self.attachments.others)


@dataclasses.dataclass(frozen=True)
class FormerInstance:
    """An instance that Nova has deleted.

    :ivar removed_at: when its placement was removed, seconds UTC
    :ivar flavor: name of its flavor, or None if unknown
    :ivar project: id of its project, or None if unknown
    """

    flavor: str | None
    project: str | None
    removed_at: float


@dataclasses.dataclass(frozen=True)
class InventoryState:
    """The age of the placements.

    :ivar source: the service that reported the placements
    :ivar seen_at: time for which the placements are correct, seconds UTC
    :ivar complete_at: time of the last reading of all placements, seconds UTC
    :ivar changed_until: the placements include changes up to this time by the
        clock of the source, or None
    """

    source: str
    seen_at: float
    complete_at: float
    changed_until: float | None = None
