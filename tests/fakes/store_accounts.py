# SPDX-License-Identifier: Apache-2.0
"""The users of a store on a server: those of schedulers and of the modeler."""

import pathlib
import re

import sqlalchemy as sa

_PAGE = pathlib.Path(__file__).parents[2] / \
    'doc/source/configuration/store.rst'

_MODELER = {
    'mysql': (
        "CREATE USER 'vswitch_modeler'@'%' IDENTIFIED BY 'PASSWORD'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON vswitch.* "
        "TO 'vswitch_modeler'@'%'"),
    'postgresql': (
        "CREATE ROLE vswitch_modeler LOGIN PASSWORD 'PASSWORD'",
        'GRANT USAGE ON SCHEMA public TO vswitch_modeler',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public '
        'TO vswitch_modeler')}


def statements(language):
    """Return the SQL statements of the page for a database.

    :param language: 'mysql' or 'postgresql'
    """
    block, = re.findall(rf'\.\. code-block:: {language}\n\n((?: .*\n|\n)+)',
                        _PAGE.read_text())
    return [' '.join(statement.split())
            for statement in block.split(';') if statement.strip()]


def create(url):
    """Give both users the rights that the manual states, and no others.

    :param url: of a store with its schema, as a user that may create users
    :returns: (URL of schedulers, URL of the modeler)
    """
    address = sa.make_url(url)
    kind = address.get_backend_name()
    engine = sa.create_engine(url, isolation_level='AUTOCOMMIT')
    try:
        with engine.connect() as connection:
            # Otherwise the driver takes "%" for a parameter.
            connection = connection.execution_options(no_parameters=True)
            for statement in (*statements(kind), *_MODELER[kind]):
                try:
                    connection.exec_driver_sql(re.sub(
                        r'\bvswitch\b', address.database, statement))
                except sa.exc.DBAPIError:
                    # Another database of the server has it already.
                    if not statement.startswith('CREATE '):
                        raise
    finally:
        engine.dispose()
    return tuple(address.set(
        username=f'vswitch_{name}', password='PASSWORD'
    ).render_as_string(hide_password=False) for name in (
        'scheduler', 'modeler'))
