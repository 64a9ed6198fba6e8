# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text


class PrintableTestCase(unittest.TestCase):

    def test_what_a_terminal_obeys_is_escaped(self):
        for text, expected in (
                ('\x1b[2J', r'\x1b[2J'), ('a\nb\r', r'a\nb\r'),
                ('\t', r'\t'), ('\0\x7f\x9b', r'\x00\x7f\x9b'),
                ('\u202eabc', r'\u202eabc'), ('\u2028', r'\u2028'),
                ('\ud800', r'\ud800'), ('\U000e0001', r'\U000e0001')):
            self.assertEqual(expected, plain_text.printable(text))

    def test_nothing_of_all_characters_is_left_that_has_no_shape(self):
        every = ''.join(map(chr, range(0x3000)))
        self.assertTrue(plain_text.printable(every).isprintable())

    def test_scripts_stay_as_they_are(self):
        for text in ('', 'compute-1', 'Größe', '主机', 'a\\b', "it's 100 %"):
            self.assertEqual(text, plain_text.printable(text))

    def test_anything_becomes_text(self):
        self.assertEqual(['7', 'None'],
                         list(map(plain_text.printable, (7, None))))

    def test_a_line_end_between_words_is_a_blank(self):
        self.assertEqual(r'a b \x1b c',
                         plain_text.one_line('a\n  b \x1b\r\nc\n'))


class FirstOfTestCase(unittest.TestCase):

    def test_the_texts_beyond_the_maximum_are_counted(self):
        for count, expected in ((0, ''), (1, 'a'), (3, 'a; b; c'),
                                (5, 'a; b; c and 2 more')):
            self.assertEqual(expected, plain_text.first_of(
                iter('abcde'[:count]), '; ', 3))


class DistinctTestCase(unittest.TestCase):

    def test_as_many_digits_as_tell_two_numbers_apart(self):
        for numbers, digits, expected in (
                ((.0101, .01), 3, ('0.0101', '0.01')),
                ((.0100000123, .01), 3, ('0.01000001', '0.01')),
                ((.01, .01), 3, ('0.01', '0.01')),
                ((.0123456, .012345), 3, ('0.01235', '0.012345')),
                ((1000000.5, 1e6), 6, ('1000000.5', '1000000')),
                ((8000.0, 7159.0), 6, ('8000', '7159'))):
            self.assertEqual(expected, plain_text.distinct(*numbers, digits))

    def test_texts_compare_as_the_numbers_do(self):
        generator = np.random.default_rng(3)
        for limit in generator.uniform(0, 1, 200):
            value = limit * (1 + generator.choice([-1, 1])
                             * 10.0 ** -generator.integers(1, 16))
            texts = plain_text.distinct(value, limit, 3)
            self.assertEqual(value > limit,
                             float(texts[0]) > float(texts[1]))
            self.assertEqual(value < limit,
                             float(texts[0]) < float(texts[1]))


class ChanceTestCase(unittest.TestCase):

    def test_digits_below_what_rounding_leaves_are_not_printed(self):
        for value, text in ((0.0, '0'), (1e-250, '<1e-9'), (9.9e-10, '<1e-9'),
                            (1e-9, '1e-09'), (.013149, '0.0131'),
                            (1.0, '1'), (-1e-12, '-1e-12'), (None, '-')):
            self.assertEqual(text, plain_text.chance(value))
        self.assertEqual('0.013', plain_text.chance(.013149, '.2g'))


class NumberOfTestCase(unittest.TestCase):

    def test_one_has_words_of_its_own(self):
        self.assertEqual(
            ['0 hosts are', '1 host is', '2 hosts are'],
            [plain_text.number_of(count, 'host is', 'hosts are')
             for count in range(3)])


class IsoTimeTestCase(unittest.TestCase):

    def test_seconds_are_a_date_in_utc(self):
        self.assertEqual('1970-01-02T00:00:01Z', plain_text.iso_time(86401.9))

    def test_what_is_no_time_is_none(self):
        for seconds in (None, 1e18, float('nan')):
            self.assertIsNone(plain_text.iso_time(seconds), seconds)


class ErrorTestCase(unittest.TestCase):

    def test_errors_are_printable(self):
        for kind in (exceptions.VSwitchError, exceptions.InvalidInput,
                     exceptions.StoreMissing):
            self.assertEqual(r'host a\x1b[1m: 3 \x07', str(kind(
                'host a\x1b[1m:\n3 \x07')))


class NearestTestCase(unittest.TestCase):

    def test_a_near_name_is_named(self):
        names = {'compute7', 'compute8', 'network'}
        for name, expected in (
                ('compute07', ' (nearest name: compute7)'),
                ('netwrok', ' (nearest name: network)'), ('x', '')):
            self.assertEqual(expected, plain_text.nearest(name, names))
        self.assertEqual('', plain_text.nearest('x', ()))

    def test_a_common_prefix_makes_no_name_near(self):
        names = ('vswitch:kpps', 'vswitch:model')
        for name, expected in (('vswitch:modell', 'vswitch:model'),
                               ('vswitch:a', None)):
            self.assertEqual(
                f' (nearest name: {expected})' if expected else '',
                plain_text.nearest(name, names, 'vswitch:'))
