# SPDX-License-Identifier: Apache-2.0
"""Runs a task of Ansible on this machine, for the tests of deploy/."""

import json
import os
import pathlib
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / 'deploy'


def section(template, name):
    """Return the lines of a section in the template of an INI file.

    The section ends where no block is open before the next one, or where a
    block ends that began before.
    """
    lines, depth, whole = [f'[{name}]'], 0, 1
    for line in template.split(f'\n[{name}]\n')[1].splitlines():
        depth += line.startswith('{% if') - line.startswith('{% endif')
        if depth < 0 or line.startswith('['):
            break
        lines.append(line)
        if not depth:
            whole = len(lines)
    return '\n'.join(lines[:whole]) + '\n'


def run(folder, task, variables, files=(), environment=None):
    """Run a task in a play of its own.

    :param folder: pathlib.Path of a directory for the play
    :param task: dict
    :param variables: dict of extra variables
    :param files: paths of further files of variables
    :param environment: dict of further environment variables
    :raises AssertionError: if the play fails, with its output
    """
    play = folder / 'play.yml'
    play.write_text(json.dumps([{
        'hosts': 'localhost', 'connection': 'local', 'gather_facts': False,
        'vars_files': [str(path) for path in files], 'tasks': [task]}]))
    done = subprocess.run(
        [sys.executable, '-m', 'ansible', 'playbook', '-i', 'localhost,',
         '-e', json.dumps({**variables,
                           'ansible_python_interpreter': sys.executable}),
         str(play)],
        env={**os.environ, 'ANSIBLE_HOME': str(folder),
             'ANSIBLE_NOCOLOR': '1', **(environment or {})},
        capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
