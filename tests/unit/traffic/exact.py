# SPDX-License-Identifier: Apache-2.0
"""What theory says, in exact fractions and by brute force.

Nothing here uses the code under test except to make TrafficModel objects of
exact numbers.
"""

import fractions
import math

import numpy as np

from vswitch_aware_scheduler.traffic import model

F = fractions.Fraction


def solve(matrix, right):
    """Return x of matrix x = right, by Gauss's elimination in fractions."""
    n = len(right)
    rows = [list(map(F, row)) + [F(value)]
            for row, value in zip(matrix, right)]
    for column in range(n):
        pivot = next(i for i in range(column, n) if rows[i][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        rows[column] = [value / head for value in rows[column]]
        for i in range(n):
            if i != column and rows[i][column]:
                factor = rows[i][column]
                rows[i] = [a - factor * b
                           for a, b in zip(rows[i], rows[column])]
    return [row[n] for row in rows]


def stationary(jump, sojourn):
    """Return the long-run law of a chain with one closed class.

    Solves v = vQ, sum v = 1, and weights by the sojourn times.

    :param jump: rows of numbers, normalised here
    :param sojourn: numbers
    """
    n = len(sojourn)
    if n == 1:
        return [F(1)]
    q = [[F(x) / sum(map(F, row)) for x in row] for row in jump]
    # One balance equation is redundant; the sum takes its place.
    matrix = [[q[j][i] - (i == j) for j in range(n)] for i in range(n - 1)]
    matrix.append([1] * n)
    visits = solve(matrix, [0] * (n - 1) + [1])
    shares = [v * F(t) for v, t in zip(visits, sojourn)]
    return [share / sum(shares) for share in shares]


class Source:
    """A chain in exact numbers, and the same as a TrafficModel.

    :param rates: rows of three numbers
    :param jump: rows of whole weights of the jumps
    :param sojourn: numbers
    """

    def __init__(self, rates, jump, sojourn):
        self.rates = [tuple(map(F, row)) for row in rates]
        self.jump = [[F(x) / (sum(row) or 1) for x in row] for row in jump]
        self.sojourn = [F(t) for t in sojourn]
        self.law = stationary(self.jump, self.sojourn)

    @classmethod
    def on_off(cls, kbps, on_seconds, off_seconds):
        """Return an on/off source of egress only."""
        return cls([(0, 0, 0), (kbps, 0, 0)], [[0, 1], [1, 0]],
                   [off_seconds, on_seconds])

    @classmethod
    def random(cls, rng, states, largest=20, unit=1):
        """Return a random source with whole multiples of a unit as rates."""
        jump = rng.integers(1, 9, (states, states))
        np.fill_diagonal(jump, 0)
        return cls((rng.integers(0, largest + 1, (states, 3)).astype(object)
                    * F(unit)).tolist(), jump.tolist(),
                   rng.integers(1, 50, states).tolist())

    @property
    def model(self):
        """The same as a TrafficModel of floats."""
        return model.TrafficModel(
            [[float(x) for x in row] for row in self.rates],
            [[float(x) for x in row] for row in self.jump],
            [float(x) for x in self.sojourn])

    def values(self, weights):
        """Return the value of one linear function in each state."""
        return [sum(F(w) * x for w, x in zip(weights, row))
                for row in self.rates]


def overload(sources, capacity, weights):
    """Return (P(S > c), E[(S - c)+], E[S]) by enumeration, as fractions."""
    # In whole numbers, because fractions take ten times as long.
    values = [source.values(weights) for source in sources]
    unit = math.lcm(F(capacity).denominator, *(
        x.denominator for row in values for x in row))
    joint, shares = [(1, 0)], 1
    for source, row in zip(sources, values):
        of_source = math.lcm(*(p.denominator for p in source.law))
        states = [(int(p * of_source), int(x * unit))
                  for p, x in zip(source.law, row)]
        joint = [(p * q, x + y) for p, x in joint for q, y in states]
        shares *= of_source
    limit = int(F(capacity) * unit)
    above = [(p, x - limit) for p, x in joint if x > limit]
    return (F(sum(p for p, _ in above), shares),
            F(sum(p * x for p, x in above), shares * unit),
            F(sum(p * x for p, x in joint), shares * unit))


def enumerated(laws):
    """Return (sums, probabilities) of all joint states, as floats.

    :param laws: iterable of (values, probabilities) of each source
    """
    sums, shares = np.zeros(1), np.ones(1)
    for values, masses in laws:
        sums = np.add.outer(sums, values).ravel()
        shares = np.multiply.outer(shares, masses).ravel()
    return sums, shares


def product_chain(sources, weights):
    """Return (generator, sums) of all sources together, as floats.

    Sojourn times are taken as exponential. The generator of independent
    chains is the Kronecker sum of theirs.
    """
    generator = np.zeros((1, 1))
    sums = np.zeros(1)
    for source in sources:
        n = len(source.law)
        one = np.array([[float(x) for x in row] for row in source.jump])
        leave = 1.0 / np.array([float(t) for t in source.sojourn])
        one = one * leave[:, None]
        if n > 1:
            one -= np.diag(leave)
        generator = (np.kron(generator, np.eye(n))
                     + np.kron(np.eye(len(sums)), one))
        values = np.array([float(x) for x in source.values(weights)])
        sums = np.add.outer(sums, values).ravel()
    return generator, sums


def episodes(sources, capacity, weights):
    """Return (episodes a second, mean length), from the joint generator.

    The rate is the stationary flow from within to above the capacity, the
    length the mean time until the chain is within again.
    """
    generator, sums = product_chain(sources, weights)
    size = len(sums)
    equations = np.vstack([generator.T, np.ones(size)])
    law = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0),
                          rcond=None)[0]
    above = sums > float(capacity) + 1e-6
    flow = law[~above] @ generator[np.ix_(~above, above)]
    rate = flow.sum()
    if not rate:
        return 0.0, 0.0
    length = np.linalg.solve(-generator[np.ix_(above, above)],
                             np.ones(above.sum()))
    return rate, flow @ length / rate


def binomial_tail(n, p, more_than):
    """Return P(more than ``more_than`` of n), as a fraction."""
    p = F(p)
    return sum((math.comb(n, k) * p ** k * (1 - p) ** (n - k)
                for k in range(max(more_than + 1, 0), n + 1)), F(0))
