# SPDX-License-Identifier: Apache-2.0
"""Build the sdist and the wheel, and try the wheel where there is no nova.

Usage: check_wheel.py WORK_DIRECTORY

The wheel is built from the sdist, so that what the sdist lacks is noticed,
and installed alone, with the pinned versions, into an empty environment.
There every module that needs no nova is imported, every command prints the
version of PKG-INFO, and the data files and entry points are looked for.
"""

import email
import os
import pathlib
import shutil
import subprocess
import sys
import venv

_TRY = r'''
import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import pkgutil
import sys

import vswitch_aware_scheduler as package

assert importlib.util.find_spec('nova') is None, 'nova is installed here'
assert 'site-packages' in package.__file__, package.__file__

# Only these may import nova, tempest or watcher.
edge = ('vswitch_aware_scheduler.scheduler',
        'vswitch_aware_scheduler.lab.demo',
        'vswitch_aware_scheduler.tempest_plugin',
        'vswitch_aware_scheduler.cmd.watcher',
        'vswitch_aware_scheduler.budgets.watcher')
# alembic runs these itself, inside a migration.
alembic = 'vswitch_aware_scheduler.store.migrations.'
imported = 0


def walk(parent):
    global imported
    for module in pkgutil.iter_modules(parent.__path__,
                                       parent.__name__ + '.'):
        if module.name in edge or module.name.startswith(alembic):
            continue
        if module.name.endswith('.__main__'):
            continue
        loaded = importlib.import_module(module.name)
        imported += 1
        if module.ispkg:
            walk(loaded)


walk(package)
assert 'nova' not in sys.modules
print('imported', imported, 'modules without nova')

root = importlib.resources.files(package)
missing = []
for name in ('vswitch/catalogue.yaml', 'lab/capacity/published.yaml',
             'report/templates/page.css', 'report/templates/page.html',
             'report/templates/page.js',
             'store/migrations/env.py',
             'store/migrations/script.py.mako'):
    if not root.joinpath(*name.split('/')).is_file():
        missing.append(name)
versions = root.joinpath('store', 'migrations', 'versions')
if not versions.is_dir() or not [path for path in versions.iterdir()
                                 if path.name.endswith('.py')
                                 and path.name != '__init__.py']:
    missing.append('store/migrations/versions/*.py')
assert not missing, 'the wheel lacks %s' % missing

distribution = importlib.metadata.distribution('vswitch_aware_scheduler')
entries = [entry for entry in distribution.entry_points]
assert entries, 'the wheel has no entry points'
for entry in entries:
    if entry.module.startswith(edge):
        # Needs such a service: only that the module is there can be said.
        name = entry.module.split('.', 1)[1].replace('.', '/')
        path = root.joinpath(*(name + '.py').split('/'))
        assert path.is_file(), '%s is not in the wheel' % entry.module
        print('found ', entry.group, entry.name)
    else:
        entry.load()
        print('loaded', entry.group, entry.name)
'''


def _run(*command, **options):
    print('$', *command, flush=True)
    subprocess.run([str(word) for word in command],
                   stdin=subprocess.DEVNULL, check=True, **options)


def main(work):
    work = pathlib.Path(work).absolute() / 'wheel-check'
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    constraints = pathlib.Path(
        os.environ.get('CONSTRAINTS_FILE', 'constraints.txt')).absolute()

    dist = work / 'dist'
    _run(sys.executable, '-m', 'build', '--outdir', dist, '.')
    wheel, = dist.glob('*.whl')
    sdist, = dist.glob('*.tar.gz')
    print('built', sdist.name, wheel.name)

    home = work / 'env'
    venv.create(home, with_pip=True)
    python = home / 'bin' / 'python'
    # Nothing of the caller's interpreter or of the checkout may leak in.
    clean = {name: value for name, value in os.environ.items()
             if name not in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')}
    options = {'cwd': work, 'env': clean}
    _run(python, '-m', 'pip', 'install', '-q', '-c', constraints, wheel,
         **options)
    _run(python, '-m', 'pip', 'check', **options)
    attempt = work / 'attempt.py'
    attempt.write_text(_TRY)
    _run(python, attempt, **options)
    with open('PKG-INFO') as stream:
        version = email.message_from_file(stream)['Version']
    for command in sorted((home / 'bin').glob('vswitch-*')):
        answer = subprocess.run([command, '--version'], check=True, text=True,
                                stdout=subprocess.PIPE, **options).stdout
        if answer != f'{command.name} {version}\n':
            print(f'{command.name} --version: {answer!r}; expected {version}',
                  file=sys.stderr)
            return 1
    for path in pathlib.Path('etc').rglob('*'):
        if path.is_file() and not (home / path).is_file():
            print(f'{home / path} is missing', file=sys.stderr)
            return 1
    print('The wheel is good')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
