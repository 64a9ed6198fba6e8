# SPDX-License-Identifier: Apache-2.0
"""Import modules and add arguments when a sub-command needs them.

A command with many sub-commands imports the modules of all of them otherwise,
which takes longer than most sub-commands do.
"""

import argparse
import importlib

__all__ = ['Parser', 'add_all', 'module']


class _Module:
    """Stands for a module, and imports it when an attribute is read."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(importlib.import_module(self._name), attribute)


def module(name):
    """Return what stands for a module of this package.

    :param name: its name below the package, such as ``traffic.model``
    """
    return _Module(f'{__name__.split(".")[0]}.{name}')


class Parser(argparse.ArgumentParser):
    """A parser of a command, or of a sub-command at any depth.

    Its arguments may be added when it parses.

    :param common: parser of the options that this one and the sub-commands
        below it have, or None
    """

    _add = _subparsers_action = None

    def __init__(self, *arguments, common=None, **others):
        super().__init__(
            *arguments, parents=[] if common is None else [common], **others)
        self._common = common

    def add_command(self, name, summary, function=None):
        """Add a sub-command and return its parser.

        :param name: word of the command line
        :param summary: what it does, without a capital and a full stop
        :param function: default of the argument ``function``; None for a
            sub-command that has others below it
        """
        if self._subparsers_action is None:
            self._subparsers_action = self.add_subparsers(
                metavar='COMMAND', required=True)
        parser = self._subparsers_action.add_parser(
            name, common=self._common, help=summary,
            description=f'{summary[:1].upper()}{summary[1:]}.')
        if function is not None:
            parser.set_defaults(function=function)
        return parser

    def add_later(self, add_arguments):
        """Call ``add_arguments(self)`` before anything is parsed."""
        self._add = add_arguments

    def add_now(self):
        """Add what is to be added later; nothing the second time."""
        add, self._add = self._add, None
        if add is not None:
            add(self)

    def parse_known_args(self, args=None, namespace=None):
        """Add the arguments, then parse as argparse does."""
        self.add_now()
        return super().parse_known_args(args, namespace)


def add_all(parser):
    """Add the arguments of a parser and of all of its sub-commands."""
    if isinstance(parser, Parser):
        parser.add_now()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                add_all(choice)
