# SPDX-License-Identifier: Apache-2.0
"""Records of traffic models and of instances without a model."""

import dataclasses
import math

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import series

__all__ = ['Learned', 'ModelSummary', 'ResumePoint', 'StoredModel',
           'Unmodelled']


@dataclasses.dataclass(frozen=True, eq=False)
class StoredModel:
    """The traffic model of one instance and its origin.

    :ivar instance_uuid: 1 to 36 characters
    :ivar model: TrafficModel
    :ivar window_start: start of the first sample, seconds UTC
    :ivar refused: :class:`~vswitch_aware_scheduler.traffic.series.Refused`
    :ivar counts: TransitionCounts that the model was fitted to, or None
    :ivar window_end: end of the last sample, seconds UTC
    :ivar samples: number of samples, not a whole number after ageing
    :ivar source: where the samples come from, for example 'file'
    :ivar name: name of the instance for operators, or None if unknown
    :ivar updated_at: time of the write, seconds UTC; set by the store
    :ivar format_version: format version of the model's dictionary; set by the
        store
    :raises InvalidModel: if a value is invalid; the message names the
        instance, the value and the valid values
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
                f'{self.window_start}..{self.window_end}; expected finite '
                f'seconds, the end not before the start')
        if not (math.isfinite(self.samples) and self.samples >= 0):
            raise exceptions.InvalidModel(
                f'instance {self.instance_uuid}: samples: {self.samples}; '
                f'expected a finite number >= 0')

    @classmethod
    def from_counts(cls, instance_uuid, model, counts, **provenance):
        """Return the record of a fitted model, with the window of its counts.

        :param instance_uuid: 1 to 36 characters
        :param model: TrafficModel
        :param counts: TransitionCounts that the model was fitted to
        :param provenance: ``refused``, ``source`` and ``name``
        """
        return cls(instance_uuid, model, counts,
                   window_start=counts.first_time,
                   window_end=counts.last_time + counts.period_seconds,
                   samples=counts.total_samples, **provenance)


@dataclasses.dataclass(frozen=True, eq=False)
class Unmodelled:
    """The counts of an instance that has no model yet.

    Its history is too short or has no traffic, or its traffic is unknown for
    most of the time. The attributes are those of :class:`StoredModel`.

    :raises InvalidModel: if a value is invalid; the message names the
        instance, the value and the valid values
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
    """The point from which an instance's telemetry is read next.

    :ivar modelled: whether the instance has a model
    :ivar last_time: start of its last counted sample, seconds UTC; None if its
        counts are missing or have an unknown format
    :ivar period_seconds: sampling period of its counts; None in the same cases
    :ivar source: name of the source of its samples
    :ivar mark: the first bytes of its counts, which change with the counts;
        None if they are missing
    """

    modelled: bool
    last_time: float | None
    period_seconds: float | None
    source: str = 'unknown'
    mark: bytes | None = dataclasses.field(default=None, compare=False,
                                           repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """The stored counts of an instance.

    :ivar modelled: whether the instance has a model
    :ivar refused: :class:`~vswitch_aware_scheduler.traffic.series.Refused`
    :ivar counts: TransitionCounts; None if they are missing, damaged or have
        an unknown format
    :ivar name: name of the instance for operators, or None if unknown
    :ivar source: name of the source of the samples
    """

    modelled: bool
    counts: estimate.TransitionCounts | None
    refused: series.Refused
    name: str | None = None
    source: str = 'unknown'

    @property
    def is_hidden(self):
        """Whether the traffic is unknown more often than known."""
        return self.counts is not None and self.refused.hides(
            self.counts.total_samples)


@dataclasses.dataclass(frozen=True)
class ModelSummary:
    """A stored model for a list: origin, mean and peak, without states.

    ``mean`` and ``peak`` are tuples of egress_kbps, ingress_kbps, kpps. The
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
