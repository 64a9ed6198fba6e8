# SPDX-License-Identifier: Apache-2.0
"""Plans of migrations, their moves, and the lock of who carries them out"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0014'
down_revision = '0013'

_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    options = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
    steps.create_table(
        'rebalance_plan',
        sa.Column('plan_id', sa.String(36), primary_key=True),
        sa.Column('made_at', sa.Double, nullable=False),
        sa.Column('made_by', sa.String(255), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('ended_at', sa.Double, nullable=True),
        sa.Column('reason', _TEXT, nullable=False),
        sa.Index('ix_rebalance_plan_made_at', 'made_at'),
        **options)
    steps.create_table(
        'rebalance_move',
        sa.Column('plan_id', sa.String(36), primary_key=True),
        sa.Column('position', sa.Integer, primary_key=True,
                  autoincrement=False),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('source', sa.String(255), nullable=False),
        sa.Column('destination', sa.String(255), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('begun_at', sa.Double, nullable=True),
        sa.Column('ended_at', sa.Double, nullable=True),
        sa.Column('body', _TEXT, nullable=False),
        sa.Index('ix_rebalance_move_state', 'state'),
        sa.Index('ix_rebalance_move_ended_at', 'ended_at'),
        **options)
    lock = steps.create_table(
        'rebalance_lock',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('holder', sa.String(255), nullable=False),
        sa.Column('token', sa.String(36), nullable=False),
        sa.Column('expires_at', sa.Double, nullable=False),
        **options)
    steps.insert_row(lock, {'id': 1, 'holder': '', 'token': '',
                            'expires_at': 0.0})
