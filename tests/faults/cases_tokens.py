# SPDX-License-Identifier: Apache-2.0
"""Tokens that expire while telemetry is read."""

import itertools
import json

from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins as stand_ins
from tests.faults import registry
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import gnocchi

check = registry.check

_DOMAIN = {'id': 'default', 'name': 'Default'}
_TOKEN = {'token': {
    'methods': ['password'], 'expires_at': '2100-01-01T00:00:00Z',
    'issued_at': '2020-01-01T00:00:00Z', 'catalog': [],
    'user': {'id': 'u', 'name': 'u', 'domain': _DOMAIN}}}


class _Cloud(stand_ins.StandIn):
    """Keystone and Gnocchi in one; a token is good for some requests."""

    def __init__(self):
        super().__init__()
        self.good_for = 1
        self._numbers = itertools.count(1)
        self._left = {}

    def _handle(self, handler):
        handler.rfile.read(int(handler.headers.get('Content-Length') or 0))
        headers = []
        if handler.path.endswith('/auth/tokens'):
            token = f'token-{next(self._numbers)}'
            self._left[token] = self.good_for
            status, answer = 201, _TOKEN
            headers.append(('X-Subject-Token', token))
        elif handler.path.rstrip('/') == '/v3':
            status, answer = 200, {'version': {
                'id': 'v3.14', 'status': 'stable', 'links': [
                    {'rel': 'self', 'href': f'{self.url}/v3'}]}}
        else:
            token = handler.headers.get('X-Auth-Token')
            self._left[token] = self._left.get(token, 0) - 1
            status, answer = (200, []) if self._left[token] >= 0 else (
                401, {'error': {'code': 401}})
        stand_ins.send(handler, status, json.dumps(answer).encode(), headers)


@registry.fault('expired token')
def token_that_expires():
    survived = 0
    with _Cloud() as cloud:
        driver = gnocchi.GnocchiDriver(telemetry_services.access(
            cloud.url, retries=1, backoff_seconds=.01, auth={
                'auth_type': 'v3password', 'auth_url': cloud.url + '/v3',
                'username': 'u', 'password': 'p', 'project_name': 'p',
                'user_domain_id': 'default',
                'project_domain_id': 'default'}))
        for cloud.good_for in (1, 2, 3):
            # Each reading finds its token expired, and gets another one.
            for _ in range(5):
                check.assertEqual([], list(driver.instances()))
                survived += 1
        # No token is good any more, and then each is again.
        cloud.good_for = 0
        with check.assertRaises(exceptions.TelemetryError):
            for _ in range(5):
                list(driver.instances())
        cloud.good_for = 1
        check.assertEqual([], list(driver.instances()))
    return survived + 1
