# SPDX-License-Identifier: Apache-2.0
"""Counts of instances without a model, and the load of the fleet"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0002'
down_revision = '0001'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}


def upgrade():
    steps.create_table(
        'unmodelled_instance',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('counts', sa.LargeBinary().with_variant(
            mysql.MEDIUMBLOB(), 'mysql', 'mariadb'), nullable=False),
        sa.Column('name', sa.String(255), nullable=True),
        sa.Column('refused', sa.Text, nullable=False),
        sa.Column('source', sa.String(255), nullable=False),
        sa.Column('updated_at', sa.Double, nullable=False),
        **_MYSQL)
    steps.create_table(
        'fleet_load',
        sa.Column('slot', sa.BigInteger, primary_key=True,
                  autoincrement=False),
        sa.Column('carried', sa.Double, nullable=False),
        sa.Column('usual', sa.Double, nullable=False),
        **_MYSQL)
