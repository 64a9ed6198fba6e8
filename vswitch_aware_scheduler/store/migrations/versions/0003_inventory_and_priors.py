# SPDX-License-Identifier: Apache-2.0
"""Which instance is on which host, and priors of groups of instances"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0003'
down_revision = '0002'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
_NAME = sa.String(255).with_variant(
    mysql.VARCHAR(255, collation='utf8mb4_bin'), 'mysql', 'mariadb')
_BLOB = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')


def upgrade():
    steps.create_table(
        'placement',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('host', sa.String(255), nullable=True),
        sa.Column('flavor', sa.String(255), nullable=True),
        sa.Column('project', sa.String(255), nullable=True),
        sa.Column('networks', sa.Text, nullable=False),
        sa.Column('updated_at', sa.Double, nullable=False),
        sa.Index('ix_placement_generation', 'generation'),
        **_MYSQL)
    steps.create_table(
        'inventory',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('source', sa.String(255), nullable=False),
        sa.Column('seen_at', sa.Double, nullable=False),
        sa.Column('complete_at', sa.Double, nullable=False),
        sa.Column('changed_until', sa.Double, nullable=True),
        **_MYSQL)
    steps.create_table(
        'prior',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('flavor', _NAME, primary_key=True),
        sa.Column('project', _NAME, primary_key=True),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('law', _BLOB, nullable=False),
        sa.Column('members', sa.Double, nullable=False),
        sa.Column('updated_at', sa.Double, nullable=False),
        sa.Index('ix_prior_generation', 'generation'),
        **_MYSQL)
