# SPDX-License-Identifier: Apache-2.0
"""A home and an /etc in a directory, in which oslo.config finds files."""

import contextlib
import os
import pathlib
from unittest import mock

from oslo_config import cfg

__all__ = ['below', 'write']

_get_config_dirs = cfg._get_config_dirs


@contextlib.contextmanager
def below(root):
    """Let oslo.config search the directories home and etc below a directory.

    :param root: path of the directory
    """
    def get_config_dirs(project=None):
        return [f'{root}{path}' if path.split('/')[1] == 'etc' else path
                for path in _get_config_dirs(project)]

    with mock.patch.object(cfg, '_get_config_dirs', get_config_dirs), \
            mock.patch.dict(os.environ, {'HOME': f'{root}/home'}):
        yield


def write(root, files):
    """Write configuration files.

    :param root: path of a directory
    :param files: {path below the directory: text}
    """
    for name, text in files.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
