# SPDX-License-Identifier: Apache-2.0
"""Decisions of schedulers"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0012'
down_revision = '0011'


def upgrade():
    steps.create_table(
        'decision',
        sa.Column('decision_id', sa.String(36), primary_key=True),
        sa.Column('decided_at', sa.Double, nullable=False),
        sa.Column('decided_by', sa.String(255), nullable=False),
        sa.Column('request_id', sa.String(255), nullable=True),
        sa.Column('instance_uuid', sa.String(36), nullable=True),
        sa.Column('project', sa.String(255), nullable=True),
        sa.Column('flavor', sa.String(255), nullable=True),
        sa.Column('outcome', sa.String(16), nullable=False),
        sa.Column('host', sa.String(255), nullable=True),
        sa.Column('body', sa.Text().with_variant(
            mysql.MEDIUMTEXT(), 'mysql', 'mariadb'), nullable=False),
        sa.Index('ix_decision_decided_at', 'decided_at'),
        sa.Index('ix_decision_instance_uuid', 'instance_uuid'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
