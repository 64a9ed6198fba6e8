# SPDX-License-Identifier: Apache-2.0
"""The case of the tests in which a host in debt is relieved."""

import csv
import types

from tests.fakes import clock
from tests.unit.budgets import fleet
from tests.unit.cmd import command_case


class ReliefTestCase(command_case.ManageTestCase):
    """host1 is in debt, host2 has room for one of its instances.

    :ivar fleet: :class:`~.fleet.Fleet`
    :ivar store: Store that has what was measured of it
    :ivar time: stands for the module ``time``; sleeping calls ``on_sleep``
    """

    def setUp(self):
        super().setUp()
        self.fleet = fleet.start_hot(self)
        self.store = self.make_store()
        self.configure('rebalance_network = separate')
        self.time = types.SimpleNamespace(
            time=clock.Clock(fleet.NOW), monotonic=clock.Clock(fleet.NOW),
            sleep=self._pass_by)
        self.on_sleep = lambda: None

    def _pass_by(self, seconds):
        self.time.monotonic.now += seconds
        self.on_sleep()

    def configure(self, *lines):
        trace = f'{self.directory}/trace.csv'
        self._configure(
            'telemetry_driver = file', f'telemetry_path = {trace}', *lines,
            '[vswitch_inventory]',
            f'endpoint_override = {self.fleet.cloud.url}/v2.1',
            f'placement_url = {self.fleet.cloud.url}/placement',
            'auth_type = none', f'endpoint = {self.fleet.cloud.url}',
            'status_code_retries = 0', 'requests_per_second = 1000')
        with open(trace, 'w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(('instance', 'time', 'egress_kbps',
                             'ingress_kbps'))
            for name, rates in self.fleet.driver.rates.items():
                for back, rate in zip(range(len(rates), 0, -1), rates):
                    writer.writerow((fleet.uuid_of(name), fleet.NOW
                                     - back * fleet.PERIOD, rate, 0))
        self.fleet.write(self.store)

    def states(self):
        """Return the states of all moves in the store."""
        return [move.state for move in self.store.moves()]
