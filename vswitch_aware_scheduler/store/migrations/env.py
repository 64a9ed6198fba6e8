# SPDX-License-Identifier: Apache-2.0
"""Runs a migration with alembic, on the connection that the caller passed."""

from alembic import context

from vswitch_aware_scheduler.store import tables

connection = context.config.attributes.get('connection')
if connection is None:
    raise SystemExit('Run "vswitch-manage db sync"; to write a new revision, '
                     'see CONTRIBUTING.rst.')
context.configure(connection=connection, target_metadata=tables.metadata,
                  compare_type=True)
with context.begin_transaction():
    context.run_migrations()
