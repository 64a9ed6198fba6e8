# SPDX-License-Identifier: Apache-2.0
"""Configuration of Sphinx for the manual."""

import email
import functools
import pathlib
import re

project = 'vswitch_aware_scheduler'
copyright = 'vswitch_aware_scheduler developers'

extensions = [
    'cliff.sphinxext',
    'openstackdocstheme',
    'oslo_config.sphinxext',
    'reno.sphinxext',
    'sphinx.ext.mathjax',
]

root_doc = 'index'
exclude_patterns = []
html_theme = 'openstackdocs'
pygments_style = 'native'

autoprogram_cliff_application = 'vswitch-manage'
#: Options of the output, which cli/vswitch-manage.rst describes.
autoprogram_cliff_ignored = [
    '--help', '--format', '--column', '--max-width', '--fit-width',
    '--print-empty', '--prefix', '--noindent', '--quote', '--sort-column',
    '--sort-ascending', '--sort-descending']

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


def list_profiles():
    """Return the built-in switch profiles as a table in reST."""
    from vswitch_aware_scheduler.vswitch import profile

    rows = ['.. list-table::', '   :header-rows: 1',
            '   :widths: 22 33 45', '',
            '   * - Profile', '     - Limits', '     - Set-up and source']
    for name, built_in in profile.catalogue().items():
        limits = [f'{key} {value:,.15g}' for key, value in (
            (key, getattr(built_in, key))
            for key in (*profile.OVERRIDABLE_KEYS[:-3],
                        'max_virtual_functions')) if value is not None]
        sizes = sorted((built_in.saturation_by_packet_bytes or {}).items())
        limits += [f'{kbps:,.15g} kbit/s at {size:.15g} bytes'
                   for size, kbps in (*sizes[:1], *sizes[1:][-1:])]
        if built_in.saturation_dimension != 'bandwidth':
            limits.append(f'saturation of {built_in.saturation_dimension}')
        sources = dict.fromkeys(
            text for key, text in built_in.sources.items()
            if key != 'typical_packet_bytes')
        text = ' '.join([built_in.description, *(
            f'{each.rstrip(".")}.' for each in sources)])
        rows += [f'   * - ``{name}``', f'     - {"; ".join(limits)}',
                 '     - ' + re.sub(r'([*`|_\\])', r'\\\1', text)]
    return '\n'.join(rows) + '\n'


def _table(rows):
    head = ('.. list-table::\n   :header-rows: 1\n\n'
            '   * - Name\n     - Meaning\n')
    return head + ''.join(f'   * - ``{name}``\n     - {text.rstrip(".")}\n'
                          for name, text in rows)


def list_modeler_metrics():
    """Return the metrics of the modeler as a table in reST."""
    from vswitch_aware_scheduler.modeler import metrics

    ends = {'counter': '_total', 'summary': '_count``, ``_sum'}
    return _table(
        (name + ends.get(kind, ''), text.rstrip('.') + (
            f' (labels: {", ".join(labels)})' if labels else ''))
        for name, (kind, text, *labels) in metrics.METRICS.items())


def list_scheduler_metrics():
    """Return the metrics of the scheduler as a table in reST."""
    from vswitch_aware_scheduler.scheduler import metrics

    return _table(metrics.texts().items())


def list_options(name):
    """Return the options of a sub-command of vswitch-calibrate in reST."""
    from vswitch_aware_scheduler.lab.cmd import calibrate

    [commands] = (action.choices for action in calibrate.parser()._actions
                  if isinstance(action.choices, dict))
    common, text = commands['check']._option_string_actions, ''
    formatter = commands[name]._get_formatter()
    for action in commands[name]._actions:
        if not action.help or common.keys() & set(action.option_strings):
            continue
        value = '' if action.nargs == 0 else ' ' + (
            action.metavar or '|'.join(action.choices or ())
            or action.dest.upper())
        names = ', '.join(f'{each}{value}' for each in action.option_strings)
        text += (f'``{names or value.strip()}``\n'
                 f'    {formatter._expand_help(action)}.\n')
    return text


def _insert_tables(app, name, source):
    tables = {
        'configuration/profiles': {'switch-profiles': list_profiles},
        'admin/modeler': {'modeler-metrics': list_modeler_metrics},
        'admin/monitoring': {'scheduler-metrics': list_scheduler_metrics},
        'cli/vswitch-calibrate': {
            f'options {command}': functools.partial(list_options, command)
            for command in ('local', 'import')}}
    for mark, table in tables.get(name, {}).items():
        source[0] = source[0].replace(f'.. {mark}\n', table())


def setup(app):
    """Connect before Sphinx collects the titles of a page."""
    _keep_order_of_groups()
    app.connect('source-read', _insert_tables)
    app.connect('doctree-read', _name_version, priority=400)
