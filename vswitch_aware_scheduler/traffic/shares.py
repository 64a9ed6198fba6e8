# SPDX-License-Identifier: Apache-2.0
"""How much one project counts in what is learned for all. Pure."""

import numpy as np

__all__ = ['MOST_SHARE', 'limited']

#: Largest share of one project, where there are enough others for the rest.
MOST_SHARE = 0.25


def limited(amounts):
    """Return what projects count, none more than :data:`MOST_SHARE` of all.

    The amounts of large projects are reduced to one and the same number,
    those of small ones stay. With fewer than 1 / MOST_SHARE projects all stay
    as they are.

    :param amounts: (n,) numbers >= 0, what each project has
    :returns: (n,) floats
    """
    amounts = np.array(amounts, dtype=float)
    if amounts.size * MOST_SHARE < 1:
        return amounts
    ordered = np.sort(amounts)
    for reduced in range(round(1 / MOST_SHARE)):
        rest = ordered[:amounts.size - reduced]
        # Of a sum in which the reduced ones have so much each.
        most = MOST_SHARE * rest.sum() / (1 - reduced * MOST_SHARE)
        if rest[-1] <= most:
            break
    return np.minimum(amounts, most)
