# SPDX-License-Identifier: Apache-2.0

import unittest

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import plan


class TestPlan(unittest.TestCase):

    def test_the_matrix_has_each_size_with_each_number_of_pairs(self):
        matrix = plan.Plan(sizes=(1500, 88, 88), pairs=(2, 1), receivers=3)
        cells = matrix.cells()
        self.assertEqual(len(cells), len({cell.key for cell in cells}))
        self.assertEqual(
            {(88, 1), (88, 2), (1500, 1), (1500, 2)},
            {(cell.packet_bytes, cell.pairs) for cell in cells
             if (cell.kind, cell.placement) == ('udp', 'cross')})
        for kind, placement in (('tcp', 'cross'), ('tcp', 'same'),
                                ('udp', 'same'), ('udp', 'many'),
                                ('tcp', 'many'), ('rtt', 'cross'),
                                ('rtt', 'same')):
            self.assertTrue([cell for cell in cells if (
                cell.kind, cell.placement) == (kind, placement)])
        self.assertEqual({1, 4}, {cell.streams for cell in cells
                                  if cell.kind == 'tcp'})
        self.assertFalse([cell for cell in matrix.cells(can_ping=False)
                          if cell.kind == 'rtt'])
        self.assertEqual({'cross'}, {
            cell.placement for cell in matrix.cells(placements=('cross',))})

    def test_there_are_vms_and_an_mtu_for_all_of_it(self):
        matrix = plan.Plan(sizes=(88, 8000), pairs=(1,), receivers=3)
        self.assertEqual((3, 8000), (matrix.vms, matrix.mtu))
        matrix = plan.Plan(sizes=(88,), pairs=(1,), receivers=0)
        self.assertEqual((2, 1500), (matrix.vms, matrix.mtu))

    def test_the_typical_packet_is_what_standard_ethernet_carries(self):
        for sizes, typical in (((88, 1500, 8000), 1500), ((88, 512), 512),
                               ((4000, 8000), 4000)):
            self.assertEqual(typical,
                             plan.Plan(sizes=sizes).typical_packet_bytes)

    def test_sizes_are_those_that_fit_the_link(self):
        matrix = plan.Plan(sizes=(88, 512, 1500))
        self.assertEqual((88, 512, 1450),
                         matrix.within(1450, explicit=False).sizes)
        self.assertEqual(matrix, matrix.within(1500, explicit=True))
        with self.assertRaisesRegex(exceptions.InvalidInput,
                                    ': 1500; expected at most the MTU 1450'):
            matrix.within(1450, explicit=True)

    def test_segments_are_measured_with_each_number_of_pairs(self):
        cells = plan.Plan(pairs=(1, 4)).cells(segments=plan.SEGMENTS)
        self.assertEqual(
            {(size, pairs) for size in plan.SEGMENTS for pairs in (1, 4)},
            {(cell.packet_bytes, cell.pairs) for cell in cells
             if cell.kind == 'tcp' and cell.packet_bytes})
        self.assertEqual(len(cells), len(set(cells)))

    def test_time_grows_with_what_is_measured(self):
        short, long = plan.Plan(seconds=1), plan.Plan(seconds=10)
        for cell in short.cells():
            self.assertGreater(short.cell_seconds(cell), 1)
            if cell.kind != 'rtt':
                self.assertGreater(long.cell_seconds(cell),
                                   5 * short.cell_seconds(cell))
