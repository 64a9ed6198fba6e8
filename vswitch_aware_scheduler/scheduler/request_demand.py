# SPDX-License-Identifier: Apache-2.0
"""What an instance will demand of a switch, from its RequestSpec.

The first of these that exists: the learned model of that very instance; what
the operator set on the flavor (``vswitch:*`` extra specs); the learned prior
of such instances; the configured default. What the ports of the instance
guarantee (QoS minimum bandwidth and packet rate) raises each of these and
lowers none: a tenant chooses the guarantee.
"""

import collections
import dataclasses
import functools

from nova.scheduler import utils as scheduler_utils
import numpy as np

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['Demand', 'Statements', 'attachments_of', 'attachments_of_instance',
           'demand_of', 'instance_uuid_of', 'is_rebuild_on', 'raised', 'read']

# Amounts that ports with a QoS policy guarantee, as columns of a rate.
_QOS_COLUMNS = {
    'NET_BW_EGR_KILOBIT_PER_SEC': 0,
    'NET_BW_IGR_KILOBIT_PER_SEC': 1,
    'NET_PACKET_RATE_KILOPACKET_PER_SEC': 2,
}

# What Nova has for networks that have no id.
_AUTO, _NO_NETWORK = 'auto', 'none'

_PRIOR = 'prior of '

#: What is added to the rule of a demand that a guarantee raises.
_RAISED = ', raised to the QoS guarantee of its ports'

_NO_GUARANTEE = (0.0, 0.0, 0.0)

#: Instances whose requests are remembered.
_MOST_STATEMENTS = 100_000


@dataclasses.dataclass(frozen=True, eq=False)
class Demand:
    """What one instance is taken to ask for.

    :ivar instance_uuid: string, or None in a request that has none
    :ivar law: RateLaw without the guarantee of the ports; :meth:`law_on` is
        the one to judge by
    :ivar rule: which rule gave it: 'model', 'flavor model', 'flavor',
        'prior of ' and the group, 'default', or 'unknown' when there is
        nothing to go by; a guarantee is added in words
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
        """Return the RateLaw to judge a host by.

        :param law: RateLaw of the demand, a prior cut to what the host
            carries
        :param policy: HostPolicy of the host, or None
        """
        if not any(self.guaranteed):
            return law
        sizes = [] if policy is None else [
            one.profile.typical_packet_bytes for one in (
                policy, *(uplink.policy for uplink in policy.uplinks))
            if one.profile is not None]
        return raised(law, self.guaranteed, min(
            sizes, default=vswitch_profile.DEFAULT_PACKET_BYTES))

    @property
    def is_prior(self):
        """Whether it is a law of others, which tells of no peak of this."""
        return self.rule.startswith(_PRIOR)

    @property
    def prior_of(self):
        """What the prior is of, as :meth:`.Snapshot.prior` has it."""
        return self.rule.removeprefix(_PRIOR).removesuffix(_RAISED)


class Statements:
    """What requests said of instances that Nova's record does not have.

    That is the law by a prior or a guarantee of ports, and the attachments.
    """

    def __init__(self):
        self._of = collections.OrderedDict()  # uuid -> (law, attachments)

    def add(self, instance_uuid, law, attachments):
        """Remember what a request says; what is None stays as it was.

        :param law: RateLaw, or None
        :param attachments: Attachments, or None
        :returns: whether that is something new
        """
        before = self._of.pop(instance_uuid, (None, None))
        said = (before[0] if law is None else law,
                before[1] if attachments is None else attachments)
        self._of[instance_uuid] = said
        if len(self._of) > _MOST_STATEMENTS:
            self._of.popitem(last=False)
        return said != before

    def law(self, instance_uuid):
        """Return the RateLaw of an instance by its requests, or None."""
        return self._of.get(instance_uuid, (None, None))[0]

    def attachments(self, instance_uuid):
        """Return the Attachments by its requests, or None."""
        return self._of.get(instance_uuid, (None, None))[1]


def instance_uuid_of(spec_obj):
    """Return the uuid of the instance that a request is for, or None."""
    return read(spec_obj, 'instance_uuid')


def is_rebuild_on(spec_obj, host_state, counted_on):
    """Return whether a request is for the rebuild of an instance on a host.

    The mark of a rebuild is a scheduler hint, which a member can set on Nova
    before 31.3.1, 32.2.1 and 33.0.2. So it counts only for an instance that
    is on the host.

    :param spec_obj: nova RequestSpec
    :param host_state: nova HostState
    :param counted_on: set of the hosts that the instance counts on
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
        project) -> (RateLaw, what it is a prior of), or None
    :param default_law: RateLaw of the configured default, or None when it
        may not be used (nothing at all is known of the other instances)
    :param report: callable(topic, problem or None) told of unusable extra
        specs, which count as absent
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
    if any(key.startswith('vswitch:') for key in extra_specs):
        topic = 'flavor ' + str(read(flavor, 'name'))
        try:
            found = flavor_specs.law_of(extra_specs, laws)
            report(topic, None)
        except exceptions.InvalidInput as error:
            found = None
            report(topic, f'{error}: its vswitch: extra specs are ignored')
        if found is not None:
            return found
    expected = priors(uuid, flavor and read(flavor, 'name'),
                      read(spec_obj, 'project_id'))
    if expected is not None:
        return expected[0], _PRIOR + expected[1]
    if default_law is None:
        return flavor_specs.constant_law(), 'unknown'
    return default_law, 'default'


@functools.lru_cache(maxsize=flavor_specs.MOST_LAWS)
def raised(law, guaranteed, packet_bytes):
    """Return a law of which no rate is below what is guaranteed.

    :param law: RateLaw
    :param guaranteed: (egress_kbps, ingress_kbps, kpps), each >= 0
    :param packet_bytes: size in bytes that packets of the law are taken to
        have where the law does not know their rate and one is guaranteed
    """
    rates = np.array(law.rates)
    if guaranteed[2] and not law.packets_known:
        rates[:, 2] = (rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
    return rate_law.RateLaw.from_arrays(
        law.probabilities, np.maximum(rates, guaranteed), law.high,
        law.low_states)


def attachments_of(spec_obj, known=None):
    """Return the Attachments of a request.

    What it does not say is taken from what is known of the instance, and
    else as :data:`.UNKNOWN`: who boots with ports, or on whatever
    network there is, does not tell the scheduler which network that is.

    :param spec_obj: nova RequestSpec
    :param known: Attachments that the instance had, or None
    """
    networks = _requested_networks(spec_obj)
    if networks is None and known is not None:
        return known
    pci = read(spec_obj, 'pci_requests')
    if pci is not None:
        functions = sum(
            read(one, 'count') or 0 for one in read(pci, 'requests') or ()
            if one.source == one.NEUTRON_PORT)
    else:
        functions = (known or vswitch_attachments.UNKNOWN).virtual_functions
    if networks is None:
        return vswitch_attachments.Attachments((None,), (), functions)
    others = set(known.others) if known else set()
    metadata = read(spec_obj, 'network_metadata')
    if metadata is not None and not metadata.tunneled \
            and _AUTO not in networks:
        # Nova has looked each of them up.
        return vswitch_attachments.Attachments((), networks, functions)
    networks = [None if one == _AUTO else one for one in networks]
    return vswitch_attachments.Attachments(
        [one for one in networks if one not in others],
        [one for one in networks if one in others], functions)


def _requested_networks(spec_obj):
    """Return the network of each interface asked for, or None.

    None among them: of a port; _AUTO: of whatever network there is.
    """
    requested = read(spec_obj, 'requested_networks')
    if not requested:
        return None
    networks = [read(one, 'network_id') for one in requested]
    if networks == [_NO_NETWORK]:
        return []
    return [one if one is not None or read(request, 'port_id') else _AUTO
            for one, request in zip(networks, requested)]


def attachments_of_instance(instance):
    """Return the Attachments that a nova Instance carries, or None.

    Nothing is loaded: that could ask a database, and fail.
    """
    cache = instance and read(instance, 'info_cache')
    interfaces = cache and read(cache, 'network_info')
    if not interfaces:
        return None
    networks, others, functions = [], [], 0
    for interface in interfaces:
        network = interface['network']
        # True or False as Neutron had it; instances of old do not tell.
        tunnelled = (network.get('meta') or {}).get('tunneled')
        (others if tunnelled is False else networks).append(network['id'])
        functions += (
            interface.get('vnic_type') in vswitch_attachments.VNIC_TYPES
        )
    return vswitch_attachments.Attachments(networks, others, functions)


def _guaranteed_rates(spec_obj):
    rates = list(_NO_GUARANTEE)
    for group in read(spec_obj, 'requested_resources') or ():
        for resource, amount in (read(group, 'resources') or {}).items():
            column = _QOS_COLUMNS.get(resource)
            if column is not None:
                rates[column] += amount
    return tuple(rates)


def read(obj, name):
    """Return a field of a versioned object without loading it, or None."""
    if hasattr(obj, 'obj_attr_is_set') and not obj.obj_attr_is_set(name):
        return None
    return getattr(obj, name, None)
