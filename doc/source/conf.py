# SPDX-License-Identifier: Apache-2.0
"""Configuration of Sphinx for the manual."""

import email
import pathlib

project = 'vswitch_aware_scheduler'
copyright = 'vswitch_aware_scheduler developers'

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxext',
    'reno.sphinxext',
    'sphinx.ext.mathjax',
]

root_doc = 'index'
exclude_patterns = []
html_theme = 'openstackdocs'
pygments_style = 'native'

openstackdocs_auto_name = False
openstackdocs_auto_version = False

# "sphinx-build -b man"; a unit test looks for each command of setup.cfg here.
man_pages = [
    (f'cli/{command}', command, description, '', 1)
    for command, description in (
        *((page.stem, 'sub-command of vswitch-manage') for page in sorted(
            pathlib.Path(__file__).parent.glob('cli/vswitch-manage-*.rst'))),
        ('vswitch-calibrate', 'measure what a virtual switch carries'),
        ('vswitch-manage', 'manage models, switch profiles and decisions'),
        ('vswitch-modeler', 'learn traffic models from telemetry'),
        ('vswitch-report', 'serve web pages with the load and risk of hosts'),
        ('vswitch-status', 'check the installation and the configuration'),
    )]


# Functions import docutils and Sphinx: a unit test reads this file in an
# environment without them.


def _keep_order_of_groups():
    """Let the option reference have the order of conf.opts.list_opts.

    oslo.config has no setting for the order: it sorts the groups by name.
    """
    from oslo_config import sphinxext
    sphinxext.sorted = list


def _name_version(app, doctree):
    from docutils import nodes

    # What reno calls the notes of a repository without tags.
    for title in doctree.findall(nodes.title):
        if title.astext() == '0.0.0':
            metadata = pathlib.Path(app.confdir, '../../PKG-INFO').read_text()
            title[:] = [nodes.Text(
                email.message_from_string(metadata)['Version'])]


def setup(app):
    """Connect before Sphinx collects the titles of a page."""
    _keep_order_of_groups()
    app.connect('doctree-read', _name_version, priority=400)
