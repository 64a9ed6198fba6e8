# SPDX-License-Identifier: Apache-2.0

import json
import os
import re

from tests.unit.store import base
from vswitch_aware_scheduler.lab.demo import page
from vswitch_aware_scheduler.vswitch import profile


class WriteTestCase(base.StoreTestCase):

    def test_the_page_has_the_placement_and_no_stale_model(self):
        target = self.make_store()
        target.write([base.constant(number, 100.0, window_end=base.NOW)
                      for number in range(1, 5)], now=base.NOW)
        path = os.path.join(self.directory, 'report.html')
        page.write(
            path, self.url,
            {base.instance_uuid(number): 'a' for number in range(1, 4)},
            [('a', 'small'), ('b', 'small')],
            {'small': profile.SwitchProfile('small', saturation_kbps=250.0)},
            'probability', .01)
        with open(path, encoding='utf-8') as file:
            text = file.read()
        data = json.loads(re.search(
            '<script type="application/json" id="data">(.*?)</script>', text,
            re.DOTALL)[1])
        self.assertEqual([['a', 'small', 3, 3, 1.0], ['b', 'small', 0, 0, 0]],
                         [row[:5] for row in data['hosts']['rows']])
        self.assertEqual([], data['stale']['rows'])
        # "vswitch-manage fleet" and "report" find the same in the store.
        self.assertEqual({'a', 'b'}, set(target.fleet('host').facts))
