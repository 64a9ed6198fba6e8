# SPDX-License-Identifier: Apache-2.0
"""The common part of the drivers that read from a service over HTTP."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import email.utils
import importlib
import math
import time
import typing

import numpy as np

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.telemetry import base

__all__ = ['Division', 'ServiceDriver', 'ServiceSettings', 'batches',
           'import_client', 'iso_time', 'numbers', 'require_list',
           'require_text', 'seconds']

#: The thing in messages about options.
DRIVER = 'telemetry driver'

LOG = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """The options of a driver, as its group of options describes them.

    :ivar period_seconds: sampling period of the samples
    :ivar settle_seconds: younger samples are not read yet
    :ivar max_age_seconds: older samples are rejected
    :raises InvalidInput: if a value is invalid
    """

    period_seconds: float = 300.0
    settle_seconds: float = 120.0
    max_age_seconds: float | None = 2592000.0

    def __post_init__(self) -> None:
        age = type(self).max_age_seconds
        checks.fields(DRIVER, self, {
            'period_seconds': checks.number(above=True),
            'settle_seconds': checks.number(),
            'max_age_seconds': checks.number(
                default=... if age is not None else None)})


class ServiceDriver(base.Driver):
    """A driver that reads from a service. Constructors open nothing."""

    #: Name of the driver, for messages.
    NAME = ''

    #: Type of the service in the catalog of keystone.
    SERVICE_TYPE = ''

    _period_seconds: float

    #: Class of the options.
    SETTINGS: type[typing.Any] = ServiceSettings

    def __init__(self, access: http.Access | Mapping[str, typing.Any],
                 clock: Callable[[], float] = time.time,
                 sleep: Callable[[float], object] = time.sleep,
                 **settings: typing.Any):
        """Store the options. Opens nothing.

        :param access: :class:`.Access`, or a mapping of its arguments
        :param clock: callable, returns seconds UTC
        :param settings: values of :attr:`SETTINGS`
        :raises InvalidInput: if an option has an invalid value
        """
        try:
            self._settings = self.SETTINGS(**settings)
            self._access = access if isinstance(access, http.Access) \
                else http.Access(**access)
        except TypeError as error:
            raise exceptions.InvalidInput(
                thing=f'options of telemetry driver {self.NAME}', seen=error,
                expected=f'arguments of {self.SETTINGS.__name__} and Access'
            ) from None
        super().__init__(self._settings.period_seconds)
        self._clock = clock
        self._sleep = sleep
        # Date of the newest answer, and monotonic seconds when it arrived.
        self._served: tuple[float, float] | None = None

    def server_time(self) -> float | None:
        """Return the current time of the service's clock, or None."""
        if self._served is None:
            return None
        seconds, at = self._served
        return seconds + time.monotonic() - at

    def _note_time(self, headers):
        """Store the date of an answer.

        :param headers: mapping of the headers of the answer
        """
        # The header is missing or is not a date.
        with contextlib.suppress(LookupError, TypeError, ValueError,
                                 OverflowError):
            self._served = email.utils.parsedate_to_datetime(
                headers['Date']).timestamp(), time.monotonic()

    @property
    def source(self) -> str:
        """Name of the driver and URL of the service."""
        return f'{self.NAME} {self._access.where(self.SERVICE_TYPE)}'

    def _client(self, client_class):
        """Return a client of the service, which opens nothing yet.

        :param client_class: :class:`.Client` or a subclass
        """
        return client_class(self._access, self.source, self.SERVICE_TYPE,
                            sleep=self._sleep, on_headers=self._note_time)

    def _bounds(self, start, end):
        """Return the periods to read, and the oldest usable time.

        :returns: (first period, end of the periods, oldest time). The periods
            start in the requested time and ended, including the reading that
            completes them, long enough ago not to change.
        """
        now = self._clock()
        period = self._period_seconds
        age = self._settings.max_age_seconds
        oldest = -math.inf if age is None else now - age
        settled = math.floor(
            (now - self._settings.settle_seconds) / period) - 1
        low, high = (min(max(time, http.TIME_RANGE[0]), http.TIME_RANGE[1])
                     for time in (start, end))
        first = math.ceil(low / period)
        last = min(settled, math.ceil(high / period))
        return first, last, oldest


class Division:
    """Divides requests that are too large for a service.

    Each server has its own limits (length of a query, series, samples, memory,
    time) and its own text for each, so that the text of a refusal decides
    nothing. If a request is refused, the smallest part of it is requested. If
    the service refuses that as well, the size is not the reason. Otherwise the
    request is divided: first the items, because every limit depends on them,
    and a single item by time. What succeeded limits later requests.

    :param is_complete: whether the answer is useless without one of the items;
        the smallest request that is too large then raises
    :param smaller: callable(item), returns items of which an item of one
        period consists, or []
    :ivar most_items: largest number of items in a request
    :ivar most_periods: largest number of periods in a request for one item
    :ivar refusal: text of the last refusal because of the size, or None
    """

    def __init__(self, is_complete: bool = False,
                 smaller: Callable[[typing.Any], list[typing.Any]]
                 | None = None):
        self._is_complete = is_complete
        self._smaller = smaller or (lambda item: [])
        self.most_items = self.most_periods = math.inf
        self.refusal: str | None = None
        # Items whose smallest request is too large.
        self._too_large = set()

    def answers(self, ask: Callable[..., typing.Any],
                items: Sequence[typing.Any], low: int = 0, high: int = 1
                ) -> Iterator[typing.Any]:
        """Yield the answers to a request, or to its parts.

        An item whose smallest request is too large has no answer, and is not
        requested again.

        :param ask: callable(items, low, high, divisible), makes a request;
            ``divisible`` is whether the request can be divided
        :param items: sequence of hashable values
        :param low: first period
        :param high: end of the periods, exclusive
        :raises TelemetryError: if the service refuses even the smallest part,
            or if all parts are necessary and one is too large
        """
        parts, is_size = [(list(items), low, high)], False
        # Largest answered number of items, and of periods of one item.
        items_answered = periods_answered = 0
        while parts:
            items, low, high = parts.pop()
            if self._too_large:
                items = [item for item in items
                         if item not in self._too_large]
            if not items:
                continue
            if len(items) > self.most_items or (
                    len(items) == 1 and high - low > self.most_periods):
                parts += _cut(items, low, high, self.most_items,
                              self.most_periods)
                continue
            divisible = len(items) > 1 or high - low > 1 \
                or bool(self._smaller(items[0]))
            try:
                answer = ask(items, low, high, divisible)
            except (http.Refusal, http.TooLarge) as error:
                refused = isinstance(error, http.Refusal)
                if not getattr(error, 'may_be_size', True):
                    raise
                if not divisible:
                    if refused and not is_size or self._is_complete:
                        raise
                    LOG.warning('%s; %s has no samples', error,
                                http.shown(items[0]))
                    self._too_large.add(items[0])
                    continue
                if not is_size and (refused or self._is_complete):
                    self._try_smallest(ask, items[0], high, error)
                is_size = True
                self.refusal = str(error)
                if len(items) == 1 and high - low <= 1:
                    items = self._smaller(items[0])
                parts += _cut(items, low, high, (len(items) + 1) // 2,
                              (high - low + 1) // 2)
                continue
            items_answered = max(items_answered, len(items))
            if len(items) == 1:
                periods_answered = max(periods_answered, high - low)
            yield answer
        # A single unusual item does not limit the requests of others.
        if is_size and items_answered:
            self.most_items = items_answered
            if items_answered == 1:
                self.most_periods = periods_answered

    def _try_smallest(self, ask, item, high, error):
        """Raise the error of a request if its smallest part fails as well."""
        while self._smaller(item):
            item = self._smaller(item)[0]
        try:
            ask([item], high - 1, high, False)
        except http.TooLarge:
            if self._is_complete:
                raise
        except http.Refusal:
            raise error from None
        except exceptions.TelemetryError as smallest:
            raise exceptions.TelemetryError(
                f'{error}. A smaller request fails as well: {smallest}'
            ) from smallest


def _cut(items, low, high, most_items, most_periods):
    """Return parts of some items, or of the time of one, the last first."""
    if len(items) > 1:
        return [(items[start:start + most_items], low, high)
                for start in reversed(range(0, len(items), most_items))]
    return [(items, start, min(high, start + most_periods))
            for start in reversed(range(low, high, most_periods))]


def batches(items: Iterable[typing.Any],
            costs: Callable[[typing.Any], Sequence[float]]
            ) -> Iterator[list[typing.Any]]:
    """Divide items into parts for one request each.

    :param costs: callable(item), returns which share of each limit of a
        request the item takes
    """
    batch, total = [], np.zeros(1)
    for item in items:
        share = np.array(costs(item))
        if batch and (total + share > 1).any():
            yield batch
            batch, total = [], np.zeros(1)
        batch.append(item)
        total = total + share
    if batch:
        yield batch


def numbers(values: Sequence[object]) -> np.ndarray:
    """Return an array of numbers; NaN for each value that is no number.

    :param values: list of numbers or texts of numbers
    """
    try:
        return np.array(values).astype(float).reshape(len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(value) for value in values])


def _number(value):
    if isinstance(value, (int, float, str)):
        with contextlib.suppress(ValueError, OverflowError):
            return float(value)
    return math.nan


def import_client(name: str, extra: str, source: str) -> typing.Any:
    """Return a module of the client library of a service.

    It is imported at the first use, because the library is an extra.

    :param extra: extra of this package that installs the library
    :raises TelemetryError: if the module cannot be imported
    """
    library = name.partition('.')[0]
    try:
        importlib.import_module(library)
        return importlib.import_module(name)
    except ImportError as error:
        raise exceptions.TelemetryError(
            f'telemetry {source}: {library} cannot be imported ({error}); '
            f'install the extra "{extra}" of this package') from error


def require_list(answer: object) -> list[typing.Any]:
    """Return an answer that has to be a list.

    :raises TypeError: if it is not a list
    """
    if not isinstance(answer, list):
        raise TypeError(f'{type(answer).__name__} for a list')
    return answer


def require_text(value: object) -> str:
    """Return a value of an answer that has to be a text.

    :raises TypeError: if it is not a text, or an empty one
    """
    if not isinstance(value, str) or not value:
        raise TypeError(f'{value!r} is not a text')
    return value


def seconds(text: typing.Any) -> float:
    """Return seconds UTC of a time of a service, NaN if it is invalid.

    A time without offset is UTC.
    """
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        moment = datetime.datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(
            tzinfo=datetime.timezone.utc)).timestamp()
    return math.nan


def iso_time(seconds: float) -> str:
    """Return seconds UTC in the format of the services, without an offset."""
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.%f')
