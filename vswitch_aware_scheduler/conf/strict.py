# SPDX-License-Identifier: Apache-2.0
"""Options of the strict mode, which scheduler and modeler both read."""

from oslo_config import cfg

__all__ = ['OPTS']

OPTS = [
    cfg.BoolOpt(
        'strict', default=False,
        help="""
Whether placement itself refuses what a virtual switch cannot carry.

Schedulers decide on what they know, and two of them can give the last room of
a host away at the same moment. With this option vswitch-modeler keeps an
inventory of CUSTOM_VSWITCH_KBPS for each host in placement, and VSwitchFilter
adds what an instance takes of it to what Nova claims: the second claim fails,
and Nova takes the next host. The price are fewer instances on a host, since
placement can only add up numbers.

Set it for vswitch-modeler first, and for nova-scheduler once
"vswitch-manage strict show" lists the hosts. To end it, unset it for both and
run "vswitch-manage strict disable".

When it is set for nova-scheduler alone, nothing is refused, and the log says
so. It needs auth_type in the group [vswitch_inventory].

Related options: ``strict_headroom``, ``overload_probability``.
"""),
    cfg.FloatOpt(
        'strict_headroom', default=0.25, min=0.01, max=0.9,
        help="""
Share of a host that the strict mode keeps free for peaks.

What is booked for an instance grows as this shrinks: from its mean towards its
peak. Raise it where a host carries few instances with high and rare peaks;
lower it where it carries hundreds, or such as hardly vary. Between 0.2 and 0.4
it matters little in most fleets. No value overloads a host.

Unit: a share of saturation, 0.01 to 0.9.

When it is not the same for vswitch-modeler and every nova-scheduler, hosts
take too many instances or too few. When it is changed, instances keep what was
booked for them.

Related options: ``strict``.
"""),
]
