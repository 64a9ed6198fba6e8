# SPDX-License-Identifier: Apache-2.0
"""Converts values to text for operators, in errors, tables and logs.

Pure. Text from outside, such as names of instances and hosts or error messages
of a server, passes through :func:`printable` before it is displayed.
"""

from collections import abc
import datetime
import difflib
import re
import reprlib

__all__ = ['brief', 'chance', 'distinct', 'first_of', 'iso_time', 'nearest',
           'number_of', 'one_line', 'one_of', 'printable']

#: Maximum number of significant digits of a float.
_MOST_DIGITS = 17

#: The digits of a smaller probability depend on rounding.
_SMALLEST_CHANCE = 1e-9

_LINE_END = re.compile(r'\s*[\r\n]+\s*')

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80
_BRIEF.maxlevel = 3


def printable(value: object) -> str:
    r"""Return a value as one line of text without control characters.

    Control characters, line ends, characters that change the direction of
    writing and all others without a visible form are escaped as in Python: an
    escape character becomes the four characters ``\\x1b``. Printable
    characters of any script are unchanged.
    """
    text = str(value)
    if text.isprintable():
        return text
    return ''.join(
        letter if letter.isprintable()
        else letter.encode('unicode_escape').decode('ascii')
        for letter in text)


def brief(value: object) -> str:
    """Return the repr of a value, shortened for a message."""
    return _BRIEF.repr(value)


def one_line(value: object) -> str:
    """Return :func:`printable` text with spaces instead of line ends."""
    return printable(_LINE_END.sub(' ', str(value).strip()))


def iso_time(seconds: float | None) -> str | None:
    """Return a time as ISO 8601; None for None and for times after 9999."""
    if seconds is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(
            seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    except (OverflowError, ValueError, OSError):
        return None


def chance(value: float | None, form: str = '.3g') -> str:
    """Return a probability, or a number derived from one, as text.

    A number between 0 and 1e-9 becomes ``<1e-9``, because its digits depend on
    rounding. None becomes ``-``.
    """
    if value is None:
        return '-'
    if 0 < value < _SMALLEST_CHANCE:
        return f'<{_SMALLEST_CHANCE:g}'.replace('e-0', 'e-')
    return format(value, form)


def first_of(texts: abc.Iterable[str], separator: str = ', ',
             most: int = 5) -> str:
    """Return the first of some texts, and how many more there are."""
    texts = list(texts)
    more = len(texts) - most
    return separator.join(texts[:most]) + (
        f' and {more} more' if more > 0 else '')


def nearest(name: str, names: abc.Iterable[str], prefix: str = '') -> str:
    """Return ' (nearest name: ...)', or an empty text if no name is near.

    :param prefix: text with which all these names begin
    """
    # The order of a set differs between processes.
    near = difflib.get_close_matches(
        name.removeprefix(prefix),
        sorted(other.removeprefix(prefix) for other in names), n=1)
    return f' (nearest name: {prefix}{near[0]})' if near else ''


def one_of(value: object, names: abc.Collection[str]) -> str:
    """Return the valid names as text, with the name that is nearest."""
    return f'one of {", ".join(names)}{nearest(brief(value), names)}'


def number_of(count: int, singular: str, plural: str) -> str:
    """Return a number and the words for it, such as '1 host is'."""
    return f'{count} {singular if count == 1 else plural}'


def _plain(number):
    """Return a text without an exponent: rates have up to nine digits."""
    return f'{float(number):.0f}' if 'e+' in number and float(number) < 1e15 \
        else number


def distinct(value: float, limit: float, digits: int = 6) -> tuple[str, str]:
    """Return two numbers as texts with the same order as the numbers.

    :param digits: minimum number of significant digits of the value; the limit
        has six or more
    """
    while True:
        texts = f'{value:.{digits}g}', f'{limit:.{max(digits, 6)}g}'
        shown = [float(text) for text in texts]
        if digits >= _MOST_DIGITS or (shown[0] < shown[1]) == (
                value < limit) and (shown[0] > shown[1]) == (value > limit):
            return _plain(texts[0]), _plain(texts[1])
        digits += 1
