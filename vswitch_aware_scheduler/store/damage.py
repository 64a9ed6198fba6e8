# SPDX-License-Identifier: Apache-2.0
"""Decodes cells of the store, so that a damaged row costs itself only.

:func:`decode` is the only decoder of JSON cells, :mod:`.packing` of packed
ones. :func:`usable` builds the record of a row.
"""

from collections import abc
import dataclasses
import functools
import json
import math
import numbers
import types
import typing

import sqlalchemy as sa

__all__ = ['OPTIONAL', 'Damaged', 'Reasons', 'checked', 'decode',
           'is_number', 'of', 'usable', 'usable_records']

#: Last character of a key that may be absent.
OPTIONAL = '?'

#: Deepest nesting of a cell. The records nest at most half as deep.
_DEEPEST = 20

#: Whole numbers are below this limit.
_LARGEST = 2 ** 64

#: Characters of a value in a message.
_SHOWN = 60


class Damaged(ValueError):
    """A cell that does not have what this release writes."""


#: {(kind, name): reason in words}
Reasons: typing.TypeAlias = dict[tuple[str, typing.Any], str]

_R = typing.TypeVar('_R')


def of(connection: sa.Connection) -> Reasons:
    """Return the damaged rows of a transaction, for the log."""
    return connection.get_execution_options().get('damaged', {})


def usable(connection: sa.Connection, kind: str, name: typing.Any,
           build: abc.Callable[..., _R], *arguments: typing.Any) -> _R | None:
    """Return build(*arguments), or None if it raises: the row is damaged."""
    try:
        return build(*arguments)
    except Exception as error:
        # Whatever the damage is, other rows have to be read.
        words = ' of '.join(map(str, reversed(name))) \
            if isinstance(name, tuple) else name
        of(connection)[kind, name] = (
            f'{kind} {words}: its row is damaged: {error}')
        return None


def usable_records(
        connection: sa.Connection, kind: str, rows: abc.Iterable[typing.Any],
        build: abc.Callable[[typing.Any], _R],
        name: abc.Callable[[typing.Any], typing.Any]) -> list[_R]:
    """Return build(row) of the undamaged rows, with the key name(row)."""
    records = (usable(connection, kind, name(row), build, row)
               for row in rows)
    return [record for record in records if record is not None]


def decode(text: str, shape: typing.Any) -> typing.Any:
    """Return the value of a JSON cell.

    :param shape: what the value has to be: a type; a tuple of the permitted
        shapes, with None for null; a list with the shape of all items; a
        dictionary with the shapes of some keys, which are required unless
        they end with :data:`OPTIONAL`, or with the key ``str`` for the shape
        of all values
    :raises Damaged: if the cell has anything else
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_integer,
                           parse_float=_finite)
        _check_depth(value)
    except (TypeError, ValueError, RecursionError):
        raise Damaged(f'{_shown(text)}; expected JSON of at most {_DEEPEST} '
                      f'levels, with finite numbers') from None
    if not _has_shape(value, shape):
        raise Damaged(f'{_shown(text)}; expected JSON of the shape {shape}')
    return value


def checked(record: _R) -> _R:
    """Return a record, or raise Damaged if a field has another type."""
    record_class: typing.Any = type(record)
    for name, shapes in _shapes_of(record_class).items():
        value = getattr(record, name)
        if not any(_has_shape(value, shape) for shape in shapes):
            raise Damaged(f'{name}: {_shown(value)}; expected ' + ' or '.join(
                getattr(shape, '__name__', str(shape)) for shape in shapes))
    return record


@functools.cache
def _shapes_of(record_class):
    """Return {field: tuple of permitted types, None for null}."""
    hints = typing.get_type_hints(record_class)
    shapes = {}
    for field in dataclasses.fields(record_class):
        hint = hints[field.name]
        alternatives = typing.get_args(hint) if isinstance(
            hint, types.UnionType) else (hint,)
        shapes[field.name] = tuple(
            None if each is type(None) else typing.get_origin(each) or each
            for each in alternatives)
    return shapes


def _has_shape(value, shape):
    if shape is None:
        return value is None
    if isinstance(shape, tuple):
        return any(_has_shape(value, each) for each in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(
            _has_shape(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if str in shape:
            return all(_has_shape(item, shape[str])
                       for item in value.values())
        return all(
            _has_shape(value[key.rstrip(OPTIONAL)], its_shape)
            if key.rstrip(OPTIONAL) in value else key.endswith(OPTIONAL)
            for key, its_shape in shape.items())
    if shape in (float, int):
        return isinstance(value, numbers.Real if shape is float
                          else numbers.Integral) \
            and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, shape)


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    return _has_shape(value, float)


def _check_depth(value):
    """Raise ValueError if a value is too deep, or has single surrogates."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise ValueError
        below = []
        for item in level:
            if isinstance(item, str):
                item.encode()
            elif isinstance(item, dict):
                below += item
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = below


def _refuse(text):
    raise ValueError(text)


def _integer(text):
    number = int(text)
    if abs(number) >= _LARGEST:
        raise ValueError(text)
    return number


def _finite(text):
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _shown(value):
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:_SHOWN]) + ('...' if len(text) > _SHOWN else '')
