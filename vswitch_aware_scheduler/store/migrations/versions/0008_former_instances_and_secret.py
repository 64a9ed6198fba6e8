# SPDX-License-Identifier: Apache-2.0
"""Instances that Nova had, and the secret of the store"""

import secrets

import sqlalchemy as sa

from vswitch_aware_scheduler.store.migrations import steps

revision = '0008'
down_revision = '0007'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}


def upgrade():
    steps.create_table(
        'former_instance',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('flavor', sa.String(255), nullable=True),
        sa.Column('project', sa.String(255), nullable=True),
        sa.Column('removed_at', sa.Double, nullable=False),
        **_MYSQL)
    secret = steps.create_table(
        'secret',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('value', sa.String(64), nullable=False),
        **_MYSQL)
    steps.insert_row(secret, {'id': 1, 'value': secrets.token_hex(32)})
