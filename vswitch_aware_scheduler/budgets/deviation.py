# SPDX-License-Identifier: Apache-2.0
"""Compares the predicted overload of hosts with the measured overload. Pure.

Derivation: reference/rebalance.rst, "Predictions".
"""

import math
import statistics

import numpy as np

from vswitch_aware_scheduler import store as model_store

__all__ = ['AGAIN_SECONDS', 'BLOCK_SECONDS', 'after', 'deviations']

#: Measurements that are farther apart than this count as independent.
BLOCK_SECONDS = 3600.0

#: Age at which the weight of a measurement is one half.
_HALF_LIFE_SECONDS = 7 * 86400.0

#: Hosts are predicted at most this often.
AGAIN_SECONDS = 3600.0

#: Limits of a predicted share, about half a minute in a year.
_LEAST, _MOST = 1e-6, 1 - 1e-6

_LEAST_TAIL = 1e-300


def deviations(share: float, measured: float, blocks: float) -> float:
    """Return how far a measured share is from the predicted share.

    The unit is the standard deviation of a normal distribution: if the
    prediction is right, a result of 3 or more has at most the probability
    0.00135, and so has a result of -3 or less.

    :param share: predicted share of overload, 0 to 1
    :param measured: measured share, 0 to 1
    :param blocks: number of independent blocks, 0 or more; the samples in a
        block may depend on each other
    """
    share = min(max(share, _LEAST), _MOST)
    divergence = sum(part * math.log(part / other) for part, other in (
        (measured, share), (1 - measured, 1 - share)) if part > 0)
    tail = max(math.exp(-blocks * max(divergence, 0.0)), _LEAST_TAIL)
    if tail >= 0.5:
        return 0.0
    return math.copysign(statistics.NormalDist().inv_cdf(tail),
                         measured - share)


def after(prediction: model_store.Prediction, begins: np.ndarray,
          period: float, changed: np.ndarray, measured: np.ndarray,
          overloaded: np.ndarray) -> model_store.Prediction:
    """Return the :class:`.Prediction` after some settled periods.

    Periods count from the time of the prediction on, until the instances on
    the host change.

    :param begins: (t,) start of each period, seconds UTC
    :param changed: (t,) bool, whether an instance came, left, started or
        stopped in the period, and after the prediction
    :param measured: (t,) bool, whether the host was in use and measured
    :param overloaded: (t,) bool, whether the traffic exceeded a limit
    """
    if prediction.share is None:
        return prediction
    counted = (begins >= prediction.since) & measured \
        & ~np.logical_or.accumulate(changed)
    weight = 0.5 ** (period * len(begins) / _HALF_LIFE_SECONDS)
    seconds, expected, overload = (
        weight * earlier + period * float(later) for earlier, later in (
            (prediction.seconds, counted.sum()),
            (prediction.expected_seconds, prediction.share * counted.sum()),
            (prediction.overload_seconds, (counted & overloaded).sum())))
    blocks = seconds / BLOCK_SECONDS
    return model_store.Prediction(
        None if changed.any() else prediction.share, prediction.since,
        seconds, expected, overload, blocks,
        deviations(expected / seconds, overload / seconds, blocks)
        if seconds else 0.0)
