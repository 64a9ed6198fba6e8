# SPDX-License-Identifier: Apache-2.0
"""Watcher's API, decision engine and applier beside the cloud's Nova.

They load this package's goal, strategy, planner and action by their entry
points, as in any environment that has both packages.
"""

import os
import pathlib
import textwrap
import time

import fixtures
from keystoneauth1 import adapter
from keystoneauth1.identity import v3
from keystoneauth1 import session

from tests.cloud import client

DATABASE = 'watcher'

#: Longest wait for an audit or an action plan.
TIMEOUT_SECONDS = 300.0

_ENDED = ('SUCCEEDED', 'FAILED', 'CANCELLED', 'SUPERSEDED')


class Watcher(fixtures.Fixture):
    """Watcher as a user of its API has it.

    :param cloud: :class:`~.services.Cloud`
    :param config_file: what vswitch-modeler reads
    """

    def __init__(self, cloud, config_file):
        super().__init__()
        self._cloud = cloud
        self._config_file = config_file

    def _setUp(self):
        openstack = self._cloud.openstack
        self._cloud.database.execute(
            f'CREATE DATABASE {DATABASE} CHARACTER SET utf8mb3')
        url = openstack.url('watcher')
        openstack.add_service('watcher', 'infra-optim', url)
        self._configure(openstack)
        files = ('--config-file', openstack.path('.watcher/watcher.conf'))
        openstack.run('watcher-db-manage', *files, 'create_schema')
        for name in ('decision-engine', 'applier'):
            openstack.run_service(
                f'watcher-{name}', openstack.script(f'watcher-{name}'),
                *files)
        # It looks for its configuration in the folder of its user.
        openstack.serve('watcher', 'watcher.wsgi.api:application',
                        HOME=openstack.folder)
        self._api = adapter.Adapter(
            session.Session(v3.Password(**openstack.auth)),
            endpoint_override=url + '/v1',
            default_microversion='1.6', service_type='infra-optim')
        # When it starts, the decision engine cancels each audit that it has
        # begun, and ends with an error. It monitors once it has started.
        log = openstack.path('watcher-decision-engine.log')
        self._until(lambda: 'Starting service monitoring' in pathlib.Path(
            log).read_text(), 'the decision engine')

    def _configure(self, openstack):
        plugin = f'config_files = {self._config_file}\n'
        user = openstack.client_options('watcher')
        path = openstack.path('.watcher')
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, 'watcher.conf'), 'w') as stream:
            stream.write(textwrap.dedent(f'''
                [DEFAULT]
                use_stderr = true
                transport_url = {openstack.broker_url}
                [database]
                connection = {self._cloud.database.url_of(DATABASE)}
                [oslo_concurrency]
                lock_path = {openstack.path('watcher-locks')}
                ''') + ''.join(
                    f'[{group}]\n{more}' for group, more in (
                        ('keystone_authtoken', user),
                        ('watcher_clients_auth', user),
                        ('watcher_strategies.vswitch_rebalance', plugin),
                        ('watcher_actions.vswitch_migrate', plugin))))

    # What a user does

    def audit(self, **parameters):
        """Make an audit and wait for its end.

        :param parameters: of the strategy
        :returns: (audit, its action plan or None), dictionaries of the API
        """
        made = self._api.post('/audits', json={
            'name': f'audit {time.time()}', 'audit_type': 'ONESHOT',
            'goal': 'vswitch_error_budget', 'strategy': 'vswitch_rebalance',
            'parameters': parameters, 'auto_trigger': False}).json()
        path = f'/audits/{made["uuid"]}'
        audit = self._until(lambda: self._ended(path), 'the audit')
        plans = self._list('action_plans', f'?audit_uuid={audit["uuid"]}')
        return audit, plans[0] if plans else None

    def execute(self, plan):
        """Start an action plan and wait for its end.

        :param plan: dictionary of the API
        :returns: (plan, its actions), dictionaries of the API
        """
        path = f'/action_plans/{plan["uuid"]}'
        self._api.post(f'{path}/start')
        plan = self._until(lambda: self._ended(path), 'the action plan')
        return plan, [self._api.get(f'/actions/{row["uuid"]}').json()
                      for row in self._list(
                          'actions', f'?action_plan_uuid={plan["uuid"]}')]

    def _ended(self, path):
        item = self._api.get(path).json()
        return item if item['state'] in _ENDED else None

    def _list(self, kind, query=''):
        return self._api.get(f'/{kind}{query}').json()[kind]

    @staticmethod
    def _until(seen, what):
        return client.await_fact(seen, f'{what} of Watcher', TIMEOUT_SECONDS,
                                 1.0)
