# SPDX-License-Identifier: Apache-2.0
"""Hosts that are judged and never refused, and what is logged of them."""

import logging

from tests.functional import base


class ObserveTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    OPTIONS = {'enforcement': 'observe', 'unknown_host_policy': 'reject'}

    def refusals(self):
        """Return the debug lines of what would have been refused."""
        found = [text for text in self.log.messages()
                 if 'fails the virtual switch check' in text]
        self.log.clear()
        return found

    def test_everything_passes_until_an_aggregate_enforces(self):
        flavor = self.flavor('f600', egress_kbps=600)
        # No profile at all.
        self.boot(flavor, 'host2', host='host2')
        told, = self.refusals()
        self.assertIn('no switch profile', told)
        self.assertIn('only observed', told)
        # Full hosts.
        self.describe_hosts(1000, 1000)
        servers = self.boot_many(flavor, 4)
        self.assertEqual({'host1', 'host2'}, {*self.hosts_of(servers)})
        self.assertTrue(any('overload probability' in text
                            for text in self.refusals()))
        # One aggregate is enforced: nothing fits there, and host2 takes all.
        self.describe_host('host1', enforcement='enforce')
        self.boot_refused(flavor, host='host1')
        for _ in range(2):
            self.boot(flavor, 'host2')
        # An aggregate more that says observe makes it observed.
        trial = self.aggregate('trial', 'host1', enforcement='observe')
        self.boot(flavor, 'host1', host='host1')
        self.set_metadata(trial, enforcement='enforce')
        self.boot_refused(flavor, host='host1')


class NoHostTestCase(base.VSwitchTestCase):

    def test_a_request_that_leaves_no_host_is_one_line_of_the_log(self):
        flavor = self.flavor('f600', egress_kbps=600)
        self.describe_hosts(1000, 1000, 599)
        self.boot(flavor, host='host1')
        self.boot(flavor, host='host2')
        self.log.clear()
        self.boot_refused(flavor)
        line, = [text for text in self.log.messages(logging.INFO)
                 if 'no host passes' in text]
        self.assertIn('3 hosts: 2 overload probability, 1 peak; closest host',
                      line)
        self.assertIn('(1 > 0.01)', line)
        # Of several at once, alternates to the last one are no refusal.
        self.log.clear()
        self.describe_host('host3', saturation_kbps=1200)
        self.boot_many(flavor, 2)
        self.assertEqual([], [text for text in self.log.messages(
            logging.INFO) if 'no host passes' in text])
        self.log.clear()
        self.boot_many_refused(flavor, 2)
        self.assertEqual(1, len([text for text in self.log.messages(
            logging.INFO) if 'no host passes' in text]))
