# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage gateway: plans the mappings of VXLAN gateways."""

from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.lab import gateway as switch_gateway

__all__ = ['SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'plan the mappings of VXLAN gateways'


def add_arguments(parser):
    """Add the sub-command of ``gateway``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    plan = parser.add_command(
        'plan', 'assign VNIs and VLANs to networks, and print the mappings '
                'of each gateway', _plan)
    plan.add_argument(
        'file', metavar='FILE',
        help='YAML file of gateways, silos and the networks of tenants')


def _plan(arguments, _conf):
    plan = switch_gateway.plan(switch_gateway.load(arguments.file))
    answer = plan.to_dict()
    if output.print_answer(arguments, answer):
        return 0
    terminal.print_table(
        ['TENANT', 'NETWORK', 'VNI', 'INTERFACE_GROUP', 'VLAN'],
        [[network['tenant'], network['network'], network['vni'], group, vlan]
         for network in answer['networks']
         for group, vlan in network['vlans'].items()])
    terminal.print_line()
    terminal.print_table(
        ['GATEWAY', 'SWITCH_BACK', 'MAPPINGS', 'ENTRIES', 'MAPPING_ENTRIES'],
        [[name, 'yes' if gateway['switch_back'] else 'no',
          len(gateway['mappings']),
          gateway['entries'], gateway['mapping_entries']]
         for name, gateway in answer['gateways'].items()])
    return 0
