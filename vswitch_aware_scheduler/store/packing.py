# SPDX-License-Identifier: Apache-2.0
"""Converts laws, priors and attachments to columns of the store and back.

Values that are read are validated.
"""

from collections import abc
import json
import math
import typing

import numpy as np
import sqlalchemy as sa

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['GUARANTEE', 'RATES', 'guarantee_of',
           'pack_attachments', 'pack_guarantee', 'pack_law', 'storable',
           'storable_texts', 'unpack_attachments', 'unpack_laws',
           'usable_laws', 'usable_ports']

#: Columns of guaranteed rates.
GUARANTEE = 'egress_kbps', 'ingress_kbps', 'kpps'

#: First byte of a packed law. The bytes of the RateLaw follow.
_LAW_FORMAT = 3


#: Three rates, or None.
RATES = checks.Kind(
    'three numbers from 0', lambda rates: len(rates) == 3 and all(
        map(checks.number(high=math.inf).is_valid, rates)),
    lambda rates: tuple(map(float, rates)), default=None)


def usable_laws(connection: sa.Connection, kind: str,
                names: abc.Sequence[typing.Any], laws: abc.Sequence[bytes]
                ) -> tuple[typing.Any, ...]:
    """Return packed laws concatenated, without damaged ones.

    :param laws: n values of the column ``law``
    :returns: (names, sizes, data) of the other laws, as :func:`unpack_laws`
    """
    try:
        return (names, *unpack_laws(names, laws))
    except (TypeError, ValueError):
        pass
    usable = [(name, law) for name, law in zip(names, laws) if damage.usable(
        connection, kind, name, unpack_laws, [name], [law])]
    names, laws = zip(*usable) if usable else ((), ())
    return (names, *unpack_laws(names, laws))


def storable(text: str) -> str:
    """Return a text without NUL and single surrogates."""
    return text.replace('\0', '').encode('utf-8', 'replace').decode()


def storable_texts(row: dict[str, typing.Any], *long_texts: str
                   ) -> dict[str, typing.Any]:
    """Return columns with storable texts of at most 255 characters."""
    return {name: value if not isinstance(value, str)
            else storable(value) if name in long_texts
            else storable(value)[:255] for name, value in row.items()}


def pack_attachments(attachments: vswitch_attachments.Attachments | None
                     ) -> str:
    """Return Attachments, or None, as JSON."""
    # Attachments without any interface are falsy, but not unknown.
    return json.dumps(None if attachments is None else attachments.to_data())


def unpack_attachments(text: str | None
                       ) -> vswitch_attachments.Attachments | None:
    """Return the Attachments of a column, or raise Damaged."""
    try:
        data = None if text is None else damage.decode(
            text, (None, list, dict))
        return None if data is None \
            else vswitch_attachments.Attachments.from_data(data)
    except ValueError as error:
        raise damage.Damaged(f'networks: {error}') from error


def guarantee_of(rates: abc.Iterable[typing.Any]
                 ) -> tuple[float, float, float] | None:
    """Return the rates that ports guarantee, or None if they are unknown.

    :param rates: egress_kbps, ingress_kbps and kpps, all None if unknown
    :raises InvalidInput: if a rate is invalid
    """
    rates = tuple(rates)
    return checks.check(
        'guaranteed rates', None if rates == (None,) * 3 else rates, RATES)


def pack_guarantee(rates: tuple[float, ...] | None) -> dict[str, float | None]:
    """Return the columns of guaranteed rates."""
    return dict(zip(GUARANTEE, rates or (None,) * 3))


def usable_ports(connection: sa.Connection, kind: str, row: typing.Any
                 ) -> tuple[typing.Any, typing.Any]:
    """Return (Attachments, guaranteed rates) of a row; None if unusable."""
    uuid = row.instance_uuid
    return (damage.usable(connection, kind, uuid, unpack_attachments,
                          row.networks),
            damage.usable(connection, kind, uuid, guarantee_of,
                          [getattr(row, name) for name in GUARANTEE]))


def pack_law(owner: typing.Any) -> dict[str, bytes]:
    """Return the column of the law of a record with an attribute ``law``."""
    return {'law': bytes([_LAW_FORMAT]) + owner.law}


def unpack_laws(names: abc.Sequence[typing.Any], laws: abc.Sequence[bytes]
                ) -> tuple[np.ndarray, bytes]:
    """Return n packed laws as concatenated RateLaws.

    :returns: (sizes, data): (n,) int64 number of bytes of each law, and the
        concatenated RateLaws
    :raises Damaged: if a law is damaged or has another format
    """
    head = bytes([_LAW_FORMAT])
    for name, law in zip(names, laws):
        if law[:1] != head:
            raise damage.Damaged(
                f'instance {name}: format of its law: '
                f'{law[0] if law else None}; expected {_LAW_FORMAT}')
    sizes = np.fromiter(map(len, laws), np.int64, len(laws)) - 1
    states, rest = np.divmod(sizes, rate_law.ROW_BYTES)
    is_sampled = rest == sampled.INSTANTS % rate_law.ROW_BYTES
    states -= is_sampled * (sampled.INSTANTS // rate_law.ROW_BYTES)
    bad = (states < 1) | (rest != 0) & ~is_sampled
    data = b''.join([law[1:] for law in laws])
    if not bad.any():
        bad |= _are_damaged(np.frombuffer(data, np.uint8), states, is_sampled)
    if bad.any():
        raise damage.Damaged(
            f'instance {names[int(np.argmax(bad))]}: its law is damaged; '
            f'expected rows of finite numbers >= 0, and {sampled.INSTANTS} '
            f'numbers of rows or none')
    return sizes, data


def _are_damaged(data, states, is_sampled):
    """Return (n,) bool: which laws, as uint8, have impossible contents."""
    bad = np.zeros(states.size, dtype=bool)
    of_rows = np.repeat(np.tile([True, False], states.size), np.column_stack(
        [states * rate_law.ROW_BYTES, is_sampled * sampled.INSTANTS]).ravel())
    bad[is_sampled] = (
        data[~of_rows].reshape(-1, sampled.INSTANTS) & (sampled.DRAWN - 1)
    ).max(axis=1, initial=0) >= states[is_sampled]
    rows = data[of_rows].view('<f8').reshape(-1, rate_law.LAW_COLUMNS)
    wrong = ~(np.isfinite(rows).all(axis=1) & (rows >= 0).all(axis=1)
              & (rows[:, 0] <= 1))
    if wrong.any():
        bad |= np.add.reduceat(wrong, np.cumsum(states) - states) > 0
    return bad
