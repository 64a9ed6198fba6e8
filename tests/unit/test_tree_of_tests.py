# SPDX-License-Identifier: Apache-2.0
"""Where tests are: tests/unit has the tree of the package."""

import ast
import pathlib
import unittest

TESTS = pathlib.Path(__file__).parents[1]
PROJECT = TESTS.parent
PACKAGE = PROJECT / 'vswitch_aware_scheduler'

#: {module: test module in tests/unit} where several modules are tested as
#: one thing: the module that calls them has the tests.
TESTED_WITH = {
    'admission/aggregate_metadata.py': 'admission/test_host_policies.py',
    'budgets/measuring.py': 'budgets/test_accounts.py',
    'budgets/plan_input.py': 'budgets/test_proposal.py',
    'budgets/rebalance_settings.py': 'budgets/test_proposal.py',
    'budgets/settlement.py': 'budgets/test_accounts.py',
    'clients/neutron.py': 'modeler/test_instance_sync.py',
    'clients/openstack.py': 'clients/test_http.py',
    'clients/placement.py': 'clients/test_nova.py',
    'cmd/instances.py': 'cmd/subcommands/test_explain.py',
    'cmd/rates.py': 'cmd/subcommands/test_model.py',
    'cmd/report.py': 'cmd/subcommands/test_report.py',
    'common/metrics_server.py': 'modeler/test_metrics.py',
    'common/self_check.py': 'cmd/test_status.py',
    'conf/access.py': 'conf/test_opts.py',
    'conf/admission.py': 'conf/test_opts.py',
    'conf/inventory.py': 'conf/test_opts.py',
    'conf/modeler.py': 'conf/test_opts.py',
    'conf/rebalance.py': 'conf/test_opts.py',
    'conf/scheduler.py': 'conf/test_opts.py',
    'conf/store.py': 'conf/test_opts.py',
    'demo.py': 'lab/demo/test_clouds.py',
    'fleet/episodes.py': 'cmd/subcommands/test_fleet.py',
    'fleet/facts.py': 'modeler/test_cloud_facts.py',
    'fleet/room.py': 'cmd/subcommands/test_fleet.py',
    'fleet/rows.py': 'cmd/subcommands/test_fleet.py',
    'lab/calibrate/local_testbed.py': 'lab/calibrate/test_calibration.py',
    'lab/cmd/arguments.py': 'lab/cmd/test_evaluate.py',
    'lab/cmd/size_servers.py': 'lab/cmd/test_size.py',
    'lab/demo/cell_lock.py': 'lab/demo/test_clouds.py',
    'lab/demo/cloud.py': 'lab/demo/test_clouds.py',
    'lab/evaluate/settings.py': 'lab/cmd/test_evaluate.py',
    'modeler/passes.py': 'modeler/test_service.py',
    'modeler/systemd.py': 'modeler/test_service.py',
    'modeler/wiring.py': 'modeler/test_service.py',
    'report/pictures.py': 'report/test_page.py',
    'scheduler/request.py': 'scheduler/test_state.py',
    'lab/pictures.py': 'lab/cmd/test_evaluate.py',
    'store/facts.py': 'store/test_fleet.py',
    'store/generations.py': 'store/test_snapshot.py',
    'store/priors.py': 'store/test_instances.py',
    'store/profiles.py': 'store/test_database.py',
    'store/stays.py': 'store/test_instances.py',
    'store/sql.py': 'store/test_database.py',
    'cmd/survey/record.py': 'cmd/subcommands/test_survey.py',
    'cmd/survey/replay.py': 'cmd/subcommands/test_survey.py',
    'cmd/survey/verdict.py': 'cmd/subcommands/test_survey.py',
    'telemetry/curves.py': 'telemetry/test_counters.py',
    'telemetry/exporters.py': 'telemetry/test_check.py',
    'telemetry/prometheus_api.py': 'telemetry/test_prometheus.py',
    'telemetry/service.py': 'telemetry/test_prometheus.py',
    'telemetry/update_interval.py': 'telemetry/test_counters.py',
    'traffic/packed_counts.py': 'traffic/test_estimate.py',
    'traffic/rate_law.py': 'store/test_packing.py',
    'vswitch/attachments.py': 'admission/test_tunnel_table.py',
}

#: Directories of the package that have their tests elsewhere: migrations
#: with the store, the tests of tempest are tests themselves, and Watcher is a
#: suite of its own.
ELSEWHERE = ('store/migrations', 'tempest_plugin', 'budgets/watcher',
             'cmd/watcher.py')

#: Test modules of what is no single module of the package.
OF_SEVERAL = {
    'devstack/test_plugin.py', 'modeler/test_kill.py',
    'scheduler/test_sharing.py',
    'store/test_fleet.py', 'store/test_modelers.py', 'store/test_rights.py',
    'vswitch/test_catalogue.py',
}

#: Runs tests of the store and of passes again, on other databases.
RUNS_AGAIN = 'integration/store_suite.py'


def _modules():
    return {
        path for path in (path.relative_to(PACKAGE).as_posix()
                          for path in PACKAGE.rglob('*.py')
                          if path.name != '__init__.py')
        if not path.startswith(ELSEWHERE)}


def _test_module(module):
    """Return the path below tests/unit of a module's tests."""
    path = pathlib.PurePosixPath(module)
    return (path.parent / f'test_{path.name.strip("_")}'
            .replace('__.py', '.py')).as_posix()


def _imported(path):
    """Return the dotted names that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f'{node.module}.{alias.name}'
                         for alias in node.names)
    return names


def _tests(suite):
    """Return "module.Class.test" of each test that a class of a suite has."""
    return {
        f'{path.stem}.{of_class.name}.{method.name}'
        for path in (TESTS / suite).glob('test_*.py')
        for of_class in ast.parse(path.read_text(encoding='utf-8')).body
        if isinstance(of_class, ast.ClassDef)
        for method in of_class.body
        if getattr(method, 'name', '').startswith('test_')}


class TreeOfTestsTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.unit = TESTS / 'unit'
        self.modules = _modules()

    def test_each_module_of_the_package_has_a_test_module(self):
        self.assertEqual([], sorted(
            module for module in self.modules
            if not (self.unit / TESTED_WITH.get(
                module, _test_module(module))).is_file()))

    def test_each_module_that_is_tested_with_another_one_is_there(self):
        self.assertEqual(set(), set(TESTED_WITH) - self.modules)

    def test_each_test_module_in_a_directory_has_a_module(self):
        expected = {_test_module(module) for module in self.modules}
        expected |= {f'{path.parent.relative_to(PACKAGE)}/test_init.py'
                     for path in PACKAGE.rglob('__init__.py')}
        present = {path.relative_to(self.unit).as_posix()
                   for path in self.unit.glob('*/**/test_*.py')}
        self.assertEqual(OF_SEVERAL, present - expected)

    def test_no_test_module_is_imported_by_another_module(self):
        imports = []
        for path in TESTS.rglob('*.py'):
            name = path.relative_to(TESTS).as_posix()
            imports += [(name, module) for module in _imported(path)
                        if module.startswith('tests.') and any(
                            part.startswith('test_')
                            for part in module.split('.')[1:])]
        self.assertEqual([], sorted(
            (name, module) for name, module in imports if name != RUNS_AGAIN))

    def test_each_line_of_the_selection_for_readme_is_there(self):
        # A name that selects nothing is no error to stestr.
        lines = (PROJECT / '.ci/functional-core.txt').read_text().split('\n')
        names = {line for line in lines if line and not line.startswith('#')}
        tests = _tests('functional')
        modules = {name.partition('.')[0] for name in tests}
        self.assertLess(10, len(names))
        self.assertEqual(set(), names - tests - modules)
