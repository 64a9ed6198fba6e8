# SPDX-License-Identifier: Apache-2.0
"""Claims that are serialised, guarantees of ports, tables without use

Claims live for minutes, so that the table is created again without its rows.
"""

from alembic import op
import sqlalchemy as sa

from vswitch_aware_scheduler.store.migrations import steps
from vswitch_aware_scheduler.store import tables

revision = '0015'
down_revision = '0014'


def upgrade():
    for name in ('egress_kbps', 'ingress_kbps', 'kpps'):
        steps.add_column('placement', sa.Column(name, sa.Double,
                                                nullable=True))
    inspector = sa.inspect(op.get_bind())
    if inspector.has_table('claim') and 'stated' in {
            column['name'] for column in inspector.get_columns('claim')}:
        op.drop_table('claim')
    claim = tables.claim
    steps.create_table(
        'claim', *(item._copy() for item in claim.columns),
        *(sa.Index(index.name, *(column.name for column in index.columns))
          for index in claim.indexes), **claim.kwargs)
    for name in ('fleet_load', 'trial', 'trial_outcome'):
        steps.drop_table(name)
