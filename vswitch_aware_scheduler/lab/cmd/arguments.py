# SPDX-License-Identifier: Apache-2.0
"""Tables of arguments, for the commands of the laboratory."""

import argparse
import collections.abc

from vswitch_aware_scheduler.cmd import terminal

__all__ = ['add_options']


def add_options(parser: argparse.ArgumentParser,
                *rows: collections.abc.Sequence) -> None:
    """Add options with a value to a parser or to one of its groups.

    :param rows: (flag, name of the value or None, type, help), and the default
        unless the default is None
    """
    for flag, name, kind, text, *default in rows:
        option = parser.add_argument(
            flag, metavar=name, type=kind, help=text,
            default=default[0] if default else None)
        if name in ('CSV', 'FILE', 'PATH'):
            option.complete = terminal.FILE
