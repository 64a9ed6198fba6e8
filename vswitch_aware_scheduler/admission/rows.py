# SPDX-License-Identifier: Apache-2.0
"""Arrays whose rows are allocated, freed and reused. Pure; numpy only."""

import numpy as np
from numpy import typing as npt

__all__ = ['Rows']


class Rows:
    """Arrays whose rows are allocated on demand.

    :param kinds: for each array, its dtype and the shape of a row
    :ivar values: list of the (n, ...) arrays; new arrays replace them when
        they grow
    """

    def __init__(self, *kinds: tuple[npt.DTypeLike, tuple[int, ...]]) -> None:
        self.values = [np.zeros((0, *shape), dtype=dtype)
                       for dtype, shape in kinds]
        #: Number of rows that are likely to be taken soon.
        self.expected = 0
        self._free = []

    def take(self) -> int:
        """Return the number of a free row. Its contents are undefined."""
        if not self._free:
            old_rows = len(self.values[0])
            new_rows = max(old_rows // 8, 16, self.expected)
            for i, old in enumerate(self.values):
                # Rows that were never used take no memory.
                grown = np.zeros((old_rows + new_rows, *old.shape[1:]),
                                 old.dtype)
                grown[:old_rows] = old
                self.values[i] = grown
            self._free.extend(range(old_rows + new_rows - 1, old_rows - 1, -1))
        return self._free.pop()

    def free(self, row: int) -> None:
        """Free a row."""
        self._free.append(row)
