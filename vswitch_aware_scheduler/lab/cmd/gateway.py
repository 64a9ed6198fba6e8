# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage gateway: plans the mappings of VXLAN gateways."""

import argparse

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.lab import gateway as switch_gateway

__all__ = ['PlanGateways']


class PlanGateways(base.Command):
    """Plan the VNIs, the VLANs and the mappings of VXLAN gateways."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            'file', metavar='FILE',
            help='YAML file of gateways, silos and the networks of tenants')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the plan."""
        return switch_gateway.plan(
            switch_gateway.load(arguments.file)).to_dict()

    def describe(self, answer: dict) -> None:
        """Print the networks and the gateways."""
        terminal.print_table(
            ['TENANT', 'NETWORK', 'VNI', 'INTERFACE_GROUP', 'VLAN'],
            [[network['tenant'], network['network'], network['vni'], group,
              vlan] for network in answer['networks']
             for group, vlan in network['vlans'].items()])
        terminal.print_line()
        terminal.print_table(
            ['GATEWAY', 'SWITCH_BACK', 'MAPPINGS', 'ENTRIES',
             'MAPPING_ENTRIES'],
            [[name, 'yes' if gateway['switch_back'] else 'no',
              len(gateway['mappings']),
              gateway['entries'], gateway['mapping_entries']]
             for name, gateway in answer['gateways'].items()])
