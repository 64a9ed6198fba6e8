# SPDX-License-Identifier: Apache-2.0
"""Records of Nova's instances."""

import dataclasses

from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['FormerInstance', 'InventoryState', 'InstanceRecord']


@dataclasses.dataclass(frozen=True)
class InstanceRecord:
    """What Nova tells of an instance.

    :ivar instance_uuid: 1 to 36 characters
    :ivar host: name of the host that it is on, or None
    :ivar flavor: name of its flavor, or None when not known
    :ivar project: id of its project, or None when not known
    :ivar attachments: :class:`.Attachments`, networks in order, or None when
        they are not known
    :ivar running: whether Nova says that it runs, None when not known
    :ivar began_at: when it was launched, or made, seconds UTC, or None; this
        and ``changed_at`` are not kept, and do not tell records apart
    :ivar changed_at: when it changed last, seconds UTC, or None
    :raises InvalidModel: naming the instance, the value and what was wanted
    """

    instance_uuid: str
    host: str | None
    flavor: str | None = None
    project: str | None = None
    attachments: vswitch_attachments.Attachments | None = None
    running: bool | None = None
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

    @property
    def networks(self):
        """Tuple of the networks of its interfaces; empty when not known."""
        return () if self.attachments is None else (
            self.attachments.networks + self.attachments.others)


@dataclasses.dataclass(frozen=True)
class FormerInstance:
    """An instance that Nova had and has deleted since.

    :ivar flavor: name of its flavor, or None when not known
    :ivar project: id of its project, or None when not known
    :ivar removed_at: when its placement was removed, seconds UTC
    """

    flavor: str | None
    project: str | None
    removed_at: float


@dataclasses.dataclass(frozen=True)
class InventoryState:
    """How recent the placements are.

    :ivar source: who told them
    :ivar seen_at: they are what was so at that time, seconds UTC
    :ivar complete_at: when all were read last, and not only changes
    :ivar changed_until: changes up to this time by the clock of the source
        are in them, or None
    """

    source: str
    seen_at: float
    complete_at: float
    changed_until: float | None = None
