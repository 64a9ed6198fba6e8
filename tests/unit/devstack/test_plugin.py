# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin, phase by phase.

Where DEVSTACK_DIR names a checkout of DevStack its own functions run the
plugin, else the small ones of standin.sh. What would change the machine is
replaced: sudo, systemctl and pip. vswitch-manage only writes down that it was
called, where a test does not use the store.
"""

import atexit
import configparser
import functools
import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

from nova.conf import scheduler as nova_scheduler_conf
from nova.scheduler import filters as nova_filters
from nova.scheduler import weights as nova_weights
from oslo_config import cfg

from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.scheduler import filters
from vswitch_aware_scheduler.scheduler import weights
from vswitch_aware_scheduler import store

HERE = pathlib.Path(__file__).parent
PROJECT = HERE.parents[2]
STANDIN = HERE / 'standin.sh'
DEVSTACK_DIR = os.environ.get('DEVSTACK_DIR')
FUNCTIONS = (pathlib.Path(DEVSTACK_DIR) / 'functions' if DEVSTACK_DIR
             else STANDIN)

OUR_FILTER = 'vswitch_aware_scheduler.scheduler.filters.VSwitchFilter'
OUR_WEIGHER = 'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'

# The options that matter here, as DevStack's lib/nova leaves them.
NOVA_CONF = '''
[DEFAULT]
debug = True

[filter_scheduler]
track_instance_changes = False
enabled_filters = ComputeFilter,ImagePropertiesFilter,SameHostFilter

[scheduler]
workers = 2
'''
# Another plugin, and an operator, were there first.
SHARED_NOVA_CONF = '''\
[filter_scheduler]
# of our own
available_filters=nova.scheduler.filters.compute_filter.ComputeFilter
enabled_filters=ComputeFilter, IoOpsFilter
available_filters = nova.scheduler.filters.io_ops_filter.IoOpsFilter
weight_classes = nova.scheduler.weights.ram.RAMWeigher

[vswitch_scheduler]
overload_probability = 0.05
default_switch_profile = ovs-flat
[zvm]
'''
EMPTY_NOVA_CONF = '''\
[DEFAULT]
debug = True
'''

#: What stack changes in nova.conf.
CHANGED_OPTIONS = ('available_filters', 'enabled_filters', 'weight_classes',
                   'default_switch_profile')
ALL_PHASES = ('stack,pre-install', 'stack,install', 'stack,post-config',
              'stack,extra', 'stack,test-config')

#: {command: what the machine would be changed by, replaced}.
COMMANDS = {
    'bin/sudo': """\
while [[ $1 == -* || $1 == *=* ]]; do shift; done
exec "$@"
""",
    'bin/systemctl': """\
echo "$*" >>"$SYSTEMCTL_LOG"
case $1 in
    is-enabled) [[ -e $SYSTEMCTL_LOG.$2 ]] ;;
    enable) touch "$SYSTEMCTL_LOG.$2" ;;
    disable) rm "$SYSTEMCTL_LOG.$2" ;;
esac
""",
    'venv/bin/pip': 'echo "$*" >>"$PIP_LOG"\n',
    # Makes the file of the store, for tests that look at files only.
    'venv/bin/vswitch-manage': """\
store=$DATA_DIR/vswitch_aware_scheduler
if [[ $* == *"db sync" && -d $store ]]; then touch "$store/vswitch.sqlite"; fi
""",
    # A script on standard input, which prints what Nova has by default, is
    # run once: to import nova takes a second.
    'bin/python': f"""\
[[ $1 == - ]] || exec {sys.executable} "$@"
script=$(cat)
answer=$ANSWERS/$(printf "%s\\n" "$*" "$script" | sha256sum | cut -c -64)
if [[ ! -e $answer ]]; then
    {sys.executable} "$@" <<<"$script" >"$answer.new" || exit
    mv "$answer.new" "$answer"
fi
cat "$answer"
""",
    # DevStack takes a source tree out of the list of versions first.
    'requirements/.venv/bin/edit-constraints': '',
}
#: {variable of DevStack: path below the directory of a test}.
PATHS = {
    'HOME': '', 'DEST': '', 'DATA_DIR': 'data', 'DEVSTACK_VENV': 'venv',
    'PYTHON': 'bin/python', 'SYSTEMCTL': 'bin/systemctl',
    'PIP_LOG': 'pip.log', 'SYSTEMCTL_LOG': 'systemctl.log',
    'SYSTEMD_DIR': 'units', 'REQUIREMENTS_DIR': 'requirements',
    'NOVA_CONF': 'etc/nova/nova.conf',
    'NOVA_CPU_CONF': 'etc/nova/nova-cpu.conf',
    'TEMPEST_CONFIG': 'tempest/etc/tempest.conf',
    'VSWITCH_CONF_DIR': 'etc/vswitch'}
VALUES = {
    'LANG': 'C.UTF-8', 'FUNCTIONS': str(FUNCTIONS),
    'TOP_DIR': str(FUNCTIONS.parent), 'PLUGIN_DIR': str(PROJECT),
    'STACK_USER': getpass.getuser(), 'GLOBAL_VENV': 'True',
    'PYTHONPATH': os.pathsep.join(sys.path),
    # Else DevStack asks the machine which packages it has.
    'os_PACKAGE': 'deb', 'KILL_PATH': '/bin/kill',
    'ENABLED_SERVICES': 'n-api,n-cpu,n-sch',
    'ENABLE_DEBUG_LOG_LEVEL': 'True', 'LOG_COLOR': 'False',
    'SERVICE_HOST': '127.0.0.1', 'REGION_NAME': 'RegionOne',
    'KEYSTONE_SERVICE_URI': 'http://127.0.0.1:1/identity',
    'SERVICE_PASSWORD': 'pass word', 'SERVICE_DOMAIN_NAME': 'Default',
    'SERVICE_PROJECT_NAME': 'service'}


@functools.cache
def _answers():
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    return directory.name


class PhasesTestCase(unittest.TestCase):

    def setUp(self):
        self.root = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.nova_conf, self.nova_cpu_conf, self.tempest_conf, self.units = (
            self.root / PATHS[name] for name in (
                'NOVA_CONF', 'NOVA_CPU_CONF', 'TEMPEST_CONFIG',
                'SYSTEMD_DIR'))
        self.our_conf = self.root / 'etc/vswitch/vswitch.conf'
        self.state = self.root / 'data/vswitch_aware_scheduler'
        for directory in (self.nova_conf.parent, self.tempest_conf.parent,
                          self.units, self.state.parent):
            directory.mkdir(parents=True)
        self.nova_conf.write_text(NOVA_CONF)
        for name, script in COMMANDS.items():
            self._command(name, script)
        self.environment = {
            **VALUES, 'ANSWERS': _answers(),
            **{name: str(self.root / path) for name, path in PATHS.items()},
            'PATH': f'{self.root}/bin:{os.environ["PATH"]}'}

    def _command(self, name, script='', interpreter='/bin/bash'):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!{interpreter}\n{script}')
        path.chmod(0o755)

    def install(self, *names):
        """Install commands of this package, to run as they are."""
        for name in names:
            self._command(
                f'venv/bin/vswitch-{name}',
                f'import sys\nfrom vswitch_aware_scheduler.cmd import {name}\n'
                f'sys.exit({name}.main())\n', sys.executable)

    def run_phases(self, *phases, status=0, **environment):
        """Run phases in one shell; return all that they print."""
        completed = subprocess.run(
            ['bash', str(HERE / 'phases.sh'), *phases],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(status, completed.returncode, completed.stdout)
        return completed.stdout

    def texts(self):
        return {path: path.read_text() for path in (
            self.nova_conf, self.our_conf, self.tempest_conf)}

    def assert_nothing_is_left(self):
        self.assertFalse(self.our_conf.parent.exists())
        self.assertFalse(self.state.exists())

    def read(self, path):
        """Return the options of nova's scheduler and ours of a file."""
        conf = cfg.ConfigOpts()
        nova_scheduler_conf.register_opts(conf)
        options.register_opts(conf)
        conf([], default_config_files=[str(path)], default_config_dirs=[])
        return conf

    def lines(self, name):
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []


class InstallTest(PhasesTestCase):

    def test_a_node_gets_what_its_services_need(self):
        # The second row is that of DevStack's guide to several nodes.
        for services, extras in (
                ('n-api,n-sch,gnocchi-api', '[gnocchi,nova]'),
                ('n-cpu,c-vol,placement-client,ovn-controller,ovs-vswitchd,'
                 'ovsdb-server,q-ovn-metadata-agent,ceilometer-acompute',
                 None),
                ('n-api,gnocchi-api', ''),
                ('n-api,n-cpu,n-sch', '[nova]')):
            with self.subTest(services):
                (self.root / 'pip.log').write_text('')
                output = self.run_phases(
                    'stack,pre-install', 'stack,install',
                    ENABLED_SERVICES=services)
                self.assertEqual(
                    [] if extras is None else [('install', '-e',
                                                f'{PROJECT}{extras}')],
                    [(words[0], *words[-2:]) for words in map(
                        str.split, self.lines('pip.log'))])
                if 'n-sch' in services:
                    continue
                output += self.run_phases(
                    'stack,post-config', 'stack,extra', 'stack,test-config',
                    'unstack', 'clean', ENABLED_SERVICES=services)
                self.assertEqual([], self.lines('systemctl.log'))
                self.assertEqual(NOVA_CONF, self.nova_conf.read_text())
                self.assert_nothing_is_left()
                self.assertNotIn('vswitch-modeler', output)

    def test_what_the_plugin_cannot_use_is_refused_at_once(self):
        old_python = self.root / 'bin/old-python'
        self._command(
            old_python, '[[ $1 == --version ]] && echo "Python 3.10.9"\n')
        for name, value, message in (
                ('VSWITCH_STORE', 'mysql',
                 "VSWITCH_STORE: 'mysql'; expected sqlite"),
                ('VSWITCH_TELEMETRY', 'gnochi',
                 "VSWITCH_TELEMETRY: 'gnochi'; expected auto, "),
                ('PYTHON', str(old_python),
                 'needs Python 3.11 or newer, found Python 3.10.9')):
            self.assertIn(message, self.run_phases(
                'stack,pre-install', status=1, **{name: value}))


class ConfigurationTest(PhasesTestCase):

    def _configure(self, text=NOVA_CONF, **environment):
        self.nova_conf.write_text(text)
        output = self.run_phases('stack,post-config', **environment)
        self.assertEqual(0o600, self.our_conf.stat().st_mode & 0o777)
        return self.read(self.nova_conf), output

    def _assert_nova_loads(self, scheduler):
        classes = nova_filters.HostFilterHandler().get_matching_classes(
            scheduler.available_filters)
        self.assertLessEqual(set(scheduler.enabled_filters),
                             {plugin.__name__ for plugin in classes})
        self.assertIn(filters.VSwitchFilter, classes)
        self.assertIn(
            weights.VSwitchWeigher,
            nova_weights.HostWeightHandler().get_matching_classes(
                scheduler.weight_classes))

    def test_stack_adds_to_the_files_once_and_clean_restores_them(self):
        default = self.read(os.devnull).filter_scheduler
        filters_of = 'nova.scheduler.filters.'
        for text, available, enabled, weighers, of_tempest in (
                (NOVA_CONF, default.available_filters,
                 ['ComputeFilter', 'ImagePropertiesFilter', 'SameHostFilter'],
                 default.weight_classes,
                 ('scheduler_enabled_filters = ComputeFilter,SameHostFilter',
                  'scheduler_enabled_filters = ComputeFilter,SameHostFilter,'
                  'VSwitchFilter')),
                (EMPTY_NOVA_CONF, default.available_filters,
                 default.enabled_filters, default.weight_classes,
                 ('scheduler_enabled_filters = all',) * 2),
                (SHARED_NOVA_CONF,
                 [filters_of + 'compute_filter.ComputeFilter',
                  filters_of + 'io_ops_filter.IoOpsFilter'],
                 ['ComputeFilter', 'IoOpsFilter'],
                 ['nova.scheduler.weights.ram.RAMWeigher'], ('',) * 2)):
            originals = [text, *(f'[compute-feature-enabled]\n{option}\n'
                                 for option in of_tempest)]
            with self.subTest(text):
                self.nova_conf.write_text(text)
                self.tempest_conf.write_text(originals[1])
                self.run_phases(*ALL_PHASES)
                stacked = self.texts()
                self.assertEqual(originals[2],
                                 self.tempest_conf.read_text())
                conf = self.read(self.nova_conf)
                scheduler = conf.filter_scheduler
                self._assert_nova_loads(scheduler)
                self.assertCountEqual([*available, OUR_FILTER],
                                      scheduler.available_filters)
                self.assertEqual([*enabled, 'VSwitchFilter'],
                                 scheduler.enabled_filters)
                self.assertEqual([*weighers, OUR_WEIGHER],
                                 scheduler.weight_classes)
                self.assertEqual(
                    .05 if text is SHARED_NOVA_CONF else .01,
                    conf.vswitch_scheduler.overload_probability)
                self.assertEqual([], [
                    line for line in text.splitlines() if line.partition(
                        '=')[0].strip() not in CHANGED_OPTIONS
                    and line not in stacked[self.nova_conf].splitlines()])
                self.run_phases(*ALL_PHASES)
                self.assertEqual(stacked, self.texts())
                if text is not SHARED_NOVA_CONF:
                    # As local.conf may do; the section is ours.
                    self.nova_conf.write_text(stacked[self.nova_conf].replace(
                        '[vswitch_scheduler]\n',
                        '[vswitch_scheduler]\noverload_probability = 0.1\n'))
                for _ in range(2):
                    # The second time as on a machine never stacked.
                    self.run_phases('unstack', 'clean')
                    self.assertEqual(originals[:2], [
                        self.nova_conf.read_text(),
                        self.tempest_conf.read_text()])
                    self.assert_nothing_is_left()

    def test_the_scheduler_and_the_commands_read_one_store(self):
        self.install('manage')
        in_file = f'sqlite:///{self.state}/vswitch.sqlite'
        of_server = f'sqlite:///{self.root}/data/vswitch.sqlite'
        anywhere = f'sqlite:///{self.root}/elsewhere.sqlite'
        for stated, url, after_stacking_again in (
                ('database', f'{of_server}?timeout=7&cache=private', 0),
                (anywhere, anywhere, 1), ('sqlite', in_file, 1)):
            with self.subTest(stated):
                conf, output = self._configure(VSWITCH_STORE=stated)
                for conf in (conf, self.read(self.our_conf)):
                    self.assertEqual(url, conf.vswitch_scheduler.store_url)
                self.assertEqual(stated == 'database',
                                 'recreated vswitch' in output)
                self.assertEqual(stated == 'sqlite', self.state.exists())
                own = store.Store(url.partition('?')[0])
                self.assertEqual(0, own.generation().number)
                own.write()
                self._configure(VSWITCH_STORE=stated)
                self.assertEqual(after_stacking_again, store.Store(
                    url.partition('?')[0]).generation().number)

    def test_notes_of_what_was_there_are_read_by_nobody_else(self):
        secret = 'mysql+pymysql://u:open-sesame@host/x'
        added = self.our_conf.parent / 'added.conf'
        for mode in (None, 0o644):
            if mode is not None:
                added.chmod(mode)
            self._configure(f'{NOVA_CONF}\n[vswitch_scheduler]\n'
                            f'store_url = {secret}\n')
            self.assertIn(secret, added.read_text())
            self.assertEqual(0o600, added.stat().st_mode & 0o777)

    def test_a_host_has_a_switch_profile(self):
        for name, environment in (
                ('ovs-geneve', {}),
                ('ovs-vxlan', {'Q_AGENT': 'openvswitch'}),
                ('ovs-flat', {'VSWITCH_DEFAULT_SWITCH_PROFILE': 'ovs-flat'}),
                (None, {'VSWITCH_DEFAULT_SWITCH_PROFILE': 'none'})):
            with self.subTest(name):
                self._configure(**environment)
                for path in (self.nova_conf, self.our_conf):
                    self.assertEqual(name, self.read(
                        path).vswitch_scheduler.default_switch_profile)

    def test_clean_keeps_what_others_have_added_since(self):
        self._configure()
        text = self.nova_conf.read_text()
        for ours, with_late in (
                (',VSwitchFilter\n', ',VSwitchFilter,LateFilter\n'),
                (OUR_WEIGHER, OUR_WEIGHER + ',late.Weigher'),
                (f'available_filters = {OUR_FILTER}\n',
                 f'available_filters = {OUR_FILTER}\n'
                 f'available_filters = late.LateFilter\n')):
            self.assertIn(ours, text)
            text = text.replace(ours, with_late)
        self.nova_conf.write_text(text + '\n[late]\noption = 1\n')
        operators = self.our_conf.parent / 'switch_profiles.yaml'
        operators.write_text('{}\n')
        self.run_phases('clean')
        self.assertEqual([operators], list(self.our_conf.parent.iterdir()))
        text = self.nova_conf.read_text()
        self.assertNotIn('vswitch', text.lower())
        self.assertIn('\n\n[late]\noption = 1\n', text)
        scheduler = self.read(self.nova_conf).filter_scheduler
        self.assertEqual(['nova.scheduler.filters.all_filters',
                          'late.LateFilter'], scheduler.available_filters)
        self.assertEqual(['ComputeFilter', 'ImagePropertiesFilter',
                          'SameHostFilter', 'LateFilter'],
                         scheduler.enabled_filters)
        self.assertEqual(['nova.scheduler.weights.all_weighers',
                          'late.Weigher'], scheduler.weight_classes)

    def test_clean_works_when_the_files_are_gone(self):
        self._configure()
        self.nova_conf.unlink()
        self.run_phases('clean', 'clean')
        self.assertFalse(self.nova_conf.exists())
        self.assertFalse(self.our_conf.parent.exists())


class ServiceTest(PhasesTestCase):

    UNIT = 'devstack@vswitch-modeler.service'

    def test_the_modeler_runs_as_a_service_until_unstack(self):
        self._command('venv/bin/vswitch-modeler')
        output = self.run_phases('stack,post-config', 'stack,extra')
        self.assertIn('ENABLED_SERVICES=n-api,n-cpu,n-sch,vswitch-modeler',
                      output)
        self.assertIn(
            f'ExecStart = {self.root}/venv/bin/vswitch-modeler --config-file '
            f'{self.our_conf}', (self.units / self.UNIT).read_text())
        self.assertIn(f'start {self.UNIT}', self.lines('systemctl.log'))
        for last_calls in ([f'stop {self.UNIT}', f'disable {self.UNIT}'],
                           [f'is-enabled {self.UNIT}']):
            self.run_phases('unstack')
            self.assertEqual(
                last_calls,
                self.lines('systemctl.log')[-len(last_calls):])

    def test_a_modeler_that_is_missing_or_disabled_stops_nothing(self):
        message = (f'no modeler: {self.root}/venv/bin/vswitch-modeler is '
                   f'missing')
        for disabled in ('', 'vswitch-modeler'):
            output = self.run_phases('stack,post-config', 'stack,extra',
                                     DISABLED_SERVICES=disabled)
            self.assertEqual(not disabled, message in output)
            self.assertEqual([], self.lines('systemctl.log'))
            self._command('venv/bin/vswitch-modeler')

    def test_the_computes_do_not_get_the_url_of_the_store(self):
        self.run_phases('stack,post-config')
        # As lib/nova does before it starts nova-compute.
        shutil.copy(self.nova_conf, self.nova_cpu_conf)
        self.run_phases('stack,extra')
        self.assertNotIn('store_url', self.nova_cpu_conf.read_text())
        self.assertIn('store_url', self.nova_conf.read_text())


class ModelerTest(PhasesTestCase):
    """The modeler on the configuration that the phases have written."""

    def setUp(self):
        super().setUp()
        self.install('manage', 'modeler')

    def stack(self, services='n-api,n-sch', telemetry='auto', **environment):
        """Run the phases; return what they print and our options."""
        output = self.run_phases(
            'stack,post-config', 'stack,extra', ENABLED_SERVICES=services,
            VSWITCH_TELEMETRY=str(telemetry), **environment)
        return output, self.read(self.our_conf)

    def modeler_until(self, *words):
        """Run the service that was started; return its last heartbeat.

        It is ended once systemd has received all of some words.
        """
        unit = configparser.ConfigParser(interpolation=None)
        unit.read(self.units / 'devstack@vswitch-modeler.service')
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(self.root / 'notify'))
            listener.settimeout(120)
            process = subprocess.Popen(
                unit['Service']['ExecStart'].split(),
                env={**self.environment,
                     'NOTIFY_SOCKET': listener.getsockname()},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
            try:
                missing = {*words, 'READY=1'}
                while missing:
                    message = listener.recv(4096).decode()
                    self.assertNotIn('STOPPING', message)
                    missing = {word for word in missing if word not in message}
                # As service_check of DevStack asks.
                self.assertIsNone(process.poll())
                process.terminate()
                self.assertEqual(0, process.wait(60))
            finally:
                process.kill()
                process.wait()
        modeler, = store.Store(
            f'sqlite:///{self.state}/vswitch.sqlite').modelers()
        return modeler

    def test_without_telemetry_it_waits(self):
        self.stack()
        modeler = self.modeler_until('STATUS=waiting: telemetry is not '
                                     'configured')
        self.assertIn('[vswitch_gnocchi]', modeler.waiting_for)

    def test_telemetry_is_read_where_it_is_enabled_or_stated(self):
        # Whatever the source, it is believed only about Nova's instances.
        self._command('venv/bin/vswitch-manage',
                      COMMANDS['venv/bin/vswitch-manage'])
        file = str(self.root / 'traffic.csv')
        both = 'n-sch,prometheus,gnocchi-api,ceilometer-acompute'
        for services, stated, driver, url in (
                (both, 'auto', 'gnocchi', None),
                (both + ',tls-proxy', 'auto', 'gnocchi', None),
                ('n-sch,prometheus', 'auto', 'prometheus', None),
                ('n-sch', 'prometheus', 'prometheus', 'http://elsewhere:1'),
                ('n-sch', 'auto', None, None), (both, 'none', None, None),
                (both, file, 'file', None)):
            with self.subTest(services=services, stated=stated):
                output, conf = self.stack(services, stated,
                                          SSL_BUNDLE_FILE='/data/ca.pem',
                                          VSWITCH_PROMETHEUS_URL=url or '')
                cafile = '/data/ca.pem' if 'tls' in services else None
                accesses = [options.inventory_options(conf)['access']]
                if driver == 'gnocchi':
                    accesses.append(options.telemetry_options(
                        conf, 'gnocchi')['access'])
                for access in accesses:
                    self.assertEqual({
                        'auth_type': 'password', 'username': 'nova',
                        'auth_url': 'http://127.0.0.1:1/identity',
                        'password': 'pass word', 'project_name': 'service',
                        'user_domain_name': 'Default',
                        'project_domain_name': 'Default'}, access['auth'])
                    self.assertEqual(
                        ('RegionOne', cafile),
                        (access['region_name'], access['cafile']))
                if driver is None:
                    self.assertNotIn('telemetry_driver',
                                     self.our_conf.read_text())
                else:
                    self.assertEqual(
                        driver, conf.vswitch_scheduler.telemetry_driver)
                self.assertEqual(
                    file if driver == 'file' else None,
                    conf.vswitch_scheduler.telemetry_path)
                self.assertEqual(
                    url or 'http://127.0.0.1:9090'
                    if driver == 'prometheus' else None,
                    conf.vswitch_prometheus.endpoint_override)
                self.assertEqual(driver is None, 'vswitch-modeler waits for '
                                 'telemetry' in output)

    def test_a_file_is_read(self):
        path = self.root / 'traffic.csv'
        path.write_text('instance,time,egress_kbps,ingress_kbps\n' + ''.join(
            f'web,{1_700_000_100 + 300 * number},{number % 7 + 1},2\n'
            for number in range(40)))
        self.stack(telemetry=path)
        modeler = self.modeler_until('STATUS=generation 1: 40 new samples, 1 '
                                     'models fitted')
        self.assertEqual((1, None), (modeler.passes, modeler.waiting_for))


class DocumentTest(unittest.TestCase):
    """What the documents tell to put into local.conf, and to type."""

    def test_the_plugin_is_enabled_with_the_branch_there_is(self):
        # DevStack takes the branch master where none is named.
        for name in ('devstack/README.rst', 'doc/source/install/index.rst'):
            lines = [line.split() for line
                     in (PROJECT / name).read_text().splitlines()
                     if 'enable_plugin vswitch_aware' in line]
            self.assertEqual(
                [['enable_plugin', 'vswitch_aware_scheduler', 'URL', 'main']],
                lines, name)

    def test_trying_it_asks_nova_for_the_name_of_a_host(self):
        text = (PROJECT / 'devstack/README.rst').read_text()
        block = textwrap.dedent(text.partition('admin admin``)::\n')[2]
                                .partition('\n\nThe third')[0])
        with tempfile.TemporaryDirectory() as root:
            client = pathlib.Path(root, 'openstack')
            client.write_text(
                '#!/bin/bash\n'
                'printf "%s\\n" "$*" >>"$LOG"\n'
                'case "$*" in\n'
                '    "compute service list"*"-c Host")\n'
                '        printf "%s\\n" node1fake0 node1fake1 ;;\n'
                '    "image list"*) echo an-image ;;\n'
                'esac\n')
            client.chmod(0o755)
            log = pathlib.Path(root, 'log')
            subprocess.run(
                ['bash', '-eu', '-c', block], check=True,
                stdin=subprocess.DEVNULL,
                env={'PATH': f'{root}:{os.environ["PATH"]}',
                     'LOG': str(log)})
            lines = log.read_text().splitlines()
        self.assertIn('aggregate add host small node1fake0', lines)
        self.assertEqual(3, sum('--host node1fake0' in line
                                and '--image an-image' in line
                                for line in lines), lines)
