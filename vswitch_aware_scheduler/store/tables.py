# SPDX-License-Identifier: Apache-2.0
"""The tables of the store, as the newest migration leaves them.

What a scheduler reads at every refresh (``traffic_model``) is kept apart from
what only the modeler and an operator read (``traffic_model_detail``), which
is ten times as large. A row that a scheduler reads carries the generation that
wrote it; a row of ``removal`` tells incremental readers what is gone.

``unmodelled_instance`` is the modeler's own memory: what it has counted of
instances without a model. With the counts beside the models it is all that a
cycle needs to go on where the last one ended. ``fleet_load`` is not used; it
stays for one release, for modelers of the version before.

``placement`` is what Nova tells of instances, ``inventory`` how recent that
is. ``prior`` is what to expect of an instance without a model.

``trial`` is on which imagined hosts the modelers have put instances, and
``trial_outcome`` what came of that: how often those would have been
overloaded.

``generation_history`` and ``claim_history`` are the tokens of the last writes.

``claim`` is what schedulers tell each other of placements that no host has
reported yet; it has a count of its own, ``claim_counter``, for it changes with
every request and a generation does not.

``modeler`` is the heartbeat of each modeler, ``worker`` the state of each
worker of a scheduler. ``fleet_fact`` is what the modeler knows of aggregates,
flavors and the policies in force, ``fleet_reading`` when that was read. None
of them makes a generation: no scheduler reads them.

``decision`` is how schedulers judged the hosts for their last requests. It
makes no generation either.

``stay`` is on which host each instance was since when, and whether it ran.
``budget_share`` is what each modeler has measured of hosts and uplinks in
periods that are not settled yet; ``error_budget`` their budgets,
``sum_history`` their sums of seven days, and ``budget_state`` the length of a
period.
"""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

__all__ = ['SCHEMA_VERSION', 'budget_share', 'budget_state', 'claim',
           'claim_counter', 'claim_history', 'decision', 'error_budget',
           'fleet_fact', 'fleet_load', 'fleet_reading', 'former_instance',
           'generation', 'generation_history', 'host_profile', 'inventory',
           'metadata', 'modeler', 'placement', 'prior', 'removal', 'secret',
           'stay', 'sum_history', 'traffic_model', 'traffic_model_detail',
           'trial', 'trial_outcome', 'unmodelled_instance', 'worker']

#: The newest migration; a store of another version is not touched.
SCHEMA_VERSION = '0013'

#: Of ``removal.kind``.
INSTANCE = 'instance'
HOST = 'host'
PLACEMENT = 'placement'

metadata = sa.MetaData()

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}
# MySQL's BLOB and TEXT end at 64 kB; the others know no such limit.
_BLOB = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')
_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')

# One row. store_id tells a store from another one at the same URL. A reader
# whose generation is older than complete_since has to read everything:
# removals up to that one are forgotten. token is another one for each
# generation, null before the first. Times are seconds UTC throughout.
generation = sa.Table(
    'generation', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('store_id', sa.String(36), nullable=False),
    sa.Column('number', sa.BigInteger, nullable=False),
    sa.Column('complete_since', sa.BigInteger, nullable=False),
    sa.Column('published_at', sa.Double, nullable=False),
    sa.Column('token', sa.String(36), nullable=True),
    **_MYSQL)

# Tokens of the last generations. A reader whose token is not that of its
# number here has read another history: before a backup was restored, or from
# a replica that was promoted.
generation_history = sa.Table(
    'generation_history', metadata,
    sa.Column('number', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('token', sa.String(36), nullable=False),
    sa.Column('written_at', sa.Double, nullable=False),
    **_MYSQL)

# slots is what stands behind the states of a RateLaw; null of a law that a
# version before wrote.
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
    sa.Column('slots', sa.LargeBinary, nullable=True),
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

# An instance is here or in traffic_model, never in both.
unmodelled_instance = sa.Table(
    'unmodelled_instance', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('counts', _BLOB, nullable=False),
    sa.Column('name', sa.String(255), nullable=True),
    sa.Column('refused', _TEXT, nullable=False),
    sa.Column('source', sa.String(255), nullable=False),
    sa.Column('updated_at', sa.Double, nullable=False),
    **_MYSQL)

fleet_load = sa.Table(
    'fleet_load', metadata,
    sa.Column('slot', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('carried', sa.Double, nullable=False),
    sa.Column('usual', sa.Double, nullable=False),
    **_MYSQL)

# An instance that Nova knows. host is empty while it is on none; networks is
# what Attachments.to_data returns, as JSON; null when it is not known.
placement = sa.Table(
    'placement', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('generation', sa.BigInteger, nullable=False),
    sa.Column('host', sa.String(255), nullable=True),
    sa.Column('flavor', sa.String(255), nullable=True),
    sa.Column('project', sa.String(255), nullable=True),
    sa.Column('networks', _TEXT, nullable=False),
    sa.Column('updated_at', sa.Double, nullable=False),
    sa.Column('running', sa.Boolean, nullable=True),
    sa.Index('ix_placement_generation', 'generation'),
    **_MYSQL)

# An instance whose placement was removed: its flavor and project, and when it
# was removed. Models of deleted instances count by them for a while.
former_instance = sa.Table(
    'former_instance', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('flavor', sa.String(255), nullable=True),
    sa.Column('project', sa.String(255), nullable=True),
    sa.Column('removed_at', sa.Double, nullable=False),
    **_MYSQL)

# One row: 64 hexadecimal digits at random, made with the table. Hashes that
# choose instances are keyed with it; no command prints it.
secret = sa.Table(
    'secret', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('value', sa.String(64), nullable=False),
    **_MYSQL)

# One row, once there is an inventory: what placements are of when.
inventory = sa.Table(
    'inventory', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('source', sa.String(255), nullable=False),
    sa.Column('seen_at', sa.Double, nullable=False),
    sa.Column('complete_at', sa.Double, nullable=False),
    sa.Column('changed_until', sa.Double, nullable=True),
    **_MYSQL)

# Of an instance with a short history, or of a group: then instance_uuid is
# empty, and so is what does not matter for the group. A row without members
# says that the prior is gone, for readers who had it. slots is as in
# traffic_model for an instance; for a group it is the 504 bytes of
# Expected.high_shares and the number of low states.
prior = sa.Table(
    'prior', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('flavor', sa.String(255), primary_key=True),
    sa.Column('project', sa.String(255), primary_key=True),
    sa.Column('generation', sa.BigInteger, nullable=False),
    sa.Column('law', _BLOB, nullable=False),
    sa.Column('members', sa.Double, nullable=False),
    sa.Column('updated_at', sa.Double, nullable=False),
    sa.Column('slots', sa.LargeBinary, nullable=True),
    sa.Index('ix_prior_generation', 'generation'),
    **_MYSQL)

# kind is a feedback.kind_of hosts. since is when it was made, until how far
# its instances' traffic was followed; whole seconds UTC. hosts is a JSON
# object: instances, and for each multiple of the limit each one's host.
trial = sa.Table(
    'trial', metadata,
    sa.Column('trial_id', sa.String(36), primary_key=True),
    sa.Column('kind', sa.String(255), nullable=False),
    sa.Column('since', sa.Double, nullable=False),
    sa.Column('until', sa.Double, nullable=False),
    sa.Column('hosts', _TEXT, nullable=False),
    **_MYSQL)

# What came of all trials of a kind of host that were followed on a day, which
# is a number of days since 1970, at a multiple of its limit.
trial_outcome = sa.Table(
    'trial_outcome', metadata,
    sa.Column('kind', sa.String(255), primary_key=True),
    sa.Column('day', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('percent', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('until', sa.Double, nullable=False),
    sa.Column('overload_days', sa.Double, nullable=False),
    sa.Column('host_days', sa.Double, nullable=False),
    **_MYSQL)

# The newest word of schedulers on an instance. number is that of the write;
# token tells a placement from an earlier one of the same instance; source is
# the host that it was on before. stated: law is what it was said to demand,
# and no default. networks is as in placement. Times are the database's own.
claim = sa.Table(
    'claim', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('number', sa.BigInteger, nullable=False),
    sa.Column('token', sa.String(36), nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('host', sa.String(255), nullable=True),
    sa.Column('source', sa.String(255), nullable=True),
    sa.Column('law', _BLOB, nullable=False),
    sa.Column('stated', sa.Boolean, nullable=False),
    sa.Column('claimed_by', sa.String(255), nullable=False),
    sa.Column('claimed_at', sa.Double, nullable=False),
    sa.Column('expires_at', sa.Double, nullable=False),
    sa.Column('networks', _TEXT, nullable=True),
    sa.Column('slots', sa.LargeBinary, nullable=True),
    sa.Index('ix_claim_number', 'number'),
    **_MYSQL)

# One row, on which all who write claims wait for each other, so that numbers
# become visible in their order. complete_since and token are as in
# generation.
claim_counter = sa.Table(
    'claim_counter', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('number', sa.BigInteger, nullable=False),
    sa.Column('complete_since', sa.BigInteger, nullable=False),
    sa.Column('token', sa.String(36), nullable=True),
    **_MYSQL)

# As generation_history, of the writes of claims.
claim_history = sa.Table(
    'claim_history', metadata,
    sa.Column('number', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('token', sa.String(36), nullable=False),
    sa.Column('written_at', sa.Double, nullable=False),
    **_MYSQL)

# The heartbeat of one process. interval_seconds is null for a single pass
# (--once). outcome is what the last pass did, in words. waiting_for is null
# unless the modeler waits. Times are those of the modeler's own clock.
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

# value is a JSON object: by kind, an aggregate ('aggregate', name is its id),
# the extra specs of a flavor ('flavor'), and a policy in force ('host',
# 'uplink'). A row is written only where its value changes.
fleet_fact = sa.Table(
    'fleet_fact', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('value', _TEXT, nullable=False),
    **_MYSQL)

# When all facts of a kind were read last, seconds UTC.
fleet_reading = sa.Table(
    'fleet_reading', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('read_at', sa.Double, nullable=False),
    **_MYSQL)

# A worker process of nova-scheduler. state is a JSON object. Times are those
# of the worker's own clock.
worker = sa.Table(
    'worker', metadata,
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Column('started_at', sa.Double, nullable=False),
    sa.Column('seen_at', sa.Double, nullable=False),
    sa.Column('state', _TEXT, nullable=False),
    **_MYSQL)

# body is a JSON object of the other values of a decisions.Decision.
# decided_at is of the clock of the scheduler.
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

# On which host an instance was from a time on, until its next row; host is
# null while it was on none, or was deleted. running is as in placement.
stay = sa.Table(
    'stay', metadata,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('since', sa.Double, primary_key=True),
    sa.Column('host', sa.String(255), nullable=True),
    sa.Column('running', sa.Boolean, nullable=True),
    **_MYSQL)

# What the instances of one modeler asked of a host or an uplink (kind) in
# some periods; first_slot is the number of the first one since 1970. data is
# what budget_records.Share packs.
budget_share = sa.Table(
    'budget_share', metadata,
    sa.Column('modeler', sa.String(255), primary_key=True),
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('limits', _TEXT, nullable=False),
    sa.Column('period_seconds', sa.Double, nullable=False),
    sa.Column('first_slot', sa.BigInteger, nullable=False),
    sa.Column('data', _BLOB, nullable=False),
    sa.Column('written_at', sa.Double, nullable=False),
    **_MYSQL)

# until is up to when periods are settled. balance is seconds of overload,
# below 0 in debt. burn is a JSON object: {seconds of a window: burn rate}.
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
    **_MYSQL)

# The sums of one day, in days since 1970. limits is a JSON list of
# [weights, packet bytes, capacity]; data is packed for each limit, see
# rebalance.packed.
sum_history = sa.Table(
    'sum_history', metadata,
    sa.Column('kind', sa.String(16), primary_key=True),
    sa.Column('name', sa.String(255), primary_key=True),
    sa.Column('day', sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column('period_seconds', sa.Double, nullable=False),
    sa.Column('limits', _TEXT, nullable=False),
    sa.Column('data', _BLOB, nullable=False),
    **_MYSQL)

# One row, once there are budgets. stays are complete up to stays_until.
budget_state = sa.Table(
    'budget_state', metadata,
    sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('period_seconds', sa.Double, nullable=False),
    sa.Column('stays_until', sa.Double, nullable=False),
    **_MYSQL)
