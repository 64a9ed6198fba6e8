# SPDX-License-Identifier: Apache-2.0
"""Check every shell script of the project with bashate and ShellCheck.

A script is a file known to git that begins with "#!" and the name of a shell,
so that a new one is checked without being listed anywhere.
"""

import pathlib
import re
import subprocess
import sys

_SHELL = re.compile(rb'#!.*\b(ba)?sh\b')


def _scripts():
    names = subprocess.run(
        ['git', 'ls-files', '-z', '--cached', '--others',
         '--exclude-standard'],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        check=True).stdout.decode().split('\0')
    for name in filter(None, names):
        path = pathlib.Path(name)
        # One that is deleted, but not yet in git, is in the list.
        if not path.is_file():
            continue
        with path.open('rb') as file:
            if _SHELL.match(file.readline(200)):
                yield name


def main():
    scripts = sorted(_scripts())
    if not scripts:
        print('No shell script was found', file=sys.stderr)
        return 1
    print('shell scripts:', *scripts)
    bad = [command[0] for command in (['bashate'], ['shellcheck', '-x'])
           if subprocess.run(command + scripts,
                             stdin=subprocess.DEVNULL).returncode]
    if bad:
        print('BAD:', *bad, file=sys.stderr)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
