# SPDX-License-Identifier: Apache-2.0
"""vswitch-report: serve the fleet as an HTML page.

It serves on this machine until a signal ends it. The manual has it:
cli/vswitch-report.rst. ``vswitch-manage report`` writes the page to a file.
"""

import logging
import signal
import sys

from oslo_config import cfg

from vswitch_aware_scheduler.cmd.subcommands import report
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler.report import server
from vswitch_aware_scheduler import store

__all__ = ['main']

PROG = 'vswitch-report'

_PROJECT = 'vswitch_aware_scheduler'

_CLI = [
    cfg.StrOpt('store',
               help='SQLAlchemy URL of the store, in place of store_url.'),
    cfg.StrOpt('address', default='127.0.0.1',
               help='Address to listen at: one of this machine alone.'),
    cfg.PortOpt('port', default=8790,
                help='Port to listen at; 0 chooses a free one.'),
    cfg.IntOpt('details', default=report.DETAILS, min=0, max=1000,
               help='Hosts that the first page shows in detail, those of the '
                    'largest risk. Every host has a page of its own.'),
    cfg.FloatOpt('stale-hours', default=report.STALE_HOURS, min=0,
                 help='Age of the last sample from which a model is stale.'),
    cfg.FloatOpt('refresh-seconds', default=60.0, min=0,
                 help='How long a page is kept before the store is read '
                      'again for the next request.'),
]


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
    limits = report.limits(conf.details, conf.stale_hours)
    reports = server.Reports(
        lambda: report.read_fleet(group, target),
        lambda found, host: report.make_report(found, target, limits, host),
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
