# SPDX-License-Identifier: Apache-2.0
"""The groups of options: registered in a ConfigOpts, listed for a sample."""

import difflib
import glob
import itertools
import os

from oslo_config import cfg

from vswitch_aware_scheduler.conf import inventory
from vswitch_aware_scheduler.conf import modeler
from vswitch_aware_scheduler.conf import rebalance
from vswitch_aware_scheduler.conf import scheduler
from vswitch_aware_scheduler.conf import store
from vswitch_aware_scheduler.conf import telemetry

__all__ = ['GROUP', 'alike', 'default_demand', 'list_opts', 'parse', 'read',
           'read_all', 'refuse_unknown', 'register_opts', 'unknown_names']

_PROJECT = 'vswitch_aware_scheduler'

#: Groups of this project begin so.
_PREFIX = 'vswitch'

#: Name of the group.
GROUP = 'vswitch_scheduler'

_HELP = """
Options of VSwitchFilter and VSwitchWeigher, which place an instance where the
virtual switch can carry its traffic, and of the commands that learn the
traffic. Rates are in kbit/s and kilo-packets/s, times in seconds.
"""


def list_opts():
    """Return the options for oslo-config-generator, by group.

    The manual lists the groups in this order.
    """
    # Each caller gets a new group, because oslo.config stores overrides in it.
    group = cfg.OptGroup(GROUP, title='Virtual switch aware scheduling',
                         help=_HELP)
    groups = [(group, list(itertools.chain(
        store.OPTS, scheduler.OPTS, modeler.OPTS, rebalance.OPTS))),
        inventory.list_opts()]
    for name, title, text, options in telemetry.GROUPS.values():
        groups.append((cfg.OptGroup(name, title=title, help=text),
                       options + telemetry.auth_opts()))
    return groups


def register_opts(conf):
    """Register every option; a second call changes nothing.

    :param conf: an oslo.config ConfigOpts
    """
    group, options = list_opts()[0]
    conf.register_group(group)
    conf.register_opts(options, group=group.name)
    telemetry.register_opts(conf)
    inventory.register_opts(conf)


def read(paths=()):
    """Return an oslo.config ConfigOpts with the options of vswitch.conf.

    :param paths: list of paths of configuration files; empty: vswitch.conf in
        its usual places, /etc/vswitch_aware_scheduler among them
    :raises oslo_config.cfg.Error: for a file that cannot be read, or a value
        that is not legal
    """
    conf = cfg.ConfigOpts()
    register_opts(conf)
    parse(conf, [word for path in paths for word in ('--config-file', path)],
          prog='vswitch')
    read_all(conf)
    return conf


def parse(conf, arguments, **keywords):
    """Read a command line and its files, or vswitch.conf in its usual places.

    :param conf: an oslo.config ConfigOpts
    :param arguments: list of the words of the command line
    :param keywords: further arguments of ``conf``
    :raises oslo_config.cfg.Error: for a file that cannot be read
    """
    files = cfg.find_config_files(_PROJECT, 'vswitch')
    try:
        conf(arguments, project=_PROJECT, default_config_files=files,
             **keywords)
    except UnicodeDecodeError as error:
        # oslo.config does not say which file it is.
        words = [word.rpartition('=')[2] for word in (
            *arguments, *files,
            *cfg.find_config_dirs(_PROJECT, keywords.get('prog')))]
        raise cfg.ConfigFileParseError(', '.join(
            path for word in words for path in (
                word, *glob.glob(os.path.join(word, '*.conf')))
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


def read_all(conf):
    """Read all options of the group, so that an invalid value is reported now.

    oslo.config checks the value of an option when it is read.

    :param conf: an oslo.config ConfigOpts
    :raises oslo_config.cfg.Error: for a value that is not legal
    """
    for name in conf[GROUP]:
        conf[GROUP][name]


#: Options that need the same value in nova.conf and vswitch.conf: scheduler,
#: modeler and commands judge hosts by them.
_ALIKE = ('default_switch_profile', 'unknown_host_policy', 'enforcement',
          'admission_policy', 'overload_probability',
          'unknown_instance_policy', 'default_egress_kbps',
          'default_ingress_kbps', 'default_on_seconds',
          'default_off_seconds', 'error_budgets', 'prediction_margin')


def alike(group):
    """Return {option: value} of the options that must not differ.

    :param group: the options of [vswitch_scheduler]
    """
    values = {name: getattr(group, name) for name in _ALIKE}
    values['default_switch_profile'] = (
        values['default_switch_profile'] or None)
    return values


def unknown_names(conf):
    """Return what is wrong with names in the groups of this project.

    oslo.config ignores unknown names, so a misspelt or removed option would
    silently keep its default. Groups of other projects are not checked, nor
    files that cannot be read.

    :param conf: an oslo.config ConfigOpts that has read its files
    :returns: list of texts with a name, its file and its group
    """
    names_by_group = {
        group.name: {name for option in options for name in (
            option.dest, *(deprecated.name
                           for deprecated in option.deprecated_opts))}
        for group, options in list_opts()}
    problems = []
    # A ConfigOpts without a command line, as in tests, has neither.
    for path in [*(getattr(conf, 'config_file', None) or ()), *(
            path for folder in getattr(conf, 'config_dir', None) or ()
            for path in sorted(glob.glob(os.path.join(folder, '*.conf'))))]:
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
            known_names = names_by_group[group] | telemetry.auth_names(
                *values.get('auth_type', ()))
            problems += [
                _unknown(f'{path}: option in the group [{group}]', name,
                         known_names)
                for name in values if name not in known_names]
    return problems


def refuse_unknown(conf):
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


def default_demand(group):
    """Return the expected traffic of an instance without a model.

    :param group: the options of [vswitch_scheduler]
    :returns: the arguments of an on-off TrafficModel, a dictionary
    """
    return {name: getattr(group, f'default_{name}') for name in (
        'egress_kbps', 'ingress_kbps', 'on_seconds', 'off_seconds')}
