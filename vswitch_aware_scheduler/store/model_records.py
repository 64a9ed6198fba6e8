# SPDX-License-Identifier: Apache-2.0
"""Records of traffic models and of instances without one."""

import dataclasses
import math

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import series

__all__ = ['Learned', 'ModelSummary', 'ResumePoint', 'StoredModel',
           'Unmodelled']


@dataclasses.dataclass(frozen=True, eq=False)
class StoredModel:
    """The traffic model of one instance with its provenance.

    :ivar instance_uuid: 1 to 36 characters
    :ivar model: TrafficModel
    :ivar counts: TransitionCounts it was fitted to, or None
    :ivar window_start: start of the first sample, seconds UTC
    :ivar window_end: end of the last one
    :ivar samples: number of samples, fractional once aged
    :ivar refused: :class:`~vswitch_aware_scheduler.traffic.series.Refused`
    :ivar source: where the samples come from, such as 'file'
    :ivar name: of the instance, for people; None when not known
    :ivar updated_at: when it was written, seconds UTC; set by the store
    :ivar format_version: of the model's dictionary; set by the store
    :raises InvalidModel: naming the instance, the value and what was wanted
    """

    instance_uuid: str
    model: traffic_model.TrafficModel
    counts: estimate.TransitionCounts | None = None
    window_start: float = 0.0
    window_end: float = 0.0
    samples: float = 0.0
    refused: series.Refused = series.Refused()
    source: str = 'unknown'
    name: str | None = None
    updated_at: float | None = None
    format_version: int = traffic_model.FORMAT_VERSION

    def __post_init__(self):
        _check_instance(self)
        if not (math.isfinite(self.window_start)
                and math.isfinite(self.window_end)
                and self.window_start <= self.window_end):
            raise exceptions.InvalidModel(
                f'instance {self.instance_uuid}: window is '
                f'{self.window_start}..{self.window_end}, wanted finite '
                f'seconds, the end not before the start')
        if not (math.isfinite(self.samples) and self.samples >= 0):
            raise exceptions.InvalidModel(
                f'instance {self.instance_uuid}: samples is {self.samples}, '
                f'wanted a finite number >= 0')

    @classmethod
    def from_counts(cls, instance_uuid, model, counts, **provenance):
        """Return the record of a fitted model, window taken from the counts.

        :param provenance: ``refused``, ``source`` and ``name``
        """
        return cls(instance_uuid, model, counts,
                   window_start=counts.first_time,
                   window_end=counts.last_time + counts.period_seconds,
                   samples=counts.total_samples, **provenance)


@dataclasses.dataclass(frozen=True, eq=False)
class Unmodelled:
    """What was counted of an instance that has no model yet.

    Its history is too short, or shows no traffic at all. Attributes are those
    of :class:`StoredModel`.

    :raises InvalidModel: naming the instance, the value and what was wanted
    """

    instance_uuid: str
    counts: estimate.TransitionCounts
    refused: series.Refused = series.Refused()
    source: str = 'unknown'
    name: str | None = None

    def __post_init__(self):
        _check_instance(self)


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """Where the reading of an instance's telemetry goes on.

    :ivar modelled: whether the instance has a model
    :ivar last_time: start of its last counted sample, seconds UTC; None when
        its counts are missing or of a format not known here
    :ivar period_seconds: sampling period of its counts, or None likewise
    :ivar mark: changes with its counts: what they begin with; None when they
        are missing
    """

    modelled: bool
    last_time: float | None
    period_seconds: float | None
    mark: bytes | None = dataclasses.field(default=None, compare=False,
                                           repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """What the store has counted of an instance.

    :ivar modelled: whether the instance has a model
    :ivar counts: TransitionCounts; None when they are missing, damaged or of
        a format not known here
    :ivar refused: :class:`~vswitch_aware_scheduler.traffic.series.Refused`
    :ivar name: of the instance, for people; None when not known
    """

    modelled: bool
    counts: estimate.TransitionCounts | None
    refused: series.Refused
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class ModelSummary:
    """A stored model for a list: provenance and extremes, no states.

    ``mean`` and ``peak`` are tuples of egress_kbps, ingress_kbps, kpps; the
    other attributes are those of :class:`StoredModel`.
    """

    instance_uuid: str
    name: str | None
    mean: tuple
    peak: tuple
    window_start: float
    window_end: float
    samples: float
    refused: series.Refused
    source: str
    updated_at: float


def _check_instance(record):
    uuid = record.instance_uuid
    packing.check_text(uuid, 36, 'instance', uuid, 'its uuid')
    packing.check_text(record.source, 255, 'instance', uuid, 'source')
    if record.name is not None:
        packing.check_text(record.name, 255, 'instance', uuid, 'name')
