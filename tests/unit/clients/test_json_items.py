# SPDX-License-Identifier: Apache-2.0

import json
import tracemalloc
import unittest

from vswitch_aware_scheduler.clients import json_items

VALUES = [
    [], {}, 7, None, 'text', [[]], [1, [2, {'a': 3}], 'x'],
    {'data': {'result': [{'a': 1}, {'b': [2]}], 'resultType': 'matrix'},
     'status': 'success', 'warnings': ['], }']},
    {'data': {'result': []}}, {'data': {'result': {'a': 1}}},
    {'data': [1, 2]}, {'data': None}, {'other': {'result': [1]}},
    {'result': [1]}]


class LoadTestCase(unittest.TestCase):

    def test_the_value_is_the_one_of_json_with_the_items_converted(self):
        for value in VALUES:
            for options in ({}, {'indent': 3},
                            {'separators': (' ,\n', '\t: ')}):
                text = ' ' + json.dumps(value, **options) + '\r\n'
                for path in ((), ('data',), ('data', 'result')):
                    with self.subTest(text, path=path):
                        items = []
                        self.assertEqual(value, json_items.load(
                            text, path, lambda item: items.append(item)
                            or item))
                        at_path = value
                        for key in path:
                            at_path = at_path.get(key) \
                                if isinstance(at_path, dict) else None
                        self.assertEqual(
                            at_path if isinstance(at_path, list) else [],
                            items)
        self.assertEqual({'data': [2, 4]}, json_items.load(
            '{"data": [1, 2]}', ('data',), lambda item: 2 * item))

    def test_every_text_that_json_refuses_is_refused(self):
        text = '{"data": {"result": [1, {"a": "b"}], "x": 2}, "y": [3]}'
        wrong = [text[:length] for length in range(len(text))]
        wrong += [text[:at] + mark + text[at + 1:]
                  for at in range(len(text)) for mark in '"{}[]:,x']
        for broken in [*wrong, text + 'x', text + text, '[1 2]', '[,]', '{,}',
                       '{1: 2}', '[1,]', '']:
            try:
                expected = json.loads(broken)
            except ValueError:
                for path in ((), ('data',), ('data', 'result')):
                    with self.subTest(broken, path=path), \
                            self.assertRaises(ValueError):
                        json_items.load(broken, path, lambda item: item)
            else:
                self.assertEqual(expected, json_items.load(
                    broken, ('data', 'result'), lambda item: item))

    def test_objects_of_one_item_exist_at_a_time(self):
        item = '[' + '[],' * 1000 + '[]]'
        text = '{"data": [' + ','.join([item] * 300) + ']}'
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        json_items.load(text, ('data',), len)
        _, peak = tracemalloc.get_traced_memory()
        # 300 items of 1001 lists of 56 bytes are 17 MB at least.
        self.assertLess(peak, 2e6)
