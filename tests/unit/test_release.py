# SPDX-License-Identifier: Apache-2.0
"""The release has one number, and every command prints it."""

import email
import fnmatch
import importlib.metadata
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from tests.unit.cmd import commands
from tests.unit import entry_points

PROJECT = entry_points.PROJECT
console_scripts = entry_points.console_scripts
main_of = entry_points.main_of

PACKAGE = 'vswitch_aware_scheduler'


def tracked_version():
    """Return the version of the source tree, not of what is installed."""
    metadata = email.message_from_string((PROJECT / 'PKG-INFO').read_text())
    assert metadata['Name'] == PACKAGE, metadata['Name']
    return metadata['Version']


class VersionTestCase(unittest.TestCase):

    def test_a_tree_without_git_and_tags_has_the_tracked_version(self):
        self.assertRegex(tracked_version(), r'^\d+\.\d+\.\d+$')
        with tempfile.TemporaryDirectory() as folder:
            for name in ('PKG-INFO', 'README.rst', 'pyproject.toml',
                         'requirements.txt', 'setup.cfg', 'setup.py'):
                (pathlib.Path(folder) / name).write_bytes(
                    (PROJECT / name).read_bytes())
            environment = {
                name: value for name, value in os.environ.items()
                if name not in ('PBR_VERSION', 'OSLO_PACKAGE_VERSION')}
            answer = subprocess.run(
                [sys.executable, '-c',
                 'from pbr import packaging\n'
                 f'print(packaging.get_version({PACKAGE!r}))'],
                cwd=folder, env=environment, text=True, capture_output=True)
        self.assertEqual((0, tracked_version()),
                         (answer.returncode, answer.stdout.strip()),
                         answer.stderr)

    def test_an_archive_without_git_has_every_file_of_the_package(self):
        manifest = (PROJECT / 'MANIFEST.in').read_text()
        patterns = re.search(f'^recursive-include {PACKAGE} (.*)$', manifest,
                             re.M).group(1).split()
        self.assertEqual([], [
            str(path) for path in (PROJECT / PACKAGE).rglob('*')
            if path.is_file() and path.suffix != '.pyc'
            and not any(path.match(pattern) for pattern in patterns)])

    def test_the_notes_are_those_of_the_tracked_version(self):
        config = (PROJECT / 'releasenotes' / 'config.yaml').read_text()
        self.assertEqual(
            [tracked_version()],
            re.findall('^unreleased_version_title: (.*)$', config, re.M))

    def test_every_command_prints_name_and_version(self):
        installed = importlib.metadata.version(PACKAGE)
        for command in console_scripts():
            with self.subTest(command=command):
                self.assertEqual(
                    (0, f'{command} {installed}\n', ''),
                    commands.run(main_of(command), ['--version']))

    def test_every_command_has_a_manual_page(self):
        conf = runpy.run_path(str(PROJECT / 'doc' / 'source' / 'conf.py'))
        pages = {name: page for page, name, *_ in conf['man_pages']}
        self.assertLessEqual(set(console_scripts()), set(pages))
        for name, page in pages.items():
            self.assertEqual(f'cli/{name}', page)
            self.assertTrue(
                (PROJECT / 'doc' / 'source' / f'{page}.rst').exists(), page)

    def test_the_manual_has_the_options_of_every_subcommand(self):
        pages = '\n'.join(path.read_text() for path in (
            PROJECT / 'doc' / 'source' / 'cli').glob('*.rst'))
        commands_of_pages = re.findall(
            r'autoprogram-cliff:: vswitch_aware_scheduler.commands\n'
            r'   :command: (.*)\n', pages)
        for entry in importlib.metadata.entry_points(
                group='vswitch_aware_scheduler.commands'):
            name = entry.name.replace('_', ' ')
            if not any(fnmatch.fnmatch(name, pattern)
                       for pattern in commands_of_pages):
                self.assertRegex(pages, rf'(?m)^    vswitch-manage .*{name}')

    def test_a_command_works_where_the_package_is_not_installed(self):
        missing = importlib.metadata.PackageNotFoundError(PACKAGE)
        main = main_of('vswitch-manage')
        with mock.patch('importlib.metadata.distribution',
                        side_effect=missing):
            status, output, errors = commands.run(main, ['--version'])
        self.assertEqual((0, ''), (status, errors))
        self.assertIn('not installed', output)
