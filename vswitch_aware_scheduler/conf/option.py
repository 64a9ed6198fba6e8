# SPDX-License-Identifier: Apache-2.0
"""Options whose help states their unit, range and related options.

The order of a help text: what the option does, the effect of changing it, unit
and range, what happens when it is wrong, related options.
"""

import functools
import math
import textwrap

from oslo_config import cfg
from oslo_config import types

__all__ = ['BoolOpt', 'DictOpt', 'FloatOpt', 'IntOpt', 'ListOpt', 'PortOpt',
           'StrOpt']


class _Finite(types.Float):  # type: ignore[misc]
    """A number that is neither NaN nor infinite."""

    def __call__(self, value):
        number = super().__call__(value)
        if number is not None and not math.isfinite(number):
            raise ValueError(f'{number}; expected a finite number')
        return number


class _FloatOpt(cfg.FloatOpt):  # type: ignore[misc]
    """A FloatOpt that refuses NaN, which is within every range of oslo.config.

    :param arguments: those of cfg.FloatOpt
    """

    def __init__(self, name, min=None, max=None, **arguments):
        super().__init__(name, min, max, **arguments)
        self.type = _Finite(min, max)


def _declared(kind, name, help='', unit=None, related='', **arguments):
    """Return an option.

    :param kind: class of the option
    :param help: paragraphs; the last one says what happens when the value is
        wrong
    :param unit: None, or the unit of a number with ``min`` and ``max``
    :param related: names of options of the same group, separated by spaces
    """
    *paragraphs, last = help.strip().split('\n\n')
    if unit:
        paragraphs.append(f'Unit: {unit}, {arguments["min"]:.15g} to '
                          f'{arguments["max"]:.15g}.')
    names = ', '.join(f'``{other}``' for other in related.split()) or 'none'
    text = '\n\n'.join([*paragraphs, last, textwrap.fill(
        f'Related options: {names}.', 79)])
    return kind(name, help=f'\n{text}\n', **arguments)


BoolOpt, DictOpt, FloatOpt, IntOpt, ListOpt, PortOpt, StrOpt = (
    functools.partial(_declared, kind) for kind in (
        cfg.BoolOpt, cfg.DictOpt, _FloatOpt, cfg.IntOpt, cfg.ListOpt,
        cfg.PortOpt, cfg.StrOpt))
