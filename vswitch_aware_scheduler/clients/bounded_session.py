# SPDX-License-Identifier: Apache-2.0
"""A session of requests whose exchanges end at a deadline.

The timeouts of requests and urllib3 only limit the wait for the next bytes. A
server that occasionally sends a byte never exceeds them: in a header, in the
size of a chunk, in an empty block of gzip or in another ``100 Continue``. Here
a timer shuts down the sockets of the session at the deadline, which ends all
reads from them. This module is independent of services, configuration and
retries.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import socket
import threading
import time
import typing

import requests
from requests import adapters
import urllib3

__all__ = ['AnswerTooLarge', 'BoundedSession', 'BrokenAnswer',
           'DeadlineExceeded']

_CHUNK_BYTES = 2 ** 16
_SMALL_CHUNK_BYTES = 128

#: Number of bytes that are read of an error answer.
_ERROR_BYTES = 2 ** 16


class DeadlineExceeded(Exception):
    """An exchange was not complete at its deadline."""


class AnswerTooLarge(Exception):
    """An answer is larger than the session accepts."""


class BrokenAnswer(Exception):
    """An answer ended before it was complete."""


class BoundedSession(requests.Session):  # type: ignore[misc]
    """Reads each answer before a deadline and up to a size, or raises.

    Only one thread at a time may use a session.

    :param timeout_seconds: longest duration of an exchange
    :param max_answer_bytes: largest accepted answer, after decompression
    :param clock: callable, returns monotonic seconds
    """

    def __init__(self, timeout_seconds: float, max_answer_bytes: int,
                 clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._timeout_seconds = timeout_seconds
        self._max_answer_bytes = max_answer_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: list[tuple[typing.Any, socket.socket]] = []
        self._deadline: float | None = None
        self._expired = False
        for prefix in ('http://', 'https://'):
            self.mount(prefix, _Adapter(self))

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """Set one deadline for all requests within the context.

        An exchange within another one has the deadline of the outer one.

        :raises DeadlineExceeded: instead of any exception after the deadline,
            and if the exchange ends after it
        """
        if self._deadline is not None:
            yield
            return
        self._expired = False
        self._deadline = self._clock() + self._timeout_seconds
        timer = threading.Timer(self._timeout_seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
            # If an answer ends with the connection, it looks complete after
            # the timer has shut the connection down.
            self._check()
        except Exception as error:
            if self._expired and not isinstance(error, DeadlineExceeded):
                raise DeadlineExceeded(self._words()) from error
            raise
        finally:
            timer.cancel()
            self._deadline = None
            self._forget_closed()

    def remaining_seconds(self) -> float:
        """Return the time until the deadline in seconds.

        :raises DeadlineExceeded: if the deadline has passed
        """
        self._check()
        return max((self._deadline or 0) - self._clock(), 0.001)

    def _check(self):
        if self._expired or self._clock() > (self._deadline or 0):
            self._expired = True
            raise DeadlineExceeded(self._words())

    def _words(self):
        return (f'an exchange that was not complete after '
                f'{self._timeout_seconds:g} s')

    def send(self, request: requests.PreparedRequest,
             **kwargs: typing.Any) -> requests.Response:
        """Send a request and read the complete answer.

        :raises DeadlineExceeded: if it is not complete in time
        :raises AnswerTooLarge: if it is too large
        :raises BrokenAnswer: if the connection ends before the answer
        """
        with self.exchange():
            self._check()
            response = super().send(request, **{**kwargs, 'stream': True})
            with contextlib.closing(response):
                content = self._content(response)
        # The same state as after requests has read the complete response.
        response._content = content
        response._content_consumed = True
        return response

    def _content(self, response):
        is_error = response.status_code >= 400
        limit = _ERROR_BYTES if is_error else self._max_answer_bytes
        content = bytearray()
        try:
            if not is_error and _stated_bytes(response) > limit:
                self._refuse_size()
            for chunk in _received_chunks(response):
                content += chunk
                if len(content) > limit:
                    if is_error:
                        break
                    self._refuse_size()
                self._check()
        except (urllib3.exceptions.HTTPError, requests.RequestException,
                OSError) as error:
            raise BrokenAnswer(
                f'a response that ends early, after {len(content)} bytes '
                f'({type(error).__name__})') from error
        return bytes(content[:limit])

    def _refuse_size(self):
        raise AnswerTooLarge(
            f'a response of more than {self._max_answer_bytes} bytes')

    def watch(self, owner: typing.Any, connected: socket.socket) -> None:
        """Shut a socket down if the exchange is not complete in time.

        :param owner: connection with the socket
        """
        # TLS removes the file descriptor from the socket that it wraps.
        guard = connected.dup()
        with self._lock:
            self._watched.append((owner, guard))
            if self._expired:
                _shut_down(guard)

    def _expire(self):
        with self._lock:
            self._expired = True
            for _, guard in self._watched:
                _shut_down(guard)

    def _forget_closed(self, close_all=False):
        with self._lock:
            still_open = []
            for owner, guard in self._watched:
                if self._expired or close_all or owner.sock is None:
                    guard.close()
                else:
                    still_open.append((owner, guard))
            self._watched = still_open

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self._forget_closed(close_all=True)


def _shut_down(guard):
    with contextlib.suppress(OSError):
        guard.shutdown(socket.SHUT_RDWR)


def _stated_bytes(response):
    try:
        return int(response.headers.get('Content-Length', 0))
    except ValueError:
        return 0


def _received_chunks(response):
    """Yield received bytes, without waiting until a large chunk is full."""
    read1 = getattr(response.raw, 'read1', None)
    if read1 is None:
        # urllib3 1.26 waits for the requested number of bytes: request few.
        yield from response.iter_content(_SMALL_CHUNK_BYTES)
        return
    while chunk := read1(_CHUNK_BYTES, decode_content=True):
        yield chunk


class _Adapter(adapters.HTTPAdapter):  # type: ignore[misc]
    """Registers the sockets of its connections with the session."""

    def __init__(self, session):
        self._session = session
        super().__init__()

    def init_poolmanager(self, *args, **kwargs):
        super().init_poolmanager(*args, **kwargs)
        self._watch(self.poolmanager)

    def proxy_manager_for(self, *args, **kwargs):
        manager = super().proxy_manager_for(*args, **kwargs)
        self._watch(manager)
        return manager

    def _watch(self, manager):
        manager.pool_classes_by_scheme = {
            scheme: functools.partial(self._pool, pool_class)
            for scheme, pool_class in manager.pool_classes_by_scheme.items()}

    def _pool(self, pool_class, *args, **kwargs):
        pool = pool_class(*args, **kwargs)
        pool.ConnectionCls = functools.partial(
            _watched_class(pool_class.ConnectionCls), self._session)
        return pool


class _Watched:
    """A connection whose socket the session monitors."""

    port: int
    timeout: float
    _dns_host: str

    def __init__(self, session, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._session = session

    def _new_conn(self):
        connected = self._connected()
        self._session.watch(self, connected)
        return connected

    def _connected(self):
        """Return a socket that is connected to the first address that answers.

        urllib3 would wait its timeout for each of the addresses.
        """
        name, address_infos = self._dns_host, []
        # A SOCKS proxy resolves names itself. For a name without an address,
        # urllib3 raises its own error.
        if not hasattr(self, '_socks_options'):
            with contextlib.suppress(OSError):
                address_infos = socket.getaddrinfo(
                    name, self.port, 0, socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(
            str(info[4][0]) for info in address_infos))
        for number, address in enumerate(addresses or [name], 1):
            self._dns_host = address
            self.timeout = self._session.remaining_seconds()
            try:
                return super()._new_conn()  # type: ignore[misc]
            except urllib3.exceptions.HTTPError:
                if number >= len(addresses):
                    raise
            finally:
                self._dns_host = name


@functools.cache
def _watched_class(connection_class):
    return type(f'Watched{connection_class.__name__}',
                (_Watched, connection_class), {})
