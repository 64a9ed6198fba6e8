# SPDX-License-Identifier: Apache-2.0
"""The groups of options: registered in a ConfigOpts, listed for a sample."""

from collections.abc import Iterable
from collections.abc import Sequence
import difflib
import glob
import itertools
import os
import typing

from oslo_config import cfg

from vswitch_aware_scheduler.conf import access
from vswitch_aware_scheduler.conf import admission
from vswitch_aware_scheduler.conf import inventory
from vswitch_aware_scheduler.conf import modeler
from vswitch_aware_scheduler.conf import rebalance
from vswitch_aware_scheduler.conf import scheduler
from vswitch_aware_scheduler.conf import store
from vswitch_aware_scheduler.conf import telemetry

__all__ = ['GROUP', 'NOVA', 'READERS', 'alike', 'default_demand',
           'find_files', 'list_opts', 'parse', 'read', 'read_all',
           'refuse_unknown', 'register_opts', 'unknown_names',
           'unknown_names_in', 'unread_files']

_PROJECT = 'vswitch_aware_scheduler'

#: Names by which nova-scheduler and oslo.config find its files.
NOVA = ('nova', 'nova-scheduler')

#: Groups of this project begin so.
_PREFIX = 'vswitch'

#: Name of the group.
GROUP = 'vswitch_scheduler'

_HELP = """
Options of VSwitchFilter and VSwitchWeigher, which place an instance where the
virtual switch can carry its traffic, and of the commands that learn the
traffic. Rates are in kbit/s and kilo-packets/s, times in seconds.
"""

#: {who reads options of the group: the options}. The sample of the
#: configuration has these headings, in this order.
READERS = {
    'Read by nova-scheduler, vswitch-modeler and the commands: set the same '
    'values in nova.conf and vswitch.conf': admission.OPTS,
    'Read by nova-scheduler, vswitch-modeler and the commands: the store':
        store.OPTS,
    'Read by nova-scheduler': scheduler.OPTS,
    'Read by vswitch-modeler and "vswitch-manage fit"': modeler.OPTS,
    'Read by vswitch-modeler, "vswitch-manage rebalance" and Watcher':
        rebalance.OPTS}


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator, by group.

    The manual lists the groups in this order.
    """
    # Each caller gets a new group, because oslo.config stores overrides in it.
    group = cfg.OptGroup(GROUP, title='Virtual switch aware scheduling',
                         help=_HELP)
    groups = [(group, list(itertools.chain(*READERS.values()))),
              inventory.list_opts()]
    for name, title, text, options in telemetry.GROUPS.values():
        groups.append((cfg.OptGroup(name, title=title, help=text),
                       options + access.auth_opts()))
    return groups


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register every option; a second call changes nothing."""
    group, options = list_opts()[0]
    conf.register_group(group)
    conf.register_opts(options, group=group.name)
    telemetry.register_opts(conf)
    inventory.register_opts(conf)


def read(paths: Iterable[str] = ()) -> cfg.ConfigOpts:
    """Return an oslo.config ConfigOpts with the options of vswitch.conf.

    :param paths: paths of configuration files; empty: those of
        :func:`find_files`, if this user may read them
    :raises oslo_config.cfg.Error: for a file that cannot be read, or a value
        that is not legal
    """
    conf = cfg.ConfigOpts()
    register_opts(conf)
    parse(conf, [word for path in paths for word in ('--config-file', path)],
          default_files=([], []) if not paths and unread_files() else None)
    read_all(conf)
    return conf


def find_files(prog: str = 'vswitch') -> tuple[list[str], list[str]]:
    """Return the default configuration files and directories.

    These are vswitch.conf in its usual places, such as
    /etc/vswitch_aware_scheduler; without it, those of nova-scheduler.

    :param prog: name of the program, which may have a directory of its own
    """
    own = (cfg.find_config_files(_PROJECT, 'vswitch'),
           cfg.find_config_dirs(_PROJECT, prog))
    return own if any(own) else (cfg.find_config_files(*NOVA),
                                 cfg.find_config_dirs(*NOVA))


def unread_files() -> list[str]:
    """Return the default configuration files that this user may not read."""
    files, directories = find_files()
    return [path for path in (*files, *directories,
                              *_in_directories(directories))
            if not os.access(path, os.R_OK)]


def _in_directories(directories):
    return [path for directory in directories
            for path in sorted(glob.glob(os.path.join(directory, '*.conf')))]


def parse(conf: cfg.ConfigOpts, arguments: Sequence[str],
          prog: str = 'vswitch',
          default_files: tuple[list[str], list[str]] | None = None,
          **keywords: typing.Any) -> None:
    """Read a command line and its files, or those of :func:`find_files`.

    :param default_files: (files, directories) to read if the command line
        names none; None: those of :func:`find_files`
    :param keywords: further arguments of ``conf``
    :raises oslo_config.cfg.Error: for a file that cannot be read
    """
    files, directories = default_files or find_files(prog)
    if any(word.startswith('--config-') for word in arguments):
        # Those of nova-scheduler are read only if no others are.
        directories = cfg.find_config_dirs(_PROJECT, prog)
    try:
        conf(arguments, project=_PROJECT, prog=prog,
             default_config_files=files, default_config_dirs=directories,
             **keywords)
    except UnicodeDecodeError as error:
        # oslo.config does not say which file it is.
        words = [word.rpartition('=')[2] for word in (
            *arguments, *files, *directories)]
        raise cfg.ConfigFileParseError(', '.join(
            path for path in (*words, *_in_directories(words))
            if not _is_utf8(path)), f'not UTF-8: {error}') from error


def _is_utf8(path):
    """Return whether a file is UTF-8. What cannot be read counts as such."""
    try:
        with open(path, encoding='utf-8') as file:
            file.read()
    except UnicodeDecodeError:
        return False
    except (OSError, ValueError):
        pass
    return True


def read_all(conf: cfg.ConfigOpts) -> None:
    """Read all options of the group, so that an invalid value is reported now.

    oslo.config checks the value of an option when it is read.

    :raises oslo_config.cfg.Error: for a value that is not legal
    """
    for name in conf[GROUP]:
        conf[GROUP][name]


def alike(group: typing.Any) -> dict[str, typing.Any]:
    """Return {option: value} of the options that must not differ.

    :param group: the options of [vswitch_scheduler]
    """
    # The paths of files may differ.
    values = {opt.dest: getattr(group, opt.dest) for opt in admission.OPTS
              if opt.dest != 'switch_profiles_file'}
    values['default_switch_profile'] = (
        values['default_switch_profile'] or None)
    return values


def unknown_names(conf: cfg.ConfigOpts) -> list[str]:
    """Return what is wrong with names in the groups of this project.

    :param conf: an oslo.config ConfigOpts that has read its files
    :returns: list of texts with a name, its file and its group
    """
    # A ConfigOpts without a command line, as in tests, has neither.
    return unknown_names_in((
        *(getattr(conf, 'config_file', None) or ()),
        *_in_directories(getattr(conf, 'config_dir', None) or ())))


def unknown_names_in(paths: Iterable[str]) -> list[str]:
    """Return the result of :func:`unknown_names` for configuration files.

    oslo.config ignores unknown names, so a misspelt or removed option would
    silently keep its default. Groups of other projects are not checked, nor
    files that cannot be read.
    """
    names_by_group = {
        group.name: {name for option in options for name in (
            option.dest, *(deprecated.name
                           for deprecated in option.deprecated_opts))}
        for group, options in list_opts()}
    problems = []
    for path in paths:
        sections = {}
        try:
            cfg.ConfigParser(path, sections).parse()
        except (cfg.ParseError, OSError, UnicodeDecodeError):
            continue
        for group, values in sections.items():
            if not group.startswith(_PREFIX):
                continue
            if group not in names_by_group:
                problems.append(_unknown(f'{path}: group', group,
                                         names_by_group))
                continue
            known_names = names_by_group[group] | access.auth_names(
                *values.get('auth_type', ()))
            problems += [
                _unknown(f'{path}: option in the group [{group}]', name,
                         known_names)
                for name in values if name not in known_names]
    return problems


def refuse_unknown(conf: cfg.ConfigOpts) -> None:
    """Check that the groups of this project contain known options only.

    :param conf: an oslo.config ConfigOpts that has read its files
    :raises ValueError: with the first of :func:`unknown_names`
    """
    for problem in unknown_names(conf):
        raise ValueError(problem)


def _unknown(place, name, known_names):
    near = difflib.get_close_matches(name, known_names, n=1)
    return (f'{place}: {name}; expected '
            + (f'{near[0]}, or another name' if near else 'a name')
            + ' of vswitch.conf.sample')


def default_demand(group: typing.Any) -> dict[str, float]:
    """Return the expected traffic of an instance without a model.

    :param group: the options of [vswitch_scheduler]
    :returns: the arguments of an on-off TrafficModel, a dictionary
    """
    return {name: getattr(group, f'default_{name}') for name in (
        'egress_kbps', 'ingress_kbps', 'on_seconds', 'off_seconds')}
