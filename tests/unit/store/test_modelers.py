# SPDX-License-Identifier: Apache-2.0

import dataclasses

from tests.unit.store import base
from vswitch_aware_scheduler import store


def heartbeat(name, host='host1', seen_at=base.NOW, **more):
    return store.Modeler(name, host, base.NOW - 100, seen_at, **more)


class ModelersTestCase(base.StoreTestCase):

    def test_each_modeler_has_its_last_heartbeat(self):
        modeler_a = heartbeat('a', interval_seconds=300.0)
        modeler_b = heartbeat('b', 'host0', waiting_for='telemetry',
                              waiting_since=base.NOW - 50)
        for beat in (modeler_a, modeler_b):
            self.store.report_modeler(beat)
        self.assertEqual([modeler_b, modeler_a], self.store.modelers())
        later = dataclasses.replace(
            modeler_a, seen_at=base.NOW + 60, passes=3, passed_at=base.NOW + 7,
            outcome='generation 3')
        self.store.report_modeler(later)
        self.assertEqual([modeler_b, later], self.store.modelers())

    def test_modelers_of_long_ago_are_forgotten(self):
        self.store.report_modeler(heartbeat('old', 'host0'))
        self.store.report_modeler(heartbeat('a', seen_at=base.NOW + 86399))
        self.assertEqual(2, len(self.store.modelers()))
        self.store.report_modeler(heartbeat('a', seen_at=base.NOW + 86401))
        self.assertEqual(['a'],
                         [modeler.name for modeler in self.store.modelers()])

    def test_an_ended_modeler_is_replaced_by_the_next_of_its_host(self):
        for name, host in (('a', 'host1'), ('b', 'host0')):
            self.store.report_modeler(heartbeat(name, host, ended=True))
        self.store.report_modeler(heartbeat('c'))
        self.assertEqual(['b', 'c'],
                         [modeler.name for modeler in self.store.modelers()])
