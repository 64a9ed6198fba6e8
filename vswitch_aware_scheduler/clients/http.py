# SPDX-License-Identifier: Apache-2.0
"""Requests to a service over HTTP: address, credentials, retries, time limits.

This module defines which failures are retried and how errors are reported. It
is independent of the API of a service. A session is opened for each reading
and closed after it. Secrets are never shown or logged.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import json
import math
import time
import typing
import urllib.parse

from keystoneauth1 import adapter as ks_adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import session as ks_session
import requests

from vswitch_aware_scheduler.clients import bounded_session
from vswitch_aware_scheduler.clients import json_items
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text

__all__ = ['Access', 'Client', 'Refusal', 'RequestFailed', 'TemporaryFailure',
           'TooLarge', 'shown']

LOG = logs.get_logger(__name__)

#: Longest pause between two attempts in seconds, even if the service requests
#: a longer one.
MAX_PAUSE_SECONDS = 60.0

#: Times outside this range (1970 to 2100) are invalid.
TIME_RANGE = (0.0, 4102444800.0)

#: HTTP statuses that may differ in a retry.
_TEMPORARY_STATUS = frozenset([408, 425, 429, 500, 502, 503, 504])

#: HTTP statuses that do not depend on the size of a request: who asks, what
#: does not exist, and how often the client may ask.
_NOT_OF_SIZE = frozenset([401, 403, 404, 429])

_NO_CONNECTION = (ks_exceptions.ConnectionError, requests.RequestException,
                  ConnectionError, TimeoutError)


def shown(value: object, length: int = 200) -> str:
    """Return a value for a message.

    The middle of a long value is omitted. Control characters are escaped, so
    that an answer cannot control a terminal.

    :param length: maximum length of the text
    """
    text = value if isinstance(value, str) else repr(value)
    text = plain_text.printable(' '.join(text.split()))
    if len(text) <= length:
        return text
    return f'{text[:length // 2]} ... {text[-(length // 2):]}'


@dataclasses.dataclass(frozen=True)
class Access:
    """The address of a service, the credentials and the limits of requests.

    The values are those of keystoneauth1's options for a session and an
    adapter, and limits that keystoneauth1 does not have.

    :ivar url: URL of the service, or None to find it in the catalog of
        keystone
    :ivar auth: None, or a mapping of ``auth_type``, the name of a plugin of
        keystoneauth1, and the options of the plugin. Not part of the repr.
    :ivar interface: interface in the catalog: public, internal or admin, or
        several in the order of preference
    :ivar region_name: region in the catalog, or None
    :ivar cafile: file with certificates to verify the TLS server, or None for
        those of the system. The server is always verified.
    :ivar certfile: file with the client certificate, or None
    :ivar keyfile: file with its key, or None if ``certfile`` contains it
    :ivar timeout_seconds: longest duration of one attempt, from the connection
        to the last byte of the answer, including requests to keystone
    :ivar max_answer_mib: largest answer in MiB, after decompression
    :ivar retries: number of retries of a request that failed
    :ivar connect_retries: number of retries of a request that found no
        connection, None: ``retries``
    :ivar backoff_seconds: pause before the first retry; doubled for each
        further one
    :ivar requests_per_second: largest number of requests per second
    :ivar headers: {name: value} of further headers of each request. Not part
        of the repr.
    :ivar token_file: file with the token of ``Authorization: Bearer``, read
        again for each reading, or None
    :raises InvalidInput: if a value is invalid
    """

    url: str | None = None
    auth: Mapping[str, typing.Any] | None = dataclasses.field(
        default=None, repr=False, hash=False)
    interface: str | Sequence[str] = dataclasses.field(
        default='public', hash=False)
    region_name: str | None = None
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    timeout_seconds: float = 60.0
    max_answer_mib: float = 32.0
    retries: int = 3
    connect_retries: int | None = None
    backoff_seconds: float = 1.0
    requests_per_second: float = 10.0
    headers: Mapping[str, str] | None = dataclasses.field(
        default=None, repr=False, hash=False)
    token_file: str | None = None

    def __post_init__(self) -> None:
        url = urllib.parse.urlsplit(self.url or '')
        _require(self.url or self.auth, 'endpoint_override', None,
                 'a URL. If auth_type is set, the URL is read from the '
                 'catalog of keystone')
        _require(not self.url or url.scheme in ('http', 'https')
                 and url.hostname, 'endpoint_override', self.url,
                 'http://host:port or https://host:port')
        _require(not (url.username or url.password), 'endpoint_override',
                 self.url, 'a URL without user and password. Set '
                 'auth_type and its options instead')
        _require(self.auth is None or self.auth.get('auth_type'), 'auth_type',
                 None, 'the name of a plugin of keystoneauth1')
        positive = checks.number(above=True)
        checks.fields('telemetry service', self, {
            'timeout_seconds': positive, 'max_answer_mib': positive,
            'requests_per_second': positive, 'retries': checks.number(),
            'backoff_seconds': checks.number(),
            'connect_retries': checks.number(default=None)})

    def where(self, service_kind: str = '') -> str:
        """Return the address of the service, for messages.

        :param service_kind: kind of service, which names the service if its
            URL is in the catalog
        """
        if self.url is not None:
            return self.url
        text = f'{service_kind} of the catalog'.lstrip()
        return f'{text} in {self.region_name}' if self.region_name else text


def _require(is_valid, name, value, expected):
    """Raise InvalidInput, without the password of a URL."""
    if not is_valid:
        scheme, mark, address = str(value).rpartition('://')
        shown_value = scheme + mark + address.rpartition('@')[2] \
            if isinstance(value, str) else value
        raise exceptions.InvalidInput(
            thing=f'telemetry service: {name}',
            value=shown_value, expected=expected)


class TemporaryFailure(Exception):
    """A failure that is possibly gone when the request is repeated.

    :param pause_seconds: pause that the service requests, or None
    """

    def __init__(self, description: str, pause_seconds: float | None = None):
        super().__init__(description)
        self.pause_seconds = pause_seconds


class RequestFailed(exceptions.TelemetryError):
    """A service does not answer a request as it should."""

    msg_fmt = 'telemetry {source}: {request}: seen {seen}; expected {expected}'


class TooLarge(RequestFailed):
    """An answer is larger than max_answer_mib."""


class Refusal(RequestFailed):
    """The service rejects a request; a retry would not help.

    :param may_be_size: whether a smaller request may succeed
    :param values: those of RequestFailed
    """

    def __init__(self, status: int, body: str, may_be_size: bool,
                 **values: object):
        super().__init__(**values)
        self.status = status
        self.body = body
        self.may_be_size = may_be_size


class _Session(ks_session.Session):  # type: ignore[misc]
    """A session whose adapters do not wait.

    An adapter of keystoneauth1 sends nothing before the time of its creation,
    by the clock of the system: if that clock is set back, it waits for the
    same time. The client limits the rate of requests with a monotonic clock
    instead.
    """

    def request(self, *args, rate_semaphore=None, **kwargs):
        return super().request(*args, **kwargs)


class Client:
    """Makes requests during one reading, and limits what they cost.

    keystoneauth1 authenticates, finds the endpoint and sends. What it does not
    limit, this class does. Each limit answers a service that is broken or in
    the hands of an attacker:

    - *Size*: an answer that never ends, or expands from a few compressed
      bytes, would fill the memory.
    - *Time*: a service that sends one byte now and then would hold a reader
      for ever. :class:`.BoundedSession` ends the exchange.
    - *Pace*: a service that answers at once with errors, or with pages that
      name further pages, would be sent requests without a pause, and a
      ``Retry-After`` of a year would stop the reader.

    Retries are here, and not in the adapter, because an answer of HTTP 200 may
    be invalid as well, and a retry gets a deadline of its own.

    :param source: name of driver and service, for messages
    :param service_type: type of the service in the catalog of keystone
    :param clock: callable, returns monotonic seconds
    :param sleep: callable(seconds), waits
    :param on_headers: None, or callable(headers), called with the headers of
        each answer
    """

    def __init__(self, access: Access, source: str, service_type: str,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], object] = time.sleep,
                 on_headers: Callable[[Mapping[str, str]], object]
                 | None = None):
        self._access = access
        self._source = source
        self._service_type = service_type
        self._clock = clock
        self._sleep = sleep
        self._on_headers = on_headers
        self._next = -math.inf
        self.session: typing.Any = None
        #: The adapter for requests; a driver may replace it by that of its
        #: client.
        self.adapter: typing.Any = None
        #: Exceptions of a client library that mean that there is no
        #: connection.
        self.no_connection: tuple[type[BaseException], ...] = _NO_CONNECTION

    def __enter__(self) -> typing.Self:
        access = self._access
        self._headers = {'Accept': 'application/json',
                         **(access.headers or {}), **self._token()}
        self._http = bounded_session.BoundedSession(
            access.timeout_seconds, int(access.max_answer_mib * 2 ** 20),
            self._clock)
        cert = access.certfile
        self.session = _Session(
            auth=self._auth(), session=self._http,
            verify=access.cafile or True,
            cert=(cert, access.keyfile) if cert and access.keyfile else cert,
            timeout=access.timeout_seconds,
            user_agent='vswitch_aware_scheduler', redirect=False)
        self.adapter = ks_adapter.Adapter(
            self.session, **self.adapter_options())
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _token(self):
        path = self._access.token_file
        if path is None:
            return {}
        try:
            with open(path, encoding='utf-8') as stream:
                token = stream.read().strip()
        except (OSError, ValueError) as error:
            raise self.failure('token_file', f'{path}: {error}',
                               'a readable file with a token') from error
        return {'Authorization': f'Bearer {token}'}

    def failure(self, request: str, seen: object, expected: str
                ) -> RequestFailed:
        """Return the exception for a request that has failed."""
        return RequestFailed(source=self._source, request=request, seen=seen,
                             expected=expected)

    def adapter_options(self) -> dict[str, typing.Any]:
        """Return arguments for an Adapter of keystoneauth1."""
        access = self._access
        return {'service_type': self._service_type,
                'interface': access.interface,
                'region_name': access.region_name,
                'endpoint_override': access.url,
                'connect_retries': 0, 'status_code_retries': 0}

    def _auth(self):
        if self._access.auth is None:
            return None
        options = dict(self._access.auth)
        name = options.pop('auth_type')
        try:
            loader = ks_loading.get_plugin_loader(name)
            return loader.load_from_options(**options)
        except (ks_exceptions.ClientException, TypeError) as error:
            # Messages of keystoneauth1 contain names of options but no values.
            raise self.failure(
                'auth_type', f'{name!r} with the options '
                f'{", ".join(sorted(options)) or "none"} '
                f'({type(error).__name__}: {shown(str(error))})',
                'a plugin of keystoneauth1 and its options') from None

    def json(self, request_name: str, method: str, path: str, expected: str,
             check: Callable[[typing.Any], typing.Any] | None = None,
             items: tuple[Sequence[str], Callable[[typing.Any], typing.Any]]
             | None = None, divisible: bool = False,
             **arguments: typing.Any) -> tuple[typing.Any, Mapping[str, str]]:
        """Return the parsed answer to a request, and its headers.

        :param expected: description of the expected answer, for messages
        :param check: None, or callable(answer), returns the result; it raises
            LookupError, TypeError or ValueError if the answer is invalid
        :param items: None, or (keys that lead to a long list in the answer,
            callable). The callable converts each item of the list, so that the
            complete list is never in memory. It raises as ``check`` does.
        :param divisible: whether the caller can request less at a time. A
            refusal that may depend on the size is then raised immediately,
            also with a status that would otherwise be retried
        :param arguments: keyword arguments of ``Adapter.request``
        :returns: (answer, headers); the answer is None if there is no content
            and no check
        :raises TelemetryError: if all attempts have failed
        :raises TooLarge: if the answer is larger than max_answer_mib
        :raises Refusal: if the service rejects the request
        """
        def refusal(status, problem, text, may_be_size):
            return Refusal(status, text, may_be_size, source=self._source,
                           request=request_name, seen=problem,
                           expected=expected)

        def once():
            response = self.adapter.request(
                path, method, raise_exc=False, log=False,
                authenticated=self._access.auth is not None,
                headers=self._headers, **arguments)
            if self._on_headers is not None:
                self._on_headers(response.headers)
            status, body = response.status_code, response.content
            if not 200 <= status < 300:
                text = body.decode('utf-8', 'replace')
                problem = f'HTTP {status}: {shown(text[:2000])}'
                later = response.headers.get('Retry-After', '')
                may_be_size = status not in _NOT_OF_SIZE and not later
                if status in _TEMPORARY_STATUS \
                        and not (divisible and may_be_size):
                    raise TemporaryFailure(problem, _seconds(later))
                raise refusal(status, problem, text, may_be_size)
            if not body and check is None:
                return None, response.headers
            try:
                text = body.decode(json.detect_encoding(body),
                                   'surrogatepass')
                answer = json_items.load(text, *items) if items \
                    else json.loads(text)
                return (check(answer) if check else answer), response.headers
            except (LookupError, TypeError, ValueError, AttributeError,
                    RecursionError, OverflowError) as error:
                problem = (
                    f'an invalid response '
                    f'({type(error).__name__}: {shown(str(error), 80)}): '
                    f'{shown(body[:400].decode("utf-8", "replace"))}')
                if divisible:
                    # A server may have started its answer when it detects that
                    # the answer is too large.
                    raise refusal(status, problem, problem, True) from error
                raise TemporaryFailure(problem) from error

        return self.attempt(request_name, expected, once)

    def attempt(self, request_name: str, expected: str,
                once: Callable[[], typing.Any]) -> typing.Any:
        """Call a function until it succeeds, for a limited number of attempts.

        :param expected: description of the expected answer, for messages
        :param once: callable(), makes one request; it raises
            TemporaryFailure if the request may be repeated
        :returns: result of ``once``
        :raises TelemetryError: if all attempts have failed, or immediately if
            the failure is permanent
        :raises TooLarge: if the answer is larger than max_answer_mib
        :raises VSwitchError: any that ``once`` raises; it is not retried
        """
        access = self._access
        began = self._clock()
        pause = access.backoff_seconds
        for attempt in itertools.count(1):
            self._pace()
            try:
                with self._http.exchange():
                    return once()
            except exceptions.VSwitchError:
                raise
            except bounded_session.AnswerTooLarge as error:
                raise TooLarge(
                    source=self._source, request=request_name, seen=error,
                    expected=f'at most max_answer_mib = '
                    f'{access.max_answer_mib:g}. Raise max_answer_mib, or '
                    f'request less at a time') from error
            except Exception as error:
                problem, retries, requested_pause = self._description(error)
                if problem is None:
                    raise
                if attempt > retries:
                    seconds = self._clock() - began
                    raise self.failure(
                        request_name, problem, f'{expected} ({attempt} '
                        f'attempts in {seconds:.1f} s)') from error
                wait = min(max(pause, requested_pause or 0), MAX_PAUSE_SECONDS)
                LOG.debug('Telemetry %s: %s: %s; attempt %d follows in %.1f s',
                          self._source, request_name, problem, attempt + 1,
                          wait)
                self._sleep(wait)
                pause *= 2

    def _pace(self):
        """Wait until the next request may be made."""
        now = self._clock()
        if now < self._next:
            self._sleep(self._next - now)
            now = self._next
        self._next = now + 1 / self._access.requests_per_second

    def _description(self, error):
        """Return (description, number of retries, requested pause or None).

        For an error that does not come from a service, the description is
        None.
        """
        retries = self._access.retries
        if isinstance(error, (TemporaryFailure,
                              bounded_session.DeadlineExceeded,
                              bounded_session.BrokenAnswer)):
            return str(error), retries, getattr(error, 'pause_seconds', None)
        kind = type(error).__name__
        text = f'{kind}: {shown(str(error))}'
        if kind == 'SSLError':
            # A retry would have the same certificate.
            return text, 0, None
        if isinstance(error, self.no_connection):
            connect_retries = self._access.connect_retries
            return text, (retries if connect_retries is None
                          else connect_retries), None
        status = getattr(error, 'http_status', None) \
            or getattr(error, 'code', None)
        if isinstance(status, int):
            return text, retries if status in _TEMPORARY_STATUS else 0, None
        # Of keystoneauth1, for example an unknown user, or a service that is
        # missing in the catalog.
        return text if isinstance(error, ks_exceptions.ClientException) \
            else None, 0, None


def _seconds(retry_after):
    try:
        return float(retry_after)
    except ValueError:
        return None
