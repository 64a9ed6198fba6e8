# SPDX-License-Identifier: Apache-2.0
"""What the ``vswitch:`` extra specs of a flavor say of its instances.

The scheduler and the modeler read the same of the same flavor. Pure; no Nova.
"""

import functools
import reprlib

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import model

__all__ = ['EXTRA_SPECS', 'LARGEST', 'MODEL_EXTRA_SPEC', 'RATES',
           'constant_law', 'law_of', 'law_of_extra_specs']

#: Numbers a flavor can carry, all integers 0..LARGEST, and what they mean.
EXTRA_SPECS = {
    'vswitch:egress_kbps': 'rate an instance sends at while it is on, kbit/s',
    'vswitch:ingress_kbps': 'rate it receives at while it is on, kbit/s',
    'vswitch:kpps': 'kilo-packets/s, both directions, while it is on',
    'vswitch:on_seconds': 'mean time it is on; without it, always',
    'vswitch:off_seconds': 'mean time it is off; without it, never',
}

#: The largest of these numbers, as of the options of the default demand.
LARGEST = 8_000_000_000

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = 80

#: Names the instance whose learned model stands for all of this flavor.
MODEL_EXTRA_SPEC = 'vswitch:model'

#: Laws of flavors that are kept. Residents are described by theirs again and
#: again, so fewer than a cloud has flavors would make each of them anew.
MOST_LAWS = 65_536

#: What a rate is made of, in the order of its columns.
RATES = ('egress_kbps', 'ingress_kbps', 'kpps')


def law_of(extra_specs, laws):
    """Return (RateLaw, which rule gave it) of a flavor, or None.

    :param extra_specs: mapping of strings
    :param laws: callable, instance uuid -> learned RateLaw or None
    :returns: None where they say nothing; the rule is 'flavor model' or
        'flavor'
    :raises InvalidOverride: as :func:`law_of_extra_specs`
    """
    named = extra_specs.get(MODEL_EXTRA_SPEC)
    if named is not None:
        law = laws(named)
        if law is not None:
            return law, 'flavor model'
    law = law_of_extra_specs(extra_specs)
    if law is not None:
        return law, 'flavor'
    if named is not None:
        raise exceptions.InvalidOverride(
            f'flavor extra spec {MODEL_EXTRA_SPEC} is {named!r}, wanted the '
            f'uuid of an instance that has a learned model')
    return None


def law_of_extra_specs(extra_specs):
    """Return the RateLaw that a flavor's numbers describe, or None.

    :param extra_specs: mapping of strings
    :raises InvalidOverride: naming the key, the value and what was wanted
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
        raise exceptions.InvalidOverride(
            f'flavor extra specs {sorted(numbers)}: no rate is above 0, '
            f'wanted vswitch:egress_kbps, vswitch:ingress_kbps or '
            f'vswitch:kpps')
    on, off = numbers.get('on_seconds'), numbers.get('off_seconds')
    if on is None and off is None:
        return constant_law(**rates)
    if not on or not off:
        raise exceptions.InvalidOverride(
            f'flavor extra specs: vswitch:on_seconds is {on} and '
            f'vswitch:off_seconds is {off}, wanted both above 0, or neither')
    return _on_off_law(**rates, on_seconds=on, off_seconds=off)


# The same for every request of a flavor.
@functools.lru_cache(maxsize=MOST_LAWS)
def constant_law(**rates):
    """Return the RateLaw of constant rates."""
    return model.TrafficModel.constant(**rates).law


@functools.lru_cache(maxsize=MOST_LAWS)
def _on_off_law(**numbers):
    return model.TrafficModel.on_off(**numbers).law


def _whole_number(key, text):
    try:
        value = int(text)
    except (TypeError, ValueError):
        value = -1
    if not 0 <= value <= LARGEST:
        raise exceptions.InvalidOverride(
            f'flavor extra spec {key} is {_BRIEF.repr(text)}, wanted a whole '
            f'number, 0 <= number <= {LARGEST}')
    return value
