# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for Prometheus, used by the modeler and by schedulers.

Each connection has a time limit and gets one answer. If there are too many
connections, the oldest one is closed, so that the process always has file
descriptors for its own work.
"""

import contextlib
import socket
import socketserver
import threading
import time
import typing
from wsgiref import simple_server

__all__ = ['CONNECTION_SECONDS', 'Listener', 'MAX_CONNECTIONS']

#: Maximum number of open connections to the metrics port.
MAX_CONNECTIONS = 16

#: A connection is closed after this number of seconds.
CONNECTION_SECONDS = 10.0

#: Longest time in seconds until the thread of a closed server ends.
_CLOSE_SECONDS = 0.5

#: Seconds until the next attempt to accept a connection after a failure.
_AGAIN_SECONDS = 0.05


class Listener:
    """Serves a WSGI application in threads until it is closed.

    :raises OSError: if the address cannot be used
    """

    def __init__(self, address: str, port: int, application: typing.Any,
                 name: str | None = None) -> None:
        self._server = _Server(address, port, application)
        self._thread = threading.Thread(
            target=self._server.accept_connections, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.closing = True
        self._thread.join()
        self._server.server_close()
        self._server.close_connections()


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Serves few connections at a time, each for a limited time."""

    daemon_threads = True
    request_queue_size = 128
    # The threads of closed connections end by themselves.
    block_on_close = False

    def __init__(self, address, port, application):
        try:
            family, *_, place = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE)[0]
        except UnicodeError as error:
            # The name cannot be encoded for DNS.
            raise OSError(error) from error
        self.address_family = family
        self._lock = threading.Lock()
        self._open = {}
        #: Whether the thread has to end.
        self.closing = False
        super().__init__(
            place[:2], _Handler)  # type: ignore[arg-type]
        self.set_app(application)

    def accept_connections(self):
        """Accept connections until the server is closed.

        serve_forever() is not used: if socketserver was imported before
        eventlet replaced the standard library, as in nova-scheduler before
        33, its selector would block all threads of the process.
        """
        self.socket.settimeout(_CLOSE_SECONDS)
        while not self.closing:
            try:
                request, address = self.get_request()
            except TimeoutError:
                continue
            except OSError:
                # The process has no free file descriptor, or the client has
                # closed the connection.
                time.sleep(_AGAIN_SECONDS)
                continue
            try:
                self.process_request(request, address)
            except Exception:
                # The process can start no thread.
                self.shutdown_request(request)

    def process_request(self, request, client_address):
        with self._lock:
            crowded = len(self._open) >= 2 * MAX_CONNECTIONS
            if len(self._open) >= MAX_CONNECTIONS:
                # A connection that was shut down remains open until its thread
                # closes it.
                for oldest in list(self._open)[:-MAX_CONNECTIONS + 1]:
                    _shut_down(oldest)
            if not crowded:
                timer = threading.Timer(CONNECTION_SECONDS, _shut_down,
                                        (request,))
                timer.daemon = True
                self._open[request] = timer
                timer.start()
        if crowded:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request):
        with self._lock:
            timer = self._open.pop(request, None)
        if timer is not None:
            timer.cancel()
        super().shutdown_request(request)

    def close_connections(self):
        """Shut down every connection."""
        with self._lock:
            for request in self._open:
                _shut_down(request)

    def handle_error(self, request, client_address):
        """Ignore the error: the client closed the connection."""


def _shut_down(request):
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(simple_server.WSGIRequestHandler):

    timeout = CONNECTION_SECONDS

    def address_string(self):
        return self.client_address[0]

    def log_message(self, *_):
        pass
