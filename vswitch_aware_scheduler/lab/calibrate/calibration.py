# SPDX-License-Identifier: Apache-2.0
"""One calibration: takes the samples of a plan and evaluates them.

No namespaces and no SSH: a place (see :class:`Place`) sets up what is measured
and starts senders. The only clock is that of CPU readings.
"""

import abc
import dataclasses
import json
import math
import statistics
import time

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import plan as plans
from vswitch_aware_scheduler.lab.capacity import cost_fit
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab.capacity import measurements as tables
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['Calibration', 'Journal', 'Place', 'Subject', 'figures',
           'make_profile', 'verdict']

#: A rate of a ladder of rates is not overload if at most this share is lost.
LITTLE_LOSS = .01
#: Least share of the payload that receivers counted which their interfaces
#: must also have received.
_LEAST_ARRIVED = .98
#: Least share of the combinations of sizes and pairs with a result.
_LEAST_MEASURED = .5
#: Largest spread between set-ups of a reproducible cell.
TOLERANCE = .10
_RETRY_SECONDS = .5
# Conditions for adding costs of packets and bytes to a profile.
_LEAST_FREEDOM = 3
_MOST_DEVIATION = .15


class Place(abc.ABC):
    """The environment of a calibration."""

    #: pids on this machine of the daemons of the switch
    daemons = ()
    #: where receivers can be, see plan.Cell
    placements = plans.PLACEMENTS
    #: largest segments of TCP that the place can set, see plan.Cell
    segments = (None,)

    @abc.abstractmethod
    def build(self):
        """Set up what is measured, and start the servers."""

    @abc.abstractmethod
    def clear(self):
        """Remove what :meth:`build` has set up."""

    @abc.abstractmethod
    def clients(self, cell):
        """Return the iperf.Sender of each sender of a cell."""

    @abc.abstractmethod
    def read_receivers(self, cell):
        """Return the InterfaceCounters of the receivers, added up."""

    @abc.abstractmethod
    def rtt_ms(self, cell):
        """Return the mean round trip time in milliseconds."""

    def can_ping(self) -> bool:
        """Return whether round trip times can be measured."""
        return True

    def recover(self) -> None:
        """Restart the servers after a test that failed."""

    def read_cpu(self):
        """Return a reading of the CPU times, for :meth:`cpu_use`."""
        return machine.read_cpu(switches=self.daemons)

    def cpu_use(self, first, last):
        """Return the CpuUse between two readings."""
        return machine.CpuUse.between(first, last)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One test: the offered traffic, the result, and whether it counts.

    :ivar reason: why it was rejected, or None
    :ivar offered_kbps: offered traffic of all senders; None for the maximum
        rate
    :ivar received_kbps: of UDP the rate of IP packets, of TCP that of payload
    :ivar packet_rate_kpps: of UDP the packets that arrived; of TCP those that
        the interfaces of the receivers counted, both directions
    :ivar counted_bytes: mean size of an IP packet that these interfaces
        counted, both directions
    :ivar others_share: share of the CPUs that other processes used, 0..1
    """

    repeat: int
    kind: str
    placement: str
    packet_bytes: int | None
    pairs: int
    streams: int
    offered_kbps: float | None = None
    sent_kbps: float | None = None
    received_kbps: float | None = None
    packet_rate_kpps: float | None = None
    counted_bytes: float | None = None
    loss: float | None = None
    retransmits: int | None = None
    rtt_ms: float | None = None
    seconds: float | None = None
    busy_cores: float | None = None
    our_cores: float | None = None
    switch_cores: float | None = None
    others_share: float | None = None
    kept: bool = True
    reason: str | None = None

    @property
    def cell(self):
        """The :class:`.plan.Cell` of the sample."""
        return plans.Cell(self.kind, self.placement, self.packet_bytes,
                          self.pairs, self.streams)


class Journal:
    """Saves the samples of finished cells in a file, to continue later."""

    def __init__(self, path: str | None, setting) -> None:
        self._path = path
        self.samples = []
        self.done = set()
        if path is None:
            return
        setting = json.loads(json.dumps(setting))
        try:
            with open(path, 'a+', encoding='utf-8') as file:
                file.seek(0)
                lines = file.read().splitlines(keepends=True)
                whole = self._read(lines, setting)
                # An incomplete last line is measured again.
                file.truncate(0)
                file.writelines(whole or [
                    json.dumps({'setting': setting}) + '\n'])
        except OSError as error:
            raise exceptions.CalibrationError(
                f'journal {path}: cannot be written ({error.strerror}); '
                f'expected a writable file for samples') from error

    def _read(self, lines, setting):
        complete_lines = []
        for number, line in enumerate(lines):
            try:
                entry = json.loads(line)
                if number == 0:
                    before = entry['setting']
                else:
                    samples = [Sample(**stored) for stored in entry['samples']]
                    key = entry['repeat'], entry['cell']
            except (ValueError, KeyError, TypeError):
                if number == len(lines) - 1 and number:
                    break
                raise exceptions.CalibrationError(
                    f'journal {self._path}: line {number + 1}: '
                    f'{line.strip()[:60]!r}; expected a journal of this '
                    f'command') from None
            if number == 0:
                for name in sorted({*before, *setting}):
                    if before.get(name) != setting.get(name):
                        raise exceptions.CalibrationError(
                            f'journal {self._path}: {name}: '
                            f'{setting.get(name)!r}; expected '
                            f'{before.get(name)!r} as in the journal. Use '
                            f'the same settings or another journal')
            else:
                self._extend(key, samples)
            complete_lines.append(line)
        return complete_lines

    def _extend(self, key, samples):
        self.samples.extend(samples)
        # Rejected samples are measured again.
        if any(sample.kept for sample in samples):
            self.done.add(key)

    def add(self, repeat: int, cell, samples: list) -> None:
        """Save the samples of a finished cell."""
        self._extend((repeat, cell.key), samples)
        if self._path is not None:
            with open(self._path, 'a', encoding='utf-8') as file:
                file.write(json.dumps({
                    'repeat': repeat, 'cell': cell.key, 'samples': list(map(
                        dataclasses.asdict, samples))}) + '\n')


class Calibration:
    """Takes the samples of a plan.

    :param max_busy: largest share of the CPUs that other processes may use
    :param progress: callable(text, finished share, remaining seconds)
    """

    def __init__(self, place, plan, max_busy=.25, retries=3, journal=None,
                 progress=None, measure=iperf.measure, timer=time):
        self._place, self._plan = place, plan
        self._max_busy, self._retries = max_busy, retries
        self._journal = journal or Journal(None, None)
        self._progress = progress or (lambda *_: None)
        self._measure, self._timer = measure, timer

    def run(self) -> list:
        """Take all samples."""
        plan, journal = self._plan, self._journal
        cells = plan.cells(self._place.can_ping(), self._place.placements,
                           self._place.segments)
        todo = [(repeat, cell) for repeat in range(1, plan.repeats + 1)
                for cell in cells if (repeat, cell.key) not in journal.done]
        planned = sum(plan.cell_seconds(cell) for _, cell in todo)
        began, passed = self._timer.monotonic(), 0.0
        for repeat in range(1, plan.repeats + 1):
            own = [cell for number, cell in todo if number == repeat]
            if not own:
                continue
            self._progress(f'build {repeat} of {plan.repeats}',
                           passed / planned, planned - passed)
            self._place.build()
            try:
                for cell in own:
                    journal.add(repeat, cell, self._cell(repeat, cell))
                    passed += plan.cell_seconds(cell)
                    pace = (self._timer.monotonic() - began) / passed
                    last = journal.samples[-1]
                    self._progress(
                        f'build {repeat} of {plan.repeats}: {cell}: '
                        f'{_said(last)}', passed / planned,
                        (planned - passed) * pace)
            finally:
                self._place.clear()
        return list(journal.samples)

    def _cell(self, repeat, cell):
        if cell.kind == 'udp':
            return self._ladder(repeat, cell)
        return self._tries(repeat, cell, None)

    def _ladder(self, repeat, cell):
        """Return the samples of a ladder: the maximum rate, then lower rates.

        An overloaded switch may deliver less than a switch with a lower
        offered rate. The peak is therefore searched between the largest rate
        without loss and the smallest rate with loss.
        """
        samples = self._tries(repeat, cell, None)
        last, free, lossy = samples[-1], None, None
        for _ in range(plans.MOST_RUNGS - 1):
            # After this many rejections, further rungs would also be rejected.
            if not last.kept:
                break
            offered = last.offered_kbps or last.sent_kbps
            if last.loss <= LITTLE_LOSS:
                free = max(offered, free or 0.0)
            else:
                lossy = min(offered, lossy or math.inf)
            if lossy is None or free and lossy <= free * plans.RUNG:
                break
            following = (math.sqrt(free * lossy) if free else min(
                last.received_kbps * plans.RUNG, lossy / plans.RUNG))
            next_samples = self._tries(repeat, cell, following)
            samples += next_samples
            last = next_samples[-1]
        return samples

    def _tries(self, repeat, cell, offered_kbps):
        samples = []
        for number in range(self._retries + 1):
            sample = self._sample(repeat, cell, offered_kbps)
            samples.append(sample)
            if sample.kept:
                break
            if sample.received_kbps is None and sample.rtt_ms is None:
                self._place.recover()
            if number < self._retries:
                self._timer.sleep(_RETRY_SECONDS * 2 ** number)
        return samples

    def _sample(self, repeat, cell, offered_kbps):
        made = {'repeat': repeat, **dataclasses.asdict(cell),
                'offered_kbps': offered_kbps}
        before = self._place.read_cpu()
        try:
            made |= self._test(cell, offered_kbps)
        except exceptions.CalibrationError as error:
            made |= {'kept': False, 'reason': str(error)}
        use = self._place.cpu_use(before, self._place.read_cpu())
        made |= {'busy_cores': use.busy_cores, 'our_cores': use.our_cores,
                 'switch_cores': use.switch_cores,
                 'others_share': use.others_share}
        if 'reason' not in made and use.others_share > self._max_busy:
            made |= {'kept': False, 'reason': (
                f'the machine was busy with something else: '
                f'{use.others_share:.0%} of its CPUs; expected at most '
                f'{self._max_busy:.0%}')}
        return Sample(**made)

    def _test(self, cell, offered_kbps):
        if cell.kind == 'rtt':
            return {'rtt_ms': self._place.rtt_ms(cell)}
        clients = self._place.clients(cell)
        first = self._place.read_receivers(cell)
        if cell.kind == 'tcp':
            rates = iperf.together(self._measure(
                clients, 'tcp', self._plan.seconds, streams=cell.streams))
        else:
            payload = cell.packet_bytes - iperf.UDP_HEADERS
            client_kbps = None if offered_kbps is None else (
                offered_kbps * payload / cell.packet_bytes / len(clients))
            rates = iperf.together(self._measure(
                clients, 'udp', self._plan.seconds, payload=payload,
                kbps=client_kbps))
        counted = self._place.read_receivers(cell).since(first)
        if rates.received_kbps <= 0 or not counted.received_packets:
            raise exceptions.CalibrationError(
                'no packet arrived; expected at least one')
        if counted.received_bytes < _LEAST_ARRIVED * rates.received_bytes:
            raise exceptions.CalibrationError(
                f'iperf3 counted {rates.received_bytes} bytes that arrived, '
                f'but the interfaces of the receivers '
                f'{counted.received_bytes}; expected at least as many')
        counted_bytes = counted.ip_bytes / counted.packets
        kpps = rates.received_kpps
        if kpps is None:
            # The rate of payload, with the headers and acknowledgements.
            kpps = (rates.received_kbps * counted.packets
                    / (8 * rates.received_bytes))
        return {'sent_kbps': rates.sent_kbps,
                'received_kbps': rates.received_kbps,
                'packet_rate_kpps': kpps, 'counted_bytes': counted_bytes,
                'loss': rates.loss,
                'retransmits': rates.retransmits, 'seconds': rates.seconds}


def _said(sample):
    if not sample.kept:
        return f'rejected, {sample.reason}'
    if sample.kind == 'rtt':
        return f'{sample.rtt_ms:.3f} ms'
    return f'{sample.received_kbps:.0f} kbit/s'


# --- What the samples say ---------------------------------------------------

#: Keys of the medians of a cell, and the attribute of a Sample.
_MEDIANS = {'saturation_kbps': 'received_kbps', **{name: name for name in (
    'packet_rate_kpps', 'counted_bytes', 'busy_cores', 'our_cores',
    'switch_cores')}}


def figures(samples: list) -> list:
    """Return one entry for each cell that has an accepted sample.

    The result of a set-up is the peak of its ladder. The result of a cell is
    the median over its set-ups, and ``spread`` is (highest - lowest) / median.
    ``cpu_us_per_packet`` is the CPU time of senders, switches and receivers
    for a received packet; other processes have little influence on it.
    """
    by_cell = {}
    for sample in samples:
        builds = by_cell.setdefault(sample.cell, {})
        if sample.kept:
            builds.setdefault(sample.repeat, []).append(sample)
    entries = []
    for cell, builds in by_cell.items():
        if not builds:
            continue
        entry = {**dataclasses.asdict(cell), 'builds': len(builds)}
        if cell.kind == 'rtt':
            values = [statistics.fmean(sample.rtt_ms for sample in build)
                      for build in builds.values()]
            entry['rtt_ms'] = statistics.median(values)
        else:
            peaks = [max(build, key=lambda sample: sample.received_kbps)
                     for build in builds.values()]
            values = [peak.received_kbps for peak in peaks]
            for key, name in _MEDIANS.items():
                entry[key] = statistics.median(
                    getattr(peak, name) for peak in peaks)
            entry['cpu_us_per_packet'] = statistics.median(
                1e3 * peak.our_cores / peak.packet_rate_kpps
                for peak in peaks)
            if cell.kind == 'udp':
                entry['loss_at_peak'] = statistics.median(
                    peak.loss for peak in peaks)
                unlimited = [
                    sample.loss for build in builds.values()
                    for sample in build if sample.offered_kbps is None]
                entry['loss_unlimited'] = (statistics.median(unlimited)
                                           if unlimited else None)
        entry['spread'] = ((max(values) - min(values))
                           / statistics.median(values)
                           if len(values) > 1 else None)
        entries.append(entry)
    return entries


def verdict(entries: list, tolerance: float = TOLERANCE) -> dict:
    """Return whether repeated set-ups had the same results.

    :param tolerance: largest accepted spread
    :returns: dict: ``reproducible`` is None with one set-up, else whether the
        spread of nine of ten cells is within the tolerance
    """
    spreads = [entry['spread'] for entry in entries
               if entry['spread'] is not None and entry['kind'] != 'rtt']
    if not spreads:
        return {'reproducible': None, 'tolerance': tolerance, 'cells': 0,
                'median_spread': None, 'worst_spread': None,
                'words': 'built once; expected --repeats 2 or more'}
    within = sum(spread <= tolerance for spread in spreads)
    good = within >= .9 * len(spreads)
    return {
        'reproducible': good, 'tolerance': tolerance, 'cells': len(spreads),
        'median_spread': statistics.median(spreads),
        'worst_spread': max(spreads),
        'words': f'{within} of {len(spreads)} cells spread by at most '
                 f'{tolerance:.0%} between builds'}


def cross_cells(entries: list) -> list:
    """Return the entries that were measured with UDP between two hosts.

    There is one entry for each packet size and number of pairs.
    """
    return [entry for entry in entries
            if entry['kind'] == 'udp' and entry['placement'] == 'cross']


def segment_cells(entries: list) -> list:
    """Return the entries that were measured with TCP between two hosts.

    There is one entry for each size of segments and number of pairs.
    """
    return [entry for entry in entries
            if (entry['kind'], entry['placement'], entry['streams'])
            == ('tcp', 'cross', 1)]


def measurements(entries, encapsulation, mhz=None):
    """Return the list of the Measurements of sizes and pairs.

    A row of TCP has the mean size of the packets that the interfaces counted,
    which segmentation offload makes larger than the MTU.
    """
    rows = []
    for entry in cross_cells(entries) + segment_cells(entries):
        size = (entry['packet_bytes'] if entry['kind'] == 'udp'
                else entry['counted_bytes'])
        cpu_mhz = entry['switch_cores'] * mhz if mhz else 0.0
        rows.append(cost_model.Measurement(
            size, 8 * size * entry['packet_rate_kpps'], entry['pairs'],
            encapsulation=encapsulation, cpu_mhz=cpu_mhz or None))
    return rows


def _switch_cost(rows, encapsulation):
    """Return the cost of a packet in us and of a byte in ns for the switch.

    None if the results do not determine the cost or do not follow it.
    """
    model = cost_fit.fit_capacity(rows)
    cost = model.switch
    if cost is None or model.freedom < _LEAST_FREEDOM \
            or model.deviation > _MOST_DEVIATION \
            or cost.packet_us[encapsulation] + cost.byte_ns <= 0:
        return None
    return cost.packet_us[encapsulation], cost.byte_ns


@dataclasses.dataclass(frozen=True)
class Subject:
    """What was measured and what its profile says of it.

    :ivar where: {word: text or number}, the provenance, with ``date`` and
        ``tool``
    :ivar line_kbps: rate of the line, or None
    """

    name: str
    switch: str
    encapsulation: str
    where: dict
    description: str = ''
    mhz: float | None = None
    line_kbps: float | None = None


def make_profile(entries: list, plan: plans.Plan, subject: Subject):
    """Return the SwitchProfile of the results.

    :raises CalibrationError: if there is no accepted sample between the hosts
    """
    cells, planned = cross_cells(entries), len(plan.sizes) * len(plan.pairs)
    _check_enough(len(cells), planned)
    source = (f'measured {subject.where["date"]}, {subject.where["tool"]}, '
              f'median of {plan.repeats} builds, peak of a ladder of rates')
    parts = [_rates(entries, plan, subject.encapsulation, source),
             _cpu(measurements(entries, subject.encapsulation, subject.mhz),
                  source)]
    if subject.line_kbps:
        parts.append({'line_rate_kbps': (
            float(subject.line_kbps),
            f'speed reported by {subject.where["nic"]}')})
    numbers = {key: stated for part in parts for key, stated in part.items()}
    where = {**subject.where, 'repeats': plan.repeats,
             'seconds': plan.seconds,
             'combinations': f'{len(cells)} of {planned}'}
    spreads = [entry['spread'] for entry in cells
               if entry['spread'] is not None]
    if spreads:
        where['median_spread'] = round(statistics.median(spreads), 4)
        where['worst_spread'] = round(max(spreads), 4)
    return profile.SwitchProfile(
        subject.name, switch=subject.switch, description=subject.description,
        encapsulation=subject.encapsulation, provenance=where,
        sources={key: text for key, (_, text) in numbers.items()},
        **{key: number for key, (number, _) in numbers.items()})


def _check_enough(measured, planned):
    if not measured:
        raise exceptions.CalibrationError(
            'all samples between the hosts were rejected; expected one valid '
            'sample or more. The output above has the reasons. If other '
            'processes use the CPUs, raise --max-busy')
    if measured < _LEAST_MEASURED * planned:
        raise exceptions.CalibrationError(
            f'combinations of sizes and pairs with a valid sample: '
            f'{measured} of {planned}; expected at least half. The output '
            f'above has the reasons')


def _rates(entries, plan, encapsulation, source):
    """Return {key: (number, source)} of what the switch carries."""
    cells = cross_cells(entries)
    table = tables.rates_by_size(
        (entry['packet_bytes'], entry['saturation_kbps']) for entry in cells)
    typical = tables.typical_size(table, plan.typical_packet_bytes)
    numbers = {
        'packet_rate_kpps': round(max(
            entry['packet_rate_kpps'] for entry in cells), 3),
        'typical_packet_bytes': typical}
    rows = measurements(entries, encapsulation)
    cost, fit = _switch_cost(rows, encapsulation), 'least squares on'
    if len(rows) > len(cells):
        if cost is None:
            # The saturation at the typical size would limit large segments
            # too.
            cost = cost_fit.covering_cost(rows)
            fit = 'lowest cost that is not below any of'
    else:
        numbers['saturation_by_packet_bytes'] = {
            size: round(rate, 1) for size, rate in table.items()}
        rows = [row for row in rows if row.packet_bytes == typical]
    single = max((row.rate_kbps for row in rows if row.pairs == 1),
                 default=math.inf)
    # If many senders have no higher rate than one, the sender is not the
    # limit.
    if single < max(row.rate_kbps for row in rows):
        numbers['vm_peak_kbps'] = round(single, 1)
    numbers = {key: (number, source) for key, number in numbers.items()}
    if cost is not None:
        # The time for packets and bytes is one common limit.
        source = f'{fit} the figures of all sizes and pairs'
        numbers |= {'packet_cost_us': (round(cost[0], 6), source),
                    'byte_cost_ns': (round(cost[1], 6), source)}
    return numbers


def _cpu(rows, source):
    """Return {key: (number, source)} of the processor use of switching."""
    rows = [row for row in rows if row.cpu_mhz is not None]
    if not rows:
        return {}
    cost = cost_fit.fit_cpu(rows)
    source += (', both hosts together, network code of the kernel and daemons '
               'of the switch')
    return {'cpu_idle_mhz': (
                0.0, 'estimate: a switch without traffic sleeps'),
            'cpu_mhz_per_kpps': (round(cost.mhz_per_kpps, 6), source),
            'cpu_mhz_per_mbps': (round(cost.mhz_per_mbps, 6), source)}
