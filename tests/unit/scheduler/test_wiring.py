# SPDX-License-Identifier: Apache-2.0

import tempfile
import unittest

from oslo_config import cfg

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.conf import opts
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
        for name in ('read_changes', 'claiming', 'report_worker'):
            with self.assertRaises(exceptions.StoreError):
                getattr(made, name)()

    def test_what_happens_to_hosts_without_a_limit_is_stated(self):
        for policy, words in (('pass', 'lets every instance pass'),
                              ('reject', 'refuses every host')):
            self.assertIn(words, wiring.nothing_limited(
                self.options(unknown_host_policy=policy)))
