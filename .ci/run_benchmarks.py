# SPDX-License-Identifier: Apache-2.0
"""Run the scripts in benchmarks/, one after the other.

Usage: run_benchmarks.py [NAME ...]

NAME is a script without ".py"; none means all. Benchmarks print medians and
ratios. They vote on nothing, so only a script that breaks is a failure.
"""

import pathlib
import subprocess
import sys


def main(names):
    scripts = [path for path in sorted(pathlib.Path('benchmarks').glob('*.py'))
               if not path.name.startswith('_')
               and (not names or path.stem in names)]
    if names and len(scripts) != len(set(names)):
        print(f'Not every one of {", ".join(names)} is in benchmarks/',
              file=sys.stderr)
        return 1
    broken = 0
    for script in scripts:
        print(f'# {script}', flush=True)
        done = subprocess.run([sys.executable, str(script)],
                              stdin=subprocess.DEVNULL)
        broken += done.returncode != 0
    print(f'{len(scripts)} benchmarks run, {broken} broken')
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
