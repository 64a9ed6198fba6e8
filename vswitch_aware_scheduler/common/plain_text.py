# SPDX-License-Identifier: Apache-2.0
"""Converts values to text for operators, in errors, tables and logs.

Pure. Text from outside, such as names of instances and hosts or error messages
of a server, passes through :func:`printable` before it is displayed.
"""

import datetime
import difflib
import re
import reprlib

__all__ = ['brief', 'chance', 'distinct', 'first_of', 'iso_time', 'nearest',
           'number_of', 'one_line', 'printable']

#: Maximum number of significant digits of a float.
_MOST_DIGITS = 17

#: The digits of a smaller probability depend on rounding.
_SMALLEST_CHANCE = 1e-9

_LINE_END = re.compile(r'\s*[\r\n]+\s*')

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80
_BRIEF.maxlevel = 3


def printable(value):
    r"""Return a value as one line of text without control characters.

    Control characters, line ends, characters that change the direction of
    writing and all others without a visible form are escaped as in Python: an
    escape character becomes the four characters ``\\x1b``. Printable
    characters of any script are unchanged.

    :param value: text, or any value that str() converts
    """
    text = str(value)
    if text.isprintable():
        return text
    return ''.join(
        letter if letter.isprintable()
        else letter.encode('unicode_escape').decode('ascii')
        for letter in text)


def brief(value):
    """Return the repr of a value, shortened for a message.

    :param value: any value
    """
    return _BRIEF.repr(value)


def one_line(value):
    """Return :func:`printable` text with spaces instead of line ends.

    :param value: as in :func:`printable`
    """
    return printable(_LINE_END.sub(' ', str(value).strip()))


def iso_time(seconds):
    """Return a time as ISO 8601; None for None and for times after 9999.

    :param seconds: seconds UTC, or None
    """
    if seconds is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(
            seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    except (OverflowError, ValueError, OSError):
        return None


def chance(value, form='.3g'):
    """Return a probability, or a number derived from one, as text.

    A number between 0 and 1e-9 becomes ``<1e-9``, because its digits depend on
    rounding. None becomes ``-``.

    :param value: number, or None
    :param form: format of other numbers
    """
    if value is None:
        return '-'
    if 0 < value < _SMALLEST_CHANCE:
        return f'<{_SMALLEST_CHANCE:g}'.replace('e-0', 'e-')
    return format(value, form)


def first_of(texts, separator=', ', most=5):
    """Return the first of some texts, and how many more there are.

    :param texts: iterable of texts
    :param separator: text between two of them
    :param most: maximum number of texts to name
    """
    texts = list(texts)
    more = len(texts) - most
    return separator.join(texts[:most]) + (
        f' and {more} more' if more > 0 else '')


def nearest(name, names, prefix=''):
    """Return ' (nearest name: ...)', or an empty text if no name is near.

    :param name: a name that does not exist
    :param names: iterable of the existing names
    :param prefix: text with which all these names begin
    """
    # The order of a set differs between processes.
    near = difflib.get_close_matches(
        name.removeprefix(prefix),
        sorted(other.removeprefix(prefix) for other in names), n=1)
    return f' (nearest name: {prefix}{near[0]})' if near else ''


def number_of(count, singular, plural):
    """Return a number and the words for it, such as '1 host is'.

    :param count: int
    :param singular: words for 1
    :param plural: words for other numbers
    """
    return f'{count} {singular if count == 1 else plural}'


def distinct(value, limit, digits=6):
    """Return two numbers as texts with the same order as the numbers.

    :param value: number
    :param limit: number
    :param digits: minimum number of significant digits of the value; the limit
        has six or more
    :returns: (text of value, text of limit)
    """
    while True:
        texts = f'{value:.{digits}g}', f'{limit:.{max(digits, 6)}g}'
        shown = [float(text) for text in texts]
        if digits >= _MOST_DIGITS or (shown[0] < shown[1]) == (
                value < limit) and (shown[0] > shown[1]) == (value > limit):
            return texts
        digits += 1
