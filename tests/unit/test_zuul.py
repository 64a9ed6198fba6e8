# SPDX-License-Identifier: Apache-2.0
"""What .zuul.yaml names is there, and every supported Python is checked."""

import configparser
import itertools
import pathlib
import re
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


class ZuulTest(unittest.TestCase):

    def setUp(self):
        items = yaml.safe_load((PROJECT / '.zuul.yaml').read_text())
        self.jobs = {item['job']['name']: item['job'] for item in items
                     if 'job' in item}
        self.project, = [item['project'] for item in items
                         if 'project' in item]
        self.checked = [job if isinstance(job, str) else next(iter(job))
                        for job in self.project['check']['jobs']]
        # The jobs with tempest run the tox of tempest.
        self.run = {environment for name in self.checked
                    if not name.startswith('vswitch-tempest')
                    for environment in self._environments(name)}

    def _environments(self, name):
        """Return the tox environments of this project that a job runs."""
        named = self.jobs.get(name, {}).get('vars', {}).get('tox_envlist')
        return (named or STANDARD_JOB.fullmatch(name)['environment']).split(
            ',')

    def test_every_job_is_defined_and_run_before_a_merge_as_after(self):
        for name in self.checked:
            self.assertTrue(
                name in self.jobs or STANDARD_JOB.fullmatch(name), name)
        for name, job in self.jobs.items():
            self.assertIn(name, self.checked)
            self.assertIn(job['parent'], OTHER_PARENTS | set(self.jobs))
        voting = [job for job in self.project['check']['jobs']
                  if isinstance(job, str)
                  or next(iter(job.values())).get('voting', True)]
        self.assertEqual(voting, self.project['gate']['jobs'])

    def test_every_python_and_nova_that_is_supported_is_checked(self):
        pythons = {''.join(version) for version in re.findall(
            r'Python :: (3)\.(\d+)$',
            _read('setup.cfg')['metadata']['classifier'], re.MULTILINE)}
        releases = {path.stem for path in
                    (PROJECT / '.ci/constraints').glob('nova*.txt')}
        self.assertTrue(pythons and releases)
        self.assertLessEqual({
            'pep8', 'docs', 'wheel', *releases,
            *(f'{suite}py{version}' for version in pythons
              for suite in ('', 'functional-'))}, self.run)
        tox = _read('tox.ini')
        # tox makes those of one Python of [testenv] itself.
        existing = {f'py{version}' for version in pythons} | {
            name for section in tox.sections()
            if section.startswith('testenv:')
            for name in _expanded(section.removeprefix('testenv:'))}
        self.assertEqual(set(), self.run - existing)
        self.assertEqual({'py3'}, set(tox['tox']['env_list'].split(',')) - {
            environment.removesuffix('-py311') for environment in self.run})

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
