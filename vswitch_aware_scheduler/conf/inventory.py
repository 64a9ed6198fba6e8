# SPDX-License-Identifier: Apache-2.0
"""Options of the inventory: the host of each instance."""

import typing

from oslo_config import cfg

from vswitch_aware_scheduler.conf import access
from vswitch_aware_scheduler.conf import option

__all__ = ['GROUP', 'OPTS', 'inventory_options', 'list_opts',
           'register_opts']

#: Name of the group.
GROUP = 'vswitch_inventory'

_HELP = """
Options of the inventory: the host, flavor and project of each instance.
vswitch-modeler reads the inventory from Nova if ``auth_type`` is set, or from
the file ``path``. If neither is set, there is no inventory, and there is only
one prior (the expected traffic of new instances), for all instances together.
auth_type and the options of this plugin of keystoneauth1 set the user for
Nova, who must be an administrator. "vswitch-manage host discover" queries
Neutron with the same options.
"""

OPTS = access.options('Nova', 'https://controller:8774/v2.1') + [
    option.StrOpt(
        'path',
        related='endpoint_override', help="""
CSV file with the inventory, for clouds where vswitch-modeler cannot query
Nova.

If it is not set, vswitch-modeler queries Nova, provided that ``auth_type`` is
set.

Format: path of a CSV file with the columns instance_uuid, host, flavor,
project and networks, all but the first optional. Separate ids of networks by
spaces.

When it cannot be read, the modeler logs the reason and the inventory stays
unchanged."""),
    option.BoolOpt(
        'read_networks', default=False,
        related='network_url ports_seconds', help="""
Whether vswitch-modeler also reads the ports of instances, from Neutron: their
networks, also those of sub-ports of trunks, and the minimum bandwidth and
packet rate that QoS policies guarantee.

The scheduler needs the networks if a switch profile limits the number of
networks or of remote VTEPs, or if an uplink has a table of mappings. Without
them the scheduler assumes a separate network for each instance until the host
reports the real networks. The scheduler needs the guarantees if ports have QoS
policies. Without them a guarantee counts from the request that placed the
instance, until the worker is restarted. After a change of this option the
modeler reads all instances again.

When it is set and Neutron cannot be queried, the modeler logs the reason and
the inventory stays unchanged. When the user may not read the attribute
``resource_request`` of ports, the guarantees stay unknown."""),
    option.IntOpt(
        'ports_seconds', default=300, min=0, max=86400,
        related='read_networks', help="""
How often vswitch-modeler reads all ports, if ``read_networks`` is set.

A port that is attached to or detached from a running instance counts after
this time, and so does another QoS policy of a port. Lower the option to detect
these changes sooner. Raise it to reduce the load on Neutron, which returns a
thousand ports in one response.

Unit: seconds, 0 to 86400. With a value up to ``modeler_interval_seconds`` of
the group [vswitch_scheduler], every pass reads all ports.

When it is too high, hosts may exceed a limit on networks or the guarantees of
ports for that time; when it is too low, Neutron has to answer more requests.
"""),
    option.StrOpt(
        'network_url',
        related='read_networks', help="""
URL of Neutron.

Without it the endpoint of Neutron is taken from the catalog of keystone, which
needs ``auth_type``. Neutron is queried if ``read_networks`` is set, and by
"vswitch-manage host discover".

Format: http://host:port or https://host:port, without a user and password.

When it is wrong, the modeler logs the reason and the inventory stays
unchanged; the command prints the reason and ends.""",
        sample_default='https://controller:9696'),
    option.StrOpt(
        'placement_url',
        help="""
URL of Placement.

Without it the endpoint of Placement is taken from the catalog of keystone,
which needs ``auth_type``. Placement is queried if ``rebalance_mode`` of the
group [vswitch_scheduler] is not "off", and by "vswitch-manage rebalance".

Format: http://host:port or https://host:port, without a user and password.

When it is wrong, the modeler logs the reason and makes no plan of migrations;
the command prints the reason and ends.""",
        sample_default='https://controller:8778'),
    option.BoolOpt(
        'discover_hosts', default=False,
        related='network_url discover_profiles', help="""
Whether vswitch-modeler sets the switch profiles of hosts according to the
reports of Neutron's agents.

With it, vswitch-modeler does the same in each pass as "vswitch-manage host
discover --apply": a new host gets a profile without an aggregate. Profiles
that were set by "vswitch-manage host set" stay, and the metadata of aggregates
has precedence over the profiles in the store.

Values: true, false. It needs ``auth_type``.

When it is set and Neutron cannot be queried, the modeler logs the reason and
the profiles stay unchanged."""),
    option.ListOpt(
        'discover_profiles', sample_default='ovn=ovs-vxlan',
        related='discover_hosts', help="""
Switch profile for each kind of switch, used if ``discover_hosts`` is set. An
entry has precedence over the built-in profile of that kind.

Format: SWITCH[:ENCAPSULATION]=PROFILE, separated by commas, as for
"vswitch-manage host discover --map".

When it is wrong, vswitch-modeler logs the reason and does not start."""),
]


def list_opts() -> tuple[cfg.OptGroup, list[cfg.Opt]]:
    """Return (group, options) for oslo-config-generator."""
    return _group(), OPTS + access.auth_opts()


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_group(_group())
    conf.register_opts(OPTS, group=GROUP)
    access.register_auth(conf, GROUP)


def _group() -> cfg.OptGroup:
    return cfg.OptGroup(GROUP, title='Inventory of instances', help=_HELP)


def inventory_options(conf: cfg.ConfigOpts
                      ) -> dict[str, typing.Any] | None:
    """Return the arguments for an inventory source, from the options.

    :returns: None where no inventory is configured; else a new dictionary
        with the keys path, access, network_url, read_networks; it may hold
        secrets
    :raises oslo_config.cfg.Error: if an option has an invalid value
    """
    arguments = {name: conf[GROUP][name] for name in (
        'path', 'network_url', 'read_networks')}
    arguments['access'] = access.access_of(conf, GROUP)
    if (arguments['path'] is None
            and arguments['access']['auth'] is None):
        return None
    return arguments
