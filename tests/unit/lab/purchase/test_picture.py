# SPDX-License-Identifier: Apache-2.0

import os
import sys
import tempfile
import unittest
from unittest import mock

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.purchase import counts
from vswitch_aware_scheduler.lab.purchase import inputs
from vswitch_aware_scheduler.lab.purchase import picture
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile


class PictureTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.enterContext(tempfile.TemporaryDirectory())

    def _answer(self, price):
        law = model.TrafficModel.constant(10.0).law
        server = inputs.ServerType('$^{a server', 4, 4096, (
            profile.SwitchProfile('own', saturation_kbps=30.0),), price)
        return {'count': 9, 'currency': 'EUR', 'server_types':
                counts.purchase([server], inputs.mix_of_flavors(
                    [inputs.Vm('a', 1, 1, law)], 50), .01)}

    def test_each_format_is_written(self):
        # The prices change what is drawn, the ending how it is written.
        for ending, head, price in (
                ('png', b'\x89PNG', None), ('png', b'\x89PNG', 30.0),
                ('svg', b'<?xm', 30.0), ('pdf', b'%PDF', None)):
            path = os.path.join(self.directory, f'p.{ending}')
            picture.prepare(path)
            picture.draw(path, self._answer(price))
            with open(path, 'rb') as stream:
                self.assertEqual(head, stream.read(4))

    def test_what_cannot_be_written_is_refused_before_the_work(self):
        for path in ('p.gif', 'p', os.path.join('nowhere', 'p.png')):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        'plot: .*; expected'):
                picture.prepare(os.path.join(self.directory, path))

    def test_without_matplotlib_it_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {'matplotlib': None}), \
                self.assertRaisesRegex(exceptions.InvalidInput, r'\[plot\]'):
            picture.prepare('p.png')
