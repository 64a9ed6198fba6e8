# SPDX-License-Identifier: Apache-2.0
"""Imports results measured elsewhere: JSON of iperf3 and CSV of VSPERF."""

import csv
import datetime
import io
import re

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['FORMATS', 'load', 'make_profile', 'parse_iperf3', 'parse_vsperf']

#: Bytes of a frame in addition to its IP packet: header and frame check.
_FRAME_BYTES = 18


def parse_iperf3(text, place, encapsulation=None, pairs=None):
    """Return the Measurement in the JSON of ``iperf3 -J`` with UDP.

    A TCP test is rejected, because it does not state its packet sizes.

    :param text: text of the file
    :param place: name of the file, for messages
    :param encapsulation: encapsulation of the tested network, or None
    :param pairs: number of senders, or None
    :returns: list with one Measurement
    :raises CalibrationError: if the text is not the JSON of a UDP test
    """
    rates = iperf.parse(text, place)
    if rates.packets is None:
        raise exceptions.CalibrationError(
            f'{place}: protocol: TCP; expected UDP (iperf3 -u), because a '
            'test of TCP does not have packet sizes')
    if rates.received_kbps <= 0:
        raise exceptions.CalibrationError(
            f'{place}: {rates.lost} of {rates.packets} packets were lost; '
            f'expected at least one packet that arrived')
    size = rates.received_kbps / (8 * rates.received_kpps)
    return [
        cost_model.Measurement(
            round(size, 3),
            rates.received_kbps,
            pairs or 1,
            encapsulation=encapsulation or 'none',
        )
    ]


def parse_vsperf(text, place, encapsulation=None, pairs=None):
    """Return the Measurements in a result CSV of OPNFV VSPERF.

    Throughput tests write ``throughput_rx_fps`` by ``packet_size``, which is
    the size of a frame. Overlay tests also have ``tunnel_type``. The frames
    per second are those received on all ports together.

    :param text: text of the file
    :param place: name of the file, for messages
    :param encapsulation: encapsulation that replaces ``tunnel_type``, or None
    :param pairs: number of senders, or None
    :returns: list of Measurement
    :raises CalibrationError: if a column is missing, a number is invalid, or
        there is no row
    """
    reader = csv.DictReader(io.StringIO(text, newline=''))
    header = [(name or '').strip() for name in reader.fieldnames or []]
    for name in ('packet_size', 'throughput_rx_fps'):
        if name not in header:
            raise exceptions.CalibrationError(
                f'{place}: header: {",".join(header)[:120]!r}; expected '
                f'the columns packet_size and throughput_rx_fps of a VSPERF '
                f'throughput test')
    reader.fieldnames = header
    measurements = []
    for row in reader:
        where = f'{place}: line {reader.line_num}'
        size = _number(row, 'packet_size', where)
        rate = _number(row, 'throughput_rx_fps', where)
        if size <= _FRAME_BYTES or rate <= 0:
            raise exceptions.CalibrationError(
                f'{where}: packet_size = {size:g}, throughput_rx_fps = '
                f'{rate:g}; expected frames of more than {_FRAME_BYTES} bytes '
                f'and a rate above 0')
        tunnel = (row.get('tunnel_type') or '').strip().lower()
        name = encapsulation or tunnel or 'none'
        packet = size - _FRAME_BYTES
        try:
            measurements.append(cost_model.Measurement(
                packet, rate * 8 * packet / 1e3, pairs or 1,
                encapsulation=name))
        except exceptions.InvalidModel as error:
            raise exceptions.CalibrationError(f'{where}: {error}') from None
    if not measurements:
        raise exceptions.CalibrationError(
            f'{place}: no row below the header; expected 1 or more')
    return measurements


def _number(row, name, where):
    cell = (row.get(name) or '').strip()
    if not re.fullmatch(r'\d+(\.\d*)?([eE][-+]?\d+)?', cell):
        raise exceptions.CalibrationError(
            f'{where}: {name}: {cell!r}; expected a number > 0')
    return float(cell)


FORMATS = {'iperf3': parse_iperf3, 'vsperf': parse_vsperf}


def load(form, path, encapsulation=None, pairs=None):
    """Return the Measurements in a file.

    :param form: a key of :data:`FORMATS`
    :param path: path of the file
    :param encapsulation: encapsulation, or None
    :param pairs: number of senders, or None
    :raises CalibrationError: if the file is invalid; the message names the
        file, the value and the expected value
    :raises InvalidInput: if the number of senders is below 1
    """
    if pairs is not None and pairs < 1:
        raise exceptions.InvalidInput(
            f'pairs: {pairs}; expected a whole number >= 1')
    place = f'file {path}'
    try:
        with open(path, encoding='utf-8-sig', newline='') as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise exceptions.CalibrationError(
            f'{place}: cannot be read ('
            f'{getattr(error, "strerror", None) or error}); expected results '
            f'of {form}') from error
    return FORMATS[form](text, place, encapsulation, pairs)


def make_profile(rows, name, switch, tool, files):
    """Return the SwitchProfile of imported Measurements.

    :param rows: list of Measurement
    :param name: name of the profile
    :param switch: kind of the switch
    :param tool: name of the tool, for the provenance
    :param files: list of the names of the files
    :raises CalibrationError: if the rows have several encapsulations
    """
    kinds = sorted({row.encapsulation for row in rows})
    if len(kinds) > 1:
        raise exceptions.CalibrationError(
            f'encapsulations of the files: {", ".join(kinds)}; expected the '
            f'same encapsulation in all files')
    table = {}
    for row in rows:
        size = float(row.packet_bytes)
        table[size] = max(table.get(size, 0.0), row.rate_kbps)
    typical = max((size for size in table if size <= 1500),
                  default=min(table))
    stated = {
        'saturation_by_packet_bytes': {
            size: round(rate, 3) for size, rate in sorted(table.items())},
        'packet_rate_kpps': round(max(row.kpps for row in rows), 6),
        'typical_packet_bytes': typical}
    source = f'{tool}: {", ".join(files)}'
    return profile.SwitchProfile(
        name, switch=switch, encapsulation=kinds[0],
        description='Measured elsewhere and imported; counted for both '
                    'directions together.',
        sources=dict.fromkeys(stated, source), provenance={
            'tool': tool, 'files': ', '.join(files),
            'imported': datetime.datetime.now(
                datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')},
        **stated)
