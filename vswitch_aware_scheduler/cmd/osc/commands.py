# SPDX-License-Identifier: Apache-2.0
"""The commands of ``openstack vswitch``.

Each command calls the corresponding sub-command of vswitch-manage and passes
the answer to cliff, which provides the output formats, the selection of
columns and the sorting of all commands of OpenStackClient.
"""

import functools
import json
import os

from cliff import columns as cliff_columns
from cliff import lister
from cliff import show

from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text

__all__ = ['DecisionList', 'DecisionShow', 'Explain', 'FleetList', 'HostList',
           'HostShow', 'ModelList', 'ModelShow', 'ProfileList', 'ProfileShow']


@functools.total_ordering
class _Cell(cliff_columns.FormattableColumn):
    """A value with different forms for operators and programs.

    :param value: value in JSON
    :param lines: lines for operators
    """

    def __init__(self, value, *lines):
        super().__init__(value)
        self._lines = lines

    def human_readable(self):
        return '\n'.join(map(plain_text.printable, self._lines))

    def machine_readable(self):
        return self._value

    def __eq__(self, other):
        return isinstance(other, _Cell) and self._value == other._value

    def __lt__(self, other):
        # Values of different types can be sorted as well.
        return self._order < other._order

    @property
    def _order(self):
        value = self._value
        if isinstance(value, (int, float)):
            return 0, float(value), ''
        return 1, 0.0, value if isinstance(value, str) else json.dumps(value)


def _cell(value, *lines):
    """Return what cliff displays. cliff handles None, and sorts it last."""
    return None if value is None else _Cell(value, *lines)


def _heading(header):
    return header.replace('_', ' ').title()


class _Command:
    """Calls vswitch-manage."""

    #: The commands only read the store, so that no authentication is needed.
    auth_required = False

    def ask(self, *command):
        """Return the :class:`.output.Answer` of a sub-command.

        :param command: words of the sub-command
        :raises InvalidInput: if there is no readable configuration file
        :raises VSwitchError: if the sub-command fails
        """
        path = getattr(self.app.options, 'vswitch_config_file', None)
        if path is None and not manage.default_config_files():
            raise exceptions.InvalidInput(
                '--vswitch-config-file: not given; expected the '
                'configuration file of vswitch_aware_scheduler. There is no '
                'API server: "openstack vswitch" reads the store that this '
                'file names. Run it on a machine of an administrator with '
                'access to the store')
        if path is not None and not os.access(path, os.R_OK):
            raise exceptions.InvalidInput(
                f'--vswitch-config-file: {path}; expected a readable file. '
                f'There is no API server: run "openstack vswitch" on a '
                f'machine of an administrator with access to the store')
        return manage.ask(command, [] if path is None else [path])


class _List(_Command, lister.Lister):

    #: Sub-command of vswitch-manage.
    command = ()

    #: {option: help} of options with a value, passed to the sub-command.
    options = {}

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        for name, text in self.options.items():
            parser.add_argument(f'--{name}', metavar=f'<{name}>', help=text)
        return parser

    def take_action(self, arguments):
        command = list(self.command)
        for name in self.options:
            value = getattr(arguments, name)
            if value is not None:
                command.append(f'--{name}={value}')
        return self.table(self.ask(*command))

    def table(self, answer):
        """Return (titles, rows) of an Answer.

        :param answer: :class:`.output.Answer`
        """
        return ([_heading(column.header) for column in answer.columns],
                [[_cell(column.value(row), column.cell(row))
                  for column in answer.columns] for row in answer.rows])


class _Show(_Command, show.ShowOne):

    command = ()
    argument = ('name', 'Name')

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        name, text = self.argument
        parser.add_argument('subject', metavar=f'<{name}>', help=text)
        return parser

    def take_action(self, arguments):
        answer = self.ask(*self.command, '--', arguments.subject).answer
        return self.fields(answer)

    def fields(self, answer):
        """Return (names, values) of the rows to show.

        :param answer: dictionary, the JSON output of the sub-command
        """
        return list(answer), [_cell(value, *_lines(value))
                              for value in answer.values()]


def _lines(value):
    """Return a value as lines of text, one for each item of a list."""
    return [_text(item) for item in value] if isinstance(value, list) \
        else [_text(value)]


def _text(value, brackets=''):
    if isinstance(value, dict):
        return brackets[:1] + ', '.join(
            f'{key}={_text(item, "()")}' for key, item in value.items()
            if item is not None) + brackets[1:]
    if isinstance(value, list):
        return '[' + ', '.join(map(_text, value)) + ']'
    if isinstance(value, float):
        return f'{value:.6g}'
    return str(value)


_OF_HOST = 'Show only the items of this host'
_OF_PROJECT = 'Show only the instances of the project with this id'


class FleetList(_List):
    """List hosts: what each carries, and how likely it is overloaded"""

    command = 'fleet',
    options = {'flavor': 'Show how many more instances of this flavor each '
                         'host has room for',
               'project': 'Project of these instances'}


class HostList(_List):
    """List the switch profiles of hosts that are in the store"""

    command = 'host', 'list'
    options = {'host': _OF_HOST}


class HostShow(_Show):
    """Show what a host carries, and its instances"""

    argument = 'host', 'Name of the host'

    def take_action(self, arguments):
        answer = self.ask('fleet', f'--host={arguments.subject}')
        if not answer.rows:
            raise exceptions.InvalidInput(
                f'host: {arguments.subject!r}; expected one of "openstack '
                f'vswitch fleet list"')
        return self.fields({**answer.rows[0], 'instances_on_host':
                            answer.other_keys.get('instances')})


class ProfileList(_List):
    """List switch profiles"""

    command = 'profile', 'list'


class ProfileShow(_Show):
    """Show a switch profile"""

    command = 'profile', 'show'
    argument = 'profile', 'Name of the switch profile'


class ModelList(_List):
    """List the traffic models of instances"""

    command = 'model', 'list'
    options = {'host': _OF_HOST, 'project': _OF_PROJECT}


class ModelShow(_Show):
    """Show the traffic model of an instance"""

    command = 'model', 'show'
    argument = 'server', 'Uuid of an instance, or name of one with a model'


class DecisionList(_List):
    """List how schedulers judged hosts for the last requests"""

    command = 'decision', 'list'
    options = {'host': _OF_HOST, 'project': _OF_PROJECT}


class DecisionShow(_Show):
    """Show the newest decision on an instance or a request"""

    command = 'decision', 'show'
    argument = ('server', 'Uuid of an instance, or id of a request of Nova')

    def fields(self, answer):
        return super().fields(answer['decisions'][0])


class Explain(_List):
    """List hosts as they would be judged for an instance now, and why"""

    command = 'explain',
    options = {'server': 'Uuid of an instance, or name of one with a model',
               'flavor': 'Name of the flavor of a new instance',
               'project': 'Project of the new instance',
               'host': _OF_HOST}

    def take_action(self, arguments):
        if (arguments.server is None) == (arguments.flavor is None):
            raise exceptions.InvalidInput(
                '--server and --flavor: both or none given; expected one of '
                'them')
        return super().take_action(arguments)
