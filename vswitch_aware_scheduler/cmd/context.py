# SPDX-License-Identifier: Apache-2.0
"""The common part of the sub-commands of vswitch-manage.

Options of the command line and of configuration files, the store, and the
telemetry driver.
"""

import argparse
import datetime
import math
import os

from oslo_config import cfg

from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler import telemetry

__all__ = ['PROG', 'add_file_arguments', 'add_times', 'configuration',
           'open_or_make_store', 'open_store', 'say', 'seconds',
           'telemetry_driver']

PROG = 'vswitch-manage'


# The command line

def seconds(text: str) -> float:
    """Return seconds UTC of a number or of an ISO 8601 date.

    :raises argparse.ArgumentTypeError: if the text is neither
    """
    try:
        value = float(text)
        if math.isfinite(value):
            return value
    except ValueError:
        pass
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r}; expected a time in seconds since 1970, or a date such '
            f'as 2013-08-12T00:00:00 (UTC)') from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


def add_times(parser: argparse.ArgumentParser, things: str,
              all_things: str) -> None:
    """Add the options of the first and the last time of an answer.

    :param parser: argparse parser
    :param things: what the options select
    :param all_things: the default of both
    """
    parser.add_argument('--start', type=seconds, metavar='TIME',
                        help=f'use {things} from this time on: seconds UTC or '
                             f'ISO 8601 (default: {all_things})')
    parser.add_argument('--end', type=seconds, metavar='TIME',
                        help=f'use {things} before this time (default: '
                             f'{all_things})')


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the telemetry driver "file".

    :param parser: argparse parser
    """
    parser.add_argument('--path',
                        help='file or folder that the driver "file" reads'
                        ).complete = terminal.FILE
    parser.add_argument('--period-seconds', type=float, metavar='S',
                        help='sampling period of the files that the driver '
                             '"file" reads (default: determined for each '
                             'instance)')


# Configuration, store and telemetry

def configuration(arguments: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the ConfigOpts of a command line.

    :param arguments: Namespace with ``config_file`` (list of paths) and
        ``store`` (URL or None); or that of OpenStackClient, with
        ``vswitch_config_file`` (path or None)
    :raises Exception: from oslo.config, if a file or a value is invalid
    """
    if not hasattr(arguments, 'vswitch_config_file'):
        conf = options.read(arguments.config_file)
        unread = [] if arguments.config_file else options.unread_files()
        if arguments.store is not None:
            conf.set_override('store_url', arguments.store, options.GROUP)
        elif unread:
            say(f'{unread[0]}: this user may not read it; options have their '
                f'defaults')
        return conf
    path = arguments.vswitch_config_file
    if path is None and not any(options.find_files()) or (
            path is not None and not os.access(path, os.R_OK)):
        raise exceptions.InvalidInput(
            thing='--vswitch-config-file', value=path, expected='a readable '
            'configuration file of vswitch_aware_scheduler. There is no API '
            'server: "openstack vswitch" reads the store that this file '
            'names. Run it on a machine of an administrator with access to '
            'the store')
    return options.read([] if path is None else [path])


def say(text: str) -> None:
    """Print a line to standard error."""
    terminal.say(PROG, text)


def open_store(conf: cfg.ConfigOpts.GroupAttr) -> store.Store:
    """Return the :class:`.Store` of the configuration.

    :param conf: options of the group [vswitch_scheduler]
    """
    return store.Store(conf.store_url, conf.store_timeout_seconds)


def open_or_make_store(conf: cfg.ConfigOpts.GroupAttr) -> store.Store:
    """Return the :class:`.Store`. Create a missing SQLite file.

    :param conf: options of the group [vswitch_scheduler]
    :raises StoreMissing: if a database server has no schema of this package
    """
    target = open_store(conf)
    try:
        target.generation()
    except exceptions.StoreMissing:
        if not migration.is_new_file(conf.store_url):
            raise
        migration.sync(conf.store_url,
                       timeout_seconds=conf.store_timeout_seconds)
        say(f'made a new store: {target.url}')
    return target


def telemetry_driver(arguments, conf):
    """Return the telemetry driver that the command line names.

    :param conf: ConfigOpts with the options of this package
    :param arguments: Namespace with ``telemetry``, ``path`` and
        ``period_seconds``
    :raises InvalidInput: if an option is missing or does not apply
    """
    name = arguments.telemetry
    if name not in options.TELEMETRY_GROUPS:
        if name == 'file' and arguments.path is None:
            raise exceptions.InvalidInput(
                thing='path', value=None, expected='a file or a folder for '
                'the telemetry driver file: --path PATH')
        values = {'path': arguments.path,
                  'period_seconds': arguments.period_seconds}
        return telemetry.load_driver(name, **{
            key: value for key, value in values.items() if value is not None})
    group = options.TELEMETRY_GROUPS[name][0]
    for flag, value in (('path', arguments.path),
                        ('period-seconds', arguments.period_seconds)):
        if value is not None:
            raise exceptions.InvalidInput(
                thing=f'--{flag}', value=value, expected=f'no --{flag}: '
                f'telemetry driver {name} uses only the options in the group '
                f'[{group}], such as url')
    return wiring.make_driver(conf, name)
