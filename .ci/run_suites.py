# SPDX-License-Identifier: Apache-2.0
"""Run test suites with stestr.

Usage: run_suites.py [--cover] RESULTS SUITE [SUITE ...] [-- FILTER ...]

A SUITE is a directory below tests/. The results of all of them go to one
stestr repository in RESULTS; with --cover the coverage data is beside it.
What an earlier run left in RESULTS is removed first. A suite that fails does
not keep the next one from running. FILTER is what stestr takes after "run": a
suite in which no test matches is passed over, unless none matches in any.

Temporary files of tests are in memory where there is room, unless TMPDIR says
otherwise: many tests commit to a database, and would wait for the disk.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

#: Tests that run at once, by suite, as a multiple of the cores: in unit and
#: contract, a test waits for other threads and processes for a fifth of its
#: time, in functional for threads of Nova's for a third, and in integration
#: for servers that stand still; calibrated measures the machine, and looks for
#: namespaces that another test would make. The tests of watcher take 3 s and
#: its imports 9 s, in each worker and, if there are several workers, in the
#: listing of the tests as well.
_AT_ONCE = {'unit': 1.5, 'contract': 1.5, 'functional': 1.5,
            'integration': 1.5, 'calibrated': 0, 'watcher': 0,
            'deploy': 0}

#: Where Linux has files in memory, and the free bytes that the tests need.
_MEMORY, _MEMORY_BYTES = '/dev/shm', 4 * 2 ** 30


def _temporary_folder():
    """Return a TemporaryDirectory in memory, or where files usually are."""
    folder = None
    if 'TMPDIR' not in os.environ and os.access(_MEMORY, os.W_OK):
        flags = os.statvfs(_MEMORY).f_flag
        if not flags & os.ST_NOEXEC \
                and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES:
            folder = _MEMORY
    return tempfile.TemporaryDirectory(prefix='tests-', dir=folder,
                                       ignore_cleanup_errors=True)


def _matches(stestr, suite, filters):
    listed = subprocess.run(
        stestr + ['--test-path', f'./tests/{suite}', 'list', *filters],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return any('test' in line for line in listed.stdout.splitlines())


def main(arguments):
    filters = []
    if '--' in arguments:
        split = arguments.index('--')
        arguments, filters = arguments[:split], arguments[split + 1:]
    cover = arguments[:1] == ['--cover']
    arguments = arguments[cover:]
    if len(arguments) < 2:
        raise SystemExit(__doc__)
    results, suites = pathlib.Path(arguments[0]), arguments[1:]
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)

    stestr = ['stestr', '--repo-url', str(results)]
    # stestr cannot even list tests without one.
    subprocess.run(stestr + ['init'], stdin=subprocess.DEVNULL, check=True)
    selectors = [word for word in filters if not word.startswith('-')]
    if selectors:
        suites = [suite for suite in suites
                  if _matches(stestr, suite, selectors)]
        if not suites:
            print(f'No test matches {" ".join(selectors)}', file=sys.stderr)
            return 1

    environment = dict(os.environ)
    if cover:
        # The interpreter that stestr starts its workers with.
        environment.update(
            PYTHON='coverage run',
            COVERAGE_FILE=str(results.absolute() / 'coverage'))
    with _temporary_folder() as folder:
        # Servers that tests start run as users of their own.
        os.chmod(folder, 0o1777)
        return _run(stestr, suites, filters,
                    dict(environment, TMPDIR=folder))


def _run(stestr, suites, filters, environment):
    """Run suites of tests and return the exit status.

    :param stestr: the command, a list of words
    :param suites: list of names
    :param filters: list of further words of the command
    :param environment: {name: value} of the environment variables
    """
    failed = []
    for number, suite in enumerate(suites):
        command = stestr + ['--test-path', f'./tests/{suite}', 'run']
        if not any(word.startswith('--concurrency') for word in filters):
            at_once = (os.cpu_count() or 1) * _AT_ONCE.get(suite, 1)
            command.append(f'--concurrency={max(1, int(at_once))}')
        if number:
            command.append('--combine')
        print(f'# tests/{suite}', flush=True)
        done = subprocess.run(command + filters, env=environment,
                              stdin=subprocess.DEVNULL)
        if done.returncode:
            failed.append(suite)
    subprocess.run(stestr + ['slowest'], stdin=subprocess.DEVNULL)
    for suite in failed:
        print(f'FAILED: tests/{suite}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
