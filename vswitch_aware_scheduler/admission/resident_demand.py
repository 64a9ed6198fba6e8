# SPDX-License-Identifier: Apache-2.0
"""Determines the law of an instance without traffic model, from the store.

A scheduler also uses what it recorded when it placed the instance:
:mod:`vswitch_aware_scheduler.scheduler.resident_laws`. Pure.
"""

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler import exceptions

__all__ = ['DEFAULT', 'FLAVOR', 'MODEL', 'PRIOR', 'law_of', 'stated_law',
           'takes_prior', 'unmodelled_law']

# Which rule gave the law of an instance.
MODEL, FLAVOR, PRIOR, DEFAULT = 'model', 'flavor', 'prior', 'default'


def takes_prior(prior_of, is_stated):
    """Return whether the prior of an instance without a model applies.

    A prior of the instance's own traffic comes before what its flavor or a
    request states, and that comes before the prior of a group. The scheduler
    follows this rule for requests and for residents, and the commands for what
    they print.

    :param prior_of: what the prior was learned from, 'instance' for its own
        traffic; None if there is no prior
    :param is_stated: whether a demand is stated
    """
    return prior_of is not None and (prior_of == 'instance' or not is_stated)


def law_of(snapshot, uuid, extra_specs, unknown, fitting):
    """Return the law of an instance and the rule that gave it.

    A learned model comes first, then the rules of :func:`unmodelled_law`.

    :param snapshot: as in :func:`unmodelled_law`
    :param uuid: as in :func:`unmodelled_law`
    :param extra_specs: as in :func:`unmodelled_law`
    :param unknown: as in :func:`unmodelled_law`
    :param fitting: as in :func:`unmodelled_law`
    :returns: (RateLaw, MODEL, FLAVOR, PRIOR or DEFAULT)
    """
    law = snapshot.law(uuid)
    if law is not None:
        return law, MODEL
    return unmodelled_law(snapshot, uuid, extra_specs, unknown, fitting)


def unmodelled_law(snapshot, uuid, extra_specs, unknown, fitting):
    """Return the law of an instance without a model and its rule.

    The prior of the instance's own traffic comes first, then the flavor, then
    the prior of its group, then the default.

    :param snapshot: :class:`.Snapshot`
    :param uuid: uuid of the instance
    :param extra_specs: mapping of strings, the extra specs of its flavor
    :param unknown: RateLaw of an instance about which nothing is known, or
        None
    :param fitting: callable(law, law of its group or None), returns the prior
        cut to what one instance on the host may have
    :returns: (RateLaw, FLAVOR, PRIOR or DEFAULT)
    """
    law, prior_of = snapshot.prior(uuid) or (None, None)
    stated = stated_law(extra_specs, snapshot)
    if not takes_prior(prior_of, stated is not None):
        return (unknown, DEFAULT) if stated is None else (stated[0], FLAVOR)
    group = snapshot.group_prior(uuid) if prior_of == 'instance' else None
    return fitting(law, group and group[0]), PRIOR


def stated_law(extra_specs, snapshot):
    """Return the law that a flavor states and its rule, or None.

    Invalid extra specs state no law: the scheduler reports them.

    :param extra_specs: mapping of strings
    :param snapshot: :class:`.Snapshot`
    :returns: as :func:`.law_of`
    """
    try:
        return flavor_specs.law_of(extra_specs, snapshot.law)
    except exceptions.InvalidInput:
        return None
