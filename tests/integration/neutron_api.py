# SPDX-License-Identifier: Apache-2.0
"""Runs in the Python of a real Neutron, which the tests do not import.

    neutron_api.py tables URL         make its database
    neutron_api.py serve FILE PORT    answer HTTP, with that configuration
    neutron_api.py report FILE        take agents' states, JSON on stdin
    neutron_api.py parse FILE HOST    print as JSON what an agent with that
                                      configuration would report
    neutron_api.py chassis FILE HOST  print as JSON what ML2/OVN would report
                                      to Placement of a chassis with that
                                      ovn-cms-options

States of agents go the way that a message of an agent goes on the server, and
options through the code that reads them in the agents.
"""

import json
import os
import sys


def tables(url):
    from neutron.db.migration.models import head
    import sqlalchemy
    # The migrations do not run on SQLite.
    head.get_metadata().create_all(sqlalchemy.create_engine(url))


def serve(path, port):
    import socketserver
    from wsgiref import simple_server

    class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
        daemon_threads = True

    os.environ['OS_NEUTRON_CONFIG_DIR'] = os.path.dirname(path)
    os.environ['OS_NEUTRON_CONFIG_FILES'] = os.path.basename(path)
    # It takes its options from there, not from the command line.
    del sys.argv[1:]
    from neutron.wsgi import api
    simple_server.make_server('127.0.0.1', int(port), api.application,
                              Server).serve_forever()


def report(path):
    from neutron.common import config
    from neutron.db import agents_db
    from neutron import manager
    from neutron_lib import context
    from oslo_utils import timeutils
    config.register_common_config_options()
    config.init(['--config-file', path])
    manager.init()
    server = agents_db.AgentExtRpcCallback()
    for state in json.load(sys.stdin):
        server.report_state(
            context.get_admin_context(), agent_state={'agent_state': state},
            time=timeutils.utcnow().strftime('%Y-%m-%dT%H:%M:%S.%f'))


def parse(path, host):
    from neutron.conf.plugins.ml2.drivers.mech_sriov import agent_common
    from neutron.conf.plugins.ml2.drivers import ovs_conf
    from neutron_lib.placement import utils
    from oslo_config import cfg
    conf = cfg.ConfigOpts()
    ovs_conf.register_ovs_agent_opts(conf)
    agent_common.register_agent_sriov_nic_opts(conf)
    conf(['--config-file', path])
    prefix = 'resource_provider_'
    print(json.dumps({group: {
        prefix + 'bandwidths': utils.parse_rp_bandwidths(
            conf[group].resource_provider_bandwidths),
        prefix + 'inventory_defaults': utils.parse_rp_inventory_defaults(
            conf[group].resource_provider_inventory_defaults),
        **({} if group != 'OVS' else {
            prefix + 'packet_processing_without_direction':
                utils.parse_rp_pp_without_direction(
                    conf.OVS[prefix + 'packet_processing_without_direction'],
                    host),
            prefix + 'packet_processing_with_direction':
                utils.parse_rp_pp_with_direction(
                    conf.OVS[prefix + 'packet_processing_with_direction'],
                    host)})}
        for group in ('OVS', 'SRIOV_NIC')}))


def chassis(path, host):
    from unittest import mock

    from neutron.conf.plugins.ml2 import config
    from neutron.plugins.ml2.drivers.ovn.mech_driver.ovsdb.extensions \
        import placement
    config.register_ml2_plugin_opts()
    extension = placement.OVNClientPlacementExtension(mock.Mock())
    extension._placement_plugin = mock.Mock()
    with open(path) as file:
        options = file.read().strip().splitlines()[-1]
    state = extension.build_placement_state(mock.Mock(other_config={
        'ovn-cms-options': options, 'ovn-bridge-mappings': 'phys:br-ex'}),
        {host: '5e7a6b2f-0c1d-4f53-8a90-3d2e4c5b6a78'})
    print(json.dumps({'bandwidths': state._rp_bandwidths,
                      'inventory_defaults': state._rp_inventory_defaults,
                      'hypervisors': {
                          device: hypervisor['name'] for device, hypervisor
                          in state._hypervisor_rps.items()}}))


if __name__ == '__main__':
    {'tables': tables, 'serve': serve, 'report': report,
     'parse': parse, 'chassis': chassis}[sys.argv[1]](*sys.argv[2:])
