# SPDX-License-Identifier: Apache-2.0

import unittest

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.common import exceptions


class TestHostPolicy(unittest.TestCase):

    def test_what_is_not_a_policy_or_a_probability_is_refused(self):
        for parts, kwargs in (
                (("'sometimes'", 'average', 'probability'),
                 {'policy': 'sometimes'}),
                (('-0.1', 'from 0 to 1'), {'overload_probability': -.1}),
                (('1.1', 'from 0 to 1'), {'overload_probability': 1.1}),
                (('nan', 'from 0 to 1'),
                 {'overload_probability': float('nan')}),
                (('0.0', 'above 0'), {'prediction_margin': 0.0}),
                (('inf', 'above 0'), {'prediction_margin': float('inf')}),
                (('nan', 'above 0'), {'prediction_margin': float('nan')})):
            with self.assertRaises(exceptions.InvalidInput) as caught:
                admission.HostPolicy(None, **kwargs)
            for part in (*parts, 'expected'):
                self.assertIn(part, str(caught.exception))
