# SPDX-License-Identifier: Apache-2.0
"""Trials of limits, and what came of them"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0005'
down_revision = '0004'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
_NAME = sa.String(255).with_variant(
    mysql.VARCHAR(255, collation='utf8mb4_bin'), 'mysql', 'mariadb')


def upgrade():
    steps.create_table(
        'trial',
        sa.Column('trial_id', sa.String(36), primary_key=True),
        sa.Column('kind', _NAME, nullable=False),
        sa.Column('since', sa.Double, nullable=False),
        sa.Column('until', sa.Double, nullable=False),
        sa.Column('hosts', _TEXT, nullable=False),
        **_MYSQL)
    steps.create_table(
        'trial_outcome',
        sa.Column('kind', _NAME, primary_key=True),
        sa.Column('day', sa.BigInteger, primary_key=True,
                  autoincrement=False),
        sa.Column('percent', sa.Integer, primary_key=True,
                  autoincrement=False),
        sa.Column('until', sa.Double, nullable=False),
        sa.Column('overload_days', sa.Double, nullable=False),
        sa.Column('host_days', sa.Double, nullable=False),
        **_MYSQL)
