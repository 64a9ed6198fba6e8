# SPDX-License-Identifier: Apache-2.0
"""The class of each sampled slot, beside the laws

The column law keeps its format, which schedulers of the version before read.
"""

import sqlalchemy as sa

from vswitch_aware_scheduler.store.migrations import steps

revision = '0010'
down_revision = '0009'


def upgrade():
    for table in ('traffic_model', 'prior', 'claim'):
        steps.add_column(table, sa.Column('slots', sa.LargeBinary,
                                          nullable=True))
