# SPDX-License-Identifier: Apache-2.0
"""Who spent error budgets, the time of VMs in overload, rates of modelers

Modelers store the rates of instances instead of sums for each host. Earlier
predictions are dropped: they identify the instances of a host otherwise.
"""

from alembic import op

from vswitch_aware_scheduler.store.migrations import steps
from vswitch_aware_scheduler.store import tables

revision = '0017'
down_revision = '0016'


def upgrade():
    for table in (tables.measured_rate, tables.overload_charge,
                  tables.vm_time):
        steps.create_table(table.name, *(
            column._copy() for column in table.columns), **table.kwargs)
    for name in ('vm_seconds', 'vm_overload_seconds'):
        steps.add_column('error_budget', tables.error_budget.c[name]._copy())
    op.execute(tables.error_budget.update().values(prediction=None))
    steps.drop_table('budget_share')
