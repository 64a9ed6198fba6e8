# SPDX-License-Identifier: Apache-2.0
"""All tables

As long as there is no release, this migration creates the tables as the
package has them, and a change of a table changes this migration. The first
release freezes them here.

MariaDB and MySQL commit each statement that changes the schema: an upgrade
that was killed leaves a part of the tables without the version. There, the
migration continues with what is missing. On SQLite and PostgreSQL an upgrade
is one transaction; a table of the same name belongs to another application,
and creating it fails.
"""

import secrets
import uuid

from alembic import op
import sqlalchemy as sa

from vswitch_aware_scheduler.store import claims
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import plans
from vswitch_aware_scheduler.store import tables

revision = '0001_initial'
down_revision = None


def upgrade():
    bind = op.get_bind()
    may_be_partial = bind.dialect.name in ('mysql', 'mariadb')
    metadata = sa.MetaData()
    for table in tables.metadata.sorted_tables:
        table = table.to_metadata(metadata)
        if may_be_partial:
            # Other collations treat upper and lower case, accents or trailing
            # spaces as equal: two hosts would be one row.
            table.kwargs[f'{bind.dialect.name}_collate'] = (
                'utf8mb4_nopad_bin' if bind.dialect.is_mariadb
                else 'utf8mb4_0900_bin')
        table.create(bind, checkfirst=may_be_partial)
        for index in table.indexes if may_be_partial else ():
            index.create(bind, checkfirst=True)
    for table, row in (
            (generations.generation_table, {
                'store_id': str(uuid.uuid4()), 'number': 0,
                'complete_since': 0, 'published_at': 0.0}),
            (claims.counter_table, {'number': 0, 'complete_since': 0}),
            (generations.secret_table, {'value': secrets.token_hex(32)}),
            (plans.lock_table, {
                'holder': '', 'token': '', 'expires_at': 0.0})):
        if not bind.scalar(sa.select(sa.func.count()).select_from(table)):
            bind.execute(sa.insert(table), [{'id': 1, **row}])
