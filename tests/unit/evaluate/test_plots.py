# SPDX-License-Identifier: Apache-2.0

import os
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

from vswitch_aware_scheduler.evaluate import packing
from vswitch_aware_scheduler.evaluate import plots
from vswitch_aware_scheduler.evaluate import protocols
from vswitch_aware_scheduler import exceptions


class DrawTestCase(unittest.TestCase):

    def setUp(self):
        self.results = {
            name: protocols.Result(
                name, [packing.Judgement(
                    np.array(shares), np.array(shares), 0.0,
                    np.ones(len(shares)), len(shares))],
                [np.array(shares)], [0])
            for name, shares in (('ours', [0.01, 0.0]), ('peak', []))}

    def test_two_pictures_are_written(self):
        with tempfile.TemporaryDirectory() as directory:
            where = os.path.join(directory, 'new')
            paths = plots.draw(where, self.results, 0.01)
            self.assertEqual([os.path.join(where, 'reliability.png'),
                              os.path.join(where, 'frontier.png')], paths)
            for path in paths:
                with open(path, 'rb') as stream:
                    self.assertEqual(b'\x89PNG', stream.read(4))

    def test_without_matplotlib_it_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {'matplotlib': None}), \
                self.assertRaisesRegex(exceptions.InvalidInput, r'\[plot\]'):
            plots.draw('nowhere', self.results, 0.01)
