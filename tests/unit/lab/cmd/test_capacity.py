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

    def test_fit_prints_costs_and_rates_for_a_person(self):
        status, output, errors = self.run_command(
            'capacity', 'fit', self._csv('128,400000,1', '1500,9000000,1'))
        self.assertEqual((0, ''), (status, errors))
        self.assertIn('us a packet', output)
        self.assertIn('LEFT_OUT', output)
        self.assertIn('The table contradicts itself:\n- 128 bytes', output)

    def test_fit_tells_what_is_wrong_with_file_or_arguments(self):
        for arguments, message in (
                (['/nowhere.csv'], 'table /nowhere.csv: cannot be read'),
                ([self._csv('1,x,1')], "rate_kbps: 'x'; expected a number"),
                ([self._known(), '--confidence', '1'],
                 'confidence: 1.0; expected a number between'),
                ([self._known(), '--line-kbps', '-1'],
                 'line_kbps: -1.0; expected')):
            status, _, errors = self.run_command('capacity', 'fit', *arguments)
            self.assertEqual(1, status)
            self.assertIn(message, errors)

    def test_reproduce_prints_each_figure_beside_its_prediction(self):
        answer = self.ask('capacity', 'reproduce', 'draft-server-1')
        table, = answer['tables']
        line = table['rates'][2]
        self.assertEqual((512, 1430000), (line['packet_bytes'],
                                          line['measured']))
        self.assertAlmostEqual(line['predicted'] / 1430000 - 1,
                               line['error'])
        status, output, _ = self.run_command('capacity', 'reproduce')
        self.assertEqual(0, status)
        self.assertIn('Median absolute error', output)
        self.assertIn('draft-ports contradicts itself', output)

    def test_a_table_that_is_not_there_is_told(self):
        status, _, errors = self.run_command('capacity', 'reproduce', 'x')
        self.assertEqual(1, status)
        self.assertIn("table: 'x'; expected one of draft-server-1", errors)
