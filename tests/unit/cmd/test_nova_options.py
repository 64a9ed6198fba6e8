# SPDX-License-Identifier: Apache-2.0
"""Nova's options in all layouts of files, compared with Nova itself."""

import json
import os
import random
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

#: Where nova-scheduler looks for files, and where it does not.
PLACES = (
    'etc/nova/nova.conf', 'etc/nova/nova-scheduler.conf', 'etc/nova.conf',
    'etc/nova/nova.conf.d/10.conf', 'etc/nova/nova.conf.d/20.conf',
    'etc/nova/nova.conf.d/30.ini', 'etc/nova/nova-scheduler.conf.d/a.conf',
    'home/nova.conf', 'home/.nova/nova.conf', 'home/.nova/nova-scheduler.conf',
    'etc/nova/nova-compute.conf', 'etc/nova/nova-api.conf.d/1.conf')

#: Files that are read if the words of a command line name them.
NAMED = ('srv/a.conf', 'srv/b.conf', 'srv/a.d/1.conf', 'srv/b.d/1.conf')

#: Words of a command line, with paths below the root.
WORDS = ('', '', '', '--config-file srv/a.conf', '--config-file=srv/a.conf',
         '--config-file srv/a.conf --config-file srv/b.conf',
         '--config-file etc/nova/nova.conf', '--config-dir srv/a.d',
         '--config-dir=srv/a.d', '--config-dir srv/empty.d',
         '--config-dir srv/a.d --config-file srv/a.conf',
         '--config-dir srv/a.d --config-dir srv/b.d')


def layouts():
    """Yield (files, words): words with files drawn at random."""
    generator = random.Random(7)
    for words in WORDS * 15:
        named = [*NAMED, *(PLACES[:1] if 'etc/' in words else ())]
        files = {place: generator.choice((ON, OFF, NOT_RANKED, FEW, NOVA,
                                          OURS))
                 for place in generator.sample(PLACES,
                                               generator.randint(1, 4))}
        files |= {place: generator.choice((ON, OFF, NOT_RANKED, FEW))
                  for place in named}
        yield {**files, 'srv/empty.d/README': ''}, words


#: What nova-scheduler reads when it starts, in each of the layouts. Its name
#: in the process is the name of the program.
_NOVA = textwrap.dedent('''\
    import json
    import os
    import sys

    from nova import config

    from tests.fakes import nova_files

    answers = []
    for root, words in json.load(sys.stdin):
        with nova_files.below(root):
            sys.argv = ['/opt/nova/bin/nova-scheduler', *words]
            config.parse_args(sys.argv, configure_db=False, init_rpc=False)
            scheduler = config.CONF.filter_scheduler
            answers.append((scheduler.enabled_filters,
                            scheduler.weight_classes,
                            config.CONF.scheduler.max_placement_results))
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
        drawn = list(layouts())
        written = [self.layout(number, *layout)
                   for number, layout in enumerate(drawn)]
        done = subprocess.run(
            [sys.executable, '-c', _NOVA], input=json.dumps(written),
            stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
        seen = set()
        for layout, (root, words), (filters, weighers, results) in zip(
                drawn, written, json.loads(done.stdout), strict=True):
            expected = {role for role, word, words_set in (
                ('filter', 'VSwitchFilter', filters),
                ('weigher', 'vswitch_aware_scheduler.scheduler.weights.'
                            'VSwitchWeigher', weighers))
                if word in words_set}
            with self.subTest(layout), nova_files.below(root):
                read = nova_options.read(words)
                self.assertEqual((expected, results), (set(), 1000) if read
                                 is None else (read.plugins,
                                               read.max_placement_results))
                self.assertTrue(read is None or all(map(
                    os.path.isfile, read.files)))
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
