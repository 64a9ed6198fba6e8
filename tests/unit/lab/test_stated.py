# SPDX-License-Identifier: Apache-2.0
"""One table of invalid inputs, and the message about each."""

import functools
import math
import os
import tempfile
import unittest

import yaml

from tests.unit.lab.calibrate import outputs
from tests.unit.lab import sites
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import importers
from vswitch_aware_scheduler.lab.calibrate import plan
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab.capacity import measurements
from vswitch_aware_scheduler.lab.evaluate import closed_loop
from vswitch_aware_scheduler.lab.evaluate import trace
from vswitch_aware_scheduler.lab import gateway
from vswitch_aware_scheduler.lab.purchase import inputs
from vswitch_aware_scheduler.vswitch import profile

VSPERF = outputs.VSPERF
RATES = 'packet_bytes,rate_kbps,pairs\n'
SERVER = 'cores: 1, memory_mb: 1, switch_profiles: ovs-flat'


def server(text, keys=SERVER):
    return f'servers: {{x: {{{keys}, {text}}}}}'


def flavor(text):
    return f'flavors: {{x: {{cores: 1, memory_mb: 1, {text}}}}}'


def site(path, value):
    return yaml.safe_dump(sites.changed(path, value))


G1, E1 = ['gateways', 'g1'], ['silos', 'east', 'interface_groups', 'e1']
RED = ['tenants', 'red', 'networks']

#: kind of file, text, message
FILES = (
    ('servers', '', 'content: not given; expected a mapping'),
    ('servers', '[1]', r'content: \[1\]'),
    ('servers', 'a: [', 'line 1: .*expected valid YAML'),
    ('servers', 'servers: {}', 'servers: {}; expected a mapping of names'),
    ('servers', 'server: {}', "a key: 'server'; .*nearest name: servers"),
    ('servers', 'servers: {3: {}}', 'a name: 3; expected text'),
    ('servers', 'servers: {x: 3}',
     "server type 'x': content: 3; expected a mapping"),
    ('servers', 'servers: {x: {core: 1}}',
     "server type 'x': a key: 'core'; .*nearest name: cores"),
    ('servers', 'servers: {x: {}}',
     "'x': cores: not given; expected a number above 0"),
    ('servers', f'currency: 3\nservers: {{x: {{{SERVER}}}}}',
     'currency: 3; expected text'),
    ('servers', server('price: -1'),
     "'x': price: -1; expected a number from 0"),
    ('servers', server('price: .nan'), 'price: nan'),
    ('servers', server('price: yes'), 'price: True'),
    ('servers', server('price: "12"'), "price: '12'"),
    ('servers', server('nic_kbps: 0'), 'nic_kbps: 0; expected .* above 0'),
    ('servers', server('reserved_cores: 1'),
     'reserved_cores: 1.0; expected less than cores, which is 1'),
    ('servers', server('uplink_kbps: 5'),
     'hosts_per_uplink: not given; .* uplink_kbps is stated'),
    ('servers', server('hosts_per_uplink: 5'),
     'uplink_kbps: not given; .* hosts_per_uplink is stated'),
    ('servers', server('hosts_per_uplink: 2.5'),
     'hosts_per_uplink: 2.5; expected a whole number from 1'),
    ('servers', server('memory_mb: 1', 'cores: 1'),
     'switch_profiles: not given'),
    ('servers', server('switch_profiles: ovs-flats', 'cores: 1, memory_mb: 1'),
     "switch_profiles: 'ovs-flats'; .*nearest name: ovs-flat"),
    ('servers', server('switch_profiles: [ovs-gre, ovs-gre]',
                       'cores: 1, memory_mb: 1'),
     "switch_profiles: 'ovs-gre'; expected each profile once"),
    ('servers', 'servers: {x: {%s}, x: {%s}}' % (SERVER, SERVER),
     "'x' comes a second time"),
    ('mix', 'flavors: 3', 'flavors: 3; expected a mapping'),
    ('mix', 'flavors: {x: {cores: 1}}', 'memory_mb: not given'),
    ('mix', flavor('count: 0'), 'count: 0; expected a whole number from 1'),
    ('mix', flavor('egress: 0'),
     "a key: 'egress'; .*nearest name: egress_kbps"),
    ('mix', flavor('kpps: -1'), 'kpps: -1'),
    ('mix', flavor('egress_kbps: 1, off_seconds: 1'),
     'on_seconds: not given; expected a number above 0'),
    ('gateway', '[]', 'the file: content: .*; expected a mapping'),
    ('gateway', 'silos: {}\nsilos: {}\n', "key 'silos' comes a second"),
    ('gateway', 'silos: 5\n', 'silos: content: 5'),
    ('gateway', site(['racks'], {}),
     "a key: 'racks'; expected one of gateways"),
    ('gateway', site(['gateways'], [5]), 'gateways: content: .5.; expected a'),
    ('gateway', site(['gateways', 5], {}),
     'gateways: a name: 5; expected text'),
    ('gateway', site(G1, {'interfaces': 4}),
     'gateway g1: mapping_entries: not given; expected a whole'),
    ('gateway', site([*G1, 'interfaces'], 0),
     'interfaces: 0; expected a whole number from 1'),
    ('gateway', site([*G1, 'switch_back'], 'no'),
     "switch_back: 'no'; expected"),
    ('gateway', site([*G1, 'colour'], 1), "gateway g1: a key: 'colour'"),
    ('gateway', site([*E1, 'g9'], 1),
     "interface group e1: a gateway: 'g9'; expected one of g1, g2"),
    ('gateway', site([*E1, 'g1'], 5),
     'an interface of gateway g1: 5; expected 1'),
    ('gateway', site([*E1, 'g1'], [1, 1]),
     'expected each once, and one or more'),
    ('gateway', site([*E1, 'g1'], []), 'expected each once, and one or more'),
    ('gateway', site([*E1, 'g1'], [True]), ': True; expected a whole number'),
    ('gateway', site([*E1, 'g1'], [3]),
     'gateway g1: 3; expected one that is not in interface group e1: an '
     'interface has one VLAN domain'),
    ('gateway', site(['silos', 'west', 'interface_groups', 'e1'],
                     {'g1': [4]}), "its silo: 'west'; expected east alone"),
    ('gateway', site([*RED, 'web', 'silos'], ['north']),
     "network red/web: a silo: 'north'; expected one of east"),
    ('gateway', site([*RED, 'web', 'silos'], 'east'),
     'expected a list of names'),
    ('gateway', site([*RED, 'web'], {}),
     'where it is: .*; expected silos, or'),
    ('gateway', site([*RED, 'db', 'vni'], 1 << 24),
     'vni: 16777216; expected'),
    ('gateway', site([*RED, 'db', 'vlans', 'w'], 4095),
     ': 4095; expected a whole number from 1 to 4094'),
    ('gateway', site([*RED, 'db', 'vlans', 'x'], 1),
     "a key: 'x'; expected one"),
    ('rates', '', "header: ''; expected the columns packet_bytes"),
    ('rates', 'size,rate\n1,2\n', "header: 'size,rate'; expected"),
    ('rates', RATES, 'no row below the header; expected 1'),
    ('rates', RATES + '128,abc,1\n',
     "line 2: rate_kbps: 'abc'; expected a number"),
    ('rates', RATES + '# x\n128,1,1.5\n',
     "line 3: pairs: '1.5'; expected a whole number"),
    ('rates', RATES + '128,,1\n', 'line 2: rate_kbps is empty; expected'),
    ('rates', RATES + ',,\n', 'line 2: packet_bytes is empty; expected'),
    ('rates', RATES + '128,nan,1\n', 'line 2: rate_kbps: nan; expected'),
    ('rates', RATES + '128,-4,1\n', 'line 2: rate_kbps: -4.0; expected'),
    ('vsperf', 'a,b\n1,2\n', "header: 'a,b'; expected the columns"),
    ('vsperf', VSPERF.splitlines()[0] + '\n', 'no row below the header'),
    ('vsperf', VSPERF.replace('1000000', 'n/a'),
     "line 2: throughput_rx_fps: 'n/a'; expected a number"),
    ('vsperf', VSPERF.replace('rfc2544,64', 'rfc2544,18'),
     'line 2: packet_size = 18, .*expected frames of more than'),
    ('vsperf', VSPERF.replace('p2p', 'pxp'),
     "line 2: deployment: 'pxp'; expected one of p2p"),
    ('vsperf', VSPERF.replace('512,\n', '512,lisp\n'),
     "line 2: encapsulation: 'lisp'; expected one of"),
    ('groups', 'uuid,flavor\na,b\n',
     "header: 'uuid,flavor'; expected the columns instance"))

LOADERS = {
    'servers': lambda path: inputs.load_server_types(
        path, profile.catalogue()),
    'mix': inputs.load_flavors, 'gateway': gateway.load,
    'rates': measurements.load_csv, 'groups': trace.load_groups,
    'vsperf': lambda path: importers.load('vsperf', path,
                                          importers.Setting())}

measured = functools.partial(cost_model.Measurement, packet_bytes=100,
                             rate_kbps=1e3)

#: class, name of an argument, value, message
VALUES = (
    *((importers.Setting, name, 0, f'{name}: 0; expected a whole number')
      for name in ('pairs', 'mtu', 'streams')),
    (plan.Plan, 'sizes', (20,),
     'packet size: 20; expected a whole number from 44 to 65000'),
    (plan.Plan, 'sizes', (), 'packet size: none; expected one or more'),
    (plan.Plan, 'pairs', (0,), 'number of pairs: 0; expected'),
    (plan.Plan, 'seconds', 0, 'seconds: 0; expected'),
    (plan.Plan, 'repeats', 0, 'repeats: 0; expected'),
    (plan.Plan, 'receivers', -1, 'receivers: -1; expected'),
    (closed_loop.Conditions, 'period_seconds', 0, 'period seconds: 0; exp'),
    (closed_loop.Conditions, 'delay_seconds', -1, 'a number from 0'),
    (closed_loop.Conditions, 'missing_share', 1.1, 'a number from 0 to 1'),
    (closed_loop.Conditions, 'failing_share', -.1, 'a number from 0 to 1'),
    (closed_loop.Conditions, 'memory_mib', math.nan, 'memory mib: nan'),
    (closed_loop.Conditions, 'memory_mib', math.inf, 'memory mib: inf'),
    (closed_loop.Conditions, 'switch_share', 2, 'switch share: 2'),
    (measured, 'packet_bytes', 0, 'packet_bytes: 0; expected'),
    (measured, 'rate_kbps', math.nan, 'rate_kbps: nan; expected'),
    (measured, 'rate_kbps', '1', "rate_kbps: '1'; expected"),
    (measured, 'pairs', 0, 'pairs: 0; expected a whole number from 1'),
    (measured, 'pairs', 1.5, 'pairs: 1.5; expected a whole number'),
    (measured, 'flows', True, 'flows: True; expected a whole number'),
    (measured, 'encapsulation', 'lisp', "'lisp'; expected one of none"),
    (measured, 'cpu_mhz', -1, 'cpu_mhz: -1; expected a number above 0'))


class InvalidInputTestCase(unittest.TestCase):

    def test_a_message_names_the_file_the_value_and_what_is_valid(self):
        path = os.path.join(self.enterContext(
            tempfile.TemporaryDirectory()), 'input')
        for kind, text, message in FILES:
            with self.subTest((kind, text)):
                with open(path, 'w') as file:
                    file.write(text)
                with self.assertRaisesRegex(exceptions.VSwitchError, message):
                    LOADERS[kind](path)

    def test_a_file_that_cannot_be_read_is_named(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        for kind, load in LOADERS.items():
            for path in (os.path.join(directory, 'missing'), directory):
                with self.subTest(kind), self.assertRaisesRegex(
                        exceptions.VSwitchError, f'{path}: cannot be read'):
                    load(path)

    def test_a_message_names_the_argument_the_value_and_what_is_valid(self):
        for make, name, value, message in VALUES:
            with self.subTest((make, name, value)), self.assertRaisesRegex(
                    exceptions.VSwitchError, message):
                make(**{name: value})
