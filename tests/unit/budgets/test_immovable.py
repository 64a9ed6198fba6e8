# SPDX-License-Identifier: Apache-2.0

import unittest

from vswitch_aware_scheduler.budgets import immovable
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.clients import placement

SHAPE = placement.Shape(1, 1024, 1)


class ImmovableTestCase(unittest.TestCase):

    def why(self, metadata=None, extra_specs=None, aggregates=(), heeds=True,
            **changes):
        return immovable.why_fixed(nova.NovaServer(**{
            'uuid': 'u', 'name': 'vm', 'host': 'h1', 'state': 'active',
            'task': None, 'locked': False, 'metadata': metadata or {},
            'extra_specs': extra_specs or {}, 'shape': SHAPE, **changes}),
            [{'metadata': metadata, 'hosts': hosts}
             for metadata, hosts in aggregates], heeds)

    def test_states_tasks_and_locks(self):
        for changes, reason in (
                ({}, None), ({'state': 'paused'}, None),
                ({'state': 'stopped'}, 'its state is stopped'),
                ({'task': 'rebuilding'}, 'its task is rebuilding'),
                ({'locked': True}, 'it is locked')):
            self.assertEqual(reason, self.why(**changes))

    def test_a_tenant_has_a_veto_only_by_the_option(self):
        for value, heeds, fixed in (
                ('never', True, True), (' Never ', True, True),
                ('never', False, False), ('always', True, False),
                ('allowed', True, False)):
            reason = self.why({'vswitch:migrate': value}, heeds=heeds)
            self.assertEqual('its metadata has vswitch:migrate=never'
                             if fixed else None, reason)

    def test_flavors_come_before_aggregates_and_those_before_the_tenant(self):
        never, allowed = ({'vswitch:migrate': value}
                          for value in ('never', 'allowed'))
        here, elsewhere = {'h1', 'h2'}, {'h2'}
        for metadata, flavor, aggregates, reason in (
                ({}, never, [(allowed, here)], 'its flavor has'),
                (never, allowed, [(never, here)], None),
                (never, {}, [(allowed, here)], None),
                ({}, {}, [(never, here)], 'an aggregate of its host has'),
                ({}, {}, [(allowed, here), (never, here)], 'an aggregate'),
                ({}, {}, [(never, elsewhere)], None),
                (never, {}, [(allowed, elsewhere)], 'its metadata has')):
            found = self.why(metadata, flavor, aggregates)
            self.assertEqual(reason is None, found is None, found)
            self.assertIn(reason or '', found or '')

    def test_flavors_that_bind_to_parts_of_the_host(self):
        for key, value, fixed in (
                ('hw:cpu_policy', 'dedicated', True),
                ('hw:cpu_policy', 'shared', False),
                ('pci_passthrough:alias', 'gpu:1', True),
                ('hw:numa_nodes', '2', True), ('resources:VGPU', '1', True),
                ('hw:video_ram', '8', False)):
            self.assertEqual(f'its flavor has {key}={value}' if fixed
                             else None, self.why(extra_specs={key: value}))
