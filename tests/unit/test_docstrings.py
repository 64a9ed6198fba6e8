# SPDX-License-Identifier: Apache-2.0

import ast
import pathlib
import re
import unittest

import vswitch_aware_scheduler

# The packages whose public functions state their types.
ROOMS = ('admission', 'budgets', 'common', 'fleet', 'modeler', 'report',
         'scheduler', 'traffic', 'vswitch')
UNTYPED = ('estimate.py',)
ROOT = pathlib.Path(vswitch_aware_scheduler.__file__).parent


def _parameters(node):
    """Return the names that the docstring of a function or class may have."""
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.arg):
            names.add(part.arg)
        elif isinstance(part, ast.AnnAssign) and isinstance(
                part.target, ast.Name):
            names.add(part.target.id)
    return names


def _public(body):
    """Yield the public functions of a module and of its public classes."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
            yield from _public(node.body)
        elif isinstance(node, ast.FunctionDef) \
                and not node.name.startswith('_'):
            yield node


class DocstringsTestCase(unittest.TestCase):

    def test_a_described_parameter_exists(self):
        missing, described = [], 0
        for path in sorted(ROOT.rglob('*.py')):
            for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
                if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    continue
                names = re.findall(r':param (\w+):',
                                   ast.get_docstring(node) or '')
                described += len(names)
                missing += [(str(path), node.lineno, name) for name in names
                            if name not in _parameters(node)]
        self.assertEqual([], missing)
        self.assertLess(100, described)

    def test_a_public_function_states_its_types(self):
        untyped = []
        for room in ROOMS:
            for path in sorted((ROOT / room).glob('*.py')):
                if path.name in UNTYPED:
                    continue
                for node in _public(ast.parse(path.read_text(
                        encoding='utf-8')).body):
                    arguments = [*node.args.args, *node.args.kwonlyargs]
                    if node.returns is None or any(
                            one.annotation is None for one in arguments
                            if one.arg not in ('self', 'cls')):
                        untyped.append((path.name, node.name))
        self.assertEqual([], untyped)
