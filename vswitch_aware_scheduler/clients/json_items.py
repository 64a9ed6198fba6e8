# SPDX-License-Identifier: Apache-2.0
"""Parses a long list in a JSON text one item at a time.

``json.loads`` creates objects with up to 30 times the size of the text. This
module converts each item of a list to what the caller needs, so that only the
objects of one item exist at a time. Pure.
"""

from collections.abc import Callable
from collections.abc import Sequence
import json
import re
import typing

__all__ = ['load']

_DECODE = json.JSONDecoder().raw_decode
_SPACE = re.compile(r'[ \t\n\r]*')


def load(text: str, path: Sequence[str],
         read: Callable[[typing.Any], typing.Any]) -> typing.Any:
    """Return the result of json.loads, with the items of a list converted.

    :param path: keys that lead to the list from the outermost object; () if
        the list is the outermost value
    :param read: callable(item), returns the value that replaces the item
    :returns: the value; a value at the path that is not a list is unchanged
    :raises ValueError: if the text is not JSON
    """
    value, end = _value(text, _skip(text, 0), path, read)
    if end != len(text):
        raise ValueError(f'Extra data at character {end}')
    return value


def _skip(text, at):
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text, at, path, read):
    """Return a value and the position of the next token."""
    opening = text[at:at + 1]
    if not path and opening == '[':
        return _collection(text, at, ']', lambda at: _item(text, at, read))
    if path and opening == '{':
        members, end = _collection(
            text, at, '}', lambda at: _member(text, at, path, read))
        return dict(members), end
    value, end = _DECODE(text, at)
    return value, _skip(text, end)


def _collection(text, at, closing, element):
    """Return a list of elements and the position of the next token."""
    elements = []
    at = _skip(text, at + 1)
    if text[at:at + 1] == closing:
        return elements, _skip(text, at + 1)
    while True:
        value, at = element(at)
        elements.append(value)
        mark = text[at:at + 1]
        at = _skip(text, at + 1)
        if mark == closing:
            return elements, at
        if mark != ',':
            raise ValueError(f'Expected , or {closing} before character {at}')


def _item(text, at, read):
    value, end = _DECODE(text, at)
    return read(value), _skip(text, end)


def _member(text, at, path, read):
    key, end = _DECODE(text, at)
    if not isinstance(key, str):
        raise ValueError(f'Expected a name at character {at}')
    end = _skip(text, end)
    if text[end:end + 1] != ':':
        raise ValueError(f'Expected : at character {end}')
    end = _skip(text, end + 1)
    if key == path[0]:
        value, end = _value(text, end, path[1:], read)
    else:
        value, end = _DECODE(text, end)
        end = _skip(text, end)
    return (key, value), end
