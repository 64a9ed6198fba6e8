# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

from nova.api.validation.extra_specs import base
from nova.api.validation.extra_specs import validators
from nova import exception

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import extra_specs


class TestValidators(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.validators = {one.name: one for one in extra_specs.register()}

    def test_every_key_that_is_read_has_one(self):
        self.assertEqual(
            {*flavor_specs.EXTRA_SPECS, flavor_specs.MODEL_EXTRA_SPEC,
             flavor_specs.MIGRATE_EXTRA_SPEC},
            set(self.validators),
        )
        for one in self.validators.values():
            self.assertIsInstance(one, base.ExtraSpecValidator)

    @staticmethod
    def accepts(validate, *arguments):
        try:
            validate(*arguments)
        except (exception.ValidationError, exceptions.InvalidInput):
            return False
        return True

    def test_keys_that_nova_refuses_are_those_that_are_named(self):
        with mock.patch.dict(validators.VALIDATORS, self.validators,
                             clear=True), \
                mock.patch.object(validators, 'NAMESPACES', {'vswitch'}):
            for key in (*self.validators, 'vswitch:egres_kbps',
                        'vswitch:', 'vswitch:model:x'):
                value = flavor_specs.MIGRATE_VALUES[0] \
                    if key == flavor_specs.MIGRATE_EXTRA_SPEC else '1'
                problem = flavor_specs.read(
                    {key: value}, lambda uuid: None)[1]
                self.assertNotEqual(
                    'expected no key but' in (problem or ''),
                    self.accepts(validators.validate, key, value), key)

    def test_what_nova_accepts_we_can_use_and_the_other_way_round(self):
        for key in flavor_specs.EXTRA_SPECS:
            is_time = key.endswith('_seconds')
            specs = {'vswitch:egress_kbps': '5', 'vswitch:kpps': '5'}
            if is_time:
                specs.update({'vswitch:on_seconds': '5',
                              'vswitch:off_seconds': '5'})
            for value in ('0', '1', '12345', '8000000000', '8000000001',
                          '-1', '1.5', 'fast', '', '1e3', '9' * 400):
                # Nova cannot tell a time from a rate.
                if value != '0' or not is_time:
                    self.assertEqual(
                        self.accepts(flavor_specs.law_of_extra_specs,
                                     {**specs, key: value}),
                        self.accepts(self.validators[key].validate, key,
                                     value), (key, value))

    def test_a_model_is_named_by_any_text(self):
        self.validators['vswitch:model'].validate('vswitch:model', 'a1b2')
