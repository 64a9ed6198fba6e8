# SPDX-License-Identifier: Apache-2.0
"""Options of the strict mode, for scheduler and modeler."""

from oslo_config import cfg

from vswitch_aware_scheduler.conf import number

__all__ = ['OPTS']

OPTS = [
    cfg.BoolOpt(
        'strict', default=False,
        help="""
Whether Placement refuses instances that a virtual switch cannot carry.

Without this option, two schedulers can place an instance each on the same host
at the same moment, although the host has capacity for only one. With this
option, vswitch-modeler keeps an inventory of the resource class
CUSTOM_VSWITCH_KBPS for each host in Placement, and VSwitchFilter adds an
amount of this resource to the allocation of each instance. The second of the
two allocations then fails, and Nova tries the next host. Fewer instances fit
on a host in this mode, because Placement can only add up fixed amounts.

Set the option for vswitch-modeler first. Set it for nova-scheduler as soon as
"vswitch-manage strict show" lists the hosts. To end the strict mode, unset the
option for both and run "vswitch-manage strict disable".

The mode needs auth_type in the group [vswitch_inventory]. When the option is
set for nova-scheduler only, Placement refuses nothing and a warning is logged.

Related options: ``strict_headroom``, ``overload_probability``.
"""),
    number.FloatOpt(
        'strict_headroom', default=0.25, min=0.01, max=0.9,
        help="""
Share of the saturation bandwidth of a host that the strict mode keeps free for
peaks.

The amount that is allocated for an instance is between its mean rate and its
peak rate. The smaller this share, the larger the amount. Raise the share if
hosts have few instances with high and rare peaks. Lower it if hosts have
hundreds of instances or instances with steady traffic. Values between 0.2 and
0.4 make little difference in most clouds. No value overloads a host.

Unit: a share of the saturation bandwidth, 0.01 to 0.9.

When it is not the same for vswitch-modeler and every nova-scheduler, hosts get
too many or too few instances. A change does not alter the allocations of
existing instances.

Related options: ``strict``.
"""),
]
