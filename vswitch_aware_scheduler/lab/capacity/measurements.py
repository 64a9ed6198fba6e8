# SPDX-License-Identifier: Apache-2.0
"""Reads tables of measured rates from CSV files."""

import collections.abc

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab import stated

__all__ = ['COLUMNS', 'load_csv', 'parse_csv', 'rates_by_size',
           'typical_size']

#: Columns of the CSV file. The first two are required. Other columns are
#: ignored.
COLUMNS = ('packet_bytes', 'rate_kbps', 'pairs', 'flows', 'encapsulation',
           'cpu_mhz')
_WHOLE = ('pairs', 'flows')


def load_csv(path: str) -> list:
    """Return the list of Measurements in a CSV file.

    :raises InvalidModel: if the file is invalid
    """
    place = f'table {path}'
    return parse_csv(stated.read(
        path, place, f'a CSV file with the columns {", ".join(COLUMNS[:2])}',
        exceptions.InvalidModel), place)


def parse_csv(text: str, place: str) -> list:
    """Return the list of Measurements in CSV text.

    Lines that start with # are comments.

    :raises InvalidModel: if the text is invalid
    """
    rows = []
    for where, row in stated.read_csv(text, place, COLUMNS[:2],
                                      exceptions.InvalidModel):
        values = {}
        for name in COLUMNS:
            cell = row.get(name, '')
            if not cell and name in COLUMNS[:2]:
                raise exceptions.InvalidModel(
                    f'{where}: {name} is empty; expected a number > 0')
            if cell:
                values[name] = _cell(name, cell, where)
        try:
            rows.append(cost_model.Measurement(**values))
        except exceptions.InvalidModel as error:
            raise exceptions.InvalidModel(f'{where}: {error}') from None
    if not rows:
        raise exceptions.InvalidModel(
            f'{place}: no row below the header; expected 1 or more')
    return rows


def _cell(name, cell, place):
    if name == 'encapsulation':
        return cell.lower()
    form, expected = ((int, 'a whole number') if name in _WHOLE
                      else (float, 'a number'))
    try:
        return form(cell)
    except ValueError:
        raise exceptions.InvalidModel(
            f'{place}: {name}: {cell!r}; expected {expected}') from None


def rates_by_size(rows: collections.abc.Iterable) -> dict[float, float]:
    """Return {packet size: largest rate} in increasing order of size.

    :param rows: (packet bytes, kbit/s)
    """
    table = {}
    for size, rate in rows:
        table[float(size)] = max(table.get(size, 0.0), rate)
    return dict(sorted(table.items()))


def typical_size(sizes: collections.abc.Collection, most: float = 1500):
    """Return the largest size up to ``most`` bytes, or else the smallest."""
    return max((size for size in sizes if size <= most), default=min(sizes))
