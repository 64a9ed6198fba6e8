# SPDX-License-Identifier: Apache-2.0
"""Reads tables of measured rates from CSV files."""

import csv
import io

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab import stated

__all__ = ['COLUMNS', 'load_csv', 'parse_csv']

#: Columns of the CSV file. The first two are required. Other columns are
#: ignored.
COLUMNS = ('packet_bytes', 'rate_kbps', 'pairs', 'flows', 'encapsulation',
           'cpu_mhz')
_WHOLE = ('pairs', 'flows')


def load_csv(path):
    """Return the list of Measurements in a CSV file.

    :raises InvalidModel: if the file is invalid; the message names the file,
        the line, the column, the value and the expected value
    """
    place = f'table {path}'
    return parse_csv(stated.read(
        path, place, f'a CSV file with the columns {", ".join(COLUMNS[:2])}',
        exceptions.InvalidModel), place)


def parse_csv(text, place):
    """Return the list of Measurements in CSV text.

    Lines that start with # are comments.

    :raises InvalidModel: if the text is invalid
    """
    reader = csv.DictReader(
        line if not line.lstrip().startswith('#') else '\n'
        for line in io.StringIO(text, newline=''))
    header = [(name or '').strip() for name in reader.fieldnames or []]
    missing = [name for name in COLUMNS[:2] if name not in header]
    if missing:
        raise exceptions.InvalidModel(
            f'{place}: the header: {",".join(header)[:80]!r}; expected the '
            f'columns {", ".join(COLUMNS[:2])} and optionally '
            f'{", ".join(COLUMNS[2:])}')
    reader.fieldnames = header
    measurements = []
    for row in reader:
        values = {}
        for name in COLUMNS:
            cell = (row.get(name) or '').strip()
            if cell:
                values[name] = _cell(name, cell, f'{place}: line '
                                     f'{reader.line_num}')
        try:
            measurements.append(cost_model.Measurement(**values))
        except (exceptions.InvalidModel, TypeError) as error:
            missing = [name for name in COLUMNS[:2] if name not in values]
            problem = str(error) if not missing else (
                f'{missing[0]} is empty; expected a number > 0')
            raise exceptions.InvalidModel(
                f'{place}: line {reader.line_num}: {problem}') from None
    if not measurements:
        raise exceptions.InvalidModel(
            f'{place}: no row below the header; expected 1 or more')
    return measurements


def _cell(name, cell, place):
    if name == 'encapsulation':
        return cell.lower()
    try:
        return int(cell) if name in _WHOLE else float(cell)
    except ValueError:
        raise exceptions.InvalidModel(
            f'{place}: {name}: {cell!r}; expected '
            f'{"a whole number" if name in _WHOLE else "a number"}'
        ) from None
