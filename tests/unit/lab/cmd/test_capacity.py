# SPDX-License-Identifier: Apache-2.0

import os

from tests.unit.cmd import command_case


class TestCapacity(command_case.ManageTestCase):

    def _csv(self, *lines):
        path = os.path.join(self.directory, f'rates-{len(lines)}.csv')
        with open(path, 'w') as file:
            file.write('\n'.join(('packet_bytes,rate_kbps,pairs', *lines)))
        return path

    def _known(self):
        # 4 us of a sender, 1 us of the switch.
        return self._csv(*(
            f'{size},{8e3 * size / max(4 / pairs, 1)},{pairs}'
            for pairs in (1, 2, 8) for size in (100, 500, 1500)))

    def test_fit_finds_the_costs_of_a_table(self):
        answer = self.ask('capacity', 'fit', self._known())
        model = answer['model']
        self.assertAlmostEqual(4, model['sender']['packet_us']['none'])
        self.assertAlmostEqual(1, model['switch']['packet_us']['none'])
        self.assertEqual(9, len(answer['rows']))
        self.assertEqual(['sender'] * 6 + ['switch'] * 3,
                         [row['limited_by'] for row in answer['rows']])
        self.assertLess(answer['median_error'], 1e-6)

    def test_a_table_that_contradicts_itself_is_named(self):
        self.assertIn('The table contradicts itself:\n- 128 bytes',
                      self.run_command('capacity', 'fit', self._csv(
                          '128,400000,1', '1500,9000000,1'))[1])

    def test_a_file_an_argument_or_a_table_that_is_wrong_is_named(self):
        for arguments, message in (
                (['fit', '/nowhere.csv'],
                 'table /nowhere.csv: cannot be read'),
                (['fit', self._known(), '--confidence', '1'],
                 'confidence: 1.0; expected a number between'),
                (['fit', self._known(), '--line-kbps', '-1'],
                 'line_kbps: -1.0; expected'),
                (['reproduce', 'x'],
                 "table: 'x'; expected one of draft-server-1")):
            self.assert_fails(message, 'capacity', *arguments)

    def test_reproduce_prints_each_figure_beside_its_prediction(self):
        answer = self.ask('capacity', 'reproduce', 'draft-server-1')
        table, = answer['tables']
        line = table['rates'][2]
        self.assert_holds(line, packet_bytes=512, measured=1430000)
        self.assertAlmostEqual(line['predicted'] / 1430000 - 1,
                               line['error'])
        output = self.run_command('capacity', 'reproduce')[1]
        self.assertIn('Median absolute error', output)
        self.assertIn('draft-ports contradicts itself', output)
