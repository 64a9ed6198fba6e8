# SPDX-License-Identifier: Apache-2.0
"""Draws the capacity and the cost of servers."""

import os

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab import pictures
from vswitch_aware_scheduler.lab.purchase import counts

__all__ = ['FORMATS', 'draw', 'prepare']

FORMATS = ('pdf', 'png', 'svg')

_WORDS = {counts.AGNOSTIC: 'cores and memory (Figure 1)',
          counts.FIGURE_9: 'averages (Figure 9)',
          counts.OVERLAY: 'overlay of probabilities'}
# Colours that colour-blind readers can distinguish (Okabe and Ito).
_COLOURS = {counts.AGNOSTIC: '#999999', counts.FIGURE_9: '#e69f00',
            counts.OVERLAY: '#0072b2'}


def prepare(path: str) -> None:
    """Check that a picture can be written.

    :raises InvalidInput: if matplotlib is not installed, if the format is
        unknown, or if the file cannot be written
    """
    pictures.prepare(path)
    ending = os.path.splitext(path)[1].removeprefix('.').lower()
    if ending not in FORMATS:
        raise exceptions.InvalidInput(
            f'plot: {path!r}; expected a file name that ends in '
            f'{", ".join("." + name for name in FORMATS)}')


def draw(path: str, answer: dict) -> str:
    """Write the picture: VMs per server, cost of the fleet, sensitivity."""
    rows = answer['server_types']
    priced = all(row['price'] is not None for row in rows)
    number = answer['count']
    figure = pictures.new(figsize=(11, 3.2 + 0.5 * len(rows)))
    (vms, cost), (limits, growth) = figure.subplots(2, 2)
    _bars(vms, rows, 'vms', 'VMs that a server carries')
    if priced:
        _bars(cost, rows, 'cost', f'cost of servers for {number} VMs'
              + (f' ({answer["currency"]})' if answer['currency'] else ''))
    else:
        _bars(cost, rows, 'servers', f'servers for {number} VMs')
    _lines(limits, rows, 'overload_probability', 'overload probability E')
    limits.set_xscale('log')
    _lines(growth, rows, 'growth', 'growth of the traffic')
    vms.legend(fontsize='small')
    growth.legend(fontsize='x-small')
    figure.savefig(path)
    return path


def _name(row):
    # A dollar sign would start a formula.
    return f'{row["server"]}, {row["profile"]}'.replace('$', r'\$')


def _bars(axes, rows, key, title):
    height = 0.8 / len(counts.METHODS)
    for place, method in enumerate(counts.METHODS):
        axes.barh([number + (place - 1) * height
                   for number in range(len(rows))],
                  [row[method][key] or 0 for row in rows], height,
                  label=_WORDS[method], color=_COLOURS[method])
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows],
                    fontsize='small')
    axes.invert_yaxis()
    axes.locator_params(axis='x', nbins=5)
    axes.set_title(title, fontsize='medium')


def _lines(axes, rows, key, label):
    for row in rows:
        points = row['sensitivity'][key]
        axes.plot([point[key] for point in points],
                  [point['vms'] for point in points], marker='o', markersize=3,
                  label=_name(row))
    axes.set_xlabel(label)
    axes.set_ylabel('VMs a server, overlay')
    axes.set_ylim(bottom=0)
