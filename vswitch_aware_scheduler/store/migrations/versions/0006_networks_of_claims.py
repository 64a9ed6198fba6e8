# SPDX-License-Identifier: Apache-2.0
"""Networks of claims"""

from alembic import op
import sqlalchemy as sa

revision = '0006'
down_revision = '0005'
branch_labels = None
depends_on = None


def upgrade():
    op.add_column('claim', sa.Column('networks', sa.Text, nullable=True))
