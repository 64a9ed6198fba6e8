# SPDX-License-Identifier: Apache-2.0
"""Our tempest plugin on the cloud."""

import os
import subprocess
import sys
import textwrap

#: What tests to run.
REGEX = r'^vswitch_aware_scheduler\.tempest_plugin\.'


def set_up(stage, folder):
    """Make a folder in which ``tempest run`` finds the cloud.

    The last host is no longer said to carry as little as the scenarios want.

    :param stage: :class:`~.scenarios.Stage`
    """
    # Not among the workspaces of whoever runs this.
    _tempest('init', folder, '--workspace-path', f'{folder}.yaml')
    stage.client.leave_aggregate('all', stage.hosts[-1])
    auth = stage.cloud.openstack.auth
    image = stage.client.image()
    with open(os.path.join(folder, 'etc', 'tempest.conf'), 'w') as stream:
        stream.write(textwrap.dedent(f'''
            [DEFAULT]
            log_file = tempest.log
            [oslo_concurrency]
            lock_path = {folder}/locks
            [auth]
            admin_username = {auth['username']}
            admin_password = {auth['password']}
            admin_project_name = {auth['project_name']}
            admin_domain_name = Default
            create_isolated_networks = false
            [identity]
            uri_v3 = {auth['auth_url']}
            auth_version = v3
            region = RegionOne
            [compute]
            image_ref = {image.id}
            image_ref_alt = {image.id}
            max_microversion = latest
            build_interval = 1
            [compute-feature-enabled]
            scheduler_enabled_filters = VSwitchFilter
            [service_available]
            cinder = false
            neutron = false
            swift = false
            [validation]
            run_validation = false
            '''))


def run(folder):
    """Run the tests of the plugin; return the exit status."""
    return _tempest('run', '--regex', REGEX, '--concurrency', '1',
                    check=False, cwd=folder).returncode


def _tempest(*arguments, check=True, **options):
    return subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), 'tempest'),
         *arguments], stdin=subprocess.DEVNULL, check=check, **options)
