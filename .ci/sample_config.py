# SPDX-License-Identifier: Apache-2.0
"""Write the sample of the configuration in etc/, or check it.

Usage: sample_config.py [--check]

oslo-config-generator sorts the groups by name. The sample has them in the
order of conf.opts.list_opts, which is the order of the manual. Headings say
who reads the options of the first group.
"""

import difflib
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

from vswitch_aware_scheduler.conf import opts

_DIRECTORY = pathlib.Path('etc/vswitch_aware_scheduler')
_GENERATOR = _DIRECTORY / 'vswitch-config-generator.conf'
_SAMPLE = _DIRECTORY / 'vswitch.conf.sample'


def _generated():
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / _SAMPLE.name
        subprocess.run(
            ['oslo-config-generator', '--config-file', str(_GENERATOR),
             '--output-file', str(path)],
            stdin=subprocess.DEVNULL, check=True)
        text = path.read_text()
    # [name, text of the group, name, text, ...]
    parts = re.split(r'^\[(.*)\]\n', text, flags=re.MULTILINE)[1:]
    texts = dict(zip(parts[::2], parts[1::2]))
    if texts.pop('DEFAULT').strip():
        raise SystemExit('options of [DEFAULT]; expected groups of '
                         'conf.opts.list_opts only')
    texts[opts.GROUP] = _with_headings(texts[opts.GROUP])
    return '\n\n'.join(f'[{group.name}]\n{texts[group.name].strip()}\n'
                       for group, _ in opts.list_opts())


def _with_headings(text):
    """Return the text of a group with a heading above each reader's options.

    A block of the text is one option, with its help.
    """
    headings = {options[0].dest: textwrap.indent(textwrap.fill(heading, 75),
                                                 '### ')
                for heading, options in opts.READERS.items()}
    blocks = []
    for block in text.split('\n\n'):
        name = re.search(r'^#?(\w+) = ', block, re.MULTILINE)
        if name and name[1] in headings:
            blocks.append(headings.pop(name[1]))
        blocks.append(block)
    if headings:
        raise SystemExit(f'no place for {headings}; expected their options')
    return '\n\n'.join(blocks)


def main(arguments):
    if arguments not in ([], ['--check']):
        raise SystemExit(__doc__)
    wanted = _generated()
    if not arguments:
        _SAMPLE.write_text(wanted)
        return 0
    found = _SAMPLE.read_text() if _SAMPLE.exists() else ''
    sys.stdout.writelines(difflib.unified_diff(
        found.splitlines(keepends=True), wanted.splitlines(keepends=True),
        str(_SAMPLE), 'generated'))
    if found != wanted:
        print(f'{_SAMPLE} is not up to date: run "tox -e genconfig"')
        return 1
    print(f'{_SAMPLE} is up to date')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
