# SPDX-License-Identifier: Apache-2.0
"""Reads the options of Nova that concern the plugins, as nova-scheduler does.

A command may run without an installed Nova. Therefore this module declares
these options again. It passes the project and the program of nova-scheduler to
oslo.config, which then finds and reads the same files in the same order.
"""

import dataclasses
import glob
import os

from oslo_config import cfg

from vswitch_aware_scheduler.conf import opts

__all__ = ['NovaOptions', 'read']

_PLUGINS = (cfg.ListOpt('enabled_filters'), cfg.ListOpt('weight_classes'))

#: The option of Nova with its default.
_RESULTS = cfg.IntOpt('max_placement_results', default=1000, min=1)

#: Name of the weigher in nova.conf.
_WEIGHER = 'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'


@dataclasses.dataclass(frozen=True)
class NovaOptions:
    """Options of nova-scheduler.

    :ivar plugins: set with 'filter', 'weigher' or both: the enabled plugins
    :ivar are_set: whether a file sets ``enabled_filters`` or
        ``weight_classes``; otherwise the defaults of Nova apply
    :ivar max_placement_results: maximum number of hosts of a request
    """

    plugins: frozenset
    are_set: bool
    max_placement_results: int
    files: list


def read(arguments, own_files=()):
    """Return the options that nova-scheduler reads, or None without files.

    The files of a command line that are only for this package, such as
    vswitch.conf, are not those of nova-scheduler.

    :param arguments: list of the words ``--config-file`` and ``--config-dir``
        of a command line and their values, the same as those of nova-scheduler
    :param own_files: configuration files of the command; one that is also a
        nova.conf is read if there is no other file of Nova
    :returns: :class:`NovaOptions` or None
    :raises oslo_config.cfg.Error: if nova-scheduler could not read its
        configuration
    :raises OSError: if this user may not read a file or a directory
    """
    arguments = [(name, path) for name, path in _pairs(arguments)
                 if not _is_only_ours(path)]
    if not arguments and not any(
            find(*opts.NOVA)
            for find in (cfg.find_config_files, cfg.find_config_dirs)):
        arguments = [('--config-file', path) for path in own_files
                     if not _is_only_ours(path)]
        if not arguments:
            return None
    nova = cfg.ConfigOpts()
    nova.register_opts(_PLUGINS, group='filter_scheduler')
    nova.register_opt(_RESULTS, group='scheduler')
    try:
        project, prog = opts.NOVA
        nova([word for pair in arguments for word in pair],
             project=project, prog=prog)
        filters = nova.filter_scheduler.enabled_filters
        weighers = nova.filter_scheduler.weight_classes
        results = nova.scheduler.max_placement_results
    except cfg.ConfigFilesPermissionDeniedError as error:
        raise PermissionError(str(error)) from error
    except UnicodeDecodeError as error:
        raise cfg.Error(f'a file is not UTF-8: {error}') from error
    names = {name for name, _ in arguments}
    paths = [path for name, defaults in (
        ('--config-file', nova.default_config_files),
        ('--config-dir', nova.default_config_dirs))
        if name not in names for path in defaults]
    return NovaOptions(
        frozenset(role for role, is_enabled in (
            ('filter', 'VSwitchFilter' in (filters or ())),
            ('weigher', _WEIGHER in (weighers or ()))) if is_enabled),
        filters is not None or weighers is not None, results,
        [file for path in (*paths, *(path for _, path in arguments))
         for file in _files_at(path)])


def _pairs(words):
    """Yield (name of the option, path) of the words of a command line."""
    words = iter(words)
    for word in words:
        name, _, path = word.partition('=')
        yield name, path or next(words, '')


def _files_at(path):
    """Return the configuration files in a directory, or the file itself.

    oslo.config reads no file in a directory that the user may not list.
    """
    path = os.path.expanduser(path)
    if not os.path.isdir(path):
        return [path]
    os.listdir(path)
    return sorted(glob.glob(os.path.join(path, '*.conf')))


def _is_only_ours(path):
    """Return whether files have options of this package, and none of Nova."""
    groups = set()
    for file in _files_at(path):
        sections = {}
        try:
            cfg.ConfigParser(file, sections).parse()
        except (cfg.ParseError, OSError, UnicodeDecodeError):
            return False
        groups.update(sections)
    groups.discard('DEFAULT')
    return bool(groups) and all(group.startswith('vswitch_')
                                for group in groups)
