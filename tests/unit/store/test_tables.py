# SPDX-License-Identifier: Apache-2.0

import unittest

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql

from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.store import models
from vswitch_aware_scheduler.store import tables


class TablesTestCase(unittest.TestCase):

    def test_the_schema_version_is_the_newest_migration(self):
        self.assertEqual(tables.SCHEMA_VERSION, migration.revisions()[-1])

    def test_blobs_and_texts_of_mariadb_hold_more_than_64_kilobytes(self):
        # 105 bins with every step between them seen are 133 kB of counts.
        for dialect, columns in (
                (mysql.dialect(), ('counts MEDIUMBLOB', 'model MEDIUMTEXT')),
                (postgresql.dialect(), ('counts BYTEA',))):
            text = str(sa.schema.CreateTable(
                models.detail_table).compile(dialect=dialect))
            for column in columns:
                self.assertIn(column, text)
