# SPDX-License-Identifier: Apache-2.0
"""Checks of what a file states: mappings, names and numbers.

Pure except for :func:`read`. The subject of a check is text for its message,
for example ``mix m.yaml: flavor 'a': cores``.
"""

import difflib
import numbers

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['mapping', 'named', 'number', 'one_of', 'read', 'read_yaml',
           'refuse', 'whole']

_MOST = 10 ** 15


def refuse(subject, value, expected):
    """Raise an error about a value.

    :param value: the value; None: not given
    :raises InvalidInput: always
    """
    shown = 'not given' if value is None else plain_text.brief(value)
    raise exceptions.InvalidInput(f'{subject}: {shown}; expected {expected}')


def one_of(value, names):
    """Return the valid names as text, with the most similar one."""
    near = difflib.get_close_matches(str(value), names, n=1)
    return f'one of {", ".join(names)}' + (
        f'; did you mean {near[0]!r}?' if near else '')


def read(path, place, expected, error=exceptions.InvalidInput):
    """Return the text of a file."""
    try:
        with open(path, encoding='utf-8-sig', newline='') as file:
            return file.read()
    except (OSError, ValueError) as problem:
        raise error(
            f'{place}: cannot be read ('
            f'{getattr(problem, "strerror", None) or problem}); expected '
            f'{expected}') from problem


def read_yaml(path, place):
    """Return the plain values of a YAML file.

    :raises InvalidInput: if the file cannot be read or is not YAML
    """
    try:
        return switch_profile.read_yaml(
            read(path, place, 'a YAML file'), place)
    except exceptions.InvalidProfile as error:
        raise exceptions.InvalidInput(str(error)) from None


def mapping(subject, value, keys=None):
    """Return a value that is a mapping.

    :param keys: list of the valid keys; None: all
    :raises InvalidInput: if the value is no mapping or has another key
    """
    if not isinstance(value, dict):
        refuse(f'{subject}: content', value, 'a mapping of keys to values')
    for key in value:
        if keys is not None and key not in keys:
            refuse(f'{subject}: a key', key, one_of(key, list(keys)))
    return value


def named(subject, value):
    """Return a value that is a mapping of names.

    :raises InvalidInput: if the value is no mapping or a name is no text
    """
    for name in mapping(subject, value):
        if not isinstance(name, str) or not name.strip():
            refuse(f'{subject}: a name', name, 'text')
    return value


def whole(subject, value, lowest=1, highest=_MOST):
    """Return a value that is a whole number.

    :param highest: largest valid number
    :raises InvalidInput: if the value is invalid
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) \
            or not lowest <= value <= highest:
        refuse(subject, value, f'a whole number from {lowest}' + (
            '' if highest == _MOST else f' to {highest}'))
    return int(value)


def number(subject, value, above=False, default=...):
    """Return a value that is a number of 0 or more.

    :param above: whether 0 is invalid
    :param default: result for None, which is invalid without it
    :raises InvalidInput: if the value is invalid
    """
    if value is None and default is not ...:
        return default
    if not isinstance(value, numbers.Real) or isinstance(value, bool) \
            or not 0 <= value <= _MOST or above and value <= 0:
        refuse(subject, value,
               'a number above 0' if above else 'a number from 0')
    return float(value)
