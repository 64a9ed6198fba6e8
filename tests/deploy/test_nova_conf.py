# SPDX-License-Identifier: Apache-2.0
"""The nova.conf that deployment tools make with the files in deploy/."""

import os
import pathlib
import sys
import tempfile
import unittest

from oslo_config import cfg

from tests.deploy import ansible
from vswitch_aware_scheduler.conf import opts

KOLLA = pathlib.Path(sys.prefix, 'share/kolla-ansible/ansible')
#: Checkout of openstack-ansible-os_nova, and a directory of collections with
#: openstack.config_template.
OS_NOVA = os.environ.get('VSWITCH_OS_NOVA')
COLLECTIONS = os.environ.get('VSWITCH_COLLECTIONS')

BLAZAR = 'blazarnova.scheduler.filters.blazar_filter.BlazarFilter'
OURS = 'vswitch_aware_scheduler.scheduler.filters.VSwitchFilter'
ALL = 'nova.scheduler.filters.all_filters'
STORE_URL = 'mysql+pymysql://vswitch:secret@192.0.2.9/vswitch'


def _read(path):
    """Return the options of nova and of this package in a file."""
    conf = cfg.ConfigOpts()
    conf.register_opts([
        cfg.MultiStrOpt('available_filters', default=[ALL]),
        cfg.ListOpt('enabled_filters'), cfg.ListOpt('weight_classes')],
        'filter_scheduler')
    for group, listed in opts.list_opts():
        if str(group) == 'vswitch_scheduler':
            conf.register_opts(listed, group)
    conf(args=[], default_config_files=[str(path)], project='nova')
    return conf


class DeploymentTests:
    """What holds for the nova.conf of each tool.

    ``render(blazar)`` returns its path.
    """

    maxDiff = None

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.result = self.folder / 'nova.conf'

    def test_the_filter_is_the_last_one_and_refuses_no_host_at_first(self):
        options = _read(self.render(blazar=False))
        self.assertEqual('observe', options.vswitch_scheduler.enforcement)
        self.assertEqual(STORE_URL, options.vswitch_scheduler.store_url)
        conf = options.filter_scheduler
        self.assertEqual([ALL, OURS], conf.available_filters)
        self.assertEqual('VSwitchFilter', conf.enabled_filters[-1])
        self.assertIn('ComputeFilter', conf.enabled_filters)
        self.assertNotIn('BlazarFilter', conf.enabled_filters)
        self.assertEqual(
            ['nova.scheduler.weights.all_weighers',
             'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'],
            conf.weight_classes)

    def test_blazar_keeps_its_filter(self):
        conf = _read(self.render(blazar=True)).filter_scheduler
        self.assertEqual({ALL, BLAZAR, OURS}, set(conf.available_filters))
        self.assertEqual(['BlazarFilter', 'VSwitchFilter'],
                         conf.enabled_filters[-2:])


@unittest.skipUnless(KOLLA.is_dir(), 'kolla-ansible is not installed')
class KollaTestCase(DeploymentTests, unittest.TestCase):
    """The action merge_configs of kolla-ansible with its own template."""

    def render(self, blazar):
        template = self.folder / 'nova.conf.j2'
        template.write_text(ansible.section(
            (KOLLA / 'roles/nova/templates/nova.conf.j2').read_text(),
            'filter_scheduler'))
        ansible.run(
            self.folder,
            {'merge_configs': {
                'sources': [str(template), str(
                    ansible.DEPLOY / 'kolla/config/nova/nova-scheduler.conf')],
                'dest': str(self.result)}},
            {'enable_blazar': 'yes' if blazar else 'no',
             'enable_nova_fake': 'no', 'enable_cells': 'no',
             'kolla_internal_fqdn': '192.0.2.9',
             'vswitch_database_password': 'secret'},
            [ansible.DEPLOY / 'kolla/vswitch.yml'],
            {f'ANSIBLE_{kind}': str(KOLLA / folder) for kind, folder in (
                ('ACTION_PLUGINS', 'action_plugins'), ('LIBRARY', 'library'),
                ('FILTER_PLUGINS', 'filter_plugins'))})
        return self.result

    def test_the_volume_is_an_option_of_the_scheduler(self):
        defaults = (KOLLA / 'roles/nova/defaults/main.yml').read_text()
        ours = (ansible.DEPLOY / 'kolla/vswitch.yml').read_text()
        self.assertIn('\nnova_scheduler_extra_volumes: ', defaults)
        self.assertIn('\nnova_scheduler_extra_volumes:', ours)
        tasks = (KOLLA / 'roles/nova/tasks/config.yml').read_text()
        self.assertIn('{{ node_custom_config }}/nova/{{ item.key }}.conf',
                      tasks)


@unittest.skipUnless(
    OS_NOVA and COLLECTIONS,
    'VSWITCH_OS_NOVA and VSWITCH_COLLECTIONS name no checkouts')
class OpenStackAnsibleTestCase(DeploymentTests, unittest.TestCase):
    """The action config_template with the template of the role os_nova."""

    def render(self, blazar):
        role = pathlib.Path(OS_NOVA)
        template = self.folder / 'nova.conf.j2'
        template.write_text(ansible.section(
            (role / 'templates/nova.conf.j2').read_text(),
            'filter_scheduler'))
        ansible.run(
            self.folder,
            {'openstack.config_template.config_template': {
                'src': str(template), 'dest': str(self.result),
                'config_overrides': '{{ nova_nova_conf_overrides }}',
                'config_type': 'ini'}},
            {'nova_blazar_enabled': blazar, 'galera_address': '192.0.2.9',
             'nova_scheduler_tracks_instance_changes': True,
             'vswitch_database_password': 'secret'},
            [role / 'defaults/main.yml', role / 'vars/main.yml',
             ansible.DEPLOY / 'openstack-ansible/user_variables_vswitch.yml'],
            {'ANSIBLE_COLLECTIONS_PATH': COLLECTIONS})
        return self.result

    def test_the_names_of_variables_are_those_of_the_role(self):
        defaults = (pathlib.Path(OS_NOVA) / 'defaults/main.yml').read_text()
        for name in ('nova_user_pip_packages', 'nova_scheduler_extra_filters',
                     'nova_nova_conf_overrides', 'nova_blazar_enabled'):
            self.assertIn(f'\n{name}:', defaults)
