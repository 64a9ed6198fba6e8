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

(SCHEMA, ACCESS, ROWS, GENERATION, MODELERS, SCHEDULERS, OPTIONS,
 NOVA_OPTIONS, TELEMETRY, PROFILES, AGGREGATES, FLAVORS, BUDGETS, MARGIN,
 NOVA) = NAMES = (
    'Store Schema', 'Store Access', 'Stored Rows', 'Last Generation',
    'Modelers', 'Schedulers', 'Options', 'Nova Options', 'Telemetry',
    'Switch Profiles', 'Host Aggregates', 'Flavors', 'Error Budgets',
    'Prediction Margin', 'Nova Release')


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

    def configure_inventory(self, url, override):
        self.configure(
            '[vswitch_inventory]', 'auth_type = none', 'connect_retries = 0',
            'requests_per_second = 1000', f'endpoint = {url}',
            f'endpoint_override = {override}')

    def run_command(self, *words):
        return commands.run(
            status.main, ['--config-file', self.config, *words])

    def check(self, *words):
        """Return (exit status, {check: (code, details)})."""
        code, output, errors = self.run_command(*words, 'check', '--json')
        self.assertEqual('', errors)
        return code, {entry['check']: (entry['result'], entry['details'])
                      for entry in json.loads(output)['checks']}

    def assert_told(self, code, check, message, *words):
        status_code, checks = self.check(*words)
        self.assertEqual((code, code), (status_code, checks[check][0]))
        self.assertRegex(checks[check][1] or '', f'(?:{message})')

    def write_hosts(self, in_nova):
        """Write facts of hosts: {name: whether Nova has the host, or None}."""
        facts = policy_in_force.pack(admission.HostPolicy(None))
        self.store.write_fleet({'host': {
            name: facts if known is None else {**facts, 'in_nova': known}
            for name, known in in_nova.items()}}, time.time())

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
        self.assertEqual(NAMES, tuple(checks))
        self.assertRegex(checks[GENERATION][1], r'^generation 1 was .* ago$')
        code, output, _ = self.run_command('upgrade', 'check')
        self.assertEqual((0, 15), (code, output.count('Result: Success')))

    def test_profiles_that_were_measured_elsewhere_are_named(self):
        self.make_store().write([base.constant(1)], host_profiles=[
            store.HostProfile('host1', 'ovs-vxlan')])
        self.assert_told(
            0, PROFILES, 'not measured here: ovs-vxlan; to measure it, run '
            '"vswitch-calibrate remote .* --encapsulation vxlan')

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
        for version, advice in (('0001', 'run "vswitch-manage db sync"'),
                                ('0017', 'remove its tables'),
                                ('9999', 'upgrade this package')):
            self.execute('UPDATE alembic_version SET version_num = :version',
                         version=version)
            self.assert_told(2, SCHEMA, f'has version {version}; expected '
                                        f'version .* {advice}')

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

    def test_a_generation_is_judged_by_its_models_and_its_age(self):
        target = self.make_store()
        target.write(host_profiles=[store.HostProfile('host1', 'ovs-vxlan')])
        self.assert_told(1, GENERATION, 'no instance has a traffic model '
                                        'yet: start vswitch-modeler')
        for seconds_ahead, code, message in (
                (5000, 1, 's in the future: the clock'), (30, 0, ''),
                (-90000, 1, r'900\d\d s ago; expected at most .* 86400 s')):
            target.write([base.constant(1)], now=time.time() + seconds_ahead)
            self.assert_told(code, GENERATION, message)
        self.configure('max_generation_age_seconds = 0')
        self.assertEqual(0, self.check()[0])

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
        path = pathlib.Path(self.directory, 'profiles.yaml')
        path.write_text('profiles: [')
        self.configure(f'switch_profiles_file = {path}')
        self.assert_told(2, PROFILES, str(path))

    def test_a_bad_option_is_an_error_of_one_line(self):
        self.configure('min_samples = 1')
        code, output, errors = self.run_command('check')
        self.assertEqual((255, '', 1), (code, output, errors.count('\n')))
        self.assertRegex(errors, '^vswitch-status: .*min_samples')

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
        for path, mode, expected in ((self.path, 0o644, 0o640),
                                     (self.path, 0o642, 0o640),
                                     (self.directory, 0o755, 0o750)):
            os.chmod(path, mode)
            self.assert_told(
                1, ACCESS, f'{path}: {mode:04o}; expected {expected:04o}')
            os.chmod(path, expected)
        self.assertEqual(0, self.check()[0])

    def test_telemetry_that_is_compared_with_nothing_is_a_warning(self):
        gnocchi = ['[vswitch_gnocchi]',
                   'endpoint_override = http://127.0.0.1:1']
        files = ['telemetry_driver = file']
        inventory = ['[vswitch_inventory]', 'path = /a']
        for code, lines, message in (
                (1, gnocchi, 'every instance .* counts.*auth_type and its '
                             'options in the group'),
                (0, gnocchi + inventory, 'only instances in the inventory'),
                *((0, more, '^no telemetry service is conf')
                  for more in ([], inventory)),
                *((0, files + more, '^the modeler reads files, and every '
                                    'instance') for more in ([], inventory))):
            with self.subTest(lines):
                self.configure(*lines)
                self.assert_told(code, TELEMETRY, message)

    def test_a_nova_that_believes_a_members_rebuild_hint_is_a_warning(self):
        for versions, code, message in (
                (['31.0.0', '31.3.0'], 1, 'expected 31.3.1'),
                (['32.2.0'], 1, 'expected 32.2.1'),
                (['33.0.0', '33.0.1.dev7'], 1, 'expected 33.0.2'),
                (['30.3.0', '35.0.0', 'unknown'], 1, '31 to 34'),
                (['31.3.1', '32.2.1', '32.10.0', '33.0.2', '34.0.0',
                  '34.0.0.0rc1', importlib.metadata.PackageNotFoundError],
                 0, '')):
            for version in versions:
                with self.subTest(version), mock.patch.object(
                        importlib.metadata, 'version', side_effect=[version]):
                    self.assert_told(code, NOVA, f'^nova .*{message}')

    def test_a_modeler_that_is_silent_is_a_warning_until_it_is_replaced(self):
        self.assert_told(0, MODELERS, '^no vswitch-modeler has reported')
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

    def test_modelers_that_have_ended_or_are_late_are_a_warning(self):
        now = time.time()
        for host, state, code, message in (
                ('host1', {'ended': True, 'interval_seconds': None,
                           'passes': 1, 'passed_at': now - 9,
                           'outcome': 'generation 1'}, 0,
                 'host1 made a single pass; pass 1'),
                ('host1', {'ended': True}, 1,
                 'host1 ended at .*; start vswitch-'),
                ('host2', {}, 0, 'host2 runs every 300 s'),
                ('host2', {'passed_at': now - 1700, 'passes': 3}, 0, ''),
                ('host2', {'passed_at': now - 1900, 'passes': 3}, 1,
                 'host2 has completed no pass for longer than its cycle')):
            self.heartbeat(host, **state)
            self.assert_told(code, MODELERS, message)

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
        self.configure_inventory(cloud.url, f'{cloud.url}/v2.1')
        path = pathlib.Path(self.config)
        path.write_text(path.read_text().replace('ovs-vxlan', ''))
        cloud.host('h1')
        self.assert_told(1, PROFILES, 'VSwitchFilter passes every host; set')
        cloud.host('h2', profile='ovs-vxlan')
        self.assertEqual(0, self.check()[0])
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
        # A backend that does not answer is a failure.
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
        self.configure_inventory(cloud.url, f'{cloud.url}/v2.1')
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
        nothing = 'http://127.0.0.1:1'
        self.configure_inventory(nothing, f'{nothing}/v2.1')
        self.assert_told(1, AGGREGATES, '^aggregates cannot be checked: .*:1')

    def test_hosts_that_nova_does_not_have_are_a_warning(self):
        self.store.write(host_profiles=[
            store.HostProfile('compute07', 'ovs-vxlan')])
        self.assertEqual(0, self.check()[0])
        self.write_hosts({'compute7': True})
        self.assert_told(1, PROFILES,
                         r'compute07 \(nearest name: compute7\)')
        self.store.write(
            host_profiles=[store.HostProfile('compute7', 'ovs-vxlan')],
            remove_hosts=['compute07'])
        self.assertEqual(0, self.check()[0])

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
        self.assert_told(1, SCHEDULERS,
                         '^2 workers, ctl1:7 among them, of nova-scheduler: '
                         'it could not read cell cell1 yet$')

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
        self.assert_told(0, NOVA_OPTIONS, '^this machine has no '
                                          'configuration of nova-scheduler$')
        for lines, message in (
                (['enabled_filters = ComputeFilter'], f'neither.*; read: '
                                                      f'{path}$'),
                ([filters], 'VSwitchWeigher is not enabled'),
                ([weighers], 'VSwitchFilter is not enabled'),
                ([], 'neither')):
            self.nova_conf(*lines)
            self.assert_told(1, NOVA_OPTIONS, message)
        self.nova_conf(filters, weighers)
        self.assert_told(0, NOVA_OPTIONS, f'^read: {path}$')

    def test_a_name_in_nova_conf_that_is_no_option_is_a_warning(self):
        self.nova_conf('enforcment = observe', group='vswitch_scheduler')
        self.assert_told(1, NOVA_OPTIONS, 'etc/nova/nova.conf: option in .*: '
                                          'enforcment; expected enforcement')

    def test_a_nova_conf_of_the_command_line_counts(self):
        self.nova_conf('enabled_filters = VSwitchFilter')
        path = os.path.join(self.directory, 'nova.conf')
        pathlib.Path(path).write_text('[filter_scheduler]\n'
                                      'enabled_filters = ComputeFilter\n')
        self.assert_told(1, NOVA_OPTIONS, f'^neither .*; read: {path}$',
                         '--config-file', path)

    def test_a_machine_without_scheduler_may_have_a_nova_conf(self):
        self.nova_conf('url = x', group='neutron')
        self.worker()
        self.assertEqual(0, self.check()[0])
        # This sets the option.
        self.nova_conf('enabled_filters = ComputeFilter')
        self.assert_told(1, NOVA_OPTIONS, 'neither')

    def test_what_nova_scheduler_cannot_read_is_a_warning(self):
        self.nova_conf('max_placement_results = 0', group='scheduler')
        self.assert_told(1, NOVA_OPTIONS,
                         'nova-scheduler cannot read its configuration')

    def test_what_this_user_may_not_read_is_told(self):
        self.nova_conf('enabled_filters = ComputeFilter')
        real = open

        def refuse(path, *arguments, **keywords):
            if str(path).endswith('nova.conf'):
                raise PermissionError(errno.EACCES, 'no', path)
            return real(path, *arguments, **keywords)

        # The tests may run as root, who may read everything.
        with mock.patch('builtins.open', refuse):
            self.assert_told(
                0, NOVA_OPTIONS, 'configuration of nova-scheduler not read: '
                                 '.*etc/nova/nova.conf')

    def test_hosts_that_placement_leaves_out_are_a_warning(self):
        self.write_hosts({f'h{number}': number < 8 for number in range(9)})
        self.nova_conf('max_placement_results = 7', group='scheduler')
        self.worker()
        self.assert_told(
            1, NOVA_OPTIONS, r'\[scheduler\]/max_placement_results of '
            'nova.conf is 7, and Nova has 8 hosts')
        # A worker has read other files.
        self.worker(max_placement_results=8)
        self.assertEqual(0, self.check()[0])
        self.worker('ctl2:7', max_placement_results=1)
        self.assert_told(1, NOVA_OPTIONS, 'is 1, and')
        # It is not known whether Nova has these hosts.
        self.write_hosts(dict.fromkeys('abc'))
        self.assertEqual(0, self.check()[0])

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
        for check in (SCHEDULERS, OPTIONS):
            self.assert_told(1, check, '')
        self.worker('ctl1:8', started=90.0)
        self.assert_told(0, SCHEDULERS,
                         '^workers of nova-scheduler that report: 1$')

    def test_workers_started_before_the_last_report_all_count(self):
        self.worker(age=50.0, started=70.0)
        self.worker('ctl1:8', started=60.0)
        self.worker('ctl2:7', age=200.0)
        self.assert_told(0, SCHEDULERS,
                         '^workers of nova-scheduler that report: 3$')

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

    def test_options_of_configuration_may_stand_behind_the_command(self):
        for arguments in (['check', '--config-file', self.config, '--json'],
                          ['upgrade', f'--config-file={self.config}', 'check'],
                          ['--config-file', self.config, 'check']):
            self.assertEqual(0, commands.run(status.main, arguments)[0],
                             arguments)
        self.assertEqual(2, commands.run(
            status.main, ['check', '--config-file'])[0])
