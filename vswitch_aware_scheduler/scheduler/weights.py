# SPDX-License-Identifier: Apache-2.0
"""The weigher VSwitchWeigher, which Nova loads."""

from __future__ import annotations

import math
import typing

import nova.conf
from nova import objects
from nova.scheduler import host_manager
from nova.scheduler import utils as scheduler_utils
from nova.scheduler import weights
import numpy as np

from vswitch_aware_scheduler.scheduler import nova_hooks

CONF = nova.conf.CONF

_MULTIPLIER = 'vswitch_weight_multiplier'

#: A loss below 10 ** -LOSS_DECADES counts as no loss.
LOSS_DECADES = 9

#: Weight of a host whose switch has no profile.
NEUTRAL = 0.5


class VSwitchWeigher(weights.BaseHostWeigher):
    """Weighs a host by the traffic that it would lose with the instance.

    An idle host has weight 1. Each power of ten of the expected loss above
    1e-9 subtracts one tenth, the mean utilisation up to one more. A positive
    multiplier spreads the instances, a negative one packs them. Hosts in debt,
    and hosts with an instance that overloads the switch alone, come last with
    both. Derivation: reference/admission.rst, "Weight".
    """

    minval = 0.0
    maxval = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._state = nova_hooks.join('weigher')

    def weight_multiplier(self, host_state: host_manager.HostState) -> float:
        """Return the multiplier of an aggregate, if finite, or the option."""
        default = CONF.vswitch_scheduler.vswitch_weight_multiplier
        multiplier = scheduler_utils.get_weight_multiplier(
            host_state, _MULTIPLIER, default)
        finite = math.isfinite(multiplier)
        # Nova accepts these values. The weight would not be a number, and Nova
        # would not sort the other hosts by their weights.
        self._state.report(f'host {host_state.host} {_MULTIPLIER}', (
            None if finite else
            f'host {host_state.host}: {_MULTIPLIER} of an aggregate: '
            f'{multiplier}; expected a finite number; {default} is used'))
        return multiplier if finite else default

    def weigh_objects(self, weighed_obj_list: list[typing.Any],
                      weight_properties: objects.RequestSpec) -> list[float]:
        """Return the weights of the given hosts."""
        host_states = [weighed.obj for weighed in weighed_obj_list]
        if not host_states:
            return []
        with self._state.report.errors('VSwitchWeigher', 'hosts weigh alike'):
            recalled = self._state.recall(host_states, weight_properties)
            if recalled is not None:
                return _weights(*recalled,
                                self.weight_multiplier(host_states[0]) < 0)
        return [NEUTRAL] * len(host_states)

    def _weigh_object(self, host_state, weight_properties):
        recalled = self._state.recall([host_state], weight_properties)
        return NEUTRAL if recalled is None else _weights(*recalled)[0]


def _weights(assessment, positions, packs=False):
    """Return weights; ``packs``: a lower weight is better."""
    loss = assessment.loss_fraction[positions]
    decades = LOSS_DECADES + np.log10(
        np.maximum(loss, 10.0 ** -LOSS_DECADES))
    used = np.minimum(assessment.utilisation[positions], 1.0)
    weight = 1.0 - (decades + used) / (LOSS_DECADES + 1)
    # An overloaded uplink also lowers the weight of a host without a profile.
    weight = np.where(assessment.known[positions], weight,
                      np.minimum(weight, NEUTRAL))
    weight = np.clip(weight, 0.0, 1.0)
    last = assessment.last[positions]
    if last.any():
        # All other hosts come first. Equal weights stay equal.
        weight = np.where(last == packs, (1.0 + LOSS_DECADES * weight),
                          weight) / (LOSS_DECADES + 1)
    return weight.tolist()
