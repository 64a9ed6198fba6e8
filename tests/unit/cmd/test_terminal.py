# SPDX-License-Identifier: Apache-2.0

import ast
import errno
import importlib.util
import io
import json
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from oslo_config import cfg

from tests.unit.cmd import commands
import vswitch_aware_scheduler
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.cmd import calibrate

HOSTILE = 'a\x1b[2Jb\nc\r\x9b1m\u202e'
ESCAPED = r'a\x1b[2Jb\nc\r\x9b1m\u202e'


def _run(command, *, debug=False, failure=1, **how):
    return commands.run(lambda _: terminal.run(
        'prog', command, lambda: debug, failure, **how), [])


class CompletionTestCase(unittest.TestCase):

    @unittest.skipUnless(importlib.util.find_spec('shtab'),
                         'shtab is not installed')
    def test_a_shell_completes_commands_and_options(self):
        for main, completions in ((manage.main, ('discover', 'list', 'json')),
                                  (calibrate.main, ('local', 'remote'))):
            for shell in ('bash', 'tcsh', 'zsh'):
                status, script, errors = commands.run(
                    main, ['--print-completion', shell])
                self.assertEqual((0, ''), (status, errors))
                for word in completions:
                    self.assertIn(word, script)

    @unittest.skipUnless(importlib.util.find_spec('shtab')
                         and shutil.which('bash'), 'no shtab, or no bash')
    def test_bash_completes_a_command(self):
        _, script, _ = commands.run(
            manage.main, ['--print-completion', 'bash'])
        answer = subprocess.run(
            ['bash', '-c', script + """
            COMP_WORDS=(vswitch-manage host l) COMP_CWORD=2
            "$(complete -p vswitch-manage | sed 's/.*-F \\([^ ]*\\) .*/\\1/')"
            echo "${COMPREPLY[@]}\""""], text=True, capture_output=True)
        self.assertEqual('list\n', answer.stdout, answer.stderr)

    def test_the_extra_is_named_where_shtab_is_missing(self):
        with mock.patch.dict(sys.modules, shtab=None):
            status, output, errors = commands.run(
                manage.main, ['--print-completion', 'bash'])
        self.assertEqual((1, ''), (status, output))
        self.assertIn('vswitch_aware_scheduler[completion]', errors)


class OutputTestCase(unittest.TestCase):

    def _printed(self, function, *arguments):
        def command():
            function(*arguments)
            return 0

        status, output, errors = _run(command)
        self.assertEqual((0, ''), (status, errors))
        return output

    def test_every_way_to_print_escapes(self):
        line = '-' * len(ESCAPED)
        for function, arguments, expected in (
                (terminal.print_line, [HOSTILE], f'{ESCAPED}\n'),
                (terminal.print_below, [HOSTILE], f'\n{ESCAPED}\n'),
                # Numbers are to the right.
                (terminal.print_table, [['NAME', 'N'], [[HOSTILE, 77]]],
                 f'NAME{" " * (len(ESCAPED) - 4)}   N\n{line}  --\n'
                 f'{ESCAPED}  77\n'),
                (terminal.print_fields, [[('a', HOSTILE)]],
                 f'a: {ESCAPED}\n'),
                (terminal.print_text, ['a\n\x1b\n'], 'a\n\\x1b\n')):
            self.assertEqual(expected, self._printed(function, *arguments))

    def test_json_of_any_character_is_json(self):
        text = ''.join(map(chr, (*range(0x300), 0x2028, 0x202e, 0x1f600)))
        output = self._printed(terminal.print_json, {text: text})
        self.assertEqual({text: text}, json.loads(output))
        self.assertTrue(output.replace('\n', '').isprintable())

    def test_what_libraries_log_is_escaped(self):
        stream = io.StringIO()
        root = logging.getLogger()
        handler = logging.StreamHandler(stream)
        with mock.patch.object(root, 'handlers', [handler]), \
                mock.patch.object(root, 'level', root.level):
            terminal.log_all()
            logging.getLogger('some.library').warning('a%s', HOSTILE)
        self.assertEqual(f'a{ESCAPED}\n', stream.getvalue())

    def test_nothing_else_prints(self):
        package = pathlib.Path(vswitch_aware_scheduler.__file__).parent
        for path in (package / 'cmd').glob('*.py'):
            for node in ast.walk(ast.parse(path.read_text('utf-8'))):
                if isinstance(node, ast.Call) and path.name != 'terminal.py':
                    self.assertNotIn(ast.unparse(node.func), (
                        'print', 'sys.stdout.write', 'sys.stderr.write'),
                        f'{path}:{node.lineno}')


class RunTestCase(unittest.TestCase):

    def test_errors_are_one_printable_line(self):
        for error, message in (
                (exceptions.InvalidInput(HOSTILE), 'a\\x1b[2Jb c'),
                (ValueError('a\n \x1b'), r'prog: a \x1b'),
                (OSError(errno.ENOENT, 'no', '/x\x1b'), r'x\x1b'),
                (cfg.Error('a\nb'), 'prog: a b'),
                (TypeError('odd\x07'), r'unexpected TypeError: odd\x07')):
            status, output, errors = _run(mock.Mock(side_effect=error))
            self.assertEqual((1, ''), (status, output))
            self.assertIn(message, errors)
            self.assertEqual(1, errors.count('\n'))
            self.assertTrue(errors[:-1].isprintable())

    def test_debug_shows_an_escaped_traceback(self):
        status, _, errors = _run(mock.Mock(side_effect=ValueError('\x1b')),
                                 debug=True, failure=255)
        self.assertEqual(255, status)
        self.assertIn('Traceback', errors)
        self.assertIn(r'ValueError: \x1b', errors)
        self.assertNotIn('\x1b', errors)

    def test_an_interrupt_says_what_it_left(self):
        status, _, errors = _run(mock.Mock(side_effect=KeyboardInterrupt),
                                 interrupted=': nothing was written')
        self.assertEqual((1, 'prog: interrupted: nothing was written\n'),
                         (status, errors))

    def test_a_locale_that_has_not_the_letters_is_no_error(self):
        stream = io.TextIOWrapper(io.BytesIO(), encoding='ascii')
        with mock.patch.object(sys, 'stdout', stream):
            status = terminal.run('prog', lambda: terminal.print_line('ä'))
        stream.seek(0)
        self.assertEqual((None, '\\xe4\n'), (status, stream.read()))


class ProcessTestCase(unittest.TestCase):
    """What needs a process of its own: streams that are closed or full."""

    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory())

    def _shell(self, line):
        """Return (status, stderr) of a line of bash; $COMMAND prints."""
        code = ('import sys; from vswitch_aware_scheduler.cmd import '
                'terminal; sys.exit(terminal.run("prog", lambda: [terminal.'
                'print_line("x" * 70) for _ in range(5000)] and 3))')
        completed = subprocess.run(
            ['bash', '-c', line], capture_output=True, text=True,
            env={**os.environ, 'COMMAND': code, 'PYTHON': sys.executable},
            cwd=self.directory)
        return completed.returncode, completed.stderr

    def test_a_reader_that_has_enough_changes_no_status(self):
        self.assertEqual((3, ''), self._shell(
            '"$PYTHON" -c "$COMMAND" | head -1 > /dev/null; '
            'exit ${PIPESTATUS[0]}'))

    def test_closed_streams_are_no_error(self):
        for closed in ('>&-', '> /dev/null 2>&-', '> /dev/null <&-',
                       '<&- >&- 2>&-'):
            self.assertEqual((3, ''), self._shell(
                f'"$PYTHON" -c "$COMMAND" {closed}'), closed)

    @unittest.skipUnless(os.path.exists('/dev/full'), 'there is no /dev/full')
    def test_a_full_disk_is_told_once(self):
        status, errors = self._shell('"$PYTHON" -c "$COMMAND" > /dev/full')
        self.assertEqual(1, status)
        self.assertRegex(errors, r'^prog: .*No space left[^\n]*\n$')

    def test_an_interrupt_during_imports_is_no_traceback(self):
        # The interrupt comes while the command's own modules are imported.
        # A process in the background of a shell is started with the signal
        # ignored.
        code = ('import os, signal, sys\n'
                'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
                'class Finder:\n'
                '    def find_spec(self, name, path=None, target=None):\n'
                '        if name == "cliff":\n'
                '            os.kill(os.getpid(), signal.SIGINT)\n'
                'sys.meta_path.insert(0, Finder())\n'
                'import vswitch_aware_scheduler.cmd.manage\n')
        completed = subprocess.run([sys.executable, '-c', code],
                                   capture_output=True, text=True)
        self.assertEqual((-signal.SIGINT, '', ''),
                         (completed.returncode, completed.stdout,
                          completed.stderr))
