# SPDX-License-Identifier: Apache-2.0
"""Nova's flavor API knows our extra specs; and refusals are explained."""

from nova.tests.functional.api import client

from tests.functional import base


class ExtraSpecsTestCase(base.VSwitchTestCase):
    HOSTS = ('host1',)

    def test_the_flavor_api_refuses_bad_values(self):
        flavor = self.flavor('plain')

        def post(**extra_specs):
            return self.admin_api.post_extra_spec(flavor, {
                'extra_specs': {f'vswitch:{key}': value for key, value
                                in extra_specs.items()}})

        for key, value in (('egress_kbps', 'much'), ('egress_kbps', '-1'),
                           ('ingress_kbps', '1.5'), ('kpps', ''),
                           ('on_seconds', '1e3'), ('off_seconds', 'nan'),
                           ('egres_kbps', '1')):
            error = self.assertRaises(client.OpenStackApiException, post,
                                      **{key: value})
            self.assertEqual(400, error.response.status_code, (key, value))
        post(egress_kbps='1', ingress_kbps='0', kpps='2', on_seconds='3',
             off_seconds='4', model='of-some-instance')
        # Before 2.86 nova takes anything. We ignore it and say so.
        self.admin_api.microversion = '2.85'
        bad = self.flavor('bad', egress_kbps='much')
        self.admin_api.microversion = 'latest'
        self.describe_hosts(8000)
        self.boot(bad)
        self.boot(bad)
        self.boot_refused(bad)
        line, = self.log.warnings
        self.assertIn('much', line)

    def test_a_refusal_is_explained_with_the_numbers_that_decided(self):
        self.describe_host('host1', saturation_kbps=3000)
        half = self.on_off_flavor('half', 2000, 0.5)
        self.boot(half)

        def explained(flavor, *parts):
            self.log.clear()
            self.boot_refused(flavor)
            line, = self.log.lines('host1', 'fails')
            for part in parts:
                self.assertIn(part, line)

        explained(half, 'overload probability', '0.25', '0.01', 'by flavor')
        self.describe_host('host1', overload_probability=0.1)
        explained(half, '0.25', '0.1')
        explained(self.of(3001), 'peak', '3001', '3000')
        self.describe_host('host1', admission_policy='average')
        explained(self.of(2500), 'average', '3500', '3000')
        self.describe_host('host1', max_tunnels=1)
        explained(self.of(1), '1 instances', 'max_tunnels', 'is 1')
        self.assertEqual([], self.log.warnings)


class RejectUnknownTestCase(base.VSwitchTestCase):
    HOSTS = ('host1',)
    OPTIONS = {'unknown_host_policy': 'reject'}

    def test_a_host_without_profile_is_explained(self):
        self.log.clear()
        self.boot_refused(self.of(1))
        self.assertEqual(1, len(self.log.lines('host1', 'no switch profile')))
