# SPDX-License-Identifier: Apache-2.0
"""Builds the collaborators of a SchedulerState from [vswitch_scheduler].

An invalid option is reported and ignored. It never fails a request. This
module opens no file, socket or thread except the file of switch profiles.
"""

import typing

from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler.admission import uplink_policies
from vswitch_aware_scheduler.scheduler import aggregates
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['make_aggregates', 'make_store', 'nothing_limited']

#: How VSwitchFilter treats hosts without a profile, by unknown_host_policy.
_UNKNOWN_HOSTS = {'pass': 'checks nothing and lets every instance pass',
                  'reject': 'refuses every host'}


def make_aggregates(
        conf: typing.Any,
        report: aggregate_metadata.Report) -> aggregates.Aggregates:
    """Return the Aggregates, with all valid switch profiles."""
    try:
        profiles = vswitch_profile.profiles(conf.switch_profiles_file)
        report('switch profiles', None)
    except Exception as error:
        profiles = vswitch_profile.profiles()
        report('switch profiles',
               f'{error}; only the built-in profiles are used')
    default = conf.default_switch_profile or None
    if default is not None and default not in profiles:
        report('default_switch_profile', (
            f'[vswitch_scheduler]/default_switch_profile: {default!r}; '
            f'expected one of {", ".join(sorted(profiles))}; it is ignored'))
        default = None
    return aggregates.Aggregates(
        host_policies.HostPolicies(
            profiles, default, conf.admission_policy,
            conf.overload_probability, conf.unknown_host_policy == 'pass',
            report, conf.enforcement, conf.prediction_margin),
        uplink_policies.UplinkPolicies(
            profiles, conf.admission_policy, conf.overload_probability,
            report, conf.prediction_margin), report)


def make_store(conf: typing.Any,
               timeout_seconds: float | None = None) -> typing.Any:
    """Return the Store, or a substitute that raises why there is no store."""
    try:
        return store.Store(conf.store_url, timeout_seconds
                           or conf.store_timeout_seconds)
    except Exception as error:
        return _NoStore(error)


def nothing_limited(conf: typing.Any) -> str:
    """Return the message that no host has a limit."""
    return (f'no host that requests have been for has a switch profile or is '
            f'behind an uplink, so that VSwitchFilter '
            f'{_UNKNOWN_HOSTS[conf.unknown_host_policy]}; set '
            f'[vswitch_scheduler]/default_switch_profile, run '
            f'"vswitch-manage host set", or set vswitch:profile on an '
            f'aggregate')


class _NoStore:
    """Replaces a store with an invalid URL. Each use raises the error."""

    def __init__(self, error):
        self._error = error

    def __getattr__(self, name):
        raise self._error
