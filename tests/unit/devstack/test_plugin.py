# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin, phase by phase.

Where DEVSTACK_DIR names a checkout of DevStack its own functions run the
plugin, else the small ones of standin.sh. What would change the machine is
replaced: sudo, systemctl and pip. vswitch-manage only writes down that it was
called, where a test does not use the store.
"""

import atexit
import configparser
import dataclasses
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

from nova import conf as nova_conf
from nova.conf import scheduler as nova_scheduler_conf
from nova.scheduler import filters as nova_filters
from nova.scheduler import weights as nova_weights
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from vswitch_aware_scheduler.cmd import status
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

_SYSTEMCTL = '''\
#!/bin/bash
echo "$*" >>"$SYSTEMCTL_LOG"
case $1 in
    is-enabled) [[ -e $SYSTEMCTL_LOG.$2 ]] ;;
    enable) touch "$SYSTEMCTL_LOG.$2" ;;
    disable) rm "$SYSTEMCTL_LOG.$2" ;;
esac
'''
# Makes the file of the store, for tests that look at files only.
_MANAGE = '''\
#!/bin/bash
echo "$*" >>"$MANAGE_LOG"
store=$DATA_DIR/vswitch_aware_scheduler
if [[ $* == *"db sync" && -d $store ]]; then touch "$store/vswitch.sqlite"; fi
'''
# A script on standard input, which prints what Nova has by default, is run
# once: to import nova takes a second.
_PYTHON = f'''\
#!/bin/bash
[[ $1 == - ]] || exec {sys.executable} "$@"
script=$(cat)
answer=$ANSWERS/$(printf "%s\\n" "$*" "$script" | sha256sum | cut -c -64)
if [[ ! -e $answer ]]; then
    {sys.executable} "$@" <<<"$script" >"$answer.new" || exit
    mv "$answer.new" "$answer"
fi
cat "$answer"
'''


@functools.cache
def _answers():
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    return directory.name


class PhasesTestCase(unittest.TestCase):

    functions = FUNCTIONS

    def setUp(self):
        root = self.enterContext(tempfile.TemporaryDirectory())
        self.root = pathlib.Path(root)
        self.nova_conf = self.root / 'etc/nova/nova.conf'
        self.nova_cpu_conf = self.root / 'etc/nova/nova-cpu.conf'
        self.tempest_conf = self.root / 'tempest/etc/tempest.conf'
        self.our_conf = self.root / 'etc/vswitch/vswitch.conf'
        self.state = self.root / 'data/vswitch_aware_scheduler'
        self.units = self.root / 'units'
        for path in (self.nova_conf, self.tempest_conf, self.units / 'x',
                     self.root / 'data/x'):
            path.parent.mkdir(parents=True)
        self.nova_conf.write_text(NOVA_CONF)
        self._command('bin/sudo', '#!/bin/bash\n'
                      'while [[ $1 == -* || $1 == *=* ]]; do shift; done\n'
                      'exec "$@"\n')
        self._command('bin/systemctl', _SYSTEMCTL)
        self._command('venv/bin/pip', '#!/bin/bash\n'
                      'echo "$*" >>"$PIP_LOG"\n')
        self._command('venv/bin/vswitch-manage', _MANAGE)
        self._command('bin/python', _PYTHON)
        # DevStack takes a source tree out of the list of versions first.
        self._command('requirements/.venv/bin/edit-constraints',
                      '#!/bin/bash\n')
        self.environment = {
            'PATH': f'{self.root}/bin:{os.environ["PATH"]}',
            'HOME': str(self.root), 'LANG': 'C.UTF-8',
            'FUNCTIONS': str(self.functions), 'PLUGIN_DIR': str(PROJECT),
            'TOP_DIR': str(self.functions.parent),
            'STACK_USER': getpass.getuser(),
            'DEST': str(self.root), 'DATA_DIR': str(self.root / 'data'),
            'DEVSTACK_VENV': str(self.root / 'venv'), 'GLOBAL_VENV': 'True',
            'PYTHON': f'{self.root}/bin/python', 'ANSWERS': _answers(),
            'PIP_LOG': str(self.root / 'pip.log'),
            'MANAGE_LOG': str(self.root / 'manage.log'),
            'PYTHONPATH': os.pathsep.join(sys.path),
            'REQUIREMENTS_DIR': str(self.root / 'requirements'),
            # Else DevStack asks the machine which packages it has.
            'os_PACKAGE': 'deb',
            'SYSTEMCTL': f'{self.root}/bin/systemctl',
            'SYSTEMCTL_LOG': str(self.root / 'systemctl.log'),
            'SYSTEMD_DIR': str(self.units), 'KILL_PATH': '/bin/kill',
            'ENABLED_SERVICES': 'n-api,n-cpu,n-sch',
            'NOVA_CONF': str(self.nova_conf),
            'NOVA_CPU_CONF': str(self.nova_cpu_conf),
            'TEMPEST_CONFIG': str(self.tempest_conf),
            'VSWITCH_CONF_DIR': str(self.our_conf.parent),
            'ENABLE_DEBUG_LOG_LEVEL': 'True', 'LOG_COLOR': 'False',
            'SERVICE_HOST': '127.0.0.1', 'REGION_NAME': 'RegionOne',
            'KEYSTONE_SERVICE_URI': 'http://127.0.0.1:1/identity',
            'SERVICE_PASSWORD': 'pass word', 'SERVICE_DOMAIN_NAME': 'Default',
            'SERVICE_PROJECT_NAME': 'service',
        }

    def _command(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def install(self, *names):
        """Install commands of this package, to run as they are."""
        for name in names:
            self._command(f'venv/bin/vswitch-{name}', textwrap.dedent(f'''\
                #!{sys.executable}
                import sys
                from vswitch_aware_scheduler.cmd import {name}
                sys.exit({name}.main())
                '''))

    def run_phases(self, *phases, status=0, **environment):
        """Run phases in one shell; return all that they print."""
        completed = subprocess.run(
            ['bash', str(HERE / 'phases.sh'), *phases],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(status, completed.returncode, completed.stdout)
        return completed.stdout

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

    def test_the_package_is_installed_in_place_with_what_a_node_needs(self):
        for services, extras in (('n-api,n-cpu,n-sch', '[nova]'),
                                 ('n-api,n-sch,gnocchi-api',
                                  '[gnocchi,nova]')):
            self.run_phases('stack,pre-install', 'stack,install',
                            ENABLED_SERVICES=services)
            line = self.lines('pip.log')[-1]
            self.assertEqual('install', line.split()[0])
            self.assertTrue(line.endswith(f'-e {PROJECT}{extras}'), line)
        self.assertEqual(2, len(self.lines('pip.log')))

    def test_a_node_with_computes_only_gets_nothing(self):
        # As DevStack's guide to several nodes enables services there.
        output = self.run_phases(
            'stack,pre-install', 'stack,install', 'stack,post-config',
            'stack,extra', 'stack,test-config', 'unstack', 'clean',
            ENABLED_SERVICES='n-cpu,c-vol,placement-client,'
                             'ovn-controller,ovs-vswitchd,ovsdb-server,'
                             'q-ovn-metadata-agent,ceilometer-acompute')
        self.assertEqual([], self.lines('pip.log'))
        self.assertEqual([], self.lines('systemctl.log'))
        self.assertEqual(NOVA_CONF, self.nova_conf.read_text())
        self.assertFalse(self.our_conf.parent.exists())
        self.assertFalse(self.state.exists())
        self.assertNotIn('vswitch-modeler', output)

    def test_a_node_with_the_api_only_gets_the_package_only(self):
        output = self.run_phases(
            'stack,pre-install', 'stack,install', 'stack,post-config',
            'stack,extra', ENABLED_SERVICES='n-api,gnocchi-api')
        line, = self.lines('pip.log')
        self.assertTrue(line.endswith(f'-e {PROJECT}'), line)
        self.assertEqual(NOVA_CONF, self.nova_conf.read_text())
        self.assertNotIn('vswitch-modeler', output)

    def test_what_the_plugin_cannot_use_is_refused_at_once(self):
        old_python = self.root / 'bin/old-python'
        self._command(old_python, '#!/bin/bash\n'
                      '[[ $1 == --version ]] && echo "Python 3.10.9"\n')
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

    def _configure(self, text, **environment):
        self.nova_conf.write_text(text)
        self.run_phases('stack,post-config', **environment)
        return self.read(self.nova_conf)

    def test_nova_finds_the_filter_and_the_weigher(self):
        scheduler = self._configure(NOVA_CONF).filter_scheduler
        classes = nova_filters.HostFilterHandler().get_matching_classes(
            scheduler.available_filters)
        self.assertLessEqual(set(scheduler.enabled_filters),
                             {plugin.__name__ for plugin in classes})
        self.assertIn(filters.VSwitchFilter, classes)
        self.assertEqual('VSwitchFilter', scheduler.enabled_filters[-1])
        self.assertIn(
            weights.VSwitchWeigher,
            nova_weights.HostWeightHandler().get_matching_classes(
                scheduler.weight_classes))

    def test_what_nova_has_by_default_is_kept(self):
        scheduler = self._configure(EMPTY_NOVA_CONF).filter_scheduler
        conf = cfg.ConfigOpts()
        nova_scheduler_conf.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        default = conf.filter_scheduler
        self.assertEqual(default.available_filters + [OUR_FILTER],
                         scheduler.available_filters)
        self.assertEqual(default.enabled_filters + ['VSwitchFilter'],
                         scheduler.enabled_filters)
        self.assertEqual(default.weight_classes + [OUR_WEIGHER],
                         scheduler.weight_classes)

    def test_what_others_have_added_is_kept(self):
        conf = self._configure(SHARED_NOVA_CONF)
        self.assertEqual(
            {'nova.scheduler.filters.compute_filter.ComputeFilter',
             'nova.scheduler.filters.io_ops_filter.IoOpsFilter', OUR_FILTER},
            set(conf.filter_scheduler.available_filters))
        self.assertEqual(3, len(conf.filter_scheduler.available_filters))
        self.assertEqual(['ComputeFilter', 'IoOpsFilter', 'VSwitchFilter'],
                         conf.filter_scheduler.enabled_filters)
        self.assertEqual(
            ['nova.scheduler.weights.ram.RAMWeigher', OUR_WEIGHER],
            conf.filter_scheduler.weight_classes)
        self.assertEqual(0.05, conf.vswitch_scheduler.overload_probability)

    def test_the_rest_of_the_file_is_left_alone(self):
        self._configure(NOVA_CONF)
        self.assertEqual([], [
            line for line in NOVA_CONF.splitlines()
            if not line.startswith('enabled_filters')
            and line not in self.nova_conf.read_text().splitlines()])

    def test_the_scheduler_and_the_commands_read_one_store(self):
        self.install('manage')
        url = f'sqlite:///{self.state}/vswitch.sqlite'
        for conf in (self._configure(NOVA_CONF), self.read(self.our_conf)):
            self.assertEqual(url, conf.vswitch_scheduler.store_url)
        # Made, and empty.
        self.assertEqual(0, store.Store(url).generation().number)
        self.assertEqual(0o600, self.our_conf.stat().st_mode & 0o777)

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
            with self.subTest(wanted=name):
                conf = self._configure(NOVA_CONF, **environment)
                self.assertEqual(
                    name, conf.vswitch_scheduler.default_switch_profile)

    def test_the_store_can_be_on_the_server_of_devstack(self):
        self.install('manage')
        self.nova_conf.write_text(NOVA_CONF)
        output = self.run_phases('stack,post-config', VSWITCH_STORE='database')
        self.assertIn('recreated vswitch', output)
        url = f'sqlite:///{self.root}/data/vswitch.sqlite'
        self.assertEqual(
            f'{url}?timeout=7&cache=private',
            self.read(self.nova_conf).vswitch_scheduler.store_url)
        self.assertEqual(0, store.Store(url).generation().number)
        self.assertFalse(self.state.exists())

    def test_the_store_can_be_anywhere(self):
        self.install('manage')
        url = f'sqlite:///{self.root}/elsewhere.sqlite'
        conf = self._configure(NOVA_CONF, VSWITCH_STORE=url)
        self.assertEqual(url, conf.vswitch_scheduler.store_url)
        self.assertEqual(0, store.Store(url).generation().number)

    def test_a_second_run_changes_nothing(self):
        for text in (NOVA_CONF, SHARED_NOVA_CONF, EMPTY_NOVA_CONF):
            with self.subTest(text=text):
                self._configure(text)
                texts = [path.read_text() for path in (
                    self.nova_conf, self.our_conf)]
                self.run_phases('stack,post-config')
                self.assertEqual(texts, [path.read_text() for path in (
                    self.nova_conf, self.our_conf)])

    def test_stacking_again_keeps_what_the_store_has(self):
        self.install('manage')
        url = f'sqlite:///{self.state}/vswitch.sqlite'
        self._configure(NOVA_CONF)
        store.Store(url).write()
        self._configure(NOVA_CONF)
        self.assertEqual(1, store.Store(url).generation().number)

    def test_tempest_may_rely_on_the_filter(self):
        for stated, expected in (
                ('ComputeFilter,SameHostFilter',
                 'ComputeFilter,SameHostFilter,VSwitchFilter'),
                ('all', 'all')):
            self.tempest_conf.write_text(
                '[compute-feature-enabled]\n'
                f'scheduler_enabled_filters = {stated}\n')
            for _ in range(2):
                self.run_phases('stack,test-config')
                self.assertEqual(
                    '[compute-feature-enabled]\n'
                    f'scheduler_enabled_filters = {expected}\n',
                    self.tempest_conf.read_text())

    def test_tempest_takes_every_filter_where_it_is_told_none(self):
        self.tempest_conf.write_text('[compute-feature-enabled]\n')
        self.run_phases('stack,test-config')
        self.assertEqual('[compute-feature-enabled]\n',
                         self.tempest_conf.read_text())


class ServiceTest(PhasesTestCase):

    UNIT = 'devstack@vswitch-modeler.service'

    def _install_modeler(self):
        self._command('venv/bin/vswitch-modeler', '#!/bin/bash\n')

    def test_the_modeler_runs_as_a_service_until_unstack(self):
        self._install_modeler()
        output = self.run_phases('stack,post-config', 'stack,extra')
        self.assertIn('ENABLED_SERVICES=n-api,n-cpu,n-sch,vswitch-modeler',
                      output)
        self.assertIn(
            f'ExecStart = {self.root}/venv/bin/vswitch-modeler --config-file '
            f'{self.our_conf}', (self.units / self.UNIT).read_text())
        self.assertIn(f'start {self.UNIT}', self.lines('systemctl.log'))
        self.run_phases('unstack')
        self.assertEqual([f'stop {self.UNIT}', f'disable {self.UNIT}'],
                         self.lines('systemctl.log')[-2:])
        self.run_phases('unstack')
        self.assertEqual(f'is-enabled {self.UNIT}',
                         self.lines('systemctl.log')[-1])

    def test_a_missing_modeler_is_told_and_stops_nothing(self):
        output = self.run_phases('stack,post-config', 'stack,extra')
        self.assertIn(f'no modeler: {self.root}/venv/bin/vswitch-modeler is '
                      f'missing', output)
        self.assertEqual([], self.lines('systemctl.log'))

    def test_the_modeler_can_be_switched_off(self):
        self._install_modeler()
        output = self.run_phases('stack,post-config', 'stack,extra',
                                 DISABLED_SERVICES='vswitch-modeler')
        self.assertNotIn('no modeler', output)
        self.assertEqual([], self.lines('systemctl.log'))

    def test_the_computes_do_not_get_the_url_of_the_store(self):
        self.run_phases('stack,post-config')
        # As lib/nova does before it starts nova-compute.
        shutil.copy(self.nova_conf, self.nova_cpu_conf)
        self.run_phases('stack,extra')
        self.assertNotIn('store_url', self.nova_cpu_conf.read_text())
        self.assertIn('store_url', self.nova_conf.read_text())


class ModelerTest(PhasesTestCase):
    """The modeler on the configuration that the phases have written."""

    PHASES = ('stack,pre-install', 'stack,install', 'stack,post-config',
              'stack,extra')

    def setUp(self):
        super().setUp()
        self._command('venv/bin/vswitch-modeler', '#!/bin/bash\n')

    def stack(self, **environment):
        """Run the phases; return what they print and our options."""
        output = self.run_phases(*self.PHASES, **environment)
        conf = self.read(self.our_conf)
        self.assertEqual(0o600, self.our_conf.stat().st_mode & 0o777)
        return output, conf

    def modeler_until(self, *words):
        """Run the service that was started; return its last heartbeat.

        It is ended once systemd has been told all of some words.
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

    def test_without_telemetry_it_waits_and_status_says_what_for(self):
        self.install('manage', 'modeler')
        output, conf = self.stack()
        self.assertIn('vswitch-modeler waits for telemetry', output)
        modeler = self.modeler_until('STATUS=waiting: telemetry is not '
                                     'configured')
        self.assertIn('[vswitch_gnocchi]', modeler.waiting_for)
        checks = status.Checks(conf)
        self.assertEqual(upgradecheck.Code.SUCCESS,
                         checks._check_profiles().code)
        store.Store(conf.vswitch_scheduler.store_url).report_modeler(
            dataclasses.replace(modeler, ended=False))
        result = checks._check_generation()
        self.assertEqual(upgradecheck.Code.WARNING, result.code)
        self.assertIn('see what vswitch-modeler waits for', result.details)
        result = checks._check_modelers()
        self.assertEqual(upgradecheck.Code.WARNING, result.code)
        self.assertIn('[vswitch_gnocchi]; set the URL', result.details)

    def test_gnocchi_is_read_where_its_plugin_is_enabled(self):
        services = ('n-api,n-sch,prometheus,gnocchi-api,gnocchi-metricd,'
                    'ceilometer-acompute')
        output, conf = self.stack(ENABLED_SERVICES=services)
        self.assertNotIn('waits', output)
        self.assertEqual('gnocchi', conf.vswitch_scheduler.telemetry_driver)
        access = options.telemetry_options(conf, 'gnocchi')['access']
        self.assertEqual({
            'auth_type': 'password', 'username': 'nova',
            'auth_url': 'http://127.0.0.1:1/identity',
            'password': 'pass word', 'project_name': 'service',
            'user_domain_name': 'Default', 'project_domain_name': 'Default'},
            access['auth'])
        self.assertEqual(('RegionOne', None),
                         (access['region_name'], access['cafile']))
        _, conf = self.stack(ENABLED_SERVICES=services + ',tls-proxy',
                             SSL_BUNDLE_FILE='/data/ca-bundle.pem')
        self.assertEqual('/data/ca-bundle.pem', conf.vswitch_gnocchi.cafile)

    def test_nova_says_which_instances_there_are(self):
        # Telemetry is believed only about these.
        for path in (self.root / 'traffic.csv', 'none'):
            _, conf = self.stack(VSWITCH_TELEMETRY=str(path))
            access = options.inventory_options(conf)['access']
            self.assertEqual(
                ('password', 'nova', 'pass word', 'RegionOne'),
                (access['auth']['auth_type'], access['auth']['username'],
                 access['auth']['password'], access['region_name']))

    def test_prometheus_is_read_where_it_is_enabled_and_waited_for(self):
        services = 'n-api,n-sch,prometheus'
        _, conf = self.stack(ENABLED_SERVICES=services)
        self.assertEqual('http://127.0.0.1:9090',
                         conf.vswitch_prometheus.endpoint_override)
        self.install('manage', 'modeler')
        # Nobody answers there. It is tried three times first.
        _, conf = self.stack(ENABLED_SERVICES=services,
                             VSWITCH_PROMETHEUS_URL='http://127.0.0.1:1')
        self.our_conf.write_text(self.our_conf.read_text().replace(
            '[vswitch_prometheus]',
            '[vswitch_prometheus]\nconnect_retries = 0'))
        modeler = self.modeler_until('pass failed, models stay as they are: '
                                     'telemetry prometheus http://127.0.0.1')
        self.assertIn('http://127.0.0.1:1', modeler.waiting_for)

    def test_a_file_is_read_where_its_path_is_set(self):
        self.install('manage', 'modeler')
        path = self.root / 'traffic.csv'
        path.write_text('instance,time,egress_kbps,ingress_kbps\n' + ''.join(
            f'web,{1_700_000_100 + 300 * number},{number % 7 + 1},2\n'
            for number in range(40)))
        _, conf = self.stack(VSWITCH_TELEMETRY=str(path))
        self.assertEqual(
            ('file', str(path)), (conf.vswitch_scheduler.telemetry_driver,
                                  conf.vswitch_scheduler.telemetry_path))
        modeler = self.modeler_until('STATUS=generation 1: 40 new samples, 1 '
                                     'models fitted')
        self.assertEqual((1, None), (modeler.passes, modeler.waiting_for))

    def test_none_is_none_whatever_is_enabled(self):
        output, _ = self.stack(ENABLED_SERVICES='n-sch,gnocchi-api,prometheus',
                               VSWITCH_TELEMETRY='none')
        self.assertIn('vswitch-modeler waits for telemetry', output)
        self.assertNotIn('telemetry_driver', self.our_conf.read_text())


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

    def test_a_documented_line_clones_what_it_names(self):
        # enable_plugin clones as DevStack's git_clone does.
        line, = (line.strip() for line
                 in (PROJECT / 'devstack/README.rst').read_text().splitlines()
                 if 'enable_plugin vswitch_aware' in line)
        with tempfile.TemporaryDirectory() as root:
            script = textwrap.dedent('''
                set -e
                git init -q -b main "$1/origin"
                git -C "$1/origin" -c user.name=n \\
                    -c user.email=e@example.org commit -q --allow-empty -m 1
                function enable_plugin {
                    git clone -q --branch "${3:-master}" "$2" "$ROOT/$1"
                }
                ROOT=$1
                eval "${2/URL/$1/origin}"
                ''')
            subprocess.run(['bash', '-c', script, 'bash', root, line],
                           stdin=subprocess.DEVNULL, check=True,
                           env={'PATH': os.environ['PATH'], 'HOME': root})
            self.assertTrue(pathlib.Path(
                root, 'vswitch_aware_scheduler/.git').is_dir())

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


class CleanTest(PhasesTestCase):

    ALL = ('stack,pre-install', 'stack,install', 'stack,post-config',
           'stack,extra', 'stack,test-config')

    def test_clean_restores_the_files_byte_for_byte(self):
        tempest = ('[compute-feature-enabled]\n'
                   'scheduler_enabled_filters = ComputeFilter\n')
        for text in (NOVA_CONF, SHARED_NOVA_CONF, EMPTY_NOVA_CONF):
            with self.subTest(text=text):
                self.nova_conf.write_text(text)
                self.tempest_conf.write_text(tempest)
                self.run_phases(*self.ALL, 'stack,post-config')
                self.assertNotEqual(text, self.nova_conf.read_text())
                self.run_phases('unstack', 'clean')
                self.assertEqual(text, self.nova_conf.read_text())
                self.assertEqual(tempest, self.tempest_conf.read_text())
                self.assertFalse(self.our_conf.parent.exists())
                self.assertFalse(self.state.exists())

    def test_clean_keeps_what_others_have_added_since(self):
        self.run_phases('stack,post-config')
        text = self.nova_conf.read_text()
        text = text.replace(',VSwitchFilter\n',
                            ',VSwitchFilter,LateFilter\n')
        text = text.replace(OUR_WEIGHER, OUR_WEIGHER + ',late.Weigher')
        text = text.replace(f'available_filters = {OUR_FILTER}\n',
                            f'available_filters = {OUR_FILTER}\n'
                            f'available_filters = late.LateFilter\n')
        self.nova_conf.write_text(text + '\n[late]\noption = 1\n')
        self.run_phases('clean')
        text = self.nova_conf.read_text()
        self.assertNotIn('VSwitch', text)
        self.assertNotIn('vswitch', text)
        self.assertIn('\n\n[late]\noption = 1\n', text)
        scheduler = self.read(self.nova_conf).filter_scheduler
        self.assertEqual(['nova.scheduler.filters.all_filters',
                          'late.LateFilter'], scheduler.available_filters)
        self.assertEqual(['ComputeFilter', 'ImagePropertiesFilter',
                          'SameHostFilter', 'LateFilter'],
                         scheduler.enabled_filters)
        self.assertEqual(['nova.scheduler.weights.all_weighers',
                          'late.Weigher'], scheduler.weight_classes)

    def test_clean_takes_back_what_local_conf_has_set_for_this_package(self):
        self.run_phases('stack,post-config')
        self.nova_conf.write_text(self.nova_conf.read_text().replace(
            '[vswitch_scheduler]\n',
            '[vswitch_scheduler]\noverload_probability = 0.1\n'))
        self.run_phases('clean')
        self.assertEqual(NOVA_CONF, self.nova_conf.read_text())

    def test_clean_keeps_files_of_the_operator(self):
        self.run_phases('stack,post-config')
        own = self.our_conf.parent / 'switch_profiles.yaml'
        own.write_text('{}\n')
        self.run_phases('clean')
        self.assertEqual([own], list(self.our_conf.parent.iterdir()))

    def test_clean_of_what_was_never_stacked_changes_nothing(self):
        for text in (NOVA_CONF, SHARED_NOVA_CONF):
            self.nova_conf.write_text(text)
            self.run_phases('unstack', 'clean')
            self.assertEqual(text, self.nova_conf.read_text())

    def test_clean_works_when_the_files_are_gone(self):
        self.run_phases('stack,post-config')
        self.nova_conf.unlink()
        self.run_phases('clean')
        self.run_phases('clean')
        self.assertFalse(self.nova_conf.exists())
        self.assertFalse(self.our_conf.parent.exists())


@unittest.skipUnless(DEVSTACK_DIR, 'DEVSTACK_DIR names no DevStack')
class StandInTest(PhasesTestCase):
    """The stand-in changes files as DevStack's functions do."""

    CALLS = '''
        iniset FILE new option value
        iniset FILE filter_scheduler enabled_filters 'A,B?x=1&y=\\\\2'
        iniset FILE filter_scheduler more 1
        iniadd_literal FILE filter_scheduler available_filters c.C
        iniget_multiline FILE filter_scheduler available_filters
        iniget_multiline FILE filter_scheduler nothing
        iniset_multiline FILE filter_scheduler weight_classes x.X y.Y
        iniset_multiline FILE newer multi a.A b.B
        iniget FILE filter_scheduler enabled_filters
        iniget FILE filter_scheduler nothing
        iniget FILE nowhere nothing
        ini_has_option FILE filter_scheduler more && echo yes
        ini_has_option FILE zvm more || echo no
        inidelete FILE filter_scheduler available_filters
        inidelete FILE vswitch_scheduler overload_probability
        '''

    def test_both_do_the_same_to_a_file(self):
        output, text = [], []
        for functions in (FUNCTIONS, STANDIN):
            output.append([])
            text.append([])
            for original in (NOVA_CONF, SHARED_NOVA_CONF, EMPTY_NOVA_CONF):
                self.nova_conf.write_text(original)
                for call in self.CALLS.strip().splitlines():
                    call = call.strip().replace('FILE', '"$NOVA_CONF"')
                    output[-1].append(subprocess.run(
                        ['bash', '-c', f'. "$FUNCTIONS"; {call}'],
                        env={**self.environment,
                             'FUNCTIONS': str(functions)},
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                        text=True, check=False).stdout.strip())
                    text[-1].append((call, self.nova_conf.read_text()))
        self.assertEqual(*output)
        for real, stand_in in zip(*text):
            self.assertEqual(real, stand_in)


class NovaDefaultsTest(unittest.TestCase):

    def test_the_options_that_the_plugin_asks_nova_for_exist(self):
        # The plugin asks the nova that it is installed beside; this is the
        # kind of each option that its shell functions count on.
        kinds = {option.name: type(option) for option
                 in nova_scheduler_conf.filter_scheduler_opts}
        self.assertIs(cfg.MultiStrOpt, kinds['available_filters'])
        self.assertIs(cfg.ListOpt, kinds['enabled_filters'])
        self.assertIs(cfg.ListOpt, kinds['weight_classes'])
        self.assertIsInstance(nova_conf.CONF, cfg.ConfigOpts)
