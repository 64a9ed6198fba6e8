# SPDX-License-Identifier: Apache-2.0
"""What an instance without a traffic model counts with, by the store alone.

A scheduler knows more of instances that it has placed itself:
:mod:`vswitch_aware_scheduler.scheduler.resident_laws`. Pure.
"""

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler import exceptions

__all__ = ['DEFAULT', 'FLAVOR', 'MODEL', 'PRIOR', 'law_of', 'stated_law',
           'unmodelled_law']

# Which rule gave the law of an instance.
MODEL, FLAVOR, PRIOR, DEFAULT = 'model', 'flavor', 'prior', 'default'


def law_of(snapshot, uuid, extra_specs, unknown, fitting):
    """Return (RateLaw, which rule gave it) of an instance.

    Arguments as of :func:`unmodelled_law`; a learned model comes first.
    """
    law = snapshot.law(uuid)
    if law is not None:
        return law, MODEL
    return unmodelled_law(snapshot, uuid, extra_specs, unknown, fitting)


def unmodelled_law(snapshot, uuid, extra_specs, unknown, fitting):
    """Return (RateLaw, which rule gave it) of an instance without a model.

    What the instance has shown itself comes first, then what its flavor
    states, then the prior of its group, then the default.

    :param snapshot: :class:`.Snapshot`
    :param uuid: of the instance
    :param extra_specs: mapping of strings, of its flavor
    :param unknown: RateLaw of an instance of which nothing is known, or None
    :param fitting: callable(law, law of its group or None) -> the prior as an
        instance on the host can have it
    """
    law, prior_of = snapshot.prior(uuid) or (None, None)
    if prior_of != 'instance':
        stated = stated_law(extra_specs, snapshot)
        if stated is not None:
            return stated[0], FLAVOR
    if law is None:
        return unknown, DEFAULT
    group = snapshot.group_prior(uuid) if prior_of == 'instance' else None
    return fitting(law, group and group[0]), PRIOR


def stated_law(extra_specs, snapshot):
    """Return (RateLaw, which rule gave it) that a flavor states, or None.

    Extra specs that cannot be used state nothing: the scheduler reports them.
    Arguments as of :func:`unmodelled_law`; the rule as of
    :func:`.law_of`.
    """
    try:
        return flavor_specs.law_of(extra_specs, snapshot.law)
    except exceptions.InvalidInput:
        return None
