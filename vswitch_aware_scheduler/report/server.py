# SPDX-License-Identifier: Apache-2.0
"""Serves reports to a browser on this machine.

The server is read-only and only answers GET. It answers a request only if the
Host header names this server, so that a page of another site cannot read the
report through DNS rebinding.
"""

from collections.abc import Callable
import contextlib
import http.server
import ipaddress
import socket
import socketserver
import sys
import threading
import time
import typing
import urllib.parse

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.report import page

__all__ = ['ReportServer', 'Reports', 'host_path', 'require_loopback']

LOG = logs.get_logger(__name__)

_HOST_PREFIX = '/host/'

#: A request that takes longer to arrive is abandoned, in seconds.
_REQUEST_SECONDS = 30


def host_path(host: str) -> str:
    """Return the path of the page of a host."""
    return _HOST_PREFIX + urllib.parse.quote(host, safe='')


def require_loopback(address: str) -> None:
    """Check that an address is a loopback address.

    :raises InvalidInput: if it is not
    """
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(address).is_loopback:
            return
    raise exceptions.InvalidInput(
        thing='address', value=address, expected='a loopback address such as '
        '127.0.0.1 or ::1: the report has no access control')


class Reports:
    """Creates pages and caches them; thread-safe.

    :param make_report: callable(contents, host or None), returns a report
    """

    def __init__(self, read_contents: Callable, make_report: Callable,
                 seconds: float = 60.0,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._read_contents = read_contents
        self._make_report = make_report
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._contents: typing.Any = None
        self._pages: dict[str | None, bytes] = {}
        self._until = 0.0
        self._page = page.Page(host_path)

    def page(self, host: str | None = None) -> bytes | None:
        """Return a page as bytes, or None if there is no such host."""
        # One at a time, because reading a fleet takes memory.
        with self._lock:
            if self._contents is None or self._clock() >= self._until:
                self._contents, self._pages = None, {}
                self._contents = self._read_contents()
                self._until = self._clock() + self._seconds
            if host is not None and host not in self._contents:
                return None
            if host not in self._pages:
                text = self._page.render(self._make_report(
                    self._contents, host))
                # Do not cache the pages of all hosts.
                if len(self._pages) >= 100:
                    self._pages.clear()
                self._pages[host] = text.encode('utf-8', 'replace')
            return self._pages[host]


class ReportServer(http.server.ThreadingHTTPServer):
    """Answers GET requests for the report and the pages of hosts.

    :param port: TCP port; 0 selects a free one
    """

    daemon_threads = True

    def __init__(self, address: str, port: int, reports: Reports) -> None:
        require_loopback(address)
        if ':' in address:
            self.address_family = socket.AF_INET6
        self.reports = reports
        super().__init__((address, port), _Handler)
        shown = f'[{address}]' if ':' in address else address
        self.url = f'http://{shown}:{self.server_port}/'
        self.names = {f'{name}:{self.server_port}'
                      for name in (shown, 'localhost')}
        if self.server_port == 80:
            self.names |= {shown, 'localhost'}

    def handle_error(self, request: object, client_address: tuple) -> None:
        """Log why a request failed."""
        if isinstance(sys.exception(), OSError):
            # The client has closed the connection, or does not read.
            LOG.debug('vswitch-report: connection of %s ended: %s',
                      client_address[0], sys.exception())
            return
        LOG.exception('vswitch-report: a request failed')

    def server_bind(self) -> None:
        """Bind to the address without looking up the name of the machine.

        http.server would query the DNS, which may take long.
        """
        socketserver.TCPServer.server_bind(self)
        name, self.server_port = self.server_address[:2]
        self.server_name = str(name)


class _Handler(http.server.BaseHTTPRequestHandler):

    server_version = 'vswitch-report'
    sys_version = ''
    timeout = _REQUEST_SECONDS

    def do_GET(self):
        if self.headers.get('Host', '').lower() not in self.server.names \
                or len(self.headers.get_all('Host')) != 1:
            self._answer(421, 'Host: expected ' + ' or '.join(
                sorted(self.server.names)))
            return
        path = urllib.parse.urlsplit(self.path).path
        host = None
        if path.startswith(_HOST_PREFIX):
            host = urllib.parse.unquote(path[len(_HOST_PREFIX):])
        elif path != '/':
            self._answer(404, 'There is no such page')
            return
        try:
            content = self.server.reports.page(host)
        except exceptions.VSwitchError as error:
            LOG.warning('vswitch-report: %s', error)
            self._answer(503, str(error))
            return
        except Exception:
            LOG.exception('vswitch-report: cannot create the page')
            self._answer(500, 'No page could be made; see the log')
            return
        if content is None:
            self._answer(404, 'There is no such host')
            return
        self._answer(200, content, 'text/html')

    def _refuse(self):
        self._answer(405, 'Only GET is served', headers={'Allow': 'GET'})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = _refuse
    do_TRACE = do_CONNECT = _refuse

    def _answer(self, status, content, kind='text/plain', headers=None):
        if isinstance(content, str):
            content = (content + '\n').encode('utf-8', 'replace')
        self.send_response(status)
        self.send_header('Content-Type', f'{kind}; charset=utf-8')
        self.send_header('Content-Length', str(len(content)))
        self.send_header('Content-Security-Policy',
                         page.content_security_policy()
                         + "; frame-ancestors 'none'")
        self.send_header('X-Content-Type-Options', 'nosniff')
        self.send_header('X-Frame-Options', 'DENY')
        self.send_header('Referrer-Policy', 'no-referrer')
        self.send_header('Cross-Origin-Resource-Policy', 'same-origin')
        self.send_header('Cache-Control', 'no-store')
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(content)

    def log_message(self, format, *arguments):
        LOG.debug('vswitch-report: ' + format, *arguments)
