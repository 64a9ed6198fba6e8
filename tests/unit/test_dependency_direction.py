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
import unittest

import vswitch_aware_scheduler

PACKAGE = 'vswitch_aware_scheduler'

_TRAFFIC = {'common', 'traffic'}
_VSWITCH = _TRAFFIC | {'vswitch'}
_CLIENTS = _VSWITCH | {'clients'}
_STORE = _VSWITCH | {'store'}
_ADMISSION = _STORE | {'admission'}
_SERVICES = _ADMISSION | _CLIENTS | {
    'budgets', 'cmd', 'conf', 'fleet', 'modeler', 'report', 'telemetry'}

# What each top-level module or package may import from the others.
MAY_IMPORT = {
    'common': set(),
    'conf': set(),
    'traffic': _TRAFFIC,
    'vswitch': _VSWITCH,
    'clients': _CLIENTS,
    'telemetry': _CLIENTS,
    'store': _VSWITCH,
    'admission': _ADMISSION,
    'scheduler': _ADMISSION | {'conf'},
    'modeler': _ADMISSION | _CLIENTS | {
        'budgets', 'conf', 'fleet', 'telemetry'},
    'budgets': _ADMISSION | _CLIENTS,
    'fleet': _ADMISSION | {'budgets'},
    'report': _ADMISSION | {'fleet'},
    'cmd': _SERVICES,
    'lab': _SERVICES | {'scheduler'},
    # A single line that keeps a documented command.
    'demo': {'lab'},
    # It knows the plugin by the public API alone.
    'tempest_plugin': set(),
}
# Loaded with nothing but numpy.
PURE = ('traffic', 'common.checks', 'common.exceptions',
        'common.plain_text')
NUMERICAL = {'numpy'}
NOVA = {'nova'}
MAY_IMPORT_NOVA = ('scheduler', 'lab.demo')
MAY_SEE_CONF = ('conf', 'scheduler', 'modeler.wiring', 'cmd', 'lab.cmd',
                'lab.demo', 'tempest_plugin')
# Loaded by every worker of nova-scheduler: beyond the standard library only
# these, in them and in whatever of the package they import, store apart.
IN_EVERY_WORKER = ('store.snapshot', 'admission')
WORKER_LIBRARIES = {'numpy', 'yaml', 'oslo_log'}
# What no worker of nova-scheduler loads, by whatever module but conf: it
# declares the options of keystoneauth1, as nova itself does.
NOT_IN_WORKERS = {
    'ceilometerclient', 'gnocchiclient', 'jinja2', 'keystoneauth1',
    'matplotlib', 'novaclient', 'openstack', 'requests', 'scipy', 'urllib3'}


def _is_in(module, places):
    return any(module == place or module.startswith(place + '.')
               for place in places)


def _modules(root):
    """Map each module below the package directory ``root`` to its path."""
    paths = {}
    for path in sorted(root.rglob('*.py')):
        parts = path.relative_to(root).with_suffix('').parts
        is_package = parts[-1] == '__init__'
        paths['.'.join(parts[:-1] if is_package else parts)] = path
    return paths


def _imported(module, path, modules, nodes=ast.walk):
    """Yield (line, absolute dotted name) of all that a module imports.

    :param nodes: called with the syntax tree, returns the nodes to look at
    """
    tree = ast.parse(path.read_text(encoding='utf-8'), str(path))
    own_name = f'{PACKAGE}.{module}' if module else PACKAGE
    package = own_name if path.name == '__init__.py' else own_name.rpartition(
        '.')[0]
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


def _reached(start, inside, past):
    """Return the modules that a module loads, itself among them.

    :param inside: {module: {(line, name that it imports of the package)}}
    :param past: packages at which the search ends
    """
    reached, waiting = set(), [start]
    while waiting:
        module = waiting.pop()
        if module in reached or module != start and _is_in(module, past):
            continue
        reached.add(module)
        for _, name in inside[module]:
            # The longest prefix that is a module, and its packages, whose
            # __init__ runs too.
            parts = name.split('.')
            waiting.extend(prefix for prefix in (
                '.'.join(parts[:length])
                for length in range(1, len(parts) + 1)) if prefix in inside)
    return reached


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
            elif _is_in(module, PURE) and not _is_in(name, PURE):
                broken.append(f'{module}:{line} imports {name}')
            if target == 'conf' and not _is_in(module, MAY_SEE_CONF):
                broken.append(f'{module}:{line} imports {name}')
        for name, line in outside[module].items():
            library = name.partition('.')[0]
            if (library in NOVA and not _is_in(module, MAY_IMPORT_NOVA)
                    or _is_in(module, PURE) and library not in NUMERICAL
                    or library == 'oslo_config'
                    and not _is_in(module, MAY_SEE_CONF)):
                broken.append(f'{module}:{line} imports {name}')
        if not _is_in(module, MAY_SEE_CONF):
            broken.extend(f'{module}:{line} sees CONF'
                          for line in _sees_conf(path))

    for start in sorted(modules):
        if _is_in(start, ('scheduler',)):
            for module in sorted(_reached(start, inside, past=('conf',))):
                for name, line in outside[module].items():
                    if name.partition('.')[0] in NOT_IN_WORKERS:
                        broken.append(
                            f'{start} loads {name} by {module}:{line}')
        if not _is_in(start, IN_EVERY_WORKER):
            continue
        reached = _reached(start, inside, past=('store',))
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
                path.write_text(source)
            return violations(root)

    def test_each_import_that_a_rule_forbids_is_found(self):
        package = f'from {PACKAGE}'
        discovery = f'{package}.vswitch import discovery'
        for rule, violations_expected, sources in (
                ('none is broken', [], {
                    'common__exceptions': 'class Error(Exception): pass',
                    'traffic__model': 'import math\nimport numpy as np\n'
                                      f'{package}.common import exceptions\n'
                                      'from . import law',
                    'traffic__law': 'import numpy',
                    'store__api': 'import sqlalchemy\nfrom oslo_db import x',
                    'store__snapshot': 'import numpy as np\n'
                                       f'{package}.store import api\n'
                                       f'{package}.traffic import model',
                    'admission': f'{package}.store import snapshot',
                    'conf__opts': 'from oslo_config import cfg',
                    'scheduler__filters':
                        'from nova.scheduler import filters\n'
                        'from oslo_config import cfg\n'
                        f'{package} import admission\n'
                        f'{package}.conf import opts\nCONF = cfg.CONF',
                    'modeler__wiring': 'from oslo_config import cfg',
                    'cmd__manage': f'{package}.conf import opts'}),
                ('direction', ['traffic.model:1 imports store.api'], {
                    'traffic__model': f'{package}.store import api',
                    'store__api': ''}),
                ('within a function',
                 ['vswitch.profile:2 imports scheduler.filters'], {
                     'vswitch__profile': 'def late():\n    import '
                                         f'{PACKAGE}.scheduler.filters',
                     'scheduler__filters': ''}),
                ('relative', ['telemetry.file:1 imports store.api'], {
                    'telemetry__file': 'from ..store import api',
                    'store__api': ''}),
                ('of an object', ['store.api:1 imports telemetry.file'], {
                    'store__api': f'{package}.telemetry.file import Driver',
                    'telemetry__file': 'class Driver: pass'}),
                ('by name at run time', ['cmd.manage:2 imports nova.conf'], {
                    'cmd__manage': 'import importlib\n'
                                   "importlib.import_module('nova.conf')"}),
                ('scipy in traffic', ['traffic.law:1 imports scipy.stats'], {
                    'traffic__law': 'import scipy.stats'}),
                ('nova outside the scheduler',
                 ['modeler.cycle:1 imports nova.objects'], {
                     'modeler__cycle': 'from nova.objects import x'}),
                ('a client library behind the scheduler',
                 ['scheduler.state loads requests by store.api:1'], {
                     'scheduler__state': f'{package}.store import api',
                     'store__api': 'import requests'}),
                ('code in conf', ['conf.opts:1 imports vswitch'], {
                    'conf__opts': f'{package} import vswitch',
                    'vswitch__profile': ''}),
                ('a client library behind the snapshot',
                 ['admission loads requests by vswitch.discovery:1',
                  'store.snapshot loads sqlalchemy by store.snapshot:2',
                  'store.snapshot loads requests by vswitch.discovery:1'], {
                      'vswitch__discovery': 'import requests',
                      'store__snapshot': f'{discovery}\nimport sqlalchemy',
                      'admission': discovery}),
                ('configuration within', [
                    'modeler.cycle:1 imports conf',
                    'modeler.cycle:2 imports oslo_config',
                    'modeler.cycle:3 sees CONF'], {
                        'modeler__cycle': f'{package} import conf\n'
                                          'from oslo_config import cfg\n'
                                          'value = cfg.CONF.value',
                        'conf__opts': ''}),
                ('a module without a place',
                 ['helpers has no place in the order: helpers'],
                 {'helpers': ''})):
            with self.subTest(rule):
                self.assertEqual(violations_expected,
                                 self._violations(**sources))
