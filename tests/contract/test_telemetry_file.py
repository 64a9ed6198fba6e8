# SPDX-License-Identifier: Apache-2.0

import functools
import gzip
import os

import fixtures
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

    write = staticmethod(telemetry_files.write_npz)


class GwaFolderTest(FileContract, testtools.TestCase):

    write = staticmethod(telemetry_files.write_gwa)


class GwaCompressedFolderTest(FileContract, testtools.TestCase):

    write = functools.partial(telemetry_files.write_gwa, opener=gzip.open,
                              suffix='.csv.gz')


class PlainCsvTest(FileContract, testtools.TestCase):

    write = staticmethod(telemetry_files.write_plain)


class PlainCsvWithPacketsTest(FileContract, testtools.TestCase):

    counts_packets = True
    write = functools.partial(telemetry_files.write_plain, kpps=True)


class PlainCompressedCsvTest(FileContract, testtools.TestCase):

    write = functools.partial(telemetry_files.write_plain, opener=gzip.open,
                              suffix='.csv.gz')
