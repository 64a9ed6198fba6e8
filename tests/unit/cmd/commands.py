# SPDX-License-Identifier: Apache-2.0
"""How the tests run a command in this process."""

import contextlib
import io


def run(main, words, terminal=False):
    """Return (status, stdout, stderr) of a command.

    :param main: of its module
    :param words: its arguments
    :param terminal: whether a person looks at stderr
    """
    stdout = io.TextIOWrapper(io.BytesIO(), encoding='utf-8')
    stderr = io.StringIO()
    stderr.isatty = lambda: terminal
    with contextlib.redirect_stdout(stdout), \
            contextlib.redirect_stderr(stderr):
        try:
            status = main(words)
        except SystemExit as exit:
            status = exit.code
    stdout.seek(0)
    return status, stdout.read(), stderr.getvalue()


def table(output):
    """Return the rows of a table in an output, its header first."""
    return [[cell.strip() for cell in line[1:-1].split(' | ')]
            for line in output.splitlines() if line.startswith('| ')]
