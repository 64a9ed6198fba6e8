# SPDX-License-Identifier: Apache-2.0
"""Checks of what a file or a caller states: values by tables of their kinds.

Pure except for :func:`read`. The subject of a check is text for its message,
for example ``mix m.yaml: flavor 'a': cores``.
"""

import collections.abc
import csv
import io
import typing

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['ANY', 'mapping', 'named', 'read', 'read_csv', 'read_yaml',
           'refuse', 'values']

ANY = checks.Kind('any value', lambda value: True, default=None)


def refuse(subject: str, value: object, expected: str,
           error: type = exceptions.InvalidInput) -> typing.NoReturn:
    """Raise an error about a value; None: it is not given."""
    raise error(thing=subject, value=value, expected=expected)


def values(subject: str, data, kinds: dict[str, checks.Kind]) -> dict:
    """Return the values of a mapping, by a table of the kinds of its keys.

    :raises InvalidInput: if the data is no mapping, or a key or a value is
        invalid
    """
    mapping(subject, data, kinds)
    return {key: checks.check(f'{subject}: {key}', data.get(key), kind)
            for key, kind in kinds.items()}


def mapping(subject: str, value,
            keys: collections.abc.Iterable[str] | None = None) -> dict:
    """Return a value that is a mapping with some of the given keys."""
    if not isinstance(value, dict):
        refuse(f'{subject}: content', value, 'a mapping of keys to values')
    for key in value:
        if keys is not None and key not in keys:
            refuse(f'{subject}: a key', key,
                   plain_text.one_of(key, list(keys)))
    return value


def named(subject: str, value) -> dict:
    """Return a value that is a mapping of names."""
    for name in mapping(subject, value):
        if not isinstance(name, str) or not name.strip():
            refuse(f'{subject}: a name', name, 'text')
    return value


def read(path: str, place: str, expected: str,
         error: type = exceptions.InvalidInput) -> str:
    """Return the text of a file.

    :param expected: description of a valid file
    """
    try:
        with open(path, encoding='utf-8-sig', newline='') as file:
            return file.read()
    except (OSError, ValueError) as problem:
        raise error(
            f'{place}: cannot be read ('
            f'{getattr(problem, "strerror", None) or problem}); expected '
            f'{expected}') from problem


def read_yaml(path: str, place: str):
    """Return the plain values of a YAML file."""
    return switch_profile.read_yaml(read(path, place, 'a YAML file'), place)


def read_csv(text: str, place: str, required: collections.abc.Sequence[str],
             error: type = exceptions.InvalidInput):
    """Yield (place, {column: cell}) of each row of CSV text with a header.

    Lines that start with # are comments. Cells have no blanks around them.

    :param required: columns that the header must have
    """
    reader = csv.DictReader(
        '\n' if line.lstrip().startswith('#') else line
        for line in io.StringIO(text, newline=''))
    try:
        header = [(name or '').strip() for name in reader.fieldnames or []]
        if not set(required) <= set(header):
            raise error(f'{place}: header: {",".join(header)[:120]!r}; '
                        f'expected the columns {", ".join(required)}')
        reader.fieldnames = header
        for row in reader:
            yield f'{place}: line {reader.line_num}', {
                name: (cell or '').strip() for name, cell in row.items()
                if isinstance(name, str)}
    except csv.Error as problem:
        raise error(f'{place}: line {reader.line_num}: {problem}; expected '
                    f'CSV') from None
