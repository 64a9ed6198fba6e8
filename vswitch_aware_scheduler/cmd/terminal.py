# SPDX-License-Identifier: Apache-2.0
"""The common part of the commands: output, errors and exit.

All output of a command goes through this module, which escapes control
characters for the terminal: see :mod:`~.common.plain_text`.
"""

import argparse
import contextlib
import importlib.metadata
import json
import logging
import os
import re
import sys
import traceback

from cliff.formatters import table
import tqdm

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text

__all__ = ['FILE', 'OUTPUT', 'PrintCompletion', 'Table', 'cell', 'counted',
           'json_text', 'log_all', 'print_below', 'print_fields',
           'print_json', 'print_line', 'print_remarks', 'print_table',
           'print_tables', 'print_text', 'progress', 'run', 'say', 'version']

_PACKAGE = 'vswitch_aware_scheduler'


# Output

def print_line(text: str = '') -> None:
    """Print one line. Line ends in the text are escaped."""
    _write(plain_text.printable(text) + '\n')


def print_below(text: str) -> None:
    """Print an empty line and a line."""
    print_line()
    print_line(text)


def print_text(text: str) -> None:
    """Print several lines."""
    for line in text.splitlines():
        print_line(line)


def print_fields(pairs: list) -> None:
    """Print names and values, with the values in one column.

    :param pairs: list of (name, value)
    """
    width = max(len(name) for name, _ in pairs) + 2
    for name, value in pairs:
        print_line(f'{name + ":":{width}}{value}')


class Table(table.TableFormatter):
    """The table of cliff, with columns of numbers aligned to the right."""

    def add_rows(self, table, column_names, data):
        """Add rows of texts.

        :param table: prettytable of cliff
        :param column_names: list of titles
        :param data: iterable of rows of texts
        """
        super().add_rows(table, column_names, data)
        for index, name in enumerate(column_names):
            table.align[name] = 'r' if all(
                _is_number(row[index], '%?') for row in data) else 'l'


def _is_number(cell, unit=''):
    return re.fullmatch(rf'-|<?[-+.e\d]*\d{unit}|>=\d+', cell)


def print_table(header: list[str], rows: list) -> None:
    """Print a table. Cells that end in a digit are aligned to the right.

    :param rows: list of rows, each a list of cells
    """
    rows = [[plain_text.printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows)
             for i in range(len(header))]
    for row in (header, ['-' * width for width in widths], *rows):
        print_line('  '.join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right)).rstrip())


def print_tables(tables: list) -> None:
    """Print several tables, each with a title.

    :param tables: iterable of (title, header, rows)
    """
    for number, (title, header, rows) in enumerate(tables):
        if number:
            print_line()
        print_line(title)
        print_table(header, rows)


def print_remarks(title: str, sentences: list[str]) -> None:
    """Print a title and a list of sentences; nothing without sentences."""
    if sentences:
        print_below(f'{title}:')
        for text in sentences:
            print_line(f'- {text}')


def json_text(data: object, indent: int | None = 2) -> str:
    """Return an answer as JSON. NaN and infinity raise an error."""
    # All characters beyond ASCII and all control characters except DEL are
    # escaped.
    return json.dumps(data, indent=indent, allow_nan=False).replace(
        '\x7f', r'\u007f')


def print_json(data: object) -> None:
    """Print an answer as JSON."""
    print_text(json_text(data))


def say(prog: str, text: str) -> None:
    """Print one line to standard error, after the name of the command."""
    print(f'{prog}: {plain_text.one_line(text)}', file=sys.stderr, flush=True)


def cell(value: object, form: str = '.4g') -> str:
    """Return a number as text, or a hyphen for None.

    :param value: number or None
    :param form: format specification
    """
    return '-' if value is None else format(value, form)


def version(prog: str) -> str:
    """Return the text of ``--version``: the command and its version."""
    try:
        package = importlib.metadata.distribution(_PACKAGE)
        return f'{prog} {package.version}'
    except importlib.metadata.PackageNotFoundError:
        return f'{prog}, version unknown: {_PACKAGE} is not installed'


def counted(counts):
    """Return ' (3 of this, 4 of that)', or an empty text.

    :param counts: {name: number}
    """
    if not counts:
        return ''
    return ' (' + ', '.join(f'{count} {name}'
                            for name, count in counts.items()) + ')'


@contextlib.contextmanager
def progress(label):
    """Yield a callback (done, total) that shows a bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with tqdm.tqdm(desc=label, unit='', file=sys.stderr, leave=False,
                   bar_format='{desc}: {percentage:3.0f}%|{bar}| '
                              '{elapsed}<{remaining}') as bar:
        def report(done, total):
            bar.total = total
            bar.update(done - bar.n)
        yield report


# Completion in a shell

#: Value of the attribute ``complete`` of an argument that is a file, as FILE
#: of shtab.
FILE = {'bash': '_shtab_compgen_files', 'zsh': '_files', 'tcsh': 'f'}


class PrintCompletion(argparse.Action):
    """Print the script that completes the command in a shell, and exit.

    A parser that does not have all sub-commands has a method
    ``whole_parser``.

    :param option_strings: as in argparse.Action
    :param dest: as in argparse.Action
    :param keywords: keyword arguments of argparse.Action
    """

    def __init__(self, option_strings, dest, **keywords):
        super().__init__(option_strings, dest, default=argparse.SUPPRESS,
                         choices=('bash', 'tcsh', 'zsh'), **keywords)

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            import shtab
        except ImportError:
            raise exceptions.NotInstalled(
                thing=option_string, library='shtab', extra='completion'
            ) from None
        whole = getattr(parser, 'whole_parser', lambda: parser)()
        _write(shtab.complete(whole, values))
        parser.exit()


# The process

def log_all() -> None:
    """Log everything to standard error, including libraries, escaped."""
    # Slow to import, and few commands log anything.
    from vswitch_aware_scheduler.common import logs

    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    logs.escape_all()


def run(prog, command, debug=lambda: False, failure=1, interrupted=''):
    """Run a command. An error is printed as one line on standard error.

    If a reader such as ``head`` closes the output, this is not an error: the
    command continues without output and returns its own status.

    :param command: callable(), returns the exit status
    :param debug: callable(), returns whether to show tracebacks
    :param failure: exit status after an error
    :param interrupted: text to print after an interrupt
    :returns: exit status
    """
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        # A name that the locale cannot represent does not cause a failure.
        if hasattr(stream, 'reconfigure'):
            stream.reconfigure(errors='backslashreplace')
    try:
        try:
            return command()
        finally:
            _flush()
    except KeyboardInterrupt:
        say(prog, 'interrupted' + interrupted)
    except Exception as error:
        if debug():
            for line in traceback.format_exc().splitlines():
                print(plain_text.printable(line), file=sys.stderr)
        say(prog, _words(error))
    return failure


def _words(error):
    if isinstance(error, (exceptions.VSwitchError, ValueError, OSError)) \
            or type(error).__module__.startswith('oslo_config.'):
        return str(error) or type(error).__name__
    return (f'unexpected {type(error).__name__}: {error}; the option '
            f'--debug shows where it comes from')


def _open_missing_streams():
    """Open standard streams that the caller has closed.

    Otherwise the next file that is opened, for example the store, would get
    their number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, 'w')
    if sys.stdout is None:
        sys.stdout = open(os.devnull, 'w')


def _write(text):
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        _drop_output()


class _Output:
    """Standard output of cliff: a closed pipe is no error."""

    def write(self, text):
        """Write text."""
        _write(text)


#: Where the formatters of cliff write.
OUTPUT = _Output()


def _flush():
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError:
        # For example a full disk: reported once, not again at exit.
        _drop_output()
        raise


def _drop_output():
    """Discard standard output, including the contents of its buffer."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
