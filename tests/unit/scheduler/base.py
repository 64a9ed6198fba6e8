# SPDX-License-Identifier: Apache-2.0
"""A cloud without services: hosts, aggregates, requests and a store."""

import logging
import types
import unittest
from unittest import mock

from nova import objects
from nova.scheduler import host_manager
from oslo_config import cfg

from tests.unit import test_snapshot as snapshots
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import lookup
from vswitch_aware_scheduler.scheduler import state as scheduler_state
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model

objects.register_all()

NOW = snapshots.NOW


def instance_uuid(number):
    return f'00000000-0000-4000-8000-{number:012d}'


def aggregate(name='agg', **metadata):
    """Return an aggregate; ``profile='x'`` is ``vswitch:profile``."""
    return objects.Aggregate(name=name, metadata={
        f'vswitch:{key}': value for key, value in metadata.items()})


def host_state(host, instances=(), aggregates=()):
    """Return what Nova knows of a host.

    :param instances: numbers of instances
    """
    one = host_manager.HostState(host, host, instance_uuid(0))
    one.instances = {instance_uuid(number): None for number in instances}
    one.aggregates = list(aggregates)
    return one


def request(number=None, check_type=None, networks=None, **extra_specs):
    """Return the RequestSpec of one instance.

    :param networks: ids of those it asks for, one for each interface
    :param extra_specs: ``kpps=5`` is ``vswitch:kpps``
    """
    hints = {} if check_type is None else {'_nova_check_type': [check_type]}
    spec = objects.RequestSpec(
        scheduler_hints=hints, num_instances=1, flavor=objects.Flavor(
            name='m1.test', extra_specs={
                f'vswitch:{key}': str(value)
                for key, value in extra_specs.items()}))
    if number is not None:
        spec.instance_uuid = instance_uuid(number)
    if networks is not None:
        spec.requested_networks = objects.NetworkRequestList(objects=[
            objects.NetworkRequest(network_id=network)
            for network in networks])
        spec.pci_requests = objects.InstancePCIRequests(requests=[])
    return spec


def changes(number, laws=None, **more):
    """Return Changes that give instances, by number, constant rates."""
    packed = snapshots._changes(number, {
        instance_uuid(one): 0 for one in laws or {}}, **more)
    for row, kbps in enumerate((laws or {}).values()):
        packed.law_rows[row, -3:] = (kbps, 0.0, 0.0)
    return packed


def flavor(kbps):
    """Return a flavor that states a constant rate."""
    return objects.Flavor(name='m1', extra_specs={
        'vswitch:egress_kbps': str(kbps)})


class LogRecords(logging.Handler):
    """What this project logged."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append((record.levelno, record.getMessage()))

    def texts(self, level):
        return [text for levelno, text in self.records if levelno == level]


class SchedulerTestCase(unittest.TestCase):
    """A state with a fake store, a fake clock and options of its own."""

    OPTIONS = {'snapshot_refresh_seconds': 3600,
               'default_switch_profile': None,
               'claims_refresh_seconds': 0,
               'claim_expiry_seconds': 600}

    def setUp(self):
        super().setUp()
        self.clock = snapshots.Clock()
        self.store = snapshots.FakeStore(changes(1))
        patch = mock.patch.object(store, 'Store', autospec=True,
                                  return_value=self.store)
        self.make_store = patch.start()
        self.addCleanup(patch.stop)
        #: What Nova's database says: number -> lookup.Found
        self.database = {}
        self.looked_up = []
        #: What it says of flavors: uuid -> Flavor; who it was asked for.
        self.flavors, self.asked_flavors = {}, []
        #: What it says of who is on a host: host -> set of uuids; who asked.
        self.on_hosts, self.asked_hosts = {}, []
        patch = mock.patch.object(lookup, 'uuids_on', self._uuids_on)
        patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch.object(lookup, 'flavors_of', self._flavors_of)
        patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch.object(lookup, 'look_up', self._look_up)
        patch.start()
        self.addCleanup(patch.stop)
        self.log = LogRecords()
        logger = logging.getLogger('vswitch_aware_scheduler')
        level = logger.level
        logger.addHandler(self.log)
        logger.setLevel(logging.DEBUG)
        self.addCleanup(logger.setLevel, level)
        self.addCleanup(logger.removeHandler, self.log)

    def _uuids_on(self, hosts):
        self.asked_hosts.append(hosts)
        if isinstance(self.on_hosts, Exception):
            raise self.on_hosts
        return {host: self.on_hosts.get(host, set()) for host in hosts}

    def _flavors_of(self, uuids):
        self.asked_flavors.append(sorted(uuids))
        if isinstance(self.flavors, Exception):
            raise self.flavors
        return {uuid: self.flavors[uuid] for uuid in uuids
                if uuid in self.flavors}

    def _look_up(self, uuid):
        number = int(uuid[-12:])
        self.looked_up.append(number)
        found = self.database.get(number, types.SimpleNamespace(
            host=None, settled=False, confirmed=True, flavor=None))
        if isinstance(found, Exception):
            raise found
        return found

    def make_conf(self, **options):
        conf = cfg.ConfigOpts()
        opts.register_opts(conf)
        conf([])
        for name, value in {**self.OPTIONS, **options}.items():
            conf.set_override(name, value, group='vswitch_scheduler')
        return conf

    def make_state(self, **options):
        state = scheduler_state.SchedulerState(self.make_conf(**options),
                                               self.clock)
        self.addCleanup(state.stop)
        return state

    @property
    def warnings(self):
        return self.log.texts(logging.WARNING)

    @property
    def infos(self):
        return self.log.texts(logging.INFO)


#: The law of a constant rate, egress only.
def constant(kbps):
    return model.TrafficModel.constant(kbps).law


#: Metadata of an aggregate whose hosts carry 100 kbit/s.
HUNDRED = {'saturation_kbps': '100', 'overload_probability': '0'}


class StateTestCase(SchedulerTestCase):
    """Hosts of 100 kbit/s whose instances all have constant rates."""

    def setUp(self):
        super().setUp()
        self.aggregate = aggregate(**HUNDRED)
        self.hosts = {}
        self.state = None

    def ask(self, spec, **listed):
        """Return {host: utilisation with the instance} and the reasons.

        :param listed: host=[numbers of instances]; as of the last time for
            a host that is not given
        """
        for host, numbers in listed.items():
            self.hosts[host] = host_state(host, numbers, [self.aggregate])
        states = list(self.hosts.values())
        assessment, self.demand = self.state.assess(states, spec)
        self.reasons = dict(zip(self.hosts, assessment.reason.tolist()))
        return {host: round(value, 9) for host, value in zip(
            self.hosts, assessment.utilisation.tolist())}

    def place(self, spec, host):
        self.state.placed(self.hosts[host], spec)
