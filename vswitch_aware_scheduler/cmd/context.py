# SPDX-License-Identifier: Apache-2.0
"""The common part of the sub-commands of vswitch-manage.

Options of the command line and of configuration files, the store, and the
telemetry driver.
"""

import argparse
import datetime
import math

from vswitch_aware_scheduler.cmd import deferred
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions

# These modules are slow to import, and "--help" does not use them.
migration = deferred.module('store.migration')
options = deferred.module('conf')
wiring = deferred.module('modeler.wiring')
store = deferred.module('store')
telemetry = deferred.module('telemetry')

__all__ = ['PROG', 'add_file_arguments', 'common_parser', 'configuration',
           'open_or_make_store', 'open_store', 'say', 'seconds',
           'telemetry_driver']

PROG = 'vswitch-manage'


# The command line

class _Collect(argparse.Action):
    """Append to one list wherever the option is given.

    The action 'append' of argparse would forget values before a sub-command.
    """

    def __call__(self, parser, namespace, values, option_string=None):
        self.const.append(values)
        setattr(namespace, self.dest, self.const)


def common_parser():
    """Return the parser of the options that every sub-command has."""
    common = argparse.ArgumentParser(
        add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        '--config-file', metavar='PATH', action=_Collect, const=[],
        help='read options from this file; may be given several times'
    ).complete = terminal.FILE
    common.add_argument(
        '--store', metavar='URL',
        help='SQLAlchemy URL of the store, instead of store_url')
    common.add_argument(
        '-f', choices=('table', 'json', 'yaml', 'csv'), dest='output_format',
        help='output format; csv only for lists (default: table)')
    common.add_argument(
        '--json', action='store_const', const='json', dest='output_format',
        help='the same as -f json')
    common.add_argument(
        '--debug', action='store_true',
        help='log everything and show the traceback of an error')
    return common


def seconds(text):
    """Return seconds UTC of a number or of an ISO 8601 date.

    :param text: text of the argument
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


def add_file_arguments(parser):
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

def configuration(arguments):
    """Return the options of the group [vswitch_scheduler].

    Afterwards ``arguments.all_options`` has all options.

    :param arguments: Namespace with ``config_file`` (list of paths) and
        ``store`` (URL or None)
    :raises Exception: from oslo.config, if a file or a value is invalid
    """
    conf = options.read(arguments.config_file)
    group = conf[options.GROUP]
    if arguments.store is not None:
        conf.set_override('store_url', arguments.store, options.GROUP)
    # Some sub-commands read options of other groups.
    arguments.all_options = conf
    return group


def say(text):
    """Print a line to standard error.

    :param text: text of the line
    """
    terminal.say(PROG, text)


def open_store(conf):
    """Return the :class:`.Store` of the configuration.

    :param conf: options of the group [vswitch_scheduler]
    """
    return store.Store(conf.store_url, conf.store_timeout_seconds)


def open_or_make_store(conf):
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


def telemetry_driver(arguments):
    """Return the telemetry driver that the command line names.

    :param arguments: Namespace with ``telemetry``, ``path`` and
        ``period_seconds``
    :raises InvalidInput: if an option is missing or does not apply
    """
    name = arguments.telemetry
    if name not in options.TELEMETRY_GROUPS:
        if name == 'file' and arguments.path is None:
            raise exceptions.InvalidInput(
                'path: not given; expected a file or a folder for the '
                'telemetry driver file: --path PATH')
        values = {'path': arguments.path,
                  'period_seconds': arguments.period_seconds}
        return telemetry.load_driver(name, **{
            key: value for key, value in values.items() if value is not None})
    group = options.TELEMETRY_GROUPS[name][0]
    for flag, value in (('path', arguments.path),
                        ('period-seconds', arguments.period_seconds)):
        if value is not None:
            raise exceptions.InvalidInput(
                f'--{flag}: {value}; expected no --{flag}: telemetry driver '
                f'{name} uses only the options in the group [{group}], such '
                f'as url')
    return wiring.make_driver(arguments.all_options, name)
