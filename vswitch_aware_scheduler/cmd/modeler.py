# SPDX-License-Identifier: Apache-2.0
"""vswitch-modeler: learns traffic models.

It runs as a service, or with ``--once`` makes one pass for cron. See
cli/vswitch-modeler.rst.
"""

import logging as python_logging
import sys
import time

from oslo_config import cfg
from oslo_log import log as logging

from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.modeler import fleet
from vswitch_aware_scheduler.modeler import heartbeat
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import repair
from vswitch_aware_scheduler.modeler import service
from vswitch_aware_scheduler import plain_text

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


def _once(conf):
    set_up = service.set_up(conf)
    if set_up.driver is None:
        raise exceptions.TelemetryNotConfigured(set_up.missing)
    service.make_store(set_up)
    learning.check_store_clock(set_up.store, time.time, set_up.settings)
    began = time.time()
    inventory = service.update_inventory(set_up, time.time)
    problems = (inventory, service.update_hosts(set_up),
                service.update_fleet(set_up, time.time),
                service.check_hosts(set_up))
    repair.learn_again(set_up.store, time.time, set_up.settings)
    bounds = fleet.most_kbps(set_up.store)
    with terminal.progress('learning') as progress:
        outcome = learning.run(
            set_up.store,
            set_up.driver,
            time.time,
            set_up.settings,
            progress,
            most_kbps=bounds,
        )
    problems += service.update_budgets(
        set_up, time.time, outcome.last_time, most_kbps=bounds,
        stays_until=service.stays_until(set_up, began, inventory))[1],
    service.update_priors(set_up, time.time)
    for problem in filter(None, problems):
        _say(problem)
    report = heartbeat.Heartbeat(time.time, time.monotonic)
    report.report_to(set_up.store, None)
    report.passed(service.words_of(outcome))
    report.end()
    empty = [] if outcome.instances else service.why_no_instance(
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
        return service.set_up(
            waiting.pop() if waiting else _configuration(argv),
            service.PATIENCE_SECONDS)

    service.Service(load, service.Notifier()).run()
    return 0


def main(argv=None):
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
                    '--json: given without --once; expected both options or '
                    'neither')
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
