# SPDX-License-Identifier: Apache-2.0
"""Requests to a service over HTTP: address, credentials, retries, time limits.

This module defines which failures are retried and how errors are reported. It
is independent of the API of a service. A session is opened for each reading
and closed after it. Secrets are never shown or logged.
"""

import dataclasses
import json
import math
import time
import types
import urllib.parse

from keystoneauth1 import adapter as ks_adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import session as ks_session
import requests

from vswitch_aware_scheduler.clients import bounded_session
from vswitch_aware_scheduler.clients import json_items
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text

__all__ = ['Access', 'Client', 'Refusal', 'TemporaryFailure', 'TooLarge',
           'shown']

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


def shown(value, length=200):
    """Return a value for a message.

    The middle of a long value is omitted. Control characters are escaped, so
    that an answer cannot control a terminal.

    :param value: any value
    :param length: maximum length of the text
    """
    text = value if isinstance(value, str) else repr(value)
    text = plain_text.printable(' '.join(text.split()))
    if len(text) <= length:
        return text
    return f'{text[:length // 2]} ... {text[-(length // 2):]}'


@dataclasses.dataclass(frozen=True)
class Access:
    """The address of a service, the credentials and the time limits.

    :ivar max_answer_mib: largest answer in MiB, after decompression
    :ivar url: URL of the service, or None to find it in the catalog of
        keystone
    :ivar auth: None, or a mapping of ``auth_type``, the name of a plugin of
        keystoneauth1, and the options of the plugin. Not part of the repr.
    :ivar interface: interface in the catalog: public, internal or admin
    :ivar region_name: region in the catalog, or None
    :ivar cafile: file with certificates to verify the TLS server, or None for
        those of the system. The server is always verified.
    :ivar certfile: file with the client certificate, or None
    :ivar keyfile: file with its key, or None if ``certfile`` contains it
    :ivar timeout_seconds: longest duration of one attempt, from the connection
        to the last byte of the answer, including requests to keystone
    :ivar retries: number of retries of a request
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
    auth: types.MappingProxyType | None = dataclasses.field(
        default=None, repr=False, hash=False)
    interface: str = 'public'
    region_name: str | None = None
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    timeout_seconds: float = 60.0
    max_answer_mib: float = 32.0
    retries: int = 3
    backoff_seconds: float = 1.0
    requests_per_second: float = 10.0
    headers: types.MappingProxyType | None = dataclasses.field(
        default=None, repr=False, hash=False)
    token_file: str | None = None

    def __post_init__(self):
        if self.url is not None:
            parts = urllib.parse.urlsplit(self.url)
            if parts.scheme not in ('http', 'https') or not parts.hostname:
                raise exceptions.InvalidInput(
                    f'url of a telemetry service: '
                    f'{_without_secrets(self.url)!r}; expected '
                    f'http://host:port or https://host:port')
            if parts.username or parts.password:
                raise exceptions.InvalidInput(
                    f'url of a telemetry service: '
                    f'{_without_secrets(self.url)!r}; expected a URL without '
                    f'user and password. Set auth_type and its options '
                    f'instead')
        elif not self.auth:
            raise exceptions.InvalidInput(
                'url of a telemetry service: not set; expected a URL. If '
                'auth_type is set, the URL is read from the catalog of '
                'keystone')
        if self.auth is not None and not self.auth.get('auth_type'):
            raise exceptions.InvalidInput(
                'auth_type of a telemetry service: not set; expected the '
                'name of a plugin of keystoneauth1')
        for name, low in (('timeout_seconds', 0), ('max_answer_mib', 0),
                          ('retries', -1),
                          ('backoff_seconds', -1),
                          ('requests_per_second', 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not low < value \
                    < math.inf:
                raise exceptions.InvalidInput(
                    f'{name} of a telemetry service: {value!r}; expected a '
                    f'finite number {"above" if low == 0 else "from"} 0')

    def where(self, service_kind=''):
        """Return the address of the service, for messages.

        :param service_kind: kind of service, which names the service if its
            URL is in the catalog
        """
        if self.url is not None:
            return self.url
        text = f'{service_kind} of the catalog'.lstrip()
        return f'{text} in {self.region_name}' if self.region_name else text

    def __reduce__(self):
        values = {item.name: getattr(self, item.name)
                  for item in dataclasses.fields(self)}
        return _access, (values,)


def _access(values):
    return Access(**values)


def _without_secrets(url):
    scheme, mark, address = url.rpartition('://')
    return scheme + mark + address.rpartition('@')[2]


class TemporaryFailure(Exception):
    """A failure that is possibly gone when the request is repeated.

    :param description: description of the failure
    :param pause_seconds: pause that the service requests, or None
    """

    def __init__(self, description, pause_seconds=None):
        super().__init__(description)
        self.pause_seconds = pause_seconds


class _Session(ks_session.Session):
    """A session whose adapters do not wait.

    An adapter of keystoneauth1 sends nothing before the time of its creation,
    by the clock of the system: if that clock is set back, it waits for the
    same time. The client limits the rate of requests with a monotonic clock
    instead.
    """

    def request(self, *args, rate_semaphore=None, **kwargs):
        return super().request(*args, **kwargs)


class Client:
    """Makes requests during one reading.

    :param access: :class:`Access`
    :param source: name of driver and service, for messages
    :param service_type: type of the service in the catalog of keystone
    :param clock: callable, returns monotonic seconds
    :param sleep: callable(seconds), waits
    :param on_headers: None, or callable(headers), called with the headers of
        each answer
    """

    def __init__(self, access, source, service_type, clock=time.monotonic,
                 sleep=time.sleep, on_headers=None):
        self._access = access
        self._source = source
        self._service_type = service_type
        self._clock = clock
        self._sleep = sleep
        self._on_headers = on_headers
        self._next = -math.inf
        self.session = None
        #: The adapter for requests; a driver may replace it by that of its
        #: client.
        self.adapter = None
        #: Exceptions of a client library that mean that there is no
        #: connection.
        self.no_connection = _NO_CONNECTION

    def __enter__(self):
        access = self._access
        self._headers = {'Accept': 'application/json',
                         **(access.headers or {}), **self._token()}
        cert = access.certfile
        if cert and access.keyfile:
            cert = (cert, access.keyfile)
        self._http = bounded_session.BoundedSession(
            access.timeout_seconds, int(access.max_answer_mib * 2 ** 20),
            self._clock)
        self.session = _Session(
            auth=self._auth(), session=self._http,
            verify=access.cafile or True, cert=cert,
            timeout=access.timeout_seconds,
            user_agent='vswitch_aware_scheduler', redirect=False)
        self.adapter = ks_adapter.Adapter(
            self.session, **self.adapter_options())
        return self

    def __exit__(self, *_):
        self._http.close()

    def _token(self):
        path = self._access.token_file
        if path is None:
            return {}
        try:
            with open(path, encoding='utf-8') as stream:
                token = stream.read().strip()
        except (OSError, ValueError) as error:
            raise exceptions.TelemetryError(
                f'telemetry {self._source}: token_file: {path}: {error}; '
                f'expected a readable file with a token') from error
        return {'Authorization': f'Bearer {token}'}

    def adapter_options(self):
        """Return arguments for an Adapter of keystoneauth1."""
        access = self._access
        return {'service_type': self._service_type,
                'interface': access.interface,
                'region_name': access.region_name,
                'endpoint_override': access.url,
                # This client counts, limits and reports retries; those of
                # keystoneauth1 are disabled.
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
            raise exceptions.TelemetryError(
                f'telemetry {self._source}: auth_type: {name!r} with the '
                f'options {", ".join(sorted(options)) or "none"} '
                f'({type(error).__name__}: {shown(str(error))}); expected a '
                f'plugin of keystoneauth1 and its options') from None

    def json(self, request_name, method, path, expected, check=None,
             items=None, divisible=False, **arguments):
        """Return the parsed answer to a request, and its headers.

        :param request_name: name of the request, for messages
        :param method: HTTP method
        :param path: path of the URL
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
        def once():
            response = self.adapter.request(
                path, method, raise_exc=False, log=False,
                authenticated=self._access.auth is not None,
                headers=self._headers, **arguments)
            if self._on_headers is not None:
                self._on_headers(response.headers)
            body = response.content
            if not 200 <= response.status_code < 300:
                self._refuse(request_name, expected, response, body,
                             divisible)
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
                    raise Refusal(
                        f'telemetry {self._source}: {request_name}: seen '
                        f'{problem}; expected {expected}',
                        response.status_code, problem, True) from error
                raise TemporaryFailure(problem) from error

        return self.attempt(request_name, expected, once)

    def attempt(self, request_name, expected, once):
        """Call a function until it succeeds, for a limited number of attempts.

        :param request_name: name of the request, for messages
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
        attempts = int(access.retries) + 1
        for attempt in range(1, attempts + 1):
            self._pace()
            try:
                with self._http.exchange():
                    return once()
            except exceptions.VSwitchError:
                raise
            except bounded_session.AnswerTooLarge as error:
                raise TooLarge(
                    f'telemetry {self._source}: {request_name}: seen {error}; '
                    f'expected at most max_answer_mib = '
                    f'{access.max_answer_mib:g}. Raise max_answer_mib, or '
                    f'request less at a time') from error
            except Exception as error:
                problem, requested_pause = self._description(error)
                if problem is None:
                    raise
                if requested_pause is _FINAL or attempt == attempts:
                    seconds = self._clock() - began
                    raise exceptions.TelemetryError(
                        f'telemetry {self._source}: {request_name}: seen '
                        f'{problem}; expected {expected} ({attempt} attempts '
                        f'in {seconds:.1f} s)') from error
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
        """Return a description of an error and the requested pause.

        The pause is in seconds, None without a request, or _FINAL if a retry
        would not help. For an error that does not come from a service, the
        method returns (None, None).
        """
        if isinstance(error, TemporaryFailure):
            return str(error), error.pause_seconds
        if isinstance(error, (bounded_session.DeadlineExceeded,
                              bounded_session.BrokenAnswer)):
            return str(error), None
        status = getattr(error, 'http_status', None) \
            or getattr(error, 'code', None)
        kind = type(error).__name__
        text = f'{kind}: {shown(str(error))}'
        if isinstance(error, (ks_exceptions.SSLError,
                              requests.exceptions.SSLError)) \
                or kind == 'SSLError':
            # A retry would have the same certificate.
            return text, _FINAL
        if isinstance(error, self.no_connection):
            return text, None
        if isinstance(status, int):
            return text, None if status in _TEMPORARY_STATUS else _FINAL
        if isinstance(error, ks_exceptions.ClientException):
            # For example an unknown user, or a service that is missing in the
            # catalog.
            return text, _FINAL
        return None, None

    def _refuse(self, request_name, expected, response, body, divisible):
        """Raise the exception for an answer with an error status."""
        text = body.decode('utf-8', 'replace')
        status, later = response.status_code, response.headers.get(
            'Retry-After', '')
        problem = f'HTTP {status}: {shown(text[:2000])}'
        may_be_size = status not in _NOT_OF_SIZE and not later
        if status in _TEMPORARY_STATUS and not (divisible and may_be_size):
            try:
                pause = float(later)
            except ValueError:
                pause = None
            raise TemporaryFailure(problem, pause)
        raise Refusal(
            f'telemetry {self._source}: {request_name}: seen {problem}; '
            f'expected {expected}', status, text, may_be_size)


class TooLarge(exceptions.TelemetryError):
    """An answer is larger than max_answer_mib."""


class Refusal(exceptions.TelemetryError):
    """The service rejects a request; a retry would not help.

    :param message: text of the error
    :param status: HTTP status
    :param body: text of the answer
    :param may_be_size: whether a smaller request may succeed
    :ivar status: HTTP status
    :ivar body: text of the answer
    :ivar may_be_size: whether a smaller request may succeed
    """

    def __init__(self, message, status, body, may_be_size=False):
        super().__init__(message)
        self.status = status
        self.body = body
        self.may_be_size = may_be_size


_FINAL = object()
