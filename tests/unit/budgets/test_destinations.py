# SPDX-License-Identifier: Apache-2.0

import types
import unittest

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand
from vswitch_aware_scheduler.budgets import destinations
from vswitch_aware_scheduler.store import budgets
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import profile

HOSTS = ['h0', 'h1', 'h2', 'h3']


class Fleet:
    """What a FleetView has of some hosts.

    :param policies: {host: HostPolicy}
    :param instances: {uuid: (host, law, number of networks)}
    """

    def __init__(self, policies, instances, debts=None):
        self.policies = policies
        self.debts = debts or {}
        self.instances = instances
        self.snapshot = types.SimpleNamespace(
            placement=snapshot.Snapshot(placements={
                uuid: (host, None, 'p', None, None)
                for uuid, (host, _, _) in instances.items()}).placement,
            attachments=lambda uuid: attachments.Attachments(
                tuple(map(str, range(instances[uuid][2])))))

    def laws(self, host):
        return {uuid: law for uuid, (at, law, _) in self.instances.items()
                if at == host}

    def demand(self, uuid, flavor, project):
        return demand.Demand(self.instances[uuid][1], demand.MODEL,
                             project=project)


class DestinationsTestCase(unittest.TestCase):

    def policies(self, generator):
        uplink = admission.Uplink('tor', self.policy(1400.0))
        return {host: self.policy(
            generator.integers(600, 900), uplinks=(uplink,) * (number < 2),
            enforced=number != 3, vm_peak_kbps=500.0, max_tunnels=8,
            tunnel_unit='interfaces') for number, host in enumerate(HOSTS)}

    def policy(self, capacity, uplinks=(), enforced=True, **limits):
        return admission.HostPolicy(profile.SwitchProfile(
            'p', saturation_kbps=float(capacity), **limits),
            overload_probability=.05, uplinks=uplinks, enforced=enforced)

    def test_hosts_are_judged_as_the_filter_judges_them_after_each_move(self):
        seen = set()
        for seed in range(12):
            generator = np.random.default_rng(seed)
            policies = self.policies(generator)
            instances = {f'vm{number}': (
                HOSTS[generator.integers(4)], model.TrafficModel.on_off(
                    float(generator.integers(50, 520)), 0.0, on_seconds=60.0,
                    off_seconds=float(generator.integers(60, 600))).law,
                int(generator.integers(1, 3))) for number in range(14)}
            fleet = Fleet(policies, instances)
            movable = list(instances)[:6]
            judged = destinations.Destinations(
                lambda: fleet, HOSTS,
                {uuid: instances[uuid][0] for uuid in movable})
            places = {uuid: at for uuid, (at, _, _) in instances.items()}
            for _ in range(6):
                row = int(generator.integers(6))
                uuid = movable[row]
                others = [number for number, host in enumerate(HOSTS)
                          if host != places[uuid]]
                found = judged.admitted(row, others)
                # What the filter would say of a fleet that is so.
                table = admission.LoadTable(
                    attachments=fleet.snapshot.attachments)
                for host in HOSTS:
                    table.describe(host, policies[host], {
                        name: instances[name][1]
                        for name, at in places.items() if at == host})
                expected = table.assess(
                    table.rows_of([HOSTS[number] for number in others]),
                    instances[uuid][1], uuid, fleet.snapshot.attachments(uuid))
                self.assertEqual(expected.passing.tolist(), found.tolist())
                seen.update(expected.reason.tolist())
                to = int(generator.choice(others))
                judged.put(row, HOSTS.index(places[uuid]), to)
                places[uuid] = HOSTS[to]
        self.assertLessEqual({admission.ADMITTED, admission.PEAK,
                              admission.OVERLOAD, admission.TOO_MANY,
                              admission.UPLINK}, seen)

    def test_a_fleet_is_not_read_before_a_host_is_judged(self):
        judged = destinations.Destinations(
            lambda: self.fail('read'), HOSTS, {'vm0': 'h0'})
        judged.put(0, 0, 1)

    def test_a_host_without_a_policy_passes(self):
        fleet = Fleet({}, {'vm0': ('h0', model.TrafficModel.constant(
            1e9).law, 1)})
        judged = destinations.Destinations(lambda: fleet, HOSTS,
                                           {'vm0': 'h0'})
        self.assertEqual([True] * 3, judged.admitted(0, [1, 2, 3]).tolist())

    def test_an_uplink_in_debt_accepts_only_what_it_has_from_spenders(self):
        generator = np.random.default_rng(1)
        fleet = Fleet(self.policies(generator), {
            name: (host, model.TrafficModel.constant(1.0).law, 1)
            for name, host in (('vm0', 'h0'), ('vm2', 'h2'))},
            {('uplink', 'tor'): budgets.Debt(1.0, frozenset(['p']))})
        judged = destinations.Destinations(
            lambda: fleet, HOSTS, {'vm0': 'h0', 'vm2': 'h2'})
        self.assertEqual([True, True], judged.admitted(0, [1, 2]).tolist())
        self.assertEqual([False, True], judged.admitted(1, [1, 3]).tolist())
