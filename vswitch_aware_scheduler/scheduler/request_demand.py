# SPDX-License-Identifier: Apache-2.0
"""Determines the demand of an instance from its RequestSpec.

The first law that exists applies: the learned model of this instance; the
``vswitch:*`` extra specs of the flavor; the learned prior of such instances;
the configured default. If the ports of the instance have a QoS guarantee
(minimum bandwidth or packet rate), each rate of the law is raised to the
guarantee. A guarantee never lowers a rate, because a tenant chooses it.
"""

import collections
import dataclasses
import functools

from nova.scheduler import utils as scheduler_utils
import numpy as np

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.admission import resident_demand
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['Demand', 'Statements', 'attachments_of', 'attachments_of_instance',
           'demand_of', 'instance_uuid_of', 'is_rebuild_on', 'raised', 'read']

# Resource classes of ports with a QoS policy: columns of a rate.
_QOS_COLUMNS = {
    'NET_BW_EGR_KILOBIT_PER_SEC': 0,
    'NET_BW_IGR_KILOBIT_PER_SEC': 1,
    'NET_PACKET_RATE_KILOPACKET_PER_SEC': 2,
}

# Values of network_id in Nova that are not the id of a network.
_AUTO, _NO_NETWORK = 'auto', 'none'

_PRIOR = 'prior of '

#: Suffix of the rule of a demand that a guarantee raises.
_RAISED = ', raised to the QoS guarantee of its ports'

_NO_GUARANTEE = (0.0, 0.0, 0.0)

#: Maximum number of instances whose statements are stored.
_MOST_STATEMENTS = 100_000


@dataclasses.dataclass(frozen=True, eq=False)
class Demand:
    """The traffic that one instance is expected to send and receive.

    :ivar instance_uuid: string, or None if the request has no uuid
    :ivar law: RateLaw without the guarantee of the ports; :meth:`law_on` adds
        the guarantee
    :ivar rule: the rule that gave the law: 'model', 'flavor model', 'flavor',
        'prior of ' and the group, 'default', or 'unknown' if no rule applies;
        a guarantee that raises the law is added in words
    :ivar guaranteed: (egress_kbps, ingress_kbps, kpps) that the ports of the
        instance guarantee
    """

    instance_uuid: object
    law: rate_law.RateLaw
    rule: str
    guaranteed: tuple = _NO_GUARANTEE

    @property
    def same_on_all_hosts(self):
        """Whether the law of the instance is the same on every host."""
        return not self.is_prior and not any(self.guaranteed)

    def law_on(self, law, policy):
        """Return the RateLaw that the instance would have on a host.

        :param law: RateLaw of the demand; a prior has to be cut to what the
            switch of the host carries
        :param policy: HostPolicy of the host, or None
        :returns: RateLaw, raised to the guarantee of the ports
        """
        if not any(self.guaranteed):
            return law
        sizes = [] if policy is None else [
            switch.profile.typical_packet_bytes for switch in (
                policy, *(uplink.policy for uplink in policy.uplinks))
            if switch.profile is not None]
        return raised(law, self.guaranteed, min(
            sizes, default=vswitch_profile.DEFAULT_PACKET_BYTES))

    @property
    def is_prior(self):
        """Whether the law is a prior, which does not state a peak rate."""
        return self.rule.startswith(_PRIOR)

    @property
    def prior_of(self):
        """What the prior was learned from, as in :meth:`.Snapshot.prior`."""
        return self.rule.removeprefix(_PRIOR).removesuffix(_RAISED)


class Statements:
    """What requests state about instances and Nova's record does not show.

    These are the law by a prior or by a guarantee of ports, and the
    attachments.
    """

    def __init__(self):
        self._of = collections.OrderedDict()  # uuid -> (law, attachments)

    def add(self, instance_uuid, law, attachments):
        """Store what a request states. A value of None keeps the stored value.

        :param instance_uuid: uuid of the instance
        :param law: RateLaw, or None
        :param attachments: Attachments, or None
        :returns: bool, whether the stored statement changed
        """
        stored = self._of.pop(instance_uuid, (None, None))
        statement = (stored[0] if law is None else law,
                     stored[1] if attachments is None else attachments)
        self._of[instance_uuid] = statement
        if len(self._of) > _MOST_STATEMENTS:
            self._of.popitem(last=False)
        return statement != stored

    def law(self, instance_uuid):
        """Return the RateLaw that the requests of an instance state, or None.

        :param instance_uuid: uuid of the instance
        """
        return self._of.get(instance_uuid, (None, None))[0]

    def attachments(self, instance_uuid):
        """Return the Attachments that the requests state, or None.

        :param instance_uuid: uuid of the instance
        """
        return self._of.get(instance_uuid, (None, None))[1]


def instance_uuid_of(spec_obj):
    """Return the uuid of the instance that a request is for, or None.

    :param spec_obj: nova RequestSpec
    """
    return read(spec_obj, 'instance_uuid')


def is_rebuild_on(spec_obj, host_state, counted_on):
    """Return whether a request is for the rebuild of an instance on a host.

    A scheduler hint marks a rebuild. Before Nova 31.3.1, 32.2.1 and 33.0.2 a
    user with the role member can set this hint. Therefore the hint is only
    used for an instance that is on the host.

    :param spec_obj: nova RequestSpec
    :param host_state: nova HostState
    :param counted_on: set of the names of the hosts on which the instance
        counts
    """
    if not scheduler_utils.request_is_rebuild(spec_obj):
        return False
    uuid = instance_uuid_of(spec_obj)
    return uuid is not None and (uuid in host_state.instances
                                 or host_state.host in counted_on)


def demand_of(spec_obj, laws, priors, default_law, report):
    """Return the Demand of a request.

    :param spec_obj: nova RequestSpec
    :param laws: callable, instance uuid -> learned RateLaw or None
    :param priors: callable, (instance uuid, name of the flavor, id of the
        project) -> (RateLaw, what the prior was learned from), or None
    :param default_law: RateLaw of the configured default, or None if nothing
        is known about the other instances, in which case the default must not
        be used
    :param report: callable(topic, problem or None), receives invalid extra
        specs, which are ignored
    """
    uuid = instance_uuid_of(spec_obj)
    law, rule = _law_and_rule(spec_obj, uuid, laws, priors, default_law,
                              report)
    guaranteed = _guaranteed_rates(spec_obj)
    if any(guaranteed):
        return Demand(uuid, law, rule + _RAISED, guaranteed)
    return Demand(uuid, law, rule)


def _law_and_rule(spec_obj, uuid, laws, priors, default_law, report):
    learned = laws(uuid) if uuid else None
    if learned is not None:
        return learned, 'model'
    flavor = read(spec_obj, 'flavor')
    extra_specs = (read(flavor, 'extra_specs') if flavor is not None
                   else None) or {}
    prior = priors(uuid, flavor and read(flavor, 'name'),
                   read(spec_obj, 'project_id'))
    stated = _stated(flavor, extra_specs, laws, report)
    if resident_demand.takes_prior(prior and prior[1], stated is not None):
        return prior[0], _PRIOR + prior[1]
    if stated is not None:
        return stated
    if default_law is None:
        return flavor_specs.constant_law(), 'unknown'
    return default_law, 'default'


def _stated(flavor, extra_specs, laws, report):
    """Return (law, rule) that a flavor states, or None; report errors."""
    if flavor is None:
        return None
    stated, problem = flavor_specs.read(extra_specs, laws)
    report(f'flavor {read(flavor, "name")}', problem)
    return stated


@functools.lru_cache(maxsize=flavor_specs.MOST_LAWS)
def raised(law, guaranteed, packet_bytes):
    """Return a law without any rate below the guaranteed rates.

    :param law: RateLaw
    :param guaranteed: (egress_kbps, ingress_kbps, kpps), each >= 0
    :param packet_bytes: size of a packet in bytes; converts bit rates to
        packet rates if the law has no packet rate and the guarantee has one
    :returns: RateLaw
    """
    rates = np.array(law.rates)
    if guaranteed[2] and not law.packets_known:
        rates[:, 2] = (rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
    return rate_law.RateLaw.from_arrays(
        law.probabilities, np.maximum(rates, guaranteed), law.high,
        law.low_states)


def attachments_of(spec_obj, previous=None):
    """Return the Attachments of a request.

    Not every request names its networks: a user can boot with ports or with an
    automatically chosen network. Then the previous attachments of the instance
    apply, or else :data:`.UNKNOWN`.

    :param spec_obj: nova RequestSpec
    :param previous: Attachments that the instance had, or None
    :returns: Attachments
    """
    networks = _requested_networks(spec_obj)
    if networks is None and previous is not None:
        return previous
    pci = read(spec_obj, 'pci_requests')
    if pci is not None:
        functions = sum(
            read(item, 'count') or 0 for item in read(pci, 'requests') or ()
            if item.source == item.NEUTRON_PORT)
    else:
        functions = (previous or vswitch_attachments.UNKNOWN).virtual_functions
    if networks is None:
        return vswitch_attachments.Attachments((None,), (), functions)
    untunnelled = set(previous.others) if previous else set()
    metadata = read(spec_obj, 'network_metadata')
    if metadata is not None and not metadata.tunneled \
            and _AUTO not in networks:
        # Nova has looked up each of the networks.
        return vswitch_attachments.Attachments((), networks, functions)
    networks = [None if item == _AUTO else item for item in networks]
    return vswitch_attachments.Attachments(
        [item for item in networks if item not in untunnelled],
        [item for item in networks if item in untunnelled], functions)


def _requested_networks(spec_obj):
    """Return the network of each requested interface, or None.

    In the list, None stands for the network of a port, and _AUTO for an
    automatically chosen network.
    """
    requested = read(spec_obj, 'requested_networks')
    if not requested:
        return None
    networks = [read(network, 'network_id') for network in requested]
    if networks == [_NO_NETWORK]:
        return []
    return [network if network is not None or read(request, 'port_id')
            else _AUTO for network, request in zip(networks, requested)]


def attachments_of_instance(instance):
    """Return the Attachments of a nova Instance, or None if unknown.

    The function loads no field, because that could query a database and fail.

    :param instance: nova Instance, or None
    """
    cache = instance and read(instance, 'info_cache')
    interfaces = cache and read(cache, 'network_info')
    if not interfaces:
        return None
    networks, untunnelled, functions = [], [], 0
    for interface in interfaces:
        # The network of an incomplete entry is unknown.
        network = interface['network'] or {}
        # True or False as Neutron reports it; old instances have no such key.
        tunnelled = (network.get('meta') or {}).get('tunneled')
        (untunnelled if tunnelled is False else networks).append(
            network.get('id'))
        functions += (
            interface.get('vnic_type') in vswitch_attachments.VNIC_TYPES
        )
    return vswitch_attachments.Attachments(networks, untunnelled, functions)


def _guaranteed_rates(spec_obj):
    rates = list(_NO_GUARANTEE)
    for group in read(spec_obj, 'requested_resources') or ():
        for resource, amount in (read(group, 'resources') or {}).items():
            column = _QOS_COLUMNS.get(resource)
            if column is not None:
                rates[column] += amount
    return tuple(rates)


def read(obj, name):
    """Return a field of a versioned object without loading it, or None.

    :param obj: nova versioned object
    :param name: name of the field
    """
    if hasattr(obj, 'obj_attr_is_set') and not obj.obj_attr_is_set(name):
        return None
    return getattr(obj, name, None)
