# SPDX-License-Identifier: Apache-2.0
"""The fluid queue of like on/off sources, as theory has it.

D. Anick, D. Mitra, M. M. Sondhi, "Stochastic theory of a data-handling system
with multiple sources", Bell System Technical Journal 61(8), 1982; the buffer
is finite as in R. C. F. Tucker, "Accurate method for analysis of a
packet-speech multiplexer with limited delay", IEEE Transactions on
Communications 36(4), 1988. Nothing here uses the code under test.
"""

import numpy as np


def loss_fraction(count, on_seconds, off_seconds, capacity, buffer):
    """Return the share of the fluid that a buffer loses when it is full.

    :param count: sources, each sending 1 a second while on
    :param capacity: drained a second, not a whole number
    :param buffer: what it holds, > 0
    """
    n = np.arange(count + 1.0)
    up, down = (count - n) / off_seconds, n / on_seconds
    generator = np.diag(up[:-1], 1) + np.diag(down[1:], -1) \
        - np.diag(up + down)
    drift = n - capacity
    # F(x)_k = P(k on, content <= x) solves F' drift = F generator.
    exponents, modes = np.linalg.eig((generator / drift).T)
    exponents, modes = exponents.real, modes.real.T
    law = _binomial(count, on_seconds / (on_seconds + off_seconds))
    # Growing modes are told from the full buffer, the others from the empty.
    at_empty = np.exp(np.where(exponents > 0, -exponents * buffer, 0.0))
    at_full = np.exp(np.where(exponents > 0, 0.0, exponents * buffer))
    over = drift > 0
    # While more comes than goes the buffer is not empty, else not full.
    matrix = np.where(over[:, None], (at_empty[:, None] * modes).T,
                      (at_full[:, None] * modes).T)
    shares = np.linalg.solve(matrix, np.where(over, 0.0, law))
    not_full = shares @ (at_full[:, None] * modes)
    return float(drift[over] @ (law - not_full)[over] / (n @ law))


def _binomial(count, share):
    law = np.ones(1)
    for _ in range(count):
        law = np.convolve(law, [1 - share, share])
    return law
