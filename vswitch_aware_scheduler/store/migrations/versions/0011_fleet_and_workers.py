# SPDX-License-Identifier: Apache-2.0
"""Aggregates, effective policies, flavors and workers of schedulers"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0011'
down_revision = '0010'

_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    options = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
    steps.create_table(
        'fleet_fact',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('value', _TEXT, nullable=False),
        **options)
    steps.create_table(
        'fleet_reading',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('read_at', sa.Double, nullable=False),
        **options)
    steps.create_table(
        'worker',
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('host', sa.String(255), nullable=False),
        sa.Column('started_at', sa.Double, nullable=False),
        sa.Column('seen_at', sa.Double, nullable=False),
        sa.Column('state', _TEXT, nullable=False),
        **options)
