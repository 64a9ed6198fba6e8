# SPDX-License-Identifier: Apache-2.0

import contextlib
import http.server
import socket
import threading
import time
from unittest import mock

import ddt
import requests
import testtools

from tests.contract import hostile_servers
from vswitch_aware_scheduler.clients import bounded_session

TIMEOUT_SECONDS = .3

#: An exchange that no deadline ends takes for ever; a busy machine may be
#: slow to end one.
PATIENCE_SECONDS = 30


@ddt.ddt
class DeadlineTestCase(testtools.TestCase):

    def session(self, timeout_seconds=TIMEOUT_SECONDS, max_bytes=2 ** 20):
        session = bounded_session.BoundedSession(timeout_seconds, max_bytes)
        self.addCleanup(session.close)
        return session

    def assert_given_up(self, url, session=None):
        session = session or self.session()
        failure = []

        def ask():
            try:
                failure.append(session.get(url, timeout=PATIENCE_SECONDS))
            except Exception as error:
                failure.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)
        self.assertFalse(thread.is_alive(), 'the exchange goes on')
        self.assertIsInstance(failure[0], bounded_session.DeadlineExceeded)
        self.assertIn('not complete after 0.3 s', str(failure[0]))

    @ddt.data(*((name,) for name in sorted(hostile_servers.DRIPS)),
              *((name, 0) for name in (
                  '100 Continue', 'empty gzip members', 'empty gzip blocks')))
    def test_an_exchange_without_end_ends_at_the_deadline(self, case):
        name, *pause = case
        server = self.useFixture(hostile_servers.DrippingServer(name, *pause))
        self.assert_given_up(server.url)

    def test_an_endless_tls_handshake_ends_at_the_deadline(self):
        server = self.useFixture(hostile_servers.DrippingServer(
            hostile_servers.handshake))
        self.assert_given_up(server.url.replace('http:', 'https:'))

    def test_an_older_urllib3_ends_at_the_deadline(self):
        with mock.patch('urllib3.response.HTTPResponse.read1', None):
            for name in ('body', 'chunk size', 'empty gzip members'):
                server = self.useFixture(hostile_servers.DrippingServer(name))
                self.assert_given_up(server.url)

    def test_so_do_many_redirects(self):
        numbers = iter(range(10 ** 6))

        def redirect(handler):
            time.sleep(.02)
            handler.send_response(302)
            handler.send_header('Location', f'/{next(numbers)}')
            handler.send_header('Content-Length', '0')
            handler.end_headers()

        url = self._serve(redirect)
        session = self.session()
        session.max_redirects = 10 ** 6
        with testtools.ExpectedException(bounded_session.DeadlineExceeded):
            with session.exchange():
                session.get(url, timeout=PATIENCE_SECONDS)

    def _serve(self, do_get):
        """Return the URL of a server that answers GET by a function."""
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), type(
            'Handler', (http.server.BaseHTTPRequestHandler,), {
                'protocol_version': 'HTTP/1.1', 'do_GET': do_get,
                'log_message': lambda *_: None}))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(.02,),
                                  daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f'http://127.0.0.1:{server.server_address[1]}'

    def test_so_do_many_addresses_that_do_not_answer(self):
        tries = []
        session = self.session()
        real = socket.getaddrinfo

        def getaddrinfo(host, *args, **kwargs):
            if host != 'many.example':
                return real(host, *args, **kwargs)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, '',
                     (f'127.0.0.{number}', 80)) for number in range(1, 200)]

        def create_connection(address, timeout, **_):
            tries.append(timeout)
            time.sleep(timeout)
            raise TimeoutError

        with mock.patch('socket.getaddrinfo', getaddrinfo), mock.patch(
                'urllib3.util.connection.create_connection',
                create_connection):
            self.assert_given_up('http://many.example', session)
        # All of the time went to the first one; there is none for others.
        self.assertEqual(1, len(tries))

    def test_a_connection_is_used_again_and_watched_again(self):
        connections = set()
        pause = []

        def answer(handler):
            connections.add(handler.client_address)
            time.sleep(sum(pause))
            handler.send_response(200)
            handler.send_header('Content-Length', '2')
            with contextlib.suppress(OSError):
                handler.end_headers()
                handler.wfile.write(b'[]')

        url = self._serve(answer)
        session = self.session(timeout_seconds=PATIENCE_SECONDS)
        for _ in range(3):
            self.assertEqual(b'[]', session.get(url).content)
        self.assertEqual(1, len(connections))
        session._timeout_seconds = TIMEOUT_SECONDS
        pause.append(2)
        self.assert_given_up(url, session)
        pause.clear()
        session._timeout_seconds = PATIENCE_SECONDS
        self.assertEqual(b'[]', session.get(url).content)
        self.assertEqual(2, len(connections))

    def test_nothing_is_left_behind(self):
        server = self.useFixture(hostile_servers.DrippingServer('header'))
        before = threading.active_count()
        session = self.session()
        for _ in range(3):
            self.assert_given_up(server.url, session)
        self.assertEqual([], session._watched)
        limit = time.monotonic() + PATIENCE_SECONDS
        while threading.active_count() > before + 4 \
                and time.monotonic() < limit:
            time.sleep(.01)
        self.assertLessEqual(threading.active_count(), before + 4)

    def test_a_stated_size_is_refused_before_it_is_read(self):
        server = self.useFixture(hostile_servers.DrippingServer('body'))
        session = self.session(PATIENCE_SECONDS, max_bytes=1000)
        self.assertRaises(bounded_session.AnswerTooLarge, session.get,
                          server.url)

    def test_a_connection_that_nobody_accepts_is_reported_by_urllib3(self):
        session = self.session(timeout_seconds=PATIENCE_SECONDS)
        self.assertRaises(requests.ConnectionError, session.get,
                          'http://127.0.0.1:1')
        self.assertRaises(requests.ConnectionError, session.get,
                          'http://no-such-host.invalid')
