# SPDX-License-Identifier: Apache-2.0
"""Imports results measured elsewhere: JSON of iperf3 and CSV of VSPERF."""

import dataclasses
import datetime
import re

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab.capacity import measurements
from vswitch_aware_scheduler.lab import stated
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['FORMATS', 'PASSES', 'Results', 'Setting', 'load', 'make_profile',
           'parse_iperf3', 'parse_vsperf']

#: How often a frame passes the switch in a deployment of VSPERF. Between
#: ports (p2p) once; through one VM (pvp), or one of several VMs in parallel
#: (pvpv), on the way to the VM and back; through two VMs in a row (pvvp) three
#: times.
PASSES = {'p2p': 1, 'op2p': 1, 'pvp': 2, 'pvpv': 2, 'pvvp': 3}

#: Bytes of a frame in addition to its IP packet: header and frame check.
_FRAME_BYTES = 18


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the files do not state, and which rows of them count.

    :ivar encapsulation: encapsulation of the tested network; None: the one
        that the file states, or 'none'
    :ivar deployment: deployment of the rows of VSPERF; None: all, which have
        to be of one deployment
    :ivar streams: number of streams of the rows of VSPERF; None: all
    :raises InvalidInput: if a number is out of range
    """

    encapsulation: str | None = None
    pairs: int = 1
    mtu: int = iperf.STANDARD_MTU
    deployment: str | None = None
    streams: int | None = None

    def __post_init__(self):
        for name, kind in (('pairs', checks.whole()),
                           ('mtu', checks.whole(68)),
                           ('streams', checks.whole(default=None))):
            checks.check(name, getattr(self, name), kind)


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of one file.

    :ivar conditions: {word: text or number} for the provenance
    """

    measurements: list
    remarks: list = dataclasses.field(default_factory=list)
    conditions: dict = dataclasses.field(default_factory=dict)


def parse_iperf3(text: str, place: str, setting: Setting) -> Results:
    """Return the Results of the JSON of ``iperf3 -J`` with UDP.

    A TCP test is rejected, because it does not state its packet sizes.

    :raises CalibrationError: if the text is not the JSON of a UDP test
    """
    rates = iperf.parse(text, place, setting.mtu)
    if rates.packets is None:
        raise exceptions.CalibrationError(
            f'{place}: protocol: TCP; expected UDP (iperf3 -u), because a '
            'test of TCP does not have packet sizes')
    if rates.received_packets <= 0:
        raise exceptions.CalibrationError(
            f'{place}: none of {rates.packets} packets arrived; expected at '
            f'least one')
    size = rates.received_kbps / (8 * rates.received_kpps)
    return Results([
        cost_model.Measurement(
            round(size, 3), rates.received_kbps, setting.pairs,
            encapsulation=setting.encapsulation or 'none')],
        conditions={'mtu': setting.mtu})


def parse_vsperf(text: str, place: str, setting: Setting) -> Results:
    """Return the Results of a result CSV of OPNFV VSPERF.

    Throughput tests write ``throughput_rx_fps`` by ``packet_size``, which is
    the size of a frame. Overlay tests also have ``tunnel_type``. The frames
    per second are those received on all ports together. A frame passes the
    switch as often as :data:`PASSES` says. Rows of back-to-back tests have no
    rate and do not count. Of rows with several numbers of streams, the
    slowest of each size counts, because a switch with more flows is slower.

    :raises CalibrationError: if a column is missing, a number is invalid,
        there is no row, or the rows have different deployments
    """
    remarks, rows = [], []
    for where, row in stated.read_csv(
            text, place, ('packet_size', 'throughput_rx_fps'),
            exceptions.CalibrationError):
        if 'back2back' in row.get('traffic_type', '') or (
                row.get('b2b_frames') and not row['throughput_rx_fps']):
            remarks.append(f'{where}: a back-to-back test has no rate; the '
                           f'row does not count')
            continue
        rows.append((where, row))
    deployments = {row.get('deployment', '') for _, row in rows}
    if setting.deployment is not None:
        rows = [(where, row) for where, row in rows
                if row.get('deployment') == setting.deployment]
    elif len(deployments) > 1:
        raise exceptions.CalibrationError(
            f'{place}: deployments: {", ".join(sorted(deployments))}; '
            f'expected one, because a frame passes the switch a different '
            f'number of times in each. Choose one with --deployment')
    streams = {}
    slowest = {}
    for where, row in rows:
        count = round(_number(row, 'stream_count', where)) \
            if row.get('stream_count') else 1
        if setting.streams not in (None, count):
            continue
        measurement = _of_row(row, where, setting)
        key = measurement.packet_bytes, measurement.encapsulation
        if key not in slowest or \
                measurement.rate_kbps < slowest[key].rate_kbps:
            slowest[key], streams[key] = measurement, count
    if not slowest:
        raise exceptions.CalibrationError(
            f'{place}: no row below the header that counts; expected 1 or '
            f'more')
    return Results(list(slowest.values()), remarks, {
        'deployment': setting.deployment or ', '.join(deployments) or 'p2p',
        'streams': max(streams.values())})


def _of_row(row, where, setting):
    size = _number(row, 'packet_size', where)
    rate = _number(row, 'throughput_rx_fps', where)
    if size <= _FRAME_BYTES or rate <= 0:
        raise exceptions.CalibrationError(
            f'{where}: packet_size = {size:g}, throughput_rx_fps = '
            f'{rate:g}; expected frames of more than {_FRAME_BYTES} bytes '
            f'and a rate above 0')
    deployment = row.get('deployment') or 'p2p'
    if deployment not in PASSES:
        raise exceptions.CalibrationError(
            f'{where}: deployment: {deployment!r}; expected one of '
            f'{", ".join(PASSES)}')
    packet = size - _FRAME_BYTES
    try:
        return cost_model.Measurement(
            packet, PASSES[deployment] * rate * 8 * packet / 1e3,
            setting.pairs, encapsulation=setting.encapsulation
            or row.get('tunnel_type', '').lower() or 'none')
    except exceptions.InvalidModel as error:
        raise exceptions.CalibrationError(f'{where}: {error}') from None


def _number(row, name, where):
    cell = row[name]
    if not re.fullmatch(r'\d+(\.\d*)?([eE][-+]?\d+)?', cell):
        raise exceptions.CalibrationError(
            f'{where}: {name}: {cell!r}; expected a number > 0')
    return float(cell)


FORMATS = {'iperf3': parse_iperf3, 'vsperf': parse_vsperf}


def load(form: str, path: str, setting: Setting) -> Results:
    """Return the Results of a file.

    :raises CalibrationError: if the file is invalid
    """
    place = f'file {path}'
    return FORMATS[form](stated.read(
        path, place, f'results of {form}', exceptions.CalibrationError),
        place, setting)


def make_profile(results, name: str, switch: str, tool: str, files: list[str]):
    """Return the SwitchProfile of imported Results.

    :raises CalibrationError: if the rows have several encapsulations or
        conditions
    """
    rows = [row for result in results for row in result.measurements]
    conditions = results[0].conditions
    for name_of_condition in conditions:
        values = {result.conditions[name_of_condition] for result in results}
        if len(values) > 1:
            raise exceptions.CalibrationError(
                f'{name_of_condition} of the files: '
                f'{", ".join(map(str, sorted(values)))}; expected the same '
                f'in all files')
    kinds = sorted({row.encapsulation for row in rows})
    if len(kinds) > 1:
        raise exceptions.CalibrationError(
            f'encapsulations of the files: {", ".join(kinds)}; expected the '
            f'same encapsulation in all files')
    table = measurements.rates_by_size(
        (row.packet_bytes, row.rate_kbps) for row in rows)
    numbers = {
        'saturation_by_packet_bytes': {
            size: round(rate, 3) for size, rate in table.items()},
        'packet_rate_kpps': round(max(row.kpps for row in rows), 6),
        'typical_packet_bytes': measurements.typical_size(table)}
    source = f'{tool}: {", ".join(files)}'
    return profile.SwitchProfile(
        name, switch=switch, encapsulation=kinds[0],
        description='Measured elsewhere and imported; counted for both '
                    'directions together.',
        sources=dict.fromkeys(numbers, source), provenance={
            'tool': tool, 'files': ', '.join(files), **conditions,
            'imported': datetime.datetime.now(
                datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')},
        **numbers)
