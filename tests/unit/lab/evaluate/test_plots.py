# SPDX-License-Identifier: Apache-2.0

import os
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.evaluate import measures
from vswitch_aware_scheduler.lab.evaluate import plots
from vswitch_aware_scheduler.lab.evaluate import protocols


class DrawTestCase(unittest.TestCase):

    def setUp(self):
        bound = measures.FluidBound(1.0, 1.0)
        self.results = {
            name: protocols.Result(
                name, [judgement], [judgement], [bound], [bound],
                [np.zeros(len(judgement.hosts))], [0])
            for name, judgement in (
                ('ours', measures.judge([[0, 0, 0, 9], [0, 1, 9, 10]],
                                        np.arange(10.0)[None], 5.0, 300.0)),
                ('peak', measures.judge([], np.zeros((1, 10)), 5.0, 300.0)))}

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
