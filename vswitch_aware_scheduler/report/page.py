# SPDX-License-Identifier: Apache-2.0
"""Creates the HTML page of a report, one file without external resources.

Jinja2 is optional and imported when a page is created. All names are escaped,
and a Content-Security-Policy permits only the script of the page.
"""

import base64
from collections.abc import Callable
import hashlib
import importlib
from importlib import resources
import math

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.fleet import rows
from vswitch_aware_scheduler.report import pictures

__all__ = ['Page', 'content_security_policy', 'require']


def require() -> None:
    """Check that a page can be created.

    :raises InvalidInput: if a library is not installed
    """
    for library in ('jinja2', 'matplotlib'):
        try:
            importlib.import_module(library)
        except ImportError:
            raise exceptions.NotInstalled(
                thing='a report', library=library, extra='report') from None


def _read(name):
    return resources.files(__package__).joinpath(
        'templates', name).read_text(encoding='utf-8')


def _source(text):
    """Return the expression of a Content-Security-Policy for some text."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"'sha256-{digest.decode()}'"


def content_security_policy() -> str:
    """Return the Content-Security-Policy of a page."""
    return '; '.join((
        "default-src 'none'", f'script-src {_source(_read("page.js"))}',
        f'style-src {_source(_read("page.css"))}', 'img-src data:',
        "base-uri 'none'", "form-action 'none'"))


class Page:
    """Creates pages of reports.

    :param host_path: callable(host name), returns the path of the page of a
        host; None if there are no such pages
    """

    def __init__(self, host_path: Callable[[str], str] | None = None) -> None:
        import jinja2
        self._host_path = host_path
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_read), autoescape=True,
            undefined=jinja2.StrictUndefined, trim_blocks=True,
            lstrip_blocks=True)
        environment.filters.update(
            budget_in_words=rows.budget_in_words, picture=_picture,
            iso_time=plain_text.iso_time, number=_number, percent=_percent,
            probability=_probability, seconds=_seconds)
        self._template = environment.get_template('page.html')

    def render(self, report: dict) -> str:
        """Return the page of a report as text."""
        return self._template.render(
            report=report, script=_read('page.js'), style=_read('page.css'),
            policy=content_security_policy(), tables=self._tables(report),
            pictures=_pictures(report), whole=report['host'] is None,
            home=report['host'] is not None and self._host_path is not None)

    def _tables(self, report):
        """Return the tables that the script of the page displays.

        {id: {'columns': [[title, kind]], 'rows': [[cell]], 'links': [target
        or None] of the first column, 'sort': [column, 1 or -1]}}
        """
        in_detail = {detail['host']: f'#host-{number}' for number, detail
                     in enumerate(report['details'])}

        def link(host):
            if host in in_detail:
                return in_detail[host]
            return self._host_path and self._host_path(host)

        tables = {f'vms-{number}': _table(detail['vms'], _VMS, 7, -1)
                  for number, detail in enumerate(report['details'])}
        if report['host'] is None:
            tables['hosts'] = {
                **_table(report['hosts'], _HOSTS, 4, -1),
                'links': [link(row['host']) for row in report['hosts']]}
            tables['uplinks'] = _table(report['uplinks'], _UPLINKS, 3, -1)
            tables['projects'] = _table(report['projects'], _PROJECTS, 5, -1)
            tables['stale'] = _table(report['models']['listed'], _STALE, 3, 1)
        return tables


def _pictures(report):
    """Return {name: SVG} of the pictures for which there are data."""
    drawn = {}
    judged = [row for row in report['hosts']
              if row['overload_probability'] is not None]
    if report['host'] is None and judged:
        drawn['hosts'] = pictures.hosts(judged)
    if report['refusals'] is not None:
        drawn['refusals'] = pictures.refusals(report['refusals'])
    for number, detail in enumerate(report['details']):
        if detail['distribution'] is not None:
            drawn[f'distribution-{number}'] = pictures.distribution(
                detail['distribution'])
        for place, diagram in enumerate(detail['diagrams']):
            drawn[f'states-{number}-{place}'] = pictures.states(
                diagram['states'])
    return drawn


def _profile(row):
    """Return the name of a host's profile and whether it was measured here."""
    return row['profile'] and row['profile'] + (
        ', not measured here' if row['measure'] else '')


def _state(row):
    if row['overload_probability'] is None:
        return 'not judged'
    return 'above the limit' if row['above'] else 'within'


def _budget_days(row):
    budget = row['error_budget']
    return budget and budget['left_days']


def _vm_overload(row):
    """Return the share of the time of instances beside others in overload."""
    budget = row['error_budget']
    return budget and budget['vm_overload_seconds'] / max(
        budget['vm_seconds'], 1.0)


def _short(value):
    """Return a number with the digits that are relevant for a reader."""
    return float(f'{value:.4g}') if isinstance(value, float) else value


def _table(rows, columns, sorted_by, direction):
    """Return a table that the script of the page displays.

    :param columns: list of (title, kind, key of a row or callable(row))
    """
    return {
        'columns': [[title, kind] for title, kind, _ in columns],
        'rows': [[_short(value(row) if callable(value) else row[value])
                  for *_, value in columns] for row in rows],
        'sort': [sorted_by, direction]}


#: Columns of the tables of the page.
_JUDGED = [
    ('Overload probability', 'probability', 'overload_probability'),
    ('Limit', 'probability', 'limit'), ('State', 'text', _state),
    ('Utilisation', 'percent', 'utilisation')]
_BUDGET = [('Error budget, days', 'number', _budget_days),
           ('Burn rate, 6 h', 'number', 'burn_rate')]
_HOSTS = [
    ('Host', 'text', 'host'), ('Switch profile', 'text', _profile),
    ('Instances', 'number', 'instances'),
    ('With a model', 'number', 'with_model'), *_JUDGED,
    ('Loss', 'probability', 'loss_fraction'), *_BUDGET,
    ('Instances in overload', 'probability', _vm_overload)]
_UPLINKS = [
    ('Uplink', 'text', 'uplink'), ('Hosts', 'number', 'hosts'),
    ('Instances', 'number', 'instances'), *_JUDGED, *_BUDGET]
_PROJECTS = [
    ('Project', 'text', 'project'), ('Instances', 'number', 'instances'),
    ('Mean, kbit/s', 'number', 'mean_kbps'),
    ('Hours of instances', 'number', 'vm_hours'),
    ('In overload', 'probability', 'vm_overload'),
    ('Overload spent, s', 'number', 'spent_seconds')]
_STALE = [
    ('Instance', 'text', 'instance'), ('Name', 'text', 'name'),
    ('Host', 'text', 'host'), ('Last sample', 'text', 'last_sample'),
    ('Model written', 'text', 'updated')]
_VMS = [
    ('Instance', 'text', 'instance'), ('Name', 'text', 'name'),
    ('Flavor', 'text', 'flavor'), ('Project', 'text', 'project'),
    ('Counts by', 'text', 'counts_by'),
    ('Mean, kbit/s', 'number', 'mean_kbps'),
    ('Peak, kbit/s', 'number', 'peak_kbps'),
    ('Share of the limit', 'percent', 'share'),
    ('Last sample', 'text', 'last_sample')]


def _number(value):
    if value is None:
        return '–'
    if isinstance(value, int) or abs(value) >= 1000:
        return f'{value:,.0f}'
    return f'{value:.4g}'


def _percent(value):
    return '–' if value is None else f'{value:.1%}'


def _probability(value):
    if value is None:
        return '–'
    return '0' if value < 1e-9 else f'{value:.3g}'


def _seconds(value):
    if value is None or not math.isfinite(value):
        return '–'
    for length, unit in ((86400.0, 'days'), (3600.0, 'h'), (60.0, 'min')):
        if value >= 2 * length:
            return f'{value / length:.3g} {unit}'
    return f'{value:.3g} s'


def _picture(svg):
    """Return SVG as the URL of an image."""
    return 'data:image/svg+xml;base64,' + base64.b64encode(svg).decode()
