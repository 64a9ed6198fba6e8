# SPDX-License-Identifier: Apache-2.0

import fractions
import math
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import law

F = fractions.Fraction


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


def _at_once(capacity, step, sources):
    sizes = [values.size for values, _ in sources]
    [one] = law.GridLaw.of_sources(
        capacity, step, np.concatenate([values for values, _ in sources]),
        np.concatenate([masses for _, masses in sources])[None],
        np.cumsum(sizes) - sizes)
    return one


def _enumerated(sources):
    """Return (sums, masses) of all combinations."""
    sums, weights = np.zeros(1), np.ones(1)
    for values, masses in sources:
        sums = np.add.outer(sums, values).ravel()
        weights = np.multiply.outer(weights, masses).ravel()
    return sums, weights


def _rounded(sources, step, up):
    """Return the sources as a grid has them."""
    function = np.ceil if up else np.floor
    return [(values.min() + step * function(np.round(
        (values - values.min()) / step, 6)), masses)
        for values, masses in sources]


class LawTestCase(unittest.TestCase):

    def assertLaw(self, one, sources, capacity, slack=0.0):
        """Want every figure of a law to be that of the enumeration.

        :param slack: what counts as equal to a threshold
        """
        sums, masses = _enumerated(sources)
        # An atol for sums of masses that enumerate in another order.
        close = {'rtol': 1e-11, 'atol': 1e-15}
        np.testing.assert_allclose(
            one.overflow, masses[sums > capacity + slack].sum(), **close)
        np.testing.assert_allclose(
            one.excess, masses @ np.maximum(sums - capacity, 0.0),
            rtol=1e-9, atol=1e-9 * capacity)
        for threshold in np.linspace(0, capacity, 23).tolist() + [
                -1.0, -1e9, *(x for x in sums.tolist() if x <= capacity)]:
            np.testing.assert_allclose(
                one.tail([threshold]),
                [masses[sums > threshold + slack].sum()
                 if threshold >= 0 else 1.0], **close)


class TestAtomLaw(LawTestCase):

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_whole_sources(), st.integers(1, 40))
    def test_it_is_the_enumeration(self, sources, capacity):
        self.assertLaw(_built(law.AtomLaw(float(capacity)), sources),
                       sources, capacity, slack=1e-6)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_whole_sources(), st.integers(1, 40),
                      st.integers(-5, 40), st.integers(-5, 40))
    def test_between_is_the_mass_from_above_low_up_to_high(
            self, sources, capacity, low, high):
        low, high = sorted((min(low, capacity), min(high, capacity)))
        sums, masses = _enumerated(sources)
        for one in (law.AtomLaw(float(capacity)),
                    law.GridLaw(float(capacity), 1.0)):
            np.testing.assert_allclose(
                _built(one, sources).between(float(low), float(high)),
                masses[(sums > low) & (sums <= high)].sum(), atol=1e-15)

    def test_equal_sums_are_one_atom_whatever_their_rounding(self):
        # 0.1 + 0.2 is not 0.3 in float64: seven sums, not nine.
        one = law.AtomLaw(1.0, max_atoms=7)
        for rate in (.1, .2, .3):
            one = one.plus(np.array([0.0, rate]), np.array([.5, .5]))
        self.assertEqual(.25, one.between(.25, .35))

    def test_more_sums_than_may_be_kept_are_refused(self):
        one = law.AtomLaw(100.0, max_atoms=3)
        one = one.plus(np.array([0.0, 1.0]), np.array([.5, .5]))
        with self.assertRaises(law.TooManyAtoms):
            one.plus(np.array([0.0, 10.0]), np.array([.5, .5]))

    def test_adding_leaves_the_law_it_was_added_to(self):
        one = law.AtomLaw(1.0).plus(np.array([0.0, 2.0]), np.array([.5, .5]))
        one.plus(np.array([0.0, 2.0]), np.array([.5, .5]))
        self.assertEqual(.5, one.overflow)
        self.assertEqual(.5, one.excess)


class TestGridLaw(LawTestCase):

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_whole_sources(), st.integers(1, 40), st.booleans())
    def test_rates_on_the_grid_are_exact_however_it_rounds(
            self, sources, capacity, up):
        one = _built(law.GridLaw(float(capacity), 1.0, up), sources)
        self.assertLaw(one, sources, capacity, slack=1e-6)
        atoms = _built(law.AtomLaw(float(capacity)), sources)
        np.testing.assert_allclose(one.overflow, atoms.overflow, atol=1e-15)
        np.testing.assert_allclose(one.excess, atoms.excess, rtol=1e-12,
                                   atol=1e-12)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_real_sources(), st.integers(10, 3000),
                      st.sampled_from([8, 50, 333]), st.booleans())
    def test_off_the_grid_it_is_the_law_of_the_rounded_rates(
            self, sources, capacity, cells, up):
        step = capacity / cells
        one = _built(law.GridLaw(float(capacity), step, up), sources)
        rounded = _rounded(sources, step, up)
        sums = _enumerated(rounded)[0]
        # Whether a sum that is equal to a threshold but for the rounding of
        # float64 is above it is tested elsewhere.
        hypothesis.assume((abs(sums - capacity) > 1e-6 * step).all())
        masses = _enumerated(rounded)[1]
        np.testing.assert_allclose(
            one.overflow, masses[sums > capacity].sum(), rtol=1e-11,
            atol=1e-15)
        np.testing.assert_allclose(
            one.excess, masses @ np.maximum(sums - capacity, 0),
            rtol=1e-9, atol=1e-9)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_real_sources(), st.integers(10, 3000),
                      st.sampled_from([8, 50, 333]))
    def test_up_and_down_enclose_the_truth_at_every_threshold(
            self, sources, capacity, cells):
        sums, masses = _enumerated(sources)
        upper, lower = (
            _built(law.GridLaw(float(capacity), capacity / cells, up),
                   sources) for up in (True, False))
        for threshold in np.linspace(0, capacity, 40):
            # Of what counts as equal, each may take its side.
            truth = masses[sums > threshold + 1e-6].sum()
            self.assertGreaterEqual(upper.tail([threshold])[0],
                                    truth - 1e-12)
            truth = masses[sums > threshold - 1e-6].sum()
            self.assertLessEqual(lower.tail([threshold])[0], truth + 1e-12)
        above = masses @ np.maximum(sums - capacity, 0)
        self.assertGreaterEqual(upper.excess, above - 1e-6)
        self.assertLessEqual(lower.excess, above + 1e-6)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=100)
    @hypothesis.given(_real_sources(most=8), st.integers(10, 3000),
                      st.sampled_from([8, 50, 512]))
    def test_all_sources_at_once_is_one_by_one(self, sources, capacity,
                                               cells):
        step = capacity / cells
        one = _built(law.GridLaw(float(capacity), step), sources)
        other = _at_once(float(capacity), step, sources)
        close = {'rtol': 1e-11, 'atol': 1e-14}
        np.testing.assert_allclose(other.overflow, one.overflow, **close)
        np.testing.assert_allclose(other.excess, one.excess, rtol=1e-9,
                                   atol=1e-11 * capacity)
        thresholds = np.linspace(-1, capacity, 37)
        np.testing.assert_allclose(other.tail(thresholds),
                                   one.tail(thresholds), **close)

    def test_narrow_wide_and_over_wide_sources_go_together(self):
        # By the number of cells of their widest level: dense, sparse, and
        # beyond the grid.
        rng = np.random.default_rng(1)
        sources = [(np.array([0.0, float(width)]), np.array([.75, .25]))
                   for width in rng.permutation(
                       [0, 1, 3, 47, 48, 49, 50, 60, 99, 100, 101, 500])]
        self.assertLaw(_at_once(100.0, 1.0, sources), sources, 100.0,
                       slack=1e-6)
        self.assertLaw(_built(law.GridLaw(100.0, 1.0), sources), sources,
                       100.0, slack=1e-6)

    def test_a_level_above_the_capacity_overloads_by_itself(self):
        one = law.GridLaw(10.0, 1.0).plus(np.array([0.0, 25.0]),
                                          np.array([.75, .25]))
        self.assertEqual(.25, one.overflow)
        self.assertEqual(.25 * 15, one.excess)
        self.assertEqual([.25, .25, 1.0], one.tail([10, 0, -1]).tolist())

    def test_a_base_above_the_capacity_overloads_for_ever(self):
        sources = [(np.array([6.0, 7.0]), np.array([.5, .5]))] * 2
        for one in (_built(law.GridLaw(10.0, 1.0), sources),
                    _built(law.AtomLaw(10.0), sources),
                    _at_once(10.0, 1.0, sources)):
            self.assertEqual(1.0, one.overflow)
            self.assertAlmostEqual(3.0, one.excess, 14)
            self.assertEqual([1.0, 1.0, 1.0],
                             one.tail([10.0, 5.0, -1.0]).tolist())
            again = one.plus(np.array([0.0, 4.0]), np.array([.5, .5]))
            self.assertEqual(1.0, again.overflow)
            self.assertAlmostEqual(5.0, again.excess, 14)

    def test_rates_alike_take_their_base_in_full(self):
        # 1.7 is no multiple of the step, and is not rounded.
        one = law.GridLaw(10.0, 1.0).plus(np.array([1.7]), np.ones(1))
        self.assertEqual([1.0, 0.0], one.tail([1.6, 1.7]).tolist())
        one = one.plus(np.array([8.3]), np.ones(1))
        self.assertEqual(0.0, one.overflow)
        self.assertAlmostEqual(
            .1, one.plus(np.array([.1]), np.ones(1)).excess, 12)

    def test_a_rate_rounds_as_it_is_counted(self):
        values = np.array([3.0, 4.0, 4.5, 6.2])
        for one, wanted in (
                (law.GridLaw(9.0, 1.0), [3, 4, 5, 7]),
                (law.GridLaw(9.0, 1.0, round_up=False), [3, 4, 4, 6]),
                (law.AtomLaw(9.0), [3, 4, 4.5, 6.2])):
            np.testing.assert_allclose(one.rounded(values), wanted)

    def test_tails_far_out_keep_their_relative_accuracy(self):
        p = F(1, 1024)
        sources = [(np.array([0.0, 3.0]), np.array([1 - float(p), float(p)]))
                   ] * 12
        for one in (_built(law.GridLaw(33.5, 1.0), sources),
                    _built(law.AtomLaw(33.5), sources),
                    _at_once(33.5, 1.0, sources)):
            self.assertLess(abs(F(float(one.overflow)) / p ** 12 - 1), 1e-14)
            self.assertLess(
                abs(F(float(one.excess)) / (p ** 12 * F(5, 2)) - 1), 1e-13)


def _binomial(n, p):
    """Return P(exactly k of n) for k = 0..n, each with its accuracy."""
    k = np.arange(n + 1)
    log = np.array([math.lgamma(n + 1) - math.lgamma(i + 1)
                    - math.lgamma(n - i + 1) for i in k])
    return np.exp(log + k * math.log(p) + (n - k) * math.log1p(-p))


class TestMany(LawTestCase):
    """Sums of more sources than are rounded one by one."""

    def many(self, capacity, sources, regimes=1, cells=256):
        sizes = [values.size for values, _ in sources]
        return law.GridLaw.of_many(
            capacity, capacity / cells,
            np.concatenate([values for values, _ in sources]),
            np.concatenate([np.atleast_2d(masses) for _, masses in sources],
                           axis=1), np.cumsum(sizes) - sizes)

    def slack(self, count, cells=256):
        """Return the most that rounding adds, as a share of the capacity.

        A fine cell for each source, one for each group, and one at the end.
        """
        groups = sum(math.ceil(count / law.MANY ** i) for i in (1, 2))
        return 1 / law._FINE_CELLS + (groups / law._FINER + 1) / cells

    def test_like_sources_are_binomial_in_each_regime(self):
        for count, shares, capacity in ((65, (.1, .3), 25.0),
                                        (600, (.1, .2), 110.0),
                                        (4200, (.02, .05), 190.0)):
            found = self.many(capacity, [(
                np.array([.5, 1.87]), np.array(
                    [[1 - p, p] for p in shares]))] * count)
            for one, p in zip(found, shares):
                sums = .5 * count + 1.37 * np.arange(count + 1)
                self._bracket(one, sums, _binomial(count, p), capacity,
                              self.slack(count))
            if count == 600:
                # All that they have at the least is more than there is.
                self.assertEqual([1.0, 1.0], [
                    one.overflow for one in found])

    def _bracket(self, one, sums, masses, capacity, slack):
        for threshold in np.linspace(0, capacity, 40):
            exact = masses[sums > threshold * (1 + 1e-12)].sum()
            most = masses[sums > threshold - slack * capacity].sum()
            [seen] = one.tail([threshold])
            self.assertGreaterEqual(seen, exact * (1 - 1e-9))
            self.assertLessEqual(seen, most * (1 + 1e-9) + 1e-300)
        self.assertGreaterEqual(one.excess * (1 + 1e-9), masses @ np.maximum(
            sums - capacity, 0.0))
        self.assertLessEqual(one.excess * (1 - 1e-9), masses @ np.maximum(
            sums - capacity * (1 - slack), 0.0))

    def test_sources_of_any_kind_are_between_their_bounds(self):
        rng = np.random.default_rng(10)
        for count in (66, 130):
            sources = [(rng.lognormal(2, 1.5, 4), rng.dirichlet(np.ones(4)))
                       for _ in range(count)]
            mean = sum(values @ masses for values, masses in sources)
            for capacity in (mean * .8, mean * 1.3, mean * 2):
                [one] = self.many(capacity, sources)
                low = _built(law.GridLaw(capacity, capacity / 20_000,
                                         round_up=False), sources)
                high = _built(law.GridLaw(capacity, capacity / 20_000),
                              sources)
                thresholds = np.linspace(0, capacity, 40)
                self.assertTrue((one.tail(thresholds) * (1 + 1e-9)
                                 >= low.tail(thresholds)).all())
                self.assertTrue((one.tail(thresholds) <= (1 + 1e-9)
                                 * high.tail(thresholds - capacity
                                             * self.slack(count))).all())
                self.assertGreaterEqual(one.excess * (1 + 1e-9), low.excess)
                # One by one they are rounded by far more.
                self.assertLess(one.overflow, _at_once(
                    capacity, capacity / 256, sources).overflow)

    def test_a_few_are_rounded_one_by_one(self):
        sources = [(np.array([0.0, 1.3, 2.9]), np.array([.5, .3, .2]))] * 64
        [one] = self.many(100.0, sources)
        wanted = _at_once(100.0, 100 / 256, sources)
        self.assertEqual((wanted.overflow, wanted.excess),
                         (one.overflow, one.excess))


class TestTables(LawTestCase):

    def _check(self, one, cells, capacity, step):
        tail, excess, phase = one.tables(cells)
        self.assertEqual((cells + 2,), tail.shape)
        self.assertEqual((cells + 2,), excess.shape)
        self.assertTrue(0 <= phase < 1, phase)
        self.assertTrue((np.diff(tail) >= 0).all())
        lattice = capacity - (phase + np.arange(cells + 2)) * step
        close = {'rtol': 1e-11, 'atol': 1e-14}
        # From a lattice point up to below the next, and at it.
        for inside in (1e-4, .5, .9999):
            seen = one.tail(np.minimum(lattice + inside * step, capacity))
            if inside * step <= capacity - lattice[0]:
                np.testing.assert_allclose(tail[0], seen[0], **close)
            np.testing.assert_allclose(tail[1:], seen[1:], **close)
        return tail, excess, phase, lattice

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(_real_sources(), st.integers(10, 3000),
                      st.sampled_from([4, 50, 512]))
    def test_they_are_the_tail_and_the_mean_excess(self, sources, capacity,
                                                   cells):
        step = capacity / cells
        one = _at_once(float(capacity), step, sources)
        tail, excess, phase, lattice = self._check(one, cells, capacity,
                                                   step)
        sums, masses = _enumerated(_rounded(sources, step, True))
        hypothesis.assume((abs(sums - capacity) > 1e-6 * step).all())
        above = np.maximum(sums[:, None] - lattice, 0.0)
        np.testing.assert_allclose(excess, masses @ above, rtol=1e-9,
                                   atol=1e-9 * capacity)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(_whole_sources(), st.integers(1, 40))
    def test_of_one_by_one_they_are_the_enumeration(self, sources, cells):
        one = _built(law.GridLaw(float(cells), 1.0), sources)
        tail, excess, phase = one.tables(cells)
        sums, masses = _enumerated(sources)
        self.assertEqual(0.0, phase)
        lattice = cells - np.arange(cells + 2.0)
        np.testing.assert_allclose(
            tail, [masses[sums > c].sum() for c in lattice], rtol=1e-12,
            atol=1e-15)
        np.testing.assert_allclose(
            excess, masses @ np.maximum(sums[:, None] - lattice, 0),
            rtol=1e-12, atol=1e-12)

    def test_of_nothing_the_tail_is_zero_down_to_zero(self):
        tail, excess, phase = law.GridLaw(8.0, 2.0).tables(4)
        self.assertEqual([0, 0, 0, 0, 0, 1], tail.tolist())
        self.assertEqual([0, 0, 0, 0, 0, 2], excess.tolist())
        self.assertEqual(0.0, phase)

    def test_of_a_base_above_the_capacity_the_tail_is_one(self):
        one = law.GridLaw(8.0, 2.0).plus(np.array([9.0]), np.ones(1))
        tail, excess, phase = one.tables(4)
        self.assertEqual([1.0] * 6, tail.tolist())
        self.assertEqual([1, 3, 5, 7, 9, 11], excess.tolist())
        self.assertEqual(0.0, phase)

    def test_the_phase_is_what_the_capacity_is_above_the_lattice(self):
        one = law.GridLaw(8.0, 2.0).plus(np.array([.5]), np.ones(1))
        tail, excess, phase = one.tables(4)
        # Lattice 0.5, 2.5, 4.5, 6.5: the capacity is 1.5 above the last.
        self.assertEqual(.75, phase)
        self.assertEqual([0, 0, 0, 0, 1, 1], tail.tolist())
        self.assertEqual([0, 0, 0, 0, 2, 4], excess.tolist())


class TestTablesPlus(LawTestCase):

    def _plus(self, first, rest, capacity, cells):
        """Return tables grown one by one, and those of all at once."""
        step = capacity / cells
        tail, excess, phase = _built(
            law.GridLaw(capacity, step), first).tables(cells)
        tables = tail[None, :, None], excess[None, :, None], np.array([phase])
        for values, masses in rest:
            tables = law.tables_plus(*tables, np.array([step]), values[None],
                                     masses[None, :, None])
        anew = _built(law.GridLaw(capacity, step), first + rest)
        return [one[0] for one in tables], anew.tables(cells)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=100)
    @hypothesis.given(_real_sources(), st.integers(10, 3000),
                      st.sampled_from([4, 50, 256]))
    def test_they_are_the_tables_of_all(self, sources, capacity, cells):
        half = len(sources) // 2
        (tail, excess, phase), anew = self._plus(
            sources[:half], sources[half:], float(capacity), cells)
        # Where the capacity is all but on the lattice, rounding may put it
        # on either side of a point.
        hypothesis.assume(1e-6 < phase < 1 - 1e-6 and anew[0][0] < 1)
        self.assertAlmostEqual(anew[2], phase, 6)
        np.testing.assert_allclose(tail[:, 0], anew[0], rtol=1e-9,
                                   atol=1e-15)
        np.testing.assert_allclose(excess[:, 0], anew[1], rtol=1e-9,
                                   atol=1e-9 * capacity)

    def test_each_host_and_regime_has_its_own(self):
        first = np.array([0., 3.]), np.array([.9, .1])
        plus = np.array([[1., 4., 9.], [2., 2.5, 6.]])
        masses = np.array([[[.5, .3, .2], [.1, .1, .8]],
                           [[1., 0., 0.], [.2, .2, .6]]])
        steps = 1., .5
        tables = [law.GridLaw(8., step).plus(*first).tables(16)
                  for step in steps]
        both = law.tables_plus(
            *(np.array([[one[i]] * 2 for one in tables]).transpose(0, 2, 1)
              for i in (0, 1)), np.array([one[2] for one in tables]),
            np.array(steps), plus, masses.transpose(0, 2, 1))
        for host in range(2):
            for regime in range(2):
                wanted = law.GridLaw(8., steps[host]).plus(*first).plus(
                    plus[host], masses[host, regime]).tables(16)
                for i in (0, 1):
                    np.testing.assert_allclose(both[i][host, :, regime],
                                               wanted[i], rtol=1e-14)
                self.assertEqual(wanted[2], both[2][host])

    def test_a_base_above_the_capacity_overloads_for_ever(self):
        (tail, excess, _), anew = self._plus(
            [(np.array([3.]), np.ones(1))], [(np.array([9., 1e300]),
                                              np.array([.5, .5]))], 8., 4)
        self.assertEqual([1.0] * 6, tail[:, 0].tolist())
        np.testing.assert_allclose(excess[:, 0], anew[1], rtol=1e-12)


class TestTailsWithout(LawTestCase):

    def _without(self, sources, gone, capacity, cells, rates):
        """Return bounds of what is left, and what its own tables tell."""
        step = capacity / cells
        tail, _, phase = _built(
            law.GridLaw(capacity, step), sources).tables(cells)
        most = max(len(values) for values, _ in gone)
        values = np.array([np.append(values, [values[-1]] * (
            most - len(values))) for values, _ in gone])
        masses = np.array([np.append(masses, [0.0] * (most - len(masses)))
                           for _, masses in gone])
        found = law.tails_without(
            tail[None, :, None], np.array([0]), np.array([phase]),
            np.array([step]), values[None], masses[None, ..., None],
            np.asarray(rates, dtype=float)[None])[0, :, 0]
        left = [one for one in sources
                if not any(one is other for other in gone)]
        return found, _built(law.GridLaw(capacity, step), left).tail(
            capacity - np.asarray(rates, dtype=float))

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=200)
    @hypothesis.given(_real_sources(), st.integers(10, 3000),
                      st.sampled_from([4, 50, 256]), st.integers(1, 3))
    def test_what_is_left_exceeds_no_less(self, sources, capacity, cells,
                                          count):
        hypothesis.assume(len(sources) >= count)
        rates = capacity * np.linspace(0, 1, 40)
        found, left = self._without(sources, sources[:count],
                                    float(capacity), cells, rates)
        self.assertTrue((found >= 0).all())
        # A sum that rounding puts on the other side of a threshold aside.
        step = capacity / cells
        _, lower = self._without(sources, sources[:count], float(capacity),
                                 cells, rates + 1e-6 * step)
        self.assertTrue((found <= np.maximum(left, lower) + 1e-12).all())

    def test_of_like_sources_it_is_what_binomials_say(self):
        # P(more than m of n) less what the one taken out adds at the most.
        n, p = 12, .07
        sources = [(np.array([0., 1.]), np.array([1 - p, p]))
                   for _ in range(n)]
        found, left = self._without(sources, sources[:1], 8.0, 8,
                                    np.arange(8.0))

        def tail(count, more_than):
            return sum(math.comb(count, k) * p ** k * (1 - p) ** (count - k)
                       for k in range(more_than + 1, count + 1))

        for rate in range(8):
            most = 8 - rate
            self.assertAlmostEqual(
                max((tail(n, most) - p * tail(n, most - 1)) / (1 - p), 0.0),
                found[rate], 8)
            self.assertAlmostEqual(tail(n - 1, most), left[rate], 12)

    def test_who_hardly_sends_takes_nothing_away(self):
        sources = [(np.array([0., 3.]), np.array([.8, .2]))
                   for _ in range(6)]
        silent = np.array([0.]), np.ones(1)
        found, left = self._without(sources + [silent], [silent], 8.0, 16,
                                    np.arange(8.0))
        np.testing.assert_allclose(found, left, rtol=1e-8)

    def test_above_the_capacity_a_table_does_not_tell(self):
        # What it sends at the least lies above the threshold.
        base = np.array([2., 4.]), np.array([.5, .5])
        sources = [base] + [(np.array([0., 3.]), np.array([.5, .5]))
                            for _ in range(4)]
        found, left = self._without(sources, [base], 8.0, 8,
                                    [0., 1., 2., 3.])
        self.assertEqual([0.0, 0.0], found[:2].tolist())
        self.assertGreater(found[2], 0.0)
        self.assertTrue((found <= left).all())

    def test_who_never_rests_leaves_no_word(self):
        # The lowest level has no probability at all.
        busy = np.array([0., 1.]), np.array([0., 1.])
        sources = [busy] + [(np.array([0., 3.]), np.array([.5, .5]))
                            for _ in range(4)]
        found, _ = self._without(sources, [busy], 8.0, 8, [0., 1.])
        self.assertEqual([0.0, 0.0], found.tolist())


class TestRequireCapacity(unittest.TestCase):

    def test_a_number_above_zero_becomes_a_float(self):
        for capacity in (1, 2.5, '3', np.float32(4)):
            self.assertIsInstance(law.require_capacity(capacity), float)

    def test_anything_else_is_named(self):
        for capacity in (0, -1, float('nan'), float('inf'), None, 'x'):
            with self.assertRaises(exceptions.InvalidModel) as caught:
                law.require_capacity(capacity)
            self.assertIn(repr(capacity), str(caught.exception))
