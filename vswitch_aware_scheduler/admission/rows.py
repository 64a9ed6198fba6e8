# SPDX-License-Identifier: Apache-2.0
"""Rows of arrays that are used, freed and used again. Pure; numpy only."""

import numpy as np

__all__ = ['Rows']


class Rows:
    """Arrays of which rows are handed out as needed.

    :param kinds: dtype and shape of a row of each of the arrays
    :ivar values: [(n, ...) array of each]; other ones whenever they grow
    """

    def __init__(self, *kinds):
        self.values = [np.zeros((0, *shape), dtype=dtype)
                       for dtype, shape in kinds]
        #: How many are likely to be taken soon.
        self.expected = 0
        self._free = []

    def take(self):
        """Return the number of a row; what it holds is undefined."""
        if not self._free:
            have = len(self.values[0])
            more = max(have // 8, 16, self.expected)
            for i, old in enumerate(self.values):
                # Rows that nobody has taken yet take no memory.
                grown = np.zeros((have + more, *old.shape[1:]), old.dtype)
                grown[:have] = old
                self.values[i] = grown
            self._free.extend(range(have + more - 1, have - 1, -1))
        return self._free.pop()

    def free(self, row):
        """Take a row back."""
        self._free.append(row)
