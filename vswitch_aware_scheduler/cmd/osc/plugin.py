# SPDX-License-Identifier: Apache-2.0
"""The plugin interface of OpenStackClient."""

import os

__all__ = ['API_NAME', 'API_VERSIONS', 'API_VERSION_OPTION',
           'DEFAULT_API_VERSION', 'build_option_parser', 'make_client']

API_NAME = 'vswitch'
API_VERSION_OPTION = 'os_vswitch_api_version'
DEFAULT_API_VERSION = '1'
API_VERSIONS = {'1': 'vswitch_aware_scheduler.cmd.osc.plugin'}

_FILE_VARIABLE = 'VSWITCH_CONFIG_FILE'


def make_client(instance):
    """Return the configuration file that the commands read, or None.

    :param instance: ClientManager of OpenStackClient
    """
    return getattr(instance._cli_options, 'vswitch_config_file', None)


def build_option_parser(parser):
    """Add the global options of the plugin.

    :param parser: argparse parser
    :returns: the parser
    """
    parser.add_argument(
        '--vswitch-config-file', metavar='<file>',
        default=os.environ.get(_FILE_VARIABLE),
        help='Configuration file of vswitch_aware_scheduler, which names the '
             f'store that "vswitch" commands read (Env: {_FILE_VARIABLE})')
    return parser
