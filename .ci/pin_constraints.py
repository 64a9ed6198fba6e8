# SPDX-License-Identifier: Apache-2.0
"""Write what is installed beside this interpreter as a constraints file.

Usage: pin_constraints.py FILE [ENVIRONMENT]

ENVIRONMENT is the only tox environment that installs these; all others if it
is not given.
"""

import pathlib
import platform
import re
import subprocess
import sys

_HEADER = """\
# Every package that {whose} installs, with the version tested.
# Made on Python {python} by "tox -e {command}"; never edited by hand.
"""


def main(target, environment=None):
    frozen = subprocess.run(
        [sys.executable, '-m', 'pip', 'freeze', '--all',
         '--exclude-editable', '--exclude', 'pip', '--exclude', 'wheel'],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        check=True).stdout.splitlines()
    pins = sorted((line for line in frozen if line.strip()), key=str.lower)
    strange = [line for line in pins
               if not re.fullmatch(r'[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+', line)]
    if strange:
        print(f'Not a plain version: {strange}', file=sys.stderr)
        return 1
    python = '.'.join(platform.python_version_tuple()[:2])
    pathlib.Path(target).write_text(
        _HEADER.format(
            whose=('any tox environment' if environment is None
                   else f'tox environment {environment}'),
            command='pin' if environment is None else f'pin-{environment}',
            python=python)
        + '\n'.join(pins) + '\n')
    print(f'{target}: {len(pins)} packages')
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
