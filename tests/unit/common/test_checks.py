# SPDX-License-Identifier: Apache-2.0

import math
import types
import unittest

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions

#: kind, valid values and their results, invalid values, text of the kind
KINDS = (
    (checks.number(), ((0, 0.0), (np.float64(2), 2.0)),
     (-1, math.nan, math.inf, 1e16, 10 ** 400, True, '1', None),
     'a number from 0'),
    (checks.number(high=math.inf), ((1e300, 1e300),),
     (math.inf, 10 ** 400, -1), 'a number from 0'),
    (checks.number(1, 2, above=True, default=None), ((2, 2.0), (None, None)),
     (1, 2.5), 'a number above 1 to 2'),
    (checks.whole(1, 3), ((1, 1), (np.int64(3), 3)), (0, 4, 2.0, False),
     'a whole number from 1 to 3'),
    (checks.whole(), ((5, 5),), (10 ** 16, 0), 'a whole number from 1'),
    (checks.text(3), (('abc', 'abc'),), ('', 'abcd', 5, None),
     'text of 1 to 3 characters'),
    (checks.one_of(('red', 'green')), (('red', 'red'),), ('blue', 5, []),
     'one of red, green'),
    (checks.number_of('0 or 2', lambda number: number in (0, 2)),
     ((-0.0, 0.0), (2, 2.0)), (1, 10 ** 400, 'x'), '0 or 2'))


class ChecksTest(unittest.TestCase):

    def test_a_valid_value_is_converted_and_another_one_is_named(self):
        for kind, valid, invalid, expected in KINDS:
            for value, result in valid:
                converted = checks.check('thing', value, kind)
                self.assertEqual((result, type(result), str(result)), (
                    converted, type(converted), str(converted)))
            for value in invalid:
                with self.subTest(kind=expected, value=value), \
                        self.assertRaises(exceptions.InvalidModel) as caught:
                    checks.check('thing', value, kind, exceptions.InvalidModel)
                self.assertRegex(str(caught.exception),
                                 f'^thing: .*; expected {expected}')

    def test_a_wrong_name_has_the_nearest_one_in_its_message(self):
        with self.assertRaisesRegex(exceptions.InvalidInput,
                                    r'green \(nearest name: green\)$'):
            checks.check('colour', 'gren', checks.one_of(('red', 'green')))

    def test_fields_are_checked_by_their_names(self):
        record = types.SimpleNamespace(rate=1, name='')
        checks.fields('record', record, {'rate': checks.number()})
        with self.assertRaisesRegex(exceptions.InvalidInput, '^record: name:'):
            checks.fields('record', record, {'rate': checks.number(),
                                             'name': checks.text(5)})
