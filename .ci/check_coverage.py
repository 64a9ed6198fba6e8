# SPDX-License-Identifier: Apache-2.0
"""Combine the coverage of several runs, print it and judge it.

Usage: check_coverage.py RESULTS [RESULTS ...]

Statements and branches have a limit each; coverage's own fail_under knows
only their mixture.
"""

import json
import os
import pathlib
import subprocess
import sys

STATEMENTS_PERCENT = 90.0
BRANCHES_PERCENT = 80.0


def _percent(covered, total):
    return 100.0 * covered / total if total else 100.0


def main(directories):
    data = []
    for directory in directories:
        files = sorted(map(str, pathlib.Path(directory).glob('coverage.*')))
        if not files:
            print(f'No coverage data in {directory}: run its tests first',
                  file=sys.stderr)
            return 1
        data += files
    summary = pathlib.Path('.results/cover')
    summary.mkdir(parents=True, exist_ok=True)
    combined = summary.absolute() / 'combined'
    environment = dict(os.environ, COVERAGE_FILE=str(combined))
    for command in (['combine', '-q', '--keep', *data],
                    ['report'],
                    ['html', '-q', '-d', str(summary / 'html')],
                    ['json', '-q', '-o', str(summary / 'coverage.json')]):
        subprocess.run([sys.executable, '-m', 'coverage', *command],
                       env=environment, stdin=subprocess.DEVNULL, check=True)

    totals = json.loads((summary / 'coverage.json').read_text())['totals']
    good = True
    for name, covered, total, limit in (
            ('statements', totals['covered_lines'],
             totals['num_statements'], STATEMENTS_PERCENT),
            ('branches', totals['covered_branches'],
             totals['num_branches'], BRANCHES_PERCENT)):
        percent = _percent(covered, total)
        enough = percent >= limit
        good = good and enough
        print(f'coverage of {name}: {percent:.1f} % ({covered} of {total}), '
              f'wanted {limit:.0f} %: {"enough" if enough else "TOO LOW"}')
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
