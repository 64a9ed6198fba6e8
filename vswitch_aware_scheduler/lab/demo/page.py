# SPDX-License-Identifier: Apache-2.0
"""The report page of the demo's cloud."""

import time

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.report import contents
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler import store

__all__ = ['write']


def write(path, store_url, placements, hosts, profiles, admission_policy,
          overload_probability):
    """Write the report of a placement. Add Nova's data to its store.

    :param placements: {uuid: host}
    :param hosts: [(host, profile name)]
    :raises InvalidInput: if a library that creates pages is not installed
    """
    page.require()
    target, now = store.Store(store_url), time.time()
    target.write(
        placements=[store.InstanceRecord(uuid, host)
                    for uuid, host in placements.items()],
        inventory=store.InventoryState('demo', now, now),
        host_profiles=[store.HostProfile(host, name, source='demo')
                       for host, name in hosts])
    policy_of = {name: admission.HostPolicy(
        profiles[name], admission_policy, overload_probability)
        for name in {name for _, name in hosts}}
    policies = {host: policy_of[name] for host, name in hosts}
    # Also needed by "vswitch-manage fleet" and "report".
    target.write_fleet({'host': {
        host: {**policy_in_force.pack(policy), 'origins': {}}
        for host, policy in policies.items()}, 'uplink': {}}, now)
    report = contents.Contents(view.FleetView(target))
    # The traffic is old: no model is stale in the demo.
    ends = [window_end for _, _, window_end, _ in target.model_times()]
    text = page.Page().render(report.report(max(ends, default=now)))
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
