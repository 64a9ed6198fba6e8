# SPDX-License-Identifier: Apache-2.0

import random
import unittest

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import model


class TestExtraSpecs(unittest.TestCase):

    def assertInvalid(self, parts, specs):
        with self.assertRaises(exceptions.InvalidInput) as caught:
            flavor_specs.law_of_extra_specs(specs)
        for part in (*parts, 'expected'):
            self.assertIn(part, str(caught.exception))

    def test_rates_without_times_are_on_always(self):
        self.assertEqual(
            model.TrafficModel.constant(5, 7, 11).law,
            flavor_specs.law_of_extra_specs({
                'vswitch:egress_kbps': '5', 'vswitch:ingress_kbps': '7',
                'vswitch:kpps': '11'}))

    def test_it_is_the_law_of_the_model_to_the_last_bit(self):
        generator = random.Random(1)
        for _ in range(200):
            on, off, *rates = (
                generator.randint(1, 10 ** generator.randint(1, 9))
                for _ in range(5))
            self.assertEqual(
                model.TrafficModel.on_off(
                    *rates, on_seconds=on, off_seconds=off).law,
                flavor_specs.law_of_extra_specs({
                    'vswitch:egress_kbps': str(rates[0]),
                    'vswitch:ingress_kbps': str(rates[1]),
                    'vswitch:kpps': str(rates[2]),
                    'vswitch:on_seconds': str(on),
                    'vswitch:off_seconds': str(off)}))

    def test_invalid_values_and_unknown_keys_are_one_problem(self):
        for specs, is_stated, words in (
                ({}, False, ()),
                ({'vswitch:kpps': '1', 'vswitchx': '1'}, True, ()),
                ({'vswitch:kpps': '1', 'vswitch:b': '2', 'vswitch:a': '1'},
                 True, ("vswitch:a: '1'; expected no key but",
                        "it is ignored; flavor extra spec vswitch:b: '2'")),
                ({'vswitch:kpps': 'x', 'vswitch:model_': 'y' * 999}, False,
                 ('are ignored; flavor extra spec vswitch:model_: ',
                  'nearest name: vswitch:model'))):
            stated, problem = flavor_specs.read(specs, lambda uuid: None)
            self.assertEqual(is_stated, stated is not None)
            self.assertEqual(bool(words), problem is not None)
            for part in words:
                self.assertIn(part, problem)
            self.assertLess(len(problem or ''), 600)

    def test_none_of_them_is_no_law(self):
        self.assertIsNone(flavor_specs.law_of_extra_specs({}))
        self.assertIsNone(flavor_specs.law_of_extra_specs({'hw:x': '1'}))

    def test_every_key_wants_a_whole_number_and_is_named(self):
        for key in flavor_specs.EXTRA_SPECS:
            for value in ('-1', '1.5', 'fast', '', None, 'nan'):
                with self.subTest(key=key, value=value):
                    self.assertInvalid((key, 'a whole number from 0 to'), {
                        'vswitch:kpps': '1', key: value})

    def test_without_a_rate_above_zero_there_is_no_traffic(self):
        self.assertInvalid(('egress_kbps', 'no rate is above 0'),
                           {'vswitch:egress_kbps': '0'})
        self.assertInvalid(('on_seconds', 'no rate'),
                           {'vswitch:on_seconds': '5',
                            'vswitch:off_seconds': '5'})

    def test_both_times_are_above_zero_or_absent(self):
        for times in ({'on': '5'}, {'off': '5'}, {'on': '0', 'off': '5'},
                      {'on': '5', 'off': '0'}):
            self.assertInvalid(('vswitch:on_seconds', 'vswitch:off_seconds',
                                'two numbers above 0'), {
                'vswitch:egress_kbps': '5', **{
                    f'vswitch:{state}_seconds': text
                    for state, text in times.items()}})


class TestManyFlavors(unittest.TestCase):

    def test_the_laws_of_more_flavors_than_a_cloud_has_are_kept(self):
        # A cache that is too small makes each of them anew, each time.
        def laws():
            return [flavor_specs.law_of_extra_specs({
                'vswitch:egress_kbps': str(kbps), **more})
                for kbps in range(1, 3001) for more in (
                    {}, {'vswitch:on_seconds': '1',
                         'vswitch:off_seconds': '2'})]

        for law, same_law in zip(laws(), laws()):
            self.assertIs(law, same_law)
