# SPDX-License-Identifier: Apache-2.0

import concurrent.futures
import contextlib
import os
import pathlib
import sqlite3
import threading
import time
import traceback
from unittest import mock

import numpy as np

from tests.fakes import store as fake_store
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import plans
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments


def _fork(function):
    """Run a function in a forked process; return its number."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(function() or 0)
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    return pid


def _exit_status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class RoundTripTestCase(base.StoreTestCase):

    def test_a_new_store_is_generation_zero_and_empty(self):
        changes = self.store.read_changes()
        self.assertEqual((0, 0), (changes.generation.number,
                                  changes.generation.published_at))
        self.assertTrue(changes.complete)
        self.assertEqual(([], [], []), (
            changes.instance_uuids, list(changes.laws()),
            self.store.models()))
        self.assertIsNone(self.store.model('nobody'))

    def test_what_is_written_is_read_again(self):
        records = [base.fitted(n, seed=n) for n in range(5)]
        generation = self.store.write(records, now=base.NOW)
        self.assertEqual((1, base.NOW),
                         (generation.number, generation.published_at))
        changes = self.store.read_changes()
        self.assertEqual(generation, changes.generation)
        # With the rows at the instants, every bit.
        self.assertEqual({record.instance_uuid: record.model.law
                          for record in records}, dict(changes.laws()))
        self.assertTrue(all(law.is_sampled for _, law in changes.laws()))

    def test_a_record_keeps_its_provenance(self):
        record = base.fitted(1, refused=series.Refused(missing=3, reset=1),
                             source='file', name='vm 17')
        self.store.write([record], now=base.NOW)
        stored = self.store.model(record.instance_uuid)
        self.assertEqual(record.model, stored.model)
        self.assertEqual(record.counts.to_bytes(), stored.counts.to_bytes())
        for name in ('window_start', 'window_end', 'samples', 'refused',
                     'source', 'name', 'format_version'):
            self.assertEqual(getattr(record, name), getattr(stored, name))
        self.assertEqual(base.NOW, stored.updated_at)

    def test_writing_again_replaces(self):
        self.store.write([base.fitted(1, name='old')])
        self.store.write([base.constant(1, egress_kbps=7.0)])
        stored = self.store.model(base.instance_uuid(1))
        self.assertIsNone(stored.counts)
        self.assertIsNone(stored.name)
        self.assertEqual(7.0, stored.model.mean[0])
        self.assertEqual(1, len(self.store.models()))

    def test_the_list_has_means_and_peaks_of_the_models(self):
        records = [base.fitted(n, seed=n, name=f'n{n}') for n in range(4)]
        self.store.write(records, now=base.NOW)
        for record, item in zip(records, self.store.models()):
            self.assertEqual(record.instance_uuid, item.instance_uuid)
            self.assertEqual(record.name, item.name)
            np.testing.assert_allclose(item.mean, record.model.mean,
                                       rtol=1e-12)
            self.assertEqual(tuple(record.model.peak), item.peak)
            self.assertEqual(record.samples, item.samples)
            self.assertEqual(base.NOW, item.updated_at)
        self.assertEqual([base.instance_uuid(2)], [
            item.instance_uuid for item in self.store.models(name='n2')])
        self.assertEqual([], self.store.models(name='n9'))

    def test_host_profiles_are_kept_by_host(self):
        profile = store.HostProfile('b', 'ovs-vxlan', {'max_tunnels': 7},
                                    'operator')
        self.store.write(host_profiles=[store.HostProfile('a', None),
                                        profile], now=base.NOW)
        profiles = self.store.host_profiles()
        self.assertEqual(['a', 'b'], [item.host for item in profiles])
        self.assertIsNone(profiles[0].profile)
        self.assertEqual(
            ('ovs-vxlan', {'max_tunnels': 7}, 'operator', base.NOW),
            (profiles[1].profile, profiles[1].overrides, profiles[1].source,
             profiles[1].updated_at))
        self.assertEqual(profiles, self.store.read_changes().host_profiles)

    def test_more_rows_than_fit_a_chunk_are_all_there(self):
        with mock.patch.object(sql, 'CHUNK', 3):
            self.store.write([base.constant(n, egress_kbps=n)
                              for n in range(10)])
            changes = self.store.read_changes()
            self.assertEqual(10, len(self.store.models()))
            self.store.write(remove=[base.instance_uuid(n) for n in range(9)])
        self.assertEqual(
            {base.instance_uuid(n): ([1.0], [[n, 0, 0]])
             for n in range(10)}, base.as_models(changes))
        self.assertEqual([base.instance_uuid(9)],
                         self.store.read_changes().instance_uuids)

    def test_what_schedulers_do_not_read_makes_no_generation(self):
        self.store.write_fleet({'node': {}}, base.NOW)
        self.store.write_decisions([fake_store.decision(1)])
        self.store.report_worker(store.Worker('w', 'h', 0.0, base.NOW, {}))
        self.store.report_modeler(store.Modeler('m', 'h', 0.0, base.NOW))
        plans.write_plan(self.store, store.PlanRecord('p', base.NOW, 'm'), [])
        self.assertEqual(0, self.store.generation().number)

    def test_one_write_names_each_instance_and_host_once(self):
        host = store.HostProfile('a', 'x')
        for arguments in ({'models': [base.constant(1)] * 2},
                          {'models': [base.constant(1)],
                           'remove': [base.instance_uuid(1)]},
                          {'host_profiles': [host, host]},
                          {'host_profiles': [host], 'remove_hosts': ['a']}):
            with self.assertRaisesRegex(exceptions.InvalidInput, 'twice'):
                self.store.write(**arguments)
        self.assertEqual(0, self.store.generation().number)


class IncrementalReadTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.first = self.store.write(
            [base.constant(n) for n in range(3)],
            host_profiles=[store.HostProfile(h, 'x') for h in 'ab'])

    def test_nothing_new_is_an_empty_change(self):
        changes = self.store.read_changes(self.first)
        self.assertFalse(changes.complete)
        self.assertEqual(self.first, changes.generation)
        self.assertEqual(([], [], [], []), (
            changes.instance_uuids, changes.removed, changes.host_profiles,
            changes.removed_hosts))

    def test_only_what_changed_and_what_went_is_told(self):
        self.store.write([base.constant(1, egress_kbps=9.0),
                          base.constant(7)],
                         remove=[base.instance_uuid(2)],
                         host_profiles=[store.HostProfile('c', 'y')],
                         remove_hosts=['a'])
        changes = self.store.read_changes(self.first)
        self.assertFalse(changes.complete)
        self.assertEqual({
            base.instance_uuid(1): ([1.0], [[9.0, 0, 0]]),
            base.instance_uuid(7): ([1.0], [[5.0, 0, 0]])},
            base.as_models(changes))
        self.assertEqual([base.instance_uuid(2)], changes.removed)
        self.assertEqual(['c'], [h.host for h in changes.host_profiles])
        self.assertEqual(['a'], changes.removed_hosts)
        self.assertIsNone(self.store.model(base.instance_uuid(2)))

    def test_what_came_back_is_not_gone(self):
        self.store.write(remove=[base.instance_uuid(1)], remove_hosts=['a'])
        self.store.write([base.constant(1)],
                         host_profiles=[store.HostProfile('a', 'x')])
        changes = self.store.read_changes(self.first)
        self.assertEqual([base.instance_uuid(1)], changes.instance_uuids)
        self.assertEqual(([], []), (changes.removed, changes.removed_hosts))

    def test_small_steps_lead_where_one_read_leads(self):
        rng = np.random.default_rng(3)
        models, at = {}, None
        for step in range(30):
            numbers = rng.choice(20, 6, replace=False).tolist()
            self.store.write(
                [base.constant(n, egress_kbps=rng.integers(1, 99))
                 for n in numbers[:4]],
                remove=[base.instance_uuid(n) for n in numbers[4:]])
            if rng.random() < .5 or step == 29:
                changes = self.store.read_changes(at)
                self.assertEqual(at is None, changes.complete)
                for name in changes.removed:
                    models.pop(name, None)
                models.update(base.as_models(changes))
                at = changes.generation
        self.assertEqual(base.as_models(self.store.read_changes()), models)

    def test_a_reader_that_missed_forgotten_removals_reads_everything(self):
        second = self.store.write(remove=[base.instance_uuid(1)],
                                  now=base.NOW)
        late = base.NOW + generations.REMOVAL_SECONDS
        self.store.write(now=late)
        self.assertFalse(self.store.read_changes(self.first).complete)
        self.store.write(now=late + 1)
        self.assertTrue(self.store.read_changes(self.first).complete)
        self.assertFalse(self.store.read_changes(second).complete)
        self.assertEqual([], self.execute('SELECT * FROM removal'))

    def test_another_store_at_the_same_url_is_read_from_the_start(self):
        self.remove_store()
        self.make_store().write([base.constant(9)])
        changes = self.store.read_changes(self.first)
        self.assertTrue(changes.complete)
        self.assertEqual([base.instance_uuid(9)], changes.instance_uuids)

    def test_a_restored_backup_is_read_from_the_start(self):
        # Models 0 to 2 are in the backup; 3 is written after it, and 4 and 5
        # after it was restored: the first makes as many generations.
        backup = self.content()
        self.store.write([base.constant(3)])
        generation = self.store.generation()
        self.restore(backup)
        for count in (3, 4, 5):
            changes = self.store.read_changes(generation)
            self.assertTrue(changes.complete, count)
            self.assertEqual(
                {*map(base.instance_uuid, range(count + 1))} - {
                    base.instance_uuid(3)}, set(changes.instance_uuids))
            self.store.write([base.constant(count + 1)])
        self.assertNotEqual(generation, self.store.generation())

    def test_a_write_notices_that_its_basis_was_of_another_history(self):
        backup = self.content()
        self.store.write([base.fitted(9)])
        basis = self.store.basis()
        self.restore(backup)
        self.store.write([base.fitted(8)])
        self.assertEqual(basis.generation.number,
                         self.store.generation().number)
        with self.assertRaises(exceptions.StoreChanged):
            self.store.write([base.fitted(9, seed=1)], based_on=basis)


class NamesTestCase(base.StoreTestCase):

    def test_names_that_look_alike_are_different(self):
        names = ['compute-1', 'Compute-1', 'compute-1 ', 'c\xf6mpute-1',
                 'co\u0308mpute-1']
        self.store.write(host_profiles=[
            store.HostProfile(name, 'ovs-kernel') for name in names],
            placements=[store.InstanceRecord('A', names[0]),
                        store.InstanceRecord('a', names[1]),
                        store.InstanceRecord('a ', names[2])],
            models=[store.StoredModel(uuid, model.TrafficModel.constant(
                egress_kbps=1.0)) for uuid in ('A', 'a', 'a ')])
        self.assertCountEqual(names, [
            host.host for host in self.store.host_profiles()])
        self.assertEqual(dict(zip(('A', 'a', 'a '), names)), {
            uuid: placed.host
            for uuid, placed in self.store.placements().items()})
        self.store.write(remove=['a'], remove_hosts=names[:1])
        self.assertCountEqual(names[1:], [
            host.host for host in self.store.host_profiles()])
        self.assertEqual({'A', 'a '}, {
            profiles.instance_uuid for profiles in self.store.models()})
        self.assertIsNone(self.store.model('a'))

    def test_an_instance_with_many_networks_is_kept(self):
        networks = [f'{number:036d}' for number in range(1700)]
        attachments = vswitch_attachments.Attachments.from_data(networks)
        self.store.write(
            placements=[store.InstanceRecord('a', 'h', None, None,
                                             attachments)])
        self.assertEqual(tuple(networks),
                         self.store.placements()['a'].networks)


class InterruptionTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.good = self.store.write([base.constant(n) for n in range(3)])

    def _assert_last_good(self):
        changes = self.store.read_changes()
        self.assertEqual(self.good, changes.generation)
        self.assertEqual({base.instance_uuid(n): ([1.0], [[5.0, 0, 0]])
                          for n in range(3)}, base.as_models(changes))

    def test_an_error_in_the_middle_of_a_write_undoes_all_of_it(self):
        class Broken(model.TrafficModel):
            def to_dict(self):
                raise RuntimeError('in the middle')

        broken = store.StoredModel(base.instance_uuid(8),
                                   Broken.constant(egress_kbps=3.0))
        with mock.patch.object(sql, 'CHUNK', 1), \
                self.assertRaisesRegex(RuntimeError, 'in the middle'):
            self.store.write([base.constant(0, egress_kbps=9.0), broken],
                             remove=[base.instance_uuid(1)])
        self._assert_last_good()

    def test_a_killed_writer_leaves_the_last_good_generation(self):
        def die():
            with mock.patch.object(generations, 'forget_removals',
                                   lambda *_: os._exit(9)):
                self.store.write([base.constant(0, egress_kbps=9.0)],
                                 remove=[base.instance_uuid(1)])

        self.assertEqual(9, _exit_status(_fork(die)))
        self._assert_last_good()
        self.assertEqual(2, self.store.write().number)

    def test_a_reader_beside_a_writer_sees_the_last_good_generation(self):
        # Holds for the time of a write that has changed rows already.
        with mock.patch.object(generations, 'forget_removals',
                               lambda *_: self._assert_last_good()):
            self.store.write([base.constant(0, egress_kbps=9.0)],
                             remove=[base.instance_uuid(1)])
        self.assertEqual(2, self.store.generation().number)

    def test_a_reader_never_mixes_generations(self):
        # Every write gives all instances one rate.
        stop = threading.Event()

        def write():
            rate = 0
            while not stop.is_set():
                rate += 1
                self.store.write([base.constant(n, egress_kbps=rate)
                                  for n in range(50)])

        with concurrent.futures.ThreadPoolExecutor(1) as pool, \
                mock.patch.object(sql, 'CHUNK', 7):
            writing = pool.submit(write)
            try:
                numbers = set()
                deadline = time.monotonic() + 120
                while len(numbers) < 10 and time.monotonic() < deadline:
                    changes = self.store.read_changes()
                    number = changes.generation.number
                    if number > 1:
                        self.assertEqual({float(number - 1)},
                                         {law.mean[0] for _, law
                                          in changes.laws()})
                        numbers.add(number)
            finally:
                stop.set()
            writing.result()
        self.assertGreaterEqual(len(numbers), 10)


class ConcurrencyTestCase(base.StoreTestCase):

    def test_writers_of_two_processes_and_threads_lose_nothing(self):
        storage = self.make_store(timeout_seconds=30)
        storage.generation()

        def write(writer):
            return [storage.write([base.constant(100 * writer + n)]).number
                    for n in range(10)]

        pid = _fork(lambda: write(1) and 0)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            numbers = sum(pool.map(write, (2, 3)), [])
        self.assertEqual(0, _exit_status(pid))
        self.assertEqual(20, len(set(numbers)))
        self.assertEqual(30, storage.generation().number)
        self.assertEqual(30, len(storage.models()))

    def test_a_store_used_before_a_fork_works_on_both_sides(self):
        self.store.write([base.constant(1)])
        self.assertEqual(0, _exit_status(_fork(
            lambda: self.store.write([base.constant(2)]) and 0)))
        self.assertEqual(2, self.store.write([base.constant(3)]).number - 1)
        self.assertEqual(3, len(self.store.read_changes().instance_uuids))


class LockedFileTestCase(base.StoreTestCase):

    def test_a_writer_that_waits_too_long_says_so(self):
        self.make_store()
        storage, patient = (store.Store(self.url, .05,
                                        patience_seconds=patience)
                            for patience in (None, 1e9))
        with contextlib.closing(sqlite3.connect(
                self.path, isolation_level=None)) as connection:
            connection.execute('BEGIN IMMEDIATE')
            for writer, attempts in (
                    storage, 0), (patient, database._ATTEMPTS):
                with mock.patch('time.sleep', autospec=True) as sleep, \
                        self.assertRaisesRegex(
                            exceptions.StoreError,
                            'locked; .*(may open|lock on it)'):
                    writer.write([base.constant(1)])
                self.assertEqual(attempts, sleep.call_count)
            # A reader does not wait at all.
            self.assertEqual(0, storage.generation().number)
            connection.execute('ROLLBACK')
        self.assertEqual(1, storage.write([base.constant(1)]).number)

    def test_a_writer_waits_for_another_one(self):
        storage = self.make_store(timeout_seconds=20)
        with contextlib.closing(sqlite3.connect(
                self.path, isolation_level=None,
                check_same_thread=False)) as connection:
            connection.execute('BEGIN IMMEDIATE')
            timer = threading.Timer(.3, connection.execute, ['ROLLBACK'])
            timer.start()
            self.assertEqual(1, storage.write([base.constant(1)]).number)
            timer.join()


class _Failing:
    """Mixin: whether all methods of a store tell what is wrong."""

    def _every_method(self, storage):
        return (storage.generation, storage.read_changes, storage.models,
                storage.host_profiles, lambda: storage.model('u'),
                lambda: storage.write([base.constant(1)]))

    def assert_fails(self, error, pattern, storage=None):
        storage = storage or store.Store(self.url)
        for call in self._every_method(storage):
            # A scheduler meets this at every refresh: nothing is logged.
            with self.assertNoLogs(), \
                    self.assertRaisesRegex(error, pattern) as caught:
                call()
            self.assertIn(storage.url, str(caught.exception))
            self.assertNotIn('\n', str(caught.exception))


class BrokenContentTestCase(_Failing, base.StoreTestCase):

    def test_a_schema_of_another_version_is_named_with_the_remedy(self):
        self.make_store()
        for version, remedy in (('0000', 'expected .* db sync'),
                                ('9999', '.*newer release')):
            self.execute('UPDATE alembic_version SET version_num = :version',
                         version=version)
            self.assert_fails(exceptions.StoreVersionError,
                              f'version {version}; {remedy}')

    def test_an_answer_that_the_client_does_not_understand_is_told(self):
        self.store.generation()
        with mock.patch.object(self.store._engine().dialect, 'do_execute',
                               side_effect=IndexError('odd packet')):
            self.assert_fails(exceptions.StoreError, 'odd packet', self.store)
        self.assertEqual(0, self.store.generation().number)

    def test_a_damaged_row_names_its_instance(self):
        self.store.write([base.constant(1)])
        self.execute('UPDATE traffic_model SET law = :law',
                     law=b'\x01short')
        name = base.instance_uuid(1)
        for column, value in (('model', '{"format_version": 1}'),
                              ('model', '{'), ('counts', b'\x07')):
            self.store.write([base.fitted(1)])
            self.execute(
                f'UPDATE traffic_model_detail SET {column} = :value',
                value=value)
            with self.assertRaisesRegex(exceptions.StoreError, name):
                self.store.model(name)
        self.execute('UPDATE traffic_model_detail SET format_version = 99')
        with self.assertRaisesRegex(exceptions.StoreVersionError,
                                    f'{name}.* 99; expected 2'):
            self.store.model(name)

    def test_one_damaged_row_is_left_out_by_all_readers(self):
        generation = self.store.write(
            [base.fitted(n, n) for n in range(4)], now=1.0, priors=[
                store.Prior(name, None, base.constant(1).model.law, 3.0)
                for name in 'ab'])
        names = list(map(base.instance_uuid, range(4)))
        self.store.write([base.fitted(3, 9)], now=2.0)
        for law in (b'\x01short', b'', b'\x02' + bytes(7),
                    b'\x02' + b'\xff' * len(base.constant(1).model.law)):
            self.execute(
                'UPDATE traffic_model SET law = :law WHERE instance_uuid = '
                ':uuid', law=law, uuid=names[3])
            self.execute("UPDATE prior SET law = :law WHERE flavor = 'a'",
                         law=law)
            reader = store.Store(self.url)
            with self.assertLogs('vswitch_aware_scheduler',
                                 'WARNING') as logged:
                everything, changes = (reader.read_changes(since)
                                       for since in (None, generation))
                changes = reader.read_changes(generation)
            self.assertEqual(1, len(logged.output), logged.output)
            self.assertIn(names[3], logged.output[0])
            self.assertCountEqual(names[:3], everything.instance_uuids)
            # A reader with the model removes it, and a new reader has none.
            self.assertEqual(([], [names[3]]),
                             (changes.instance_uuids, changes.removed))
            self.assertIsNone(everything.priors['a', None])
            self.assertCountEqual([('b', None)], reader.priors())
            self.assertEqual(names[:3], [
                models.instance_uuid for models in reader.models()])
            self.assertCountEqual(names[:3], reader.laws(names))
            self.assertEqual({('model', names[3]), ('prior', ('a', None))},
                             set(reader.damaged()))
            self.assertEqual({names[3]}, reader.unreadable_models())
        self.store.write([base.fitted(3)])
        with self.assertLogs('vswitch_aware_scheduler', 'INFO') as logged:
            self.assertCountEqual([names[3]], reader.read_changes(
                everything.generation).instance_uuids)
        self.assertIn('can be read again', *logged.output)

    def test_one_row_that_the_database_refuses_is_left_out_of_a_write(self):
        bad = 'instance\ud800'
        with self.assertLogs('vswitch_aware_scheduler', 'WARNING') as logged:
            self.store.write(
                [base.constant(n) for n in range(5)] + [
                    store.StoredModel(bad, base.constant(1).model)],
                host_profiles=[store.HostProfile(name, 'x')
                               for name in ('h\ud800', 'h2')],
                placements=[store.InstanceRecord(bad, 'h2'),
                            store.InstanceRecord('good', 'h2'),
                            store.InstanceRecord('worse', 'h\ud800')],
                remove_placements=[bad + '2'])
        self.assertEqual(1, len(logged.output))
        self.assertEqual(5, len(self.store.models()))
        self.assertEqual(['h2'],
                         [host.host for host in self.store.host_profiles()])
        self.assertEqual(['good'], list(self.store.placements()))
        self.assertEqual({}, self.store.learned([bad]))

    def test_names_for_people_lose_what_databases_refuse(self):
        self.store.write([base.constant(1, name='we\0b\ud800', source='a\0')])
        self.assertEqual([('web?', 'a')], [
            (record.name, record.source) for record in self.store.models()])


class BrokenFileTestCase(_Failing, base.StoreTestCase):

    def test_a_missing_file_is_named_and_not_made(self):
        store.Store(self.url)
        self.assertEqual([], os.listdir(self.directory))
        self.assert_fails(exceptions.StoreMissing,
                          'no such file; run "vswitch-manage db sync"')
        self.assertEqual([], os.listdir(self.directory))

    def test_a_file_removed_while_in_use_is_missing(self):
        self.store.write([base.constant(1)])
        os.unlink(self.path)
        self.assert_fails(exceptions.StoreMissing, 'no such file', self.store)
        self.assertEqual([], os.listdir(self.directory))
        self.make_store()
        self.assertEqual(0, self.store.generation().number)

    def test_a_file_that_vanishes_while_it_is_opened_is_not_made(self):
        with mock.patch.object(database.engines, 'require_file',
                               autospec=True):
            self.assert_fails(exceptions.StoreError, 'cannot read it')
        self.assertEqual([], os.listdir(self.directory))

    def test_an_empty_file_has_no_schema_and_a_directory_is_no_store(self):
        pathlib.Path(self.path).touch()
        self.assert_fails(exceptions.StoreMissing,
                          'no schema; run "vswitch-manage db sync"')
        os.unlink(self.path)
        os.mkdir(self.path)
        self.assert_fails(exceptions.StoreError, 'is not a file')

    def test_a_damaged_file_is_named(self):
        self.store.write([base.fitted(n) for n in range(50)])
        path = pathlib.Path(self.path)
        content = path.read_bytes()
        # In the middle, and cut short.
        path.write_bytes(content[:2048] + os.urandom(len(content) - 2048))
        with self.assertRaises(exceptions.StoreError):
            self.store.read_changes()
        path.write_bytes(content[:5000])
        self.assert_fails(exceptions.StoreError, 'malformed', self.store)
        path.write_bytes(b'not a database at all' * 999)
        self.assert_fails(exceptions.StoreError, 'not a database', self.store)

    @contextlib.contextmanager
    def _without_write_permission(self):
        """Protect the directory, and be someone whom that stops."""
        os.chmod(self.directory, 0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)
            os.chmod(self.directory, 0o755)

    def test_a_store_that_may_only_be_read_is_read(self):
        self.store.write([base.constant(1)])
        reader = store.Store(self.url)
        with self._without_write_permission():
            self.assertEqual([base.instance_uuid(1)],
                             reader.read_changes().instance_uuids)
            if os.geteuid() == 65534:
                with self.assertRaisesRegex(exceptions.StoreError,
                                            'readonly'):
                    reader.write([base.constant(2)])
            # Missing and damaged stores are told apart from that.
            self.assertIsNone(reader.model('nobody'))

    def test_a_store_written_while_it_is_read_unlocked_is_told(self):
        self.store.write([base.constant(1)])
        reader = store.Store(self.url)

        def write_meanwhile(connection):
            os.utime(self.path, (1, 1))

        with self.assertRaisesRegex(exceptions.StoreError,
                                    'while another process writes'):
            reader._read_unlocked(write_meanwhile)
        self.assertEqual(1, reader._read_unlocked(
            generations.read).number)
