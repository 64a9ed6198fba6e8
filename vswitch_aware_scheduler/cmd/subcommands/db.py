# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage db: manages the schema of the store."""

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.store import migration

__all__ = ['SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'create or update the schema of the store, and print its version'


def add_arguments(parser):
    """Add the sub-commands of ``db``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    sync = parser.add_command(
        'sync', 'create the store, or update its schema to the newest version',
        _sync)
    sync.add_argument('--version', metavar='REVISION',
                      help='update to this version only')
    parser.add_command('version', 'print the version of the schema',
                       _version)


def _sync(arguments, conf):
    if arguments.version == '':
        raise exceptions.InvalidInput(
            f"version: ''; expected one of {', '.join(migration.revisions())}")
    directory = migration.missing_directory(conf.store_url)
    before, after = migration.sync(conf.store_url, arguments.version,
                                   conf.store_timeout_seconds)
    if directory is not None:
        # Not on standard output, which --json uses.
        context.say(
            f'made the directory {directory}, mode '
            f'{migration.DIRECTORY_MODE:04o}, owner '
            f'{migration.current_user()}: nova-scheduler and '
            f'vswitch-modeler have to run as that user')
    if output.print_answer(arguments, {'before': before, 'after': after}):
        return 0
    if before == after:
        terminal.print_line(f'The schema has version {after}: nothing to do.')
    else:
        terminal.print_line(
            f'The schema has version {after} now'
            + (f', it had {before}.' if before else '.'))
    return 0


def _version(arguments, conf):
    version = migration.version(conf.store_url, conf.store_timeout_seconds)
    newest = migration.revisions()[-1]
    generation = None
    if version == newest:
        generation = context.open_store(conf).generation()
    if output.print_answer(arguments, {
            'version': version, 'newest': newest,
            'generation': generation and generation.number,
            'published_at': generation and generation.published_at,
            'published_at_iso': plain_text.iso_time(
                generation and generation.number
                and generation.published_at or None)}):
        return 0
    terminal.print_fields([
        ('Schema version', version or 'none: run "vswitch-manage db sync"'),
        ('Newest version', newest)] + ([] if generation is None else [
            ('Generation', generation.number),
            ('Published', terminal.time(generation.published_at)
             if generation.number else 'nothing yet')]))
    return 0
