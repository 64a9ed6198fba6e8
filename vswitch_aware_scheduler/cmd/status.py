# SPDX-License-Identifier: Apache-2.0
"""vswitch-status: checks the installation.

``vswitch-status check`` and, as for other services, ``vswitch-status upgrade
check``. cli/vswitch-status.rst explains each check.
"""

import contextlib
import functools
import importlib.metadata
import io
import itertools
import logging
import math
import os
import re
import stat
import sys
import time

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.cmd import nova_options
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.common import self_check
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.modeler import heartbeat
from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.telemetry import check
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['Checks', 'main']

PROG = 'vswitch-status'

#: Largest expected difference between the clocks of two machines.
_CLOCK_SECONDS = 60.0

#: {major release of Nova: first release in which a user with the role member
#: cannot set the scheduler hint that marks a rebuild}.
_NOVA_MINIMUMS = {31: (31, 3, 1), 32: (32, 2, 1), 33: (33, 0, 2)}

#: Major releases of Nova that the plugin is tested with.
_NOVA_SERIES = (31, 34)

#: Plans of migrations that are older do not count.
_PLAN_SECONDS = 7 * 86400.0


def _result(code, details=None):
    return upgradecheck.Result(
        code, details and plain_text.printable(details))


_success, _warning, _failure = (
    functools.partial(_result, code) for code in (
        upgradecheck.Code.SUCCESS, upgradecheck.Code.WARNING,
        upgradecheck.Code.FAILURE))


def _needs_store(check):
    """Wrap a check so that it fails if the store or group is unreadable."""
    @functools.wraps(check)
    def run(checks):
        try:
            return check(checks)
        except (exceptions.CoordinationError, exceptions.StoreError) as error:
            return _failure(str(error))
    return run


class Checks(upgradecheck.UpgradeCommands):
    """The checks of one configuration.

    :param conf: ConfigOpts with the options of this package
    :param clock: callable, returns seconds UTC
    :param arguments: words of the command line that name configuration files
    """

    display_title = 'VSwitch Status Check Results'

    def __init__(self, conf, clock=time.time, arguments=()):
        super().__init__()
        self._arguments = arguments
        self._all_options = conf
        self._conf = conf[options.GROUP]
        self._clock = clock

    def _store(self):
        return store.Store(self._conf.store_url,
                           self._conf.store_timeout_seconds)

    def _check_schema(self):
        newest = migration.revisions()[-1]
        version = migration.version(self._conf.store_url,
                                    self._conf.store_timeout_seconds)
        if version == newest:
            return _success()
        found_version = f'version {version}' if version else 'no schema'
        # Newer versions are greater.
        advice = 'run "vswitch-manage db sync"'
        if version and tables.is_superseded(version):
            advice = tables.NEW_STORE
        elif version and version > newest:
            advice = 'upgrade this package'
        return _failure(
            f'store {self._store().url} has {found_version}; expected version '
            f'{newest}: {advice}')

    def _check_generation(self):
        generation = self._store().generation()
        if not generation.number:
            return _warning(
                'the store is empty, so the traffic of every instance is '
                'assumed from its flavor or from default_egress_kbps: '
                + self._why_no_model())
        age = self._clock() - generation.published_at
        published = (f'generation {generation.number} was published at '
                     f'{plain_text.iso_time(generation.published_at)}')
        if age < -_CLOCK_SECONDS:
            return _warning(
                f'{published}, which is {-age:.0f} s in the future: the clock '
                f'of this machine or of the modeler is wrong')
        if not self._store().has_models():
            return _warning(
                f'{published}, and no instance has a traffic model yet: '
                f'{self._why_no_model()}')
        limit = self._conf.max_generation_age_seconds
        if limit and age > limit:
            return _warning(
                f'{published}, {math.ceil(age)} s ago; expected at most '
                f'max_generation_age_seconds = {limit} s: check that '
                f'vswitch-modeler runs and that telemetry has new samples')
        return _success(f'{published}, {max(age, 0):.0f} s ago')

    def _why_no_model(self):
        """Return what to do if the store has no model."""
        modelers = self._store().modelers()
        running = [modeler for modeler in modelers if not modeler.ended
                   and not heartbeat.is_silent(modeler, self._clock())]
        if not running and any(modeler.passed_at is not None
                               for modeler in modelers):
            return ('vswitch-modeler has run and learned nothing: run '
                    '"vswitch-manage telemetry check"')
        if not running:
            return ('start vswitch-modeler, or run "vswitch-manage fit" on '
                    'recorded traffic')
        if all(modeler.waiting_for for modeler in running):
            return ('see what vswitch-modeler waits for, in the check '
                    '"Modelers"')
        return (
            f'vswitch-modeler runs, and creates a model of an instance when '
            f'telemetry has {self._conf.min_samples} samples (min_samples) '
            f'of the instance; wait, or run "vswitch-manage telemetry '
            f'check"')

    def _check_profiles(self):
        try:
            profiles = switch_profile.profiles(self._conf.switch_profiles_file)
        except (exceptions.InvalidInput, OSError) as error:
            return _failure(str(error))
        problems = []
        default = self._conf.default_switch_profile or None
        if default is not None and default not in profiles:
            problems.append(f'default_switch_profile is {default!r}')
        try:
            hosts = self._store().host_profiles()
            not_in_nova = facts.hosts_not_in_nova(self._store(), hosts)
        except exceptions.StoreError as error:
            return _warning(
                f'profiles of hosts cannot be checked: {error}')
        for host in hosts:
            if host.profile is not None and host.profile not in profiles:
                problems.append(f'the stored profile of host {host.host} is '
                                f'{host.profile!r}')
                continue
            name = host.profile or default
            if name in profiles:
                try:
                    profiles[name].overridden(host.overrides,
                                              f'host {host.host}')
                except exceptions.InvalidInput as error:
                    problems.append(str(error))
        if problems:
            return _failure(
                _some(problems) + '; expected one of '
                + ', '.join(sorted(profiles)))
        if not_in_nova:
            return _warning(not_in_nova)
        return self._check_described(profiles)

    def _check_aggregates(self):
        try:
            problems = wiring.review_aggregates(self._all_options)
        except (exceptions.VSwitchError, OSError) as error:
            return _warning(f'aggregates cannot be checked: {error}')
        if problems is None:
            return _success(
                f'not checked: Nova cannot be queried, because auth_type in '
                f'the group [{options.INVENTORY_GROUP}] is not set')
        return _failure(_some(problems)) if problems else _success()

    def _check_flavors(self):
        target = self._store()
        flavors = target.fleet('flavor')
        if flavors.read_at is None:
            return _success(
                'not checked: no vswitch-modeler has read flavors from Nova')
        laws = target.laws({
            specs[flavor_specs.MODEL_EXTRA_SPEC]
            for specs in flavors.facts.values()
            if flavor_specs.MODEL_EXTRA_SPEC in specs})
        problems = [
            f'flavor {name}: {problem}' for name, problem in (
                (name, flavor_specs.read(specs, laws.get)[1])
                for name, specs in sorted(flavors.facts.items())) if problem]
        return _failure(_some(problems)) if problems else _success()

    def _check_nova(self):
        try:
            text = importlib.metadata.version('nova')
        except importlib.metadata.PackageNotFoundError:
            return _success('nova is not installed in the Python environment '
                            'of this command')
        installed = f'nova {text} is installed'
        numbers = re.match(r'(\d+)(?:\.(\d+))?(?:\.(\d+))?', text)
        release = numbers and tuple(int(number or 0)
                                    for number in numbers.groups())
        first, last = _NOVA_SERIES
        if not release or not first <= release[0] <= last:
            return _warning(
                f'{installed}; the plugin is tested with nova {first} to '
                f'{last}')
        minimum = _NOVA_MINIMUMS.get(release[0], release)
        if release < minimum:
            minimum_text = '.'.join(map(str, minimum))
            return _warning(
                f'{installed}; expected {minimum_text} or later: in earlier '
                f'releases every user can set the scheduler hint '
                f'_nova_check_type, with which filters of Nova pass every '
                f'host. Upgrade nova, or check that the package has the fix')
        return _success(installed)

    def _check_modelers(self):
        reported, warning = self._reported()
        shared = self._sharing()
        code = upgradecheck.Code.WARNING if warning \
            else upgradecheck.Code.SUCCESS
        if shared is not None:
            reported.insert(
                0, f'modelers that share the instances: {shared}'
                if shared else
                'modeler_coordination_url: no modeler is in the group of '
                'this store; start vswitch-modeler')
            if not shared:
                code = upgradecheck.Code.WARNING
        return _result(code, _some(reported))

    def _sharing(self):
        """Return how many modelers share the instances, or None."""
        url = self._conf.modeler_coordination_url
        if not url:
            return None
        group = membership.ModelerGroup(url)
        try:
            return group.count(self._store().generation().store_id)
        finally:
            group.leave()

    def _check_described(self, profiles):
        """Return whether any host has a profile.

        Aggregates can also give hosts a profile. They are read from Nova if
        credentials are configured.
        """
        passes = self._conf.unknown_host_policy == 'pass'
        problem = (f'no host has a switch profile, so VSwitchFilter '
                   f'{"passes" if passes else "refuses"} every host')
        try:
            described = wiring.any_host_is_described(self._all_options,
                                                     self._store())
            if described:
                return _success(self._measured_elsewhere(profiles))
        except (exceptions.VSwitchError, cfg.Error, OSError) as error:
            problem = (f'neither options nor the store give a host a switch '
                       f'profile, and aggregates cannot be read ({error})')
        else:
            if described is None:
                problem += (f', unless metadata of aggregates give one; they '
                            f'are not read, as auth_type in the group '
                            f'[{options.INVENTORY_GROUP}] is not set')
        return _warning(
            f'{problem}; set default_switch_profile in nova.conf and here, or '
            f'run "vswitch-manage host set HOST PROFILE", or set the '
            f'property vswitch:profile of an aggregate. The profiles are: '
            f'{", ".join(sorted(profiles))}')

    def _measured_elsewhere(self, profiles):
        """Return a sentence about built-in profiles in use, or None."""
        default = self._conf.default_switch_profile or None
        names = {host.profile or default
                 for host in self._store().host_profiles()} | {default}
        found = [profiles[name] for name in sorted(names - {None})
                 if name in profiles
                 and profiles[name].is_measured_elsewhere]
        if not found:
            return None
        return (f'not measured here: {", ".join(item.name for item in found)};'
                f' to measure it, run "{found[0].calibration_command}"')

    def _reported(self):
        """Return (reports of modelers, whether they need a warning)."""
        now = self._clock()
        target = self._store()
        modelers = target.modelers()
        silent = [modeler for modeler in modelers
                  if heartbeat.is_silent(modeler, now)
                  and not heartbeat.is_replaced(modeler, modelers)]
        ended = [modeler for modeler in modelers if modeler.ended]
        running = [modeler for modeler in modelers if not modeler.ended
                   and not heartbeat.is_silent(modeler, now)]
        waiting = [modeler for modeler in running if modeler.waiting_for]
        overdue = [modeler for modeler in running
                   if self_check.is_overdue(modeler, now)]
        working = [modeler for modeler in running if not modeler.waiting_for]
        # Problems come first.
        lines = [heartbeat.describe(modeler, now)
                 for modeler in silent + waiting + working + ended]
        lines[:0] = [
            f'vswitch-modeler on {modeler.host} has completed no pass '
            f'for longer than its cycle' for modeler in overdue]
        if not modelers:
            # Models from "vswitch-manage fit" are sufficient.
            return (['no vswitch-modeler has reported in the last day'],
                    not target.generation().number)
        stopped = not running and any(modeler.interval_seconds is not None
                                      for modeler in ended)
        if stopped or silent:
            lines.append('start vswitch-modeler' if not running else
                         'see its log on that host')
        return lines, bool(silent or waiting or stopped or overdue)

    def _check_schedulers(self):
        """Return what the workers of nova-scheduler have reported."""
        now = self._clock()
        workers = self._store().workers()
        modelers = self._store().modelers()
        problems = []
        reporting = self_check.reporting_workers(workers, now)
        names = {}  # problem -> names of the workers that have it
        for worker in reporting:
            for problem in self._problems_of(worker, now):
                names.setdefault(problem, []).append(worker.name)
        problems += [
            (f'worker {workers_with_it[0]}' if len(workers_with_it) == 1 else
             f'{len(workers_with_it)} workers, {workers_with_it[0]} among '
             f'them,')
            + f' of nova-scheduler: {problem}'
            for problem, workers_with_it in names.items()]
        hosts = {worker.host for worker in reporting}
        for host in sorted({worker.host for worker in workers} - hosts):
            last = max(worker.seen_at for worker in workers
                       if worker.host == host)
            problems.append(
                f'no worker of nova-scheduler on {host} has reported for '
                f'{now - last:.0f} s: it has ended, cannot write to the '
                f'store, or is of another version')
        if not problems:
            problem = self_check.workers_problem(workers, modelers, now)
            problems = [problem] if problem else []
        if problems:
            return _warning(_some(problems))
        if not workers:
            return _success('no worker of nova-scheduler has reported yet')
        return _success(f'workers of nova-scheduler that report: '
                        f'{len(reporting)}')

    @staticmethod
    def _problems_of(worker, now):
        """Return a list of the problems that a worker reports, in words."""
        cells = self_check.record_problems(worker, now)
        plugins = self_check.plugins_problem(
            worker.state.get('plugins') or ())
        # Other checks report problems with these topics. The age of a record
        # says that a cell is not read.
        return cells + ([plugins] if plugins else []) + [
            f'{topic}: {problem}' for topic, problem in sorted(
                (worker.state.get('problems') or {}).items())
            if topic not in ('plugins', 'modeler', 'traffic models',
                             'options')
            and not (cells and topic.startswith('record of cell '))]

    def _check_nova_options(self):
        """Return what is wrong with the options of nova-scheduler."""
        target = self._store()
        workers = self_check.reporting_workers(target.workers(),
                                               self._clock())
        limits = {worker.state['max_placement_results'] for worker in workers
                  if 'max_placement_results' in worker.state}
        problems, text = [], None
        try:
            nova = nova_options.read(self._arguments,
                                     self._all_options.config_file)
        except cfg.Error as error:
            problems.append(f'nova-scheduler cannot read its configuration: '
                            f'{error}')
        except OSError as error:
            text = f'configuration of nova-scheduler not read: {error}'
        else:
            text = ('this machine has no configuration of nova-scheduler'
                    if nova is None else f'read: {", ".join(nova.files)}')
            # A machine without nova-scheduler may have a file of Nova.
            if nova is not None and (nova.are_set or not workers):
                problems.append(self_check.enabled_problem(nova.plugins))
            if nova is not None:
                own = options.unknown_names(self._all_options)
                problems += [problem for problem in options.unknown_names_in(
                    nova.files) if problem not in own]
                if not limits:
                    limits.add(nova.max_placement_results)
        hosts = sum(data.get('in_nova', False)
                    for data in target.fleet('host').facts.values())
        if limits:
            problems.append(self_check.results_problem(min(limits), hosts))
        problems = [problem for problem in problems if problem]
        if problems:
            return _warning('; '.join([*problems, *([text] if text else [])]))
        return _success(text)

    def _check_options(self):
        """Return which options differ although they must be equal."""
        target = self._store()
        workers, modelers = target.workers(), target.modelers()
        problems = options.unknown_names(self._all_options)
        problems += self_check.options_problems(
            options.alike(self._conf), workers, modelers, self._clock())
        if problems:
            return _warning(_some(problems))
        return _success(
            None if workers or modelers else
            'neither a worker of nova-scheduler nor vswitch-modeler has '
            'reported its options yet')

    def _check_budgets(self):
        if not self._conf.error_budgets:
            return _success('error_budgets is not set')
        budgets = self._store().error_budgets()
        if not budgets:
            return _success(
                'there are no error budgets yet: vswitch-modeler needs '
                'samples of instances, an inventory, and hosts with a switch '
                'profile and a limit')
        summary = (f'error budgets: {len(budgets)}, of which '
                   f'{sum(budget.in_debt for budget in budgets.values())} '
                   f'overspent')
        age = time.time() - max(budget.until for budget in budgets.values())
        if age > store.FRESH_SECONDS:
            return _warning(
                f'{summary}; last update: {age:.0f} s ago; expected less than '
                f'{store.FRESH_SECONDS:.0f} s: check vswitch-modeler and '
                f'telemetry')
        unknown = [
            f'{budget.kind} {budget.name}: {budget.unknown_seconds:.0f} s '
            f'without and {budget.measured_seconds:.0f} s with measured '
            f'traffic: {budget.unknown_why}'
            for budget in sorted(budgets.values(),
                                 key=lambda budget: -budget.unknown_seconds)
            if budget.unknown_seconds >= max(budget.measured_seconds,
                                             store.FRESH_SECONDS)]
        if unknown:
            return _warning(
                f'{summary}; the traffic of {len(unknown)} was not measured '
                f'for most of the time, so the budget does not grow: '
                f'{_some(unknown)}; check that telemetry has all instances '
                f'of these hosts')
        return _success(summary)

    def _check_margin(self):
        """Check that hosts which are filled above their limit are relieved."""
        target = self._store()
        least = min((policy.get('prediction_margin', 1.0) for policy
                     in target.fleet('host').facts.values()),
                    default=self._conf.prediction_margin)
        recent = self._clock() - _PLAN_SECONDS
        planned = least < 1 and any(
            plan.made_at >= recent for plan in target.plans())
        summary = f'smallest prediction_margin of a host: {least:g}'
        if least >= 1 or planned or self._conf.rebalance_mode != 'off':
            return _success(summary)
        return _warning(
            f'{summary}; rebalance_mode is off and no migration was planned '
            f'in the last seven days: if hosts in debt are not relieved, they '
            f'are overloaded for longer than overload_probability; set '
            f'rebalance_mode or prediction_margin = 1')

    def _check_access(self):
        """Check that no other user can open the files of an SQLite store."""
        url = engines.parse(self._conf.store_url)
        paths = engines.sqlite_files(url)
        if not paths:
            return _success()
        problems = []
        for path in (os.path.dirname(paths[0]), *paths):
            with contextlib.suppress(OSError):
                mode = stat.S_IMODE(os.stat(path).st_mode)
                if mode & 0o006:
                    problems.append(
                        f'mode of {path}: {mode:04o}; expected '
                        + ('0750' if os.path.isdir(path) else '0640'))
        if not problems:
            return _success()
        return _warning(
            '; '.join(problems) + ': every local user can read the store, or '
            'block all its writers with a lock; change the modes with chmod')

    def _check_rows(self):
        damaged = self._store().damaged()
        if not damaged:
            return _success()
        return _warning(
            f'{len(damaged)} rows of the store are damaged and ignored: '
            f'{_some(list(damaged.values()))}; vswitch-modeler replaces '
            f'models and priors, but you have to set profiles of hosts again')

    def _check_telemetry(self):
        """Return what is wrong with the instances that telemetry has."""
        problem = wiring.unprotected(self._all_options)
        if problem:
            return _warning(problem)
        if self._conf.telemetry_driver == 'file':
            return _success('the modeler reads files, and every instance in '
                            'these files gets a model')
        if not wiring.has_telemetry(self._all_options):
            return _success('no telemetry service is configured')
        unread = ''
        if self._conf.telemetry_driver in options.TELEMETRY_GROUPS:
            try:
                findings = check.examine(
                    wiring.configured_driver(self._all_options),
                    self._clock(), wiring.instances_of_nova(self._store()))
            except exceptions.VSwitchError as error:
                # Only the machine of vswitch-modeler needs access. If that has
                # none, the check "Modelers" reports it.
                unread = f'; telemetry cannot be read from here: {error}'
            else:
                if findings.problems:
                    return _warning(_some(findings.problems))
        return _success(
            'only instances in the inventory get models; the check '
            f'"Modelers" has the number of the other instances in telemetry'
            f'{unread}')

    _upgrade_checks = tuple((title, _needs_store(check)) for title, check in (
        ('Store Schema', _check_schema),
        ('Store Access', _check_access),
        ('Stored Rows', _check_rows),
        ('Last Generation', _check_generation),
        ('Modelers', _check_modelers),
        ('Schedulers', _check_schedulers),
        ('Options', _check_options),
        ('Nova Options', _check_nova_options),
        ('Telemetry', _check_telemetry),
        ('Switch Profiles', _check_profiles),
        ('Host Aggregates', _check_aggregates),
        ('Flavors', _check_flavors),
        ('Error Budgets', _check_budgets),
        ('Prediction Margin', _check_margin),
        ('Nova Release', _check_nova)))


def _some(problems):
    return plain_text.first_of(problems, '; ')


def _split(argv):
    """Return (words of --config-file and --config-dir, other words)."""
    first, remaining = [], []
    arguments = iter(argv)
    for argument in arguments:
        if argument in ('--config-file', '--config-dir'):
            first += [argument, *itertools.islice(arguments, 1)]
        elif argument.startswith(('--config-file=', '--config-dir=')):
            first.append(argument)
        else:
            remaining.append(argument)
    return first, remaining


def _configuration(argv):
    """Return the ConfigOpts of a command line and its files.

    :param argv: arguments; oslo.config does not accept --config-file after the
        sub-command
    """
    conf = cfg.ConfigOpts()
    options.register_opts(conf)

    def add_parsers(subparsers):
        # The parser of oslo.upgradecheck only has "upgrade check".
        check = subparsers.add_parser(
            'check', help='check the store, the options and the services')
        upgrade = subparsers.add_parser(
            'upgrade', help='"upgrade check" does the same as "check"')
        upgrade.add_argument('what', choices=['check'],
                             help='the only legal value')
        for parser in (check, upgrade):
            parser.add_argument('--json', action='store_true',
                                help='print the results as JSON')

    conf.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=add_parsers))
    options.parse(
        conf, argv, prog=PROG, version=terminal.version(PROG),
        description='Check whether vswitch_aware_scheduler is installed and '
                    'configured correctly.')
    return conf


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    :param argv: arguments without the program's name; None uses those of the
        process
    :returns: exit status, as in other services: 0 success, 1 a warning, 2 a
        failure, 255 an error, which is printed on standard error; an invalid
        command line exits with 2 by SystemExit
    """
    def command():
        logging.getLogger().addHandler(logging.NullHandler())
        files, words = _split(sys.argv[1:] if argv is None else argv)
        conf = _configuration(files + words)
        options.read_all(conf)
        # The check command reads this option.
        upgradecheck.CONF = conf
        answer = io.StringIO()
        with contextlib.redirect_stdout(answer):
            status = int(Checks(conf, arguments=files).check())
        terminal.print_text(answer.getvalue())
        return status

    return terminal.run(PROG, command, failure=255)


if __name__ == '__main__':
    sys.exit(main())
