# SPDX-License-Identifier: Apache-2.0
"""How values become text for people: in errors, tables and logs.

Pure; knows text alone. Whatever comes from outside, such as names of instances
and hosts or the error of a server, passes through :func:`printable` before a
person sees it.
"""

import datetime
import re

__all__ = ['distinct', 'iso_time', 'one_line', 'printable']

#: Most significant digits that a float has.
_MOST_DIGITS = 17

_LINE_END = re.compile(r'\s*[\r\n]+\s*')


def printable(value):
    """Return a value as text of one line that changes no terminal.

    Control characters, line ends, characters that change the direction of
    writing and all others without a shape of their own are escaped as in
    Python: an escape character becomes the four characters ``\\x1b``. What can
    be printed stays, in any script.

    :param value: text, or anything that str() makes text of
    """
    text = str(value)
    if text.isprintable():
        return text
    return ''.join(
        letter if letter.isprintable()
        else letter.encode('unicode_escape').decode('ascii')
        for letter in text)


def one_line(value):
    """Return :func:`printable` text in which a line end is a blank."""
    return printable(_LINE_END.sub(' ', str(value).strip()))


def iso_time(seconds):
    """Return seconds UTC as ISO 8601, None for None and times past 9999."""
    if seconds is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(
            seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    except (OverflowError, ValueError, OSError):
        return None


def distinct(value, limit, digits=6):
    """Return two numbers as texts whose order is that of the numbers.

    :param digits: significant digits of the value to begin with; the limit
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
