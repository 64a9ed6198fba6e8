# SPDX-License-Identifier: Apache-2.0
"""The interface of telemetry drivers.

All drivers fulfil this contract. This module uses no source, no clock and no
configuration. ``tests/contract`` has the test suite that every driver passes.

Every driver guarantees:

- *Cheap to create.* A constructor opens no file, socket or thread. A driver
  can be created before a fork and pickled. :meth:`Driver.instances` and
  :meth:`Driver.series` open everything again in each call.
- *One instance at a time.* :meth:`Driver.series` is lazy: the reader holds one
  RateSeries, and the driver only what it needs for the next one.
- *No answer does not mean no traffic.* A missing or unusable sample is absent
  from the series and counted in ``RateSeries.refused``. A driver never inserts
  zeros. For an instance without usable samples, the source yields an empty
  series. For an unknown instance, it yields no series.
- *Complete or an error.* If a source cannot be read completely, the driver
  raises TelemetryError. A stream that ends without an error is complete.
"""

import abc
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math
import numbers
import types
import typing
import uuid

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['Driver', 'Instance', 'Progress', 'normalised_uuid']

#: callable(done, total)
Progress = Callable[[int, int], object]


def normalised_uuid(text: object) -> str | None:
    """Return a uuid in its canonical form, or None if it is invalid.

    Valid are 32 hexadecimal digits with or without the four hyphens.
    """
    if not isinstance(text, str) or len(text) not in (32, 36):
        return None
    try:
        canonical = str(uuid.UUID(text))
    except ValueError:
        return None
    lower_case = text.lower()
    return canonical if lower_case in (canonical, canonical.replace('-', '')) \
        else None


_UUID = checks.Kind('a uuid', normalised_uuid, normalised_uuid)
_TIME = checks.Kind('a time in seconds UTC', lambda value: isinstance(
    value, numbers.Real) and value == value, float)


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance that a source knows.

    :ivar uuid: canonical uuid, the same as in its RateSeries
    :ivar name: name of the instance in the source, with control characters
        escaped; in a trace, the decimal VM number
    :ivar metadata: read-only mapping of other values of the source. Keys
        without a value are absent. Common keys: ``cpu_cores`` (float),
        ``memory_kb`` (float, in the unit of the source) and ``ended_at``
        (float, time of the deletion in seconds UTC).
    :raises InvalidInput: if ``uuid`` is not a uuid
    """

    uuid: str
    name: str
    metadata: Mapping[str, typing.Any] = dataclasses.field(
        default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'uuid', checks.check(
            f'instance {self.name}: uuid', self.uuid, _UUID))
        object.__setattr__(self, 'name', plain_text.printable(self.name))
        object.__setattr__(self, 'metadata',
                           types.MappingProxyType(dict(self.metadata)))

    def __reduce__(self):
        return Instance, (self.uuid, self.name, dict(self.metadata))


class Driver(abc.ABC):
    """A source of traffic samples.

    A subclass implements :attr:`source`, :meth:`instances` and
    :meth:`_series`. Readers call :meth:`series`.
    """

    def __init__(self, period_seconds: float | None = None):
        """Store the options. Opens nothing.

        :param period_seconds: sampling period of the samples, or None to use
            the period of the source
        :raises InvalidInput: if the period is not a finite number above 0
        """
        self._period_seconds = checks.check(
            'period_seconds', period_seconds,
            checks.number(above=True, default=None))

    #: {instance uuid: host of the instance in Nova}. A reader with an
    #: inventory sets this before a reading. Drivers whose series name their
    #: hosts then ignore what other hosts report about an instance.
    hosts: Mapping[str, str | None] = types.MappingProxyType({})

    _ignored: Mapping[str, int] = types.MappingProxyType({})

    #: What :attr:`variant` was when a reader learned from this source. A
    #: driver that detects its variant then changes it only for a good reason.
    variant_before = ''

    @property
    def variant(self) -> str:
        """Name of what the samples come from within the source, or ''.

        It is known after :meth:`instances`. The samples of another variant
        are measured otherwise: a reader does not add them to earlier ones.
        """
        return ''

    @property
    def period_seconds(self) -> float | None:
        """Requested sampling period in seconds, or None.

        None means that each instance has the period of its samples.
        ``RateSeries.period_seconds`` is always the actual period. Reading this
        attribute opens nothing.
        """
        return self._period_seconds

    @property
    @abc.abstractmethod
    def source(self) -> str:
        """The path or URL that is read, for messages; without secrets."""

    def server_time(self) -> float | None:
        """Return the time of the source's clock, seconds UTC.

        The time comes from the last answer of the source; None if no answer
        had a time. Opens nothing.
        """
        return None

    def facts(self) -> dict[str, typing.Any]:
        """Return {name: value} about the source, for operators.

        :returns: dictionary with the keys ``server`` (what answers),
            ``limits`` ({name: value}), ``exporter`` (the names that are read),
            ``exporters`` ({name: number of instances of all known names}),
            ``unusable`` ({name of another exporter: why it cannot be used}),
            ``interfaces``, ``series`` (their numbers), ``update_seconds``
            (interval at which the counters were seen to change) and
            ``configured`` ({name of an option of times: value}), each only if
            known
        :raises TelemetryError: if the source cannot be read
        """
        return {}

    @property
    def ignored(self) -> dict[str, int]:
        """{reason: number} of what the last :meth:`instances` omitted.

        These are interfaces and series whose creator is not trusted, or that
        are of another host. The reason is a text for operators and contains
        names.
        """
        return dict(self._ignored)

    @abc.abstractmethod
    def instances(self) -> list[Instance]:
        """Return the instances that the source knows.

        :returns: each uuid once, in the same order as in :meth:`series`
        :raises TelemetryError: if the source cannot be read
        """

    def recent(self, since: float) -> Collection[str] | None:
        """Return the instances that may have samples since a given time.

        A reader can therefore omit instances that were deleted earlier.

        :param since: seconds UTC
        :returns: set of uuids; None if the source would have to read samples
            for the answer
        :raises TelemetryError: if the source cannot be read
        """
        return None

    def series(self, start: float | None = None, end: float | None = None,
               instances: Collection[str] | None = None,
               progress: Progress | None = None
               ) -> Iterator[rate_series.RateSeries]:
        """Return an iterator over the traffic of the instances.

        A reader that continues passes ``math.nextafter(last, math.inf)`` as
        ``start``, where ``last`` is the time of its last sample. ``refused``
        only counts samples between ``start`` and ``end``, so that reading in
        pieces counts nothing twice.

        :param start: time of the first sample, seconds UTC; None: from the
            beginning
        :param end: end of the samples, exclusive; None: to the end
        :param instances: collection of uuids, None: all; unknown uuids are
            ignored
        :param progress: None, or callable(done, total), called while reading.
            The unit is chosen by the driver; ``total`` is constant, ``done``
            starts at 0, and the last call is ``progress(total, total)``.
        :returns: iterator of RateSeries, one for each requested and known
            instance, ``start <= times < end``, rates in kbit/s and
            kilo-packets/s. A time is the start of a sampling period, or the
            moment that the source uses, the same for all samples.
        :raises InvalidInput: immediately, if an argument is invalid
        :raises TelemetryError: from the iterator, if the source cannot be
            read; the message names the source, the value and the expected
            value
        """
        start, end = (
            checks.check(f'{name} of the requested time', time,
                         _TIME._replace(default=default))
            for name, time, default in (('start', start, -math.inf),
                                        ('end', end, math.inf)))
        return self._series(
            start, end, None if instances is None else _uuids(instances),
            progress or _no_progress)

    @abc.abstractmethod
    def _series(self, start: float, end: float,
                instances: frozenset[str] | None, progress: Progress
                ) -> Iterator[rate_series.RateSeries]:
        """Yield what :meth:`series` returns.

        :param start: may be -inf
        :param end: may be inf
        :param instances: canonical uuids, or None for all
        """


def _no_progress(done, total):
    pass


def _uuids(instances):
    if isinstance(instances, (str, bytes)):
        raise exceptions.InvalidInput(thing='instances', value=instances,
                                      expected='a collection of uuids')
    return frozenset(checks.check('uuid of an instance', str(uuid), _UUID)
                     for uuid in instances)
