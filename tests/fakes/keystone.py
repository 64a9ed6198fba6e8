# SPDX-License-Identifier: Apache-2.0
"""Access to the services that Nova's functional fixtures start."""

from unittest import mock

import fixtures
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import plugin as ks_plugin


class Administrator(ks_plugin.BaseAuthPlugin):
    """The user that the fixtures of keystone and placement see."""

    def __init__(self, name='modeler'):
        super().__init__()
        self.name = name
        self.roles = 'admin,member,reader'

    def get_headers(self, session, **kwargs):
        return {'X-Auth-Token': 'admin', 'X-Auth-User': self.name,
                'X-User-Id': self.name, 'X-Auth-Project-Id': 'service',
                'X-Roles': self.roles}


class Keystone(fixtures.Fixture):
    """Let each auth_type of ours be an administrator.

    :ivar administrator: the plugin that authenticates requests
    """

    def __init__(self, name='modeler'):
        super().__init__()
        self.administrator = Administrator(name)

    def _setUp(self):
        loader = mock.Mock()
        loader.load_from_options.return_value = self.administrator
        self.useFixture(fixtures.MockPatchObject(
            ks_loading, 'get_plugin_loader', return_value=loader))
