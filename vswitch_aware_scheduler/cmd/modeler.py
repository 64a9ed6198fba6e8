# SPDX-License-Identifier: Apache-2.0
"""vswitch-modeler: learns traffic models.

It runs as a service, or with ``--once`` makes one pass for cron. See
cli/vswitch-modeler.rst.
"""

import dataclasses
import logging as python_logging
import sys
import time

from oslo_config import cfg
from oslo_log import log as logging

from vswitch_aware_scheduler.budgets import rebalance_settings
from vswitch_aware_scheduler.budgets import rebalancer as rebalancing
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.modeler import heartbeat
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import passes
from vswitch_aware_scheduler.modeler import service
from vswitch_aware_scheduler.modeler import systemd
from vswitch_aware_scheduler.modeler import wiring

__all__ = ['main']

PROG = 'vswitch-modeler'

_CLI = [
    cfg.BoolOpt('once', default=False,
                help='Make one pass, print its result and exit.'),
    cfg.BoolOpt('json', default=False,
                help='With --once: print the result as JSON.'),
]


def _configuration(argv):
    """Return the options of a command line and its files, read now."""
    conf = cfg.ConfigOpts()
    conf.register_cli_opts(_CLI)
    logging.register_options(conf)
    options.register_opts(conf)
    options.parse(
        conf, argv, prog=PROG, version=terminal.version(PROG),
        description='Read the traffic of instances from telemetry, and keep '
                    'their traffic models in the store up to date.')
    return conf


def _say(text):
    terminal.say(PROG, text)


def _only_advising(set_up):
    """Return a SetUp that starts no migration: nobody would wait for it."""
    if set_up.rebalancer is None:
        return set_up
    return dataclasses.replace(set_up, rebalancer=rebalancing.Rebalancer(
        set_up.rebalancer.cloud, dataclasses.replace(
            set_up.rebalancer.settings, mode=rebalance_settings.ADVISE),
        set_up.rebalancer.read_fleet))


def _once(conf):
    set_up = _only_advising(wiring.set_up(conf))
    if set_up.driver is None:
        raise exceptions.TelemetryNotConfigured(set_up.missing)
    wiring.make_store(set_up)
    learning.check_store_clock(set_up.store, time.time, set_up.settings)
    problems = []
    with terminal.progress('learning') as progress:
        one_pass = passes.Pass(set_up, time.time, time.monotonic,
                               progress=progress)
        one_pass.run(lambda step, problem: problems.append(problem))
    outcome = one_pass.outcome
    for problem in filter(None, problems):
        _say(problem)
    report = heartbeat.Heartbeat(time.time, time.monotonic)
    report.report_to(set_up.store, None)
    report.passed(passes.words_of(outcome))
    report.end()
    empty = [] if outcome.instances else wiring.why_no_instance(
        set_up, time.time)
    for line in empty:
        _say(line)
    status = 1 if empty else 0
    if conf.json:
        terminal.print_json({
            'source': set_up.driver.source, 'store': set_up.store.url,
            'generation': outcome.generation.number,
            'written': outcome.written, 'instances': outcome.instances,
            'samples': outcome.samples, 'fitted': outcome.fitted,
            'waiting': outcome.waiting, 'removed': list(outcome.removed),
            'reasons': outcome.reasons,
            'refused_instances': [{
                'instance_uuid': refusal.instance_uuid, 'name': refusal.name,
                'reason': refusal.reason, 'detail': refusal.detail}
                for refusal in outcome.refused],
            'refused_samples': outcome.refused_samples.to_dict(),
            'ignored': outcome.ignored,
            'last_time': outcome.last_time, 'ahead': outcome.ahead,
            'seconds': round(outcome.seconds, 3)})
        return status
    generation = f'{outcome.generation.number}' + (
        '' if outcome.written else ', as before: nothing is new')
    refused = {name: count for name, count
               in outcome.refused_samples.to_dict().items() if count}
    for name, value in (
            ('Telemetry', set_up.driver.source),
            ('Store', set_up.store.url), ('Generation', generation),
            ('Instances', outcome.instances),
            ('New samples', outcome.samples),
            ('Fitted', f'{outcome.fitted} models in '
                       f'{outcome.seconds:.1f} s'),
            ('Wait for a model', outcome.waiting),
            ('Forgotten', len(outcome.removed)),
            ('Refused', f'{len(outcome.refused)} instances'
                        + terminal.counted(outcome.reasons)),
            ('Samples refused',
             f'{outcome.refused_samples.total}' + terminal.counted(refused))):
        terminal.print_line(f'{name + ":":18}{value}')
    for cause, count in outcome.ignored.items():
        _say(f'{count} resources of telemetry are ignored ({cause})')
    if set_up.unprotected:
        _say(set_up.unprotected)
    for reason in outcome.reasons:
        _say(f'{reason}: ' + plain_text.first_of(
            refusal.name or refusal.instance_uuid
            for refusal in outcome.refused if refusal.reason == reason))
    if outcome.ahead:
        _say(f'{outcome.ahead} instances have samples later than the clock '
             f'of this machine; no new samples of these instances are read '
             f'until the clock has passed them')
    return status


def _serve(conf, argv):
    logging.setup(conf, PROG)
    logs.escape_all()
    # The first load uses the configuration that was read for the log file.
    waiting = [conf]

    def load():
        return wiring.set_up(
            waiting.pop() if waiting else _configuration(argv),
            wiring.PATIENCE_SECONDS)

    service.Service(load, systemd.Notifier()).run()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    :param argv: arguments without the program's name; None uses those of the
        process
    :returns: exit status: 0 on success, 1 after an error, which is printed on
        standard error; an invalid command line exits with 2 by SystemExit
    """
    argv = sys.argv[1:] if argv is None else argv
    read = []

    def command():
        conf = _configuration(argv)
        read.append(conf)
        if not conf.once:
            if conf.json:
                raise exceptions.InvalidInput(
                    thing='--json', seen='given without --once',
                    expected='both options or neither')
            return _serve(conf, argv)
        if conf.debug:
            terminal.log_all()
        else:
            # The exception also contains what a library logs.
            python_logging.getLogger().addHandler(
                python_logging.NullHandler())
        return _once(conf)

    return terminal.run(PROG, command, lambda: read and read[0].debug,
                        interrupted=': nothing was written')


if __name__ == '__main__':
    sys.exit(main())
