# SPDX-License-Identifier: Apache-2.0
"""Makes what a SchedulerState uses from the options of [vswitch_scheduler].

An option that cannot be used is reported and ignored: it never fails a
request. Nothing is opened.
"""

from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler.admission import uplink_policies
from vswitch_aware_scheduler.scheduler import aggregates
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['make_aggregates', 'make_store', 'nothing_limited',
           'warn_of_ignored']

#: What happens to hosts without a profile, by unknown_host_policy.
_UNKNOWN_HOSTS = {'pass': 'checks nothing and lets every instance pass',
                  'reject': 'refuses every host'}


def warn_of_ignored(conf):
    """Let oslo.config warn of options that are set and have no effect."""
    for name in ('claim_expiry_seconds', 'claims_refresh_seconds',
                 'claims_wait_seconds'):
        conf[name]


def make_aggregates(conf, report):
    """Return the Aggregates, with the switch profiles that can be used.

    :param conf: the group [vswitch_scheduler]
    :param report: callable(topic, problem or None)
    """
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
            f'[vswitch_scheduler]/default_switch_profile is {default!r}, '
            f'wanted one of {", ".join(sorted(profiles))}; it is ignored'))
        default = None
    return aggregates.Aggregates(
        host_policies.HostPolicies(
            profiles, default, conf.admission_policy,
            conf.overload_probability, conf.unknown_host_policy == 'pass',
            report, conf.enforcement),
        uplink_policies.UplinkPolicies(
            profiles, conf.admission_policy, conf.overload_probability,
            report), conf.strict, report)


def make_store(conf, most_seconds=float('inf')):
    """Return the Store, or what raises the reason why there is none.

    :param conf: the group [vswitch_scheduler]
    :param most_seconds: upper bound of the time limit of a statement
    """
    try:
        return store.Store(conf.store_url, min(
            conf.store_timeout_seconds, most_seconds))
    except Exception as error:
        return _NoStore(error)


def nothing_limited(conf):
    """Return the problem that no host has a limit, in words."""
    return (f'no host that requests have been for has a switch profile or is '
            f'behind an uplink, so that VSwitchFilter '
            f'{_UNKNOWN_HOSTS[conf.unknown_host_policy]}; set '
            f'[vswitch_scheduler]/default_switch_profile, run '
            f'"vswitch-manage host set", or set vswitch:profile on an '
            f'aggregate')


class _NoStore:
    """Stands in for a store whose URL cannot be used."""

    def __init__(self, error):
        self._error = error

    def read_changes(self, *arguments):
        raise self._error

    read_claims = write_claims = purge_claims = read_changes
    write_decisions = purge_decisions = read_changes
