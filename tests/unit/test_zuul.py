# SPDX-License-Identifier: Apache-2.0
"""What .zuul.yaml names is there, and every supported Python is checked."""

import configparser
import itertools
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

PROJECT = pathlib.Path(__file__).parents[2]
# How openstack-zuul-jobs names a job that runs one tox environment.
STANDARD_JOB = re.compile(r'openstack-tox-(?P<environment>.+)')
OTHER_PARENTS = {'openstack-tox', 'openstack-tox-functional-py311',
                 'devstack-tempest'}


def _read(name):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string((PROJECT / name).read_text())
    return parser


def _expanded(name):
    """Return the names that a tox section with {a,b} stands for."""
    parts = [part[1:-1].split(',') if part.startswith('{') else [part]
             for part in re.split(r'(\{[^}]*\})', name)]
    return {''.join(parts_chosen) for parts_chosen in itertools.product(
        *parts)}


def supported_pythons():
    classifiers = _read('setup.cfg')['metadata']['classifier']
    return {''.join(version) for version in re.findall(
        r'Python :: (3)\.(\d+)$', classifiers, re.MULTILINE)}


def tox_environments():
    named = {name for section in _read('tox.ini').sections()
             if section.startswith('testenv:')
             for name in _expanded(section.removeprefix('testenv:'))}
    # tox makes these of [testenv] itself.
    return named | {'py3'} | {f'py{version}'
                              for version in supported_pythons()}


class ZuulTest(unittest.TestCase):

    def setUp(self):
        items = yaml.safe_load((PROJECT / '.zuul.yaml').read_text())
        self.jobs = {item['job']['name']: item['job'] for item in items
                     if 'job' in item}
        self.project, = [item['project'] for item in items
                         if 'project' in item]
        self.assertEqual(len(items), len(self.jobs) + 1)

    def _listed(self, pipeline):
        return [job if isinstance(job, str) else next(iter(job))
                for job in self.project[pipeline]['jobs']]

    def _environments(self, name):
        """Return the tox environments of this project that a job runs."""
        job = self.jobs.get(name, {})
        if name.startswith('vswitch-tempest'):
            # There it is tempest's own tox.
            return []
        named = job.get('vars', {}).get('tox_envlist')
        if named is None:
            named = STANDARD_JOB.fullmatch(name)['environment']
        return named.split(',')

    def test_every_job_of_a_pipeline_is_defined(self):
        for pipeline in ('check', 'gate'):
            for name in self._listed(pipeline):
                self.assertTrue(
                    name in self.jobs or STANDARD_JOB.fullmatch(name), name)

    def test_every_job_defined_here_is_run_and_has_a_known_parent(self):
        for name, job in self.jobs.items():
            self.assertIn(name, self._listed('check'))
            self.assertIn(job['parent'], OTHER_PARENTS | set(self.jobs))

    def test_what_is_merged_was_checked_in_the_same_way(self):
        voting = [job for job in self.project['check']['jobs']
                  if isinstance(job, str)
                  or next(iter(job.values())).get('voting', True)]
        self.assertEqual(voting, self.project['gate']['jobs'])

    def test_every_tox_environment_exists(self):
        for name in self._listed('check'):
            for environment in self._environments(name):
                self.assertIn(environment, tox_environments(), name)

    def test_every_supported_python_has_unit_and_functional_jobs(self):
        run = {environment for name in self._listed('check')
               for environment in self._environments(name)}
        self.assertEqual({'311', '312', '313'}, supported_pythons())
        for version in supported_pythons():
            self.assertIn(f'py{version}', run)
            self.assertIn(f'functional-py{version}', run)
        self.assertLessEqual({'pep8', 'docs', 'wheel'}, run)

    def test_every_earlier_nova_with_constraints_is_tried(self):
        releases = {path.stem for path in
                    (PROJECT / '.ci/constraints').glob('nova*.txt')}
        self.assertEqual({'nova31', 'nova32', 'nova33'}, releases)
        self.assertEqual(releases, {
            environment for name in self._listed('check')
            for environment in self._environments(name)
            if environment.startswith('nova')})
        self.assertLessEqual(releases, tox_environments())

    def test_every_environment_of_the_default_list_is_run(self):
        run = {environment.removesuffix('-py311')
               for name in self._listed('check')
               for environment in self._environments(name)}
        environments = _read('tox.ini')['tox']['env_list'].split(',')
        self.assertEqual({'py3'}, set(environments) - run)

    def test_every_playbook_exists_and_names_hosts_and_tasks(self):
        named = set()
        for job in self.jobs.values():
            for key in ('pre-run', 'run', 'post-run'):
                paths = job.get(key, [])
                named.update([paths] if isinstance(paths, str) else paths)
        self.assertEqual(named, {
            str(path.relative_to(PROJECT))
            for path in (PROJECT / 'playbooks').rglob('*.yaml')})
        for path in named:
            for play in yaml.safe_load((PROJECT / path).read_text()):
                self.assertLessEqual({'hosts', 'tasks'}, set(play))

    def _inherited(self, name, key):
        """Return what a job of ours has, by itself or by its parents."""
        while name in self.jobs:
            if key in self.jobs[name]:
                return self.jobs[name][key]
            name = self.jobs[name]['parent']

    def test_what_starts_servers_has_them_installed_first(self):
        for environment in ('integration', 'cloud'):
            name, = [job for job in self._listed('check')
                     if environment in self._environments(job)]
            path = self._inherited(name, 'pre-run')
            play, = yaml.safe_load((PROJECT / path).read_text())
            command = play['tasks'][0]['shell']
            self.assertTrue(os.access(PROJECT / command, os.X_OK), command)
            self.assertTrue(play['tasks'][0]['become'])
        # There a server that is missing is no reason to skip.
        variables = self.jobs['vswitch-tox-integration']['vars']
        self.assertEqual({'CI': 'true'}, variables['tox_environment'])
        self.assertIn('CI', _read('tox.ini')['testenv']['pass_env'].split())

    def test_the_devstack_jobs_have_a_supported_python_and_both_agents(self):
        jobs = [name for name in self.jobs
                if name.startswith('vswitch-tempest')]
        self.assertLess(2, len(jobs))
        for name in jobs:
            # Ubuntu 24.04, whose Python is 3.12.
            self.assertRegex(self._inherited(name, 'nodeset'), '-noble$')
        self.assertIn('312', supported_pythons())
        variables = self.jobs['vswitch-tempest-ovs']['vars']
        self.assertEqual('openvswitch',
                         variables['devstack_localrc']['Q_AGENT'])

    def test_the_devstack_job_enables_the_plugin_of_this_tree(self):
        variables = self.jobs['vswitch-tempest']['vars']
        settings = (PROJECT / 'devstack/settings').read_text()
        name, = re.findall(r'^define_plugin (\S+)$', settings, re.MULTILINE)
        self.assertEqual([name], list(variables['devstack_plugins']))

    def test_the_devstack_job_selects_tests_that_ask_the_scheduler(self):
        selected = re.compile(
            self.jobs['vswitch-tempest']['vars']['tempest_test_regex'])
        for test, wanted in (
                ('tempest.api.compute.servers.test_multiple_create.'
                 'MultipleCreateTestJSON.test_multiple_create', True),
                ('tempest.api.compute.admin.test_migrations.'
                 'MigrationsAdminTest.test_cold_migration', True),
                ('tempest.scenario.test_server_basic_ops.'
                 'TestServerBasicOps.test_server_basic_ops', True),
                ('tempest.api.compute.keypairs.test_keypairs.'
                 'KeyPairsV2TestJSON.test_keypair_create_delete', False),
                ('tempest.api.identity.v3.test_users', False)):
            self.assertEqual(wanted, bool(selected.search(test)), test)


class PostPlaybookTest(unittest.TestCase):
    """The commands that read the scheduler's log, on logs made for it."""

    ASKED = ('DEBUG nova.filters [req-1 demo demo] Filter VSwitchFilter '
             'returned 1 host(s)\n')
    FAILED = ('WARNING vswitch_aware_scheduler.scheduler.problem_log [-] '
              'vswitch: VSwitchFilter: KeyError: 1; every host passes\n')

    def _failures(self, log):
        """Return which tasks fail when the journal has this."""
        play, = yaml.safe_load((
            PROJECT / 'playbooks/vswitch-tempest/post.yaml').read_text())
        with tempfile.TemporaryDirectory() as directory:
            journalctl = pathlib.Path(directory) / 'journalctl'
            journalctl.write_text(f"#!/bin/sh\ncat <<'END'\n{log}END\n")
            journalctl.chmod(0o755)
            return [number for number, task in enumerate(play['tasks'])
                    if subprocess.run(
                        [task['args']['executable'], '-c', task['shell']],
                        env={'PATH': f'{directory}:/usr/bin:/bin'},
                        stdin=subprocess.DEVNULL, check=False,
                        stdout=subprocess.DEVNULL).returncode]

    def test_a_scheduler_that_asked_the_filter_is_good(self):
        self.assertEqual([], self._failures('INFO start\n' + self.ASKED))

    def test_a_scheduler_that_never_asked_the_filter_is_not(self):
        self.assertEqual([0], self._failures('INFO start\n'))

    def test_a_filter_that_failed_is_found(self):
        self.assertEqual([1], self._failures(self.ASKED + self.FAILED))
