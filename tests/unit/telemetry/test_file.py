# SPDX-License-Identifier: Apache-2.0

import csv
import functools
import gzip
import io
import logging
import os
import tracemalloc
from unittest import mock
import uuid
import zipfile

import fixtures
import hypothesis
from hypothesis import strategies
import numpy as np
import testtools

from tests.contract import telemetry_driver
from tests.contract import telemetry_files
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import file
from vswitch_aware_scheduler.traffic import series as rate_series

_T0 = 1375308000
_GWA_COLUMNS = ('Timestamp [ms]', 'CPU cores',
                'Memory capacity provisioned [KB]',
                'Network received throughput [KB/s]',
                'Network transmitted throughput [KB/s]')
_PLAIN = 'instance,time,egress_kbps,ingress_kbps\n'


def _gwa(*rows, columns=_GWA_COLUMNS, delimiter=';\t'):
    return ''.join(delimiter.join(row) + '\n' for row in (columns, *rows))


def _row(offset=0, received='1', sent='1'):
    """Return a row of a GWA trace, so many seconds after the first."""
    return str(_T0 + offset), '1', '1', received, sent


def _rows(*received):
    """Return rows of successive periods."""
    return [_row(300 * number, rate) for number, rate in enumerate(received)]


class _FileTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))

    def _path(self, name, content):
        path = os.path.join(self.folder, name)
        if isinstance(content, str):
            content = content.encode()
        with open(path, 'wb') as stream:
            stream.write(content)
        return path

    def _series(self, name, content, **options):
        driver = file.FileDriver(self._path(name, content), **options)
        return list(driver.series())

    def _one(self, name, content, **options):
        series, = self._series(name, content, **options)
        return series

    def error_of(self, *call, **options):
        """Return the message of the TelemetryError that a call raises."""
        return str(self.assertRaises(exceptions.TelemetryError, *call,
                                     **options))

    def _refused(self, name, content, *parts, **options):
        """Check that a file is refused in a message with these parts."""
        error = self.error_of(self._series, name, content, **options)
        for part in (os.path.join(self.folder, name), 'expected', *parts):
            self.assertIn(part, error)
        return error


class InstanceUuidTest(testtools.TestCase):

    def test_a_vm_number_has_the_uuid_of_the_documented_name(self):
        expected = str(uuid.uuid5(
            uuid.UUID('bcc7ba66-a018-5cbc-b4a2-75162d257fe2'),
            'gwa-t-12/17'))
        for number in (17, np.int64(17), '17', ' 17 ', '017'):
            self.assertEqual(expected, file.instance_uuid(number))

    def test_a_uuid_is_kept(self):
        uuid = '0D5E2F0C-7B1A-4C7E-8F59-6A1C3F1B2A3D'
        for text in (uuid, uuid.replace('-', ''), uuid.lower()):
            self.assertEqual(uuid.lower(), file.instance_uuid(text))

    def test_names_do_not_collide_with_numbers_or_each_other(self):
        names = ['17', 'gwa-t-12/17', 'name/17', '-17', '1.7', 'web', 'Web',
                 '١٧']
        self.assertEqual(len(names),
                         len({file.instance_uuid(name) for name in names}))

    def test_what_names_nothing_is_refused(self):
        for wrong in ('', '  ', -1, 1.5, None):
            self.assertRaises(exceptions.InvalidInput, file.instance_uuid,
                              wrong)


class GwaTest(_FileTest):

    def test_received_is_ingress_in_kbit_per_second_of_1000(self):
        series = self._one('17.csv', _gwa(
            ('1375308000', '2', '1024.0', '10.5', '3.25'),
            ('1375308300', '2', '1024.0', '0.0', '1.0')))
        self.assertEqual(file.instance_uuid(17), series.instance_uuid)
        self.assertEqual([1375308000, 1375308300], series.times.tolist())
        self.assertEqual([[26, 84, 0], [8, 0, 0]], series.rates.tolist())

    def test_columns_are_found_by_name_in_any_order_and_spelling(self):
        series = self._one('17.csv', _gwa(
            ('3', '7', '1375308000', 'x', '5'),
            columns=('network transmitted throughput [kb/s]', 'Extra',
                     ' "Timestamp [ms]" ', 'CPU cores',
                     'Network received throughput [KB/s]'), delimiter='; '))
        self.assertEqual([[24, 40, 0]], series.rates.tolist())

    def test_true_milliseconds_are_recognised(self):
        series = self._one('1.csv', _gwa(
            ('1375308000000', '1', '1', '1', '1'),
            ('1375308300500', '1', '1', '1', '1')))
        self.assertEqual([1375308000, 1375308300.5], series.times.tolist())

    def test_windows_line_ends_byte_order_mark_and_blank_lines_are_fine(self):
        content = '\ufeff' + _gwa(*_rows('1', '1')).replace(
            '\n', '\r\n\r\n')
        self.assertEqual(2, len(self._one('1.csv', content)))

    def test_a_file_without_number_is_named_by_its_stem(self):
        series = self._one('web.csv.gz',
                           gzip.compress(_gwa(_row()).encode()))
        self.assertEqual(file.instance_uuid('web'), series.instance_uuid)

    def test_repeated_rows_count_once(self):
        series = self._one('1.csv', _gwa(*(
            _row(300 * k, str(k)) for k in (0, 1, 1, 2, 0, 3))))
        self.assertEqual([0, 8, 16, 24], series.rates[:, 1].tolist())
        self.assertEqual(rate_series.Refused(duplicate=2), series.refused)

    def test_of_two_interleaved_recordings_one_is_followed(self):
        times = np.arange(40) * 300
        rows = [_row(time) for time in times]
        rows += [_row(time + 40 + at, '9', '9')
                 for at, time in enumerate(times[10:30])]
        series = self._one('1.csv', _gwa(*sorted(rows)))
        self.assertEqual(300, series.period_seconds)
        self.assertEqual((_T0 + times).tolist(), series.times.tolist())
        self.assertEqual(rate_series.Refused(duplicate=20), series.refused)

    def test_rates_that_are_no_number_are_missing_and_reported_once(self):
        series = self._one('1.csv', _gwa(
            *_rows('abc', ''), _row(600, sent='NaN'),
            _row(900, 'def', 'ghi'), _row(1200, '4')))
        self.assertEqual([[8, 32, 0]], series.rates.tolist())
        self.assertEqual(rate_series.Refused(missing=4), series.refused)
        self.assertEqual(1, self.log.output.count('\n'))
        self.assertIn("line 2: network received throughput [kb/s]: 'abc'",
                      self.log.output)
        self.assertIn('3 cells are', self.log.output)

    def test_a_cut_last_line_is_left_out_and_counted(self):
        content = _gwa(*_rows('1', '1', '1'))
        line_start = content.rstrip('\n').rindex('\n') + 1
        for end in range(line_start + 1, content.rindex('1')):
            series = self._one('1.csv', content[:end])
            self.assertEqual(2, len(series), content[:end])
            self.assertLessEqual(series.refused.missing, 1)
        self.assertEqual(3, len(self._one('1.csv', content[:-1])))

    def test_a_header_alone_is_an_instance_without_samples(self):
        self.assertEqual(0, len(self._one('1.csv', _gwa())))
        self.assertEqual(0, len(self._one('1.csv', _gwa().rstrip('\n'))))

    def test_a_wrong_line_is_reported_by_its_number(self):
        good = _row()
        for row, *parts in (
                (good[:3], '3 cells', '5 cells'),
                (good + ('9',), '6 cells', '5 cells'),
                *(((time, *good[1:]), 'timestamp [ms]', repr(time))
                  for time in ('noon', '', 'nan', 'inf', '-300'))):
            self._refused('1.csv', _gwa(good, row, good), 'line 3', *parts)

    def test_numbers_with_a_comma_are_refused_with_the_reason(self):
        for number in ('1,5', '-1,5', '1,234', '1,234.5', ',5', '12,50'):
            for cells in ((number, '2'), ('2', number)):
                self._refused('1.csv', _gwa(_row(), _row(300, *cells)),
                              'line 3', number, 'decimal point')
                row = 'web,1375308000,"{}","{}"\n'.format(*cells)
                self._refused('plain.csv', _PLAIN + row, 'line 2', number,
                              'decimal point')

    def test_a_delimiter_at_the_end_of_a_line_is_harmless(self):
        content = _gwa(_row(sent='2')).replace('2\n', '2;\n')
        self.assertEqual([[16, 8, 0]],
                         self._one('1.csv', content).rates.tolist())

    def test_a_missing_or_repeated_column_is_reported(self):
        self._refused('1.csv', _gwa(columns=_GWA_COLUMNS[:-1]), 'line 1',
                      'network transmitted throughput [kb/s]', '0 times')
        self._refused('1.csv', _gwa(columns=_GWA_COLUMNS * 2), 'line 1',
                      '2 times')

    def test_metadata_is_that_of_the_first_row(self):
        self._path('3.csv', _gwa(('1375308000', '2', '1024.5', '1', '1'),
                                 ('1375308300', '4', '2048.0', '1', '1')))
        self._path('12.csv', _gwa(('1375308000', 'two', '', '1', '1')))
        self._path('4.csv', _gwa())
        instances = file.FileDriver(self.folder).instances()
        self.assertEqual(['3', '4', '12'],
                         [instance.name for instance in instances])
        self.assertEqual({'cpu_cores': 2.0, 'memory_kb': 1024.5},
                         dict(instances[0].metadata))
        self.assertEqual([{}, {}], [dict(instance.metadata)
                                    for instance in instances[1:]])

    def test_a_folder_is_its_numbered_files(self):
        for name in ('10.csv', '9.csv.gz', 'README', 'vms.csv', '1.csv~'):
            content = _gwa(_row()).encode()
            self._path(name, gzip.compress(content) if name[-1] == 'z'
                       else content)
        self.assertEqual(
            [file.instance_uuid(9), file.instance_uuid(10)],
            [series.instance_uuid
             for series in file.FileDriver(self.folder).series()])

    def test_a_folder_reads_only_what_is_wanted(self):
        self._path('1.csv', 'not a trace')
        self._path('2.csv', _gwa(_row()))
        driver = file.FileDriver(self.folder)
        uuids = [file.instance_uuid(2)]
        self.assertEqual(1, len(list(driver.series(instances=uuids))))

    def test_a_folder_with_a_wrong_file_is_refused_by_its_name(self):
        self._path('1.csv', _gwa(_row()))
        path = self._path('2.csv', _PLAIN)
        driver = file.FileDriver(self.folder)
        self.assertIn(path, self.error_of(list, driver.series()))

    def test_a_folder_without_a_trace_is_refused(self):
        driver = file.FileDriver(self.folder)
        self.assertIn('none', self.error_of(driver.instances))
        self._path('trace.npz', b'')
        self.assertIn('trace.npz', self.error_of(driver.instances))

    def test_a_vm_with_two_files_is_refused(self):
        self._path('1.csv', _gwa())
        self._path('01.csv.gz', _gwa())
        error = self.error_of(file.FileDriver(self.folder).instances)
        self.assertIn('01.csv.gz', error)


class NpzTest(_FileTest):

    def _arrays(self, **changes):
        rates = np.ones((2, 3), dtype=np.float32)
        arrays = {'vm': np.array([4, 2]), 't0': _T0, 'dt': 300,
                  'rx_KBps': rates, 'tx_KBps': rates, **changes}
        stream = io.BytesIO()
        np.savez(stream, **{name: array for name, array in arrays.items()
                            if array is not None})
        return stream.getvalue()

    def test_wrong_arrays_are_reported_with_the_expected_ones(self):
        nothing = np.zeros((2, 3))
        for name, value, parts in (
                ('vm', None, ('arrays', 'rx_KBps')),
                ('vm', np.array([1, 1]), ('vm', 'repeated')),
                ('vm', np.array([1, -1]), ('vm', 'negative')),
                ('vm', np.array([1.5, 2]), ('vm', 'float64', 'integers')),
                ('vm', np.array([[1, 2]]), ('vm', '(1, 2)')),
                ('vm', np.array([1, 2, 3]), ('rx_KBps', '(2, 3)', '(3, T)')),
                ('t0', np.nan, ('t0', 'nan')),
                ('t0', 1375308000000, ('t0', 'unix seconds')),
                ('t0', -5, ('t0', 'unix seconds')),
                ('t0', 'noon', ('t0', 'noon')),
                ('dt', 0, ('dt', '0.0')),
                ('dt', [300, 300], ('dt', 'one finite number')),
                ('dt', None, ('arrays', 'dt')),
                ('rx_KBps', nothing[0], ('rx_KBps', '(3,)', '(2, T)')),
                ('tx_KBps', nothing[:, :2], ('tx_KBps', '(2, 2)', '(2, 3)')),
                ('tx_KBps', nothing.astype(str), ('tx_KBps', '<U32')),
                ('tx_KBps', nothing.astype(complex), ('complex128',)),
                ('tx_KBps', None, ('arrays', 'tx_KBps'))):
            self._refused('trace.npz', self._arrays(**{name: value}), *parts)

    def test_pickled_objects_are_never_loaded(self):
        class Trap:
            def __reduce__(self):
                return os.mkdir, (trap,)

        trap = os.path.join(self.folder, 'trap')
        content = self._arrays(rx_KBps=np.array([[Trap()]], dtype=object))
        self._refused('trace.npz', content, 'allow_pickle=False')
        self.assertFalse(os.path.exists(trap))

    def test_a_damaged_file_is_refused(self):
        content = self._arrays()
        self._refused('trace.npz', content[:len(content) // 2], 'unreadable')
        self._refused('trace.npz', content[:300] + b'\0' * 40
                      + content[340:])

    def test_a_small_file_that_would_expand_to_gigabytes_is_refused(self):
        path = self._path('trace.npz', b'')
        with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED,
                             compresslevel=1) as packed, \
                packed.open('vm.npy', 'w') as stream:
            np.lib.format.write_array_header_1_0(stream, {
                'descr': '<i8', 'fortran_order': False, 'shape': (2**24,)})
            for _ in range(128):
                stream.write(bytes(2**20))
        self.assertLess(os.path.getsize(path), 2**21)
        self.assertIn('expanded content: more than 128 MiB', self.error_of(
            file.FileDriver(path).instances))

    def test_a_shape_that_no_memory_holds_is_refused(self):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, 'w') as packed, \
                packed.open('vm.npy', 'w') as array:
            np.lib.format.write_array_header_1_0(array, {
                'descr': '<i8', 'fortran_order': False, 'shape': (2**55,)})
        self._refused('trace.npz', stream.getvalue(), 'unreadable')

    def test_the_period_it_states_is_not_overridden_by_another(self):
        self.assertEqual(2, len(self._series(
            'trace.npz', self._arrays(), period_seconds=300)))
        self._refused('trace.npz', self._arrays(), 'dt', '300', '60',
                      period_seconds=60)

    def test_the_period_is_the_one_it_states(self):
        for series in self._series('trace.npz', self._arrays(
                dt=60, rx_KBps=np.ones((2, 1)), tx_KBps=np.ones((2, 1)))):
            self.assertEqual((1, 60), (len(series), series.period_seconds))

    def test_metadata_comes_from_the_file_beside_it(self):
        path = self._path('2013-8.npz', self._arrays())
        driver = file.FileDriver(path)
        self.assertEqual([('4', {}), ('2', {})],
                         [(instance.name, dict(instance.metadata))
                          for instance in driver.instances()])
        self._path('vms_2013-8.csv',
                   'vm,rows,mem_kb,cpu_cores\n2,9,1024.5,4.0\n7,9,1,1\n\n')
        self.assertEqual(
            [{}, {'cpu_cores': 4.0, 'memory_kb': 1024.5}],
            [dict(instance.metadata) for instance in driver.instances()])

    def test_a_wrong_file_beside_it_is_reported(self):
        driver = file.FileDriver(self._path('a.npz', self._arrays()))
        for content, part in (('vm,cpu_cores\n', 'mem_kb'),
                              ('', 'line 1'),
                              ('vm,cpu_cores,mem_kb\n1,1,1\none,1,1\n',
                               'line 3'),
                              ('vm,cpu_cores,mem_kb\n1,1\n', 'line 2')):
            path = self._path('vms_a.csv', content)
            error = self.error_of(driver.instances)
            self.assertIn(path, error)
            self.assertIn(part, error)
            self.assertEqual(2, len(list(driver.series())))


class PlainCsvTest(_FileTest):

    def test_times_are_unix_seconds_or_iso_8601(self):
        for time in ('1375308000', '1375308000.0', '1375308000000',
                     '2013-07-31T22:00:00Z', '2013-07-31 22:00:00',
                     '2013-08-01T00:00:00+02:00'):
            series = self._one('a.csv', _PLAIN + f'web,{time},1,2\n')
            self.assertEqual([_T0], series.times.tolist(), time)
            self.assertEqual([[1, 2, 0]], series.rates.tolist())

    def test_uuids_are_kept_and_names_become_uuids(self):
        uuid = '0D5E2F0C-7B1A-4C7E-8F59-6A1C3F1B2A3D'
        path = self._path('a.csv', _PLAIN + f'{uuid},300,1,1\nweb,300,1,1\n'
                          f'{uuid.lower()},600,1,1\n 7 ,300,1,1\n')
        instances = file.FileDriver(path).instances()
        self.assertEqual([uuid.lower(), file.instance_uuid('web'),
                          file.instance_uuid(7)],
                         [instance.uuid for instance in instances])
        self.assertEqual([uuid, 'web', '7'],
                         [instance.name for instance in instances])
        self.assertEqual(
            [2, 1, 1],
            [len(instance) for instance in file.FileDriver(path).series()])

    def test_columns_are_found_by_name_and_others_ignored(self):
        series = self._one(
            'a.csv', 'Time, kpps ,host,ingress_kbps,egress_kbps,instance\n'
            '1375308000,0.5,"h,1",2,1,web\n')
        self.assertEqual([[1, 2, 0.5]], series.rates.tolist())

    def test_a_sample_without_packets_is_missing_where_others_have_them(self):
        series = self._one('a.csv', _PLAIN.strip() + ',kpps\n'
                           'web,300,1,1,\nweb,600,1,1,2\n')
        self.assertEqual([600], series.times.tolist())
        self.assertEqual(1, series.refused.missing)

    def test_the_usual_step_is_the_period(self):
        for offsets, period in (
                ((0, 60, 120, 180), 60), ((0, 59.9, 120.2, 180), 60),
                ((0, 10, 20, 5000, 5010, 9000), 10),
                ((0, 0.5, 1, 1.5), 0.5), ((0, 60, 180, 480), 60),
                ((0,), 300), ((7, 7), 300)):
            series = self._one('a.csv', _PLAIN + ''.join(
                f'web,{_T0 + offset},1,1\n' for offset in offsets))
            self.assertEqual(period, series.period_seconds, offsets)
        series = self._one('a.csv', _PLAIN + 'web,0,1,1\nweb,60,1,1\n',
                           period_seconds=90)
        self.assertEqual(90, series.period_seconds)

    def test_a_period_is_the_same_whatever_time_is_wanted(self):
        path = self._path('a.csv', _PLAIN + ''.join(
            f'web,{time},1,1\n' for time in (0, 60, 120, 180, 900)))
        series, = file.FileDriver(path).series(start=180)
        self.assertEqual((2, 60), (len(series), series.period_seconds))

    def test_rates_that_are_no_number_are_missing_and_reported_once(self):
        series = self._one('a.csv', _PLAIN + 'web,300,1,1\nweb,600,n/a,1\n'
                           'web,900,1,1 Mbps\nweb,1200,x,y\n')
        self.assertEqual([300], series.times.tolist())
        self.assertEqual(rate_series.Refused(missing=3), series.refused)
        self.assertEqual(1, self.log.output.count('\n'))
        self.assertIn("line 4: ingress_kbps: '1 Mbps'", self.log.output)

    def test_a_wrong_line_is_reported_by_its_number(self):
        for line, parts in (
                ('web,300,1', ('3 cells', '4 cells')),
                ('web,300,1,1,1', ('5 cells', '4 cells')),
                ('web,noon,1,1', ('time', "'noon'", 'ISO 8601')),
                ('web,,1,1', ('time', "''")),
                ('web,nan,1,1', ('time', "'nan'")),
                ('web,inf,1,1', ('time', "'inf'")),
                ('web,-300,1,1', ('time', "'-300'")),
                (',300,1,1', ('instance', "''"))):
            self._refused('a.csv', _PLAIN + f'web,0,1,1\n{line}\n'
                          'web,600,1,1\n', 'line 3', *parts)

    def test_a_cut_last_line_is_left_out_and_counted(self):
        content = _PLAIN + 'web,300,1,1\nweb,600,1,1'
        self.assertEqual(2, len(self._one('a.csv', content)))
        for cut, missing in ((2, 1), (4, 1), (7, 1), (8, 0), (10, 0)):
            series = self._one('a.csv', content[:-cut])
            self.assertEqual((1, missing),
                             (len(series), series.refused.missing), cut)
        self.assertIn('line 3, the last one, is cut off', self.log.output)

    def test_a_cut_last_line_counts_in_one_of_two_pieces(self):
        path = self._path('a.csv', _PLAIN + 'web,0,1,1\nweb,60,1,1\nweb,1')
        driver = file.FileDriver(path)
        pieces = [next(driver.series(end=60)), next(driver.series(start=60))]
        self.assertEqual([0, 1], [series.refused.missing for series in pieces])

    def test_a_missing_or_repeated_column_is_reported(self):
        self._refused('a.csv', 'instance,time,egress_kbps\n', 'line 1',
                      "'ingress_kbps'", '0 times')
        self._refused('a.csv', 'time,' + _PLAIN, 'line 1', "'time'",
                      '2 times')
        self._refused('a.csv', 'kpps,kpps,' + _PLAIN, "'kpps'", '2 times')

    def test_a_header_alone_knows_no_instance(self):
        driver = file.FileDriver(self._path('a.csv', _PLAIN))
        self.assertEqual(([], []),
                         (driver.instances(), list(driver.series())))

    def test_progress_is_reported_while_it_is_read(self):
        rows = ''.join(f'web,{at},1,1\n' for at in range(70000))
        path = self._path('a.csv', _PLAIN + rows)
        reports = []
        iterator = file.FileDriver(path).series(
            progress=lambda done, total: reports.append(done))
        next(iterator)
        self.assertEqual(2, len(reports))
        self.assertGreater(reports[1], len(rows) / 2)


class RecognitionTest(_FileTest):

    def test_what_is_no_known_format_is_refused_with_its_first_line(self):
        for content in ('a,b,c\n1,2,3\n', '', 'x' * 100000, '\n\n'):
            message = self._refused('a.csv', content, 'line 1', 'GWA-T-12')
            self.assertLess(len(message), 600)
        self._refused('a.csv', 'a,b,c\n', "'a,b,c'")

    def test_content_decides_not_the_name(self):
        plain = (_PLAIN + 'web,300,1,1\n').encode()
        self.assertEqual(1, len(self._series('trace.npz', plain)))
        self.assertEqual(1, len(self._series('a.gz', plain)))
        self.assertEqual(1, len(self._series('a.csv', gzip.compress(plain))))

    def test_a_small_file_that_would_expand_to_gigabytes_is_refused(self):
        rest = 129 * gzip.compress(b'0' * 2**20)
        for header in _PLAIN, _gwa():
            self._refused('1.csv.gz', gzip.compress(header.encode()) + rest,
                          'expanded content: more than 128 MiB')

    def test_a_large_file_is_refused_by_its_ratio_only(self):
        with mock.patch.object(file, '_MOST_BYTES', 1000):
            random = np.random.default_rng(1).random(1000)
            plain = _PLAIN + ''.join(f'web,{300 * number},{rate},1\n'
                                     for number, rate in enumerate(random))
            series, = self._series('a.csv', gzip.compress(plain.encode()))
        self.assertEqual(1000, len(series))

    def test_damaged_content_is_refused(self):
        packed = gzip.compress((_PLAIN + 'web,300,1,1\n' * 500).encode())
        self._refused('a.csv.gz', packed[:-12])
        self._refused('a.csv.gz', packed[:40] + b'\0\0' + packed[42:])
        self._refused('a.csv', b'\xff\xfe' + _PLAIN.encode('utf-16-le'),
                      'UnicodeDecodeError')
        self._refused('a.csv', b'\x80\x04pickle', 'UnicodeDecodeError')
        self._refused('a.csv', b'\x93NUMPY\x01\0')
        self._refused('a.csv', _PLAIN + 'web,300,1,"' + '1' * 200000)

    def test_a_path_is_wanted(self):
        self.assertRaises(exceptions.InvalidInput, file.FileDriver, None)

    def test_what_cannot_be_opened_is_refused(self):
        path = os.path.join(self.folder, 'loop')
        os.symlink(path, path)
        self.assertIn(path, self.error_of(file.FileDriver(path).instances))


def _rates(columns):
    rate = strategies.integers(0, 2 ** 24).map(lambda units: units / 2)
    return strategies.lists(
        strategies.one_of(rate, strategies.just(np.nan)),
        min_size=columns, max_size=columns)


@strategies.composite
def _traffic(draw):
    vms, columns = draw(strategies.tuples(strategies.integers(1, 4),
                                          strategies.integers(1, 12)))
    egress, ingress, kpps = (
        np.array(draw(strategies.lists(_rates(columns), min_size=vms,
                                       max_size=vms)))
        for _ in range(3))
    return telemetry_driver.Traffic(
        draw(strategies.integers(0, 2 ** 32)),
        # An instance with one sample shows no period but the default.
        draw(strategies.integers(1, 86400)) if columns > 1 else 300,
        egress, ingress, kpps)


class RoundTripTest(testtools.TestCase):

    @hypothesis.settings(deadline=None, max_examples=120)
    @hypothesis.given(
        strategies.sampled_from([
            (telemetry_files.write_npz, False),
            (telemetry_files.write_gwa, False),
            (functools.partial(telemetry_files.write_plain, kpps=True),
             True)]),
        _traffic())
    def test_each_format_gives_back_what_was_written(self, of_format,
                                                     traffic):
        write, counts_packets = of_format
        if not counts_packets:
            traffic.kpps[:] = 0
        with fixtures.TempDir() as folder:
            read = list(file.FileDriver(write(folder.path, traffic)).series())
        self.assertEqual(
            [file.instance_uuid(number) for number in traffic.numbers],
            [series.instance_uuid for series in read])
        for number, series in zip(traffic.numbers, read):
            times, rates = traffic.expected(number, counts_packets)
            np.testing.assert_array_equal(times, series.times)
            np.testing.assert_array_equal(rates, series.rates)
            self.assertEqual(traffic.period_seconds, series.period_seconds)
            self.assertEqual(traffic.times.size - times.size,
                             series.refused.missing)
            self.assertEqual(series.refused.missing, series.refused.total)


class DamageTest(testtools.TestCase):
    """Whatever a file holds, it is read or refused by an error of ours."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        sample = telemetry_driver.sample_traffic()
        traffic = telemetry_driver.Traffic(
            sample.t0, 300, sample.egress_kbps[:2, :4],
            sample.ingress_kbps[:2, :4], sample.kpps[:2, :4])
        self.contents = {}
        for write in (telemetry_files.write_npz, telemetry_files.write_gwa,
                      telemetry_files.write_plain):
            with fixtures.TempDir() as folder:
                path = write(folder.path, traffic)
                if os.path.isdir(path):
                    path = os.path.join(path, '1.csv')
                with open(path, 'rb') as stream:
                    self.contents[os.path.basename(path)] = stream.read()

    @hypothesis.settings(deadline=None, max_examples=400)
    @hypothesis.given(
        strategies.sampled_from(['trace.npz', '1.csv', 'traffic.csv']),
        strategies.lists(strategies.tuples(
            strategies.floats(0, 1), strategies.integers(0, 6),
            strategies.binary(max_size=6)), min_size=1, max_size=3))
    def test_damage_is_read_or_refused(self, name, cuts):
        content = self.contents[name]
        for place, removed, inserted in cuts:
            at = int(place * len(content))
            content = content[:at] + inserted + content[at + removed:]
        with fixtures.TempDir() as folder:
            path = os.path.join(folder.path, name)
            with open(path, 'wb') as stream:
                stream.write(content)
            driver = file.FileDriver(path)
            for read in (driver.instances, lambda: list(driver.series())):
                try:
                    read()
                except exceptions.TelemetryError as error:
                    self.assertIn(path, str(error))


class MemoryTest(_FileTest):
    """Peaks of allocation stay near the size of what is read."""

    def setUp(self):
        super().setUp()
        # What is imported at the first reading does not count.
        path = self._path('first.csv', f'{_PLAIN}a,{_T0},1,1\n')
        self.assertEqual(1, len(list(file.FileDriver(path).series())))
        os.unlink(path)

    def _peak(self, path, expected):
        driver = file.FileDriver(path)
        tracemalloc.start()
        try:
            count = sum(1 for series in driver.series())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.assertEqual(expected, count)
        return peak

    def test_an_npz_needs_its_arrays(self):
        rates = np.random.default_rng(1).random((200, 8640), np.float32)
        path = os.path.join(self.folder, 'trace.npz')
        np.savez(path, vm=np.arange(200), t0=_T0, dt=300, rx_KBps=rates,
                 tx_KBps=rates)
        self.assertLess(self._peak(path, 200), 1.5 * 2 * rates.nbytes)

    def test_a_plain_csv_needs_three_numbers_a_sample(self):
        path = os.path.join(self.folder, 'traffic.csv')
        with open(path, 'w', newline='') as stream:
            stream.write(_PLAIN)
            rows = csv.writer(stream)
            for at in range(2160):
                rows.writerows([(vm, _T0 + 300 * at, vm * at, at)
                                for vm in range(40)])
        self.assertLess(self._peak(path, 40), 1.5 * 40 * 2160 * 3 * 8)

    def test_a_gwa_folder_needs_one_file(self):
        content = _gwa(*_rows(*['1.5'] * 8640)).encode()
        for number in range(20):
            self._path(f'{number}.csv', content)
        self.assertLess(self._peak(self.folder, 20), 10 * len(content))
