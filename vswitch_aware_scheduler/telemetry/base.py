# SPDX-License-Identifier: Apache-2.0
"""The contract of a telemetry driver.

Knows what a reader of telemetry may count on, whatever the source. Knows no
source, no clock and no configuration. ``tests/contract`` holds the suite that
every driver passes.

What every driver promises:

* *Cheap to make.* A constructor opens no file, socket or thread; a driver
  can be made before a fork and pickled. Everything is opened by
  :meth:`Driver.instances` and :meth:`Driver.series`, on every call anew.
* *One instance at a time.* :meth:`Driver.series` is lazy: the reader holds
  one RateSeries, the driver no more than it must to make the next.
* *No answer is not no traffic.* A sample that is missing or unusable is
  absent from the series and counted in ``RateSeries.refused``; no driver
  fills in zeros. An instance that the source knows but has no usable sample
  of yields an empty series, one that the source does not know yields none.
* *All or an error.* A source that cannot be read, wholly or from some point
  on, raises TelemetryError: a stream that ends without error is complete.
"""

import abc
import dataclasses
import math
import types
import uuid

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import plain_text

__all__ = ['Driver', 'Instance', 'normalised_uuid']


def normalised_uuid(text):
    """Return a uuid in its canonical form, or None when it is not one.

    Accepted are 32 hexadecimal digits with or without the four hyphens.
    """
    if not isinstance(text, str) or len(text) not in (32, 36):
        return None
    try:
        canonical = str(uuid.UUID(text))
    except ValueError:
        return None
    given = text.lower()
    return canonical if given in (canonical, canonical.replace('-', '')) \
        else None


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance that a source knows.

    :ivar uuid: canonical uuid, the one of its RateSeries
    :ivar name: what the source calls it, its control characters escaped; of
        a trace the VM number in decimal
    :ivar metadata: read-only mapping of what else the source tells. Keys that
        a source has no value for are absent. Common keys: ``cpu_cores``
        (float) and ``memory_kb`` (float, as the source states it);
        ``ended_at`` (float, seconds UTC): it was deleted then.
    :raises InvalidInput: when ``uuid`` is not one
    """

    uuid: str
    name: str
    metadata: types.MappingProxyType = dataclasses.field(
        default_factory=dict, hash=False)

    def __post_init__(self):
        canonical = normalised_uuid(self.uuid)
        if canonical is None:
            raise exceptions.InvalidInput(
                f'instance {self.name}: uuid is {self.uuid!r}, wanted a uuid')
        object.__setattr__(self, 'uuid', canonical)
        object.__setattr__(self, 'name', plain_text.printable(self.name))
        object.__setattr__(self, 'metadata',
                           types.MappingProxyType(dict(self.metadata)))

    def __reduce__(self):
        return Instance, (self.uuid, self.name, dict(self.metadata))


class Driver(abc.ABC):
    """Where traffic samples come from.

    A subclass implements :attr:`source`, :meth:`instances` and
    :meth:`_series`; readers call :meth:`series`.
    """

    def __init__(self, period_seconds=None):
        """Remember the options; open nothing.

        :param period_seconds: sampling period to deliver, or None to take
            the source's own
        :raises InvalidInput: when that is not a finite number above 0
        """
        if period_seconds is not None:
            period_seconds = _finite_number('period_seconds', period_seconds)
            if period_seconds <= 0:
                raise exceptions.InvalidInput(
                    f'period_seconds is {period_seconds}, wanted a number '
                    f'above 0')
        self._period_seconds = period_seconds

    #: {instance uuid: host that Nova has the instance on}. A reader that has
    #: an inventory sets it before a reading; drivers whose series name their
    #: hosts then leave out what other hosts report of an instance.
    hosts = types.MappingProxyType({})

    @property
    def period_seconds(self):
        """Sampling period that was asked for, in seconds, or None.

        None: each instance has the period of its samples. What holds is
        always ``RateSeries.period_seconds``. Reading this opens nothing.
        """
        return self._period_seconds

    @property
    @abc.abstractmethod
    def source(self):
        """What is read, for messages: a path or a URL, never a secret."""

    def server_time(self):
        """Return what the clock of the source shows now, seconds UTC.

        By the last answer of the source; None where no answer had a time.
        Opens nothing.
        """
        return None

    @property
    def ignored(self):
        """{why: number} of what the last :meth:`instances` left out.

        Interfaces and series that the source has and that somebody made whose
        word does not count. ``why`` is for a reader, and has names in it.
        """
        return {}

    @abc.abstractmethod
    def instances(self):
        """Return what instances the source knows.

        :returns: list of :class:`Instance`, each uuid once, in the order in
            which :meth:`series` yields them
        :raises TelemetryError: when the source cannot be read
        """

    def recent(self, since):
        """Return which instances may have samples since a time.

        So that a reader need not ask for all that were deleted before.

        :param since: seconds UTC
        :returns: set of uuids; None where the source cannot tell without
            reading samples
        :raises TelemetryError: when the source cannot be read
        """
        return None

    def series(self, start=None, end=None, instances=None, progress=None):
        """Return an iterator over the traffic of one instance after another.

        A reader that resumes passes ``math.nextafter(last, math.inf)`` as
        ``start``, with ``last`` the time of the last sample it has.
        ``refused`` counts samples between ``start`` and ``end`` only, so that
        reading in pieces counts nothing twice.

        :param start: first time wanted, seconds UTC, None: from the beginning
        :param end: first time no longer wanted, None: to the end
        :param instances: collection of uuids wanted, None: all; unknown ones
            are left out of the answer
        :param progress: None, or called as ``progress(done, total)`` while
            reading: in a unit of the driver's choice, ``total`` constant,
            ``done`` from 0 upwards, and ``progress(total, total)`` when the
            iterator ends
        :returns: iterator of RateSeries, each wanted and known instance
            exactly once, ``start <= times < end``, rates in kbit/s and
            kilo-packets/s; a time is the start of a sampling period, or
            whatever moment of it the source stamps, the same for all samples
        :raises InvalidInput: at once, when an argument is not usable
        :raises TelemetryError: from the iterator, when the source cannot be
            read; it names the source, the value seen and the one wanted
        """
        start = -math.inf if start is None else _time('start', start)
        end = math.inf if end is None else _time('end', end)
        if instances is not None:
            instances = _uuids(instances)
        return self._series(start, end, instances, progress or _no_progress)

    @abc.abstractmethod
    def _series(self, start, end, instances, progress):
        """Yield what :meth:`series` promises.

        :param start: float, may be -inf
        :param end: float, may be inf
        :param instances: frozenset of canonical uuids, or None for all
        :param progress: always callable
        """


def _no_progress(done, total):
    pass


def _finite_number(name, value):
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise exceptions.InvalidInput(
            f'{name} is {value!r}, wanted a finite number')
    return number


def _time(name, value):
    if isinstance(value, float) and math.isinf(value):
        return value
    return _finite_number(f'{name} of the time wanted', value)


def _uuids(instances):
    if isinstance(instances, (str, bytes)):
        raise exceptions.InvalidInput(
            f'instances wanted are {instances!r}, wanted a collection of '
            f'uuids')
    canonical = set()
    for instance_uuid in instances:
        canonical.add(normalised_uuid(str(instance_uuid)))
        if None in canonical:
            raise exceptions.InvalidInput(
                f'one of the instances wanted is {instance_uuid!r}, wanted '
                f'a uuid')
    return frozenset(canonical)
