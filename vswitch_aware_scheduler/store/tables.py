# SPDX-License-Identifier: Apache-2.0
"""The tables of the store, as the newest migration creates them.

``traffic_model`` has what a scheduler reads at every refresh.
``traffic_model_detail``, which is ten times as large, has what only the
modeler and operators read. A row that a scheduler reads has the number of the
generation that wrote it. A row of ``removal`` informs incremental readers of a
deleted row.

``unmodelled_instance`` has the counts of instances without a model. Together
with the counts of the models, they are all that the modeler needs to continue
after its last pass.

``placement`` has the data of instances that Nova reports, ``inventory`` the
age of these data. ``prior`` has the expected traffic of instances without a
model.

``generation_history`` and ``claim_history`` have the tokens of the last
writes.

``claim`` has the claims of schedulers, which count until Nova's record shows
the placement. It has its own counter, ``claim_counter``, because it changes
with every request.

``modeler`` has the heartbeat of each modeler, ``worker`` the state of each
worker of a scheduler. ``fleet_fact`` has the aggregates, flavors and policies
in force that the modeler has read, ``fleet_reading`` the time of the reading.
Schedulers do not read these tables, so that they create no generation.

``decision`` has how schedulers judged the hosts for their last requests. It
creates no generation either.

``rebalance_plan`` and ``rebalance_move`` are the audit record of migrations.
``rebalance_lock`` names the process that may execute a plan. Schedulers do not
read these tables.
"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

__all__ = ['SCHEMA_VERSION', 'budget_state', 'claim', 'claim_counter',
           'claim_history', 'decision', 'error_budget', 'fleet_fact',
           'fleet_reading', 'former_instance', 'generation',
           'generation_history', 'host_profile', 'inventory', 'measured_rate',
           'metadata', 'modeler', 'overload_charge', 'placement', 'prior',
           'rebalance_lock', 'rebalance_move', 'rebalance_plan', 'removal',
           'secret', 'stay', 'sum_history', 'traffic_model',
           'traffic_model_detail', 'unmodelled_instance', 'vm_time', 'worker']

#: The newest migration. A store with another version is not used.
SCHEMA_VERSION = '0017'

#: Values of ``removal.kind``.
INSTANCE = 'instance'
HOST = 'host'
PLACEMENT = 'placement'

metadata = sa.MetaData()

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
# MySQL limits BLOB and TEXT to 64 kB; other databases have no such limit.
_BLOB = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')
_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')

# One row. store_id distinguishes stores at the same URL. A reader whose
# generation is older than complete_since has to read everything, because older
# removals are deleted. token differs for each generation; it is null before
# the first. All times are seconds UTC.
generation = sa.Table(
    'generation', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('store_id', sa.String(36), nullable=False),
    sa.Column('number', sa.BigInteger, nullable=False),
    sa.Column('complete_since', sa.BigInteger, nullable=False),
    sa.Column('published_at', sa.Double, nullable=False),
    sa.Column('token', sa.String(36), nullable=True),
    **_MYSQL)

# Tokens of the last generations. If a reader has another token for its number,
# it has read another history: before a backup was restored, or from a replica
# that was promoted.
generation_history = sa.Table(
    'generation_history', metadata,
    sa.Column('number', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('token', sa.String(36), nullable=False),
    sa.Column('written_at', sa.Double, nullable=False),
    **_MYSQL)

traffic_model = sa.Table(
    'traffic_model', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('generation', sa.BigInteger, nullable=False),
    sa.Column('law', _BLOB, nullable=False),
    sa.Column('name', sa.String(255), nullable=True),
    sa.Column('window_start', sa.Double, nullable=False),
    sa.Column('window_end', sa.Double, nullable=False),
    sa.Column('samples', sa.Double, nullable=False),
    sa.Column('refused', _TEXT, nullable=False),
    sa.Column('source', sa.String(255), nullable=False),
    sa.Column('updated_at', sa.Double, nullable=False),
    sa.Index('ix_traffic_model_generation', 'generation'),
    **_MYSQL)

traffic_model_detail = sa.Table(
    'traffic_model_detail', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('format_version', sa.Integer, nullable=False),
    sa.Column('model', _TEXT, nullable=False),
    sa.Column('counts', _BLOB, nullable=True),
    **_MYSQL)

host_profile = sa.Table(
    'host_profile', metadata,
    sa.Column('host', sa.String(255), primary_key=True),
    sa.Column('generation', sa.BigInteger, nullable=False),
    sa.Column('profile', sa.String(255), nullable=True),
    sa.Column('overrides', _TEXT, nullable=False),
    sa.Column('source', sa.String(255), nullable=False),
    sa.Column('updated_at', sa.Double, nullable=False),
    sa.Index('ix_host_profile_generation', 'generation'),
    **_MYSQL)

removal = sa.Table(
    'removal', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('generation', sa.BigInteger, nullable=False),
    sa.Column('removed_at', sa.Double, nullable=False),
    sa.Index('ix_removal_generation', 'generation'),
    **_MYSQL)

# An instance is in this table or in traffic_model, never in both.
unmodelled_instance = sa.Table(
    'unmodelled_instance', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('counts', _BLOB, nullable=False),
    sa.Column('name', sa.String(255), nullable=True),
    sa.Column('refused', _TEXT, nullable=False),
    sa.Column('source', sa.String(255), nullable=False),
    sa.Column('updated_at', sa.Double, nullable=False),
    **_MYSQL)

# An instance that Nova has. host is empty if it is on no host. networks is the
# result of Attachments.to_data as JSON; null if unknown. The rates are those
# that QoS policies guarantee to its ports; NULL if unknown.
placement = sa.Table(
    'placement', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('generation', sa.BigInteger, nullable=False),
    sa.Column('host', sa.String(255), nullable=True),
    sa.Column('flavor', sa.String(255), nullable=True),
    sa.Column('project', sa.String(255), nullable=True),
    sa.Column('networks', _TEXT, nullable=False),
    sa.Column('egress_kbps', sa.Double, nullable=True),
    sa.Column('ingress_kbps', sa.Double, nullable=True),
    sa.Column('kpps', sa.Double, nullable=True),
    sa.Column('updated_at', sa.Double, nullable=False),
    sa.Column('running', sa.Boolean, nullable=True),
    sa.Index('ix_placement_generation', 'generation'),
    **_MYSQL)

# An instance whose placement was removed: its flavor and project, and the time
# of the removal. For some time, models of deleted instances count in priors by
# these values.
former_instance = sa.Table(
    'former_instance', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('flavor', sa.String(255), nullable=True),
    sa.Column('project', sa.String(255), nullable=True),
    sa.Column('removed_at', sa.Double, nullable=False),
    **_MYSQL)

# One row: 64 random hexadecimal digits, created with the table, a key for
# hashes that nobody can predict. No command prints them.
secret = sa.Table(
    'secret', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('value', sa.String(64), nullable=False),
    **_MYSQL)

# One row, once there is an inventory: the age of the placements.
inventory = sa.Table(
    'inventory', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('source', sa.String(255), nullable=False),
    sa.Column('seen_at', sa.Double, nullable=False),
    sa.Column('complete_at', sa.Double, nullable=False),
    sa.Column('changed_until', sa.Double, nullable=True),
    **_MYSQL)

# The prior of an instance with a short history, or of a group: then
# instance_uuid is empty, and so are values that do not identify the group. A
# row without members marks a removed prior, for readers that have read it.
prior = sa.Table(
    'prior', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('flavor', sa.String(255), primary_key=True),
    sa.Column('project', sa.String(255), primary_key=True),
    sa.Column('generation', sa.BigInteger, nullable=False),
    sa.Column('law', _BLOB, nullable=False),
    sa.Column('members', sa.Double, nullable=False),
    sa.Column('updated_at', sa.Double, nullable=False),
    sa.Index('ix_prior_generation', 'generation'),
    **_MYSQL)

# The latest claim of an instance, see claim_records.StoredClaim. number is the
# number of the write. networks is as in placement. Times are those of the
# database.
claim = sa.Table(
    'claim', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('number', sa.BigInteger, nullable=False),
    sa.Column('token', sa.String(36), nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Column('source', sa.String(255), nullable=True),
    sa.Column('law', _BLOB, nullable=False),
    sa.Column('rule', sa.String(255), nullable=False),
    sa.Column('egress_kbps', sa.Double, nullable=True),
    sa.Column('ingress_kbps', sa.Double, nullable=True),
    sa.Column('kpps', sa.Double, nullable=True),
    sa.Column('networks', _TEXT, nullable=True),
    sa.Column('claimed_by', sa.String(255), nullable=False),
    sa.Column('claimed_at', sa.Double, nullable=False),
    sa.Column('expires_at', sa.Double, nullable=False),
    sa.Column('waited_seconds', sa.Double, nullable=False),
    sa.Column('conflicts', sa.Integer, nullable=False),
    sa.Column('missed', sa.Boolean, nullable=False),
    sa.Index('ix_claim_number', 'number'),
    **_MYSQL)

# One row, which all writers of claims lock, so that numbers become visible in
# their order. complete_since and token are as in generation.
claim_counter = sa.Table(
    'claim_counter', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('number', sa.BigInteger, nullable=False),
    sa.Column('complete_since', sa.BigInteger, nullable=False),
    sa.Column('token', sa.String(36), nullable=True),
    **_MYSQL)

# As generation_history, for the writes of claims.
claim_history = sa.Table(
    'claim_history', metadata,
    sa.Column('number', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('token', sa.String(36), nullable=False),
    sa.Column('written_at', sa.Double, nullable=False),
    **_MYSQL)

# The heartbeat of one process. interval_seconds is null for a single pass
# (--once). outcome is the result of the last pass in words. waiting_for is
# null unless the modeler waits. Times are those of the modeler's clock.
modeler = sa.Table(
    'modeler', metadata,
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Column('started_at', sa.Double, nullable=False),
    sa.Column('seen_at', sa.Double, nullable=False),
    sa.Column('ended', sa.Boolean, nullable=False),
    sa.Column('interval_seconds', sa.Double, nullable=True),
    sa.Column('passes', sa.BigInteger, nullable=False),
    sa.Column('passed_at', sa.Double, nullable=True),
    sa.Column('outcome', _TEXT, nullable=True),
    sa.Column('waiting_for', _TEXT, nullable=True),
    sa.Column('waiting_since', sa.Double, nullable=True),
    **_MYSQL)

# value is a JSON object: an aggregate (kind 'aggregate', its name is the id),
# the extra specs of a flavor (kind 'flavor'), or a policy in force (kinds
# 'host' and 'uplink'). A row is only written if its value changes.
fleet_fact = sa.Table(
    'fleet_fact', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('value', _TEXT, nullable=False),
    **_MYSQL)

# Time of the last reading of all facts of a kind, seconds UTC.
fleet_reading = sa.Table(
    'fleet_reading', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('read_at', sa.Double, nullable=False),
    **_MYSQL)

# A worker process of nova-scheduler. state is a JSON object. Times are those
# of the worker's clock.
worker = sa.Table(
    'worker', metadata,
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Column('started_at', sa.Double, nullable=False),
    sa.Column('seen_at', sa.Double, nullable=False),
    sa.Column('state', _TEXT, nullable=False),
    **_MYSQL)

# body is a JSON object of the other values of a decisions.Decision. decided_at
# is a time of the scheduler's clock.
decision = sa.Table(
    'decision', metadata,
    sa.Column('decision_id', sa.String(36), primary_key=True),
    sa.Column('decided_at', sa.Double, nullable=False),
    sa.Column('decided_by', sa.String(255), nullable=False),
    sa.Column('request_id', sa.String(255), nullable=True),
    sa.Column('instance_uuid', sa.String(36), nullable=True),
    sa.Column('project', sa.String(255), nullable=True),
    sa.Column('flavor', sa.String(255), nullable=True),
    sa.Column('outcome', sa.String(16), nullable=False),
    sa.Column('host', sa.String(255), nullable=True),
    sa.Column('body', _TEXT, nullable=False),
    sa.Index('ix_decision_decided_at', 'decided_at'),
    sa.Index('ix_decision_instance_uuid', 'instance_uuid'),
    **_MYSQL)

# The host of an instance since a given time, until the next row of the same
# instance. host is null if the instance is on no host or was deleted. running
# is as in placement.
stay = sa.Table(
    'stay', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('since', sa.Double, primary_key=True),
    sa.Column('host', sa.String(255), nullable=True),
    sa.Column('running', sa.Boolean, nullable=True),
    **_MYSQL)

# The rates of some instances in some periods, as one of several modelers has
# measured them. first_slot is the number of the first period since 1970.
# instances is a JSON list of uuids. data has the arrays of budgets.Measured.
measured_rate = sa.Table(
    'measured_rate', metadata,
    sa.Column('modeler', sa.String(255), primary_key=True),
    sa.Column('number', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('first_slot', sa.BigInteger, nullable=False),
    sa.Column('period_seconds', sa.Double, nullable=False),
    sa.Column('instances', _TEXT, nullable=False),
    sa.Column('data', _BLOB, nullable=False),
    sa.Column('written_at', sa.Double, nullable=False),
    **_MYSQL)

# The avoidable overload of a host or an uplink (kind) that was charged to an
# instance on a day (number of days since 1970).
overload_charge = sa.Table(
    'overload_charge', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('day', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('project', sa.String(255), nullable=True),
    sa.Column('seconds', sa.Double, nullable=False),
    **_MYSQL)

# The measured time of all instances of a project on a day, and the part of it
# in which the host was overloaded and the instance itself below the capacity.
vm_time = sa.Table(
    'vm_time', metadata,
    sa.Column('project', sa.String(255), primary_key=True),
    sa.Column('day', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('seconds', sa.Double, nullable=False),
    sa.Column('overload_seconds', sa.Double, nullable=False),
    **_MYSQL)

# until is the end of the settled periods. balance is the number of remaining
# seconds of overload, negative for debt. burn is a JSON object: {length of a
# window in seconds: burn rate}. prediction has the fields of
# budgets.Prediction as a JSON object.
error_budget = sa.Table(
    'error_budget', metadata,
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
    sa.Column('prediction', _TEXT, nullable=True),
    sa.Column('vm_seconds', sa.Double, nullable=False, server_default='0'),
    sa.Column('vm_overload_seconds', sa.Double, nullable=False,
              server_default='0'),
    **_MYSQL)

# The sums of one day (number of days since 1970), of the periods with one
# length. limits is a JSON list of [weights, packet bytes, capacity]. data has
# the packed sums for each limit, see budgets.packed.
sum_history = sa.Table(
    'sum_history', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('day', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('period_seconds', sa.Double, primary_key=True,
              autoincrement=False),
    sa.Column('limits', _TEXT, nullable=False),
    sa.Column('data', _BLOB, nullable=False),
    **_MYSQL)

# One row, as soon as budgets exist. stays are complete up to stays_until.
budget_state = sa.Table(
    'budget_state', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('period_seconds', sa.Double, nullable=False),
    sa.Column('stays_until', sa.Double, nullable=False),
    **_MYSQL)

# A plan of migrations, see rebalance_records.PlanRecord. Times are those of
# the clock of the process that created the plan.
rebalance_plan = sa.Table(
    'rebalance_plan', metadata,
    sa.Column('plan_id', sa.String(36), primary_key=True),
    sa.Column('made_at', sa.Double, nullable=False),
    sa.Column('made_by', sa.String(255), nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('ended_at', sa.Double, nullable=True),
    sa.Column('reason', _TEXT, nullable=False),
    sa.Index('ix_rebalance_plan_made_at', 'made_at'),
    **_MYSQL)

# body is a JSON object.
rebalance_move = sa.Table(
    'rebalance_move', metadata,
    sa.Column('plan_id', sa.String(36), primary_key=True),
    sa.Column('position', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('instance_uuid', sa.String(36), nullable=False),
    sa.Column('source', sa.String(255), nullable=False),
    sa.Column('destination', sa.String(255), nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('begun_at', sa.Double, nullable=True),
    sa.Column('ended_at', sa.Double, nullable=True),
    sa.Column('body', _TEXT, nullable=False),
    sa.Index('ix_rebalance_move_state', 'state'),
    sa.Index('ix_rebalance_move_ended_at', 'ended_at'),
    **_MYSQL)

# One row. expires_at is a time of the database's clock. token differs for each
# acquisition of the lock; it is empty if no process has the lock.
rebalance_lock = sa.Table(
    'rebalance_lock', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('holder', sa.String(255), nullable=False),
    sa.Column('token', sa.String(36), nullable=False),
    sa.Column('expires_at', sa.Double, nullable=False),
    **_MYSQL)
