# SPDX-License-Identifier: Apache-2.0

import importlib.metadata
import os
import unittest

import fixtures
from stevedore import extension
import testtools

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import telemetry
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.telemetry import file


class SampleDriver(base.Driver):
    """A driver as another distribution would bring it."""

    def __init__(self, endpoint, period_seconds=None):
        super().__init__(period_seconds)
        self.endpoint = endpoint

    @property
    def source(self):
        return self.endpoint

    def instances(self):
        return []

    def _series(self, start, end, instances, progress):
        return iter(())


class _Distribution(fixtures.Fixture):
    """An installed distribution that declares drivers."""

    def __init__(self, drivers):
        self._drivers = drivers

    def _setUp(self):
        folder = self.useFixture(fixtures.TempDir()).path
        info = os.path.join(folder, 'more_drivers-1.0.dist-info')
        os.mkdir(info)
        with open(os.path.join(info, 'METADATA'), 'w') as stream:
            stream.write('Metadata-Version: 2.1\nName: more-drivers\n'
                         'Version: 1.0\n')
        with open(os.path.join(info, 'entry_points.txt'), 'w') as stream:
            stream.write(f'[{telemetry.DRIVER_GROUP}]\n')
            stream.writelines(f'{name} = {target}\n' for name, target
                              in self._drivers.items())
        # stevedore remembers entry points in memory and on disk.
        cache = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.EnvironmentVariable('XDG_CACHE_HOME', cache))
        self.useFixture(fixtures.PythonPathEntry(folder))
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.extension.ExtensionManager.ENTRY_POINT_CACHE', {}))


class LoadDriverTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(_Distribution({
            'sample': f'{__name__}:SampleDriver',
            'broken': 'no_such_client_library.driver:Driver'}))

    def test_a_driver_is_made_with_its_options(self):
        driver = telemetry.load_driver('sample', endpoint='http://metrics',
                                       period_seconds=60)
        self.assertIsInstance(driver, SampleDriver)
        self.assertEqual(('http://metrics', 60.0),
                         (driver.endpoint, driver.period_seconds))

    def test_names_of_drivers_are_reported_without_importing_them(self):
        names = telemetry.available_drivers()
        self.assertEqual(sorted(names), names)
        self.assertLessEqual({'broken', 'sample'}, set(names))

    def test_an_unknown_name_is_answered_with_the_known_ones(self):
        error = self.assertRaises(exceptions.TelemetryError,
                                  telemetry.load_driver, 'smaple')
        for part in ("'smaple'", 'expected', 'broken', 'sample'):
            self.assertIn(part, str(error))

    def test_a_driver_that_cannot_be_imported_is_named_with_the_reason(self):
        error = self.assertRaises(exceptions.TelemetryError,
                                  telemetry.load_driver, 'broken')
        self.assertIn("'broken'", str(error))
        self.assertIn('no_such_client_library', str(error))

    def test_options_that_a_driver_does_not_take_are_reported(self):
        for options in ({}, {'endpoint': 'x', 'password': 'secret'}):
            error = self.assertRaises(exceptions.TelemetryError,
                                      telemetry.load_driver, 'sample',
                                      **options)
            self.assertIn(
                'expected endpoint, and optionally period_seconds',
                str(error))
            self.assertNotIn('secret', str(error))

    def test_a_bad_value_is_the_drivers_own_refusal(self):
        self.assertRaises(exceptions.InvalidInput, telemetry.load_driver,
                          'sample', endpoint='x', period_seconds=-1)


class InstalledDriversTest(testtools.TestCase):

    @unittest.skipUnless(
        importlib.metadata.entry_points(group=telemetry.DRIVER_GROUP),
        'the package runs from a source tree and is not installed')
    def test_the_file_driver_is_found_by_its_name(self):
        extension.ExtensionManager.ENTRY_POINT_CACHE.pop(
            telemetry.DRIVER_GROUP, None)
        driver = telemetry.load_driver('file', path='trace.npz')
        self.assertIsInstance(driver, file.FileDriver)
        self.assertEqual('trace.npz', driver.source)
