# SPDX-License-Identifier: Apache-2.0

import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.unit.traffic import exact
from vswitch_aware_scheduler.traffic import exact_sum


@st.composite
def _whole_sources(draw, largest=12, most=6):
    """Return sources of whole rates and dyadic probabilities: all exact."""
    sources = []
    for _ in range(draw(st.integers(0, most))):
        values = draw(st.lists(st.integers(0, largest), min_size=1,
                               max_size=4, unique=True))
        shares = draw(st.lists(st.integers(1, 8), min_size=len(values),
                               max_size=len(values)))
        sources.append((np.array(values, dtype=float),
                        np.array(shares) / sum(shares)))
    return sources


@st.composite
def _real_sources(draw, most=5):
    """Return sources of any rates up to 1000."""
    sources = []
    for _ in range(draw(st.integers(1, most))):
        values = draw(st.lists(
            st.floats(0, 1000).map(lambda x: round(x, 3)), min_size=1,
            max_size=4, unique=True))
        shares = draw(st.lists(st.integers(1, 9), min_size=len(values),
                               max_size=len(values)))
        sources.append((np.array(values), np.array(shares) / sum(shares)))
    return sources


def _built(start, sources):
    for values, masses in sources:
        start = start.plus(values, masses)
    return start


def _rounded(sources, step, up):
    """Return the sources as a grid has them."""
    function = np.ceil if up else np.floor
    return [(values.min() + step * function(np.round(
        (values - values.min()) / step, 6)), masses)
        for values, masses in sources]


class LawTestCase(unittest.TestCase):

    def assertLaw(self, total, sources, capacity, slack=0.0):
        """Want every figure of a law to be that of the enumeration.

        :param slack: what counts as equal to a threshold
        """
        sums, masses = exact.enumerated(sources)
        # An atol for sums of masses that enumerate in another order.
        close = {'rtol': 1e-11, 'atol': 1e-15}
        np.testing.assert_allclose(
            total.overflow, masses[sums > capacity + slack].sum(), **close)
        np.testing.assert_allclose(
            total.excess, masses @ np.maximum(sums - capacity, 0.0),
            rtol=1e-9, atol=1e-9 * capacity)
        for threshold in np.linspace(0, capacity, 23).tolist() + [
                -1.0, -1e9, *(x for x in sums.tolist() if x <= capacity)]:
            np.testing.assert_allclose(
                total.tail([threshold]),
                [masses[sums > threshold + slack].sum()
                 if threshold >= 0 else 1.0], **close)


class TestAtomSum(LawTestCase):

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_whole_sources(), st.integers(1, 40),
                      st.integers(-5, 40), st.integers(-5, 40))
    def test_whole_rates_are_the_enumeration_with_or_without_a_grid(
            self, sources, capacity, low, high):
        low, high = sorted((min(low, capacity), min(high, capacity)))
        sums, masses = exact.enumerated(sources)
        for empty in (exact_sum.AtomSum(float(capacity)),
                      exact_sum.LatticeSum(float(capacity), 1.0, True),
                      exact_sum.LatticeSum(float(capacity), 1.0, False)):
            total = _built(empty, sources)
            self.assertLaw(total, sources, capacity, slack=1e-6)
            np.testing.assert_allclose(
                total.between(float(low), float(high)),
                masses[(sums > low) & (sums <= high)].sum(), atol=1e-15)

    def test_equal_sums_are_one_atom_whatever_their_rounding(self):
        # 0.1 + 0.2 is not 0.3 in float64: seven sums, not nine.
        total = exact_sum.AtomSum(1.0)
        for rate in (.1, .2, .3):
            total = total.plus(np.array([0.0, rate]), np.array([.5, .5]))
        self.assertEqual(7, total._sums.size)
        self.assertEqual(.25, total.between(.25, .35))

    def test_adding_leaves_the_law_it_was_added_to(self):
        total = exact_sum.AtomSum(1.0).plus(np.array([0.0, 2.0]),
                                            np.array([.5, .5]))
        total.plus(np.array([0.0, 2.0]), np.array([.5, .5]))
        self.assertEqual(.5, total.overflow)
        self.assertEqual(.5, total.excess)


class TestLatticeSum(LawTestCase):

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_real_sources(), st.integers(10, 3000),
                      st.sampled_from([8, 50, 333]), st.booleans())
    def test_off_the_grid_it_is_the_law_of_the_rounded_rates(
            self, sources, capacity, cells, up):
        step = capacity / cells
        total = _built(exact_sum.LatticeSum(float(capacity), step, up),
                       sources)
        rounded = _rounded(sources, step, up)
        sums = exact.enumerated(rounded)[0]
        # Whether a sum that is equal to a threshold but for the rounding of
        # float64 is above it is tested elsewhere.
        hypothesis.assume((abs(sums - capacity) > 1e-6 * step).all())
        masses = exact.enumerated(rounded)[1]
        np.testing.assert_allclose(
            total.overflow, masses[sums > capacity].sum(), rtol=1e-11,
            atol=1e-15)
        np.testing.assert_allclose(
            total.excess, masses @ np.maximum(sums - capacity, 0),
            rtol=1e-9, atol=1e-9)

    def test_rates_alike_take_their_base_in_full(self):
        # 1.7 is no multiple of the step, and is not rounded.
        total = exact_sum.LatticeSum(
            10.0, 1.0).plus(np.array([1.7]), np.ones(1))
        self.assertEqual([1.0, 0.0], total.tail([1.6, 1.7]).tolist())
        total = total.plus(np.array([8.3]), np.ones(1))
        self.assertEqual(0.0, total.overflow)
        self.assertAlmostEqual(
            .1, total.plus(np.array([.1]), np.ones(1)).excess, 12)

    def test_a_rate_rounds_as_it_is_counted(self):
        values = np.array([3.0, 4.0, 4.5, 6.2])
        for total, expected in (
                (exact_sum.LatticeSum(9.0, 1.0), [3, 4, 5, 7]),
                (exact_sum.LatticeSum(9.0, 1.0, round_up=False), [3, 4, 4, 6]),
                (exact_sum.AtomSum(9.0), [3, 4, 4.5, 6.2])):
            np.testing.assert_allclose(total.rounded(values), expected)
