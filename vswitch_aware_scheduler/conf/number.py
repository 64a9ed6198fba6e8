# SPDX-License-Identifier: Apache-2.0
"""An option whose value is a finite number."""

import math

from oslo_config import cfg
from oslo_config import types

__all__ = ['FloatOpt']


class _Finite(types.Float):
    """A number that is neither NaN nor infinite."""

    def __call__(self, value):
        number = super().__call__(value)
        if number is not None and not math.isfinite(number):
            raise ValueError(f'{number}; expected a finite number')
        return number


class FloatOpt(cfg.FloatOpt):
    """A FloatOpt that refuses NaN, which is within every range of oslo.config.

    :param name: name of the option
    :param min: as in cfg.FloatOpt
    :param max: as in cfg.FloatOpt
    :param arguments: further keyword arguments of cfg.FloatOpt
    """

    def __init__(self, name, min=None, max=None, **arguments):
        super().__init__(name, min, max, **arguments)
        self.type = _Finite(min, max)
