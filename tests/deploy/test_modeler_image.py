# SPDX-License-Identifier: Apache-2.0
"""The steps of deploy/modeler/Containerfile, on this machine."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from tests.deploy import ansible

CONTAINERFILE = ansible.DEPLOY / 'modeler/Containerfile'


def _steps(word):
    return [line.removeprefix(f'{word} ')
            for line in CONTAINERFILE.read_text().splitlines()
            if line.startswith(f'{word} ')]


class ModelerImageTestCase(unittest.TestCase):

    def test_what_is_installed_makes_a_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            source, target = folder / 'src', folder / 'vswitch'
            shutil.copytree(ansible.PROJECT, source, symlinks=True,
                            ignore=shutil.ignore_patterns('.*', 'build'))

            def here(text):
                return text.replace('/src', str(source)).replace(
                    '/opt/vswitch', str(target))

            self.assertEqual(['. /src'], _steps('COPY'))
            for step in _steps('RUN'):
                if not step.startswith('useradd '):
                    subprocess.run(here(step), shell=True, check=True,
                                   stdout=subprocess.DEVNULL, cwd=folder)
            (folder / 'traffic.csv').write_text(
                'instance,time,egress_kbps,ingress_kbps\n' + ''.join(
                    f'a,{1.7e9 + 300 * number:.0f},{number},1\n'
                    for number in range(1, 40)))
            (folder / 'vswitch.conf').write_text(
                '[vswitch_scheduler]\n'
                f'store_url = sqlite:///{folder}/store.sqlite\n'
                'telemetry_driver = file\n'
                f'telemetry_path = {folder}/traffic.csv\n')
            [entry] = map(json.loads, _steps('ENTRYPOINT'))
            done = subprocess.run(
                [*map(here, entry), '--once', '--json', '--config-file',
                 str(folder / 'vswitch.conf')],
                capture_output=True, text=True, cwd=folder)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(1, json.loads(done.stdout)['instances'])
            # The clients of the services that a modeler reads.
            subprocess.run(
                [str(target / 'bin/python'), '-c',
                 'import gnocchiclient, openstack, prometheus_client, '
                 'psycopg2, pymysql'], check=True)

    def test_the_service_is_not_root(self):
        self.assertEqual(['vswitch'], _steps('USER'))
        self.assertIn(' vswitch', _steps('RUN')[-1])
