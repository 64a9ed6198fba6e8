# SPDX-License-Identifier: Apache-2.0
"""Imports modules and adds arguments only if a sub-command needs them.

Otherwise a command with many sub-commands would import the modules of all of
them, which takes longer than most sub-commands.
"""

import argparse
import importlib

__all__ = ['Parser', 'add_all', 'module']


class _Module:
    """Represents a module, and imports it when an attribute is read.

    :param name: full name of the module
    """

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(importlib.import_module(self._name), attribute)


def module(name):
    """Return an object that represents a module of this package.

    :param name: name of the module below the package, for example
        ``traffic.model``
    """
    return _Module(f'{__name__.split(".")[0]}.{name}')


class Parser(argparse.ArgumentParser):
    """A parser of a command, or of a sub-command at any depth.

    The arguments can be added when it parses.

    :param arguments: arguments of argparse.ArgumentParser
    :param common: parser of the options of this parser and all sub-commands
        below it, or None
    :param keywords: keyword arguments of argparse.ArgumentParser
    """

    _add = _summary = _subparsers_action = None

    def __init__(self, *arguments, common=None, **keywords):
        super().__init__(
            *arguments, parents=[] if common is None else [common], **keywords)
        self._common = common

    def add_command(self, name, summary, function=None):
        """Add a sub-command and return its parser.

        :param name: name of the sub-command on the command line
        :param summary: description of what it does, without capital and full
            stop, or callable(), returns it
        :param function: default of the argument ``function``; None for a
            sub-command with further sub-commands
        :returns: Parser
        """
        if self._subparsers_action is None:
            self._subparsers_action = self.add_subparsers(
                metavar='COMMAND', required=True)
        parser = self._subparsers_action.add_parser(
            name, common=self._common, help=summary)
        parser._summary = summary
        if function is not None:
            parser.set_defaults(function=function)
        return parser

    def add_later(self, add_arguments):
        """Call a function before anything is parsed.

        :param add_arguments: callable(parser), adds the arguments
        """
        self._add = add_arguments

    def add_now(self):
        """Add the arguments that are still to be added."""
        add, self._add = self._add, None
        if add is not None:
            add(self)
        if self._summary is not None:
            summary, self._summary = _text(self._summary), None
            self.description = f'{summary[:1].upper()}{summary[1:]}.'

    def format_help(self):
        """Return the help, with the summaries of sub-commands."""
        self.add_now()
        if self._subparsers_action is not None:
            for choice in self._subparsers_action._choices_actions:
                choice.help = _text(choice.help)
        return super().format_help()

    def parse_known_args(self, args=None, namespace=None):
        """Add the arguments, then parse as argparse does.

        :param args: list of strings, or None for the arguments of the process
        :param namespace: argparse Namespace, or None
        """
        self.add_now()
        return super().parse_known_args(args, namespace)


def _text(summary):
    return summary() if callable(summary) else summary


def add_all(parser):
    """Add the arguments of a parser and of all its sub-commands.

    :param parser: Parser
    """
    if isinstance(parser, Parser):
        parser.add_now()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                add_all(choice)
