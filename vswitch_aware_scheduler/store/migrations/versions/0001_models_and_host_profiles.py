# SPDX-License-Identifier: Apache-2.0
"""Generations, traffic models, host profiles and removals"""

import uuid

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.store.migrations import steps

revision = '0001'
down_revision = None

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}


def _blob():
    return sa.LargeBinary().with_variant(
        mysql.MEDIUMBLOB(), 'mysql', 'mariadb')


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    generation = steps.create_table(
        'generation',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('store_id', sa.String(36), nullable=False),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.Column('complete_since', sa.BigInteger, nullable=False),
        sa.Column('published_at', sa.Double, nullable=False),
        **_MYSQL)
    steps.insert_row(generation, {
        'id': 1, 'store_id': str(uuid.uuid4()), 'number': 0,
        'complete_since': 0, 'published_at': 0.0})
    steps.create_table(
        'traffic_model',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('law', _blob(), nullable=False),
        sa.Column('name', sa.String(255), nullable=True),
        sa.Column('window_start', sa.Double, nullable=False),
        sa.Column('window_end', sa.Double, nullable=False),
        sa.Column('samples', sa.Double, nullable=False),
        sa.Column('refused', sa.Text, nullable=False),
        sa.Column('source', sa.String(255), nullable=False),
        sa.Column('updated_at', sa.Double, nullable=False),
        sa.Index('ix_traffic_model_generation', 'generation'),
        **_MYSQL)
    steps.create_table(
        'traffic_model_detail',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('format_version', sa.Integer, nullable=False),
        sa.Column('model', _text(), nullable=False),
        sa.Column('counts', _blob(), nullable=True),
        **_MYSQL)
    steps.create_table(
        'host_profile',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('profile', sa.String(255), nullable=True),
        sa.Column('overrides', sa.Text, nullable=False),
        sa.Column('source', sa.String(255), nullable=False),
        sa.Column('updated_at', sa.Double, nullable=False),
        sa.Index('ix_host_profile_generation', 'generation'),
        **_MYSQL)
    steps.create_table(
        'removal',
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('removed_at', sa.Double, nullable=False),
        sa.Index('ix_removal_generation', 'generation'),
        **_MYSQL)
