# SPDX-License-Identifier: Apache-2.0
"""Start the cloud, play the scenarios, audit each, take it down."""

import argparse
import json
import sys
import time
import traceback

from tests.cloud import auditor
from tests.cloud import client as api
from tests.cloud import scenarios
from tests.cloud import services

#: The computes report their instances every 20 s: so late a witness may be.
SETTLE_SECONDS = 90


def stage_of(cloud):
    """Return the Stage of a cloud that has just started."""
    client = api.Client(cloud)
    flavors = {name: client.flavor(name, egress_kbps=kbps)
               for name, kbps in scenarios.RATES_KBPS.items()}
    client.set_aggregate(
        'all', cloud.openstack.computes, profile='ovs-vxlan',
        saturation_kbps=scenarios.CAPACITY_KBPS, vm_peak_kbps=10_000,
        overload_probability=0)
    return scenarios.Stage(cloud, client, flavors)


def play(stage, function, judge):
    """Play one scenario; return a line of the table."""
    began = time.monotonic()
    line = {'scenario': function.__name__, 'good': True, 'remark': ''}
    _, logged = stage.cloud.openstack.filtered()
    try:
        line['remark'] = function(stage) or ''
    except Exception as error:
        traceback.print_exc()
        line.update(good=False, remark=f'{type(error).__name__}: {error}')
        print(*stage.cloud.openstack.filtered(logged)[0], sep='\n',
              file=sys.stderr)
    line['seconds'] = round(time.monotonic() - began, 1)
    problems = judge.problems()
    line['audit'] = problems
    line['miscounted'] = settled_counts(stage, judge)
    line['good'] &= not problems and not line['miscounted']
    try:
        stage.client.delete_all()
    except Exception as error:
        line.update(good=False, remark=f'{type(error).__name__}: {error}')
    return line


def settled_counts(stage, judge):
    """Return what workers count wrongly even after they had time to learn."""
    limit = time.monotonic() + SETTLE_SECONDS
    while True:
        # A worker looks at the hosts when a request comes; nobody can carry
        # these, so they change nothing.
        for number in range(4):
            stage.client.boot(f'probe-{number}', stage.flavors['huge'])
        wrong = judge.miscounted(stage.cloud.openstack.reports())
        if not wrong or time.monotonic() > limit:
            return wrong
        time.sleep(5)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--computes', type=int, default=6)
    parser.add_argument('--only', action='append', metavar='SCENARIO',
                        choices=[one.__name__ for one in scenarios.ALL])
    parser.add_argument('--keep', action='store_true',
                        help='leave it up until Enter is pressed')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    began = time.monotonic()
    lines = []
    with services.Cloud(options.computes) as cloud:
        print(f'up in {time.monotonic() - began:.0f} s', file=sys.stderr)
        stage = stage_of(cloud)
        judge = auditor.Auditor(cloud, scenarios.CAPACITY_KBPS, 0.0)
        for function in scenarios.ALL:
            if options.only and function.__name__ not in options.only:
                continue
            lines.append(play(stage, function, judge))
            if not options.json:
                print(_row(lines[-1]), flush=True)
        if options.keep:
            words = ' '.join(f'OS_{key.upper()}={value}' for key, value
                             in cloud.openstack.auth.items())
            print(f'It stays until you press Enter: {words}\n'
                  f'Files: {cloud.openstack.folder}')
            sys.stdin.readline()
    good = sum(line['good'] for line in lines)
    if options.json:
        print(json.dumps(lines))
    print(f'{good} of {len(lines)} scenarios are good', file=sys.stderr)
    return 0 if good == len(lines) else 1


def _row(line):
    words = [line['remark'], *line['audit'], *line['miscounted']]
    return (f'{"good" if line["good"] else "BAD ":5}{line["seconds"]:7.1f} s '
            f'{line["scenario"]:22}{"; ".join(filter(None, words))}')


if __name__ == '__main__':
    sys.exit(main())
