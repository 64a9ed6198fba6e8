# SPDX-License-Identifier: Apache-2.0
"""Rows of arrays that are used, freed and used again. Pure; numpy only."""

import numpy as np

__all__ = ['Rows']


class Rows:
    """An array of which rows are handed out as needed.

    :ivar values: (n, ...) array; another one whenever it has to grow
    """

    def __init__(self, dtype, shape=()):
        self.values = np.zeros((0, *shape), dtype=dtype)
        #: How many are likely to be taken soon.
        self.expected = 0
        self._free = []

    def take(self, count):
        """Return the numbers of some rows; what they hold is undefined."""
        have = len(self.values)
        if len(self._free) < count:
            more = max(count, have // 8, 16, self.expected)
            grown = np.zeros((have + more, *self.values.shape[1:]),
                             dtype=self.values.dtype)
            grown[:have] = self.values
            self.values = grown
            self._free.extend(range(have + more - 1, have - 1, -1))
        taken = self._free[-count:]
        del self._free[-count:]
        return np.array(taken, dtype=np.int64)

    def free(self, rows):
        """Take rows back."""
        self._free.extend(rows.tolist())
