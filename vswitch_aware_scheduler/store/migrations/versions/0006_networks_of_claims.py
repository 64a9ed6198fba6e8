# SPDX-License-Identifier: Apache-2.0
"""Networks of claims"""

import sqlalchemy as sa

from vswitch_aware_scheduler.store.migrations import steps

revision = '0006'
down_revision = '0005'


def upgrade():
    steps.add_column('claim', sa.Column('networks', sa.Text, nullable=True))
