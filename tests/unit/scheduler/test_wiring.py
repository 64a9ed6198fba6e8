# SPDX-License-Identifier: Apache-2.0

import tempfile
import unittest
from unittest import mock

from oslo_config import cfg

from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.conf import scheduler
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.scheduler import wiring


class TestWiring(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.problems = {}

    def options(self, **options):
        """Return the group of options, from a file that sets some of them."""
        file = self.enterContext(tempfile.NamedTemporaryFile('w'))
        file.write('[vswitch_scheduler]\n' + ''.join(
            f'{name} = {value}\n' for name, value in options.items()))
        file.flush()
        conf = cfg.ConfigOpts()
        opts.register_opts(conf)
        conf(['--config-file', file.name])
        return conf.vswitch_scheduler

    def aggregates(self, **options):
        return wiring.make_aggregates(self.options(**options),
                                      self.problems.__setitem__)

    def test_whoever_sets_an_option_without_effect_is_warned(self):
        names = {'claim_expiry_seconds': 60, 'claims_refresh_seconds': 1,
                 'claims_wait_seconds': 2}
        conf = self.options(**names)
        # oslo.config warns once in the life of a process.
        for option in scheduler.OPTS:
            self.enterContext(mock.patch.object(
                option, '_logged_deprecation', False))
        with mock.patch.object(cfg, '_report_deprecation') as report:
            wiring.warn_of_ignored(conf)
        self.assertEqual(sorted(names), sorted(
            call.args[1]['option'] for call in report.call_args_list))

    def test_profiles_that_cannot_be_used_are_reported(self):
        self.aggregates(switch_profiles_file='/nowhere.yaml',
                        default_switch_profile='nonesuch')
        self.assertIn('/nowhere.yaml', self.problems['switch profiles'])
        self.assertIn("'nonesuch'; expected one of",
                      self.problems['default_switch_profile'])
        self.problems.clear()
        self.aggregates()
        self.assertEqual({'switch profiles': None}, self.problems)

    def test_a_store_that_cannot_be_made_raises_when_it_is_used(self):
        made = wiring.make_store(self.options(store_url='nonsense'))
        for use in (made.read_changes, made.read_claims, made.write_claims):
            with self.assertRaises(exceptions.StoreError):
                use(None)

    def test_what_happens_to_hosts_without_a_limit_is_stated(self):
        for policy, words in (('pass', 'lets every instance pass'),
                              ('reject', 'refuses every host')):
            self.assertIn(words, wiring.nothing_limited(
                self.options(unknown_host_policy=policy)))
