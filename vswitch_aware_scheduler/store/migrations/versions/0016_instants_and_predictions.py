# SPDX-License-Identifier: Apache-2.0
"""Laws in one column, predictions of hosts, sums of periods of any length

The sums of earlier days are dropped, so that the table has another primary
key. Models and counts of earlier formats are learned again.
"""

from alembic import op
import sqlalchemy as sa

from vswitch_aware_scheduler.store.migrations import steps
from vswitch_aware_scheduler.store import tables

revision = '0016'
down_revision = '0015'


def upgrade():
    for name in ('traffic_model', 'prior', 'claim'):
        steps.drop_column(name, 'slots')
    steps.add_column('error_budget', tables.error_budget.c.prediction._copy())
    inspector = sa.inspect(op.get_bind())
    if inspector.has_table('sum_history') and 'period_seconds' not in \
            inspector.get_pk_constraint('sum_history')['constrained_columns']:
        op.drop_table('sum_history')
    history = tables.sum_history
    steps.create_table('sum_history', *(
        column._copy() for column in history.columns), **history.kwargs)
