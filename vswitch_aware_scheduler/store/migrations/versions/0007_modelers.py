# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of modelers"""

import sqlalchemy as sa

from vswitch_aware_scheduler.store.migrations import steps

revision = '0007'
down_revision = '0006'


def upgrade():
    steps.create_table(
        'modeler',
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('host', sa.String(255), nullable=False),
        sa.Column('started_at', sa.Double, nullable=False),
        sa.Column('seen_at', sa.Double, nullable=False),
        sa.Column('ended', sa.Boolean, nullable=False),
        sa.Column('interval_seconds', sa.Double, nullable=True),
        sa.Column('passes', sa.BigInteger, nullable=False),
        sa.Column('passed_at', sa.Double, nullable=True),
        sa.Column('outcome', sa.Text, nullable=True),
        sa.Column('waiting_for', sa.Text, nullable=True),
        sa.Column('waiting_since', sa.Double, nullable=True),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')
