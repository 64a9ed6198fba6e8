# SPDX-License-Identifier: Apache-2.0
"""Converts laws, priors and attachments to columns of the store and back.

Values that are read are validated.
"""

import json
import math
import numbers

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import slots as sampled_slots
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['check_text', 'guarantee_of', 'pack_attachments', 'pack_guarantee',
           'pack_law', 'pack_prior', 'storable', 'unpack_attachments',
           'unpack_laws', 'unpack_prior', 'usable_attachments',
           'usable_guarantee', 'usable_laws']

#: First byte of a packed law. One row for each state follows: its probability
#: twice, and three rates. (The earlier version stored two probabilities, of
#: two regimes. It can read these rows.)
_LAW_FORMAT = 2
_LAW_COLUMNS = 5
_LAW_ROW_BYTES = 8 * _LAW_COLUMNS

#: Share of the time of each regime in the earlier version.
_REGIME_SHARES = (0.9, 0.1)

#: Number of bytes after the states of a RateLaw.
_TAIL_BYTES = 8 * rate_law.LAW_COLUMNS * rate_law.TAIL_ROWS


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


def usable_laws(names, laws, tails, kind, damaged):
    """Return packed laws concatenated, without damaged ones.

    :param names: n instance uuids or keys
    :param laws: n values of the column ``law``
    :param tails: n values of the column ``slots``
    :param kind: kind of the names, for example 'model'
    :param damaged: {(kind, name): reason in words}, to which damaged laws are
        added
    :returns: (names, counts, data) of the other laws, as :func:`unpack_laws`
    """
    try:
        return (names, *unpack_laws(names, laws, tails))
    except (exceptions.StoreError, TypeError, ValueError):
        pass
    usable = []
    for name, law, tail in zip(names, laws, tails):
        try:
            unpack_laws([name], [law], [tail])
            usable.append((name, law, tail))
        except (exceptions.StoreError, TypeError, ValueError) as error:
            damaged[kind, name] = str(error)
    names, laws, tails = zip(*usable) if usable else ((), (), ())
    return (names, *unpack_laws(names, laws, tails))


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
        data = None if text is None else json.loads(text)
        return None if data is None \
            else vswitch_attachments.Attachments.from_data(data)
    except (ValueError, RecursionError) as error:
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
    """Return the columns of the law of a model, a claim or a prior.

    :param owner: record with an attribute ``law``
    :returns: {'law': bytes, 'slots': bytes}
    """
    law = owner.law
    rows = np.frombuffer(law[:-_TAIL_BYTES], '<f8').reshape(
        -1, rate_law.LAW_COLUMNS)
    return {'law': bytes([_LAW_FORMAT]) + np.hstack(
        [rows[:, :1], rows]).tobytes(), 'slots': bytes(law[-_TAIL_BYTES:])}


def pack_prior(prior_of):
    """Return the columns of the law of a :class:`Prior`.

    :param prior_of: Prior
    """
    columns = pack_law(prior_of)
    if prior_of.instance_uuid is None:
        columns['slots'] = prior_of.high_shares + columns['slots'][-1:]
    return columns


def unpack_prior(law, tail):
    """Return the Expected of a group.

    :param law: RateLaw that :func:`unpack_laws` returned
    :param tail: value of the column ``slots``, or None
    """
    return prior.Expected(law, bytes(sampled_slots.SLOTS) if tail is None
                          else tail[:sampled_slots.SLOTS])


def _unpack_tails(names, tails, states):
    """Return (n, _TAIL_BYTES) uint8, the part of RateLaws after the states.

    For the law of a group, the bits of the slots are 0: they are drawn later.
    """
    packed = []
    for name, tail, count in zip(names, tails, states.tolist()):
        if tail is None:
            tail = bytes(_TAIL_BYTES - 1) + bytes([min(count, 255)])
        elif len(tail) == sampled_slots.SLOTS + 1:
            tail = bytes(_TAIL_BYTES - 1) + tail[-1:]
        if len(tail) != _TAIL_BYTES or not 1 <= tail[-1] <= max(count, 1):
            raise exceptions.StoreError(
                f'instance {name}: the sampled slots of its law are damaged: '
                f'{len(tail)} bytes, the last one '
                f'{tail[-1] if tail else None}; expected {_TAIL_BYTES} or '
                f'{sampled_slots.SLOTS + 1} bytes, and a number of low '
                f'states of 1 to {count}')
        packed.append(tail)
    return np.frombuffer(b''.join(packed), np.uint8).reshape(-1, _TAIL_BYTES)


def unpack_laws(names, laws, tails):
    """Return many packed laws as concatenated RateLaws.

    :param names: n instance uuids or keys, for the message of an error
    :param laws: n values of the column ``law``, see :func:`pack_law`
    :param tails: n values of the column ``slots``; None for laws of an earlier
        version
    :returns: (counts, data): (n,) int64 number of states of each law, and the
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
    bad = (sizes % _LAW_ROW_BYTES != 0) | (sizes == 0)
    if not bad.any():
        counts = sizes // _LAW_ROW_BYTES
        rows = np.frombuffer(b''.join([law[1:] for law in laws]),
                             '<f8').reshape(-1, _LAW_COLUMNS)
        wrong = ~(np.isfinite(rows).all(axis=1) & (rows >= 0).all(axis=1)
                  & (rows[:, :2] <= 1).all(axis=1))
        if not wrong.any():
            return counts, _in_one_piece(
                rows, counts, _unpack_tails(names, tails, counts))
        bad = np.add.reduceat(wrong, np.cumsum(counts) - counts) > 0
    raise exceptions.StoreError(
        f'instance {names[int(np.argmax(bad))]}: its law is damaged; expected '
        f'rows of finite numbers >= 0')


def _in_one_piece(rows, counts, tails):
    """Return concatenated RateLaws.

    :param rows: (number of all states, _LAW_COLUMNS)
    :param counts: (n,) number of states of each law
    :param tails: (n, _TAIL_BYTES) uint8
    """
    tail_rows = rate_law.TAIL_ROWS
    packed = np.empty((len(rows) + tail_rows * counts.size,
                       rate_law.LAW_COLUMNS), dtype='<f8')
    at = np.arange(len(rows)) + np.repeat(
        tail_rows * np.arange(counts.size), counts)
    # This is exact if both regimes have the same probability.
    packed[at, 0] = np.where(
        rows[:, 0] == rows[:, 1], rows[:, 0], rows[:, :2] @ _REGIME_SHARES)
    packed[at, 1:] = rows[:, 2:]
    ends = np.cumsum(counts + tail_rows)
    packed[ends[:, None] + np.arange(-tail_rows, 0)] = tails.view(
        '<f8').reshape(-1, tail_rows, rate_law.LAW_COLUMNS)
    return packed.tobytes()
