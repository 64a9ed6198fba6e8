# SPDX-License-Identifier: Apache-2.0

import collections
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from oslo_config import cfg
from oslo_config import generator

from tests.fakes import nova_files
from vswitch_aware_scheduler import conf
from vswitch_aware_scheduler.conf import access
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import series

NUMBERS = (cfg.IntOpt, cfg.FloatOpt)


def _theirs():
    """Return the names of the options that are those of keystoneauth1."""
    ours = {'max_answer_mib', 'requests_per_second'}
    return {option.name for option in (
        *access.auth_opts(), *access.options('Nova', 'http://nova'))} - ours


def _grouped():
    """Return (group name, option) of all options that are ours."""
    return [(group.name, option) for group, options in opts.list_opts()
            for option in options
            if group.name == opts.GROUP or option.name not in _theirs()]


def _options():
    return [option for _, option in _grouped()]


def _registered(arguments=()):
    options = cfg.ConfigOpts()
    conf.register_opts(options)
    options(list(arguments), default_config_files=[], default_config_dirs=[])
    return options


class OptionsTestCase(unittest.TestCase):

    def _value(self, option, text, group):
        """Return the value of an option in a configuration file."""
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
            file.write(f'[{group}]\n{option.name} = {text}\n')
            file.flush()
            options_read = _registered(['--config-file', file.name])
        return getattr(options_read[group], option.name)

    def test_every_option_says_what_it_does_and_what_goes_wrong(self):
        for option in _options():
            with self.subTest(option.name):
                paragraphs = option.help.strip().split('\n\n')
                self.assertGreaterEqual(len(paragraphs), 3)
                self.assertRegex(option.help, 'When (it|the|there)|'
                                 'Any other value')
                self.assertRegex(paragraphs[-1], '^Related options: ')

    def test_every_number_is_finite_and_bounded_with_a_unit(self):
        for option in _options():
            if not isinstance(option, NUMBERS):
                continue
            with self.subTest(option.name):
                self.assertIn('\nUnit: ', option.help)
                if option.name != 'vswitch_weight_multiplier':
                    self.assertIn(
                        f'{option.type.min:.15g} to {option.type.max:.15g}',
                        option.help.replace('\n', ' '))
            if isinstance(option, cfg.FloatOpt):
                for text in ('nan', 'inf', '-inf'):
                    self.assertRaises(ValueError, option.type, text)

    def test_related_options_exist_and_names_are_unique(self):
        names = collections.defaultdict(list)
        for group, option in _grouped():
            names[group].append(option.name)
        theirs = {name.replace('-', '_') for name in _theirs()}
        for group, option in _grouped():
            self.assertEqual(1, names[group].count(option.name), option.name)
            related = option.help.rpartition('Related options:')[2]
            for name in related.split('``')[1::2]:
                if not name.startswith(('*', '[')):
                    self.assertIn(name, {*names[group], *theirs},
                                  option.name)

    def test_bounds_and_choices_are_enforced(self):
        for section, option in _grouped():
            wrong = []
            if isinstance(option, NUMBERS):
                bounds = [bound for bound in (option.type.min,
                                              option.type.max)
                          if bound is not None]
                for bound in bounds:
                    self.assertEqual(bound, self._value(
                        option, bound, section))
                wrong = ['many', *(bound + sign for bound, sign
                                   in zip(bounds, (-1, 1)))]
            elif getattr(option.type, 'choices', None):
                wrong.append('perhaps')
            for value in wrong:
                with self.subTest(option.name, value=value), \
                        self.assertRaises(cfg.ConfigFileValueError):
                    self._value(option, value, section)

    def test_values_that_may_hold_a_password_are_secrets(self):
        self.assertEqual(
            ['store_url', 'modeler_coordination_url', 'headers'],
            [option.name for option in _options() if option.secret])
        credentials = {option.name.replace('-', '_'): option.secret
                       for option in access.auth_opts()}
        for name in ('password', 'application_credential_secret', 'token'):
            self.assertTrue(credentials.get(name, True), name)
        self.assertTrue(credentials['password'])

    def test_options_are_registered_once_and_overridden_in_one_place(self):
        changed, untouched = _registered(), _registered()
        conf.register_opts(changed)
        self.assertEqual(len([option for group, option in _grouped()
                              if group == conf.GROUP]),
                         len(changed[conf.GROUP]))
        changed.set_override('min_samples', 99, conf.GROUP)
        self.assertNotEqual(99, untouched[conf.GROUP].min_samples)


class UnknownTestCase(unittest.TestCase):

    def _check(self, text, folder=False):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, 'x.conf')
            path.write_text(text)
            conf.refuse_unknown(_registered(
                ['--config-dir', directory] if folder
                else ['--config-file', str(path)]))

    def test_names_that_are_no_options_are_refused(self):
        for text, message in (
                ('[vswitch_gnocchi]\nendpoint_overide = http://x\n',
                 r'option in the group \[vswitch_gnocchi\]: endpoint_overide; '
                 'expected endpoint_override, or another name'),
                ('[vswitch_gnochi]\nendpoint_override = http://x\n',
                 'group: vswitch_gnochi; expected vswitch_gnocchi, or'),
                ('[vswitch_scheduler]\nzzz = 1\n',
                 'zzz; expected a name of vswitch.conf.sample')):
            for folder in (False, True):
                with self.subTest(text, folder=folder), \
                        self.assertRaisesRegex(ValueError, message):
                    self._check(text, folder)

    def test_a_file_that_is_not_utf8_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            good, bad = (pathlib.Path(directory, name)
                         for name in ('good.conf', 'bad.conf'))
            good.write_text('[vswitch_scheduler]\n', encoding='utf-8')
            bad.write_bytes('# caf\u00e9\n'.encode('latin-1'))
            for arguments in (
                    [f'--config-file={good}', f'--config-file={bad}'],
                    ['--config-file', str(bad)],
                    ['--config-dir', directory]):
                with self.assertRaises(cfg.ConfigFileParseError) as caught:
                    conf.parse(cfg.ConfigOpts(), arguments)
                for part in (str(bad), 'UTF-8', '0xe9'):
                    self.assertIn(part, str(caught.exception))
                self.assertNotIn('good', str(caught.exception))
            with mock.patch.object(cfg, 'find_config_dirs',
                                   return_value=[directory]), \
                    self.assertRaisesRegex(cfg.ConfigFileParseError,
                                           str(bad)):
                conf.parse(cfg.ConfigOpts(), [], prog='vswitch')

    def test_options_and_groups_of_others_are_left_alone(self):
        self._check('[DEFAULT]\nlogg_file = x\n[filter_scheduler]\nx = 1\n'
                    '[vswitch_gnocchi]\nendpoint_override = http://x\n'
                    'username = me\n'
                    '[vswitch_scheduler]\nstore_url = x\nmin_samples = 3\n')


class FilesTestCase(unittest.TestCase):
    """Which files are read if the command line names none."""

    def read(self, files, arguments=None):
        """Return the profile that is read below a directory of files."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        nova_files.write(self.root, files)
        with nova_files.below(self.root):
            if arguments is None:
                return conf.read()[conf.GROUP].default_switch_profile
            options = cfg.ConfigOpts()
            conf.register_opts(options)
            conf.parse(options, [word.format(self.root)
                                 for word in arguments], 'vswitch-modeler')
            return options[conf.GROUP].default_switch_profile

    def test_without_vswitch_conf_the_files_of_nova_scheduler_are_read(self):
        for expected, files in (
                (None, {}),
                ('a', {'etc/nova/nova.conf': _profile('a')}),
                ('b', {'etc/nova/nova.conf': _profile('a'),
                       'etc/nova/nova.conf.d/1.conf': _profile('b')}),
                ('c', {'etc/nova/nova-scheduler.conf': _profile('c')})):
            for arguments in (None, []):
                self.assertEqual(expected, self.read(files, arguments))

    def test_files_of_nova_are_read_only_without_others(self):
        nova = {'etc/nova/nova.conf': _profile('a'),
                'etc/nova/nova.conf.d/1.conf': _profile('b')}
        for place in ('vswitch.conf', 'vswitch_aware_scheduler.conf.d/1.conf'):
            files = {**nova, f'etc/vswitch_aware_scheduler/{place}':
                     _profile('own')}
            self.assertEqual('own', self.read(files))
        files = {**nova, 'x': _profile('x')}
        self.assertEqual('x', self.read(files, ['--config-file={}/x']))
        # A directory of the modeler is read beside a file on the command line.
        files['x'] = '[DEFAULT]'
        files['etc/vswitch_aware_scheduler/vswitch-modeler.conf.d/1.conf'] = (
            _profile('own'))
        self.assertEqual('own', self.read(files, ['--config-file', '{}/x']))

    def test_a_command_does_without_files_that_its_user_may_not_read(self):
        files = {'etc/nova/nova.conf': _profile('a')}
        with mock.patch.object(os, 'access', return_value=False):
            self.assertIsNone(self.read(files))
            with nova_files.below(self.root):
                self.assertEqual([f'{self.root}/etc/nova/nova.conf'],
                                 conf.unread_files())


def _profile(name):
    return f'[vswitch_scheduler]\ndefault_switch_profile = {name}\n'


class DefaultsTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.group = _registered()[conf.GROUP]

    def test_defaults_fit_the_code_that_uses_them(self):
        engines.parse(self.group.store_url)
        self.assertEqual(estimate.MIN_SAMPLES, self.group.min_samples)
        limits = {option.name: option.type.max
                  for group, option in _grouped() if group == conf.GROUP
                  and isinstance(option, NUMBERS)}
        for name in ('default_egress_kbps', 'default_ingress_kbps'):
            self.assertEqual(series.MAX_RATE_KBPS, limits[name])

    def test_the_default_model_is_on_for_eight_percent_of_the_time(self):
        # GWA-T-12: the median of P(on) is 0.08.
        default = model.TrafficModel.on_off(
            self.group.default_egress_kbps, self.group.default_ingress_kbps,
            on_seconds=self.group.default_on_seconds,
            off_seconds=self.group.default_off_seconds)
        self.assertAlmostEqual(.08, default.stationary[1], delta=.005)


class SampleTestCase(unittest.TestCase):

    def test_a_sample_is_generated_with_every_option(self):
        generator_opts = cfg.ConfigOpts()
        generator.register_cli_opts(generator_opts)
        # The entry point needs an installed package: call what it names.
        with mock.patch.object(
                generator, '_list_opts', autospec=True,
                return_value=[('vswitch_aware_scheduler',
                               opts.list_opts())]):
            generator_opts(['--namespace', 'vswitch_aware_scheduler'])
            output = io.StringIO()
            generator.generate(generator_opts, output)
        text = output.getvalue()
        self.assertIn('[vswitch_scheduler]', text)
        for option in _options():
            self.assertIn(f'#{option.dest} = ', text)
        for group in ('gnocchi', 'prometheus', 'ceilometer'):
            self.assertIn(f'[vswitch_{group}]', text)
        self.assertIn('#auth_type = ', text)
        self.assertIn('# probability - ', text)
