# SPDX-License-Identifier: Apache-2.0
"""Reads the ``vswitch:`` extra specs of a flavor.

Scheduler and modeler derive the same law from the same flavor. Pure; no Nova.
"""

from collections import abc
import functools
import typing

import numpy as np

from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['EXTRA_SPECS', 'LARGEST', 'MIGRATE_EXTRA_SPEC', 'MIGRATE_VALUES',
           'MODEL_EXTRA_SPEC', 'RATES', 'law_of', 'law_of_extra_specs', 'read']

#: Law that a flavor states, and the rule that gave it.
Statement: typing.TypeAlias = tuple[rate_law.RateLaw, str]
#: Returns the learned law of the instance with a uuid, or None.
Laws: typing.TypeAlias = abc.Callable[[str], rate_law.RateLaw | None]

#: Numbers of a flavor, all integers 0..LARGEST, and their meaning.
EXTRA_SPECS = {
    'vswitch:egress_kbps': 'rate at which it sends while it is on, kbit/s',
    'vswitch:ingress_kbps': 'rate at which it receives while it is on, kbit/s',
    'vswitch:kpps': 'kilo-packets/s, both directions, while it is on',
    'vswitch:on_seconds': 'mean length of an on time; if absent, always on',
    'vswitch:off_seconds': 'mean length of an off time; if absent, never off',
}

#: Largest value of these numbers, the same as in the options of the default
#: demand.
LARGEST = 8_000_000_000

_SPEC = 'flavor extra spec '

#: Key with the uuid of the instance whose learned model applies to all
#: instances of the flavor.
MODEL_EXTRA_SPEC = 'vswitch:model'

#: Key that says whether instances may be migrated to keep error budgets. It is
#: also a key of aggregates and of the metadata of instances.
MIGRATE_EXTRA_SPEC = 'vswitch:migrate'

#: Its values.
MIGRATE_VALUES = ('allowed', 'never')

_KEYS = (*EXTRA_SPECS, MODEL_EXTRA_SPEC, MIGRATE_EXTRA_SPEC)

#: Maximum number of cached laws of flavors. Residents are described by their
#: flavors often, so that a smaller cache than the number of flavors in a cloud
#: would be useless.
MOST_LAWS = 65_536

#: Components of a rate, in the order of its columns.
RATES = ('egress_kbps', 'ingress_kbps', 'kpps')


def read(extra_specs: abc.Mapping[str, str],
         laws: Laws) -> tuple[Statement | None, str | None]:
    """Return what a flavor states, and what is wrong with its specs."""
    stated, problems = None, []
    try:
        stated = law_of(extra_specs, laws)
    except exceptions.InvalidInput as error:
        problems.append(f'{error}: its vswitch: extra specs are ignored')
    problems += [
        f'{aggregate_metadata.unknown_key(_SPEC, key, text, _KEYS)}; it is '
        'ignored' for key, text in sorted(extra_specs.items())
        if key.startswith(aggregate_metadata.PREFIX) and key not in _KEYS]
    return stated, '; '.join(problems) or None


def law_of(extra_specs: abc.Mapping[str, str], laws: Laws) -> Statement | None:
    """Return the law of a flavor and the rule that gave it, or None."""
    named = extra_specs.get(MODEL_EXTRA_SPEC)
    if named is not None:
        law = laws(named)
        if law is not None:
            return law, 'flavor model'
    law = law_of_extra_specs(extra_specs)
    if law is not None:
        return law, 'flavor'
    if named is not None:
        raise exceptions.InvalidInput(
            thing=_SPEC + MODEL_EXTRA_SPEC, value=named,
            expected='the uuid of an instance that has a learned model')
    return None


def law_of_extra_specs(
        extra_specs: abc.Mapping[str, str]) -> rate_law.RateLaw | None:
    """Return the RateLaw that a flavor's numbers describe, or None.

    :raises InvalidInput: if a number is invalid
    """
    numbers = {}
    for key in EXTRA_SPECS:
        if key in extra_specs:
            numbers[key.partition(':')[2]] = _whole_number(
                key, extra_specs[key])
    rates = {name: numbers.get(name, 0) for name in RATES}
    if not numbers:
        return None
    if not any(rates.values()):
        raise exceptions.InvalidInput(
            f'flavor extra specs {sorted(numbers)}: no rate is above 0; '
            f'expected vswitch:egress_kbps, vswitch:ingress_kbps or '
            f'vswitch:kpps')
    on, off = numbers.get('on_seconds'), numbers.get('off_seconds')
    if on is None and off is None:
        return _law(**rates)
    if not on or not off:
        raise exceptions.InvalidInput(
            f'flavor extra specs: vswitch:on_seconds = {on}, '
            f'vswitch:off_seconds = {off}; expected two numbers above 0, or '
            f'neither of these specs')
    return _law(**rates, on_seconds=on, off_seconds=off)


# Cached, because every request of a flavor needs the same law.
@functools.lru_cache(maxsize=MOST_LAWS)
def _law(egress_kbps, ingress_kbps, kpps, on_seconds=1, off_seconds=0):
    """Return the law of :meth:`.TrafficModel.on_off` without its checks."""
    rates = [egress_kbps, ingress_kbps, kpps]
    if not off_seconds:
        return rate_law.RateLaw.from_arrays([1.0], [rates])
    shares = np.array([off_seconds, on_seconds]) / max(
        on_seconds, off_seconds) * .5
    return rate_law.RateLaw.from_arrays(
        shares / shares.sum(), [[0.0, 0.0, 0.0], rates])


def _whole_number(key: str, text: str) -> int:
    try:
        value = int(text)
    except (TypeError, ValueError):
        value = -1
    if not 0 <= value <= LARGEST:
        raise exceptions.InvalidInput(
            thing=_SPEC + key, value=text,
            expected=f'a whole number from 0 to {LARGEST}')
    return value
