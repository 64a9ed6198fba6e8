# SPDX-License-Identifier: Apache-2.0
"""Switch profiles and the metadata of aggregates."""

from vswitch_aware_scheduler.vswitch import profile

PROFILES = {one.name: one for one in (
    profile.SwitchProfile(name='fast', line_rate_kbps=9e6),
    profile.SwitchProfile(name='slow', saturation_kbps=1e6, max_tunnels=4,
                          tunnel_unit='networks'))}


def keys(name=None, **stated):
    """Return metadata: ``saturation_kbps`` is ``uplink_saturation_kbps``."""
    return {**({} if name is None else {'vswitch:uplink': name}),
            **{f'vswitch:uplink_{key}': value
               for key, value in stated.items()}}


def ignore(topic, problem):
    """Nobody reads the reports."""
