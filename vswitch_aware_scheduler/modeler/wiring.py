# SPDX-License-Identifier: Apache-2.0
"""What the modeler and the commands build from the configuration.

Only this module of the modeler reads the configuration.
"""

from collections.abc import Callable
import dataclasses

from oslo_config import cfg

from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.admission import uplink_policies as uplinks
from vswitch_aware_scheduler.budgets import rebalance_settings
from vswitch_aware_scheduler.budgets import rebalancer as rebalancing
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.modeler import cloud_facts
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler import telemetry
from vswitch_aware_scheduler.telemetry import base as telemetry_base
from vswitch_aware_scheduler.telemetry import check
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['CONFIGURATION_ERRORS', 'Discovery', 'PATIENCE_SECONDS', 'SetUp',
           'any_host_is_described', 'configured_driver', 'has_telemetry',
           'in_words', 'instances_of_nova', 'learning_settings', 'make_driver',
           'make_policies', 'make_rebalancer', 'make_store',
           'neutron_access', 'read_fleet', 'review_aggregates', 'set_up',
           'unprotected', 'why_no_instance']

LOG = logs.get_logger(__name__)

_DAY_SECONDS = 86400.0

#: What reading an invalid configuration raises, besides VSwitchError.
CONFIGURATION_ERRORS = (cfg.Error, ValueError, OSError)


def in_words(error: Exception) -> str:
    """Return an error as one line."""
    text = ' '.join(str(error).split())
    if isinstance(error, exceptions.VSwitchError):
        return text
    return f'unexpected {type(error).__name__}: {text}'


@dataclasses.dataclass(frozen=True)
class SetUp:
    """The objects that a configuration specifies.

    :ivar store_url: SQLAlchemy URL for :func:`make_store`, or None
    :ivar interval_seconds: seconds from the start of a pass to the start of
        the next
    :ivar metrics_at: (address, port) at which to serve metrics, or None
    :ivar complete_seconds: seconds after which all of the inventory is read
        again
    :ivar ports_seconds: seconds after which all ports are read again
    :ivar member_seconds: time for which an instance has to be measured to
        count in priors
    :ivar unprotected: why every instance in telemetry counts, or None
    """

    store: model_store.Store
    driver: telemetry_base.Driver | None
    settings: learning.LearningSettings
    interval_seconds: float
    group: membership.ModelerGroup | None = None
    metrics_at: tuple | None = None
    inventory: object = None
    complete_seconds: float = _DAY_SECONDS
    ports_seconds: float = 0.0
    member_seconds: float = priors.MEMBER_SECONDS
    fleet: object = None
    budgets: bool = False
    discovery: object = None
    rebalancer: rebalancing.Rebalancer | None = None
    predict: object = None
    missing: str | None = None
    unprotected: str | None = None
    store_url: str | None = dataclasses.field(default=None, repr=False)

    @property
    def source(self) -> str:
        """The source of the samples, for messages."""
        return 'no telemetry' if self.driver is None else self.driver.source


#: Seconds that a service waits for other writers before it repeats its pass.
PATIENCE_SECONDS = 120


def set_up(conf: cfg.ConfigOpts,
           patience_seconds: float | None = None) -> SetUp:
    """Return the :class:`SetUp` of a configuration. Opens nothing.

    :raises oslo_config.cfg.Error: if an option has an invalid value
    :raises ValueError: if telemetry is not configured, and a name in the
        configuration is not an option
    :raises VSwitchError: if the driver does not exist, or another option is
        invalid
    """
    group = conf[options.GROUP]
    options.read_all(conf)
    missing = None
    try:
        driver = configured_driver(conf)
    except exceptions.TelemetryNotConfigured as error:
        # Not set, or set with a name that is not an option.
        options.refuse_unknown(conf)
        driver, missing = None, in_words(error)
    store = model_store.Store(group.store_url, group.store_timeout_seconds,
                              patience_seconds)
    source = _inventory_source(conf)
    return SetUp(
        store, driver,
        learning_settings(group, source is not None
                          and group.telemetry_driver != 'file'),
        group.modeler_interval_seconds,
        membership.ModelerGroup(group.modeler_coordination_url)
        if group.modeler_coordination_url else None,
        (group.modeler_metrics_address, group.modeler_metrics_port)
        if group.modeler_metrics_port else None,
        inventory=source,
        ports_seconds=conf[options.INVENTORY_GROUP].ports_seconds,
        fleet=_fleet(conf),
        budgets=group.error_budgets,
        discovery=_discovery(conf), rebalancer=(
            None if group.rebalance_mode == rebalance_settings.OFF
            else make_rebalancer(conf)), missing=missing,
        predict=lambda store, progress=None: read_fleet(
            store, group).overload_probabilities(progress),
        unprotected=unprotected(conf),
        store_url=group.store_url)


def learning_settings(group: cfg.ConfigOpts.GroupAttr, only_of_inventory: bool
                      ) -> learning.LearningSettings:
    """Return the settings of learning that options select.

    :param group: the options of [vswitch_scheduler]
    :param only_of_inventory: as in :class:`.LearningSettings`
    """
    return learning.LearningSettings(
        source=group.telemetry_driver, min_samples=group.min_samples,
        half_life_seconds=group.modeler_half_life_days * _DAY_SECONDS or None,
        forget_seconds=group.modeler_forget_days * _DAY_SECONDS or None,
        clock_seconds=group.modeler_clock_seconds or None,
        only_of_inventory=only_of_inventory,
        default_kbps=_default_kbps(group))


def _default_kbps(group):
    """Return the mean bandwidth of an instance with the default demand."""
    if group.unknown_instance_policy != 'default':
        return 0.0
    return float(model.TrafficModel.on_off(
        **options.default_demand(group)).mean[:2].sum())


def has_telemetry(conf: cfg.ConfigOpts) -> bool:
    """Return whether the options name a source of telemetry."""
    name = conf[options.GROUP].telemetry_driver
    if name not in options.TELEMETRY_GROUPS:
        return True
    access = options.telemetry_options(conf, name)['access']
    return access['url'] is not None or access['auth'] is not None


def unprotected(conf: cfg.ConfigOpts) -> str | None:
    """Return why every instance in telemetry counts, or None."""
    if conf[options.GROUP].telemetry_driver == 'file' \
            or options.inventory_options(conf) is not None \
            or not has_telemetry(conf):
        return None
    return (f'every instance that telemetry reports counts, in priors as '
            f'well, as there is no inventory of Nova to compare it with; set '
            f'auth_type and its options in the group '
            f'[{options.INVENTORY_GROUP}]')


def configured_driver(conf: cfg.ConfigOpts) -> telemetry_base.Driver:
    """Return the telemetry driver that options select.

    :raises TelemetryNotConfigured: if no option names the source of the data
    """
    group = conf[options.GROUP]
    name = group.telemetry_driver
    arguments = {}
    if name in options.TELEMETRY_GROUPS:
        return make_driver(conf, name)
    if group.telemetry_path is not None:
        arguments = {'path': group.telemetry_path}
    elif name == 'file':
        raise exceptions.TelemetryNotConfigured(
            'telemetry_driver is file, and telemetry_path is not set; set '
            'the path of a file or a folder')
    return telemetry.load_driver(name, **arguments)


def make_driver(conf: cfg.ConfigOpts, name: str) -> telemetry_base.Driver:
    """Return the telemetry driver that reads from a service.

    :raises TelemetryNotConfigured: if no option names the service
    """
    arguments = options.telemetry_options(conf, name)
    if arguments['access']['url'] is None \
            and arguments['access']['auth'] is None:
        raise exceptions.TelemetryNotConfigured(
            f'telemetry_driver is {name}, and neither endpoint_override nor '
            f'auth_type is set in the group '
            f'[{options.TELEMETRY_GROUPS[name][0]}]; set the URL of the '
            f'service, or auth_type to look the service up in the catalog of '
            f'keystone')
    return telemetry.load_driver(name, **arguments)


def instances_of_nova(
        target: model_store.Store
) -> dict[str, str | None] | None:
    """Return {uuid: host} of the instances of Nova, None if not known."""
    try:
        if target.inventory() is None:
            return None
        return {uuid: placement.host for uuid, placement
                in target.placements().items()}
    except exceptions.StoreError:
        return None


def why_no_instance(set_up: SetUp, clock: Callable[[], float]) -> list[str]:
    """Return lines that say why telemetry has no instance, problems first.

    There are none if Nova has no instance either.
    """
    try:
        findings = check.examine(set_up.driver, clock(),
                                 instances_of_nova(set_up.store))
    except exceptions.TelemetryError as error:
        return [str(error)]
    return findings.lines() if findings.problems else []


def make_store(set_up: SetUp) -> None:
    """Create the store if it is an SQLite file that does not exist yet.

    :raises StoreError: if the file cannot be read or created
    """
    if set_up.store_url is not None \
            and migration.is_new_file(set_up.store_url):
        migration.sync(set_up.store_url)
        LOG.info('Created a new store: %s', set_up.store.url)


def _inventory_source(conf):
    """Return the source of the inventory that options select, or None."""
    arguments = options.inventory_options(conf)
    return arguments and instance_sync.make_source(**arguments)


def _ignore(topic, problem):
    """Ignore a problem: the scheduler reports problems of hosts."""


def make_policies(
        group: cfg.ConfigOpts.GroupAttr, report: Callable = _ignore
) -> tuple[host_policies.HostPolicies, uplinks.UplinkPolicies]:
    """Return (HostPolicies, UplinkPolicies) of the options.

    :param report: callable(topic, problem or None), receives invalid values
    :raises VSwitchError: if a profile or another option is invalid
    """
    profiles = switch_profile.profiles(group.switch_profiles_file)
    default = group.default_switch_profile or None
    if default is not None:
        switch_profile.named(default, profiles)
    return host_policies.HostPolicies(
        profiles, default, group.admission_policy,
        group.overload_probability, group.unknown_host_policy == 'pass',
        report, group.enforcement, group.prediction_margin
    ), uplinks.UplinkPolicies(
        profiles, group.admission_policy, group.overload_probability, report,
        group.prediction_margin)


def read_fleet(store: model_store.Store,
               group: cfg.ConfigOpts.GroupAttr) -> view.FleetView:
    """Return the hosts of a store, as the filter judges them."""
    return view.FleetView(
        store, model.TrafficModel.on_off(**options.default_demand(group)).law,
        group.error_budgets, group.unknown_instance_policy == 'ignore',
        lambda: make_policies(group))


def _fleet(conf):
    """Return the :class:`.CloudFacts` that options select."""
    group = conf[options.GROUP]
    return cloud_facts.CloudFacts(_nova_access(conf), lambda: make_policies(
        group), options.alike(group))


def _credentials(conf, process=None):
    """Return the options of the inventory, or None without credentials.

    :raises InvalidInput: if credentials are necessary and there are none
    """
    arguments = options.inventory_options(conf)
    if arguments is not None and arguments['access']['auth'] is not None:
        return arguments
    if process is not None:
        raise exceptions.InvalidInput(
            f'auth_type in the group [{options.INVENTORY_GROUP}]: not set; '
            f'expected auth_type and the options of its plugin, with which '
            f'{process}')
    return None


def _nova_access(conf):
    """Return the Access to Nova, or None without credentials."""
    arguments = _credentials(conf)
    return arguments and http.Access(**arguments['access'])


def neutron_access(conf: cfg.ConfigOpts, process: str) -> http.Access:
    """Return the Access to Neutron, with the credentials of the inventory.

    :param process: what the credentials are for, for the message
    :raises InvalidInput: if there are no credentials
    """
    arguments = _credentials(conf, process)
    return http.Access(
        **{**arguments['access'], 'url': arguments['network_url']})


@dataclasses.dataclass(frozen=True)
class Discovery:
    """The parameters for the discovery of host profiles."""

    neutron: http.Access
    profiles: object
    mapping: list


def _discovery(conf):
    """Return the :class:`Discovery` that options select, or None.

    :raises VSwitchError: if an option is invalid
    """
    group = conf[options.INVENTORY_GROUP]
    if not group.discover_hosts:
        return None
    neutron = neutron_access(conf, 'discover_hosts queries Neutron')

    def profiles():
        return switch_profile.profiles(
            conf[options.GROUP].switch_profiles_file)

    mapping = group.discover_profiles or []
    discovery.parse_mapping(mapping, profiles())
    return Discovery(neutron, profiles, mapping)


def review_aggregates(conf: cfg.ConfigOpts) -> list[str] | None:
    """Return the invalid values in the metadata of Nova's aggregates.

    :raises TelemetryError: if Nova does not answer
    :raises VSwitchError: if a profile or another option is invalid
    """
    access = _nova_access(conf)
    if access is None:
        return None
    group = conf[options.GROUP]
    problems = {}
    policies = make_policies(group, problems.__setitem__)
    aggregates = [aggregate for aggregate
                  in nova.read_aggregates(access).values()
                  if aggregate['hosts']]
    problems.update(policy_in_force.find(
        sorted({host for aggregate in aggregates
                for host in aggregate['hosts']}),
        aggregates, {}, *policies).problems)
    return sorted({problem for problem in problems.values() if problem})


def any_host_is_described(conf: cfg.ConfigOpts,
                          store: model_store.Store) -> bool | None:
    """Return whether any host has a profile or is behind an uplink.

    Aggregates are read from Nova if credentials are configured and nothing
    else describes a host.

    :returns: bool, or None if only aggregates may describe a host and cannot
        be read without credentials
    :raises TelemetryError: if Nova does not answer
    :raises VSwitchError: if the store cannot be read, or if a profile or
        another option is invalid
    """
    group = conf[options.GROUP]
    policies = make_policies(group)

    def any_has_profile(aggregates):
        return any(policy.profile is not None for policy in facts.policies(
            store, *policies, aggregates, placed_on=set()).hosts.values())

    if group.default_switch_profile or any_has_profile({}):
        return True
    access = _nova_access(conf)
    if access is None:
        return None
    aggregates = nova.read_aggregates(access)
    return any_has_profile(aggregates) or any(
        uplinks.is_in(aggregate['metadata'])
        for aggregate in aggregates.values() if aggregate['hosts'])


def make_rebalancer(conf: cfg.ConfigOpts) -> rebalancing.Rebalancer:
    """Return the :class:`.Rebalancer` that options select.

    :raises InvalidInput: if no credentials for Nova and Placement are
        configured
    """
    group = conf[options.GROUP]
    access = _credentials(
        conf, 'rebalancing queries Nova and Placement')['access']
    return rebalancing.Rebalancer(
        nova.CloudApi(http.Access(**access), http.Access(**{
            **access,
            'url': conf[options.INVENTORY_GROUP].placement_url})),
        rebalance_settings.RebalanceSettings(**{
            field.name: group[f'rebalance_{field.name}']
            for field in dataclasses.fields(
                rebalance_settings.RebalanceSettings)
            if f'rebalance_{field.name}' in group}),
        lambda store: read_fleet(store, group))
