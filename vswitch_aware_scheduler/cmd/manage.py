# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage: the operator's command.

Each sub-command is an entry point of the group :data:`GROUP`, so that the
laboratory and other packages can add some. Only the module of the sub-command
that runs is imported. The manual has every sub-command with an example:
cli/vswitch-manage-*.rst.
"""

import argparse
import importlib.metadata
import importlib.util
import logging
import pathlib
import re
import sys

from cliff import app
from cliff import commandmanager

from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks

__all__ = ['GROUP', 'App', 'main']

PROG = 'vswitch-manage'

#: Group of the entry points of sub-commands, which are classes of
#: :mod:`~vswitch_aware_scheduler.cmd.base`. In a name, "_" stands for the
#: space between two words.
GROUP = 'vswitch_aware_scheduler.commands'


class _Commands(commandmanager.CommandManager):
    """Finds the sub-commands without importing them."""

    def load_commands(self, namespace):
        """Add the entry points of a group."""
        self.group_list.append(namespace)
        self.commands.update(
            (entry.name.replace('_', ' '), entry)
            for entry in importlib.metadata.entry_points(group=namespace))


class App(app.App):
    """The application of cliff."""

    NAME = PROG

    def __init__(self):
        super().__init__(
            'Manage the traffic models, switch profiles and decisions in the '
            'store of vswitch_aware_scheduler.', None, _Commands(GROUP),
            stdout=terminal.OUTPUT, deferred_help=True)
        for name in ('help', 'complete'):
            del self.command_manager.commands[name]

    def build_option_parser(self, description, version):
        """Return the parser of the options that every sub-command has.

        :param version: not used
        """
        # An abbreviation could be an option of the sub-command.
        parser = argparse.ArgumentParser(
            prog=PROG, description=description, add_help=False,
            allow_abbrev=False,
            usage='%(prog)s [--version] [OPTIONS] COMMAND ...')
        parser.whole_parser = self._whole_parser
        add = parser.add_argument
        add('-h', '--help', action='store_true', dest='deferred_help',
            help='show this help, or that of COMMAND, and exit')
        add('--print-completion', action=terminal.PrintCompletion,
            help='print the script that completes this command in a shell')
        add('--config-file', metavar='PATH', action='append', default=[],
            help='read options from this file; may be given several times'
            ).complete = terminal.FILE
        add('--store', metavar='URL',
            help='SQLAlchemy URL of the store, instead of store_url')
        add('-f', dest='output_format',
            choices=('table', 'json', 'yaml', 'csv', 'shell', 'value'),
            help='output format; csv only for lists (default: table)')
        add('--json', action='store_const', const='json',
            dest='output_format', help='the same as -f json')
        add('--debug', action='store_true',
            help='log everything and show the traceback of an error')
        return parser

    def run(self, argv: list[str]) -> int:
        """Run the command line and return its exit status.

        :param argv: list of arguments
        """
        # "db sync" has an option --version of its own.
        if '--version' in argv and not self.parser.parse_known_args(
                argv[:argv.index('--version')])[1]:
            terminal.print_line(terminal.version(PROG))
            return 0
        self.options, words = self.parser.parse_known_args(argv)
        if self.options.debug:
            terminal.log_all()
        else:
            # Exceptions contain what libraries log.
            logging.getLogger().addHandler(logging.NullHandler())
        return self.run_subcommand(words)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a sub-command, or print its help.

        :param argv: list of arguments, the words of the sub-command first
        """
        try:
            kind, name, words = self.command_manager.find_command(argv)
        except ValueError:
            return self._run_unknown(argv)
        command = kind(self, self.options, cmd_name=name)
        parser = command.get_parser(f'{PROG} {name}')
        if self.options.deferred_help:
            group = parser.add_argument_group('options of all commands')
            for action in self.parser._actions:
                if not parser._option_string_actions.keys() & set(
                        action.option_strings):
                    group._add_action(action)
            terminal.print_text(parser.format_help())
            return 0
        arguments = parser.parse_args(words)
        arguments.formatter = self.options.output_format or getattr(
            arguments, 'formatter', 'table')
        checks.check('format', arguments.formatter,
                     checks.one_of(command.formats))
        return command.run(arguments)

    def _run_unknown(self, argv):
        """Print the help of a group of commands, or fail."""
        words = ' '.join(argv[:1])
        names = sorted(name for name in self.command_manager.commands
                       if not argv or name.startswith(f'{words} '))
        if not names or not self.options.deferred_help:
            self.parser.error(
                f'command: {words or "not given"}; expected one of '
                + ', '.join(names or sorted(self.command_manager.commands)))
        terminal.print_text(self.parser.format_help())
        terminal.print_below('commands:')
        width = max(map(len, names))
        for name in names:
            terminal.print_line(
                f'  {name:{width}}  '
                f'{_summary(self.command_manager.commands[name])}')
        return 0

    def _whole_parser(self):
        """Return a parser that also has all sub-commands."""
        self.options = None
        parsers = {name: entry.load()(self, None).get_parser(name)
                   for name, entry in sorted(self.command_manager)}
        kind = type(next(iter(parsers.values())))
        top = self.build_option_parser(None, None)
        groups = {'': top.add_subparsers(parser_class=kind)}
        for name, parser in parsers.items():
            group, _, word = name.rpartition(' ')
            if group not in groups:
                # shtab omits what has no help.
                groups[group] = groups[''].add_parser(
                    group, help=group).add_subparsers(parser_class=kind)
            groups[group].add_parser(word, add_help=False, parents=[parser],
                                     help=parser.description)
        return top


def _summary(entry):
    """Return the first line of the docstring of a class, not importing it."""
    source = pathlib.Path(importlib.util.find_spec(entry.module).origin)
    line = re.search(rf'^class {entry.attr}\b.*\n +"""(.*?)(?:""")?$',
                     source.read_text(encoding='utf-8'), re.MULTILINE)
    return line[1] if line else ''


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    :param argv: arguments without the name of the program; None: those of
        the process
    :returns: exit status: 0 after success, 1 after an error, which is printed
        on stderr
    :raises SystemExit: with status 2 for a wrong command line
    """
    application = App()
    return terminal.run(
        PROG, lambda: application.run(sys.argv[1:] if argv is None else argv),
        lambda: getattr(application, 'options', None)
        and application.options.debug)


if __name__ == '__main__':
    sys.exit(main())
