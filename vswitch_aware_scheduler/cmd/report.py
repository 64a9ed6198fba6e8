# SPDX-License-Identifier: Apache-2.0
"""vswitch-report: serves the fleet as an HTML page.

It listens on this machine until a signal ends it. See cli/vswitch-report.rst.
``vswitch-manage report`` writes the page to a file.
"""

import logging
import signal
import sys

from oslo_config import cfg

from vswitch_aware_scheduler.cmd.subcommands import report
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler.report import server
from vswitch_aware_scheduler import store

__all__ = ['main']

PROG = 'vswitch-report'

_CLI = [
    cfg.StrOpt('store',
               help='SQLAlchemy URL of the store, instead of store_url.'),
    cfg.StrOpt('address', default='127.0.0.1',
               help='Loopback IP address to listen on.'),
    cfg.PortOpt('port', default=8790,
                help='TCP port to listen on; 0 selects a free port.'),
    cfg.IntOpt('details', default=report.DETAILS, min=0, max=1000,
               help='Number of hosts that the first page shows in detail: '
                    'the hosts with the largest risk. Every host has a page '
                    'of its own.'),
    cfg.FloatOpt('stale-hours', default=report.STALE_HOURS, min=0,
                 help='Age of the last sample, in hours, above which a model '
                      'is shown as stale.'),
    cfg.FloatOpt('refresh-seconds', default=60.0, min=0,
                 help='Time in seconds for which a page is cached.'),
]


def _configuration(argv):
    conf = cfg.ConfigOpts()
    conf.register_cli_opts(_CLI)
    options.register_opts(conf)
    options.parse(
        conf, argv, prog=PROG, version=terminal.version(PROG),
        description='Serve web pages with the load and the risk of each host.')
    options.read_all(conf)
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
        lambda: report.read_contents(group, target),
        lambda contents, host: report.make_report(contents, target, limits,
                                                  host),
        conf.refresh_seconds)
    try:
        serving = server.ReportServer(conf.address, conf.port, reports)
    except OSError as error:
        raise exceptions.InvalidInput(
            f'{conf.address} port {conf.port}: {error.strerror}; set a free '
            f'port with --port, or an address of this machine with '
            f'--address') from None
    with serving:
        started(serving)
        serving.serve_forever()


def main(argv: list[str] | None = None) -> int:
    """Run ``vswitch-report``.

    :param argv: arguments without the program's name; None uses those of the
        process
    :returns: exit status: 0 after a signal, 1 after an error, which is printed
        on standard error; an invalid command line exits with 2 by SystemExit
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
