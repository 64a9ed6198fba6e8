# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
import time
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np
import yaml

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

RATES = ('saturation_kbps', 'packet_rate_kpps', 'line_rate_kbps',
         'vm_peak_kbps', 'typical_packet_bytes')
CLOSING = RATES[:-1]
COUNTS = ('max_tunnels', 'max_virtual_functions')
UNITS = {'packet_rate_kpps': 'kilo-packets/s', 'typical_packet_bytes': 'bytes'}
NOT_RATES = (0, -1, True, False, float('nan'), float('inf'), 1e16, 10 ** 400,
             '5', 'fast', [5], {})
OPTIONAL = st.one_of(st.none(), st.floats(1e-6, 1e15))
NOT_COUNTS = (-1, True, 1.5, 4.0, float('nan'), 10 ** 400, '5', [5])


def _profile(**stated):
    return profile.SwitchProfile(**{'name': 'own', 'saturation_kbps': 1e6,
                                    **stated})


def _by_packet(table, **stated):
    return profile.SwitchProfile(
        name='own', saturation_by_packet_bytes=table, **stated)


class ProfileTestCase(unittest.TestCase):

    @contextlib.contextmanager
    def refused(self, error, *parts):
        """Want ``error`` with all parts in its text."""
        with self.assertRaises(error) as caught:
            yield
        for part in (*parts, 'expected'):
            self.assertIn('not given' if part == 'None' else part,
                          str(caught.exception))

    def invalid(self, *parts):
        return self.refused(exceptions.InvalidInput, *parts)


class TestValidation(ProfileTestCase):

    def test_numbers_of_any_kind_become_float_and_counts_int(self):
        own = _profile(saturation_kbps=np.int64(5), packet_rate_kpps=7,
                       max_tunnels=np.int32(3))
        self.assertEqual(
            (float, float, int),
            tuple(type(getattr(own, key)) for key in (
                'saturation_kbps', 'packet_rate_kpps', 'max_tunnels')))

    def test_what_is_invalid_is_refused_with_what_was_expected(self):
        def by_packet(table):
            return {'saturation_kbps': None,
                    'saturation_by_packet_bytes': table}

        bare, nan = {'saturation_kbps': None}, float('nan')
        no_limit = ("'own'", 'list of its limits', '[]', 'at least one of',
                    'max_tunnels', 'saturation_by_packet_bytes')
        for stated, *parts in (
                # Only a packet size must not be 0.
                *(({key: value}, "'own'", key, repr(value)[:15],
                   'a number > 0', UNITS.get(key, 'kbit/s'))
                  for key in RATES for value in NOT_RATES[key in CLOSING:]),
                *(({key: value}, "'own'", key, repr(value)[:15],
                   'a whole number from 0')
                  for key in COUNTS for value in NOT_COUNTS),
                # YAML reads only 1.0e+6 as a number.
                ({'saturation_kbps': '1e6'}, "'1e6'", '1.0e+6'),
                *(({'name': name}, 'name', repr(name)) for name in (
                    '', ' ', 'two words', '-x', 5, None, True, 'x\n')),
                ({'switch': ''}, "'own'", 'switch', "''"),
                ({'description': 5}, "'own'", 'description', '5', 'text'),
                ({'encapsulation': 'vxlna'}, "'own'", 'encapsulation',
                 "'vxlna'", 'geneve', "nearest name: vxlan"),
                *(({'encapsulation': value}, 'encapsulation')
                  for value in (None, False, ['vxlan'], {})),
                # Saturation is of bandwidth, never of packets.
                ({'saturation_dimension': 'packets'}, "'own'",
                 'saturation_dimension', "'packets'",
                 'bandwidth, egress, ingress'),
                (bare, *no_limit),
                ({**bare, 'cpu_mhz_per_kpps': 1}, *no_limit),
                ({'saturation_by_packet_bytes': {64: 5}}, "'own'",
                 'saturation_kbps', '1000000.0',
                 'saturation_by_packet_bytes'),
                *((by_packet(table), "'own'", 'saturation_by_packet_bytes',
                   repr(table)) for table in ({}, [], [[64, 5]], 5, 'x')),
                (by_packet({64: 5, 128: 'x'}), "'own'",
                 'saturation_by_packet_bytes: 128', "'x'", 'a number > 0',
                 'kbit/s'),
                (by_packet({64: 5, '64': 6}), 'packet size', "'64'",
                 'each size once'),
                *((by_packet({size: 5}), "'own'", 'packet size', repr(size),
                   'bytes') for size in (0, -64, True, nan, 'big')),
                ({'sources': {'packet_rate_kpps': 'a table'}}, "'own'",
                 'sources', "'packet_rate_kpps'", 'saturation_kbps'),
                ({'sources': 'x'}, "'own'", 'sources', "'x'", 'a mapping'),
                *(({'sources': {'saturation_kbps': text}}, "'own'",
                   'sources: saturation_kbps', repr(text), 'text')
                  for text in (5, '', ' ', None)),
                *(({'same_host_share': share}, 'same_host_share: ',
                   'a number 0 <= share < 1')
                  for share in (1, -.1, 'half', True, nan)),
                ({'same_host_saturation_kbps': 0},
                 'same_host_saturation_kbps: 0', 'a number > 0', 'kbit/s'),
                ({'cpu_mhz_per_kpps': -1},
                 'cpu_mhz_per_kpps: -1; expected 0 or a number'),
                ({'provenance': 'x'}, "provenance: 'x'; expected a mapping"),
                ({'provenance': {'a b': 1}},
                 "key of provenance: 'a b'; expected text"),
                ({'provenance': {'nic': [1]}},
                 'provenance: nic: [1]; expected text or'),
                ({'provenance': {'spread': nan}}, 'provenance: spread: nan'),
                ({'packet_cost_us': 0, 'byte_cost_ns': 0},
                 'packet_cost_us: 0.0; expected a number > 0, or byte_cost'),
                ({'packet_cost_us': -1, 'byte_cost_ns': .5},
                 'packet_cost_us: -1; expected 0 or'),
                ({'packet_cost_us': 2.0, 'byte_cost_ns': 1e-12},
                 'byte_cost_ns: 1e-12; expected')):
            with self.subTest(**stated), self.invalid(*parts):
                _profile(**stated)

    def test_any_one_limit_is_enough_even_one_of_zero(self):
        for key in (*CLOSING, *COUNTS):
            for value in (0, 1):
                self.assertEqual(value, getattr(profile.SwitchProfile(
                    name='own', **{key: value}), key))

    def test_a_table_is_kept_in_order_of_size_and_stays_the_profiles(self):
        table = {512: 30, 64: 10, 128: 20}
        sources = {'saturation_by_packet_bytes': 'bench'}
        own = _by_packet(table, sources=sources)
        table[256], sources['x'] = 6, 'y'
        own.to_dict()['saturation_by_packet_bytes'][64] = 6
        self.assertEqual([(64, 10), (128, 20), (512, 30)],
                         list(own.saturation_by_packet_bytes.items()))
        self.assertEqual(['saturation_by_packet_bytes'], list(own.sources))

    def test_a_profile_cannot_be_changed_and_compares_by_value(self):
        own = _profile()
        with self.assertRaises(dataclasses.FrozenInstanceError):
            own.saturation_kbps = 5
        self.assertEqual(_profile(), own)
        self.assertEqual(1, len({_profile(), own}))
        self.assertNotEqual(_profile(max_tunnels=1), own)

    def test_a_value_without_end_makes_a_short_message(self):
        value = []
        value.append(value)
        for _ in range(60):
            value = [value, value]
        with self.assertRaises(exceptions.InvalidInput) as caught:
            _profile(saturation_kbps=value)
        self.assertLess(len(str(caught.exception)), 500)


class TestCapacityByPacketSize(ProfileTestCase):

    tables = st.dictionaries(
        st.floats(16, 65536), st.floats(1, 1e8), min_size=1, max_size=8)
    sizes = st.floats(1, 1e5)

    def test_a_rate_of_all_sizes_or_none_does_not_depend_on_the_size(self):
        for stated, rate in (({'saturation_kbps': 1e6}, 1e6), ({}, None)):
            own = profile.SwitchProfile(name='own', packet_rate_kpps=1,
                                        line_rate_kbps=10, **stated)
            self.assertEqual([rate] * 3, [own.saturation_kbps_at(size)
                                          for size in (1, 1500, None)])

    def test_other_sizes_have_the_packet_rate_or_the_rate_of_the_next(self):
        own = _by_packet({64: 100, 128: 150}, typical_packet_bytes=64)
        # Below the smallest, above the largest, and without a size.
        for size, rate in (([32], 50), ([9000], 150), ([], 100)):
            self.assertAlmostEqual(rate, own.saturation_kbps_at(*size))

    def test_a_table_never_promises_more_than_the_line_carries(self):
        table = {64: 100, 128: 300}
        for dimension, most in (('egress', 120), ('ingress', 120),
                                ('bandwidth', 240)):
            own = _by_packet(table, line_rate_kbps=120,
                             saturation_dimension=dimension)
            self.assertEqual(most, own.saturation_kbps_at(128))
            self.assertAlmostEqual(100, own.saturation_kbps_at(64))

    def test_a_size_that_is_no_number_above_zero_is_refused(self):
        for own in (_profile(), _by_packet({64: 5})):
            for size in (0, -1, float('nan'), float('inf'), 'x', True):
                with self.subTest(size=size), self.invalid(
                        "'own'", 'packet_bytes', repr(size), 'bytes'):
                    own.saturation_kbps_at(size)

    @hypothesis.given(tables)
    def test_each_point_of_the_table_is_reproduced(self, table):
        own = _by_packet(table)
        for size, rate in table.items():
            self.assertAlmostEqual(
                1, own.saturation_kbps_at(size) / rate, delta=1e-9)

    @hypothesis.given(tables, sizes, sizes)
    def test_saturation_grows_where_the_table_does(self, table, a, b):
        own = _by_packet(dict(zip(sorted(table), sorted(table.values()))))
        small, large = (own.saturation_kbps_at(size)
                        for size in sorted((a, b)))
        self.assertLessEqual(small, large * (1 + 1e-9))

    @hypothesis.given(
        st.floats(1e-5, 10), st.floats(0, 1e-2),
        st.sets(st.integers(64, 9000), min_size=1, max_size=6), sizes)
    def test_a_switch_of_cost_a_plus_b_bytes_is_met_and_never_overrated(
            self, a, b, measured, size):
        def truth(packet_bytes):
            return 8 * packet_bytes / (a + b * packet_bytes)

        rate = _by_packet({bytes_measured: truth(bytes_measured)
                           for bytes_measured in measured}).saturation_kbps_at(
                               size)
        self.assertLessEqual(rate, truth(size) * (1 + 1e-9))
        if min(measured) <= size <= max(measured):
            self.assertAlmostEqual(1, rate / truth(size), delta=1e-9)


class TestMostOfOneInstance(ProfileTestCase):

    def test_the_most_is_the_line_and_the_traffic_within_the_host(self):
        for stated, most in (
                ({'saturation_kbps': 5e6}, 15e6),
                ({'saturation_kbps': 5e6, 'same_host_share': 0.5,
                  'same_host_saturation_kbps': 20e6}, 30e6),
                # 1 us a packet: 8 kbit of it are 8 kbit/us, 64 KiB 524 times
                # as much as 1 kbit.
                ({'packet_cost_us': 1.0}, 10e6 + 8e3 * 65536)):
            own = profile.SwitchProfile(name='own', line_rate_kbps=10e6,
                                        **stated)
            self.assertAlmostEqual(most, own.most_kbps)

    def test_without_both_nothing_is_stated(self):
        for stated in ({'line_rate_kbps': 10e6}, {'saturation_kbps': 5e6},
                       {'line_rate_kbps': 0, 'saturation_kbps': 5e6},
                       {'line_rate_kbps': 10e6, 'saturation_kbps': 0}):
            self.assertIsNone(profile.SwitchProfile(
                name='own', **stated).most_kbps)


class TestLimits(ProfileTestCase):

    def test_a_profile_that_states_all_has_four_limits_in_one_order(self):
        own = _profile(packet_rate_kpps=300, line_rate_kbps=2e6,
                       vm_peak_kbps=5, max_tunnels=5)
        self.assertEqual((
            profile.Limit('saturation', (1.0, 1.0, 0.0), 1e6),
            profile.Limit('line_rate_egress', (1.0, 0.0, 0.0), 2e6),
            profile.Limit('line_rate_ingress', (0.0, 1.0, 0.0), 2e6),
            profile.Limit('packet_rate', (0.0, 0.0, 1.0), 300.0),
        ), own.limits())

    def test_only_what_is_stated_is_a_limit_and_in_its_dimension(self):
        bandwidth, egress, ingress = map(tuple, map(
            model.dimension_weights, ('bandwidth', 'egress', 'ingress')))
        for stated, expected in (
                ({'max_tunnels': 4}, ()),
                ({'packet_rate_kpps': 1}, [('packet_rate', (0, 0, 1), 1)]),
                ({'packet_cost_us': 2}, [('switching', (0, 0, 2e-3), 1)]),
                ({'byte_cost_ns': 1},
                 [('switching', (125e-9, 125e-9, 0), 1)]),
                ({'saturation_kbps': 7, 'saturation_dimension': 'egress'},
                 [('saturation', egress, 7)]),
                ({'saturation_kbps': 7, 'saturation_dimension': 'ingress'},
                 [('saturation', ingress, 7)]),
                # A table counts by the typical packet.
                ({'saturation_by_packet_bytes': {64: 100, 128: 150},
                  'typical_packet_bytes': 64},
                 [('saturation', bandwidth, 100)])):
            with self.subTest(**stated):
                self.assertEqual(
                    tuple(profile.Limit(*limit) for limit in expected),
                    profile.SwitchProfile(name='own', **stated).limits())

    def test_the_most_bandwidth_is_what_all_limits_together_allow(self):
        for stated, most in (
                ({'saturation_kbps': 70}, 70),
                ({'line_rate_kbps': 70}, 140),
                ({'packet_rate_kpps': 2}, 2 * 8 * 100),
                ({'saturation_kbps': 70, 'line_rate_kbps': 30}, 60),
                ({'saturation_kbps': 70, 'line_rate_kbps': 90,
                  'saturation_dimension': 'egress'}, 160),
                ({'saturation_kbps': 70, 'saturation_dimension': 'ingress'},
                 float('inf')),
                ({'saturation_by_packet_bytes': {100: 50, 200: 80}}, 50),
                ({'max_tunnels': 5}, float('inf'))):
            with self.subTest(**stated):
                self.assertAlmostEqual(most, profile.SwitchProfile(
                    name='own', typical_packet_bytes=100,
                    **stated).bandwidth_kbps())

    def test_the_most_bandwidth_depends_on_the_packet_size(self):
        own = profile.SwitchProfile(
            name='own', packet_rate_kpps=312.5, line_rate_kbps=1e7)
        self.assertEqual([220000, 3750000, 1e7, 2e7], [
            own.bandwidth_kbps(size) for size in (88, 1500, 4000, 9000)])
        with self.invalid("'own'", 'packet_bytes', '0', 'bytes'):
            own.bandwidth_kbps(0)

    @hypothesis.given(
        st.fixed_dictionaries(dict.fromkeys(RATES[1:3], OPTIONAL)), OPTIONAL,
        st.sampled_from(profile.SATURATION_DIMENSIONS),
        st.integers(0, 10 ** 15), st.integers(0, 10 ** 15),
        st.floats(64, 9000))
    def test_traffic_within_all_limits_is_within_the_most_bandwidth(
            self, rates, saturation, dimension, egress, ingress, size):
        own = profile.SwitchProfile(
            name='own', saturation_kbps=saturation, max_tunnels=1,
            saturation_dimension=dimension, **rates)
        offered = np.array(
            [egress, ingress, (egress + ingress) / (8 * size)])
        # Scaled to the tightest limit.
        offered *= min((limit.capacity / used for limit in own.limits()
                        if (used := offered @ limit.weights) > 0), default=1)
        self.assertLessEqual(offered[:2].sum(),
                             own.bandwidth_kbps(size) * (1 + 1e-9))


class TestMaxInstances(ProfileTestCase):

    def test_the_smaller_count_decides_and_is_named(self):
        for tunnels, functions, expected in (
                (None, None, None),
                (5, None, (5, 'max_tunnels')),
                (None, 6, (6, 'max_virtual_functions')),
                (5, 6, (5, 'max_tunnels')),
                (7, 6, (6, 'max_virtual_functions')),
                (0, 6, (0, 'max_tunnels'))):
            self.assertEqual(expected, _profile(
                max_tunnels=tunnels,
                max_virtual_functions=functions).max_instances)


class TestOverrides(ProfileTestCase):

    WHERE = "aggregate 'rack 7'"

    def invalid(self, *parts):
        return self.refused(exceptions.InvalidInput, self.WHERE, *parts)

    def test_every_key_can_be_overridden_by_text_or_a_number(self):
        self.assertEqual({*RATES, *COUNTS}, {*profile.OVERRIDABLE_KEYS})
        sources = {'saturation_kbps': 'bench', 'line_rate_kbps': 'sheet'}
        own = _profile(line_rate_kbps=8, sources=sources)
        for key in profile.OVERRIDABLE_KEYS:
            for value in ('3', ' 3 ', 3) + ('.3e1',) * (key in RATES):
                changed = own.overridden({key: value}, self.WHERE)
                self.assertEqual(
                    {**own.to_dict(), key: 3, 'sources': {
                        **sources, key: f'override: {self.WHERE}'}},
                    changed.to_dict())
        # The profile itself stays.
        self.assertEqual(_profile(line_rate_kbps=8, sources=sources), own)
        self.assertEqual(own, own.overridden({}, self.WHERE))

    def test_the_smallest_of_several_values_wins(self):
        for several in ({'30', '4', '100'}, ['30', 4, '100'],
                        ('30', '100', 4.0), frozenset({30, 4})):
            for key in profile.OVERRIDABLE_KEYS:
                if key in COUNTS and 4.0 in several:
                    several = {'30', '4', '100'}
                self.assertEqual(4, getattr(_profile().overridden(
                    {key: several}, self.WHERE), key))
        self.assertEqual(4, profile.most_cautious(
            'max_tunnels', iter(['30', '4']), self.WHERE))
        self.assertEqual(0, profile.most_cautious(
            'saturation_kbps', ['1000', '0', '5'], self.WHERE))

    def test_only_a_saturation_takes_the_place_of_a_table(self):
        for key, table, rate in (('saturation_kbps', None, 5),
                                 ('line_rate_kbps', {64: 100}, 2 * 5)):
            own = _by_packet({64: 100}).overridden({key: '5'}, self.WHERE)
            self.assertEqual(table, own.saturation_by_packet_bytes)
            self.assertEqual(rate, own.saturation_kbps_at(64))

    def test_what_is_no_number_is_refused_with_where_key_and_value(self):
        for key in profile.OVERRIDABLE_KEYS:
            for value in ('', 'fast', '-1', 'nan', 'inf', '1e400', None, True,
                          '1 000', {'5': 6}, '9' * 5000, '10 Gbps'):
                expected = ('a whole number from 0' if key in COUNTS
                            else 'a number > 0')
                with self.subTest(key=key, value=value), self.invalid(
                        key, repr(value)[:15], expected):
                    _profile().overridden({key: value}, self.WHERE)

    def test_zero_is_a_count_and_a_closed_limit_but_no_packet_size(self):
        for key in (*COUNTS, *CLOSING):
            for text in ('0', '-0'):
                self.assertEqual('0', str(profile.override_number(
                    key, text, self.WHERE))[:1])
        with self.invalid('typical_packet_bytes', "'0'"):
            profile.override_number('typical_packet_bytes', '0', self.WHERE)

    def test_a_wrong_value_or_key_of_several_is_not_passed_over(self):
        for key, value, parts in (
                ('max_tunnels', [], ['not given']),
                ('max_tunnels', {'5', 'x'}, ["'x'"]),
                ('saturation_kpbs', '1', ['nearest name: saturation_kbps']),
                ('encapsulation', 'vxlan', ['packet_rate_kpps']),
                (5, '1', ['packet_rate_kpps'])):
            with self.subTest(key=key), self.invalid(str(key), *parts):
                _profile().overridden({key: value}, self.WHERE)


class TestDictionary(ProfileTestCase):

    @hypothesis.given(
        st.fixed_dictionaries(dict.fromkeys(RATES[1:-1], OPTIONAL)),
        st.one_of(OPTIONAL, TestCapacityByPacketSize.tables),
        st.one_of(st.none(), st.integers(0, 10 ** 6)),
        st.sampled_from(profile.ENCAPSULATIONS),
        st.sampled_from(profile.SATURATION_DIMENSIONS))
    def test_a_profile_comes_back_through_json_and_yaml(
            self, rates, saturation, tunnels, encapsulation, dimension):
        form = ('saturation_by_packet_bytes' if isinstance(saturation, dict)
                else 'saturation_kbps')
        own = profile.SwitchProfile(
            name='own', switch='vpp', description='a text', **rates,
            encapsulation=encapsulation, saturation_dimension=dimension,
            max_tunnels=tunnels, max_virtual_functions=4,
            same_host_share=.25, same_host_saturation_kbps=9e6,
            sources={'max_virtual_functions': 'data sheet',
                     'same_host_share': 'sFlow of March'},
            provenance={'kernel': '6.1', 'repeats': 3, 'spread': .04},
            **{form: saturation})
        for read in (json.loads(json.dumps(own.to_dict())),
                     yaml.safe_load(yaml.safe_dump(own.to_dict()))):
            self.assertEqual(own, profile.SwitchProfile.from_dict(read))

    def test_only_what_is_stated_is_written(self):
        self.assertEqual(
            {'name': 'own', 'switch': 'unspecified', 'encapsulation': 'none',
             'saturation_dimension': 'bandwidth', 'max_tunnels': 0,
             'typical_packet_bytes': 1500.0},
            profile.SwitchProfile(name='own', max_tunnels=0).to_dict())

    def test_a_dictionary_without_name_or_with_more_keys_is_refused(self):
        for data, parts in (
                *((data, ['name']) for data in (
                    {}, {'max_tunnels': 5}, [], None, 'x')),
                ({'name': 'own', 'base': 'ovs-flat'},
                 ["'own'", "'base'"])):
            with self.subTest(data=data), self.invalid(*parts):
                profile.SwitchProfile.from_dict(data)


class TestSameHost(unittest.TestCase):
    """Traffic that stays on a host, against going through it all."""

    def capacities(self, **stated):
        return {limit.name: limit.capacity for limit in _profile(
            saturation_kbps=100.0, line_rate_kbps=80.0, packet_rate_kpps=5.0,
            **stated).limits()}

    def test_no_local_traffic_is_assumed(self):
        plain = self.capacities()
        self.assertEqual({'saturation': 100.0, 'line_rate_egress': 80.0,
                          'line_rate_ingress': 80.0, 'packet_rate': 5.0},
                         plain)
        for stated in ({'same_host_share': 0},
                       {'same_host_saturation_kbps': 900}):
            self.assertEqual(plain, self.capacities(**stated))

    def test_local_traffic_costs_the_switch_and_no_line_rate(
            self):
        for share, local, expected in (
                # A second carries 2/3 of it to others and 1/3 of it here.
                (1 / 3, 300.0, 1 / (2 / 3 / 100 + 1 / 3 / 300)),
                (.5, None, 100.0), (.5, 50.0, 1 / (.5 / 100 + .5 / 50))):
            capacities = self.capacities(same_host_share=share,
                                         same_host_saturation_kbps=local)
            self.assertAlmostEqual(expected, capacities['saturation'], 9)
            self.assertAlmostEqual(80 / (1 - share),
                                   capacities['line_rate_egress'], 9)
            self.assertAlmostEqual(80 / (1 - share),
                                   capacities['line_rate_ingress'], 9)
            self.assertEqual(5.0, capacities['packet_rate'])
            # The busy time of the switch at that rate is all there is.
            rate = capacities['saturation']
            self.assertAlmostEqual(1.0, (1 - share) * rate / 100
                                   + share * rate / (local or 100), 12)


class TestOwnFile(ProfileTestCase):

    def setUp(self):
        super().setUp()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(directory, 'own.yaml')

    def load(self, content, **arguments):
        pathlib.Path(self.path).write_bytes(
            content if isinstance(content, bytes) else content.encode())
        return profile.load_profiles(self.path, **arguments)

    def refuses(self, content, *parts):
        with self.subTest(content=content), self.invalid(self.path, *parts):
            self.load(content)

    def test_profiles_are_read_in_the_order_of_the_file(self):
        profiles = self.load('b: {saturation_kbps: 5, switch: vpp}\n'
                             'a: {saturation_by_packet_bytes: {64: 5}}\n'
                             'c: {base: b, vm_peak_kbps: 6}\n')
        self.assertEqual(['b', 'a', 'c'], list(profiles))
        self.assertEqual(
            profile.SwitchProfile(name='b', saturation_kbps=5, switch='vpp'),
            profiles['b'])
        self.assertEqual({64: 5}, profiles['a'].saturation_by_packet_bytes)
        self.assertEqual(5, profiles['c'].saturation_kbps)

    def test_a_file_that_cannot_be_read_is_refused(self):
        for path, shown_path in ((self.path, self.path),
                                 (os.path.dirname(self.path),) * 2,
                                 ('a\0b', r'a\x00b')):
            with self.subTest(path=path), self.invalid(shown_path, 'read'):
                profile.load_profiles(path)

    def test_what_is_wrong_in_a_file_is_refused_with_its_place(self):
        for content, *parts in (
                # No YAML: with the line.
                ('a:\n  max_tunnels: 5\n  b: c: d\n', 'line 3',
                 'mapping values'),
                ('a: [1, 2\n', 'line 2'),
                ('a: {max_tunnels: 5}\n---\nb: {max_tunnels: 5}\n', 'line 2'),
                *([content] for content in (
                    b'\xff\xfe\xfa', b'\0', '[' * 5000,
                    'a: !!python/object:os.system {}', 'a: !!int x',
                    'a: 2001-13-45', 'a: !!timestamp x', '? [a]\n: 5\n',
                    'a: *b')),
                # No mapping.
                *((content, 'a mapping of profile names') for content in (
                    '', '# nothing\n', '- a\n', 'text\n', '5\n', '{}\n')),
                *((f'own: {entry}\n', "'own'", shown, 'a mapping')
                  for entry, shown in (('', 'None'), ('5', '5'),
                                       ('[1]', '[1]'))),
                # Names, keys and values.
                *((f'{name}: {{max_tunnels: 5}}\n', 'name', shown)
                  for name, shown in (('5', '5'), ('yes', 'True'),
                                      ('~', 'None'))),
                ('own: {saturation_kpbs: 17}\n', "'own'", "'saturation_kpbs'",
                 "nearest name: saturation_kbps"),
                ('own: {name: x, max_tunnels: 5}\n', "'own'", "'name'"),
                ('own: {5: x}\n', "'own'", '5'),
                *((f'own: {{saturation_kbps: {text}}}\n', "'own'",
                   'saturation_kbps', shown, 'a number > 0', 'kbit/s')
                  for text, shown in (('yes', 'True'), ('.nan', 'nan'),
                                      ('1e6', "'1e6'"))),
                # A key that is repeated, as a person wrote it.
                ('a: {max_tunnels: 5}\nown:\n  max_tunnels: 5\n'
                 '  max_tunnels: 6\nb: {max_tunnels: 5}\n', 'line 4',
                 "'own'", "'max_tunnels'", "'6'", 'each key once'),
                ('a: {max_tunnels: 5}\nb: {max_tunnels: 5}\n'
                 'a: {max_tunnels: 6}\n', 'line 3', "'a'",
                 '(value a mapping)', 'once'),
                ('a: [1]\na: [2]\n', '(value a sequence)'),
                ('a: {max_tunnels: 5}\nown:\n  saturation_by_packet_bytes:\n'
                 '    64: 5\n    64.0: 6\n', 'line 5', "'own'", '64.0'),
                ('own: {max_tunnels: 5, sources: {max_tunnels: a, '
                 'max_tunnels: b}}\n', 'line 1', "'own'", 'once'),
                ('own: &own\n  max_tunnels: 5\n  sources: *own\n', "'own'",
                 'circle'),
                # The profile that it is based on.
                ('own: {base: b, vm_peak_kbps: 6}\nb: {max_tunnels: 5}\n',
                 "'own'", 'base', "'b'", 'earlier'),
                ('own: {base: ovs-vxlna}\n', "'own'", 'base', "'ovs-vxlna'",
                 "nearest name: ovs-vxlan"),
                *((f'own: {{base: {base}}}\n', "'own'", 'base')
                  for base in ('~', '5', '[ovs-flat]')),
                ('a: {base: ovs-flat, saturation_kbps: 5, '
                 'saturation_by_packet_bytes: {64: 6}}\n', "'a'"),
                ('own: {base: ovs-flat, sources: [a]}\n', 'sources'),
                ('x: {base: ovs-flat, cores: 4}', 'cores'),
                ('x: {base: vpp-vhost, cores: 0}', 'cores'),
                ('x: {packet_rate_kpps: 5, cores: many}', 'cores'),
                *((f'own:\n  packet_rate_by_packet_bytes: {value}',
                   'packet_rate_by_packet_bytes') for value in (
                       '5', '{64: x}', '[64]', '{64: 1}\n  '
                       'saturation_by_packet_bytes: {64: 1}'))):
            self.refuses(content, *parts)

    def test_an_alias_and_a_merge_key_are_not_taken_for_a_repeated_key(self):
        profiles = self.load('a: &a {max_tunnels: 5, vm_peak_kbps: 7}\n'
                             'b: &b {<<: *a, max_tunnels: 6}\n'
                             'c: {<<: *b, max_tunnels: 8}\nd: *a\n')
        self.assertEqual([5, 6, 8, 5],
                         [own.max_tunnels for own in profiles.values()])
        self.assertEqual(7, profiles['c'].vm_peak_kbps)

    def test_aliases_that_stand_for_very_much_are_refused(self):
        for link in ('{{<<: [{}]}}', '{{sources: [{}]}}', '[{}]'):
            lines = ['a0: &a0 {max_tunnels: 5}']
            for number in range(1, 30):
                lines.append(f'a{number}: &a{number} ' + link.format(
                    ', '.join([f'*a{number - 1}'] * 9)))
            began = time.process_time()
            self.refuses('\n'.join(lines), 'aliases stand for more than')
            self.assertLess(time.process_time() - began, 5)

    def test_a_profile_takes_from_its_base_what_it_does_not_state(self):
        sources = {'saturation_kbps': 'bench', 'line_rate_kbps': 'sheet'}
        bases = {
            'base': _profile(description='x', line_rate_kbps=9, max_tunnels=4,
                             sources={**sources, 'max_tunnels': 'guess'}),
            'table': _by_packet({64: 5}, sources={
                'saturation_by_packet_bytes': 'bench'})}
        of_base = {'description': 'x', 'line_rate_kbps': 9, 'max_tunnels': 4}
        for content, expected in (
                ('{base: base, saturation_kbps: 7, max_tunnels: ~}',
                 {**of_base, 'saturation_kbps': 7, 'max_tunnels': None,
                  'sources': {'line_rate_kbps': 'sheet'}}),
                ('{base: base, saturation_kbps: 7, sources: '
                 '{saturation_kbps: mine}}',
                 {**of_base, 'saturation_kbps': 7, 'sources': {
                     'saturation_kbps': 'mine', 'line_rate_kbps': 'sheet',
                     'max_tunnels': 'guess'}}),
                # A new form of the saturation replaces the other one.
                ('{base: base, saturation_by_packet_bytes: {64: 6}}',
                 {**of_base, 'saturation_by_packet_bytes': {64: 6},
                  'sources': {'line_rate_kbps': 'sheet',
                              'max_tunnels': 'guess'}}),
                ('{base: table, saturation_kbps: 7}', {'saturation_kbps': 7}),
                # A key without a value states no limit.
                ('{max_tunnels: 5, saturation_kbps: ~, encapsulation: ~, '
                 'typical_packet_bytes: ~, sources: ~}', {'max_tunnels': 5}),
                # Packet rates by size are a table of saturation.
                ('{packet_rate_by_packet_bytes: {64: 100, 1500: 80}, '
                 'sources: {packet_rate_by_packet_bytes: a report}}',
                 {'saturation_by_packet_bytes': {64: 51200, 1500: 960000},
                  'sources': {'saturation_by_packet_bytes': 'a report'}})):
            with self.subTest(content):
                self.assertEqual(
                    profile.SwitchProfile(name='own', **expected),
                    self.load(f'own: {content}\n', bases=bases)['own'])

    def test_numbers_follow_the_cores_of_the_data_plane(self):
        profiles = self.load('''
one:
  packet_rate_kpps: 1000
  saturation_by_packet_bytes: {64: 500, 1500: 9000}
  line_rate_kbps: 10000
  vm_peak_kbps: 700
  cores: 2
  sources: {packet_rate_kpps: a test}
more: {base: one, cores: 6}
costs: {packet_cost_us: 3, byte_cost_ns: 6, cores: 1}
less: {base: costs, cores: 3}
own: {base: one, cores: 6, packet_rate_kpps: 1}
''')
        more = profiles['more']
        self.assertEqual(
            (3000, {64: 1500, 1500: 27000}, 10000, 700, 6),
            (more.packet_rate_kpps, more.saturation_by_packet_bytes,
             more.line_rate_kbps, more.vm_peak_kbps, more.cores))
        self.assertEqual('a test; of 2 cores, times 3',
                         more.sources['packet_rate_kpps'])
        self.assertEqual((1, 2), (profiles['less'].packet_cost_us,
                                  profiles['less'].byte_cost_ns))
        self.assertEqual(1, profiles['own'].packet_rate_kpps)
        # The numbers are those of the profile itself.
        self.assertEqual(5, self.load(
            'x: {base: ovs-flat, packet_rate_kpps: 5, cores: 4}')[
                'x'].packet_rate_kpps)

    def test_a_file_wins_over_a_built_in_of_the_same_name(self):
        pathlib.Path(self.path).write_text(
            'ovs-flat: {base: ovs-flat, max_tunnels: 7}\n'
            'own: {base: ovs-flat}\n')
        profiles = profile.profiles(self.path)
        built_in = profile.catalogue()
        self.assertEqual([*built_in, 'own'], list(profiles))
        self.assertEqual((7, 7), (profiles['ovs-flat'].max_tunnels,
                                  profiles['own'].max_tunnels))
        self.assertEqual(built_in['ovs-flat'].saturation_kbps,
                         profiles['ovs-flat'].saturation_kbps)
        self.assertIsNone(built_in['ovs-flat'].max_tunnels)

    def test_the_fast_loader_reads_the_catalogue_as_the_other_one_does(self):
        with mock.patch.object(profile, '_FAST_LOADER', yaml.SafeLoader):
            slowly = profile._built_in.__wrapped__()
        self.assertEqual(slowly, profile.profiles())
        self.assertTrue(issubclass(profile._FAST_LOADER, yaml.CSafeLoader))

    @hypothesis.settings(max_examples=200, deadline=None)
    @hypothesis.given(st.one_of(
        st.binary(max_size=60), st.text(max_size=60),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.floats(), st.integers(),
                      st.text(max_size=5), st.dates()),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3),
                st.dictionaries(
                    st.one_of(st.sampled_from(
                        ('own', 'base', 'sources', 'saturation_kbps',
                         'encapsulation', 'saturation_by_packet_bytes')),
                        st.integers()), inner, max_size=4)),
            max_leaves=12).map(yaml.safe_dump)))
    def test_any_file_gives_profiles_or_an_error_that_names_it(self, content):
        try:
            profiles = self.load(content if isinstance(content, bytes)
                                 else content.encode('utf-8', 'surrogatepass'),
                                 bases={})
        except exceptions.InvalidInput as error:
            self.assertIn(self.path, str(error))
            self.assertIn('expected', str(error))
        else:
            self.assertTrue(all(isinstance(own, profile.SwitchProfile)
                                for own in profiles.values()))


class TestCpu(unittest.TestCase):

    def test_cpu_is_linear_in_packets_and_bandwidth(self):
        own = profile.SwitchProfile(
            'x', saturation_kbps=1e6, cpu_idle_mhz=100, cpu_mhz_per_kpps=.5,
            cpu_mhz_per_mbps=.1)
        # 1 Gbit/s of 1250 bytes are 100 kilo-packets/s.
        self.assertAlmostEqual(100 + 50 + 100, own.cpu_mhz(1e6, 1250))
        self.assertAlmostEqual(100, own.cpu_mhz(0))
        self.assertAlmostEqual(
            100 + .5 * 1e6 / 12000 + 100, own.cpu_mhz(1e6))

    def test_a_profile_that_does_not_state_it_says_so(self):
        self.assertIsNone(profile.SwitchProfile(
            'x', saturation_kbps=1e6, cpu_idle_mhz=5).cpu_mhz(1e6))


class TestCosts(unittest.TestCase):

    def _profile(self, **changes):
        return profile.SwitchProfile('x', **{
            'packet_cost_us': 2.0, 'byte_cost_ns': .5, **changes})

    def test_packets_and_bytes_fill_a_second_together(self):
        limit, = self._profile().limits()
        self.assertEqual(('switching', 1.0), (limit.name, limit.capacity))
        egress, ingress, packets = limit.weights
        # 100 kpps take 0.2 s; 100 Mbyte/s in either direction 0.05 s.
        self.assertAlmostEqual(.2, 100 * packets)
        self.assertAlmostEqual(.05, 800e3 * egress)
        self.assertEqual(egress, ingress)

    def test_saturation_follows_from_the_size(self):
        own = self._profile()
        for size in (88, 512, 1500, 9000):
            rate = own.saturation_kbps_at(size)
            # What saturates fills the limit, in packets of that size.
            limit, = own.limits()
            self.assertAlmostEqual(
                1.0, rate * limit.weights[0]
                + rate / (8 * size) * limit.weights[2])
            self.assertAlmostEqual(rate, own.bandwidth_kbps(size))

    def test_beside_a_saturation_the_smaller_counts(self):
        own = self._profile(saturation_kbps=1e6)
        self.assertEqual(1e6, own.saturation_kbps_at(9000))
        self.assertLess(own.saturation_kbps_at(88), 1e6)
        self.assertEqual(['saturation', 'switching'],
                         [limit.name for limit in own.limits()])

    def test_an_override_of_saturation_takes_the_place_of_costs(self):
        own = self._profile().overridden({'saturation_kbps': 9e9}, 'here')
        self.assertIsNone(own.packet_cost_us)
        self.assertEqual(9e9, own.saturation_kbps_at(88))
