# SPDX-License-Identifier: Apache-2.0
"""Make faults and print how many of which kind were survived.

Usage: python -m tests.faults [--list] [NAME ...]

Runs the cases whose names contain one of the NAMEs, all without any. Cases
that need a program which is not installed are skipped.
"""

import argparse
import collections
import importlib
import logging
import pkgutil
import signal
import sys
import time
import traceback

import tests.faults
from tests.faults import registry


def main(arguments=None):
    parser = argparse.ArgumentParser(prog='python -m tests.faults')
    parser.add_argument('names', nargs='*', metavar='NAME')
    parser.add_argument('--list', action='store_true')
    options = parser.parse_args(arguments)
    # What is logged of the faults themselves is not of interest here.
    logging.disable(logging.CRITICAL)
    for module in pkgutil.iter_modules(tests.faults.__path__):
        if module.name.startswith('cases_'):
            importlib.import_module(f'tests.faults.{module.name}')
    chosen = {name: case for name, case in registry.CASES.items()
              if not options.names
              or any(part in name for part in options.names)}
    if options.list:
        print(*(f'{kind}: {name}' for name, (kind, _) in chosen.items()),
              sep='\n')
        return 0
    # A signal ends the servers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with registry.CLEANUP:
        return 0 if play(chosen) else 1


def play(cases):
    """Play cases and print what came of them.

    :param cases: as :data:`.registry.CASES`
    :returns: whether there was a case, and all faults of each were survived
    """
    survived, failed, skipped = collections.Counter(), [], []
    for name, (kind, function) in cases.items():
        began = time.monotonic()
        try:
            count = function()
            registry.check.assertGreater(count, 0, 'the case made no fault')
            survived[kind] += count
            outcome = f'survived {count}'
        except registry.Skipped as reason:
            skipped.append(name)
            outcome = f'skipped: {reason}'
        except Exception:
            traceback.print_exc()
            failed.append(name)
            outcome = 'FAILED'
        print(f'{time.monotonic() - began:7.1f} s  {name}: {outcome}',
              flush=True)
    print('\nFaults that were survived, by kind:')
    for kind, count in survived.items():
        print(f'{count:7d}  {kind}')
    print(f'{sum(survived.values())} faults survived, {len(failed)} cases '
          f'failed, {len(skipped)} skipped')
    return bool(cases) and not failed


if __name__ == '__main__':
    sys.exit(main())
