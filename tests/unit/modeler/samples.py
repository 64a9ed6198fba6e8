# SPDX-License-Identifier: Apache-2.0
"""Times and rates of samples."""

import numpy as np

from tests.unit.modeler import base


def grid(count, first=0):
    return base.BEGIN + base.PERIOD * np.arange(first, first + count)


def whole_rates(rng, count):
    """Return rates whose sums are exact in any order."""
    return np.floor(rng.lognormal(4, 2, count))
