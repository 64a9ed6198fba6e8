# SPDX-License-Identifier: Apache-2.0
"""The direction of dependency between the package's modules.

The rules are in doc/source/contributor, "Direction of dependency". Imports
are read from the source, wherever in a module they stand, so that an import
hidden in a function counts as well.
"""

import ast
import graphlib
import pathlib
import sys
import tempfile
import textwrap
import unittest

import vswitch_aware_scheduler

PACKAGE = 'vswitch_aware_scheduler'

_TRAFFIC = {'exceptions', 'plain_text', 'traffic'}
_VSWITCH = _TRAFFIC | {'logs', 'vswitch'}
_CLIENTS = _VSWITCH | {'clients'}
_STORE = _VSWITCH | {'store'}
_ADMISSION = _STORE | {'admission'}
_SERVICES = _ADMISSION | _CLIENTS | {
    'calibrate', 'cmd', 'conf', 'evaluate', 'metrics_server', 'modeler',
    'purchase', 'rebalance', 'report', 'self_check', 'telemetry'}

# What each top-level module or package may import from the others.
MAY_IMPORT = {
    'plain_text': set(),
    'exceptions': {'plain_text'},
    'logs': {'plain_text'},
    'metrics_server': set(),
    'self_check': set(),
    'conf': set(),
    'traffic': _TRAFFIC,
    'vswitch': _VSWITCH,
    'clients': _CLIENTS,
    'telemetry': _CLIENTS,
    'calibrate': _VSWITCH,
    'store': _VSWITCH,
    'admission': _ADMISSION,
    'scheduler': _ADMISSION | {'conf', 'metrics_server', 'self_check'},
    'modeler': _ADMISSION | _CLIENTS | {
        'conf', 'metrics_server', 'rebalance', 'self_check', 'telemetry'},
    'purchase': _ADMISSION,
    'rebalance': _ADMISSION | _CLIENTS | {'telemetry'},
    'evaluate': _ADMISSION | {'rebalance', 'telemetry'},
    'report': _ADMISSION,
    'cmd': _SERVICES,
    'osc': {'cmd', 'exceptions', 'plain_text'},
    'demo': _SERVICES | {'scheduler'},
    # It knows the plugin by the public API alone.
    'tempest_plugin': set(),
    'watcher_plugin': _ADMISSION | {'conf', 'modeler', 'rebalance'},
}
NUMERICAL = {'numpy'}
NOVA = {'nova'}
MAY_IMPORT_NOVA = ('scheduler', 'demo')
MAY_SEE_CONF = ('conf', 'scheduler', 'modeler.service', 'cmd', 'demo',
                'tempest_plugin', 'watcher_plugin')
# Loaded by every worker of nova-scheduler: beyond the standard library only
# these, in them and in whatever of the package they import, store apart.
IN_EVERY_WORKER = ('store.snapshot', 'admission')
WORKER_LIBRARIES = {'numpy', 'yaml', 'oslo_log'}


def _is_in(module, places):
    return any(module == place or module.startswith(place + '.')
               for place in places)


def _modules(root):
    """Map each module below the package directory ``root`` to its path."""
    found = {}
    for path in sorted(root.rglob('*.py')):
        parts = path.relative_to(root).with_suffix('').parts
        is_package = parts[-1] == '__init__'
        found['.'.join(parts[:-1] if is_package else parts)] = path
    return found


def _imported(module, path, modules, nodes=ast.walk):
    """Yield (line, absolute dotted name) of all that a module imports.

    :param nodes: called with the syntax tree, returns the nodes to look at
    """
    tree = ast.parse(path.read_text(encoding='utf-8'), str(path))
    here = f'{PACKAGE}.{module}' if module else PACKAGE
    package = here if path.name == '__init__.py' else here.rpartition('.')[0]
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ''
            if node.level:
                parts = package.split('.')
                parts = parts[:len(parts) - node.level + 1]
                base = '.'.join(parts + ([base] if base else []))
            for alias in node.names:
                # A name may be a module of its package, or an object in it.
                deeper = f'{base}.{alias.name}'
                inside = deeper.removeprefix(PACKAGE + '.')
                if base == PACKAGE or inside in modules:
                    yield node.lineno, deeper
                else:
                    yield node.lineno, base
        elif (isinstance(node, ast.Call) and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)):
            called = ast.unparse(node.func).rpartition('.')[2]
            if called in ('import_module', '__import__', 'find_spec'):
                yield node.lineno, node.args[0].value


def _sees_conf(path):
    """Yield the lines of a module that touch a CONF object."""
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if (isinstance(node, ast.Name) and node.id == 'CONF'
                or isinstance(node, ast.Attribute) and node.attr == 'CONF'):
            yield node.lineno


def violations(root):
    """Return a sentence for each broken rule below the directory ``root``."""
    modules = _modules(root)
    broken = []
    inside = {module: set() for module in modules}
    outside = {module: {} for module in modules}
    for module, path in modules.items():
        for line, name in _imported(module, path, modules):
            if name == PACKAGE:
                continue
            if name.startswith(PACKAGE + '.'):
                inside[module].add((line, name.removeprefix(PACKAGE + '.')))
            elif name.partition('.')[0] not in sys.stdlib_module_names:
                outside[module].setdefault(name, line)

    for module, path in modules.items():
        if not module:
            if inside[module] or outside[module]:
                broken.append(f'{PACKAGE}/__init__.py imports something')
            continue
        top = module.partition('.')[0]
        if top not in MAY_IMPORT:
            broken.append(f'{module} has no place in the order: {top}')
            continue
        for line, name in sorted(inside[module]):
            target = name.partition('.')[0]
            if target != top and target not in MAY_IMPORT[top]:
                broken.append(f'{module}:{line} imports {name}')
            if target == 'conf' and not _is_in(module, MAY_SEE_CONF):
                broken.append(f'{module}:{line} imports {name}')
        for name, line in outside[module].items():
            library = name.partition('.')[0]
            if (library in NOVA and not _is_in(module, MAY_IMPORT_NOVA)
                    or top in ('traffic', 'exceptions')
                    and library not in NUMERICAL
                    or library == 'oslo_config'
                    and not _is_in(module, MAY_SEE_CONF)):
                broken.append(f'{module}:{line} imports {name}')
        if not _is_in(module, MAY_SEE_CONF):
            broken.extend(f'{module}:{line} sees CONF'
                          for line in _sees_conf(path))

    for start in sorted(modules):
        if not _is_in(start, IN_EVERY_WORKER):
            continue
        reached, waiting = set(), [start]
        while waiting:
            module = waiting.pop()
            if module in reached or module != start and _is_in(
                    module, ('store',)):
                continue
            reached.add(module)
            for _, name in inside[module]:
                # The longest prefix that is a module, and its packages,
                # whose __init__ runs too.
                parts = name.split('.')
                waiting.extend(prefix for prefix in (
                    '.'.join(parts[:length])
                    for length in range(1, len(parts) + 1))
                    if prefix in modules)
        for module in sorted(reached):
            for name, line in outside[module].items():
                if name.partition('.')[0] not in WORKER_LIBRARIES:
                    broken.append(f'{start} loads {name} by {module}:{line}')
    return broken


class DependencyDirectionTest(unittest.TestCase):

    def test_the_package_keeps_the_direction_of_dependency(self):
        root = pathlib.Path(vswitch_aware_scheduler.__file__).parent
        self.assertEqual([], violations(root))

    def test_every_module_named_in_a_rule_has_a_place_in_the_order(self):
        named = {place.partition('.')[0] for places in (
            MAY_IMPORT_NOVA, MAY_SEE_CONF, IN_EVERY_WORKER,
            *MAY_IMPORT.values()) for place in places}
        self.assertEqual(set(), named - set(MAY_IMPORT))

    def test_the_order_has_no_cycle(self):
        for module, allowed in MAY_IMPORT.items():
            for other in allowed - {module}:
                self.assertNotIn(module, MAY_IMPORT[other],
                                 f'{module} and {other} import each other')

    def test_no_module_imports_itself_by_way_of_others(self):
        # Which of them a program imports first would decide if it starts.
        root = pathlib.Path(vswitch_aware_scheduler.__file__).parent
        modules = _modules(root)
        order = graphlib.TopologicalSorter({
            module: {name.removeprefix(PACKAGE + '.') for _, name
                     in _imported(module, path, modules,
                                  nodes=lambda tree: tree.body)} & set(modules)
            for module, path in modules.items()})
        order.prepare()


class ViolationsTest(unittest.TestCase):
    """Each rule is broken once, in a tree made for it."""

    def _violations(self, **sources):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory) / PACKAGE
            root.mkdir()
            (root / '__init__.py').touch()
            for name, source in sources.items():
                path = root.joinpath(*name.split('__')).with_suffix('.py')
                path.parent.mkdir(parents=True, exist_ok=True)
                for parent in path.relative_to(root).parents:
                    (root / parent / '__init__.py').touch()
                path.write_text(textwrap.dedent(source))
            return violations(root)

    def test_a_tree_that_follows_the_rules_is_not_blamed(self):
        self.assertEqual([], self._violations(
            exceptions='class Error(Exception): pass',
            traffic__model='''
                import math
                import numpy as np
                from vswitch_aware_scheduler import exceptions
                from . import law
                ''',
            traffic__law='import numpy',
            store__api='import sqlalchemy\nfrom oslo_db import api',
            store__snapshot='''
                import numpy as np
                from vswitch_aware_scheduler.store import api
                from vswitch_aware_scheduler.traffic import model
                ''',
            admission='from vswitch_aware_scheduler.store import snapshot',
            conf__opts='from oslo_config import cfg',
            scheduler__filters='''
                from nova.scheduler import filters
                from oslo_config import cfg
                from vswitch_aware_scheduler import admission
                from vswitch_aware_scheduler.conf import opts
                CONF = cfg.CONF
                ''',
            cmd__manage='from vswitch_aware_scheduler.conf import opts'))

    def test_an_import_against_the_direction_is_found(self):
        self.assertEqual(
            ['traffic.model:2 imports store.api'],
            self._violations(
                traffic__model='''
                    from vswitch_aware_scheduler.store import api
                    ''',
                store__api=''))

    def test_an_import_within_a_function_is_found(self):
        self.assertEqual(
            ['vswitch.profile:3 imports scheduler.filters'],
            self._violations(
                vswitch__profile='''
                    def late():
                        import vswitch_aware_scheduler.scheduler.filters
                    ''',
                scheduler__filters=''))

    def test_a_relative_import_is_resolved(self):
        self.assertEqual(
            ['telemetry.file:1 imports store.api'],
            self._violations(telemetry__file='from ..store import api',
                             store__api=''))

    def test_an_import_of_an_object_names_its_module(self):
        self.assertEqual(
            ['store.api:1 imports telemetry.file'],
            self._violations(
                store__api='from vswitch_aware_scheduler.telemetry.file '
                           'import FileDriver',
                telemetry__file='class FileDriver: pass'))

    def test_an_import_by_name_at_run_time_is_found(self):
        self.assertEqual(
            ['cmd.manage:2 imports nova.conf'],
            self._violations(cmd__manage='''\
                import importlib
                importlib.import_module('nova.conf')
                '''))

    def test_the_numerical_core_may_not_import_scipy(self):
        self.assertEqual(
            ['traffic.law:1 imports scipy.stats'],
            self._violations(traffic__law='import scipy.stats'))

    def test_nova_stays_in_the_scheduler(self):
        self.assertEqual(
            ['modeler.cycle:1 imports nova.objects'],
            self._violations(modeler__cycle='from nova.objects import x'))

    def test_a_command_may_not_pull_in_the_scheduler(self):
        self.assertEqual(
            ['cmd.manage:1 imports scheduler.claims'],
            self._violations(
                cmd__manage='from vswitch_aware_scheduler.scheduler '
                            'import claims',
                scheduler__claims=''))

    def test_a_client_library_in_the_snapshot_is_found(self):
        self.assertEqual(
            ['store.snapshot loads sqlalchemy by store.snapshot:1'],
            self._violations(store__snapshot='import sqlalchemy'))

    def test_a_client_library_behind_the_snapshot_is_found(self):
        self.assertEqual(
            ['admission loads requests by vswitch.discovery:1',
             'store.snapshot loads requests by vswitch.discovery:1'],
            self._violations(
                vswitch__discovery='import requests',
                store__snapshot='from vswitch_aware_scheduler.vswitch '
                                'import discovery',
                admission='from vswitch_aware_scheduler.vswitch '
                          'import discovery'))

    def test_configuration_imports_no_implementation(self):
        self.assertEqual(
            ['conf.opts:1 imports vswitch'],
            self._violations(
                conf__opts='from vswitch_aware_scheduler import vswitch',
                vswitch__profile=''))

    def test_only_the_edges_see_configuration(self):
        self.assertEqual(
            ['modeler.cycle:1 imports conf',
             'modeler.cycle:2 imports oslo_config',
             'modeler.cycle:3 sees CONF'],
            self._violations(
                modeler__cycle='''\
                    from vswitch_aware_scheduler import conf
                    from oslo_config import cfg
                    value = cfg.CONF.value
                    ''',
                modeler__service='from oslo_config import cfg',
                conf__opts=''))

    def test_a_module_without_a_place_is_named(self):
        self.assertEqual(
            ['helpers has no place in the order: helpers'],
            self._violations(helpers=''))
