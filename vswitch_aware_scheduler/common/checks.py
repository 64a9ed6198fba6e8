# SPDX-License-Identifier: Apache-2.0
"""Checks of values that a caller, a file or an option states.

Pure. A :class:`Kind` describes legal values in words and as a predicate. The
thing in a message names the value, for example ``mix m.yaml: flavor 'a'``.
"""

from collections import abc
import numbers
import sys
import typing

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text

__all__ = ['Kind', 'TEXT', 'check', 'fields', 'number', 'number_of', 'one_of',
           'text', 'whole']

#: Products of such numbers are finite.
_MOST = 10 ** 15


class Kind(typing.NamedTuple):
    """What a stated value may be.

    :ivar expected: description of the valid values
    :ivar is_valid: returns whether a value is valid
    :ivar form: converts a valid value to the result
    :ivar default: result if there is no value; Ellipsis: there has to be one
    :ivar names: valid names, of which the nearest is part of a message
    """

    expected: str
    is_valid: abc.Callable[[typing.Any], object]
    form: abc.Callable[[typing.Any], typing.Any] = lambda value: value
    default: object = ...
    names: abc.Collection[str] = ()


TEXT = Kind('text', lambda value: isinstance(value, str))


def text(most: int, default: object = ...) -> Kind:
    """Return the kind of texts of 1 to ``most`` characters."""
    return Kind(f'text of 1 to {most} characters', lambda value: isinstance(
        value, str) and 0 < len(value) <= most, default=default)


def number(low: float = 0.0, high: float = _MOST, above: bool = False,
           default: object = ...) -> Kind:
    """Return the kind of finite numbers from ``low``, or above it, on.

    :param high: the largest one, or infinite
    """
    most = min(high, sys.float_info.max)
    return Kind(
        f'a number {"above" if above else "from"} {low:g}' + _to(high),
        lambda value: _is(value, numbers.Real) and low <= value <= most
        and not (above and value == low), float, default)


def number_of(expected: str, is_valid: abc.Callable[[float], object]) -> Kind:
    """Return the kind of numbers with a property; -0.0 becomes 0.0."""
    return Kind(expected, lambda value: _is(value, numbers.Real) and is_valid(
        value), lambda value: abs(float(value)))


def whole(low: int = 1, high: float = _MOST, default: object = ...) -> Kind:
    """Return the kind of whole numbers from ``low`` to ``high``."""
    return Kind(
        f'a whole number from {low}' + _to(high),
        lambda value: _is(value, numbers.Integral) and low <= value <= high,
        int, default)


def one_of(names: abc.Collection[str], default: object = ...) -> Kind:
    """Return the kind of the given names."""
    return Kind('one of ' + ', '.join(names), lambda value: isinstance(
        value, str) and value in names, default=default, names=names)


def _is(value, kind):
    return isinstance(value, kind) and not isinstance(value, bool)


def _to(high):
    return f' to {high:g}' if high <= _MOST else ''


def check(thing: str, value: typing.Any, kind: Kind,
          error: type[exceptions.VSwitchError] = exceptions.InvalidInput
          ) -> typing.Any:
    """Return a value of a kind, converted.

    :raises InvalidInput: or ``error``, if the value is invalid
    """
    if value is None and kind.default is not ...:
        return kind.default
    if not kind.is_valid(value):
        near = plain_text.nearest(value, kind.names) \
            if isinstance(value, str) else ''
        raise error(thing=thing, value=value, expected=kind.expected + near)
    return kind.form(value)


def fields(owner: str, record: object, kinds: abc.Mapping[str, Kind],
           error: type[exceptions.VSwitchError] = exceptions.InvalidInput
           ) -> None:
    """Check attributes of a record, by a table of their kinds."""
    for name, kind in kinds.items():
        check(f'{owner}: {name}', getattr(record, name), kind, error)
