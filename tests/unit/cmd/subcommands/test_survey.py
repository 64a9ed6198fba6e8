# SPDX-License-Identifier: Apache-2.0

import json

from tests.unit.survey import base


class SurveyTestCase(base.SurveyTestCase):

    def setUp(self):
        super().setUp()
        for host in ('h1', 'h2', 'h3'):
            self.host(host)
        # Full since ever, and almost empty.
        for number in (1, 2):
            self.instance(number, 'h1', 450)
        self.instance(3, 'h2', 100)
        self.instance(6, 'h3', 900)

    def ask(self, *words, **environment):
        status, output, errors = self.survey('--json', *words, **environment)
        self.assertEqual((0, ''), (status, errors))
        return json.loads(output)

    def test_a_host_is_overloaded_after_a_boot_that_the_plugin_refuses(self):
        # Hosts carry 1000: with it, h1 is above.
        uuid = self.instance(4, 'h1', 300, hours=-24)
        # This one sends less than others of its flavor.
        self.instance(7, 'h3', 20, hours=-20)
        self.instance(8, 'h2', 50)
        self.move(8, 'h3', 'h2', -18)
        status, output, errors = self.survey()
        print(output, errors)
        print(len(self.prometheus.requests), len(self.cloud.requests))
        answer = self.ask()
        for key, value in answer.items(): print(key, json.dumps(value))
