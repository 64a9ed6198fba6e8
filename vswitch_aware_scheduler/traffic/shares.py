# SPDX-License-Identifier: Apache-2.0
"""Limits the influence of one project on what is learned for all. Pure."""

import numpy as np

__all__ = ['MOST_SHARE', 'limited']

#: Largest share of one project, if there are enough other projects.
MOST_SHARE = 0.25


def limited(amounts):
    """Return amounts of projects, none above :data:`MOST_SHARE` of the sum.

    :param amounts: (n,) numbers >= 0, the amount of each project
    :returns: (n,) floats
    """
    amounts = np.array(amounts, dtype=float)
    if amounts.size * MOST_SHARE < 1:
        return amounts
    ordered = np.sort(amounts)
    for reduced in range(round(1 / MOST_SHARE)):
        unchanged = ordered[:amounts.size - reduced]
        # The limit if the reduced projects all have this amount.
        most = MOST_SHARE * unchanged.sum() / (1 - reduced * MOST_SHARE)
        if unchanged[-1] <= most:
            break
    return np.minimum(amounts, most)
