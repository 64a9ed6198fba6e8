# SPDX-License-Identifier: Apache-2.0
"""Converts laws, priors and attachments to columns of the store and back.

Values that are read are validated.
"""

import json
import math
import numbers

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['check_text', 'guarantee_of', 'pack_attachments', 'pack_guarantee',
           'pack_law', 'storable', 'unpack_attachments', 'unpack_laws',
           'usable_attachments', 'usable_guarantee', 'usable_laws']

#: First byte of a packed law. The bytes of the RateLaw follow.
_LAW_FORMAT = 3


def check_text(value, limit, kind, owner, value_name,
               error_class=exceptions.InvalidModel):
    """Check that a value is a string of a limited length.

    :param value: value to check
    :param limit: maximum number of characters
    :param kind: kind of record, for the message
    :param owner: name of the record, for the message
    :param value_name: name of the value, for the message
    :param error_class: class of the exception
    :raises error_class: if the value is not a string of 1 to ``limit``
        characters
    """
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise error_class(
            f'{kind} {owner!r}: {value_name}: {value!r}; expected a string of '
            f'1 to {limit} characters')


def usable_laws(names, laws, kind, damaged):
    """Return packed laws concatenated, without damaged ones.

    :param names: n instance uuids or keys
    :param laws: n values of the column ``law``
    :param kind: kind of the names, for example 'model'
    :param damaged: {(kind, name): reason in words}, to which damaged laws are
        added
    :returns: (names, sizes, data) of the other laws, as :func:`unpack_laws`
    """
    try:
        return (names, *unpack_laws(names, laws))
    except (exceptions.StoreError, TypeError, ValueError):
        pass
    usable = []
    for name, law in zip(names, laws):
        try:
            unpack_laws([name], [law])
            usable.append((name, law))
        except (exceptions.StoreError, TypeError, ValueError) as error:
            damaged[kind, name] = str(error)
    names, laws = zip(*usable) if usable else ((), ())
    return (names, *unpack_laws(names, laws))


def usable_attachments(instance_uuid, text, kind, damaged):
    """Return the Attachments of a column, or None if it is damaged.

    :param instance_uuid: uuid of the instance
    :param text: value of the column
    :param kind: kind of the record, for example 'claim'
    :param damaged: {(kind, name): reason in words}, to which damaged values
        are added
    """
    try:
        return unpack_attachments(instance_uuid, text)
    except (exceptions.StoreError, TypeError, ValueError) as error:
        damaged[kind, instance_uuid] = str(error)
        return None


def storable(text):
    """Return a descriptive text without characters that databases reject.

    These are the character NUL and single surrogates.

    :param text: string or None
    """
    if text is None:
        return None
    return text.replace('\0', '').encode('utf-8', 'replace').decode()


def pack_attachments(attachments):
    """Return Attachments, or None, as JSON.

    :param attachments: Attachments or None
    """
    # Attachments without any interface are falsy, but not unknown.
    return json.dumps(None if attachments is None else attachments.to_data())


def unpack_attachments(instance_uuid, text):
    """Return the Attachments of a column, or None.

    :param instance_uuid: uuid of the instance, for the message
    :param text: value that :func:`pack_attachments` returned, or None
    :raises StoreError: if the text is damaged; the message names the instance
    """
    try:
        data = None if text is None else damage.decode(
            text, (None, list, dict))
        return None if data is None \
            else vswitch_attachments.Attachments.from_data(data)
    except ValueError as error:
        raise exceptions.StoreError(
            f'instance {instance_uuid}: its stored networks are damaged: '
            f'{error}') from error


def guarantee_of(instance_uuid, rates):
    """Return the rates that ports guarantee, or None if they are unknown.

    :param instance_uuid: uuid of the instance, for the message
    :param rates: sequence of egress_kbps, ingress_kbps and kpps, all None if
        they are unknown
    :returns: tuple of three floats, or None
    :raises InvalidModel: if a rate is invalid
    """
    rates = tuple(rates)
    if rates == (None,) * 3:
        return None
    if len(rates) != 3 or not all(
            isinstance(rate, numbers.Real) and 0 <= rate < math.inf
            for rate in rates):
        raise exceptions.InvalidModel(
            f'instance {instance_uuid}: guaranteed rates: {rates!r}; expected '
            f'three finite numbers from 0')
    return tuple(map(float, rates))


def usable_guarantee(instance_uuid, row, kind, damaged):
    """Return the guaranteed rates of a row, or None if they are unusable.

    :param instance_uuid: uuid of the instance
    :param row: row with the columns of :func:`pack_guarantee`
    :param kind: kind of the record, for example 'claim'
    :param damaged: {(kind, name): reason in words}, to which unusable rates
        are added
    """
    try:
        return guarantee_of(instance_uuid, (
            row.egress_kbps, row.ingress_kbps, row.kpps))
    except exceptions.InvalidModel as error:
        damaged[kind, instance_uuid] = str(error)
        return None


def pack_guarantee(rates):
    """Return the columns of guaranteed rates.

    :param rates: (egress_kbps, ingress_kbps, kpps), or None if unknown
    """
    return dict(zip(('egress_kbps', 'ingress_kbps', 'kpps'),
                    rates or (None,) * 3))


def pack_law(owner):
    """Return the column of the law of a model, a claim or a prior.

    :param owner: record with an attribute ``law``
    :returns: {'law': bytes}
    """
    return {'law': bytes([_LAW_FORMAT]) + owner.law}


def unpack_laws(names, laws):
    """Return many packed laws as concatenated RateLaws.

    :param names: n instance uuids or keys, for the message of an error
    :param laws: n values of the column ``law``, see :func:`pack_law`
    :returns: (sizes, data): (n,) int64 number of bytes of each law, and the
        concatenated RateLaws as bytes
    :raises StoreVersionError: if a law has another format
    :raises StoreError: if a law is damaged
    """
    head = bytes([_LAW_FORMAT])
    for name, law in zip(names, laws):
        if law[:1] != head:
            raise exceptions.StoreVersionError(
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
        raise exceptions.StoreError(
            f'instance {names[int(np.argmax(bad))]}: its law is damaged; '
            f'expected rows of finite numbers >= 0, and {sampled.INSTANTS} '
            f'numbers of rows or none')
    return sizes, data


def _are_damaged(data, states, is_sampled):
    """Return (n,) bool: which laws have impossible contents.

    :param data: uint8 array of the concatenated laws
    :param states: (n,) number of states of each law
    :param is_sampled: (n,) bool
    """
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
