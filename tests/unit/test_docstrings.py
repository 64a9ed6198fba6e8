# SPDX-License-Identifier: Apache-2.0

import ast
import pathlib
import re
import unittest

import vswitch_aware_scheduler

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


class DocstringsTestCase(unittest.TestCase):

    def test_a_described_parameter_exists(self):
        missing, described = [], 0
        for path in sorted(ROOT.rglob('*.py')):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    continue
                names = re.findall(r':param (\w+):',
                                   ast.get_docstring(node) or '')
                described += len(names)
                missing += [(str(path), node.lineno, name) for name in names
                            if name not in _parameters(node)]
        self.assertEqual([], missing)
        self.assertLess(100, described)
