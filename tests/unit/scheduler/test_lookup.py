# SPDX-License-Identifier: Apache-2.0

import contextlib
import unittest
from unittest import mock

from nova import context as nova_context
from nova import exception
from nova import objects

from vswitch_aware_scheduler.scheduler import lookup

objects.register_all()

UUID = '00000000-0000-4000-8000-000000000001'


class TestLookUp(unittest.TestCase):
    """Nova's objects are the wire here."""

    def setUp(self):
        super().setUp()
        self.flavor = objects.Flavor(name='m1.test')
        self.cell = object()
        self.mapping = self._start(mock.patch.object(
            objects.InstanceMapping, 'get_by_instance_uuid', autospec=True,
            return_value=mock.Mock(cell_mapping=self.cell)))
        self.instance = self._start(mock.patch.object(
            objects.Instance, 'get_by_uuid', autospec=True,
            return_value=self._instance()))

        @contextlib.contextmanager
        def target_cell(context, cell):
            self.assertIs(self.cell, cell)
            yield 'context of the cell'

        self._start(mock.patch.object(nova_context, 'target_cell',
                                      new=target_cell))

    def _start(self, patch):
        self.addCleanup(patch.stop)
        return patch.start()

    def _instance(self, host='a', vm_state='active', task_state=None):
        return mock.Mock(host=host, vm_state=vm_state, flavor=self.flavor,
                         task_state=task_state)

    def test_one_at_rest_is_on_its_host_with_its_flavor(self):
        self.assertEqual(lookup.Found('a', True, True, self.flavor),
                         lookup.look_up(UUID))
        self.assertEqual((mock.ANY, UUID), self.mapping.call_args.args)
        self.instance.assert_called_once_with(
            'context of the cell', UUID, expected_attrs=['flavor'])

    def test_one_that_is_worked_on_is_not_settled(self):
        for state in ({'task_state': 'migrating'}, {'vm_state': 'building'}):
            self.instance.return_value = self._instance(**state)
            self.assertFalse(lookup.look_up(UUID).settled)

    def test_a_resize_is_confirmed_or_not(self):
        for vm_state, confirmed in (('resized', False), ('active', True),
                                    ('stopped', True), ('error', True)):
            self.instance.return_value = self._instance(vm_state=vm_state)
            found = lookup.look_up(UUID)
            self.assertEqual((True, confirmed),
                             (found.settled, found.confirmed))

    def test_one_that_is_no_more_is_not_found(self):
        self.instance.side_effect = exception.InstanceNotFound(
            instance_id=UUID)
        self.assertIsNone(lookup.look_up(UUID))
        self.mapping.side_effect = exception.InstanceMappingNotFound(
            uuid=UUID)
        self.assertIsNone(lookup.look_up(UUID))

    def test_one_without_a_cell_is_being_created(self):
        self.mapping.return_value.cell_mapping = None
        found = lookup.look_up(UUID)
        self.assertEqual((None, False), (found.host, found.settled))
        self.instance.assert_not_called()

    def test_what_the_database_raises_is_raised(self):
        self.instance.side_effect = RuntimeError('database is down')
        with self.assertRaises(RuntimeError):
            lookup.look_up(UUID)
