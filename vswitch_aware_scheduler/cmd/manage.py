# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage: the operator's command.

Each sub-command is an entry point of the group :data:`GROUP`, so that the
laboratory and other packages can add some. The manual has every sub-command
with an example: cli/vswitch-manage.rst.
"""

import argparse
import importlib.metadata
import logging
import sys

from oslo_config import cfg

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import deferred
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions

output = deferred.module('cmd.output')

__all__ = ['GROUP', 'ask', 'default_config_files', 'main']

#: Group of the entry points of sub-commands. The name is that of the
#: sub-command, with "_" before the name of one below another. The value is a
#: module with SUMMARY, what it does, and ``add_arguments(parser)``.
GROUP = 'vswitch_aware_scheduler.commands'


def _parser():
    common = context.common_parser()
    top = deferred.Parser(
        prog=context.PROG, common=common,
        description='Manage the traffic models, switch profiles and '
                    'decisions in the store of vswitch_aware_scheduler.')
    top.add_argument('--version', action='version',
                     version=terminal.version(context.PROG))
    top.add_argument('--print-completion', action=terminal.PrintCompletion,
                     help='print the script that completes this command in '
                          'a shell')
    _add_commands(top, '', {
        entry.name: entry
        for entry in importlib.metadata.entry_points(group=GROUP)})
    return top


def _add_commands(parser, prefix, entries):
    """Add the sub-commands right below a parser.

    :param parser: :class:`.deferred.Parser`
    :param prefix: what the names of their entry points begin with
    :param entries: {name: entry point} of all sub-commands
    """
    for name, entry in sorted(entries.items()):
        rest = name.removeprefix(prefix)
        if name.startswith(prefix) and '_' not in rest:
            parser.add_command(rest, _summary_of(entry)).add_later(
                _add_arguments_of(entry, entries))


def _summary_of(entry):
    return lambda: entry.load().SUMMARY


def _add_arguments_of(entry, entries):
    """Return a function that imports the module and adds its arguments."""
    def add_arguments(parser):
        entry.load().add_arguments(parser)
        _add_commands(parser, f'{entry.name}_', entries)
    return add_arguments


def default_config_files():
    """Return the paths of the files that are read without --config-file."""
    return cfg.find_config_files('vswitch_aware_scheduler', 'vswitch')


def ask(argv, config_files=()):
    """Return the :class:`.output.Answer` of a sub-command; print nothing.

    :param argv: arguments of the command line, without options for the
        output
    :param config_files: paths of configuration files
    :raises VSwitchError: when the sub-command fails
    """
    arguments = argparse.Namespace(
        config_file=list(config_files), store=None, output_format='json',
        debug=False, captured=output.Answer())
    _parser().parse_args(list(argv), arguments)
    arguments.function(arguments, context.configuration(arguments))
    return arguments.captured


def main(argv=None):
    """Run the command.

    :param argv: arguments without the name of the program; None: those of
        the process
    :returns: exit status: 0 after success, 1 after an error, which is printed
        on stderr
    :raises SystemExit: with status 2 for a wrong command line
    """
    # Defaults of a sub-command would overwrite options in front of its name.
    arguments = argparse.Namespace(config_file=[], store=None,
                                   output_format=None, debug=False)

    def command():
        _parser().parse_args(argv, arguments)
        if arguments.output_format == 'csv' and 'columns' not in arguments:
            raise exceptions.InvalidInput(
                'format: csv; expected table, json or yaml: this command '
                'prints no list')
        if arguments.debug:
            terminal.log_all()
        else:
            # Exceptions contain what libraries log.
            logging.getLogger().addHandler(logging.NullHandler())
        return arguments.function(arguments, context.configuration(arguments))

    return terminal.run(context.PROG, command, lambda: arguments.debug)


if __name__ == '__main__':
    sys.exit(main())
