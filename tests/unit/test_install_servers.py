# SPDX-License-Identifier: Apache-2.0
"""What a new machine gets is what the tests and the calibrator start."""

import ast
import pathlib
import re
import unittest

from tests.integration import programs

PROJECT = pathlib.Path(__file__).parents[2]


def named(source):
    """Return the set of programs that a module's source names."""
    return {name for node in ast.walk(ast.parse(source))
            for name in _programs_of(node) if name is not None}


def _text(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _programs_of(node):
    if isinstance(node, ast.For) and _name(node.target) == 'program' \
            and isinstance(node.iter, ast.Tuple):
        return map(_text, node.iter.elts)
    if not isinstance(node, ast.Call) or not node.args:
        return ()
    function, argument = _name(node.func), node.args[0]
    if function == 'need':
        return map(_text, node.args)
    if function in ('program', 'need_program', 'find_program'):
        return _text(argument),
    if function in ('run', 'start') and isinstance(argument, ast.List):
        return map(_text, argument.elts[:1])
    if function in ('run', 'start') \
            and _name(getattr(node.func, 'value', None)) in ('run', 'run_of'):
        # In a network namespace, whose name comes first.
        return map(_text, node.args[1:2])
    return ()


def _name(node):
    return getattr(node, 'attr', getattr(node, 'id', None))


class ProgramsTestCase(unittest.TestCase):

    def test_what_is_needed_is_what_is_installed(self):
        text = (PROJECT / '.ci/install_servers').read_text()
        installed = re.search(r'^packages=\((.*?)^\)', text,
                              re.DOTALL | re.MULTILINE)[1].split()
        self.assertEqual(sorted(set(programs.PACKAGES.values())),
                         sorted(installed))

    def test_every_program_that_is_started_is_in_the_list(self):
        # Every system has sh.
        listed = {'sh', *programs.PACKAGES, *programs.FROM_INDEX,
                  *programs.OPTIONAL}
        started = {}
        for folder in ('vswitch_aware_scheduler/lab/calibrate',
                       'tests/integration', 'tests/calibrated',
                       'tests/cloud'):
            for path in (PROJECT / folder).glob('*.py'):
                for name in named(path.read_text()):
                    started.setdefault(name, path.name)
        self.assertEqual({}, {name: where for name, where in started.items()
                              if name not in listed})
        # That the search finds them at all.
        self.assertLessEqual({'ethtool', 'iperf3', 'ip', 'sshd', 'etcd',
                              'ovs-vswitchd', 'ssh-keygen', 'promtool'},
                             started.keys())

    def test_each_way_to_name_a_program_is_found(self):
        for source, expected in (
                ('program("a", "/usr/b")', {'a'}),
                ('machine.need_program("a")', {'a'}),
                ('self.need("a", "b")', {'a', 'b'}),
                ('machine.run(["a", "b"])', {'a'}),
                ('run.start("namespace", "a", "-b")', {'a'}),
                ('self.run.run(host, "a")', {'a'}),
                ('for program in ("a", "b"): pass', {'a', 'b'}),
                ('self.start(variable, "-b")', set())):
            self.assertEqual(expected, named(source), source)
