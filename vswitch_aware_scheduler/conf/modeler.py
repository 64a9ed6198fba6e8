# SPDX-License-Identifier: Apache-2.0
"""Options of what learns the traffic."""

from oslo_config import cfg

__all__ = ['OPTS']

OPTS = [
    cfg.IntOpt(
        'min_samples', default=24, min=2, max=1000000,
        help="""
Fewest samples that a traffic model is fitted to.

Raise it to trust only long histories: more instances then count by the
default model. Lower it to learn of new instances sooner, from less. With one
sample in 300 seconds the default is two hours.

Unit: samples, 2 to 1000000.

When it is too low, a model says little about what comes; when it is longer
than the history that telemetry keeps, no instance gets a model.

Related options: ``unknown_instance_policy``, ``default_egress_kbps``.
"""),
]
