# SPDX-License-Identifier: Apache-2.0
"""The quick start of the README, run as it is written.

Its literal blocks are executed in their order, and nova is started with the
nova.conf that they leave. What would change the machine is moved or replaced:
absolute paths are below a temporary folder, and sudo, git, pip, install's
change of owners and systemctl are small programs of this test.
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import unittest

import fixtures
from nova.conf import scheduler as nova_scheduler_conf
from oslo_config import cfg

from tests.functional import base
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.conf import opts as options_module
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.telemetry import file as telemetry_file

PROJECT = pathlib.Path(__file__).parents[2]

_SUDO = '''\
#!/bin/bash
if [[ $1 == -u ]]; then
    [[ $2 == nova ]] || exit 1
    shift 2
fi
exec "$@"
'''
# Needs no user of that name.
_INSTALL = '''\
#!/bin/bash
words=()
while (($#)); do
    case $1 in
        -o|-g) [[ $2 == nova ]] || exit 1; shift ;;
        *) words+=("$1") ;;
    esac
    shift
done
exec /usr/bin/install "${words[@]}"
'''
_GIT = '''\
#!/bin/bash
[[ "$*" == "clone --branch main URL vswitch_aware_scheduler" ]] || exit 1
ln -s "$PROJECT" vswitch_aware_scheduler
'''
_PIP = '''\
#!/bin/bash
[[ $1 == install && -f $2/setup.cfg ]] || exit 1
grep -qx "name = vswitch_aware_scheduler" "$2/setup.cfg" || exit 1
for command in vswitch-manage vswitch-status; do
    ln -s "$STAND_INS/$command" "$ROOT/opt/nova/bin/$command"
done
'''
_SYSTEMCTL = '''\
#!/bin/bash
echo "$*" >>"$ROOT/systemctl.log"
'''


def _command(module):
    """Return a program that looks for its configuration in $ROOT/etc."""
    return textwrap.dedent(f'''\
        #!{sys.executable}
        import os
        import sys
        from tests.fakes import nova_files
        from vswitch_aware_scheduler.cmd import {module}
        with nova_files.below(os.environ['ROOT']):
            sys.exit({module}.main())
        ''')


def blocks():
    """Return [(language or '', text)] of the quick start's literal blocks."""
    text = (PROJECT / 'README.rst').read_text()
    lines = text.partition('.. quick start begins\n')[2].partition(
        '.. quick start ends\n')[0].splitlines()
    code_blocks = []
    for number, line in enumerate(lines):
        head, colons, language = line.partition('::')
        if not colons or language and not head.endswith('.. code-block'):
            continue
        indent = len(line) - len(line.lstrip())
        block = itertools.takewhile(
            lambda line: not line or line.startswith(' ' * (indent + 1)),
            lines[number + 1:])
        code_blocks.append((language.strip(),
                            textwrap.dedent('\n'.join(block)).strip()))
    return code_blocks


class DocumentTestCase(unittest.TestCase):

    def test_removing_names_every_group_that_may_hold_a_password(self):
        text = (PROJECT / 'doc/source/install/remove.rst').read_text()
        for group, names in options_module.list_opts():
            if any(option.secret for option in names):
                self.assertIn(f'``[{group.name}]``', text)

    def test_the_manual_has_the_same_steps(self):
        text = (PROJECT / 'doc/source/install/index.rst').read_text()
        self.assertIn('.. include:: ../../../README.rst\n'
                      '   :start-after: .. quick start begins\n'
                      '   :end-before: .. quick start ends\n', text)

    def test_the_quick_start_installs_nothing_from_an_index(self):
        # No index has the package.
        for path in (PROJECT / 'README.rst',
                     *(PROJECT / 'doc/source').rglob('*.rst'),
                     PROJECT / 'devstack/README.rst'):
            for line in path.read_text().splitlines():
                self.assertNotRegex(
                    line, r'pip install .*(?<!/)vswitch_aware_scheduler',
                    path)


class QuickStartTestCase(base.VSwitchTestCase):
    HOSTS = ('compute7', 'compute8')
    WITH_STORE = False

    def setUp(self):
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for folder in ('bin', 'work', 'etc/nova', 'opt/nova/bin',
                       'var/lib'):
            (self.root / folder).mkdir(parents=True)
        for name, text in (('sudo', _SUDO), ('install', _INSTALL),
                           ('git', _GIT), ('systemctl', _SYSTEMCTL),
                           ('vswitch-manage', _command('manage')),
                           ('vswitch-status', _command('status'))):
            self._program(self.root / 'bin' / name, text)
        self._program(self.root / 'opt/nova/bin/pip', _PIP)
        self.nova_conf = self.root / 'etc/nova/nova.conf'
        # What is at the default of store_url below the root.
        path = self.root / 'var/lib/vswitch_aware_scheduler/vswitch.sqlite'
        self.nova_conf.write_text(
            '[DEFAULT]\ntransport_url = fake:/\n'
            f'[vswitch_scheduler]\nstore_url = sqlite:///{path}\n')
        # Two hours of samples, as min_samples asks for.
        (self.root / 'work/traffic.csv').write_text(
            'instance,time,egress_kbps,ingress_kbps\n' + ''.join(
                f'web,{1_700_000_100 + 300 * number},{number % 7 + 1},2\n'
                for number in range(40)))
        self.output = ''
        for language, text in blocks():
            self._follow(language, text)
        conf = self._options()
        self.AVAILABLE_FILTERS = conf.filter_scheduler.available_filters
        self.FILTERS = conf.filter_scheduler.enabled_filters
        self.WEIGHERS = conf.filter_scheduler.weight_classes
        self.OPTIONS = {
            name: conf.vswitch_scheduler[name]
            for name in ('store_url', 'default_switch_profile',
                         'enforcement')}
        self.OPTIONS.update(self.LATER)
        super().setUp()

    def _program(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def _follow(self, language, text):
        if language == 'ini':
            with open(self.nova_conf, 'a') as file:
                file.write(text + '\n')
            return
        done = subprocess.run(
            ['bash', '-e', '-c', re.sub(
                r'(?<![\w.])/(etc|opt|var)/', rf'{self.root}/\1/', text)],
            cwd=self.root / 'work', stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, 'PROJECT': str(PROJECT),
                 'ROOT': str(self.root), 'STAND_INS': str(self.root / 'bin'),
                 'PATH': f'{self.root}/bin:{os.environ["PATH"]}',
                 'PYTHONPATH': os.pathsep.join([str(PROJECT), *sys.path])})
        self.output += done.stdout
        self.assertEqual(0, done.returncode, f'{text}:\n{done.stdout}')

    def _options(self):
        conf = cfg.ConfigOpts()
        nova_scheduler_conf.register_opts(conf)
        options.register_opts(conf)
        conf([], default_config_files=[str(self.nova_conf)],
             default_config_dirs=[])
        return conf

    def check_installation(self):
        self.assertEqual(['restart nova-scheduler'], (
            self.root / 'systemctl.log').read_text().splitlines())
        self.assertNotIn('Failure', self.output)
        self.assertNotIn('Warning', self.output)
        self.store = store.Store(self.OPTIONS['store_url'])
        self.assertIsNotNone(self.store.model(
            telemetry_file.instance_uuid('web')))
        self.assertEqual(
            0o750, (self.root / 'var/lib/vswitch_aware_scheduler').stat()
            .st_mode & 0o777)
        self.assertEqual([], list(self.root.rglob('vswitch.conf')))
        # Between what ovs-vxlan-1g and ovs-vxlan carry, 180 and 1241 Mbit/s.
        self.large = self.flavor('large', egress_kbps=500_000)


class ObserveTestCase(QuickStartTestCase):
    LATER = {}

    def test_no_request_is_refused_and_decisions_are_stored(self):
        self.check_installation()
        self.boot(self.large, 'compute7', host='compute7')
        # 1 Tbit/s, which no virtual switch carries.
        self.boot(self.flavor('tbit', egress_kbps=1_000_000_000))
        large, tbit = self.decisions()
        self.assertEqual((0, 2, ['compute7']), (
            tbit.admitted, tbit.observed,
            [refused['host'] for refused in large.nearest]))
        self.assertEqual([], self.log.warnings)


class EnforceTestCase(QuickStartTestCase):
    LATER = {'enforcement': 'enforce'}

    def test_the_filter_refuses_hosts_as_soon_as_it_may(self):
        self.check_installation()
        self.boot_refused(self.flavor('tbit', egress_kbps=1_000_000_000))
        self.boot(self.large, 'compute8')
        self.boot_refused(self.large, host='compute7')
        self.boot(self.flavor('small', egress_kbps=1000), 'compute7',
                  host='compute7')
        self.assertEqual([], self.log.warnings)
