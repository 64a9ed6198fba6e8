# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage db: manages the schema of the store."""

import argparse

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import copy
from vswitch_aware_scheduler.store import migration

__all__ = ['Copy', 'Sync', 'Version']

#: Longest wait in seconds for an answer of either database of a copy.
_COPY_SECONDS = 60.0


class Copy(base.Show):
    """Copy the store to an empty database, for example on MariaDB."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('url', metavar='URL',
                            help='SQLAlchemy URL of the other database, in '
                                 'which the tables are created')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Copy all tables; return the number of rows of each."""
        source, target = (store.Store(url, _COPY_SECONDS)
                          for url in (self.conf.store_url, arguments.url))
        source.require_schema()
        migration.sync(arguments.url)
        with terminal.progress('copying') as progress:
            rows = copy.copy(source, target, progress)
        return {'source': source.url, 'target': target.url,
                'rows': sum(rows.values()), 'tables': rows}


class Sync(base.Show):
    """Create the store, or update its schema to the newest version."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('--version', metavar='REVISION',
                            help='update to this version only')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Update the schema; return its versions before and after."""
        url = self.conf.store_url
        directory = migration.missing_directory(url)
        before, after = migration.sync(url, arguments.version,
                                       self.conf.store_timeout_seconds)
        if directory is not None:
            context.say(
                f'made the directory {directory}, mode '
                f'{migration.DIRECTORY_MODE:04o}, owner '
                f'{migration.current_user()}: nova-scheduler and '
                f'vswitch-modeler have to run as that user')
        return {'before': before, 'after': after}


class Version(base.Show):
    """Print the version of the schema."""

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the version and, of the newest schema, the generation."""
        version = migration.version(self.conf.store_url,
                                    self.conf.store_timeout_seconds)
        newest = migration.revisions()[-1]
        generation = self.store.generation() if version == newest else None
        return {
            'version': version, 'newest': newest,
            'generation': generation and generation.number,
            'published_at': generation and generation.published_at,
            'published_at_iso': plain_text.iso_time(
                generation and generation.number
                and generation.published_at or None)}
