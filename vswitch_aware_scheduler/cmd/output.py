# SPDX-License-Identifier: Apache-2.0
"""Prints the answers and lists of vswitch-manage.

An answer is what ``--json`` prints: a dictionary. A list is an answer with
rows, some keys of which are the columns of a table. cliff's formatters write
tables, CSV and YAML, as in other OpenStack commands. All output goes through
:mod:`~vswitch_aware_scheduler.cmd.terminal`, which escapes control characters
for the terminal.
"""

import argparse
import dataclasses
import io
import json
import re
import typing

from cliff.formatters import commaseparated
from cliff.formatters import table as cliff_table
from cliff.formatters import yaml_format

from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text

__all__ = ['Answer', 'Column', 'add_list_arguments', 'is_sorted_by',
           'natural', 'print_answer', 'print_list', 'print_plain',
           'print_selected', 'select']

#: Keys of times in seconds UTC, in addition to keys that end in ``_at``.
_TIMES = {'window_start', 'window_end', 'until', 'last_time'}

_FILTERS = {'host': 'of this host', 'project': 'of the project with this id'}


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a list.

    :ivar header: title of the column in a table
    :ivar key: key of a row, or keys of nested dictionaries joined by dots
    :ivar form: callable(value), returns the text of a value other than None in
        a table; without it, numbers have four or more significant digits
    :ivar absent: text for None in a table; JSON has null, CSV an empty field
    """

    header: str
    key: str
    form: typing.Callable | None = None
    absent: str = '-'

    def value(self, row):
        """Return the value of a row, or None.

        :param row: dictionary
        """
        for key in self.key.split('.'):
            row = row.get(key) if isinstance(row, dict) else None
        return row

    def cell(self, row):
        """Return the text of this column for a row of a table.

        :param row: dictionary
        """
        value = self.value(row)
        if value is None:
            return self.absent
        if self.form is not None:
            return self.form(value)
        if isinstance(value, float):
            return f'{value:.1f}' if value >= 1000 else f'{value:.4g}'
        if isinstance(value, dict | list):
            return _json(value)
        return str(value)


@dataclasses.dataclass
class Answer:
    """The answer of a sub-command, for a caller that prints it itself.

    :ivar answer: dictionary, for a sub-command that prints no list
    :ivar columns: list of the Columns of a list
    :ivar rows: list of the rows
    :ivar other_keys: dictionary with the other keys of the JSON output
    """

    answer: dict | None = None
    columns: list = dataclasses.field(default_factory=list)
    rows: list = dataclasses.field(default_factory=list)
    other_keys: dict = dataclasses.field(default_factory=dict)


def add_list_arguments(parser, *filters):
    """Add the arguments that every list has.

    :param parser: argparse parser
    :param filters: any of 'host' and 'project', by which the list can be
        filtered
    """
    group = parser.add_argument_group('output of the list')
    group.add_argument(
        '--format', choices=('table', 'json', 'yaml', 'csv'),
        dest='output_format', default=argparse.SUPPRESS,
        help='the same as -f')
    group.add_argument(
        '-c', '--column', metavar='COLUMN', action='append', dest='columns',
        default=[], help='print only this column, given by its name in the '
        'table or its key in JSON; may be given several times')
    group.add_argument(
        '--sort-column', metavar='COLUMN', action='append',
        dest='sort_columns', default=[],
        help='sort by this column; may be given several times: rows that are '
             'equal in the first column are sorted by the second, and so on')
    direction = group.add_mutually_exclusive_group()
    direction.add_argument('--sort-ascending', action='store_false',
                           dest='sort_descending', default=False,
                           help='sort in ascending order, the default')
    direction.add_argument('--sort-descending', action='store_true',
                           default=False, help='sort in descending order')
    group.add_argument('--limit', metavar='N', type=_count,
                       help='print at most N rows')
    parser.set_defaults(list_filters=filters)
    for name in filters:
        group.add_argument(f'--{name}', metavar=name.upper(),
                           help=f'print only rows {_FILTERS[name]}')


def _count(text):
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f'{text!r}; expected an integer of 1 or more')
    return number


# Answers

def print_answer(arguments, answer):
    """Print an answer as JSON or YAML, if the arguments request it.

    :param arguments: argparse Namespace
    :param answer: dictionary; for each time, the output also has its text
    :returns: whether it was printed; otherwise the caller prints it as text
    """
    captured = getattr(arguments, 'captured', None)
    if captured is not None:
        captured.answer = _with_texts(answer)
        return True
    if arguments.output_format not in ('json', 'yaml'):
        return False
    _print_data(arguments.output_format, _with_texts(answer))
    return True


def print_list(arguments, rows, columns, name, below=None, other_keys=None,
               belongs=None):
    """Print a list as the arguments of :func:`add_list_arguments` request.

    :param arguments: argparse Namespace
    :param rows: list of dictionaries, in the order of printing unless the
        arguments request another order
    :param columns: list of the Columns of the table
    :param name: key of the rows in JSON; None prints only the rows
    :param below: name of the things in the list, printed below a table after
        their number
    :param other_keys: dictionary with the other keys of the JSON output
    :param belongs: {filter: callable(row, value), returns whether a row
        matches}; by default, the key with the name of the filter has to have
        the value
    """
    rows, total = select(arguments, rows, columns, belongs)
    print_selected(arguments, rows, total, columns, name, below, other_keys)


def select(arguments, rows, columns, belongs=None):
    """Return the rows to print, and their number without a limit.

    :param arguments: as in :func:`print_list`
    :param rows: as in :func:`print_list`
    :param columns: as in :func:`print_list`
    :param belongs: as in :func:`print_list`
    :returns: (list of rows, number)
    """
    rows = [_with_texts(row) for row in rows]
    for name in arguments.list_filters:
        expected = getattr(arguments, name)
        if expected is not None:
            is_wanted = (belongs or {}).get(
                name, lambda row, value, key=name: row.get(key) == value)
            rows = [row for row in rows if is_wanted(row, expected)]
    for text in reversed(arguments.sort_columns):
        column = _column(text, columns, rows)
        values = [(column.value(row), row) for row in rows]
        rows = [row for _, row in sorted(
            (pair for pair in values if pair[0] is not None),
            key=lambda pair: natural(pair[0]),
            reverse=arguments.sort_descending)]
        rows += [row for value, row in values if value is None]
    return rows[:arguments.limit], len(rows)


def is_sorted_by(arguments, key):
    """Return whether a list is sorted by a key of its rows.

    :param arguments: argparse Namespace
    :param key: key of the rows
    """
    return _normal(key) in map(_normal, arguments.sort_columns)


def print_selected(arguments, rows, total, columns, name, below=None,
                   other_keys=None):
    """Print rows that :func:`select` returned.

    :param arguments: as in :func:`print_list`
    :param rows: list of rows that :func:`select` returned
    :param total: number that :func:`select` returned
    :param columns: as in :func:`print_list`
    :param name: as in :func:`print_list`
    :param below: as in :func:`print_list`
    :param other_keys: as in :func:`print_list`
    """
    captured = getattr(arguments, 'captured', None)
    if captured is not None:
        captured.columns, captured.rows = columns, rows
        captured.other_keys = _with_texts(other_keys or {})
        return
    printed = [_column(text, columns, rows) for text in arguments.columns]
    output_format = arguments.output_format or 'table'
    if output_format in ('json', 'yaml'):
        if printed:
            rows = [_reduced(row, printed) for row in rows]
        _print_data(output_format, rows if name is None
                    else {**_with_texts(other_keys or {}), name: rows})
        return
    printed = printed or columns
    text = io.StringIO()
    if output_format == 'csv':
        commaseparated.CSVLister().emit_list(
            [column.key for column in printed],
            [[_csv_cell(column.value(row)) for column in printed]
             for row in rows], text,
            argparse.Namespace(quote_mode='minimal'))
    else:
        _emit_table(rows, printed, text)
    terminal.print_text(text.getvalue())
    if below is not None and output_format == 'table':
        terminal.print_below(
            (f'{total} ' if len(rows) == total
             else f'{len(rows)} of {total} ')
            + (re.sub(r'^(\w+)s\b', r'\1', below) if total == 1 else below))


def print_plain(rows, columns):
    """Print a table of all rows.

    :param rows: list of dictionaries
    :param columns: list of Columns
    """
    text = io.StringIO()
    _emit_table(rows, columns, text)
    terminal.print_text(text.getvalue())


def _emit_table(rows, columns, text):
    _Table().emit_list(
        [column.header for column in columns],
        [[plain_text.printable(column.cell(row)) for column in columns]
         for row in rows], text,
        argparse.Namespace(print_empty=True, max_width=0, fit_width=False))


class _Table(cliff_table.TableFormatter):

    def add_rows(self, table, column_names, data):
        """Add rows of texts. Columns of numbers are aligned to the right.

        :param table: prettytable of cliff
        :param column_names: list of titles
        :param data: iterable of rows of texts
        """
        super().add_rows(table, column_names, data)
        for index, name in enumerate(column_names):
            table.align[name] = 'r' if all(
                re.fullmatch(r'-|<?[-+.e\d]*\d%?|>=\d+', row[index])
                for row in data) else 'l'


def _print_data(output_format, data):
    if output_format == 'json':
        terminal.print_json(data)
        return
    # In JSON, keys are strings and tuples are lists.
    data = json.loads(_json(data))
    text = io.StringIO()
    formatter = yaml_format.YAMLFormatter()
    if isinstance(data, dict):
        formatter.emit_one(list(data), list(data.values()), text, None)
    else:
        keys = dict.fromkeys(key for row in data for key in row)
        formatter.emit_list(keys, [[row.get(key) for key in keys]
                                   for row in data], text, None)
    terminal.print_text(text.getvalue())


def _column(text, columns, rows):
    """Return the Column that a word on the command line names."""
    name = _normal(text)
    for column in columns:
        if name in (_normal(column.header), _normal(column.key)):
            return column
    keys = dict.fromkeys(key for row in rows for key in row)
    for key in keys:
        if name == _normal(key):
            return Column(key.upper(), key)
    names = dict.fromkeys(
        [*(column.header for column in columns), *keys])
    if not rows:
        # There is no row whose keys could be compared: accept any name.
        return Column(text.upper(), text)
    raise exceptions.InvalidInput(
        f'column: {text!r}; expected one of {", ".join(names)}')


def _normal(name):
    return re.sub(r'[-_. ]+', '_', name.lower())


def _reduced(row, columns):
    """Return a row with only the keys of the given columns."""
    reduced = {}
    for column in columns:
        *above, last = column.key.split('.')
        target = reduced
        for key in above:
            target = target.setdefault(key, {})
        target[last] = column.value(row)
    return reduced


def _csv_cell(value):
    if isinstance(value, str):
        return plain_text.printable(value)
    return _json(value) if isinstance(value, dict | list) else value


def _json(value):
    return json.dumps(value, allow_nan=False)


def _with_texts(row):
    """Return a dictionary with an ISO 8601 text for each time."""
    if not isinstance(row, dict):
        return row
    full = {}
    for key, value in row.items():
        full[key] = value
        if (key.endswith('_at') or key in _TIMES) and (
                value is None or isinstance(value, int | float)):
            full.setdefault(f'{key}_iso', row.get(
                f'{key}_iso', plain_text.iso_time(value)))
    return full


def natural(value):
    """Return a sort key: numbers by value, and host2 before host10.

    :param value: number or text
    """
    if isinstance(value, bool | int | float):
        return (0, value)
    parts = re.split(r'([0-9]+)', str(value))
    return (1, [(0, int(part), '') if part.isdigit() else (1, 0, part)
                for part in parts if part])
