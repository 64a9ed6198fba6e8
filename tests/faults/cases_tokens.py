# SPDX-License-Identifier: Apache-2.0
"""Tokens that expire while telemetry is read."""

import http.server
import itertools
import json
import threading

from tests.faults import registry
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import gnocchi

check = registry.check


class _Cloud(http.server.BaseHTTPRequestHandler):
    """Keystone and Gnocchi in one; a token is good for some requests."""

    good_for = 1
    renews = True
    numbers = itertools.count(1)
    left = {}

    def _answer(self, status, content, **headers):
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        length = int(self.headers.get('Content-Length', 0))
        self.rfile.read(length)
        if not self.path.endswith('/auth/tokens'):
            self._get()
            return
        token = f'token-{next(self.numbers)}'
        self.left[token] = self.good_for if self.renews else 0
        self._answer(201, {'token': {
            'methods': ['password'], 'expires_at': '2100-01-01T00:00:00Z',
            'issued_at': '2020-01-01T00:00:00Z', 'user': {
                'id': 'u', 'name': 'u', 'domain': {
                    'id': 'default', 'name': 'Default'}},
            'catalog': []}}, X_Subject_Token=token)

    def do_GET(self):
        if self.path.startswith('/v3') and 'auth' not in self.path:
            self._answer(200, {'version': {
                'id': 'v3.14', 'status': 'stable', 'links': [{
                    'rel': 'self', 'href': self._url('/v3')}]}})
            return
        self._get()

    def _url(self, path):
        return 'http://%s:%d%s' % (*self.server.server_address, path)

    def _get(self):
        token = self.headers.get('X-Auth-Token')
        if self.left.get(token, 0) <= 0:
            self._answer(401, {'error': {'code': 401}})
            return
        self.left[token] -= 1
        self._answer(200, [])

    def log_message(self, *arguments):
        """Nothing: many of these are wanted."""


@registry.fault('expired token')
def token_that_expires():
    survived = 0
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Cloud)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = 'http://%s:%d' % server.server_address
    driver = gnocchi.GnocchiDriver({
        'url': url, 'retries': 1, 'requests_per_second': 1e4,
        'timeout_seconds': 20.0, 'backoff_seconds': .01, 'auth': {
            'auth_type': 'v3password', 'auth_url': url + '/v3',
            'username': 'u', 'password': 'p', 'user_domain_id': 'default',
            'project_name': 'p', 'project_domain_id': 'default'}})
    try:
        for good_for in (1, 2, 3):
            # Each reading finds its token expired, and gets another one.
            _Cloud.good_for = good_for
            for _ in range(5):
                check.assertEqual([], list(driver.instances()))
                survived += 1
        _Cloud.renews = False
        _Cloud.left.clear()
        with check.assertRaises(exceptions.TelemetryError):
            list(driver.instances())
        _Cloud.renews = True
        check.assertEqual([], list(driver.instances()))
        return survived + 1
    finally:
        server.shutdown()
        server.server_close()
