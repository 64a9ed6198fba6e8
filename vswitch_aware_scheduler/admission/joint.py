# SPDX-License-Identifier: Apache-2.0
"""The tail of a sum whose terms may depend on each other.

Two estimates of the probability that a sum exceeds a threshold are combined.
The overlay is exact if the terms are independent. The sums at the instants
have every dependence, but are few. Where the number of sums above a threshold
is within the range of chance of the overlay, the overlay counts; beyond it,
the sums do, and above the largest of them the overlay, stretched to it. Pure.
Derivation: reference/model.rst, "Instances that are busy together".
"""

import numpy as np

__all__ = ['LADDER', 'adapt', 'at_capacity', 'effective_number']

#: Thresholds at which both estimates are compared, as shares of the capacity.
LADDER = np.array([1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25])

#: Largest deviation that is attributed to chance, in standard deviations, and
#: the smallest one that is not.
_CHANCE, _NO_CHANCE = 2.5, 3.5

#: Smallest probability with a logarithm.
_TINY = 1e-300

#: Sums that are larger than a threshold by less are equal to it, as a share of
#: the capacity and in cells.
_EQUAL = 1e-6


def effective_number(weights: np.ndarray) -> np.ndarray:
    """Return the (...) number of equal weights (Kish 1965), 0 for none."""
    total = weights.sum(axis=-1)
    squares = (weights * weights).sum(axis=-1)
    return np.divide(total * total, squares, out=np.zeros_like(total),
                     where=squares > 0)


def _trust(expected: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Return the weight of the sums at the instants, 0 to 1.

    The deviation is the signed root of the deviance of a Poisson number.

    :param expected: (l, ...) numbers of sums above thresholds by the overlay
    :param observed: (l, ...) numbers that were observed
    """
    expected = np.maximum(expected, _TINY)
    deviance = observed * np.log(np.maximum(observed, _TINY) / expected) - (
        observed - expected)
    largest = np.sqrt(2 * np.maximum(deviance, 0.0)).max(axis=0)
    return np.clip((largest - _CHANCE) / (_NO_CHANCE - _CHANCE), 0.0, 1.0)


def _compared(sums, weights, thresholds, overlay):
    """Compare sums at the instants with the overlay.

    :param thresholds: (7, h) or (7, 1)
    :param overlay: (7, h) probabilities that the sums exceed the thresholds
    :returns: (h,) effective numbers of instants; (7, h) shares of sums above
        the thresholds; (h,) how far the sums count
    """
    # Single precision has no number as small as _TINY.
    numbers = effective_number(weights).astype(float)
    total = np.maximum(weights.sum(axis=1, dtype=float), _TINY)
    above = np.einsum('lhi,hi->lh', sums > (
        thresholds + _EQUAL)[..., None].astype(sums.dtype), weights) / total
    return numbers, above, np.where(
        numbers > 0, _trust(numbers * overlay, numbers * above), 0.0)


def _mixed(overlay, of_sums, trust):
    """Return the weighted geometric mean of two probabilities."""
    return np.exp((1 - trust) * np.log(np.maximum(overlay, _TINY))
                  + trust * np.log(np.maximum(of_sums, _TINY)))


def at_capacity(
        sums: np.ndarray, weights: np.ndarray, ladder: np.ndarray,
        least_trust: float | np.ndarray = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability that sums exceed 1, the capacity.

    :param sums: (h, 504) sums at the instants, as shares of the capacity
    :param ladder: (7, h) probabilities by the overlay that the sums exceed
        :data:`LADDER`
    :param least_trust: (h,) how far the sums count at least
    :returns: two (h,): the probability, and how far the sums count
    """
    number, above, trust = _compared(sums, weights, LADDER[:, None], ladder)
    trust = np.where(number > 0, np.maximum(trust, least_trust), 0.0)
    is_above = sums > 1 + _EQUAL
    # Between the two neighbours of the capacity, the probability is linear.
    counts = weights > 0
    upper = np.where(is_above & counts, sums, np.inf).min(axis=1)
    lower = np.where(~is_above & counts, sums, -np.inf).max(axis=1)
    with np.errstate(invalid='ignore'):
        part = np.where(np.isfinite(upper - lower),
                        (upper - 1) / (upper - lower), 0.5)
    of_sums = (number * above[0] + part) / (number + 1)
    beyond = np.flatnonzero((above[0] == 0) & (trust > 0))
    shares = np.append(0.0, LADDER[::-1])
    for host in beyond.tolist():
        # Stretch the overlay to the largest sum.
        logs = np.append(0.0, np.log(np.maximum(ladder[::-1, host], _TINY)))
        largest = np.interp(np.log(number[host] + 1), -logs, shares)
        of_sums[host] = min(np.exp(np.interp(
            min(largest / max(float(lower[host]), _TINY), 1.0), shares, logs)),
            1.0 / (number[host] + 1))
    return _mixed(ladder[0], of_sums, trust), trust


def adapt(tables: np.ndarray, sums: np.ndarray, weights: np.ndarray,
          ladders: np.ndarray, peaks: np.ndarray, on_grid: bool) -> np.ndarray:
    """Adapt look-up tables of independent terms to sums at the instants.

    :param tables: (l, n) complex as returned by :meth:`.Grid.table`; those of
        sums whose terms depend on each other are changed
    :param sums: (l, 504) sums at the instants in table cells
    :param ladders: (l, 7) the thresholds of :data:`LADDER` in table cells
    :param peaks: (l,) largest possible sums in table cells
    :returns: (l,) how far the sums count, 0 to 1
    """
    at = np.clip(np.floor(ladders + _EQUAL), 0, tables.shape[1] - 1)
    numbers, _, trust = _compared(
        sums, weights, at.T,
        np.take_along_axis(tables.real, at.astype(np.int64), axis=1).T)
    for i in np.flatnonzero(trust).tolist():
        tables[i] = _stretched(
            tables[i], sums[i], weights[i] / weights[i].sum(), numbers[i],
            trust[i], peaks[i], on_grid)
    return trust


def _stretched(table, sums, weights, number, trust, peak, on_grid):
    """Return the look-up table of a sum whose terms depend on each other."""
    tail, least = table.real, 1.0 / (number + 1)
    sums, weights = sums[weights > 0], weights[weights > 0]
    order = np.argsort(sums)
    ordered = sums[order]
    # P(sum > k-th largest) is k / (n + 1) in the mean, and 1 below all.
    reached = np.maximum(np.cumsum(weights[order][::-1])[::-1] * number, 1.0)
    reached *= least
    # On the grid, the tail is constant up to the next cell.
    places = np.arange(tail.size) + 0.5 * on_grid
    of_sums = np.interp(places, ordered, reached, left=1.0)
    largest = ordered[-1]
    beyond = int(np.searchsorted(places, largest, side='right'))
    # Where the overlay falls to the probability of the largest sum.
    same = tail.size - int(np.searchsorted(tail[::-1], least))
    if largest > 0 and same > 0:
        of_sums[beyond:] = np.minimum(least, np.interp(
            places[beyond:] * min(same / largest, 1.0), places, tail))
    else:
        of_sums[beyond:] = tail[beyond:]
    of_sums[places > peak] = 0.0
    changed = np.empty_like(table)
    changed.real = np.minimum(_mixed(tail, of_sums, trust), 1.0)
    # The mean excess is the integral of the tail.
    end = table.imag[-1] * (1 - trust) + trust * float(
        weights @ np.maximum(sums - places[-1], 0.0))
    steps = changed.real[:-1] if on_grid else (
        changed.real[1:] + changed.real[:-1]) / 2
    changed.imag = end + np.append(np.cumsum(steps[::-1])[::-1], 0.0)
    return changed
