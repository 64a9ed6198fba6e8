# SPDX-License-Identifier: Apache-2.0
"""vswitch-report, and ``vswitch-manage report``: the fleet as an HTML page.

``vswitch-report`` serves the page on this machine until it is interrupted. The
manual has both: cli/vswitch-report.rst.
"""

import dataclasses
import logging
import os
import signal
import sys
import tempfile
import time

from oslo_config import cfg

from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.modeler import fleet
from vswitch_aware_scheduler.modeler import service
from vswitch_aware_scheduler.report import data
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler.report import server
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['add_arguments', 'main', 'write']

PROG = 'vswitch-report'

_PROJECT = 'vswitch_aware_scheduler'

#: Decisions of schedulers that are older are not shown, nor more than so
#: many.
_DECISION_SECONDS = 7 * 86400.0
_MOST_DECISIONS = 50_000

_DETAILS, _STALE_HOURS = 10, 24.0

#: Instances whose model the page of one host draws.
_HOST_DIAGRAMS = 100

_CLI = [
    cfg.StrOpt('store',
               help='SQLAlchemy URL of the store, in place of store_url.'),
    cfg.StrOpt('address', default='127.0.0.1',
               help='Address to listen at: one of this machine alone.'),
    cfg.PortOpt('port', default=8790,
                help='Port to listen at; 0 chooses a free one.'),
    cfg.IntOpt('details', default=_DETAILS, min=0, max=1000,
               help='Hosts that the first page shows in detail, those of the '
                    'largest risk. Every host has a page of its own.'),
    cfg.FloatOpt('stale-hours', default=_STALE_HOURS, min=0,
                 help='Age of the last sample from which a model is stale.'),
    cfg.FloatOpt('refresh-seconds', default=60.0, min=0,
                 help='How long a page is kept before the store is read '
                      'again for the next request.'),
]


def add_arguments(parser):
    """Add the arguments of ``vswitch-manage report``."""
    parser.add_argument('--html', metavar='FILE', required=True,
                        help='write the page to this file, readable for its '
                             'owner alone; - for standard output'
                        ).complete = terminal.FILE
    parser.add_argument('--details', metavar='N', type=int, default=_DETAILS,
                        help='hosts that are shown in detail, those of the '
                             f'largest risk (default: {_DETAILS})')
    parser.add_argument('--stale-hours', metavar='H', type=float,
                        default=_STALE_HOURS,
                        help='age of the last sample from which a model is '
                             f'stale (default: {_STALE_HOURS:g})')


def write(arguments, group, opened, progress=None):
    """Write the page; return what to say about it as plain data.

    :param group: our group of options
    :param opened: callable, returns the store
    :param progress: None, or called as progress(done, total)
    """
    if not 0 <= arguments.details <= 1000:
        raise exceptions.InvalidInput(
            f'--details: {arguments.details}; expected a whole number 0 to '
            f'1000')
    if not 0 <= arguments.stale_hours < float('inf'):
        raise exceptions.InvalidInput(
            f'--stale-hours: {arguments.stale_hours}; expected a number '
            f'from 0')
    page.require()
    report = _report(_fleet(group, opened(), progress), opened(), _limits(
        arguments.details, arguments.stale_hours))
    text = page.Page().render(report)
    if arguments.html == '-':
        terminal.print_text(text)
    else:
        _write_file(arguments.html, text)
    return {'file': arguments.html, 'bytes': len(text.encode()),
            'summary': report['summary']}


def _write_file(path, text):
    """Write a file at once: a reader sees the old page or the new one."""
    directory = os.path.dirname(path) or '.'
    # Of mode 0600, as names of tenants are in it.
    handle, temporary = tempfile.mkstemp(dir=directory, prefix='.report-')
    try:
        with open(handle, 'w', encoding='utf-8',
                  errors='replace') as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _limits(details, stale_hours):
    return data.Limits(details=details, stale_seconds=3600.0 * stale_hours)


def _fleet(group, target, progress=None):
    """Return the :class:`.report.data.Fleet` of a store.

    :param group: our group of options
    """
    def find_policies(hosts):
        found, _, _ = policy_in_force.unpack(
            target.fleet('host').facts, target.fleet('uplink').facts)
        unknown = [host for host in hosts if host not in found]
        if unknown:
            # No modeler has stored their policies yet.
            made = fleet.stored_policies(
                target, *service.make_policies(group),
                service.make_corrections(group), placed_on=hosts).hosts
            found = {**found, **{host: made[host] for host in unknown}}
        return found

    # As "vswitch-manage fleet": what is not known may not count at all.
    unknown_law = rate_law.SILENT
    if group.unknown_instance_policy == 'default':
        unknown_law = model.TrafficModel.on_off(
            **options.default_demand(group)).law
    return data.Fleet(target, find_policies, unknown_law, progress)


def _report(found, target, limits, host=None):
    now = time.time()
    if host is not None:
        # Its page has the room for all of its models.
        limits = dataclasses.replace(limits, diagrams=_HOST_DIAGRAMS)
    return found.report(now, limits, () if host is not None else
                        target.decisions(since=now - _DECISION_SECONDS,
                                         limit=_MOST_DECISIONS), host)


def _configuration(argv):
    conf = cfg.ConfigOpts()
    conf.register_cli_opts(_CLI)
    options.register_opts(conf)
    conf(argv, project=_PROJECT, prog=PROG, version=terminal.version(PROG),
         default_config_files=cfg.find_config_files(_PROJECT, 'vswitch'))
    group = conf[options.GROUP]
    for name in group:
        group[name]
    if conf.store is not None:
        conf.set_override('store_url', conf.store, options.GROUP)
    return conf


def _serve(conf, started):
    """Serve until a signal ends the process.

    :param started: callable(Server), called before the first request
    """
    server.require_loopback(conf.address)
    page.require()
    group = conf[options.GROUP]
    target = store.Store(group.store_url, group.store_timeout_seconds)
    limits = _limits(conf.details, conf.stale_hours)
    reports = server.Reports(
        lambda: _fleet(group, target),
        lambda found, host: _report(found, target, limits, host),
        conf.refresh_seconds)
    try:
        serving = server.Server(conf.address, conf.port, reports)
    except OSError as error:
        raise exceptions.InvalidInput(
            f'{conf.address} port {conf.port}: {error.strerror}; expected an '
            f'address and a port that are free: --port') from None
    with serving:
        started(serving)
        serving.serve_forever()


def main(argv=None):
    """Run ``vswitch-report``.

    :param argv: arguments without the program's name, None: the process's
    :returns: exit status: 0 ended by a signal, 1 an error, which is told on
        stderr; a wrong command line exits with 2 by SystemExit
    """
    def started(serving):
        terminal.print_line(f'The report is at {serving.url}')
        sys.stdout.flush()

    def end(_signal, _frame):
        raise SystemExit(0)

    def command():
        logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
        conf = _configuration(sys.argv[1:] if argv is None else argv)
        before = signal.signal(signal.SIGTERM, end)
        try:
            _serve(conf, started)
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, before)
        return 0

    return terminal.run(PROG, command)


if __name__ == '__main__':
    sys.exit(main())
