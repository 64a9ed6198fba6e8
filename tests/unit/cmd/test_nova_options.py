# SPDX-License-Identifier: Apache-2.0
"""Nova's options in all layouts of files, compared with Nova itself."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

from nova.conf import scheduler
from oslo_config import cfg

from tests.fakes import nova_files
from vswitch_aware_scheduler.cmd import nova_options

ON = textwrap.dedent('''\
    [filter_scheduler]
    enabled_filters = ComputeFilter,VSwitchFilter
    weight_classes = nova.scheduler.weights.all_weighers,\
vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher
    ''')
OFF = '[filter_scheduler]\nenabled_filters = ComputeFilter\n'
NOT_RANKED = ('[filter_scheduler]\n'
              'weight_classes = nova.scheduler.weights.all_weighers\n')
FEW = '[scheduler]\nmax_placement_results = 7\n'
NOVA = '[DEFAULT]\ntransport_url = fake:/\n[placement]\nusername = u\n'
OURS = '[vswitch_scheduler]\nstore_url = sqlite:////nowhere\n'

#: (files, words of the command line), both below the root.
LAYOUTS = {
    'nova.conf': ({'etc/nova/nova.conf': ON + FEW}, ''),
    'a file in nova.conf.d': (
        {'etc/nova/nova.conf': NOVA,
         'etc/nova/nova.conf.d/50-vswitch.conf': ON}, ''),
    'a file in nova.conf.d switches it off': (
        {'etc/nova/nova.conf': ON, 'etc/nova/nova.conf.d/90.conf': OFF}, ''),
    'files of nova.conf.d in their order': (
        {'etc/nova/nova.conf.d/10.conf': OFF + FEW,
         'etc/nova/nova.conf.d/20.conf': ON,
         'etc/nova/nova.conf.d/30.ini': OFF}, ''),
    'nova-scheduler.conf': (
        {'etc/nova/nova.conf': NOVA, 'etc/nova/nova-scheduler.conf': ON}, ''),
    'nova-scheduler.conf switches it off': (
        {'etc/nova/nova.conf': ON, 'etc/nova/nova-scheduler.conf': OFF}, ''),
    'nova-scheduler.conf is read before nova.conf.d': (
        {'etc/nova/nova-scheduler.conf': OFF,
         'etc/nova/nova.conf.d/1.conf': ON}, ''),
    'nova-scheduler.conf.d is read last': (
        {'etc/nova/nova.conf': OFF, 'etc/nova/nova.conf.d/z.conf': FEW,
         'etc/nova/nova-scheduler.conf.d/a.conf': ON}, ''),
    'only nova-scheduler.conf.d': (
        {'etc/nova/nova-scheduler.conf.d/a.conf': ON}, ''),
    '/etc': ({'etc/nova.conf': ON}, ''),
    '/etc/nova hides /etc': (
        {'etc/nova/nova.conf': OFF, 'etc/nova.conf': ON}, ''),
    'the home hides /etc/nova': (
        {'home/nova.conf': ON, 'etc/nova/nova.conf': OFF}, ''),
    '.nova hides the home': (
        {'home/.nova/nova.conf': OFF, 'home/nova.conf': ON}, ''),
    'two homes': (
        {'home/.nova/nova-scheduler.conf': NOT_RANKED,
         'etc/nova/nova.conf': ON}, ''),
    'nova.conf is silent': ({'etc/nova/nova.conf': NOVA}, ''),
    'other services do not count': (
        {'etc/nova/nova.conf': NOVA, 'etc/nova/nova-compute.conf': ON,
         'etc/nova/nova-api.conf.d/1.conf': ON}, ''),
    '--config-file': (
        {'etc/nova/nova.conf': OFF, 'srv/nova.conf': ON},
        '--config-file srv/nova.conf'),
    '--config-file with =': (
        {'etc/nova/nova.conf': ON, 'srv/nova.conf': OFF},
        '--config-file=srv/nova.conf'),
    '--config-file keeps nova.conf.d': (
        {'etc/nova/nova.conf': NOVA, 'etc/nova/nova.conf.d/1.conf': ON,
         'etc/nova/nova-scheduler.conf': OFF},
        '--config-file etc/nova/nova.conf'),
    'two files': (
        {'srv/a.conf': ON, 'srv/b.conf': OFF},
        '--config-file srv/a.conf --config-file srv/b.conf'),
    '--config-dir': (
        {'etc/nova/nova.conf': NOVA, 'srv/nova.d/1.conf': ON},
        '--config-dir srv/nova.d'),
    '--config-dir hides nova.conf.d': (
        {'etc/nova/nova.conf': NOVA, 'etc/nova/nova.conf.d/1.conf': ON,
         'srv/nova.d/1.conf': FEW}, '--config-dir=srv/nova.d'),
    'an empty --config-dir hides nova.conf.d': (
        {'etc/nova/nova.conf': NOVA, 'etc/nova/nova.conf.d/1.conf': ON,
         'srv/nova.d/README': ''}, '--config-dir srv/nova.d'),
    'a file behind --config-dir': (
        {'srv/nova.d/1.conf': ON, 'srv/nova.conf': OFF},
        '--config-dir srv/nova.d --config-file srv/nova.conf'),
    'two directories': (
        {'srv/a/1.conf': ON, 'srv/b/1.conf': NOT_RANKED},
        '--config-dir srv/a --config-dir srv/b'),
    'below the group of ours': (
        {'etc/nova/nova.conf': ON,
         'etc/nova/nova.conf.d/vswitch.conf': OURS}, ''),
}

#: What nova-scheduler reads when it starts, in each of the layouts. Its name
#: in the process is the name of the program.
_NOVA = textwrap.dedent('''\
    import json
    import os
    import sys

    from nova import config

    from tests.fakes import nova_files

    answers = {}
    for name, (root, words) in json.load(sys.stdin).items():
        with nova_files.below(root):
            sys.argv = ['/opt/nova/bin/nova-scheduler', *words]
            config.parse_args(sys.argv, configure_db=False, init_rpc=False)
            scheduler = config.CONF.filter_scheduler
            answers[name] = (scheduler.enabled_filters,
                             scheduler.weight_classes,
                             config.CONF.scheduler.max_placement_results)
            config.CONF.clear()
    print(json.dumps(answers))
    ''')


class LayoutTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.root = self.enterContext(tempfile.TemporaryDirectory())

    def layout(self, number, files, words):
        """Write files. Return (their root, words of the command line)."""
        root = os.path.join(self.root, str(number))
        nova_files.write(root, files)
        return root, [word if word.startswith('--config') and '=' not in word
                      else word.replace('srv/', f'{root}/srv/').replace(
                          'etc/', f'{root}/etc/')
                      for word in words.split()]

    def read(self, files, words='', own_files=()):
        root, arguments = self.layout('x', files, words)
        with nova_files.below(root):
            return nova_options.read(arguments, [
                os.path.join(root, name) for name in own_files])

    def test_nova_reads_the_same_in_every_layout(self):
        layouts = {name: self.layout(number, *layout) for number, (
            name, layout) in enumerate(LAYOUTS.items())}
        done = subprocess.run(
            [sys.executable, '-c', _NOVA], input=json.dumps(layouts),
            stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
        truth = json.loads(done.stdout)
        seen = set()
        for name, (root, words) in layouts.items():
            filters, weighers, results = truth[name]
            expected = {role for role, word, words_set in (
                ('filter', 'VSwitchFilter', filters),
                ('weigher', 'vswitch_aware_scheduler.scheduler.weights.'
                            'VSwitchWeigher', weighers))
                if word in words_set}
            with self.subTest(name), nova_files.below(root):
                read = nova_options.read(words)
                self.assertEqual((expected, results), (
                    read.plugins, read.max_placement_results))
                self.assertTrue(all(map(os.path.isfile, read.files)))
            seen.add((frozenset(expected), results))
        # The layouts differ.
        both = frozenset({'filter', 'weigher'})
        self.assertLessEqual({(both, 7), (both, 1000), (frozenset(), 7),
                              (frozenset(), 1000)}, seen)

    def test_the_options_are_those_of_nova(self):
        of_nova = {option.name: option for option in (
            *scheduler.scheduler_opts, *scheduler.filter_scheduler_opts)}
        for option in (*nova_options._PLUGINS, nova_options._RESULTS):
            of_this_name = of_nova[option.name]
            self.assertEqual([], of_this_name.deprecated_opts)
            self.assertIs(type(of_this_name), type(option))
        self.assertEqual(of_this_name.default, option.default)

    def test_the_files_are_named_in_their_order(self):
        read = self.read({
            'etc/nova/nova.conf': NOVA, 'etc/nova/nova-scheduler.conf': ON,
            'etc/nova/nova.conf.d/2.conf': FEW,
            'etc/nova/nova.conf.d/1.conf': FEW})
        self.assertEqual(
            ['nova.conf', 'nova-scheduler.conf', '1.conf', '2.conf'],
            [os.path.basename(path) for path in read.files])

    def test_files_of_ours_are_not_those_of_nova(self):
        files = {'etc/nova/nova.conf': ON, 'srv/vswitch.conf': OURS,
                 'srv/vswitch.d/1.conf': OURS}
        read = self.read(files, '--config-file srv/vswitch.conf '
                                '--config-dir=srv/vswitch.d')
        self.assertEqual({'filter', 'weigher'}, read.plugins)
        del files['etc/nova/nova.conf']
        self.root = self.enterContext(tempfile.TemporaryDirectory())
        self.assertIsNone(self.read(files, '--config-file srv/vswitch.conf'))

    def test_a_file_of_both_is_read_if_nova_has_no_other(self):
        files = {'srv/vswitch.conf': OURS + ON, 'srv/other.conf': OURS}
        own_files = ['srv/other.conf', 'srv/vswitch.conf']
        read = self.read(files, own_files=own_files)
        self.assertEqual({'filter', 'weigher'}, read.plugins)
        read = self.read({**files, 'etc/nova/nova.conf': OFF},
                         own_files=own_files)
        self.assertEqual(set(), read.plugins)

    def test_whether_a_file_sets_the_plugins(self):
        for text, are_set in ((NOVA, False), (ON, True), (OFF, True),
                              (NOT_RANKED, True), (FEW, False)):
            self.assertEqual(are_set, self.read(
                {'etc/nova/nova.conf': text}).are_set)

    def test_what_nova_scheduler_cannot_read_is_an_error(self):
        for text in ('no option', '[scheduler]\nmax_placement_results = 0\n'):
            with self.assertRaises(cfg.Error):
                self.read({'etc/nova/nova.conf': text})
        path = os.path.join(self.root, 'x/etc/nova/nova.conf')
        with open(path, 'wb') as file:
            file.write(b'[DEFAULT]\na = \xff\n')
        with self.assertRaisesRegex(cfg.Error, 'UTF-8'):
            self.read({})
