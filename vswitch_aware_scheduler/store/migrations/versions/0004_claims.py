# SPDX-License-Identifier: Apache-2.0
"""Claims of schedulers"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0004'
down_revision = '0003'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
_BLOB = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')


def upgrade():
    steps.create_table(
        'claim',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.Column('token', sa.String(36), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('host', sa.String(255), nullable=True),
        sa.Column('source', sa.String(255), nullable=True),
        sa.Column('law', _BLOB, nullable=False),
        sa.Column('stated', sa.Boolean, nullable=False),
        sa.Column('claimed_by', sa.String(255), nullable=False),
        sa.Column('claimed_at', sa.Double, nullable=False),
        sa.Column('expires_at', sa.Double, nullable=False),
        sa.Index('ix_claim_number', 'number'),
        **_MYSQL)
    counter = steps.create_table(
        'claim_counter',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.Column('complete_since', sa.BigInteger, nullable=False),
        **_MYSQL)
    steps.insert_row(counter, {'id': 1, 'number': 0, 'complete_since': 0})
