# SPDX-License-Identifier: Apache-2.0
"""Print the totals of the last run of several stestr repositories.

Usage: count_tests.py RESULTS [RESULTS ...]

The last line reads "N passed, N failed, N skipped". A repository that is
missing or empty counts as one failure: a suite that could not start must not
look like one that has nothing against the change. A class that is skipped as a
whole counts once, though each worker that has one of its tests reports it.
Skips and failures are named above the totals.
"""

import collections
import io
import subprocess
import sys

import subunit
import testtools

_PASSED = ('success', 'xfail')


def outcomes(stream):
    """Return [(outcome, test id, reason)] of a stream, each of them once."""
    found = []

    def on_test(test):
        if test['status'] == 'exists':
            return
        reason = test['details'].get('reason')
        found.append((test['status'], test['id'],
                      reason.as_text().strip() if reason else ''))

    result = testtools.StreamToDict(on_test)
    result.startTestRun()
    subunit.ByteStreamToStreamResult(
        stream, non_subunit_name='stdout').run(result)
    result.stopTestRun()
    return list(dict.fromkeys(
        row for row in found if row[1] not in (None, 'stdout')))


def main(repositories):
    counts = collections.Counter()
    for repository in repositories:
        last = subprocess.run(
            ['stestr', '--repo-url', repository, 'last', '--subunit'],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        tests = outcomes(io.BytesIO(last.stdout))
        if not tests:
            print(f'failed: no results in {repository}')
            counts['failed'] += 1
        for status, name, reason in tests:
            if status in _PASSED:
                counts['passed'] += 1
            elif status == 'skip':
                counts['skipped'] += 1
                print(f'skipped: {name}: {reason}')
            else:
                counts['failed'] += 1
                print(f'failed: {name} ({status})')
    print('{passed} passed, {failed} failed, {skipped} skipped'.format_map(
        {'passed': counts['passed'], 'failed': counts['failed'],
         'skipped': counts['skipped']}))
    return 1 if counts['failed'] or not counts['passed'] else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
