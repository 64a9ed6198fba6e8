# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage: the operator's command.

Each sub-command is a module of :mod:`~.cmd.subcommands`. The manual has every
sub-command with an example: cli/vswitch-manage.rst.
"""

import argparse
import importlib
import logging
import sys

from oslo_config import cfg

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import deferred
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import exceptions

output = deferred.module('cmd.output')

__all__ = ['SUBCOMMANDS', 'ask', 'default_config_files', 'main']

#: {name of a sub-command and of its module: what it does}.
SUBCOMMANDS = {
    'db': 'create or update the schema of the store, and print its version',
    'fit': 'fit traffic models to telemetry and write them to the store',
    'evaluate': 'replay recorded traffic and compare placement methods',
    'size': 'compute how many instances fit on a host, or how many hosts '
            'are needed',
    'fleet': 'print the load and the overload probability of each host',
    'report': 'write an HTML page with the load and the risk of each host',
    'model': 'print stored traffic models',
    'prior': 'print the traffic that is assumed for instances without a '
             'model',
    'profile': 'print and check switch profiles',
    'host': 'print and set the switch profiles of hosts',
    'gateway': 'plan the mappings of VXLAN gateways',
    'telemetry': 'print what telemetry has, and what is wrong with it',
    'claim': 'print the latest placements of schedulers',
    'decision': 'print which hosts schedulers accepted and refused, and why',
    'explain': 'print which hosts would accept an instance now, and why',
    'rebalance': 'propose or execute migrations away from hosts with a '
                 'negative error budget',
    'capacity': 'estimate the processor time that a switch needs for a '
                'packet',
}


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
    for name, summary in SUBCOMMANDS.items():
        top.add_command(name, summary).add_later(_add_arguments_of(name))
    return top


def _add_arguments_of(name):
    """Return a function that imports the module and adds its arguments."""
    def add_arguments(parser):
        importlib.import_module(
            f'vswitch_aware_scheduler.cmd.subcommands.{name}'
        ).add_arguments(parser)
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
