# SPDX-License-Identifier: Apache-2.0
"""What Nova tells of instances, and priors of those without a model."""

import sqlalchemy as sa

from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import instances
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import attachments

LAW = model.TrafficModel.on_off(5.0, 2.0, on_seconds=1, off_seconds=3).law
#: With tunnels, without any, with both and with functions of the NIC.
KINDS = [attachments.Attachments(*each) for each in (
    ((), (), 0), (('a', 'b', 'b'), (), 0), (('a',), ('c',), 0),
    ((), (), 2), (('a', None), (), 0))]
RED = KINDS[1]
OTHER = model.TrafficModel.constant(7.0).law


class PlacementsTestCase(base.StoreTestCase):

    def _placed(self, number, host='h1', flavor='f', project='p', **more):
        return store.InstanceRecord(base.instance_uuid(number), host, flavor,
                                    project, **more)

    def test_placements_are_read_as_they_were_written(self):
        placed = [self._placed(1, attachments=RED), self._placed(2, None),
                  self._placed(20, guaranteed=(100, 0, 2.5)),
                  self._placed(21, guaranteed=(0, 0, 0)),
                  store.InstanceRecord(base.instance_uuid(3), 'h2'),
                  *(self._placed(4 + i, attachments=kind)
                    for i, kind in enumerate(KINDS))]
        inventory = store.InventoryState('nova', 5.0, 4.0, 3.0)
        self.assertIsNone(self.store.inventory())
        self.store.write(placements=placed, inventory=inventory)
        self.assertEqual({kind.instance_uuid: kind for kind in placed},
                         self.store.placements())
        self.assertEqual(
            {placed[1].instance_uuid: placed[1]},
            self.store.placements([placed[1].instance_uuid, 'unknown']))
        self.assertEqual(inventory, self.store.inventory())
        self.assertEqual([(100.0, 0.0, 2.5), (0.0, 0.0, 0.0), None], [
            dict(zip(*self.store.read_changes().placements))[
                base.instance_uuid(number)][4] for number in (20, 21, 1)])
        later = store.InventoryState('nova', 6.0, 4.0)
        self.store.write(inventory=later)
        self.assertEqual(later, self.store.inventory())

    def test_any_name_that_a_tenant_chooses_is_stored(self):
        for number, name in enumerate(('web', 'a\0b\ud800', 'é' * 300, '')):
            self.store.write(placements=[self._placed(number, name=name)])
        names = {number: self.store.names().get(base.instance_uuid(number))
                 for number in range(4)}
        self.assertEqual({0: 'web', 1: 'ab?', 2: 'é' * 255, 3: None}, names)
        self.assertEqual(
            {base.instance_uuid(0): 'web'},
            self.store.names([base.instance_uuid(n) for n in (0, 3, 9)]))
        # A new name is a change.
        self.store.write(placements=[self._placed(0, name='web2')])
        self.assertEqual('web2', self.store.placements()[
            base.instance_uuid(0)].name)

    def test_a_reader_gets_what_has_changed(self):
        self.store.write(placements=[self._placed(n, attachments=RED)
                                     for n in range(4)],
                         inventory=store.InventoryState('nova', 5.0, 5.0))
        at_first = self.store.read_changes()
        self.assertEqual(5.0, at_first.seen_at)
        uuids, values = at_first.placements
        self.assertEqual({base.instance_uuid(n) for n in range(4)},
                         set(uuids))
        self.assertEqual([('h1', 'f', 'p', RED, None)] * 4, values)
        # A million of them share what is the same.
        self.assertEqual(1, len(set(map(id, values))))
        self.store.write(placements=[self._placed(1, 'h2'),
                                     self._placed(9)],
                         remove_placements=[base.instance_uuid(0),
                                            base.instance_uuid(9)[:-1]])
        changes = self.store.read_changes(at_first.generation)
        self.assertEqual(
            {base.instance_uuid(1): ('h2', 'f', 'p', None, None),
             base.instance_uuid(9): ('h1', 'f', 'p', None, None)},
            dict(zip(*changes.placements)))
        self.assertEqual({base.instance_uuid(0), base.instance_uuid(9)[:-1]},
                         set(changes.removed_placements))
        self.store.write(placements=[self._placed(0)])
        changes = self.store.read_changes(at_first.generation)
        self.assertNotIn(base.instance_uuid(0), changes.removed_placements)
        # One that has a model keeps it when it is gone for Nova.
        self.store.write([base.constant(5)])
        self.store.write(remove_placements=[base.instance_uuid(5)])
        self.assertIsNotNone(self.store.model(base.instance_uuid(5)))

    def test_whose_deleted_instances_were_is_kept_for_a_while(self):
        uuids = [base.instance_uuid(n) for n in range(4)]
        self.store.write(placements=[
            self._placed(n, project=f'p{n}') for n in range(4)])
        self.store.write(remove_placements=[*uuids[:2], 'unknown'], now=50.0)
        self.store.write(remove_placements=uuids[2:3], now=60.0)
        self.assertEqual(
            {uuids[0]: store.FormerInstance('f', 'p0', 50.0),
             uuids[1]: store.FormerInstance('f', 'p1', 50.0),
             uuids[2]: store.FormerInstance('f', 'p2', 60.0)},
            self.store.former_instances())
        # One comes back; of the others nobody asks for ever.
        self.store.write(placements=[self._placed(1)], now=70.0)
        self.assertEqual({uuids[0], uuids[2]},
                         set(self.store.former_instances()))
        self.store.write(remove_placements=['unknown'],
                         now=55.0 + instances.FORMER_SECONDS)
        self.assertEqual({uuids[2]}, set(self.store.former_instances()))

    def test_each_store_has_a_secret_of_its_own(self):
        secret = self.store.secret()
        self.assertEqual(32, len(secret))
        self.assertEqual(secret, store.Store(self.url).secret())
        self.url = f'sqlite:///{self.directory}/other.sqlite'
        self.assertNotEqual(secret, self.make_store().secret())
        with self.store._engine().begin() as connection:
            connection.execute(sa.update(
                generations.secret_table).values(value='zz'))
        with self.assertRaisesRegex(exceptions.StoreError, 'hexadecimal'):
            self.store.secret()

    def test_how_long_instances_were_measured(self):
        self.store.write([base.fitted(1), base.constant(2), base.constant(
            3, window_start=5.0, window_end=9.0)])
        self.assertEqual({base.instance_uuid(1): 500 * 300.0,
                          base.instance_uuid(2): None,
                          base.instance_uuid(3): 4.0},
                         self.store.measured_seconds())

    def test_a_damaged_part_of_a_placement_is_not_known(self):
        self.store.write(placements=[self._placed(1)])
        uuid = base.instance_uuid(1)
        names = ('host', 'flavor', 'project', 'attachments', 'guaranteed')
        for part, problem, damages in (
                ('attachments', f'{uuid}: .*row is damaged: networks: ',
                 [{'networks': text} for text in (
                     '{', '{"colour": 5}', '[5]', '5', '"red"')]),
                ('guaranteed', 'guaranteed rates',
                 [{'egress_kbps': -1.0, 'ingress_kbps': 0, 'kpps': 0},
                  {'egress_kbps': 5, 'ingress_kbps': None, 'kpps': 0}])):
            for values in damages:
                with self.store._engine().begin() as connection:
                    connection.execute(sa.update(
                        instances.placement_table).values(values))
                with self.subTest(values):
                    self.assertIsNone(getattr(
                        self.store.placements()[uuid], part))
                    changes = self.store.read_changes()
                    read = dict(zip(*changes.placements))[uuid]
                    self.assertIsNone(read[names.index(part)])
                    self.assertRegex(changes.damaged['placement', uuid],
                                     problem)
            # The next reading of Nova replaces the damaged values.
            self.store.write(placements=[self._placed(1, attachments=RED)])

    def test_the_same_one_twice_is_refused(self):
        with self.assertRaisesRegex(exceptions.InvalidInput, 'given twice'):
            self.store.write(placements=[self._placed(1)],
                             remove_placements=[base.instance_uuid(1)])
        with self.assertRaisesRegex(exceptions.InvalidInput, 'given twice'):
            self.store.write(priors=[store.Prior('f', None, LAW, 1)] * 2)

    def test_values_that_cannot_be_stored_are_named(self):
        for values, message in (
                (dict(instance_uuid='', host='h'), 'instance_uuid'),
                (dict(instance_uuid='u', host=''), 'host'),
                (dict(instance_uuid='u', host='h', flavor='f' * 256),
                 'flavor'),
                *((dict(instance_uuid='u', host='h', guaranteed=rates),
                   'guaranteed: .*; expected three') for rates in (
                       (1, 2), (1, 2, -3), (1, 2, None), (1, 2, '3'),
                       (float('inf'), 0, 0), (float('nan'), 0, 0)))):
            with self.subTest(values), self.assertRaisesRegex(
                    exceptions.InvalidInput, message):
                store.InstanceRecord(**values)
        for values, message in (
                (dict(flavor='', project=None, members=1), 'flavor'),
                (dict(flavor='f', project=None, members=0), 'members'),
                (dict(flavor=None, project=None, members=1,
                      instance_uuid='u' * 37), 'instance_uuid')):
            with self.subTest(message), self.assertRaisesRegex(
                    exceptions.InvalidInput, message):
                store.Prior(law=LAW, **values)


class PriorsTestCase(base.StoreTestCase):

    KEYS = [('f', 'p'), ('f', None), (None, 'p'), (None, None), ('F', None)]

    def _priors(self, law=LAW):
        return [store.Prior(*key, law, 3.0) for key in self.KEYS]

    def _known(self):
        return {key: (expected.law, expected.members)
                for key, expected in self.store.priors().items()}

    def test_priors_are_read_as_they_were_written(self):
        of_one = store.Prior(None, None, OTHER, 5.5, base.instance_uuid(1))
        self.store.write(priors=[*self._priors(), of_one], now=8.0)
        expected = dict.fromkeys(self.KEYS, (LAW, 3.0))
        expected[base.instance_uuid(1)] = (OTHER, 5.5)
        self.assertEqual(expected, self._known())
        self.assertEqual(8.0, self.store.priors()['f', 'p'].updated_at)
        self.assertEqual({key: law for key, (law, _) in expected.items()},
                         self.store.read_changes().priors)

    def test_a_reader_gets_what_has_changed_and_what_is_gone(self):
        self.store.write(priors=self._priors(), now=1.0)
        generation = self.store.read_changes().generation
        self.assertEqual({}, self.store.read_changes(generation).priors)
        removed, *_ = self._priors()
        self.store.write(priors=[store.Prior('f', None, OTHER, 4)],
                         remove_priors=[removed], now=2.0)
        self.assertEqual({('f', None): OTHER, ('f', 'p'): None},
                         self.store.read_changes(generation).priors)
        self.assertNotIn(('f', 'p'), self._known())
        self.store.write(priors=[removed], now=3.0)
        self.assertEqual(LAW, self.store.read_changes(
            generation).priors['f', 'p'])

    def test_a_reader_too_late_for_a_removal_reads_everything(self):
        self.store.write(priors=self._priors(), now=1.0)
        generation = self.store.read_changes().generation
        self.store.write(remove_priors=self._priors()[:1], now=2.0)
        removal = self.store.read_changes(generation)
        self.store.write([base.constant(1)],
                         now=2.5 + generations.REMOVAL_SECONDS)
        late = self.store.read_changes(generation)
        self.assertTrue(late.complete)
        self.assertNotIn(('f', 'p'), late.priors)
        self.assertEqual(4, len(late.priors))
        self.assertFalse(self.store.read_changes(removal.generation).complete)
