# SPDX-License-Identifier: Apache-2.0
"""The base classes of the commands of vswitch-manage and openstack vswitch.

A command computes an answer: a dictionary with rates in kbit/s and times in
seconds UTC. vswitch-manage prints the answer as JSON or YAML. For people, each
class selects columns, and converts rates and times to units that are easy to
read. The docstring of a command is its help.
"""

import argparse
import dataclasses
import functools
import io
import json
import re
import typing

from cliff import columns as cliff_columns
from cliff import command
from cliff.formatters import yaml_format
from cliff import lister
from cliff import show

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options

__all__ = ['Column', 'Command', 'List', 'Show', 'amount', 'fields_of',
           'natural', 'table_of']

#: Keys of times in seconds UTC, in addition to keys that end in ``_at``.
_TIMES = {'window_start', 'window_end', 'until', 'settled_until',
          'last_time'}

_FILTERS = {'host': 'of this host', 'project': 'of the project with this id'}

_MBPS, _GBPS = ('Mbit/s', 1e3), ('Gbit/s', 1e6)

#: A longer dictionary has a line for each item.
_LONGEST = 78

_UUIDS = ('instance', 'instance_uuid')


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a list.

    :ivar header: title of the column. In a table, a rate has its unit there
    :ivar key: key of a row, or keys of nested dictionaries joined by dots
    :ivar form: callable(value), returns the text of a value other than None in
        a table
    :ivar absent: text for None in a table; JSON has null, CSV an empty field
    """

    header: str
    key: str
    form: typing.Callable | None = None
    absent: str = '-'

    def value(self, row: dict) -> typing.Any:
        """Return the value of a row, or None."""
        for key in self.key.split('.'):
            row = row.get(key) if isinstance(row, dict) else None
        return row


class _Base:
    """What all commands have in common."""

    #: The commands read only the store: "openstack vswitch" authenticates
    #: nobody.
    auth_required = False

    #: Formats of the option -f.
    formats = ('table', 'json', 'yaml')

    #: Exit status, which :meth:`answer` may change.
    status = 0

    def get_epilog(self):
        """Return no text below the help."""
        return ''

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser) -> None:
        """Add the arguments of the command to its parser."""

    def answer(self, arguments) -> dict:
        """Return the answer: what vswitch-manage prints as JSON."""
        raise NotImplementedError

    @property
    def is_plugin(self) -> bool:
        """Whether OpenStackClient runs the command."""
        return hasattr(getattr(self.app, 'options', None),
                       'vswitch_config_file')

    @functools.cached_property
    def all_options(self):
        """The ConfigOpts of the command."""
        return context.configuration(self.app.options)

    @property
    def conf(self):
        """Options of the group [vswitch_scheduler]."""
        return self.all_options[options.GROUP]

    @functools.cached_property
    def store(self):
        """The :class:`~vswitch_aware_scheduler.store.Store`."""
        return context.open_store(self.conf)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return its exit status."""
        super().run(arguments)
        return self.status

    def _prints_answer(self, arguments):
        return arguments.formatter in ('json', 'yaml') and not self.is_plugin

    def _print_answer(self, arguments, answer):
        terminal.print_text(as_text(
            arguments.formatter, answer,
            None if getattr(arguments, 'noindent', False) else 2))


class Command(_Base, command.Command):
    """A command that prints text of its own for people."""

    def take_action(self, arguments: argparse.Namespace) -> typing.Any:
        """Print the answer."""
        answer = self.answer(arguments)
        if self._prints_answer(arguments):
            self._print_answer(arguments, with_texts(answer))
        else:
            self.describe(answer)

    def describe(self, answer: dict) -> None:
        """Print the answer for people."""
        raise NotImplementedError


class Show(_Base, show.ShowOne):
    """A command that prints the fields of one thing."""

    formats = (*_Base.formats, 'shell', 'value')

    def shown(self, answer: dict) -> dict:
        """Return the fields of every format but JSON and YAML."""
        return answer

    def for_people(self, fields: dict) -> dict:
        """Return the fields as a table has them."""
        return fields

    def take_action(self, arguments: argparse.Namespace) -> typing.Any:
        """Return (names, values)."""
        answer = with_texts(self.answer(arguments))
        if not self._prints_answer(arguments):
            answer = with_texts(self.shown(answer))
        if arguments.formatter != 'table':
            return list(answer), [
                value if arguments.formatter in ('json', 'yaml')
                else _plain(value) for value in answer.values()]
        answer = self.for_people(answer)
        if arguments.columns:
            # A column is also found by its name in JSON.
            arguments.columns = [
                _field(key, answer.get(key))[0] if key in answer else key
                for key in arguments.columns]
        return fields_of(answer)

    def produce_output(self, arguments, names, values):
        """Print the fields.

        :param values: values of the fields
        """
        if not self._prints_answer(arguments):
            return super().produce_output(arguments, list(names), list(values))
        self._print_answer(arguments, {
            name: value for name, value in zip(names, values)
            if name in (arguments.columns or names)})


class List(_Base, lister.Lister):
    """A command that prints rows.

    :cvar rows_key: key of the rows in the answer
    :cvar below: name of the things in the list, printed below a table after
        their number
    :cvar columns: list of the Columns of the table
    :ivar total: number of rows, if :meth:`answer` does not return all
    :cvar filters: any of 'host' and 'project', by which rows can be selected
    """

    formats = (*_Base.formats, 'csv', 'value')
    need_sort_by_cliff = False
    rows_key = below = total = None
    columns = []
    filters = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser = super().get_parser(prog_name)
        parser.set_defaults(
            print_empty=True, sort_direction='asc',
            **({} if self.is_plugin else {'quote_mode': 'minimal'}))
        parser.add_argument('--limit', metavar='N', type=_count,
                            help='print at most N rows')
        for name in self.filters:
            parser.add_argument(f'--{name}', metavar=name.upper(),
                                help=f'print only rows {_FILTERS[name]}')
        return parser

    def belongs(self, row: dict, name: str, value: str) -> bool:
        """Return whether a row has the value of a filter."""
        return row.get(name) == value

    def complete(self, arguments: argparse.Namespace, rows: list,
                 answer: dict) -> None:
        """Add to the selected rows what takes long to compute."""

    def describe(self, answer: dict, rows: list) -> None:
        """Print for people what follows the table."""

    def sorts_by(self, arguments: argparse.Namespace, key: str) -> bool:
        """Return whether the list is sorted by a key of its rows."""
        return _normal(key) in map(_normal, arguments.sort_columns)

    def take_action(self, arguments: argparse.Namespace) -> typing.Any:
        """Return (titles, rows of cells)."""
        answer = with_texts(self.answer(arguments))
        rows, total = self.select(arguments, answer[self.rows_key])
        self.complete(arguments, rows, answer)
        columns = [_column(text, self.columns, rows)
                   for text in arguments.columns]
        self._answer, self._rows, self._total = answer, rows, (
            self.total or total)
        self._chosen, arguments.columns = columns, []
        if arguments.formatter == 'table':
            columns = columns or self._named(rows)
            self.formatter = terminal.Table()
            titles, cells = table_of(rows, columns)
        else:
            columns = columns or self.columns
            titles = [column.key for column in columns]
            cells = [[column.value(row) for column in columns]
                     for row in rows]
            if arguments.formatter in ('csv', 'value'):
                cells = [list(map(_plain, row)) for row in cells]
        if self.is_plugin:
            titles = [column.header.replace('_', ' ').title()
                      for column in columns]
        return titles, cells

    def produce_output(self, arguments, titles, cells):
        """Print the rows.

        :param titles: titles of the columns
        :param cells: rows of cells
        """
        rows, total = self._rows, self._total
        if self._prints_answer(arguments):
            self._print_answer(arguments, {
                **self._answer, self.rows_key: [
                    _reduced(row, self._chosen) for row in rows]
                if self._chosen else rows})
            return
        super().produce_output(arguments, titles, cells)
        if arguments.formatter == 'table':
            if self.below is not None and not self.is_plugin:
                terminal.print_below(
                    (f'{total} ' if len(rows) == total
                     else f'{len(rows)} of {total} ')
                    + (re.sub(r'^(\w+)s\b', r'\1', self.below)
                       if total == 1 else self.below))
            self.describe(self._answer, rows)

    def select(self, arguments: argparse.Namespace, rows: list) -> tuple:
        """Return the rows to print, and their number without a limit."""
        rows = [with_texts(row) for row in rows]
        for name in self.filters:
            value = getattr(arguments, name)
            if value is not None:
                rows = [row for row in rows if self.belongs(row, name, value)]
        for text in reversed(arguments.sort_columns):
            column = _column(text, self.columns, rows)
            values = [(column.value(row), row) for row in rows]
            rows = [row for _, row in sorted(
                (pair for pair in values if pair[0] is not None),
                key=lambda pair: natural(pair[0]),
                reverse=arguments.sort_direction == 'desc')]
            rows += [row for value, row in values if value is None]
        return rows[:arguments.limit], len(rows)

    def _named(self, rows):
        """Return the columns, with the name of an instance beside its uuid."""
        columns = list(self.columns)
        for index, column in enumerate(columns):
            if column.key in _UUIDS and not any(
                    other.key == 'name' for other in columns):
                names = instances.names(self.store)
                for row in rows:
                    row['name'] = names.get(row[column.key])
                columns.insert(index + 1, Column('NAME', 'name'))
                break
        return columns


def _count(text):
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f'{text!r}; expected an integer of 1 or more')
    return number


# For people

def table_of(rows: list, columns: list) -> tuple:
    """Return (titles, rows of texts) of a table for people."""
    titles, texts = [], []
    for column in columns:
        values = [column.value(row) for row in rows]
        title = column.header
        form = column.form or _text
        if '_kbps' in column.key:
            unit, divisor = _unit([value for value in values if value])
            title = f'{title.removesuffix("_KBPS")} {unit}'
            values = [value and value / divisor for value in values]
        titles.append(title)
        texts.append([column.absent if value is None
                      else plain_text.printable(form(value))
                      for value in values])
    return titles, list(map(list, zip(*texts)))


def fields_of(answer: dict) -> tuple:
    """Return (names, cells) of the fields of an answer, for people."""
    answer = with_texts(answer)
    names, cells = zip(*(
        _field(key, answer.get(f'{key}_iso', value))
        for key, value in answer.items()
        if key.removesuffix('_iso') not in answer
        or not key.endswith('_iso')))
    return names, cells


def amount(value: float, unit: str | None) -> str:
    """Return a number with its unit, a rate in Mbit/s or Gbit/s.

    :param unit: as an Assessment has it; None: a probability
    """
    if unit is None:
        return plain_text.chance(value)
    if unit.startswith('kbit/s'):
        name, divisor = _unit([value])
        return f'{_text(value / divisor)} {unit.replace("kbit/s", name, 1)}'
    return f'{_text(value)} {unit}'


def _unit(rates):
    return _GBPS if rates and min(map(abs, rates)) >= _GBPS[1] else _MBPS


def _field(key, value):
    """Return (name, cell) of a field for people."""
    name = key
    if '_kbps' in key and isinstance(value, int | float):
        unit, divisor = _unit([value])
        name, value = f'{key.replace("_kbps", "")} ({unit})', value / divisor
    return name, _Cell(value)


class _Cell(cliff_columns.FormattableColumn):
    """A value of a field: a list has a line for each item."""

    def human_readable(self):
        items = self._value
        if isinstance(items, dict) and len(_text(items)) > _LONGEST:
            items = [f'{key}: {_text(item)}' for key, item in items.items()]
        return '\n'.join(
            plain_text.printable(line) for item in (
                items if isinstance(items, list) and items else [items])
            for line in _text(item).split('\n'))

    def machine_readable(self):
        return self._value

    def __str__(self):
        return self.human_readable()


def _text(value, brackets=''):
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, dict):
        parts = []
        if all(type(item) is int for item in value.values()):
            # Of counts, only those of what occurred.
            value = {key: item for key, item in value.items() if item}
        for key, item in value.items():
            key = str(key)
            if _is_time(key, item):
                item = plain_text.iso_time(item)
            if '_kbps' in key and isinstance(item, int | float):
                unit, divisor = _unit([item])
                parts.append(f'{key.replace("_kbps", "")} '
                             f'{_text(item / divisor)} {unit}')
            elif item is not None:
                parts.append(f'{key} {_text(item, "()")}')
        return brackets[:1] + (', '.join(parts) or '-') + brackets[1:]
    if isinstance(value, list | tuple):
        return ', '.join(_text(item, '()') for item in value) or '-'
    if isinstance(value, float):
        return f'{value:.1f}' if abs(value) >= 1000 else f'{value:.4g}'
    return '-' if value is None else str(value)


# For programs

def as_text(output_format: str, data: object, indent: int | None = 2) -> str:
    """Return an answer as JSON or YAML. NaN and infinity raise an error."""
    text = terminal.json_text(data, indent)
    if output_format == 'json':
        return text
    # In JSON, keys are strings and tuples are lists.
    data, written = json.loads(text), io.StringIO()
    yaml_format.YAMLFormatter().emit_one(
        list(data), list(data.values()), written, None)
    return written.getvalue()


def _plain(value):
    """Return a value as a field of CSV: numbers are not rounded."""
    if isinstance(value, str):
        return plain_text.printable(value)
    return json.dumps(value, allow_nan=False) \
        if isinstance(value, dict | list) else value


def with_texts(row: object) -> typing.Any:
    """Return a dictionary with an ISO 8601 text for each time.

    :param row: dictionary; other values are returned as they are
    """
    if not isinstance(row, dict):
        return row
    full = {}
    for key, value in row.items():
        full[key] = value
        if _is_time(key, value):
            full.setdefault(f'{key}_iso', row.get(
                f'{key}_iso', plain_text.iso_time(value)))
    return full


def _is_time(key, value):
    return (key.endswith('_at') or key in _TIMES) and (
        value is None or isinstance(value, int | float))


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
    if not rows:
        # There is no row whose keys could be compared: accept any name.
        return Column(text.upper(), text)
    names = dict.fromkeys(
        [*(column.header for column in columns), *keys])
    raise exceptions.InvalidInput(
        thing='column', value=text, expected=plain_text.one_of(text, names))


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


def natural(value: object) -> tuple:
    """Return a sort key: numbers by value, and host2 before host10."""
    if isinstance(value, bool | int | float):
        return (0, value)
    parts = re.split(r'([0-9]+)', str(value))
    return (1, [(0, int(part), '') if part.isdigit() else (1, 0, part)
                for part in parts if part])
