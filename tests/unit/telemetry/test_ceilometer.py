# SPDX-License-Identifier: Apache-2.0

import dataclasses
import sys
from unittest import mock

import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import ceilometer
from vswitch_aware_scheduler.traffic import series as rate_series

TRAFFIC = telemetry_driver.sample_traffic()
INTERFACES = telemetry_counters.interfaces(TRAFFIC)
BUSY = telemetry_counters.instance_uuid(telemetry_driver.BUSY)


class CeilometerTest(testtools.TestCase):

    def make(self, interfaces=INTERFACES, **options):
        self.server = self.useFixture(stand_ins.Ceilometer(interfaces))
        return ceilometer.CeilometerDriver(
            telemetry_services.access(self.server.url),
            **{'period_seconds': 300, 'clock': fake_clock.Clock(
                float(TRAFFIC.times[-1]) + 7200), **options})

    def test_several_samples_of_a_period_are_averaged(self):
        series, = self.make(period_seconds=600).series(instances=[BUSY])
        egress = TRAFFIC.egress_kbps[telemetry_driver.BUSY - 1]
        np.testing.assert_allclose(
            egress.reshape(-1, 2).mean(axis=1), series.rates[:, 0])

    def test_without_one_direction_the_other_is_a_lower_bound(self):
        interface = INTERFACES[0]
        rates = interface.rates.copy()
        rates[:, 1] = np.nan
        series, = self.make(
            [dataclasses.replace(interface, rates=rates)]).series()
        self.assertEqual((576, True), (len(series), series.partial.all()))
        self.assertFalse(series.rates[:, 1].any())
        self.assertEqual(rate_series.Refused(missing=576),
                         series.at_least().refused)

    def test_an_interface_of_negative_rates_takes_nothing_from_others(self):
        good, negative = INTERFACES[:2]
        alone, = self.make([good]).series()
        below = dataclasses.replace(
            negative, rates=np.full(negative.rates.shape, -999.92e6 / 8))
        series, = self.make([good, below]).series()
        self.assertEqual(alone.times.tolist(), series.times.tolist())
        np.testing.assert_array_equal(alone.rates, series.rates)
        series, = self.make([below]).series()
        self.assertEqual((0, 576), (len(series), series.refused.negative))

    def test_resources_that_are_no_interface_are_left_alone(self):
        class Balancer(telemetry_counters.Interface):
            resource = 'a-load-balancer'

        self.assertEqual([], self.make([Balancer(
            **vars(INTERFACES[0]))]).instances())

    def test_names_are_those_of_domains(self):
        self.assertEqual('instance-00000001', next(
            instance.name for instance in self.make().instances()
            if instance.uuid == BUSY))

    def test_statistics_that_make_no_sense_cost_their_period(self):
        driver = self.make()
        good = {rates.instance_uuid: rates for rates in driver.series()}
        queries = len(self.server.requests) - 1
        for change in ({'period_start': '2013-01-01T00:00:00'},
                       {'period_start': '2113-01-01T00:00:00'},
                       {'period_start': '2013-08-01T00:01:00'},
                       {'period_start': 'noon'}, {'period_start': None},
                       {'avg': 'much'}, {'avg': None}, {'avg': []}):
            self.server.faults[:] = [None] * queries + [stand_ins.changed(
                lambda answer: [{**answer[0], **change}, *answer[1:]])]
            *others, last = driver.series()
            self.assertEqual([], self.server.faults)
            for rates in others:
                np.testing.assert_array_equal(
                    good[rates.instance_uuid].rates, rates.rates)
            np.testing.assert_array_equal(
                good[last.instance_uuid].rates[1:], last.rates[last.whole])

    def test_unusable_options_are_refused(self):
        for wrong in ({'period_seconds': 1.5}, {'max_age_seconds': None}):
            self.assertRaises(exceptions.InvalidInput,
                              ceilometer.CeilometerDriver,
                              {'url': 'http://a'}, **wrong)

    def test_a_missing_client_library_names_the_extra(self):
        driver = ceilometer.CeilometerDriver({'url': 'http://a'})
        with mock.patch.dict(sys.modules, {'ceilometerclient': None}):
            error = self.assertRaises(exceptions.TelemetryError,
                                      driver.instances)
        self.assertIn('extra "ceilometer"', str(error))
