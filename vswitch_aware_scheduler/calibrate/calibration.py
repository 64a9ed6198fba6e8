# SPDX-License-Identifier: Apache-2.0
"""One calibration: samples taken along a plan, and what they say.

Knows no namespaces and no SSH: a place (see :class:`Place`) builds what is
measured and says where senders are. Reads the clock of the CPU readings only.
"""

import abc
import dataclasses
import json
import math
import statistics
import time

from vswitch_aware_scheduler.calibrate import iperf
from vswitch_aware_scheduler.calibrate import machine
from vswitch_aware_scheduler.calibrate import plan as plans
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.vswitch import cost_fit
from vswitch_aware_scheduler.vswitch import cost_model
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['Calibration', 'Journal', 'Place', 'figures', 'make_profile',
           'verdict']

#: A rung of a ladder with no more loss than this is not overloaded.
LITTLE_LOSS = .01
#: Spread between builds up to which a cell counts as reproduced.
TOLERANCE = .10
_RETRY_SECONDS = .5
# When costs of packets and bytes are put into a profile.
_LEAST_FREEDOM = 3
_MOST_DEVIATION = .15


class Place(abc.ABC):
    """Where a calibration is done."""

    #: pids on this machine of the daemons of the switch
    daemons = ()
    #: where receivers can be, see plan.Cell
    placements = plans.PLACEMENTS

    @abc.abstractmethod
    def build(self):
        """Make what is measured, servers started."""

    @abc.abstractmethod
    def clear(self):
        """Remove it."""

    @abc.abstractmethod
    def clients(self, cell):
        """Return the iperf.Client of each sender of a cell."""

    @abc.abstractmethod
    def rtt_ms(self, cell):
        """Return the mean round trip time, in milliseconds."""

    def recover(self):
        """Start the servers anew after a test that failed."""

    def read_cpu(self):
        """Return the CPU times so far, for :meth:`cpu_use`."""
        return machine.read_cpu(switches=self.daemons)

    def cpu_use(self, first, last):
        """Return the CpuUse between two readings."""
        return machine.CpuUse.between(first, last)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One test: what it asked for, what came, and whether it counts.

    :ivar offered_kbps: of all senders; None when as much as they could
    :ivar received_kbps: UDP: of IP packets; TCP: of payload
    :ivar others_share: 0..1 of the CPUs that something else took meanwhile
    :ivar reason: why it was rejected, or None
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
        return plans.Cell(self.kind, self.placement, self.packet_bytes,
                          self.pairs, self.streams)


class Journal:
    """The samples of cells that are done, in a file, to go on from.

    :param path: of a file of JSON lines, or None: nothing is kept
    :param setting: what is measured and how; another one cannot go on
    """

    def __init__(self, path, setting):
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
                # What was cut off in the middle is measured again.
                file.truncate(0)
                file.writelines(whole or [
                    json.dumps({'setting': setting}) + '\n'])
        except OSError as error:
            raise exceptions.CalibrationError(
                f'journal {path}: it cannot be written ({error.strerror}), '
                f'wanted a file to keep samples in') from error

    def _read(self, lines, setting):
        whole = []
        for number, line in enumerate(lines):
            try:
                entry = json.loads(line)
                if number == 0:
                    before = entry['setting']
                else:
                    samples = [Sample(**one) for one in entry['samples']]
                    key = entry['repeat'], entry['cell']
            except (ValueError, KeyError, TypeError):
                if number == len(lines) - 1 and number:
                    break
                raise exceptions.CalibrationError(
                    f'journal {self._path}: line {number + 1} is '
                    f'{line.strip()[:60]!r}, wanted a journal of this '
                    f'command') from None
            if number == 0:
                for name in sorted({*before, *setting}):
                    if before.get(name) != setting.get(name):
                        raise exceptions.CalibrationError(
                            f'journal {self._path}: {name} was '
                            f'{before.get(name)!r}, now it is '
                            f'{setting.get(name)!r}; wanted the same, or '
                            f'another journal')
            else:
                self.samples.extend(samples)
                self.done.add(key)
            whole.append(line)
        return whole

    def add(self, repeat, cell, samples):
        """Keep the samples of a cell that is done."""
        self.samples.extend(samples)
        self.done.add((repeat, cell.key))
        if self._path is not None:
            with open(self._path, 'a', encoding='utf-8') as file:
                file.write(json.dumps({
                    'repeat': repeat, 'cell': cell.key, 'samples': [
                        dataclasses.asdict(one) for one in samples]}) + '\n')


class Calibration:
    """Takes the samples of a plan.

    :param place: Place
    :param plan: Plan
    :param max_busy: share of the CPUs that something else may take
    :param retries: how often a sample is taken again that was rejected
    :param journal: Journal
    :param can_ping: whether round trip times can be measured
    :param progress: function (text, share done, seconds left)
    """

    def __init__(self, place, plan, max_busy=.25, retries=3, journal=None,
                 can_ping=True, progress=None, measure=iperf.measure,
                 sleep=time.sleep, clock=time.monotonic):
        self._place, self._plan = place, plan
        self._max_busy, self._retries = max_busy, retries
        self._journal = journal or Journal(None, None)
        self._can_ping = can_ping
        self._progress = progress or (lambda *_: None)
        self._measure, self._sleep, self._clock = measure, sleep, clock

    def run(self):
        """Take all samples and return them, kept and rejected."""
        plan, journal = self._plan, self._journal
        cells = plan.cells(self._can_ping, self._place.placements)
        todo = [(repeat, cell) for repeat in range(1, plan.repeats + 1)
                for cell in cells if (repeat, cell.key) not in journal.done]
        planned = sum(plan.cell_seconds(cell) for _, cell in todo)
        began, passed = self._clock(), 0.0
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
                    pace = (self._clock() - began) / passed
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
        """Return the samples of a ladder: all they can, then less.

        An overloaded switch may deliver less than one that is offered less,
        so the peak is looked for between the most that passes without loss
        and the least that does not.
        """
        samples = self._tries(repeat, cell, None)
        last, free, lossy = samples[-1], None, None
        for _ in range(plans.MOST_RUNGS - 1):
            # Rejected so often: more rungs would be so too.
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
            found = self._tries(repeat, cell, following)
            samples += found
            last = found[-1]
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
                self._sleep(_RETRY_SECONDS * 2 ** number)
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
                f'{use.others_share:.0%} of its CPUs, wanted at most '
                f'{self._max_busy:.0%}')}
        return Sample(**made)

    def _test(self, cell, offered_kbps):
        if cell.kind == 'rtt':
            return {'rtt_ms': self._place.rtt_ms(cell)}
        clients = self._place.clients(cell)
        if cell.kind == 'tcp':
            found = iperf.together(self._measure(
                clients, 'tcp', self._plan.seconds, streams=cell.streams))
        else:
            payload = cell.packet_bytes - iperf.UDP_HEADERS
            each = None if offered_kbps is None else (
                offered_kbps * payload / cell.packet_bytes / len(clients))
            found = iperf.together(self._measure(
                clients, 'udp', self._plan.seconds, payload=payload,
                kbps=each))
        if found.received_kbps <= 0:
            raise exceptions.CalibrationError(
                'nothing arrived, wanted some packets')
        return {'sent_kbps': found.sent_kbps,
                'received_kbps': found.received_kbps,
                'packet_rate_kpps': found.received_kpps, 'loss': found.loss,
                'retransmits': found.retransmits, 'seconds': found.seconds}


def _said(sample):
    if not sample.kept:
        return f'rejected, {sample.reason}'
    if sample.kind == 'rtt':
        return f'{sample.rtt_ms:.3f} ms'
    return f'{sample.received_kbps:.0f} kbit/s'


# --- What the samples say ---------------------------------------------------

def figures(samples):
    """Return one entry for each cell that has a sample which was kept.

    The figure of a build is the peak of its ladder; that of a cell is the
    median of its builds, and ``spread`` is (highest - lowest) / median.
    ``cpu_us_per_packet`` is the CPU of senders, switches and receivers for a
    packet that arrived; other processes change it little.
    """
    by_cell = {}
    for sample in samples:
        builds = by_cell.setdefault(sample.cell, {})
        if sample.kept:
            builds.setdefault(sample.repeat, []).append(sample)
    found = []
    for cell, builds in by_cell.items():
        if not builds:
            continue
        entry = {**dataclasses.asdict(cell), 'builds': len(builds)}
        if cell.kind == 'rtt':
            values = [statistics.fmean(one.rtt_ms for one in build)
                      for build in builds.values()]
            entry['rtt_ms'] = statistics.median(values)
        else:
            peaks = [max(build, key=lambda one: one.received_kbps)
                     for build in builds.values()]
            values = [one.received_kbps for one in peaks]
            entry['saturation_kbps'] = statistics.median(values)
            if cell.kind == 'udp':
                entry['packet_rate_kpps'] = statistics.median(
                    one.packet_rate_kpps for one in peaks)
                entry['loss_at_peak'] = statistics.median(
                    one.loss for one in peaks)
                most = [one.loss for build in builds.values()
                        for one in build if one.offered_kbps is None]
                entry['loss_unlimited'] = (statistics.median(most) if most
                                           else None)
                entry['cpu_us_per_packet'] = statistics.median(
                    1e3 * one.our_cores / one.packet_rate_kpps
                    for one in peaks)
            for name in ('busy_cores', 'our_cores', 'switch_cores'):
                entry[name] = statistics.median(
                    getattr(one, name) for one in peaks)
        entry['spread'] = ((max(values) - min(values))
                           / statistics.median(values)
                           if len(values) > 1 else None)
        found.append(entry)
    return found


def verdict(entries, tolerance=TOLERANCE):
    """Return whether what was built anew carried the same.

    :returns: dict: ``reproducible`` is None with one build, else whether the
        spread of nine cells in ten is within the tolerance
    """
    spreads = [entry['spread'] for entry in entries
               if entry['spread'] is not None and entry['kind'] != 'rtt']
    if not spreads:
        return {'reproducible': None, 'tolerance': tolerance, 'cells': 0,
                'median_spread': None, 'worst_spread': None,
                'words': 'built once: wanted --repeats 2 or more to tell'}
    within = sum(spread <= tolerance for spread in spreads)
    good = within >= .9 * len(spreads)
    return {
        'reproducible': good, 'tolerance': tolerance, 'cells': len(spreads),
        'median_spread': statistics.median(spreads),
        'worst_spread': max(spreads),
        'words': f'{within} of {len(spreads)} cells spread by at most '
                 f'{tolerance:.0%} between builds'}


def cross_cells(entries):
    """Return the entries of UDP between the hosts: the size-pairs matrix."""
    return [entry for entry in entries
            if entry['kind'] == 'udp' and entry['placement'] == 'cross']


def measurements(entries, encapsulation, mhz=None):
    """Return the Measurements of the size-pairs matrix."""
    rows = []
    for entry in cross_cells(entries):
        cpu_mhz = entry['switch_cores'] * mhz if mhz else 0.0
        rows.append(cost_model.Measurement(
            entry['packet_bytes'], entry['saturation_kbps'], entry['pairs'],
            encapsulation=encapsulation, cpu_mhz=cpu_mhz or None))
    return rows


def _switch_cost(entries, encapsulation):
    """Return the PacketCost of the switch and the deviation of its fit.

    None where the figures do not determine it, or do not follow it.
    """
    model = cost_fit.fit_capacity(measurements(entries, encapsulation))
    cost = model.switch
    if cost is None or model.freedom < _LEAST_FREEDOM \
            or model.deviation > _MOST_DEVIATION \
            or cost.packet_us[encapsulation] + cost.byte_ns <= 0:
        return None, model.deviation
    return cost, model.deviation


def make_profile(entries, plan, name, switch, encapsulation, where, mhz=None,
                 description='', line_kbps=None):
    """Return the SwitchProfile of the figures.

    :param where: {word: text or number}, its provenance
    :param mhz: clock of a core, for the CPU that switching takes
    :param line_kbps: rate of the line that was measured over, or None
    :raises CalibrationError: when no size was measured between the hosts
    """
    cells = cross_cells(entries)
    if not cells:
        raise exceptions.CalibrationError(
            'no sample between the hosts was kept, wanted one or more: see '
            'the reasons of those rejected; --max-busy raises what other '
            'processes may take')
    table = {}
    for entry in cells:
        size = entry['packet_bytes']
        table[size] = max(table.get(size, 0.0), entry['saturation_kbps'])
    sizes = [size for size in table if size <= plan.typical_packet_bytes]
    typical = max(sizes, default=min(table))
    spreads = [entry['spread'] for entry in cells
               if entry['spread'] is not None]
    source = (f'measured {where["date"]}, {where["tool"]}, median of '
              f'{plan.repeats} builds, peak of a ladder of rates')
    stated = {
        'saturation_by_packet_bytes': {
            float(size): round(rate, 1)
            for size, rate in sorted(table.items())},
        'packet_rate_kpps': round(max(
            entry['packet_rate_kpps'] for entry in cells), 3),
        'typical_packet_bytes': float(typical)}
    one = [entry['saturation_kbps'] for entry in cells
           if entry['pairs'] == 1 and entry['packet_bytes'] == typical]
    # Where many carry no more than one, the limit is not the sender's.
    if one and one[0] < table[typical]:
        stated['vm_peak_kbps'] = round(one[0], 1)
    sources = dict.fromkeys(stated, source)
    cost, deviation = _switch_cost(entries, encapsulation)
    if cost is not None:
        # The time that packets and bytes take is one limit on both.
        stated |= {'packet_cost_us': round(cost.packet_us[encapsulation], 6),
                   'byte_cost_ns': round(cost.byte_ns, 6)}
        sources |= dict.fromkeys(
            ('packet_cost_us', 'byte_cost_ns'),
            f'least squares on the figures of all sizes and pairs, '
            f'deviation {deviation:.1%}')
    if line_kbps:
        stated['line_rate_kbps'] = float(line_kbps)
        sources['line_rate_kbps'] = f'speed that {where["nic"]} tells'
    rows = [row for row in measurements(entries, encapsulation, mhz)
            if row.cpu_mhz is not None]
    if rows:
        cost = cost_fit.fit_cpu(rows)
        stated |= {'cpu_idle_mhz': 0.0,
                   'cpu_mhz_per_kpps': round(cost.mhz_per_kpps, 6),
                   'cpu_mhz_per_mbps': round(cost.mhz_per_mbps, 6)}
        sources |= {key: source + ', both hosts together, network code of '
                    'the kernel and daemons of the switch'
                    for key in ('cpu_mhz_per_kpps', 'cpu_mhz_per_mbps')}
        sources['cpu_idle_mhz'] = 'estimate: a switch without traffic sleeps'
    where = {**where, 'repeats': plan.repeats, 'seconds': plan.seconds}
    if spreads:
        where['median_spread'] = round(statistics.median(spreads), 4)
        where['worst_spread'] = round(max(spreads), 4)
    return profile.SwitchProfile(
        name, switch=switch, description=description,
        encapsulation=encapsulation, sources=sources, provenance=where,
        **stated)
