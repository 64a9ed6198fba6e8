# SPDX-License-Identifier: Apache-2.0

import contextlib
import http.client
import io
import socket
import struct
import threading
import unittest
from unittest import mock

from tests.unit.report import fleets
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.report import server


class ServerTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        store = self.make_store()
        fleets.fill(store, base.NOW)
        self.now, self.read, self.error = 0.0, 0, None
        self.reports = server.Reports(
            lambda: self._contents(store),
            lambda contents, host: contents.report(base.NOW, host=host),
            60.0, lambda: self.now)
        self.server = server.ReportServer('127.0.0.1', 0, self.reports)
        self.addCleanup(self.server.server_close)
        thread = threading.Thread(target=self.server.serve_forever,
                                  kwargs={'poll_interval': .01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)

    def _contents(self, store):
        self.read += 1
        if self.error is not None:
            raise self.error
        return fleets.report_of(store)

    def ask(self, path='/', method='GET', host=None, hosts=()):
        """Return (status, headers, text)."""
        port = self.server.server_port
        connection = http.client.HTTPConnection('127.0.0.1', port, 60)
        self.addCleanup(connection.close)
        connection.putrequest(method, path, skip_host=True)
        for name in hosts or [host or f'localhost:{port}']:
            connection.putheader('Host', name)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    def test_a_client_that_hangs_up_leaves_no_traceback(self):
        ended, gone = threading.Event(), threading.Event()
        shutdown, make = self.server.shutdown_request, self._contents

        def end(request):
            shutdown(request)
            ended.set()

        def wait(store):
            gone.wait(60)
            return make(store)

        with mock.patch.object(self.server, 'shutdown_request', end), \
                mock.patch.object(self, '_contents', wait), \
                contextlib.redirect_stderr(io.StringIO()) as stderr, \
                self.assertNoLogs(level='INFO'):
            client = socket.create_connection(self.server.server_address[:2])
            client.sendall(b'GET / HTTP/1.1\r\nHost: localhost:%d\r\n\r\n'
                           % self.server.server_port)
            # Reset the connection instead of ending it.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                              struct.pack('ii', 1, 0))
            client.close()
            gone.set()
            self.assertTrue(ended.wait(60))
        self.assertEqual('', stderr.getvalue())
        self.assertEqual(200, self.ask()[0])

    def test_the_page_is_served_with_a_strict_policy(self):
        status, headers, text = self.ask()
        self.assertEqual((200, 'text/html; charset=utf-8'),
                         (status, headers['Content-Type']))
        self.assertIn('Virtual switches', text)
        self.assertTrue(headers['Content-Security-Policy'].startswith(
            "default-src 'none'; script-src 'sha256-"))
        self.assertIn("frame-ancestors 'none'",
                      headers['Content-Security-Policy'])
        self.assertEqual(('nosniff', 'no-store', 'same-origin'), (
            headers['X-Content-Type-Options'], headers['Cache-Control'],
            headers['Cross-Origin-Resource-Policy']))

    def test_a_host_header_of_another_name_is_refused(self):
        port = self.server.server_port
        for host in ('evil.example', f'evil.example:{port}', 'localhost',
                     f'127.0.0.1:{port + 1}', f'localhost.evil:{port}',
                     f'localhost:{port}.evil', ''):
            with self.subTest(host=host):
                self.assertEqual(421, self.ask(hosts=[host])[0])
        for host in (f'localhost:{port}', f'127.0.0.1:{port}',
                     f'LOCALHOST:{port}'):
            self.assertEqual(200, self.ask(host=host)[0])
        self.assertEqual(421, self.ask(hosts=[
            f'localhost:{port}', 'evil.example'])[0])

    def test_nothing_but_get_is_served(self):
        for method in ('POST', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS',
                       'TRACE', 'CONNECT'):
            status, headers, _ = self.ask(method=method)
            self.assertEqual((405, 'GET'), (status, headers['Allow']))
        self.assertEqual(0, self.read)

    def test_every_host_has_a_page_whatever_its_name(self):
        for host in ('h1', 'h2', fleets.HOSTILE):
            status, _, text = self.ask(server.host_path(host))
            self.assertEqual(200, status)
            self.assertNotIn('<img src=x', text)
        for path in ('/host/h3', '/host/', '/host/../h1', '/other',
                     '/host/h1/x'):
            self.assertEqual(404, self.ask(path)[0])

    def test_the_store_is_read_again_after_a_while(self):
        for now, read in ((0.0, 1), (59.0, 1), (60.0, 2), (61.0, 2)):
            self.now = now
            self.ask()
            self.assertEqual(read, self.read)

    def test_a_store_that_cannot_be_read_is_said(self):
        self.error = exceptions.StoreError('it is away')
        status, _, text = self.ask()
        self.assertEqual((503, 'it is away\n'), (status, text))
        self.error = None
        self.assertEqual(200, self.ask()[0])

    def test_an_error_of_ours_has_no_words_of_the_store(self):
        self.error = ValueError('mysql://root:secret@db')
        status, _, text = self.ask()
        self.assertEqual(500, status)
        self.assertNotIn('secret', text)

    def test_the_dns_is_not_asked(self):
        with mock.patch.object(socket, 'getfqdn', side_effect=OSError):
            server.ReportServer('127.0.0.1', 0, self.reports).server_close()

    @unittest.skipUnless(socket.has_ipv6, 'no IPv6 here')
    def test_the_loopback_address_of_ipv6_is_one(self):
        try:
            serving = server.ReportServer('::1', 0, self.reports)
        except OSError as error:
            self.skipTest(str(error))
        self.addCleanup(serving.server_close)
        self.assertEqual(f'http://[::1]:{serving.server_port}/', serving.url)
        self.assertEqual({f'[::1]:{serving.server_port}',
                          f'localhost:{serving.server_port}'}, serving.names)

    def test_only_a_loopback_address_is_listened_at(self):
        for address in ('0.0.0.0', '::', '192.0.2.1', 'localhost', ''):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        'address: .*; expected a loopback'):
                server.ReportServer(address, 0, self.reports)
