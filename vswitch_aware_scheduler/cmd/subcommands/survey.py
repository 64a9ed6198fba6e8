# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage survey: what the plugin would do for a cloud.

Needs no configuration file, no service of ours and no Nova on this machine.
"""

import argparse
import functools
import os
import tempfile
import time

from oslo_config import cfg

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd.subcommands import report
from vswitch_aware_scheduler.cmd.survey import cloud as clouds
from vswitch_aware_scheduler.cmd.survey import verdict
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.report import contents
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import migration

__all__ = ['Survey']

#: Number of rows of each table.
_ROWS = 10

_HOST_COLUMNS = (
    base.Column('HOST', 'host'), base.Column('PROFILE', 'profile'),
    base.Column('INSTANCES', 'instances'),
    base.Column('CORES', 'cores_used', '{:.0%}'.format),
    base.Column('MEMORY', 'memory_used', '{:.0%}'.format),
    base.Column('SWITCH', 'utilisation', '{:.0%}'.format),
    base.Column('OVERLOADED', 'measured_overload', '{:.2%}'.format),
    base.Column('EXPECTED', 'overload_probability', '{:.2%}'.format),
    base.Column('LIMIT', 'asked_limit', '{:.2%}'.format))

_CULPRIT_COLUMNS = (
    base.Column('INSTANCE', 'instance'), base.Column('NAME', 'name'),
    base.Column('HOST', 'host'), base.Column('PROJECT', 'project'),
    base.Column('OVERLOAD, S', 'spent_seconds', '{:.0f}'.format))

_PROJECT_COLUMNS = (
    base.Column('PROJECT', 'project'), base.Column('NAME', 'name'),
    base.Column('IN OVERLOAD', 'vm_overload', '{:.2%}'.format),
    base.Column('OVERLOAD, S', 'spent_seconds', '{:.0f}'.format))

_DECISION_COLUMNS = (
    base.Column('TIME', 'decided_at', plain_text.iso_time),
    base.Column('KIND', 'kind'), base.Column('INSTANCE', 'instance.uuid'),
    base.Column('HOST', 'host'), base.Column('PLUGIN', 'outcome'),
    base.Column('OVERLOADED LATER', 'overload_afterwards', '{:.2%}'.format))


class Survey(base.Command):
    """Show what the plugin would do for a cloud, by its last days."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('--os-cloud', metavar='NAME',
                            help='cloud of clouds.yaml (default: OS_CLOUD, '
                                 'or the variables OS_*)')
        parser.add_argument('--os-region-name', metavar='NAME',
                            help='region of the cloud')
        parser.add_argument('--prometheus', metavar='URL',
                            help='Prometheus with the traffic of instances '
                                 '(default: Gnocchi of the catalog); the '
                                 'exporter is detected')
        parser.add_argument('--days', metavar='N', type=_days, default=7.0,
                            help='read and judge the last N days, at most '
                                 f'{clouds.MOST_DAYS:g} (default: 7)')
        parser.add_argument('--hosts', metavar='N', type=int, default=200,
                            help='survey at most N hosts, chosen at random; '
                                 '0: all (default: 200)')
        parser.add_argument('--profile', metavar='NAME', default='ovs-vxlan',
                            help='switch profile of hosts for which neither '
                                 'aggregates nor agents of Neutron imply one '
                                 '(default: ovs-vxlan)')
        parser.add_argument('--html', metavar='FILE',
                            help='also write the page of "report" to this '
                                 'file').complete = terminal.FILE
        parser.add_argument('--anonymous', action='store_true',
                            help='print and write pseudonyms instead of names')

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return its exit status."""
        try:
            return super().run(arguments)
        except exceptions.SurveyError as error:
            terminal.say(self.app.NAME, str(error))
            return error.status

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Survey the cloud. Return the result as plain data."""
        checks.check('--hosts', arguments.hosts, checks.whole(0))
        if arguments.html is not None:
            page.require()
        group = _options(arguments)
        wiring.make_policies(group)
        cloud = clouds.find(arguments.os_cloud, arguments.os_region_name)
        with tempfile.TemporaryDirectory() as directory, terminal.progress(
                'surveying') as progress:
            store = _make_store(self.app.options.store, directory)
            surveyed = clouds.survey(
                cloud, functools.partial(
                    clouds.telemetry_of, cloud, arguments.prometheus,
                    arguments.days),
                store, clouds.Rules(
                    wiring.learning_settings(group, True),
                    lambda: wiring.make_policies(group),
                    lambda store: wiring.read_fleet(store, group),
                    options.alike(group)),
                time.time(), arguments.days, arguments.hosts, progress)
            answer, names = surveyed.answer, {}
            if arguments.anonymous:
                names = verdict.pseudonyms(
                    surveyed.view, surveyed.record, store.secret(), {
                        'cloud': [cloud.name, answer['telemetry']],
                        'project': [row['name']
                                    for row in answer['projects']],
                        'store': [store.url]})
                answer = verdict.anonymous(answer, names)
            if arguments.html is not None:
                text = contents.Contents(
                    surveyed.view, remarks=(*surveyed.answer['verdict'],
                                            *surveyed.answer['remarks'])
                ).report(surveyed.answer['surveyed_at'])
                report.write_file(arguments.html, page.Page().render(
                    verdict.anonymous(text, names) if names else text))
        return answer

    def describe(self, answer: dict) -> None:
        """Print the answer for people."""
        summary, decided = answer['summary'], answer['decisions']
        terminal.print_line(
            f'{answer["cloud"]}: {summary["hosts"]} of '
            f'{answer["hosts_of_cloud"]} hosts, {summary["instances"]} '
            f'instances, {summary["instances_with_model"]} of them with a '
            f'traffic model')
        terminal.print_line(
            ' to '.join(plain_text.iso_time(answer[key])
                        for key in ('since_at', 'surveyed_at'))
            + f', {answer["telemetry"]}'
            + (f', {answer["exporter"]}' if answer['exporter'] else ''))
        terminal.print_remarks('Verdict', answer['verdict'])
        loaded = sorted(answer['hosts'], key=lambda row: (
            -(row['measured_overload'] or 0.0),
            -(row['overload_probability'] or 0.0)))
        changed = [row for row in decided['list']
                   if row['outcome'] != 'same']
        for title, columns, its_rows in (
                ('Hosts, by measured overload', _HOST_COLUMNS, loaded),
                ('Projects that cause overload', _PROJECT_COLUMNS,
                 [row for row in answer['projects'] if row['spent_seconds']]),
                ('Instances that cause overload', _CULPRIT_COLUMNS,
                 answer['culprits']),
                ('Decisions that the plugin would have changed',
                 _DECISION_COLUMNS, changed)):
            if its_rows:
                terminal.print_below(title + (
                    f', {_ROWS} of {len(its_rows)}'
                    if len(its_rows) > _ROWS else ''))
                terminal.print_table(*base.table_of(
                    its_rows[:_ROWS], columns))
        terminal.print_remarks('Remarks', answer['remarks'])
        terminal.print_below('Parameters: ' + ', '.join(
            f'{name} = {value:g}' if isinstance(value, float)
            else f'{name} = {value}'
            for name, value in answer['parameters'].items()))


def _days(text):
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= clouds.MOST_DAYS:
        raise argparse.ArgumentTypeError(
            f'{text!r}; expected a number above 0, at most '
            f'{clouds.MOST_DAYS:g}')
    return days


def _options(arguments):
    """Return the default options, whatever is in files of this machine."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in (
            ('default_switch_profile', arguments.profile),
            ('telemetry_driver', 'prometheus' if arguments.prometheus
             else 'gnocchi')):
        conf.set_override(name, value, options.GROUP)
    return conf[options.GROUP]


def _make_store(name, directory):
    """Return a new store.

    :param name: path or URL of an SQLite file that does not exist, or None
    :param directory: for the file without a name
    """
    url = name or os.path.join(directory, 'survey.sqlite')
    if '://' not in url:
        url = f'sqlite:///{os.path.abspath(url)}'
    if not migration.is_new_file(url):
        raise exceptions.InvalidInput(
            thing='--store', value=name,
            expected='an SQLite file that does not exist yet')
    migration.sync(url)
    return model_store.Store(url)
