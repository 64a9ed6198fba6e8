# SPDX-License-Identifier: Apache-2.0
"""Error budgets of hosts and uplinks"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0013'
down_revision = '0012'

_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
_BLOB = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')


def upgrade():
    options = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
    steps.add_column('placement', sa.Column('running', sa.Boolean,
                                            nullable=True))
    steps.create_table(
        'stay',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('since', sa.Double, primary_key=True),
        sa.Column('host', sa.String(255), nullable=True),
        sa.Column('running', sa.Boolean, nullable=True),
        **options)
    # Existing instances are on their host since the last update of their row.
    op.execute(
        'INSERT INTO stay (instance_uuid, since, host) '
        'SELECT instance_uuid, updated_at, host FROM placement '
        'WHERE instance_uuid NOT IN (SELECT instance_uuid FROM stay)')
    steps.create_table(
        'budget_share',
        sa.Column('modeler', sa.String(255), primary_key=True),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('limits', _TEXT, nullable=False),
        sa.Column('period_seconds', sa.Double, nullable=False),
        sa.Column('first_slot', sa.BigInteger, nullable=False),
        sa.Column('data', _BLOB, nullable=False),
        sa.Column('written_at', sa.Double, nullable=False),
        **options)
    steps.create_table(
        'error_budget',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('overload_probability', sa.Double, nullable=False),
        sa.Column('earned_share', sa.Double, nullable=False),
        sa.Column('first_days', sa.Double, nullable=False),
        sa.Column('most_days', sa.Double, nullable=False),
        sa.Column('limits', _TEXT, nullable=False),
        sa.Column('since', sa.Double, nullable=False),
        sa.Column('why', _TEXT, nullable=True),
        sa.Column('until', sa.Double, nullable=False),
        sa.Column('balance', sa.Double, nullable=False),
        sa.Column('measured_seconds', sa.Double, nullable=False),
        sa.Column('overload_seconds', sa.Double, nullable=False),
        sa.Column('unknown_seconds', sa.Double, nullable=False),
        sa.Column('unknown_why', _TEXT, nullable=True),
        sa.Column('burn', _TEXT, nullable=False),
        **options)
    steps.create_table(
        'sum_history',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('day', sa.BigInteger, primary_key=True,
                  autoincrement=False),
        sa.Column('period_seconds', sa.Double, nullable=False),
        sa.Column('limits', _TEXT, nullable=False),
        sa.Column('data', _BLOB, nullable=False),
        **options)
    steps.create_table(
        'budget_state',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('period_seconds', sa.Double, nullable=False),
        sa.Column('stays_until', sa.Double, nullable=False),
        **options)
