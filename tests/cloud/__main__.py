# SPDX-License-Identifier: Apache-2.0
"""Start the cloud, play the scenarios, audit each, take it down."""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
import traceback

from tests.cloud import at_once
from tests.cloud import auditor
from tests.cloud import client as api
from tests.cloud import operations
from tests.cloud import scenarios
from tests.cloud import services
from tests.cloud import telemetry
from tests.cloud import tempest

#: The computes report their instances every 20 s: so late a witness may be.
SETTLE_SECONDS = 90


def stage_of(cloud):
    """Return the Stage of a cloud that has just started."""
    client = api.Client(cloud)
    flavors = {name: client.flavor(name, egress_kbps=kbps)
               for name, kbps in scenarios.RATES_KBPS.items()}
    stage = scenarios.Stage(cloud, client, flavors)
    stage.set_hosts()
    return stage


def chosen(options):
    """Return the scenarios to play, in their order."""
    functions = [function for function in scenarios.ALL
                 if not options.only or function.__name__ in options.only]
    if options.shuffle is not None:
        random.Random(options.shuffle).shuffle(functions)
    return functions


def play(stage, function, judge):
    """Play one scenario; return a line of the table."""
    began = time.monotonic()
    line = {'scenario': function.__name__, 'good': True, 'remark': ''}
    _, logged = stage.cloud.openstack.complaints()
    try:
        line['remark'] = function(stage) or ''
    except Exception as error:
        traceback.print_exc()
        line.update(good=False, remark=f'{type(error).__name__}: {error}')
        print(*stage.cloud.openstack.complaints(logged)[0], sep='\n',
              file=sys.stderr)
    line['seconds'] = round(time.monotonic() - began, 1)
    line['audit'] = judge.overloads()
    # Computes need some time to tell, and to clear up after themselves.
    line['audit'] += settled(judge.misallocated)
    line['audit'] += settled(lambda: miscounted(stage, judge))
    line['good'] &= not line['audit']
    try:
        stage.restore()
    except Exception as error:
        line.update(good=False, remark=f'{type(error).__name__}: {error}')
    return line


def settled(problems):
    """Return what is wrong and does not go away."""
    limit = time.monotonic() + SETTLE_SECONDS
    while True:
        failures = problems()
        if not failures or time.monotonic() > limit:
            return failures
        time.sleep(5)


def miscounted(stage, judge):
    """Return what the workers count wrongly, claims of nobody included."""
    # A worker looks at the hosts when a request comes; nobody can carry
    # these, so they change nothing.
    for number in range(2 * stage.cloud.openstack.workers):
        stage.client.boot(f'probe-{number}', stage.flavors['huge'])
    return judge.miscounted(stage.cloud.openstack.reports())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--computes', type=int, default=6)
    parser.add_argument('--telemetry', choices=sorted(telemetry.SOURCES),
                        default='gnocchi', help='where traffic is read')
    parser.add_argument('--only', action='append', metavar='SCENARIO',
                        choices=[scenario.__name__
                                 for scenario in scenarios.ALL])
    parser.add_argument('--shuffle', type=int, metavar='SEED',
                        help='play the scenarios in a random order')
    parser.add_argument('--keep', action='store_true',
                        help='leave it up until Enter is pressed')
    parser.add_argument('--tempest', action='store_true',
                        help='run our tempest plugin instead')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--operations', type=int, metavar='N',
                        help='make N random operations under faults instead')
    parser.add_argument('--seed', type=int, default=1,
                        help='of the random operations')
    parser.add_argument('--at-once', type=int, metavar='ROUNDS',
                        help='boot more servers at once than fit instead')
    parser.add_argument('--store', default='mariadb',
                        choices=('mariadb', 'galera', 'postgresql', 'sqlite'),
                        help='of these rounds')
    parser.add_argument('--patience', type=float, default=2.0,
                        metavar='SECONDS',
                        help='of these rounds or operations: '
                             'claim_patience_seconds')
    parser.add_argument('--refuse-every', type=int, metavar='N',
                        help='in these rounds, Placement refuses each N-th '
                             'claim of a worker')
    parser.add_argument('--faults', action='store_true',
                        help='in these rounds, the store is killed, locked or '
                             'read-only for some seconds (MariaDB), or one of '
                             'its nodes is killed (Galera)')
    options = parser.parse_args()
    # A signal ends the services, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.at_once is not None:
        return 0 if at_once.run(
            {'computes': options.computes, 'store': options.store},
            options.at_once, options.patience, options.refuse_every,
            at_once.FAULTS[options.store] if options.faults else (),
            options.json, stage_of) else 1
    if options.operations is not None:
        with tempfile.TemporaryDirectory() as folder:
            return 0 if operations.run(
                {'computes': options.computes, 'driver': options.telemetry},
                options.operations, options.seed, folder, options.patience,
                stage_of, auditor) else 1
    began = time.monotonic()
    lines = []
    with services.Cloud(options.computes, options.telemetry) as cloud:
        print(f'up in {time.monotonic() - began:.0f} s', file=sys.stderr)
        stage = stage_of(cloud)
        judge = auditor.Auditor(cloud, scenarios.CAPACITY_KBPS, 0.0)
        for function in () if options.tempest else chosen(options):
            lines.append(play(stage, function, judge))
            if not options.json:
                print(_row(lines[-1]), flush=True)
        workspace = cloud.openstack.path('tempest')
        if options.tempest or options.keep:
            tempest.set_up(stage, workspace)
        if options.tempest:
            lines.append({'scenario': 'tempest',
                          'good': tempest.run(workspace) == 0})
            if not lines[-1]['good']:
                print(*cloud.openstack.complaints()[0], sep='\n',
                      file=sys.stderr)
        if options.keep:
            variables = ' '.join(f'OS_{key.upper()}={value}' for key, value
                                 in cloud.openstack.auth.items())
            print(f'It stays until you press Enter: {variables}\n'
                  f'Files: {cloud.openstack.folder}\n'
                  f'In {workspace}: tempest run --regex "{tempest.REGEX}"')
            sys.stdin.readline()
    good = sum(line['good'] for line in lines)
    if options.json:
        print(json.dumps(lines))
    print(f'{good} of {len(lines)} scenarios are good', file=sys.stderr)
    return 0 if good == len(lines) else 1


def _row(line):
    remarks = [line['remark'], *line['audit']]
    return (f'{"good" if line["good"] else "BAD ":5}{line["seconds"]:7.1f} s '
            f'{line["scenario"]:27}{"; ".join(filter(None, remarks))}')


if __name__ == '__main__':
    sys.exit(main())
