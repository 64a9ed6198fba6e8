# SPDX-License-Identifier: Apache-2.0

import errno
import importlib.metadata
import json
import os
import pathlib
import time
from unittest import mock

from tests.fakes import nova_files
from tests.fakes import nova_hosts
from tests.fakes import store as fake_store
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.cmd import status
from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import plans

(SCHEMA, ACCESS, ROWS, GENERATION, MODELERS, PROFILES, AGGREGATES,
 NOVA) = (
    'Store Schema', 'Store Access', 'Stored Rows', 'Last Generation',
    'Modelers', 'Switch Profiles', 'Host Aggregates', 'Nova Release')
TELEMETRY, SCHEDULERS, OPTIONS = 'Telemetry', 'Schedulers', 'Options'
NOVA_OPTIONS, FLAVORS = 'Nova Options', 'Flavors'
BUDGETS = 'Error Budgets'
MARGIN = 'Prediction Margin'


class StatusCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.config = os.path.join(self.directory, 'vswitch.conf')
        # What is in /etc of this machine is of no concern here.
        self.enterContext(nova_files.below(self.directory))
        self.configure()

    def configure(self, *lines):
        pathlib.Path(self.config).write_text('\n'.join([
            '[vswitch_scheduler]', f'store_url = {self.url}',
            *([] if any(line.startswith('default_switch_profile')
                        for line in lines)
              else ['default_switch_profile = ovs-vxlan']), *lines]))

    def run_command(self, *words):
        return commands.run(
            status.main, ['--config-file', self.config, *words])

    def check(self):
        """Return (exit status, {check: (code, details)})."""
        code, output, errors = self.run_command('check', '--json')
        self.assertEqual('', errors)
        return code, {entry['check']: (entry['result'], entry['details'])
                      for entry in json.loads(output)['checks']}

    def assert_told(self, code, check, words):
        status_code, checks = self.check()
        self.assertEqual(code, status_code)
        self.assertEqual(code, checks[check][0])
        self.assertRegex(checks[check][1], words)

    def heartbeat(self, host='host1', **more):
        now = time.time()
        self.store.report_modeler(store.Modeler(**{
            'name': f'{host}-7', 'host': host, 'started_at': now - 5000,
            'seen_at': now - 10, 'interval_seconds': 300.0, **more}))

    def worker(self, name='ctl1:7', age=10.0, started=9999.0, **state):
        self.store.report_worker(store.Worker(
            name, name.partition(':')[0], time.time() - started,
            time.time() - age, {'plugins': ['filter', 'weigher'],
                                'cells': {'cell1': 2.0}, **state}))


class StatusTestCase(StatusCase):

    def test_all_is_well(self):
        self.make_store().write([base.constant(1)], host_profiles=[
            store.HostProfile('host1', 'ovs-vxlan-1g',
                              {'saturation_kbps': 1e6})])
        code, checks = self.check()
        self.assertEqual(0, code, checks)
        self.assertEqual({SCHEMA, ACCESS, ROWS, GENERATION, MODELERS,
                          PROFILES, AGGREGATES, NOVA, TELEMETRY,
                          SCHEDULERS, OPTIONS, NOVA_OPTIONS, FLAVORS,
                          BUDGETS, MARGIN},
                         set(checks))
        self.assertRegex(checks[GENERATION][1], r'^generation 1 was .* ago$')
        code, output, _ = self.run_command('upgrade', 'check')
        self.assertEqual(0, code)
        self.assertEqual(15, output.count('Result: Success'))

    def test_profiles_that_were_measured_elsewhere_are_named(self):
        self.make_store().write([base.constant(1)], host_profiles=[
            store.HostProfile('host1', 'ovs-vxlan')])
        code, checks = self.check()
        self.assertEqual(0, code)
        self.assertRegex(
            checks[PROFILES][1], 'not measured here: ovs-vxlan; to measure '
            'it, run "vswitch-calibrate remote .* --encapsulation vxlan')

    def test_damaged_rows_are_a_warning_that_names_them(self):
        self.make_store().write([base.constant(n) for n in range(3)])
        self.execute("UPDATE traffic_model SET law = 'x' WHERE "
                     'instance_uuid = :uuid', uuid=base.instance_uuid(2))
        self.assert_told(1, ROWS, f'1 rows .*{base.instance_uuid(2)}')

    def test_a_store_that_is_not_there_is_a_failure(self):
        self.assert_told(2, SCHEMA, 'there is no such file')
        self.assertFalse(os.path.exists(self.path))

    def test_an_older_and_a_newer_schema_are_told_apart(self):
        self.make_store()
        self.execute("UPDATE alembic_version SET version_num = '0001'")
        self.assert_told(2, SCHEMA, 'has version 0001; expected version .* '
                                    'run "vswitch-manage db sync"')
        self.execute("UPDATE alembic_version SET version_num = '0017'")
        self.assert_told(2, SCHEMA, 'has version 0017; .* remove its tables')
        self.execute("UPDATE alembic_version SET version_num = '9999'")
        self.assert_told(2, SCHEMA, 'has version 9999.* upgrade this package')

    def test_a_store_in_which_nothing_is_yet_says_what_to_do(self):
        self.store = self.make_store()
        self.assert_told(1, GENERATION, 'the store is empty.*: start '
                                        'vswitch-modeler, or run')
        self.assert_told(1, MODELERS, 'no vswitch-modeler has reported')
        self.heartbeat(waiting_for='url is not set',
                       waiting_since=time.time() - 60)
        self.assert_told(1, GENERATION, 'see what vswitch-modeler waits for')
        self.assert_told(1, MODELERS,
                         '^vswitch-modeler on host1 has been waiting since '
                         '.*Z: url is not set; it has not completed a pass$')
        self.heartbeat(passes=1, passed_at=time.time() - 9,
                       outcome='generation 0: 0 new samples')
        self.assert_told(1, GENERATION, 'vswitch-modeler runs, .* 24 samples '
                                        '.*; wait')
        self.assertEqual(0, self.check()[1][MODELERS][0])

    def test_an_old_generation_is_a_warning_and_may_be_allowed(self):
        now = time.time()
        self.make_store().write([base.constant(1)], now=now - 90000)
        self.assert_told(1, GENERATION,
                         r'900\d\d s ago; expected at most .* 86400 s')
        self.configure('max_generation_age_seconds = 0')
        self.assertEqual(0, self.check()[0])

    def test_a_generation_of_the_future_is_a_warning(self):
        target = self.make_store()
        target.write([base.constant(1)], now=time.time() + 30)
        self.assertEqual(0, self.check()[0])
        target.write([base.constant(1)], now=time.time() + 5000)
        self.assert_told(1, GENERATION, 's in the future: the clock')

    def test_profiles_that_do_not_exist_are_named(self):
        self.make_store().write([base.constant(1)], host_profiles=[
            store.HostProfile('host1', 'nosuch'),
            store.HostProfile('host2', None, {'saturation_kbps': -1})])
        self.configure('default_switch_profile = other')
        self.assert_told(2, PROFILES, "^default_switch_profile is 'other'; "
                                      "the stored profile of host host1 is "
                                      "'nosuch'; expected one of ")
        self.configure('default_switch_profile = ovs-vxlan-1g')
        self.assert_told(2, PROFILES, 'host host2: .*-1')

    def test_a_bad_option_is_an_error_of_one_line(self):
        self.configure('min_samples = 1')
        code, output, errors = self.run_command('check')
        self.assertEqual((255, '', 1), (code, output, errors.count('\n')))
        self.assertRegex(errors, '^vswitch-status: .*min_samples')

    def test_no_model_yet_is_a_warning(self):
        self.make_store().write(host_profiles=[
            store.HostProfile('host1', 'ovs-vxlan')])
        self.assert_told(1, GENERATION, 'no instance has a traffic model '
                                        'yet: start vswitch-modeler')

    def test_passwords_are_not_shown(self):
        self.configure()
        pathlib.Path(self.config).write_text(
            '[vswitch_scheduler]\nstore_timeout_seconds = 1\nstore_url = '
            'mysql+pymysql://user:open-sesame@127.0.0.1:1/vswitch\n')
        code, output, errors = self.run_command('check')
        self.assertEqual(2, code)
        self.assertNotIn('open-sesame', output + errors)


class ModelStatusTestCase(StatusCase):
    """With a store that has a model."""

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.store.write([base.constant(1)])

    def test_files_that_others_may_open_are_a_warning(self):
        for path, mode, back, message in (
                (self.path, 0o644, 0o640, 'vswitch.sqlite: 0644.* 0640'),
                (self.path, 0o642, 0o640, 'vswitch.sqlite: 0642.* 0640'),
                (self.directory, 0o755, 0o750, ': 0755; expected 0750')):
            os.chmod(path, mode)
            self.assert_told(1, ACCESS, message)
            os.chmod(path, back)
        self.assertEqual(0, self.check()[0])

    def test_telemetry_that_is_compared_with_nothing_is_a_warning(self):
        gnocchi = ['[vswitch_gnocchi]',
                   'endpoint_override = http://127.0.0.1:1']
        self.configure(*gnocchi)
        self.assert_told(1, TELEMETRY, 'every instance .* counts.*auth_type '
                                       'and its options in the group')
        self.configure(*gnocchi, '[vswitch_inventory]', 'path = /a')
        self.assert_told(0, TELEMETRY, 'only instances in the inventory')

    def test_what_counts_without_a_telemetry_service_is_told(self):
        for inventory in ([], ['[vswitch_inventory]', 'path = /a']):
            self.configure(*inventory)
            self.assert_told(0, TELEMETRY, '^no telemetry service is conf')
            self.configure('telemetry_driver = file', *inventory)
            self.assert_told(0, TELEMETRY, '^the modeler reads files, and '
                                           'every instance')

    def test_a_nova_that_believes_a_members_rebuild_hint_is_a_warning(self):
        versions = {'31.0.0': '31.3.1', '31.3.0': '31.3.1',
                    '32.2.0': '32.2.1', '33.0.0': '33.0.2',
                    '33.0.1.dev7': '33.0.2', '30.3.0': '31 to 34',
                    '35.0.0': '31 to 34', 'unknown': '31 to 34'}
        for version, message in versions.items():
            with self.subTest(version), mock.patch.object(
                    importlib.metadata, 'version', return_value=version):
                self.assert_told(1, NOVA, f'^nova {version} .*{message}')

    def test_a_nova_that_strips_the_hint_is_well_and_so_is_none(self):
        for version in ('31.3.1', '32.2.1', '32.10.0', '33.0.2', '34.0.0',
                        '34.0.0.0rc1',
                        importlib.metadata.PackageNotFoundError):
            with self.subTest(version), mock.patch.object(
                    importlib.metadata, 'version', side_effect=[version]):
                self.assert_told(0, NOVA, '^nova ')

    def test_models_of_fit_need_no_modeler(self):
        self.assert_told(0, MODELERS, '^no vswitch-modeler has reported')

    def test_a_modeler_that_is_silent_is_a_warning_until_it_is_replaced(self):
        now = time.time()
        self.heartbeat(seen_at=now - 4000)
        self.assert_told(1, MODELERS, 'host1 has not reported since .*; start '
                                      'vswitch-modeler$')
        self.heartbeat('host2')
        self.assert_told(1, MODELERS, '^vswitch-modeler on host1 has not .*; '
                                      'vswitch-modeler on host2 runs every '
                                      '300 s.*; see its log on that host$')
        self.heartbeat(name='x', started_at=now - 3900)
        self.assertEqual(0, self.check()[0])

    def test_modelers_that_have_ended_are_a_warning_when_none_runs(self):
        self.heartbeat(ended=True)
        self.assert_told(1, MODELERS, 'host1 ended at .*; start vswitch-')
        self.heartbeat('host2')
        self.assert_told(0, MODELERS, 'host2 runs every 300 s')

    def test_single_passes_are_no_modeler_that_has_ended(self):
        self.heartbeat(ended=True, interval_seconds=None, passes=1,
                       passed_at=time.time() - 9, outcome='generation 1')
        self.assert_told(0, MODELERS, 'host1 made a single pass; pass 1')

    def test_hosts_without_any_profile_are_a_warning(self):
        self.configure('default_switch_profile =')
        self.assert_told(1, PROFILES, 'no host has a switch profile.*passes '
                                      'every host, unless metadata of '
                                      'aggregates .*not read.*; set default')
        self.configure('default_switch_profile =',
                       'unknown_host_policy = reject')
        self.assert_told(1, PROFILES, 'refuses every host')
        self.store.write(host_profiles=[store.HostProfile('host1', None, {
            'saturation_kbps': 1e6})])
        self.assertEqual(0, self.check()[0])

    def test_profiles_of_aggregates_are_asked_for_where_that_is_allowed(self):
        cloud = self.enterContext(nova_hosts.NovaHosts())
        self.configure(
            'default_switch_profile =',
            '[vswitch_inventory]', 'auth_type = none', 'connect_retries = 0',
            'requests_per_second = 1000', f'endpoint = {cloud.url}',
            f'endpoint_override = {cloud.url}/v2.1')
        cloud.host('h1')
        self.assert_told(1, PROFILES, 'VSwitchFilter passes every host; set')
        cloud.host('h2', profile='ovs-vxlan')
        self.assertEqual(0, self.check()[0])
        path = pathlib.Path(self.config)
        path.write_text(path.read_text().replace(f'{cloud.url}/v2.1',
                                                 'http://127.0.0.1:1/'))
        self.assert_told(1, PROFILES, 'aggregates cannot be read')
        # Nova is not asked where the answer is known.
        path.write_text(path.read_text().replace(
            'default_switch_profile =', 'default_switch_profile = ovs-flat'))
        self.assertEqual(0, self.check()[1][PROFILES][0])

    def test_the_number_of_modelers_is_told(self):
        url = f'file://{self.directory}/modelers'
        self.configure(f'modeler_coordination_url = {url}')
        self.assert_told(1, MODELERS, 'no modeler is in the group')
        group = membership.ModelerGroup(url)
        self.addCleanup(group.leave)
        group.share(self.store.generation().store_id)
        self.assert_told(0, MODELERS, 'share the instances: 1')

    def test_a_backend_of_modelers_that_does_not_answer_is_a_failure(self):
        self.configure('modeler_coordination_url = nosuch://')
        self.assert_told(2, MODELERS, 'no response')

    def test_error_budgets_that_are_not_kept_or_not_known_are_told(self):
        self.assert_told(0, BUDGETS, 'there are no error budgets yet')
        now, earlier = time.time(), None
        for code, message, values in (
                (0, 'error budgets: 1, of which 0 overspent', {}),
                (1, 'last update: 80.. s ago', {'age': 8000.0}),
                (1, 'the traffic of 1 was not measured for most of the time, '
                 'so the budget does not grow: host h: 7300 s without and '
                 '7200 s with measured traffic: one of 2',
                 {'unknown_seconds': 7300.0, 'unknown_why': 'one of 2',
                  'measured_seconds': 7200.0}),
                (0, 'of which 1 overspent', {
                    'unknown_seconds': 7300.0, 'balance': -1.0,
                    'measured_seconds': 7400.0})):
            until = now - values.pop('age', 0.0)
            self.store.settle_budgets(store.BudgetState(300.0, now), [
                (earlier, fake_store.budget(until=until, **values))])
            earlier = until
            self.assert_told(code, BUDGETS, message)
        self.configure('error_budgets = false')
        self.assert_told(0, BUDGETS, 'error_budgets is not set')

    def test_a_margin_below_1_without_relief_is_a_warning(self):
        self.assert_told(0, MARGIN, 'of a host: 2$')
        self.configure('prediction_margin = .125')
        self.assert_told(1, MARGIN, 'of a host: 0.125; rebalance_mode is off')
        self.configure('prediction_margin = .125', 'rebalance_mode = advise')
        self.assert_told(0, MARGIN, 'of a host: 0.125$')
        # Aggregates decide for hosts.
        self.configure('prediction_margin = .125')
        for margin, code in ((1.0, 0), (.4, 1)):
            self.store.write_fleet({'host': {'h': policy_in_force.pack(
                admission.HostPolicy(None, prediction_margin=margin))}},
                time.time())
            self.assert_told(code, MARGIN, f'of a host: {margin:g}')
        # Somebody else makes plans, with the command or with Watcher.
        for age, code in ((8, 1), (6, 0)):
            plans.write_plan(
                self.store, plans.PlanRecord(
                    f'p{age}', time.time() - 86400 * age, 'timer'), [])
            self.assert_told(code, MARGIN, 'of a host: 0.4')

    def test_what_aggregates_state_and_cannot_be_used_is_a_failure(self):
        self.assert_told(0, AGGREGATES, 'not checked: Nova cannot be queried')
        cloud = self.enterContext(nova_hosts.NovaHosts())
        self.configure(
            '[vswitch_inventory]', 'auth_type = none', 'connect_retries = 0',
            f'endpoint = {cloud.url}', f'endpoint_override = {cloud.url}/v2.1')
        cloud.host('h0', saturation_kbps='0', uplink='tor',
                   uplink_saturation_kbps='10')
        self.assertEqual(0, self.check()[0])
        for value in ('-1', 'nan', 'inf', '1e400'):
            cloud.aggregates.clear()
            cloud.host('h1', saturation_kbps=value)
            self.assert_told(
                2, AGGREGATES, f"aggregate of h1: saturation_kbps: "
                               f"'{value}'; expected a number > 0")
        cloud.aggregates.clear()
        cloud.host('h0', uplink='tor', uplink_mapping_entries='many')
        self.assert_told(2, AGGREGATES, "uplink_mapping_entries: 'many'")

    def test_what_flavors_state_and_cannot_be_used_is_a_failure(self):
        self.assert_told(0, FLAVORS, 'not checked: no vswitch-modeler')
        learned = base.instance_uuid(1)
        self.store.write_fleet({'flavor': {
            'a': {}, 'b': {'vswitch:egress_kbps': '5'},
            'c': {'vswitch:model': learned}}}, time.time())
        self.assertEqual(0, self.check()[0])
        for specs, message in (
                ({'vswitch:egres_kbps': '5', 'vswitch:kpps': '1'},
                 '^flavor d: flavor extra spec vswitch:egres_kbps: .5.; .*'
                 'nearest name: vswitch:egress_kbps.*ignored$'),
                ({'vswitch:kpps': '-1'}, '^flavor d: .*whole number'),
                ({'vswitch:model': base.instance_uuid(2)},
                 '^flavor d: .*learned model')):
            self.store.write_fleet({'flavor': {
                'c': {'vswitch:model': learned}, 'd': specs}}, time.time())
            self.assert_told(2, FLAVORS, message)

    def test_aggregates_that_cannot_be_read_are_a_warning(self):
        self.configure(
            '[vswitch_inventory]', 'auth_type = none', 'connect_retries = 0',
            'endpoint = http://127.0.0.1:1',
            'endpoint_override = http://127.0.0.1:1/v2.1')
        self.assert_told(1, AGGREGATES, '^aggregates cannot be checked: .*:1')

    def test_hosts_that_nova_does_not_have_are_a_warning(self):
        self.store.write(host_profiles=[
            store.HostProfile('compute07', 'ovs-vxlan')])
        self.assertEqual(0, self.check()[0])
        facts = {'compute7': {**policy_in_force.pack(
            admission.HostPolicy(None)), 'in_nova': True}}
        self.store.write_fleet({'host': facts}, time.time())
        self.assert_told(1, PROFILES,
                         r'compute07 \(nearest name: compute7\)')
        self.store.write(
            host_profiles=[store.HostProfile('compute7', 'ovs-vxlan')],
            remove_hosts=['compute07'])
        self.assertEqual(0, self.check()[0])

    def test_a_bad_file_of_profiles_is_a_failure(self):
        path = pathlib.Path(self.directory, 'profiles.yaml')
        path.write_text('profiles: [')
        self.configure(f'switch_profiles_file = {path}')
        self.assert_told(2, PROFILES, str(path))

    def test_what_is_wrong_with_a_worker_is_a_warning(self):
        for state, message in (
                ({'cells': {'cell1': 2.0, 'cell2': 500.0}},
                 'worker ctl1:7 .*record of who is where in cell cell2 is '
                 r'51\d s old'),
                ({'cells': {'cell2': None}}, 'could not read cell cell2 yet'),
                ({'plugins': ['filter']},
                 'VSwitchWeigher is not enabled.*weight_classes'),
                ({'plugins': ['weigher']},
                 'VSwitchFilter is not enabled.*enabled_filters'),
                ({'problems': {'switch profiles of hosts':
                               'no host has one'}}, 'no host has one')):
            with self.subTest(**state):
                self.worker(**state)
                self.assert_told(1, SCHEDULERS, message)

    def test_a_cell_that_is_not_read_is_named_once_for_each_worker(self):
        for name in ('ctl1:7', 'ctl1:8'):
            self.worker(name, cells={'cell1': None}, problems={
                'record of cell cell1': 'no answer for 70 s'})
        _, checks = self.check()
        self.assertEqual('2 workers, ctl1:7 among them, of nova-scheduler: '
                         'it could not read cell cell1 yet',
                         checks[SCHEDULERS][1])

    def nova_options(self, *words):
        """Return (code, details) of the options of Nova."""
        _, output, errors = self.run_command(*words, 'check', '--json')
        self.assertEqual('', errors)
        return next((entry['result'], entry['details'])
                    for entry in json.loads(output)['checks']
                    if entry['check'] == NOVA_OPTIONS)

    def nova_conf(self, *lines, group='filter_scheduler'):
        """Write nova.conf where nova-scheduler finds it."""
        nova_files.write(self.directory, {
            'etc/nova/nova.conf': '\n'.join([f'[{group}]', *lines])})

    def test_plugins_that_nova_conf_leaves_out_are_a_warning(self):
        filters = 'enabled_filters = ComputeFilter,VSwitchFilter'
        weighers = ('weight_classes = nova.scheduler.weights.all_weighers,'
                    'vswitch_aware_scheduler.scheduler.weights.'
                    'VSwitchWeigher')
        path = f'{self.directory}/etc/nova/nova.conf'
        self.assertEqual((0, 'this machine has no configuration of '
                             'nova-scheduler'), self.nova_options())
        for lines, message in (
                (['enabled_filters = ComputeFilter'], f'neither.*; read: '
                                                      f'{path}$'),
                ([filters], 'VSwitchWeigher is not enabled'),
                ([weighers], 'VSwitchFilter is not enabled'),
                ([], 'neither')):
            self.nova_conf(*lines)
            code, details = self.nova_options()
            self.assertEqual(1, code)
            self.assertRegex(details, message)
        self.nova_conf(filters, weighers)
        self.assertEqual((0, f'read: {path}'), self.nova_options())

    def test_a_name_in_nova_conf_that_is_no_option_is_a_warning(self):
        self.nova_conf('enforcment = observe', group='vswitch_scheduler')
        self.assert_told(1, NOVA_OPTIONS, 'etc/nova/nova.conf: option in .*: '
                                          'enforcment; expected enforcement')

    def test_a_nova_conf_of_the_command_line_counts(self):
        self.nova_conf('enabled_filters = VSwitchFilter')
        path = os.path.join(self.directory, 'nova.conf')
        pathlib.Path(path).write_text('[filter_scheduler]\n'
                                      'enabled_filters = ComputeFilter\n')
        code, details = self.nova_options('--config-file', path)
        self.assertEqual(1, code)
        self.assertRegex(details, f'^neither .*; read: {path}$')

    def test_a_machine_without_scheduler_may_have_a_nova_conf(self):
        self.nova_conf('url = x', group='neutron')
        self.worker()
        self.assertEqual(0, self.nova_options()[0])
        # This sets the option.
        self.nova_conf('enabled_filters = ComputeFilter')
        self.assertEqual(1, self.nova_options()[0])

    def test_what_nova_scheduler_cannot_read_is_a_warning(self):
        self.nova_conf('max_placement_results = 0', group='scheduler')
        code, details = self.nova_options()
        self.assertEqual(1, code)
        self.assertIn('nova-scheduler cannot read its configuration', details)

    def test_what_this_user_may_not_read_is_told(self):
        self.nova_conf('enabled_filters = ComputeFilter')
        real = open

        def refuse(path, *arguments, **keywords):
            if str(path).endswith('nova.conf'):
                raise PermissionError(errno.EACCES, 'no', path)
            return real(path, *arguments, **keywords)

        # The tests may run as root, who may read everything.
        with mock.patch('builtins.open', refuse):
            code, details = self.nova_options()
        self.assertEqual(0, code)
        self.assertRegex(details, 'configuration of nova-scheduler not read: '
                                  '.*etc/nova/nova.conf')

    def test_hosts_that_placement_leaves_out_are_a_warning(self):
        hosts = {f'h{number}': {**policy_in_force.pack(
            admission.HostPolicy(None)), 'in_nova': number < 8}
            for number in range(9)}
        self.store.write_fleet({'host': hosts}, time.time())
        self.nova_conf('max_placement_results = 7', group='scheduler')
        self.worker()
        code, details = self.nova_options()
        self.assertEqual(1, code)
        self.assertRegex(details, r'\[scheduler\]/max_placement_results of '
                                  'nova.conf is 7, and Nova has 8 hosts')
        # A worker has read other files.
        self.worker(max_placement_results=8)
        self.assertEqual(0, self.nova_options()[0])
        self.worker('ctl2:7', max_placement_results=1)
        self.assertIn('is 1, and', self.nova_options()[1])

    def test_unknown_hosts_of_nova_are_not_counted(self):
        self.store.write_fleet({'host': {
            'h': policy_in_force.pack(admission.HostPolicy(None))}},
            time.time())
        self.worker(max_placement_results=1)
        self.assertEqual(0, self.nova_options()[0])

    def test_a_worker_that_is_silent_is_a_warning(self):
        self.worker(age=600.0)
        self.assert_told(1, SCHEDULERS, r'on ctl1 has reported for 60\d s')
        # It was started again.
        self.worker('ctl1:8')
        self.assertEqual(0, self.check()[0])

    def test_the_worker_before_a_restart_does_not_count(self):
        self.worker(age=100.0, cells={'cell1': None},
                    options={'enforcement': 'observe'},
                    problems={'store': 'gone'})
        code, checks = self.check()
        self.assertEqual((1, 1), (checks[SCHEDULERS][0],
                                  checks['Options'][0]))
        self.worker('ctl1:8', started=90.0)
        code, checks = self.check()
        self.assertEqual(
            (0, 'workers of nova-scheduler that report: 1', 0),
            (code, checks[SCHEDULERS][1], checks['Options'][0]))

    def test_workers_started_before_the_last_report_all_count(self):
        self.worker(age=50.0, started=70.0)
        self.worker('ctl1:8', started=60.0)
        self.worker('ctl2:7', age=200.0)
        self.assertEqual('workers of nova-scheduler that report: 3',
                         self.check()[1][SCHEDULERS][1])

    def test_no_worker_for_a_day_is_a_warning(self):
        now = time.time()
        self.heartbeat(started_at=now - 90000, passed_at=now,
                       passes=9)
        self.assert_told(1, SCHEDULERS, 'no worker .* in the last day: '
                                        'VSwitchFilter and VSwitchWeigher')

    def test_an_option_that_does_not_exist_is_a_warning(self):
        self.configure('enforcment = observe')
        self.assert_told(1, OPTIONS, r'group \[vswitch_scheduler\]: '
                                     'enforcment; expected enforcement, or')

    def test_options_that_differ_are_a_warning(self):
        self.worker(options={'overload_probability': .01,
                             'enforcement': 'enforce'})
        self.assertEqual(0, self.check()[0])
        self.worker(options={'overload_probability': .02,
                             'enforcement': 'enforce'})
        self.assert_told(1, OPTIONS, 'overload_probability is 0.01 here and '
                                     '0.02 in nova.conf of ctl1')
        self.worker()
        # Each modeler of a group has options of its own.
        self.heartbeat(options={'enforcement': 'enforce'})
        self.heartbeat('host2', options={'enforcement': 'observe'})
        self.assert_told(1, OPTIONS,
                         "enforcement is 'enforce' here and 'observe' in "
                         'vswitch.conf of vswitch-modeler on host2')
        # The options of a modeler that has ended are not in use.
        self.heartbeat('host2', options={'enforcement': 'observe'},
                       ended=True)
        self.assertEqual(0, self.check()[1][OPTIONS][0])

    def test_a_modeler_without_a_pass_for_longer_than_its_cycle(self):
        now = time.time()
        self.heartbeat(passed_at=now - 1700, passes=3)
        self.assertEqual(0, self.check()[0])
        self.heartbeat(passed_at=now - 1900, passes=3)
        self.assert_told(1, MODELERS, 'host1 has completed no pass for '
                                      'longer than its cycle')

    def test_options_of_configuration_may_stand_behind_the_command(self):
        for arguments in (['check', '--config-file', self.config, '--json'],
                          ['upgrade', f'--config-file={self.config}', 'check'],
                          ['--config-file', self.config, 'check']):
            self.assertEqual(0, commands.run(status.main, arguments)[0],
                             arguments)
        self.assertEqual(2, commands.run(
            status.main, ['check', '--config-file'])[0])
