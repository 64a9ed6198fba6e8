# SPDX-License-Identifier: Apache-2.0
"""Two plots of an evaluation: reliability, and cost."""

import os

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab import pictures

__all__ = ['draw', 'prepare']

#: Value at which a share of 0 is drawn, because the axes are logarithmic.
_FLOOR = 1e-5


def prepare(directory: str) -> None:
    """Check that plots can be written to a directory. Create it if missing.

    :raises InvalidInput: if matplotlib is not installed, or the directory
        cannot be created or written
    """
    pictures.new()
    try:
        os.makedirs(directory, exist_ok=True)
    except (OSError, ValueError) as error:
        raise exceptions.InvalidInput(
            f'directory for pictures: {directory!r}: {error}; expected a '
            f'directory that can be created or written to') from None
    pictures.prepare(*_paths(directory))


def _paths(directory):
    return [os.path.join(directory, f'{name}.png')
            for name in ('reliability', 'frontier')]


def draw(directory: str, results: dict, overload_probability: float):
    """Write reliability.png and frontier.png.

    :param results: {label: Result} of :func:`.protocols.evaluate`
    :returns: list of the two paths
    :raises InvalidInput: as :func:`prepare`
    """
    prepare(directory)
    for path, fill in zip(_paths(directory), (_reliability, _frontier)):
        picture = pictures.new(figsize=(8, 6))
        fill(picture.add_subplot(), results, overload_probability)
        picture.savefig(path, dpi=120)
    return _paths(directory)


def _mark(number):
    # Many methods need markers in addition to colours.
    return {'color': f'C{number % 10}', 'marker': 'osD^vP*X<>'[number % 10]}


def _reliability(axes, results, limit):
    axes.plot([_FLOOR, 1], [_FLOOR, 1], color='grey', linewidth=1,
              label='predicted = realised')
    axes.axvline(limit, color='grey', linestyle=':', linewidth=1)
    axes.axhline(limit, color='grey', linestyle=':', linewidth=1)
    for number, (name, result) in enumerate(results.items()):
        predicted = np.concatenate(result.predicted)
        realised = np.concatenate([judgement.avoidable_shares
                                   for judgement in result.judgements])
        axes.scatter(np.maximum(predicted, _FLOOR),
                     np.maximum(realised, _FLOOR), s=14, alpha=0.6,
                     label=name, **_mark(number))
    axes.set(xscale='log', yscale='log', xlabel='predicted overload '
             'probability of a host', ylabel='realised avoidable overload '
             'share of the host', title='Reliability, host by host '
             f'(none: {_FLOOR:g})')
    axes.legend(fontsize='small', loc='upper left', bbox_to_anchor=(1.01, 1))


def _frontier(axes, results, limit):
    axes.axhline(limit, color='grey', linestyle=':', linewidth=1,
                 label='limit')
    for number, (name, result) in enumerate(results.items()):
        figures = result.figures(limit, result)
        axes.scatter(figures['hosts_mean'], max(
            limit * figures['overload_over_limit_weighted'], _FLOOR),
                     s=60, label=name, **_mark(number))
    axes.set(yscale='log', xlabel='hosts, mean over time', ylabel='realised '
             'avoidable overload share of all host-hours',
             title='Frontier: what keeping to the limit costs')
    axes.legend(fontsize='small', loc='upper left', bbox_to_anchor=(1.01, 1))
