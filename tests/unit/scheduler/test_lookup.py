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


class TestFlavorsOf(unittest.TestCase):
    """Nova's objects are the wire here too."""

    def _found(self, mappings, instances):
        """Return the flavors, of mappings {uuid: cell or None}."""
        asked = []

        @contextlib.contextmanager
        def target_cell(context, cell):
            yield cell.uuid

        def get_by_filters(cell, filters, expected_attrs):
            asked.append((cell, filters, expected_attrs))
            return [one for one in instances if one.uuid in filters['uuid']]

        with mock.patch.object(
                objects.InstanceMappingList, 'get_by_instance_uuids',
                return_value=[mock.Mock(
                    instance_uuid=uuid, cell_mapping=cell and mock.Mock(
                        uuid=cell)) for uuid, cell in mappings.items()]), \
                mock.patch.object(nova_context, 'target_cell',
                                  new=target_cell), \
                mock.patch.object(objects.InstanceList, 'get_by_filters',
                                  new=get_by_filters):
            return lookup.flavors_of(sorted(mappings)), asked

    def test_each_cell_is_asked_once(self):
        instances = [mock.Mock(uuid=uuid, flavor=f'flavor of {uuid}')
                     for uuid in 'abc']
        flavors, asked = self._found(
            {'a': 'one', 'b': 'two', 'c': 'one', 'd': 'two', 'e': None},
            instances)
        self.assertEqual({uuid: f'flavor of {uuid}' for uuid in 'abc'},
                         flavors)
        self.assertEqual([
            ('one', {'uuid': ['a', 'c'], 'deleted': False}, ['flavor']),
            ('two', {'uuid': ['b', 'd'], 'deleted': False}, ['flavor'])],
            asked)

    def test_none_that_is_known_is_no_flavor(self):
        self.assertEqual(({}, []), self._found({}, []))


class TestUuidsOn(unittest.TestCase):

    def test_all_cells_are_put_together(self):
        cells = {'one': {'a': ['1', '2'], 'b': []}, 'two': {'b': ['3']}}

        @contextlib.contextmanager
        def target_cell(context, cell):
            yield cell

        with mock.patch.object(objects.CellMappingList, 'get_all',
                               return_value=sorted(cells)), \
                mock.patch.object(nova_context, 'target_cell',
                                  new=target_cell), \
                mock.patch.object(
                    objects.InstanceList, 'get_uuids_by_hosts',
                    new=lambda cell, hosts: {host: uuids for host, uuids in
                                             cells[cell].items()
                                             if host in hosts}):
            self.assertEqual({'a': {'1', '2'}, 'b': {'3'}, 'c': set()},
                             lookup.uuids_on(['a', 'b', 'c']))
