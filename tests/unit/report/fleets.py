# SPDX-License-Identifier: Apache-2.0
"""A small fleet in a store, with hostile names, for the tests of reports."""

import time

from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.report import contents
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import decisions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

#: What a tenant may call a VM, or an operator a host.
HOSTILE = ('</script><script>window.hacked=1</script>'
           '<img src=x onerror="window.hacked=1">\'"&lt;${7*7}{{7*7}}')

ON, OFF = 60.0, 540.0

#: Ten VMs of which three may be on at once.
SOURCE = model.TrafficModel.on_off(100.0, on_seconds=ON, off_seconds=OFF)
POLICY = admission.HostPolicy(
    profile.SwitchProfile('own', saturation_kbps=350.0),
    overload_probability=.05)

DEFAULT = model.TrafficModel.constant(5.0).law

#: The same in the options of commands.
PROFILES = 'own: {saturation_kbps: 350}\n'
OPTIONS = ('overload_probability = 0.05', 'default_egress_kbps = 5',
           'default_ingress_kbps = 0')


def fill(target, now=None):
    """Write hosts h1 with ten VMs, h2 with one and an empty one."""
    now = time.time() if now is None else now
    models = [store.StoredModel(
        base.instance_uuid(number), SOURCE, window_start=now - 900000,
        window_end=now - (100000 if number == 2 else 600), samples=300,
        source='file', name=HOSTILE if number == 1 else f'vm-{number}')
        for number in range(1, 11)]
    placements = [store.InstanceRecord(
        base.instance_uuid(number), 'h1' if number < 11 else 'h2',
        'small', 'p1') for number in range(1, 12)]
    target.write(
        models, placements=placements, now=now,
        inventory=store.InventoryState('nova', now, now),
        host_profiles=[store.HostProfile(host, 'own', source='operator')
                       for host in ('h1', 'h2', HOSTILE)])
    target.report_worker(store.Worker(HOSTILE[:99], HOSTILE[:99], now, now, {
        'problems': {'a': HOSTILE}}))
    target.write_decisions([decisions.Decision(
        f'{number:032x}', now - 600.0 * number, 'worker', None,
        base.instance_uuid(number), 'p1', 'small', 'model',
        decisions.PLACED if number % 2 else decisions.NO_HOST,
        'h1' if number % 2 else None, 3, 1, {'overload': 2}, 0, None, [])
        for number in range(1, 7)])


def clear(target):
    """Remove the hosts and the instances of :func:`fill`."""
    target.write(remove_hosts=['h1', 'h2', HOSTILE],
                 remove_placements=[base.instance_uuid(number)
                                    for number in range(1, 12)], now=base.NOW)
    write_policies(target, {})


def write_policies(target, policies):
    """Write {host: HostPolicy} as a modeler would."""
    target.write_fleet({
        'host': {host: policy_in_force.pack(policy)
                 for host, policy in policies.items()},
        'uplink': {uplink.name: policy_in_force.pack(uplink.policy)
                   for policy in policies.values()
                   for uplink in policy.uplinks}}, time.time())


def report_of(target, policy=POLICY, **policies):
    """Return the Contents of a store whose hosts have some policies."""
    write_policies(target, {**dict.fromkeys(('h1', 'h2', HOSTILE), policy),
                            **policies})
    return contents.Contents(view.FleetView(target, DEFAULT))
