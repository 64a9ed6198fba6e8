# SPDX-License-Identifier: Apache-2.0
"""The report page of the demo's cloud."""

import time

from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.lab.demo import fleet
from vswitch_aware_scheduler.report import contents
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler import store

__all__ = ['write']


def write(path: str, store_url: str, placements: dict, hosts: list,
          profiles: dict, admission_policy: str,
          overload_probability: float) -> None:
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
    # Also needed by "vswitch-manage fleet" and "report".
    target.write_fleet({'uplink': {}, 'host': fleet.packed_policies(
        hosts, profiles, admission_policy, overload_probability)}, now)
    report = contents.Contents(view.FleetView(target))
    # The traffic is old: no model is stale in the demo.
    ends = [window_end for _, _, window_end, _ in target.model_times()]
    text = page.Page().render(report.report(max(ends, default=now)))
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
