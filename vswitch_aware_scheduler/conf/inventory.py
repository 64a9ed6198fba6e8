# SPDX-License-Identifier: Apache-2.0
"""Options of what tells which instance is on which host."""

from keystoneauth1 import loading
from oslo_config import cfg

from vswitch_aware_scheduler.conf import telemetry

__all__ = ['GROUP', 'OPTS', 'inventory_options', 'list_opts',
           'register_opts']

#: Name of the group.
GROUP = 'vswitch_inventory'

_HELP = """
Options of the inventory: which instance is on which host, of which flavor and
project. vswitch-modeler asks Nova for it when ``auth_type`` is set, or reads
it from ``path``; with none of them there is no inventory, and priors are of
the whole fleet only. As whom Nova is asked is told by auth_type and the
options of that plugin of keystoneauth1; it has to be an administrator.
"vswitch-manage host discover" asks Neutron with the same options.
"""

OPTS = telemetry.access_opts(
    'Nova, with its version', 'https://controller:8774/v2.1') + [
    cfg.StrOpt(
        'path',
        help="""
CSV file with the inventory, for clouds whose Nova may not be asked.

Without it Nova is asked, where ``auth_type`` is set.

Format: path of a CSV file with the columns instance_uuid, host, flavor,
project and networks, all but the first optional; ids of networks with spaces
between them.

When it cannot be read, the inventory stays as it is, and the log says so.

Related options: ``url``.
"""),
    cfg.BoolOpt(
        'read_networks', default=False,
        help="""
Whether Neutron is asked for the networks of instances as well.

They count where a switch profile limits networks or remote VTEPs, or an uplink
has a table of mappings; without them each instance counts as if it were on a
network of its own until its host tells. When it is switched on or off all
instances are read anew.

When it is set and Neutron cannot be asked, the inventory stays as it is, and
the log says so.

Related options: ``network_url``.
"""),
    cfg.StrOpt(
        'network_url',
        help="""
URL of Neutron.

Without it Neutron is looked up in the catalog of keystone, which needs
``auth_type``. It is asked where ``read_networks`` is set, and by
"vswitch-manage host discover".

Format: http://host:port or https://host:port, without a user and password.

When it is wrong, the inventory stays as it is, and the log says so; the
command tells it and ends.

Related options: ``read_networks``.
""", sample_default='https://controller:9696'),
    cfg.StrOpt(
        'placement_url',
        help="""
URL of placement.

Without it placement is looked up in the catalog of keystone, which needs
``auth_type``. It is asked where ``strict`` of the group [vswitch_scheduler] is
set, and by "vswitch-manage strict".

Format: http://host:port or https://host:port, without a user and password.

When it is wrong, the inventories in placement stay as they are, and the log
says so; the command tells it and ends.

Related options: none.
""", sample_default='https://controller:8778'),
    cfg.BoolOpt(
        'discover_hosts', default=False,
        help="""
Whether vswitch-modeler writes the switch profiles of hosts that follow from
the reports of Neutron's agents.

It does in each pass what "vswitch-manage host discover --apply" does. A new
host gets its profile that way without an aggregate. Profiles that were set by
"vswitch-manage host set" stay, and aggregates go before the store.

Values: true, false. It needs ``auth_type``.

When it is set and Neutron cannot be asked, profiles stay as they are, and the
log says so.

Related options: ``network_url``, ``discover_profiles``.
"""),
    cfg.ListOpt(
        'discover_profiles', sample_default='ovn=ovs-vxlan',
        help="""
The profiles of kinds of switches, before those of the catalogue, where
``discover_hosts`` is set.

Format: SWITCH[:ENCAPSULATION]=PROFILE, several with commas between them, as
"vswitch-manage host discover --map" takes them.

When it is wrong, vswitch-modeler does not start, and says so.

Related options: ``discover_hosts``.
"""),
    cfg.IntOpt(
        'complete_interval_seconds', default=86400, min=300, max=31536000,
        help="""
How often all instances are read, and not only those that have changed.

Lower it to notice sooner what Nova does not tell as a change. Raise it to ask
Nova for less: it answers for about a thousand instances at a time.

Unit: seconds, 300 to 31536000.

When it is too low, Nova is asked for all instances in every pass.

Related options: ``requests_per_second``.
"""),
]


def list_opts():
    """Return (group, options) for oslo-config-generator."""
    return _group(), OPTS + telemetry.auth_opts()


def register_opts(conf):
    """Register the group.

    :param conf: an oslo.config ConfigOpts
    """
    conf.register_group(_group())
    conf.register_opts(OPTS, group=GROUP)
    loading.register_auth_conf_options(conf, GROUP)


def _group():
    return cfg.OptGroup(GROUP, title='Which instance is where', help=_HELP)


def inventory_options(conf):
    """Return what makes an inventory source, as options say.

    :param conf: an oslo.config ConfigOpts with our options registered
    :returns: None where there is to be no inventory; else a new dictionary
        with the keys path, access, network_url, read_networks; it may hold
        secrets
    :raises oslo_config.cfg.Error: when an option has no usable value
    """
    group = conf[GROUP]
    found = {name: group[name] for name in (
        'path', 'network_url', 'read_networks')}
    found['access'] = telemetry.access_of(conf, GROUP)
    if found['path'] is None and found['access']['auth'] is None:
        return None
    return found
