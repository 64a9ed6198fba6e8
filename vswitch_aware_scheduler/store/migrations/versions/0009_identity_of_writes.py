# SPDX-License-Identifier: Apache-2.0
"""Tokens of generations and of writes of claims, names as bytes, long texts"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0009'
down_revision = '0008'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}

_TABLES = ('generation', 'traffic_model', 'traffic_model_detail',
           'host_profile', 'removal', 'unmodelled_instance', 'fleet_load',
           'placement', 'inventory', 'prior', 'claim', 'claim_counter',
           'trial', 'trial_outcome', 'modeler', 'former_instance')

#: (table, column, whether it may be null) of texts without a bound.
_TEXTS = (('traffic_model', 'refused', False),
          ('unmodelled_instance', 'refused', False),
          ('host_profile', 'overrides', False),
          ('placement', 'networks', False), ('claim', 'networks', True),
          ('modeler', 'outcome', True), ('modeler', 'waiting_for', True))


def upgrade():
    if steps.is_mysql():
        # These statements can be repeated.
        for name in _TABLES:
            steps.compare_as_bytes(name)
        for table, column, nullable in _TEXTS:
            op.alter_column(table, column, type_=mysql.MEDIUMTEXT(),
                            existing_nullable=nullable)
    for name, history in (('generation', 'generation_history'),
                          ('claim_counter', 'claim_history')):
        steps.add_column(name, sa.Column('token', sa.String(36),
                                         nullable=True))
        steps.create_table(
            history,
            sa.Column('number', sa.BigInteger, primary_key=True,
                      autoincrement=False),
            sa.Column('token', sa.String(36), nullable=False),
            sa.Column('written_at', sa.Double, nullable=False),
            **_MYSQL)
