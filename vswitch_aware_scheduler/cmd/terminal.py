# SPDX-License-Identifier: Apache-2.0
"""What the commands have in common: how they talk to a person or a pipe."""

import contextlib
import json
import os
import sys

import tqdm

__all__ = ['cell', 'counted', 'drop_output', 'print_json', 'progress',
           'sentence']


def print_json(data):
    """Print an answer for a machine; NaN and infinity are refused."""
    print(json.dumps(data, indent=2, allow_nan=False))


def cell(value, form='.4g'):
    """Return a number as text, a hyphen where there is none."""
    return '-' if value is None else format(value, form)


def sentence(words):
    """Return words as a sentence; names in them keep their letters."""
    return words[:1].upper() + words[1:] + '.'


def counted(counts):
    """Return ' (3 of this, 4 of that)', or nothing."""
    if not counts:
        return ''
    return ' (' + ', '.join(f'{count} {what}'
                            for what, count in counts.items()) + ')'


@contextlib.contextmanager
def progress(what):
    """Give a callback (done, total); a bar where a person looks."""
    if not sys.stderr.isatty():
        yield None
        return
    with tqdm.tqdm(desc=what, unit='', file=sys.stderr, leave=False,
                   bar_format='{desc}: {percentage:3.0f}%|{bar}| '
                              '{elapsed}<{remaining}') as bar:
        def report(done, total):
            bar.total = total
            bar.update(done - bar.n)
        yield report


def drop_output():
    """Let go of standard output once its reader has gone, as with "| head".

    That is no error of ours, and what is left in the buffer must not be
    written at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
