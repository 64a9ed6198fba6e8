# SPDX-License-Identifier: Apache-2.0
"""A cloud as its operator reaches it, and the survey of the cloud.

Credentials are found as the openstack client finds them. The services are
only read, at the pace of :class:`.http.Access`.
"""

import collections
from collections.abc import Callable
import contextlib
import dataclasses
import hashlib
import math
import urllib.parse

from keystoneauth1 import exceptions as ks_exceptions
import numpy as np

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import neutron
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler.clients import placement
from vswitch_aware_scheduler.cmd.survey import record as records
from vswitch_aware_scheduler.cmd.survey import replay
from vswitch_aware_scheduler.cmd.survey import verdict
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import view as fleet_view
from vswitch_aware_scheduler.modeler import cloud_facts
from vswitch_aware_scheduler.modeler import host_discovery
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler import telemetry
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.telemetry import check
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['Cloud', 'MOST_DAYS', 'NO_ANSWER', 'NO_CREDENTIALS', 'NO_RIGHTS',
           'NO_TELEMETRY', 'Rules', 'Surveyed', 'find', 'survey',
           'telemetry_of']

#: Exit statuses: the cloud does not answer, it refuses the credentials, they
#: do not suffice, there is no telemetry.
NO_ANSWER, NO_CREDENTIALS, NO_RIGHTS, NO_TELEMETRY = 3, 4, 5, 6

#: The store keeps measured sums for as long.
MOST_DAYS = float(model_store.KEPT_DAYS)

_DAY_SECONDS = 86400.0

#: Sampling periods of telemetry in seconds, the first usable one is used.
_PERIODS = 300.0, 600.0, 900.0, 1800.0, 3600.0, 60.0

#: Begins the reason of a driver for ignoring the resources of a creator.
_CREATOR = 'creator: '

#: Shares of the progress when Nova was read, and when the days were played.
_READ, _PLAYED = 0.05, 0.95


@dataclasses.dataclass(frozen=True)
class Cloud:
    """The services of a cloud.

    :ivar name: name of the cloud in clouds.yaml, or URL of keystone
    :ivar access: :class:`.Access` of all services
    :ivar urls: {service type: URL that the configuration states, or None}
    """

    name: str
    access: http.Access
    urls: dict

    def of(self, kind: str) -> http.Access:
        """Return the Access of a type of service."""
        return dataclasses.replace(self.access, url=self.urls.get(kind))


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the plugin would be configured with.

    :ivar settings: :class:`.learning.LearningSettings`
    :ivar make_policies: callable(), returns (HostPolicies, UplinkPolicies)
    :ivar read_fleet: callable(store), returns a FleetView
    :ivar options: {option: value}
    """

    settings: learning.LearningSettings
    make_policies: Callable
    read_fleet: Callable
    options: dict


@dataclasses.dataclass(frozen=True)
class Surveyed:
    """The result of a survey.

    :ivar answer: plain data
    """

    answer: dict
    view: fleet_view.FleetView
    record: records.Record


def find(name: str | None = None, region: str | None = None) -> Cloud:
    """Return the cloud of clouds.yaml and of the variables OS_*.

    :param name: name in clouds.yaml; None: OS_CLOUD, or only OS_*
    :raises SurveyError: if no cloud or no usable credentials are configured
    """
    from openstack import config
    from openstack import exceptions as sdk_exceptions
    try:
        found = config.OpenStackConfig().get_one(
            cloud=name, **({'region_name': region} if region else {}))
    except (sdk_exceptions.SDKException, ks_exceptions.ClientException,
            OSError) as error:
        raise exceptions.SurveyError(
            f'credentials of the cloud: {http.shown(str(error))}; expected '
            f'those of the openstack client: set OS_CLOUD, the variables '
            f'OS_*, or --os-cloud', NO_CREDENTIALS) from error
    verify, certificate = found.get_requests_verify_args()
    if verify is False:
        raise exceptions.SurveyError(
            'verify (OS_INSECURE): false; expected verified certificates: '
            'set cacert (OS_CACERT) to the file of the CA', NO_CREDENTIALS)
    certfile, keyfile = certificate if isinstance(certificate, tuple) \
        else (certificate, None)
    auth = dict(found.config['auth'])
    return Cloud(
        auth.get('auth_url', '') if found.name in (None, 'envvars', 'defaults')
        else found.name, http.Access(
            auth={'auth_type': found.config['auth_type'], **auth},
            interface=found.get_interface() or 'public',
            region_name=found.get_region_name() or None,
            cafile=verify if isinstance(verify, str) else None,
            certfile=certfile, keyfile=keyfile, retries=2), {
                kind: found.get_endpoint(kind)
                for kind in ('compute', 'placement', 'network', 'metric')})


def telemetry_of(cloud: Cloud, prometheus: str | None, days: float,
                 **more) -> base.Driver:
    """Return the telemetry driver for some days.

    :param prometheus: URL, with a user and a password if necessary; None:
        Gnocchi of the catalog
    :param more: further arguments of the driver
    """
    arguments = {'max_age_seconds': days * _DAY_SECONDS + 3600.0, **more}
    if prometheus is None:
        return telemetry.load_driver('gnocchi', access=cloud.of('metric'),
                                     **arguments)
    parts = urllib.parse.urlsplit(prometheus)
    access = {'url': prometheus, 'retries': 2}
    if parts.username is not None:
        access['url'] = parts._replace(
            netloc=parts.netloc.rpartition('@')[2]).geturl()
        access['auth'] = {
            'auth_type': 'http_basic', 'endpoint': access['url'],
            'username': urllib.parse.unquote(parts.username),
            'password': urllib.parse.unquote(parts.password or '')}
    return telemetry.load_driver('prometheus', access=access, exporter=None,
                                 **arguments)


def survey(cloud: Cloud, make_driver: Callable, store: model_store.Store,
           rules: Rules, now: float, days: float, most_hosts: int,
           progress: Callable | None = None) -> Surveyed:
    """Read the cloud, play its last days, and return the result.

    :param make_driver: callable(period_seconds=, **more), returns a driver
    :param store: an empty one, which is written
    :param now: seconds UTC
    :param most_hosts: number of hosts that are surveyed, chosen at random but
        the same each time; 0: all
    :param progress: callable(done, total)
    :raises SurveyError: if the cloud cannot be surveyed
    :raises StoreError: if the store cannot be written
    """
    def tell(share):
        if progress is not None:
            progress(round(1000 * share), 1000)

    begin = now - days * _DAY_SECONDS
    with _reported(cloud):
        nodes = _nodes(cloud)
        hosts = _chosen({host for host, is_metal in nodes.values()
                         if not is_metal}, most_hosts)
        record = records.read(
            cloud.of('compute'), begin, hosts,
            lambda number: tell(_READ * (1 - math.exp(-number / 2e4))))
    remarks = list(record.problems)
    if record.unanswered:
        remarks.append(f'{record.unanswered} instances are in a cell that '
                       f'does not answer: they are not counted')
    _discover(cloud, store, hosts, remarks)
    with _reported(cloud):
        cloud_facts.CloudFacts(cloud.of('compute'), rules.make_policies,
                               rules.options, hosts).update(store, begin)
    resources = _resources(cloud, nodes, hosts, remarks)
    driver = _telemetry(make_driver, now, record, remarks)
    try:
        decisions, sums = replay.play(
            store, driver, record,
            np.linspace(begin, now, replay.PASSES + 1), rules.settings,
            rules.read_fleet, _capacities(resources, record),
            lambda done, total: tell(
                _READ + (_PLAYED - _READ) * done / total))
    except exceptions.TelemetryError as error:
        raise exceptions.SurveyError(str(error), NO_TELEMETRY) from error
    view = rules.read_fleet(store)
    answer = verdict.verdict(
        view, record, decisions, {
            host: replay.overload_share(
                sums.get(host), policy.overload_probability, begin, now)
            for host, policy in view.policies.items()}, resources,
        _project_names(cloud),
        lambda done, total: tell(_PLAYED + (1 - _PLAYED) * done / total))
    tell(1.0)
    return Surveyed({
        'cloud': cloud.name, 'telemetry': driver.source,
        'exporter': driver.variant, 'since_at': begin, 'surveyed_at': now,
        'hosts_of_cloud': len(nodes), 'remarks': remarks, 'parameters': {
            **rules.options, 'days': days,
            'period_seconds': driver.period_seconds,
            'passes': replay.PASSES,
            'passes_before_decisions': replay.WARM_PASSES,
            'seconds_afterwards': replay.AFTER_SECONDS},
        'verdict': verdict.sentences(answer), **answer}, view, record)


@contextlib.contextmanager
def _reported(cloud):
    """Raise SurveyError with its status for what OpenStack answers."""
    try:
        yield
    except http.Refusal as refusal:
        if refusal.status not in (401, 403):
            raise exceptions.SurveyError(str(refusal), NO_ANSWER) from refusal
        raise exceptions.SurveyError(
            f'cloud {cloud.name}: Nova does not let this user read the '
            f'hosts and the instances of all projects; expected the '
            f'credentials of an administrator, or of a reader of all '
            f'projects', NO_RIGHTS) from refusal
    except exceptions.TelemetryError as error:
        cause = error.__cause__
        if isinstance(cause, (ks_exceptions.Unauthorized,
                              ks_exceptions.Forbidden)):
            raise exceptions.SurveyError(
                f'cloud {cloud.name}: keystone refuses the credentials '
                f'({type(cause).__name__}); expected a valid user, password '
                f'and project', NO_CREDENTIALS) from error
        raise exceptions.SurveyError(
            f'cloud {cloud.name} does not answer: '
            f'{http.shown(str(cause or error))}; expected its services at '
            f'auth_url (OS_AUTH_URL) and in the catalog', NO_ANSWER
        ) from error


def _nodes(cloud):
    """Return {uuid: (host, whether bare metal)}; the credentials are valid."""
    access = cloud.of('compute')
    with http.Client(access, f'keystone of {cloud.name}',
                     'identity') as client:
        client.attempt('credentials', 'a token', client.session.get_token)
    with nova.NovaClient(access) as client:
        return client.nodes()


def _chosen(hosts, most):
    """Return at most some of the hosts, random but the same each time."""
    return set(sorted(hosts, key=lambda host: hashlib.sha256(
        host.encode()).digest())[:most or None])


def _discover(cloud, store, hosts, remarks):
    """Write the profiles of hosts that Neutron's agents imply."""
    try:
        agents = neutron.read_agents(cloud.of('network'))
    except exceptions.TelemetryError as error:
        remarks.append(f'the switches of hosts are not known from Neutron: '
                       f'{error}')
        return
    host_discovery.apply(store, discovery.propose(
        [agent for agent in agents if agent['host'] in hosts],
        switch_profile.profiles(None)))


def _resources(cloud, nodes, hosts, remarks):
    """Return {host: ((VCPU capacity, used) or None, the same of memory)}."""
    try:
        amounts = [placement.used_amounts(cloud.of('placement'), name)
                   for name in placement.CLASSES[:2]]
    except exceptions.TelemetryError as error:
        remarks.append(f'cores and memory of hosts are not known: {error}')
        return {}
    return {host: tuple(of_class.get(uuid) for of_class in amounts)
            for uuid, (host, _) in nodes.items() if host in hosts}


def _capacities(resources, record):
    """Return {host: [VCPU, MEMORY_MB]}, the present use if nothing is free."""
    used = collections.defaultdict(lambda: [0, 0])
    for instance in record.instances.values():
        used[instance.host][0] += instance.vcpus
        used[instance.host][1] += instance.memory_mib
    return {host: [in_use if amounts is None else amounts[0]
                   for in_use, amounts in zip(used[host], of_host)]
            for host, of_host in resources.items()}


def _telemetry(make_driver, now, record, remarks):
    """Return a driver that has samples of instances of Nova.

    :raises SurveyError: if there is none
    """
    in_nova = {uuid: instance.host
               for uuid, instance in record.instances.items() if instance.host}
    problem, more = None, {}
    for period_seconds in _PERIODS:
        try:
            driver = make_driver(period_seconds=period_seconds, **more)
            found = check.examine(driver, now, in_nova)
            creators = {
                reason.removeprefix(_CREATOR): number for reason, number
                in found.ignored.items() if reason.startswith(_CREATOR)}
            if not found.in_nova and creators:
                # Who publishes most in Gnocchi is Ceilometer.
                more['trusted_creators'] = [max(creators, key=creators.get)]
                driver = make_driver(period_seconds=period_seconds, **more)
                found = check.examine(driver, now, in_nova)
        except exceptions.TelemetryError as error:
            problem = problem or str(error)
            if error.__cause__ is not None:
                break
            # Gnocchi has no points of this period.
            continue
        update = found.facts.get('update_seconds') or 0.0
        if update <= 1.01 * period_seconds and any(
                example.samples for example in found.examples):
            remarks += found.problems
            return driver
        problem = problem or '. '.join(found.problems)
        if not found.in_nova:
            break
    raise exceptions.SurveyError(
        problem or 'telemetry: Nova has no instance that could be measured',
        NO_TELEMETRY)


def _project_names(cloud):
    """Return {id: name} of projects; empty if this user may not list them."""
    try:
        with openstack.SdkClient(
                dataclasses.replace(cloud.access, url=None),
                f'keystone of {cloud.name}', 'identity') as client:
            return client.json(
                'projects', 'GET', '/projects', 'a list of projects',
                lambda answer: {project['id']: project['name']
                                for project in answer['projects']})[0]
    except exceptions.TelemetryError:
        return {}
