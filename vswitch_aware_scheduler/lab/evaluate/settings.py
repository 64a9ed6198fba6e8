# SPDX-License-Identifier: Apache-2.0
"""The options of a configuration that an evaluation simulates.

Pure: the caller reads the configuration.
"""

import dataclasses

from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.traffic import model

__all__ = ['EvaluationSettings']


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """Values of the options of the same names, which describe them."""

    overload_probability: float
    admission_policy: str
    prediction_margin: float
    min_samples: int
    modeler_half_life_days: float
    default_egress_kbps: float
    default_ingress_kbps: float
    default_on_seconds: float
    default_off_seconds: float
    error_budgets: bool
    rebalance_checks: int
    rebalance_most_moves: int
    rebalance_cool_down_hours: float = 24.0

    @classmethod
    def of(cls, group) -> 'EvaluationSettings':
        """Return the Settings of an object with these attributes."""
        return cls(**{field.name: getattr(group, field.name)
                      for field in dataclasses.fields(cls)
                      if field.default is dataclasses.MISSING})

    @property
    def default_law(self):
        """RateLaw of an instance about which nothing is known."""
        return model.TrafficModel.on_off(
            self.default_egress_kbps, self.default_ingress_kbps,
            on_seconds=self.default_on_seconds,
            off_seconds=self.default_off_seconds).law

    @property
    def churn(self):
        """The limits on the number of moves, :class:`~.relief.Churn`."""
        return relief.Churn(self.rebalance_cool_down_hours * 3600.0,
                            self.rebalance_most_moves)
