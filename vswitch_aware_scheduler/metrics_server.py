# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for Prometheus, of the modeler and of schedulers.

Each connection has a time limit and gets one answer. When there are too many
connections, the oldest one is closed, so that the process always has file
descriptors for its own work.
"""

import contextlib
import socket
import socketserver
import threading
from wsgiref import simple_server

__all__ = ['CONNECTION_SECONDS', 'Listener', 'MAX_CONNECTIONS']

#: Connections to the metrics port that are open at a time.
MAX_CONNECTIONS = 16

#: A connection is closed after so long, whatever has come by then.
CONNECTION_SECONDS = 10.0


class Listener:
    """Serves a WSGI application in threads until it is closed.

    :param address: of this machine
    :param port: number
    :param application: WSGI application
    :param name: of the thread
    :raises OSError: when the address cannot be listened on
    """

    def __init__(self, address, port, application, name=None):
        self._server = _Server(address, port, application)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name=name, daemon=True)
        self._thread.start()

    def close(self):
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()
        self._thread.join()


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Serves few connections at a time, each for a limited time."""

    daemon_threads = True
    request_queue_size = 128
    # The threads of connections that were shut down end by themselves.
    block_on_close = False

    def __init__(self, address, port, application):
        family, *_, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        self._lock = threading.Lock()
        self._open = {}
        super().__init__(place[:2], _Handler)
        self.set_app(application)

    def process_request(self, request, client_address):
        with self._lock:
            crowded = len(self._open) >= 2 * MAX_CONNECTIONS
            if len(self._open) >= MAX_CONNECTIONS:
                # One that was shut down is open until its thread ends it.
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
        """Stay silent: a client that goes away is no problem of ours."""


def _shut_down(request):
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(simple_server.WSGIRequestHandler):

    timeout = CONNECTION_SECONDS

    def address_string(self):
        return self.client_address[0]

    def log_message(self, *_):
        pass
