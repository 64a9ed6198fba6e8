# SPDX-License-Identifier: Apache-2.0
"""Converts laws, priors and attachments to columns of the store and back.

Values that are read are validated.
"""

from collections import abc
import json
import math
import numbers
import typing

import numpy as np
import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['GUARANTEE', 'check_text', 'check_texts', 'guarantee_of',
           'pack_attachments', 'pack_guarantee', 'pack_law', 'storable',
           'storable_texts', 'unpack_attachments', 'unpack_laws',
           'usable_laws', 'usable_ports']

#: Columns of guaranteed rates.
GUARANTEE = 'egress_kbps', 'ingress_kbps', 'kpps'

#: First byte of a packed law. The bytes of the RateLaw follow.
_LAW_FORMAT = 3


def check_text(value: object, limit: int, kind: str, owner: object,
               value_name: str, error_class: type[exceptions.InvalidInput] =
               exceptions.InvalidModel) -> None:
    """Check that a value is a string of 1 to ``limit`` characters."""
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise error_class(
            f'{kind} {owner!r}: {value_name}: {value!r}; expected a string of '
            f'1 to {limit} characters')


def check_texts(record: object, kind: str, owner: object,
                limits: dict[str, int],
                error_class: type[exceptions.InvalidInput] =
                exceptions.InvalidModel) -> None:
    """Check the texts of a record, see :func:`check_text`; None is legal.

    :param limits: {attribute: maximum number of characters}
    """
    for name, limit in limits.items():
        value = getattr(record, name)
        if value is not None:
            check_text(value, limit, kind, owner, name, error_class)


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
    :raises InvalidModel: if a rate is invalid
    """
    rates = tuple(rates)
    if rates == (None,) * 3:
        return None
    if len(rates) != 3 or not all(
            isinstance(rate, numbers.Real) and 0 <= float(rate) < math.inf
            for rate in rates):
        raise exceptions.InvalidModel(
            f'guaranteed rates: {rates!r}; expected three finite numbers '
            f'from 0')
    egress, ingress, kpps = map(float, rates)
    return egress, ingress, kpps


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
