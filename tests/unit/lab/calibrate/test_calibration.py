# SPDX-License-Identifier: Apache-2.0

import itertools
import pathlib
import tempfile
import unittest

import yaml

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import calibration
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import plan as plans
from vswitch_aware_scheduler.vswitch import profile


class Timer:
    """A second passes between two readings; sleeping takes no time."""

    def __init__(self):
        self.monotonic = itertools.count().__next__

    def sleep(self, seconds):
        pass


class Switch(calibration.Place):
    """A switch that is known: so many kpps, whatever the size.

    Senders send three times of it when they may; an overloaded switch
    delivers the less the more it is offered. The interfaces of receivers
    count the share ``arrives`` of what iperf3 counts. A segment of TCP costs
    as much as a packet, and ``byte_ns`` for each byte.
    """

    def __init__(self, kpps=100.0, sender_kpps=300.0, others=0.0,
                 arrives=1.0, byte_ns=1.0):
        self.kpps, self.sender_kpps = kpps, sender_kpps
        self._arrives, self._byte_ns = arrives, byte_ns
        self._counters = machine.InterfaceCounters()
        self._segment = None
        self.others = itertools.repeat(others) if isinstance(
            others, float) else others
        self.built = self.cleared = self.recovered = 0
        self.tests = []
        self._clock = self._others = 0.0
        self._start = True

    def build(self):
        self.built += 1

    def clear(self):
        self.cleared += 1

    def recover(self):
        self.recovered += 1

    def clients(self, cell):
        self._segment = cell.packet_bytes or 65536
        return [iperf.Sender(list, f'192.0.2.{i}')
                for i in range(cell.pairs)]

    def read_receivers(self, cell):
        return self._counters

    def _count(self, packets, payload, size):
        """Count packets that arrived. Return their bytes of payload."""
        packets = round(packets)
        self._counters += machine.InterfaceCounters(
            round(packets * self._arrives),
            round(packets * (size + 14) * self._arrives), 0, 0)
        return packets * payload

    def rtt_ms(self, cell):
        return {'cross': .8, 'same': .4}[cell.placement]

    def read_cpu(self):
        # A second and the share of it that others take, between two calls.
        if not self._start:
            self._clock += 1.0
            self._others += 2 * next(self.others)
        self._start = not self._start
        return machine.CpuReading(self._clock, 1.5 * self._clock, 0.0, 0.0,
                                  0.0, self._others, .5 * self._clock, 2)

    def measure(self, clients, protocol, seconds, payload=None, kbps=None,
                streams=1):
        self.tests.append((protocol, len(clients), payload, kbps, streams))
        if protocol == 'tcp':
            size = self._segment
            packets = seconds * 1e6 / (
                1e3 / self.kpps + self._byte_ns * size / 1e3) / len(clients)
            received = self._count(packets * len(clients), size - 52, size)
            kbps = 8 * received / len(clients) / seconds / 1e3
            return [iperf.Rates(
                seconds, kbps, kbps, received_bytes=received // len(clients))
                for _ in clients]
        size = payload + iperf.UDP_HEADERS
        sent = min(self.sender_kpps, kbps / (8 * payload)
                   if kbps else self.sender_kpps) * len(clients)
        received = min(sent, max(
            self.kpps - .3 * max(sent - self.kpps, 0.0), .1 * self.kpps))
        packets = round(sent * 1e3 * seconds / len(clients))
        lost = round((sent - received) * 1e3 * seconds / len(clients))
        arrived = packets - lost
        self._count(arrived * len(clients), payload, size)
        return [iperf.Rates(seconds, packets * 8 * size / seconds / 1e3,
                            arrived * 8 * size / seconds / 1e3,
                            packets, arrived, arrived * payload)
                for _ in clients]


def run(switch, plan, **options):
    return calibration.Calibration(
        switch, plan, measure=options.pop('measure', switch.measure),
        timer=Timer(), **options).run()


def failing(switch, number, error):
    """Return the measure of a switch, whose test of a number fails."""
    numbers = itertools.count()

    def measure(*arguments, **others):
        if next(numbers) == number:
            raise error
        return switch.measure(*arguments, **others)

    return measure


SMALL = plans.Plan(sizes=(88, 1500), pairs=(1, 2), seconds=1, repeats=1,
                   receivers=0)


class TestLadder(unittest.TestCase):

    def test_the_peak_of_an_overloaded_switch_is_found(self):
        # What is offered without limit brings 40 % of the peak.
        for kpps, sender in ((100.0, 300.0), (100.0, 120.0), (40.0, 900.0)):
            switch = Switch(kpps, sender)
            samples = run(switch, SMALL)
            for entry in calibration.figures(samples):
                if entry['kind'] != 'udp':
                    continue
                self.assertLessEqual(entry['packet_rate_kpps'], kpps * 1.001)
                self.assertGreaterEqual(entry['packet_rate_kpps'],
                                        kpps / plans.RUNG * .99)
                self.assertAlmostEqual(
                    entry['packet_rate_kpps'] * 8 * entry['packet_bytes'],
                    entry['saturation_kbps'], places=3)

    def test_a_switch_that_carries_all_needs_one_rung(self):
        switch = Switch(kpps=1000.0, sender_kpps=50.0)
        run(switch, SMALL)
        udp = [test for test in switch.tests if test[0] == 'udp']
        self.assertEqual(5, len(udp))        # four cells and the same host
        self.assertEqual({None}, {test[3] for test in udp})

    def test_a_ladder_has_an_end(self):
        switch = Switch(kpps=.001, sender_kpps=900.0)
        run(switch, SMALL)
        self.assertLessEqual(len(switch.tests), 5 * plans.MOST_RUNGS + 5)


class TestSamples(unittest.TestCase):

    def test_every_cell_is_measured_and_the_topology_built_anew(self):
        plan = plans.Plan(sizes=(88, 1500), pairs=(1, 2), seconds=1,
                          repeats=3, receivers=2)
        switch = Switch()
        samples = run(switch, plan)
        self.assertEqual((3, 3), (switch.built, switch.cleared))
        for repeat in (1, 2, 3):
            self.assertEqual(
                set(plan.cells()),
                {sample.cell for sample in samples if sample.repeat == repeat})
        self.assertTrue(all(sample.kept for sample in samples))

    def test_what_was_taken_on_a_busy_machine_is_rejected_and_retaken(self):
        # Busy twice, then calm.
        switch = Switch(others=itertools.chain(
            [.5, .5], itertools.repeat(.1)))
        samples = run(switch, SMALL, max_busy=.25, retries=3)
        self.assertEqual([False, False, True],
                         [sample.kept for sample in samples[:3]])
        # A rejected sample is in no figure.
        entry, = calibration.figures(samples[:3])
        self.assertEqual(samples[2].received_kbps, entry['saturation_kbps'])
        self.assertEqual([], calibration.figures(samples[:2]))
        self.assertEqual(
            'the machine was busy with something else: 50% of its CPUs; '
            'expected at most 25%', samples[0].reason)
        self.assertAlmostEqual(.5, samples[0].others_share)
        self.assertTrue(all(sample.kept for sample in samples[2:]))

    def test_what_the_interfaces_did_not_receive_is_rejected(self):
        for arrives, message in (
                (0.0, 'no packet arrived; expected at least one'),
                (.3, 'iperf3 counted [0-9]+ bytes that arrived, but the '
                     'interfaces of the receivers [0-9]+; expected')):
            samples = run(Switch(arrives=arrives), SMALL, retries=0)
            for sample in samples:
                if sample.kind != 'rtt':
                    self.assertFalse(sample.kept)
                    self.assertRegex(sample.reason, message)

    def test_an_always_busy_machine_gives_no_profile(self):
        switch = Switch(others=.9)
        samples = run(switch, SMALL, retries=1)
        self.assertFalse(any(sample.kept for sample in samples))
        # Each cell is tried twice, without climbing its ladder.
        self.assertEqual(2 * len(SMALL.cells()), len(samples))
        with self.assertRaisesRegex(
                exceptions.CalibrationError,
                'all samples between the hosts were rejected; .*--max-busy'):
            calibration.make_profile(
                calibration.figures(samples), SMALL, calibration.Subject(
                    'x', 'linuxbridge', 'none', {'date': 'd', 'tool': 't'}))

    def test_a_test_that_fails_is_told_and_servers_start_anew(self):
        switch = Switch()
        samples = run(switch, SMALL, measure=failing(
            switch, 0, exceptions.CalibrationError('server is busy')))
        self.assertEqual('server is busy', samples[0].reason)
        self.assertFalse(samples[0].kept)
        self.assertEqual(1, switch.recovered)
        self.assertTrue(samples[1].kept)

    def test_progress_ends_at_all_with_nothing_left(self):
        reports = []
        run(Switch(), SMALL, progress=lambda *report: reports.append(report))
        shares = [share for _, share, _ in reports]
        self.assertEqual(sorted(shares), shares)
        self.assertAlmostEqual(1.0, shares[-1])
        self.assertAlmostEqual(0.0, reports[-1][2])
        self.assertTrue(all(
            seconds_left > 0 for _, _, seconds_left in reports[:-1]))


class TestJournal(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()), 'journal')
        self.setting = {'switch': 'linuxbridge', 'plan': SMALL.to_dict()}

    def _journal(self, **changes):
        return calibration.Journal(self.path, {**self.setting, **changes})

    def _run(self, switch, **options):
        return run(switch, SMALL, journal=self._journal(), **options)

    def test_a_calibration_goes_on_where_it_was_interrupted(self):
        uninterrupted = run(Switch(), SMALL)
        switch = Switch()
        with self.assertRaises(KeyboardInterrupt):
            self._run(switch, measure=failing(switch, 9, KeyboardInterrupt()))
        self.assertEqual((1, 1), (switch.built, switch.cleared))
        journal = self._journal()
        self.assertTrue(0 < len(journal.done) < len(SMALL.cells()))
        switch = Switch()
        samples = self._run(switch)
        for name in ('cell', 'received_kbps'):
            self.assertEqual([getattr(sample, name)
                              for sample in uninterrupted],
                             [getattr(sample, name) for sample in samples])
        measured = sum(sample.kind != 'rtt' for sample in journal.samples)
        self.assertEqual(sum(sample.kind != 'rtt' for sample in uninterrupted)
                         - measured, len(switch.tests))

    def test_nothing_is_built_when_all_is_there(self):
        self._run(Switch())
        switch = Switch()
        samples = self._run(switch)
        self.assertEqual(0, switch.built)
        self.assertEqual(set(SMALL.cells()),
                         {sample.cell for sample in samples})

    def test_rejected_combinations_are_measured_again(self):
        # Busy once, in the first cell.
        self._run(Switch(others=itertools.chain(
            [.9], itertools.repeat(0.0))), retries=0)
        switch = Switch()
        samples = self._run(switch)
        self.assertEqual({88}, {payload + iperf.UDP_HEADERS
                                for _, _, payload, *_ in switch.tests})
        self.assertEqual(set(SMALL.cells()), {
            sample.cell for sample in samples if sample.kept})

    def test_a_line_that_was_cut_off_is_measured_again(self):
        self._run(Switch())
        *lines, last = self.path.read_text().splitlines(True)
        self.path.write_text(''.join([*lines, last[:30]]))
        self.assertEqual(len(lines) - 1, len(self._journal().done))
        self._run(Switch())
        self.assertEqual(len(lines) + 1,
                         len(self.path.read_text().splitlines()))

    def test_another_setting_is_refused_by_name(self):
        self._journal()
        with self.assertRaisesRegex(
                exceptions.CalibrationError,
                "switch: 'ovs-netdev'; expected 'linuxbridge' as in the "
                "journal"):
            self._journal(switch='ovs-netdev')

    def test_a_file_that_is_no_journal_stays_as_it_is(self):
        self.path.write_text('my notes\nmore of them\n')
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    "line 1: 'my notes'; expected a journal"):
            self._journal()
        self.assertEqual('my notes\nmore of them\n', self.path.read_text())


class TestFigures(unittest.TestCase):

    def _sample(self, repeat, kbps, **others):
        return calibration.Sample(**{
            'repeat': repeat, 'kind': 'udp', 'placement': 'cross',
            'packet_bytes': 1000, 'pairs': 1, 'streams': 1,
            'received_kbps': kbps, 'packet_rate_kpps': kbps / 8e3,
            'loss': 0.0, 'counted_bytes': 1000.0,
            'busy_cores': 1.0, 'our_cores': 1.0,
            'switch_cores': .5, **others})

    def test_a_cell_is_the_median_of_the_peaks_of_its_builds(self):
        entry, = calibration.figures([
            self._sample(1, 100.0), self._sample(1, 300.0),
            self._sample(2, 200.0), self._sample(3, 240.0)])
        self.assertEqual((240.0, 3),
                         (entry['saturation_kbps'], entry['builds']))
        self.assertAlmostEqual((300 - 200) / 240, entry['spread'])
        # One core for 30 packets/s.
        self.assertAlmostEqual(1e6 / 30, entry['cpu_us_per_packet'])

    def test_a_verdict_needs_two_builds(self):
        once = calibration.figures([self._sample(1, 100.0)])
        self.assertIsNone(calibration.verdict(once)['reproducible'])
        for kbps, good in ((105.0, True), (150.0, False)):
            entries = calibration.figures([
                self._sample(1, 100.0), self._sample(2, kbps)])
            self.assertIs(good, calibration.verdict(entries)['reproducible'])


SIZES = plans.Plan(sizes=(88, 250, 512, 1000, 1500), pairs=(1, 2, 4),
                   seconds=1, repeats=1, receivers=0)


def packets_only(plan):
    """Return samples of UDP: one sender 60 kpps, two senders 100 kpps."""
    return [sample for sample in run(Switch(100.0, 60.0), plan)
            if sample.kind == 'udp']


class Segments(Switch):
    segments = plans.SEGMENTS


class TestProfile(unittest.TestCase):

    def _make(self, samples, plan=SMALL, **others):
        return calibration.make_profile(
            calibration.figures(samples), plan, calibration.Subject(
                'measured', 'linuxbridge', 'vxlan',
                {'date': '2026-01-02', 'tool': 'test'}, **others))

    def test_the_profile_has_the_measured_figures_and_loads_from_a_file(self):
        measured = self._make(packets_only(SMALL), mhz=2000.0)
        self.assertAlmostEqual(60 * 8 * 1500, measured.vm_peak_kbps, delta=1)
        for size, rate in measured.saturation_by_packet_bytes.items():
            self.assertGreater(rate, 8 * size * 100 / plans.RUNG * .99)
            self.assertLessEqual(rate, 8 * size * 100 * 1.001)
        self.assertEqual(1500, measured.typical_packet_bytes)
        self.assertEqual('vxlan', measured.encapsulation)
        self.assertEqual('2026-01-02', measured.provenance['date'])
        # Half a core of 2000 MHz for the switch, and that for all packets.
        self.assertGreater(measured.cpu_mhz(measured.saturation_kbps_at()),
                           500)
        entry = measured.to_dict()
        del entry['name']
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, 'p.yaml')
            path.write_text(yaml.safe_dump({'measured': entry}))
            self.assertEqual({'measured': measured},
                             profile.load_profiles(path, {}))

    def test_costs_are_stated_where_the_figures_tell_them(self):
        measured = self._make(packets_only(SIZES), SIZES)
        # 100 kpps are 10 us each; a ladder ends within a rung of the peak.
        self.assertGreaterEqual(measured.packet_cost_us, 10 * .999)
        self.assertLessEqual(measured.packet_cost_us, 10 * plans.RUNG)
        self.assertLess(measured.byte_cost_ns * 1.5, 1)
        self.assertIn('switching', [limit.name for limit in measured.limits()])
        # Two sizes and two numbers of pairs leave nothing to judge by.
        self.assertIsNone(self._make(packets_only(SMALL)).packet_cost_us)

    def test_large_segments_and_small_packets_cost_what_they_cost(self):
        # A packet takes 10 us and a byte 0.2 ns, which is little below 1500.
        switch = Segments(kpps=100.0, sender_kpps=99.0, byte_ns=.2)
        measured = self._make(run(switch, SIZES), SIZES)
        self.assertAlmostEqual(10, measured.packet_cost_us, delta=10 * .1)
        self.assertAlmostEqual(.2, measured.byte_cost_ns, delta=.2 * .1)
        self.assertIsNone(measured.saturation_by_packet_bytes)
        switching, = [limit for limit in measured.limits()
                      if limit.name == 'switching']
        # So many packets or segments fill the switch: neither is refused.
        for size in (88, 1500, 65536):
            kpps = 1e3 / (10 + .2 * size / 1e3)
            used = (switching.weights[0] * kpps * 8 * size
                    + switching.weights[2] * kpps)
            self.assertAlmostEqual(1, used, delta=.1)
            for limit in measured.limits():
                self.assertLessEqual(
                    limit.weights[0] * kpps * 8 * size
                    + limit.weights[2] * kpps, limit.capacity * 1.1)

    def test_segments_that_follow_no_cost_are_not_promised_too_much(self):
        class Uneven(Segments):
            def read_receivers(self, cell):
                # Large segments are as fast as packets, small ones are not.
                self._byte_ns = 9 if (cell.packet_bytes or 0) < 30000 else .1
                return super().read_receivers(cell)

        samples = run(Uneven(kpps=100.0, sender_kpps=99.0), SIZES)
        measured = self._make(samples, SIZES)
        # One sender fills the switch.
        self.assertIsNone(measured.vm_peak_kbps)
        self.assertIsNone(measured.saturation_by_packet_bytes)
        self.assertIn('not below any', measured.sources['packet_cost_us'])
        rows = calibration.measurements(calibration.figures(samples), 'vxlan')
        fastest = max(row.rate_kbps for row in rows)
        for row in rows:
            if row.packet_bytes > 60000 and row.rate_kbps == fastest:
                self.assertLessEqual(
                    measured.bandwidth_kbps(row.packet_bytes),
                    row.rate_kbps * 1.001)
        self.assertGreater(measured.bandwidth_kbps(65536),
                           10 * measured.bandwidth_kbps(1500))

    def test_a_profile_of_few_results_is_refused(self):
        samples = run(Switch(), SIZES)
        few = [sample for sample in samples if sample.packet_bytes == 1500]
        with self.assertRaisesRegex(
                exceptions.CalibrationError,
                'a valid sample: 3 of 15; expected at least half'):
            self._make(few, SIZES)
        some = [sample for sample in samples if sample.packet_bytes != 1500]
        self.assertEqual('12 of 15', self._make(
            some, SIZES).provenance['combinations'])
