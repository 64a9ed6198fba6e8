# SPDX-License-Identifier: Apache-2.0

import gzip
import os

import fixtures
import numpy as np
import testtools

from tests.contract import telemetry_driver
from tests.contract import telemetry_files
from vswitch_aware_scheduler.telemetry import file


class FileContract(telemetry_driver.DriverContract):

    def driver(self, traffic):
        folder = self.useFixture(fixtures.TempDir()).path
        return file.FileDriver(self.write(folder, traffic))

    def driver_without_source(self):
        folder = self.useFixture(fixtures.TempDir()).path
        return file.FileDriver(os.path.join(folder, 'gone'))

    def uuid(self, number):
        return file.instance_uuid(number)


class NpzTest(FileContract, testtools.TestCase):

    def write(self, folder, traffic):
        return telemetry_files.write_npz(folder, traffic)


class GwaFolderTest(FileContract, testtools.TestCase):

    def write(self, folder, traffic):
        return telemetry_files.write_gwa(folder, traffic)


class GwaCompressedFolderTest(FileContract, testtools.TestCase):

    def write(self, folder, traffic):
        return telemetry_files.write_gwa(folder, traffic, gzip.open, '.csv.gz')


class PlainCsvTest(FileContract, testtools.TestCase):

    def write(self, folder, traffic):
        return telemetry_files.write_plain(folder, traffic)


class PlainCsvWithPacketsTest(FileContract, testtools.TestCase):

    counts_packets = True

    def write(self, folder, traffic):
        return telemetry_files.write_plain(folder, traffic, kpps=True)


class PlainCompressedCsvTest(FileContract, testtools.TestCase):

    def write(self, folder, traffic):
        return telemetry_files.write_plain(
            folder, traffic, suffix='.csv.gz', opener=gzip.open)


class FormatsTest(testtools.TestCase):

    def test_one_traffic_is_the_same_series_in_every_format(self):
        traffic = telemetry_driver.sample_traffic()
        read = []
        for write in (telemetry_files.write_npz, telemetry_files.write_gwa,
                      telemetry_files.write_plain):
            folder = self.useFixture(fixtures.TempDir()).path
            read.append(list(
                file.FileDriver(write(folder, traffic)).series()))
        for npz, gwa, plain in zip(*read, strict=True):
            for other in (gwa, plain):
                self.assertEqual(npz.instance_uuid, other.instance_uuid)
                self.assertEqual(npz.period_seconds, other.period_seconds)
                self.assertEqual(npz.refused, other.refused)
                np.testing.assert_array_equal(npz.times, other.times)
                np.testing.assert_array_equal(npz.rates, other.rates)
