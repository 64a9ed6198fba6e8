# SPDX-License-Identifier: Apache-2.0
"""Check that the committed sample of the configuration is what is generated.

The sample in etc/ is never written by hand: "tox -e genconfig" makes it.
"""

import difflib
import pathlib
import subprocess
import sys
import tempfile

_DIRECTORY = pathlib.Path('etc/vswitch_aware_scheduler')


def main():
    stale = 0
    for generator in sorted(_DIRECTORY.glob('*-config-generator.conf')):
        stem = generator.name.removesuffix('-config-generator.conf')
        sample = _DIRECTORY / f'{stem}.conf.sample'
        with tempfile.TemporaryDirectory() as directory:
            fresh = pathlib.Path(directory) / sample.name
            subprocess.run(
                ['oslo-config-generator', '--config-file', str(generator),
                 '--output-file', str(fresh)],
                stdin=subprocess.DEVNULL, check=True)
            wanted = fresh.read_text().splitlines(keepends=True)
        found = (sample.read_text().splitlines(keepends=True)
                 if sample.exists() else [])
        difference = list(difflib.unified_diff(
            found, wanted, str(sample), 'generated'))
        sys.stdout.writelines(difference)
        if difference:
            stale += 1
            print(f'{sample} is not up to date: run "tox -e genconfig"')
        else:
            print(f'{sample} is up to date')
    return 1 if stale else 0


if __name__ == '__main__':
    sys.exit(main())
