# SPDX-License-Identifier: Apache-2.0
"""The commands that setup.cfg names."""

import configparser
import importlib.metadata
import pathlib

PROJECT = pathlib.Path(__file__).parents[2]


def console_scripts():
    """Return {command: (module, function)} of setup.cfg."""
    parser = configparser.ConfigParser(delimiters=('=',), interpolation=None)
    parser.read(PROJECT / 'setup.cfg')
    lines = parser['entry_points']['console_scripts'].strip().splitlines()
    return {name.strip(): tuple(target.strip().split(':'))
            for name, target in (line.split('=') for line in lines)}


def main_of(command):
    module, function = console_scripts()[command]
    return getattr(importlib.import_module(module), function)
