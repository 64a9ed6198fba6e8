# SPDX-License-Identifier: Apache-2.0
"""VSwitchWeigher: ranks hosts by the traffic their switch would lose."""

import nova.conf
from nova.scheduler import utils as scheduler_utils
from nova.scheduler import weights
import numpy as np

from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.scheduler import nova_hooks

CONF = nova.conf.CONF
LOG = logs.get_logger(__name__)

#: Losses below 10 ** -LOSS_DECADES are all alike.
LOSS_DECADES = 9

#: Weight of a host of whose switch nothing is known.
NEUTRAL = 0.5


class VSwitchWeigher(weights.BaseHostWeigher):
    """Weighs a host by the loss it would suffer with the instance.

    The scale is absolute: 1 for an idle host, one tenth less for each decade
    of expected loss (the share of its traffic that is cut away) above 1e-9,
    and up to one tenth less for its average utilisation, which ranks the
    hosts that lose nothing. A positive multiplier spreads, a negative packs.
    Derivation: reference/admission.rst, "Weight".
    """

    minval = 0.0
    maxval = 1.0

    def __init__(self):
        super().__init__()
        self._state = nova_hooks.join('weigher')

    def weight_multiplier(self, host_state):
        """Return the multiplier of a host, from its aggregates or options."""
        default = CONF.vswitch_scheduler
        return scheduler_utils.get_weight_multiplier(
            host_state, 'vswitch_weight_multiplier',
            default.vswitch_weight_multiplier)

    def weigh_objects(self, weighed_obj_list, weight_properties):
        """Return a list of weights in 0..1, one for each object."""
        host_states = [weighed.obj for weighed in weighed_obj_list]
        if not host_states:
            return []
        try:
            found = self._state.recall(host_states, weight_properties)
            self._state.report('VSwitchWeigher', None)
            if found is None:
                return [NEUTRAL] * len(host_states)
            assessment, where = found
            return _weights(assessment, np.array(where))
        except Exception as error:
            LOG.debug('vswitch: weighing failed', exc_info=True)
            self._state.report('VSwitchWeigher', (
                f'{type(error).__name__}: {error}; hosts weigh alike'))
            return [NEUTRAL] * len(host_states)

    def _weigh_object(self, host_state, weight_properties):
        found = self._state.recall([host_state], weight_properties)
        return NEUTRAL if found is None else _weights(
            found[0], np.array(found[1]))[0]


def _weights(assessment, where):
    """Return a list of weights of some hosts of an assessment."""
    loss = assessment.loss_fraction[where]
    decades = LOSS_DECADES + np.log10(
        np.maximum(loss, 10.0 ** -LOSS_DECADES))
    used = np.minimum(assessment.utilisation[where], 1.0)
    weight = 1.0 - (decades + used) / (LOSS_DECADES + 1)
    # What is known of an uplink counts even so.
    weight = np.where(assessment.known[where], weight,
                      np.minimum(weight, NEUTRAL))
    return np.clip(weight, 0.0, 1.0).tolist()
