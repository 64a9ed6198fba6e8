# SPDX-License-Identifier: Apache-2.0
"""The process of the modeler: passes, signals, failures, health.

Only :func:`set_up` reads the configuration. :mod:`.learning` implements a
pass.

The service notifies systemd with datagrams of the sd_notify protocol, which
only needs a socket. The package sdnotify has had no release for years, and
oslo.service would add its complete worker framework.
"""

import contextlib
import dataclasses
import functools
import os
import signal
import socket
import time

from oslo_config import cfg
from oslo_log import log as logging

from vswitch_aware_scheduler.admission import host_policies as policies
from vswitch_aware_scheduler.admission import uplink_policies as uplinks
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.modeler import budgets
from vswitch_aware_scheduler.modeler import fleet
from vswitch_aware_scheduler.modeler import heartbeat
from vswitch_aware_scheduler.modeler import host_discovery
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler.modeler import metrics
from vswitch_aware_scheduler.modeler import predictions
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler.modeler import rebalancing
from vswitch_aware_scheduler.modeler import repair
from vswitch_aware_scheduler.modeler import stored_fleet
from vswitch_aware_scheduler.rebalance import cloud as rebalance_cloud
from vswitch_aware_scheduler.rebalance import settings as rebalance_settings
from vswitch_aware_scheduler import self_check
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler import telemetry
from vswitch_aware_scheduler.telemetry import base as telemetry_base
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['FIRST_PAUSE_SECONDS', 'LONGEST_PAUSE_SECONDS', 'Notifier',
           'QUIET_SECONDS', 'Service', 'SetUp', 'check_hosts',
           'any_host_is_described', 'configured_driver', 'make_driver',
           'make_policies', 'make_rebalancer', 'make_store', 'read_fleet',
           'set_up', 'stays_until', 'update_budgets', 'update_fleet',
           'update_hosts', 'update_inventory', 'update_priors', 'words_of']

LOG = logs.get_logger(__name__)

#: Seconds to wait after a failed pass; doubled after each further failure.
FIRST_PAUSE_SECONDS = 5.0

#: Longest wait, so that the service notices a recovery within this time.
LONGEST_PAUSE_SECONDS = 300.0

#: If telemetry has nothing new for this time and for three passes, this is
#: logged.
QUIET_SECONDS = 3600.0

_DAY_SECONDS = 86400.0

#: States that remain after a pass, whether it fails or succeeds.
_LASTING = frozenset({'ahead', 'budgets', 'discovery', 'fleet', 'hosts',
                      'inventory', 'metrics', 'quiet', 'rebalancing',
                      'schedulers', 'sharing', 'slow', 'unprotected',
                      'waiting'})

#: States that are logged again when their text changes.
_BY_TEXT = frozenset({'hosts', 'waiting'})

#: {exception: name of the failure of a pass}; a subclass precedes its base.
_FAILURES = {exceptions.StoreChanged: 'another writer',
             exceptions.StoreError: 'store',
             exceptions.TelemetryError: 'telemetry',
             exceptions.CoordinationError: 'coordination',
             exceptions.ClockError: 'clock'}

#: Key for the inventory and the priors if instances are shared.
_COMMON = 'inventory'

#: Seconds between two checks for signals while the service is idle.
_TICK_SECONDS = 1.0

#: Maximum number of creators of ignored resources that are logged.
_MOST_MAKERS = 100


@dataclasses.dataclass(frozen=True)
class SetUp:
    """The objects that a configuration specifies.

    :ivar store: :class:`~vswitch_aware_scheduler.store.Store`
    :ivar settings: :class:`.Settings`
    :ivar fleet: :class:`.fleet.Fleet` that writes policies in force, or None
    :ivar earned_share: share of the limit E that a host earns as error budget,
        or None if there are no error budgets
    :ivar predict: as in :func:`.budgets.update`
    :ivar rebalancer: :class:`.Rebalancer`, or None if the modeler migrates
        nothing
    :ivar store_url: SQLAlchemy URL for :func:`make_store`, or None
    :ivar driver: telemetry driver, or None if telemetry is not configured
    :ivar interval_seconds: seconds from the start of a pass to the start of
        the next
    :ivar group: :class:`.Group` that shares the instances, or None for a
        single modeler
    :ivar metrics_at: (address, port) at which to serve metrics, or None
    :ivar inventory: source of the inventory, or None
    :ivar complete_seconds: seconds after which all of the inventory is read
        again
    :ivar ports_seconds: seconds after which all ports are read again
    :ivar member_seconds: time for which an instance has to be measured to
        count in priors
    :ivar discovery: :class:`Discovery` of host profiles, or None
    :ivar missing: what is not configured, in words, if driver is None
    :ivar unprotected: why every instance in telemetry counts, or None
    """

    store: model_store.Store
    driver: telemetry_base.Driver | None
    settings: learning.Settings
    interval_seconds: float
    group: membership.Group | None = None
    metrics_at: tuple | None = None
    inventory: object = None
    complete_seconds: float = _DAY_SECONDS
    ports_seconds: float = 0.0
    member_seconds: float = priors.MEMBER_SECONDS
    fleet: object = None
    earned_share: float | None = None
    discovery: object = None
    rebalancer: rebalancing.Rebalancer | None = None
    predict: object = None
    missing: str | None = None
    unprotected: str | None = None
    store_url: str | None = dataclasses.field(default=None, repr=False)

    @property
    def source(self):
        """The source of the samples, for messages."""
        return 'no telemetry' if self.driver is None else self.driver.source


#: Seconds that a service waits for other writers before it repeats its pass.
PATIENCE_SECONDS = 120


def set_up(conf, patience_seconds=None):
    """Return the :class:`SetUp` of a configuration. Opens nothing.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :param patience_seconds: as in :class:`~.store.Store`
    :returns: :class:`SetUp`
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
        driver, missing = None, _in_words(error)
    store = model_store.Store(group.store_url, group.store_timeout_seconds,
                              patience_seconds)
    source = _inventory_source(conf)
    return SetUp(
        store, driver,
        learning.Settings(
            source=group.telemetry_driver, min_samples=group.min_samples,
            half_life_seconds=group.modeler_half_life_days
            * _DAY_SECONDS or None,
            forget_seconds=group.modeler_forget_days * _DAY_SECONDS or None,
            clock_seconds=group.modeler_clock_seconds or None,
            only_of_inventory=source is not None
            and group.telemetry_driver != 'file',
            default_kbps=_default_kbps(group)),
        group.modeler_interval_seconds,
        membership.Group(group.modeler_coordination_url)
        if group.modeler_coordination_url else None,
        (group.modeler_metrics_address, group.modeler_metrics_port)
        if group.modeler_metrics_port else None,
        inventory=source, complete_seconds=conf[
            options.INVENTORY_GROUP].complete_interval_seconds,
        ports_seconds=conf[options.INVENTORY_GROUP].ports_seconds,
        member_seconds=group.prior_min_hours * 3600.0,
        fleet=_fleet(conf),
        earned_share=(group.error_budget_earned_share
                      if group.error_budgets else None),
        discovery=_discovery(conf), rebalancer=(
            None if group.rebalance_mode == rebalance_settings.OFF
            else make_rebalancer(conf)), missing=missing,
        predict=functools.partial(
            predictions.predicted, default_law=model.TrafficModel.on_off(
                **options.default_demand(group)).law,
            ignores_unknown=group.unknown_instance_policy == 'ignore'),
        unprotected=unprotected(conf),
        store_url=group.store_url)


def _default_kbps(group):
    """Return the mean bandwidth of an instance with the default demand."""
    if group.unknown_instance_policy != 'default':
        return 0.0
    return float(model.TrafficModel.on_off(
        **options.default_demand(group)).mean[:2].sum())


def unprotected(conf):
    """Return why every instance in telemetry counts, or None.

    :param conf: an oslo.config ConfigOpts with the options of this package
    """
    name = conf[options.GROUP].telemetry_driver
    if name == 'file' or options.inventory_options(conf) is not None:
        return None
    if name in options.TELEMETRY_GROUPS:
        access = options.telemetry_options(conf, name)['access']
        if access['url'] is None and access['auth'] is None:
            return None
    return (f'every instance that telemetry reports counts, in priors as '
            f'well, as there is no inventory of Nova to compare it with; set '
            f'auth_type and its options in the group '
            f'[{options.INVENTORY_GROUP}]')


def configured_driver(conf):
    """Return the telemetry driver that options select.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :raises TelemetryNotConfigured: if no option names the source of the data
    """
    group = conf[options.GROUP]
    name = group.telemetry_driver
    arguments = {}
    if name in options.TELEMETRY_GROUPS:
        return make_driver(conf, name)
    if group.telemetry_path is not None:
        arguments = {'path': group.telemetry_path}
        if name == 'file' and group.telemetry_period_seconds is not None:
            arguments['period_seconds'] = group.telemetry_period_seconds
    elif name == 'file':
        raise exceptions.TelemetryNotConfigured(
            'telemetry_driver is file, and telemetry_path is not set; set '
            'the path of a file or a folder')
    return telemetry.load_driver(name, **arguments)


def make_driver(conf, name):
    """Return the telemetry driver that reads from a service.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :param name: name of a driver with its own group of options
    :raises TelemetryNotConfigured: if no option names the service
    """
    arguments = options.telemetry_options(conf, name)
    if arguments['access']['url'] is None \
            and arguments['access']['auth'] is None:
        raise exceptions.TelemetryNotConfigured(
            f'telemetry_driver is {name}, and neither url nor auth_type '
            f'is set in the group [{options.TELEMETRY_GROUPS[name][0]}]; '
            f'set the URL of the service, or auth_type to look the '
            f'service up in the catalog of keystone')
    return telemetry.load_driver(name, **arguments)


def make_store(set_up):
    """Create the store if it is an SQLite file that does not exist yet.

    :param set_up: :class:`SetUp`
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


def _host_policies(group, report=_ignore):
    profiles = switch_profile.profiles(group.switch_profiles_file)
    default = group.default_switch_profile or None
    if default is not None:
        switch_profile.named(default, profiles)
    return policies.HostPolicies(
        profiles, default, group.admission_policy,
        group.overload_probability, group.unknown_host_policy == 'pass',
        report, group.enforcement, group.prediction_margin)


def make_policies(group, report=_ignore):
    """Return (HostPolicies, UplinkPolicies) of the options.

    :param group: the options of [vswitch_scheduler]
    :param report: callable(topic, problem or None), receives invalid values
    :raises VSwitchError: if a profile or another option is invalid
    """
    return _host_policies(group, report), uplinks.UplinkPolicies(
        switch_profile.profiles(group.switch_profiles_file),
        group.admission_policy, group.overload_probability, report,
        group.prediction_margin)


def read_fleet(store, group, host_facts=None):
    """Return the :class:`.StoredFleet` of a store, as the filter judges it.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param group: the options of [vswitch_scheduler]
    :param host_facts: as in :func:`.stored_fleet.read`
    :raises StoreError: if the store cannot be read
    """
    return stored_fleet.read(
        store, lambda: make_policies(group),
        model.TrafficModel.on_off(**options.default_demand(group)).law,
        group.refuse_hosts_in_debt,
        group.unknown_instance_policy == 'ignore', host_facts)


def _fleet(conf):
    """Return the :class:`.fleet.Fleet` that options select."""
    group = conf[options.GROUP]
    return fleet.Fleet(_nova_access(conf), lambda: make_policies(group),
                       options.alike(group))


def _credentials(conf, process=None):
    """Return the options of the inventory, or None without credentials.

    :param process: what the credentials are for, for the message, such as
        'discover_hosts queries Neutron'; None: they are not necessary
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


@dataclasses.dataclass(frozen=True)
class Discovery:
    """The parameters for the discovery of host profiles.

    :ivar neutron: :class:`.Access` of Neutron
    :ivar profiles: callable(), returns {name: SwitchProfile}
    :ivar mapping: list of texts as for :func:`.discovery.parse_mapping`
    """

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
    arguments = _credentials(conf, 'discover_hosts queries Neutron')

    def profiles():
        return switch_profile.profiles(
            conf[options.GROUP].switch_profiles_file)

    mapping = group.discover_profiles or []
    discovery.parse_mapping(mapping, profiles())
    return Discovery(
        http.Access(**{
            **arguments['access'], 'url': arguments['network_url']
        }), profiles, mapping)


def review_aggregates(conf):
    """Return the invalid values in the metadata of Nova's aggregates.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :returns: list of problems in words, or None if no credentials for Nova are
        configured
    :raises TelemetryError: if Nova does not answer
    :raises VSwitchError: if a profile or another option is invalid
    """
    access = _nova_access(conf)
    if access is None:
        return None
    group = conf[options.GROUP]
    problems = {}
    host_policies, uplink_policies = make_policies(group,
                                                   problems.__setitem__)
    aggregates = nova.read_aggregates(access)
    metadata = {}
    for _, of_host in sorted(aggregates.items()):
        host_policies.find(of_host, None)
        metadata.update(of_host)
    uplink_policies.find(sorted(metadata.items()))
    return sorted({problem for problem in problems.values() if problem})


def any_host_is_described(conf, store):
    """Return whether any host has a profile or is behind an uplink.

    Aggregates are read from Nova if credentials are configured and nothing
    else describes a host.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :returns: bool, or None if only aggregates may describe a host and cannot
        be read without credentials
    :raises TelemetryError: if Nova does not answer
    :raises VSwitchError: if the store cannot be read, or if a profile or
        another option is invalid
    """
    host_policies = _host_policies(conf[options.GROUP])
    bare_metal = store.fleet('bare_metal').facts
    profiles = {profile.host: profile for profile in store.host_profiles()}

    def any_has_profile(aggregates):
        # No name stands for the hosts about which nothing is known.
        return any(host_policies.find(
            aggregates.get(host, []), profiles.get(host),
            host in bare_metal).profile is not None
            for host in {None} | profiles.keys() | aggregates.keys())

    if any_has_profile({}):
        return True
    access = _nova_access(conf)
    if access is None:
        return None
    aggregates = nova.read_aggregates(access)
    return any_has_profile(aggregates) or any(
        uplinks.is_in(metadata) for of_host in aggregates.values()
        for _, metadata in of_host)


def make_rebalancer(conf):
    """Return the :class:`.Rebalancer` that options select.

    :param conf: an oslo.config ConfigOpts with the options of this package
    :raises InvalidInput: if no credentials for Nova and Placement are
        configured
    """
    group = conf[options.GROUP]
    access = _credentials(
        conf, 'rebalancing queries Nova and Placement')['access']
    return rebalancing.Rebalancer(
        rebalance_cloud.Cloud(http.Access(**access), http.Access(**{
            **access,
            'url': conf[options.INVENTORY_GROUP].placement_url})),
        rebalance_settings.Settings(**{
            field.name: group[f'rebalance_{field.name}']
            for field in dataclasses.fields(rebalance_settings.Settings)
            if f'rebalance_{field.name}' in group}),
        lambda store: read_fleet(store, group))


def _or_problem(consequence, *handled, answer=str):
    """Return a decorator for a step without which traffic is still learned.

    The decorated step returns the problem in words instead of raising an
    error. A StoreError is raised nevertheless, because all steps need the
    store.

    :param consequence: effect of an error, in words
    :param handled: subclasses of StoreError that are returned in words, too
    :param answer: callable(problem), returns the result of the step after an
        error
    """
    def decorate(step):
        @functools.wraps(step)
        def run(*arguments, **keywords):
            try:
                return step(*arguments, **keywords)
            except Exception as error:
                if isinstance(error, exceptions.StoreError) \
                        and not isinstance(error, handled):
                    raise
                return answer(f'{consequence}: {_in_words(error)}')
        return run
    return decorate


def _in_words(error):
    text = ' '.join(str(error).split())
    if isinstance(error, exceptions.VSwitchError):
        return text
    return f'unexpected {type(error).__name__}: {text}'


@_or_problem('the inventory stays as it is')
def update_inventory(set_up, clock):
    """Update the inventory, if one is configured.

    :param set_up: :class:`SetUp`
    :param clock: callable, returns seconds UTC
    :returns: None, or the problem in words; the inventory is unchanged then
    :raises StoreError: if the store cannot be read or written
    """
    if set_up.inventory is None:
        return None
    outcome = instance_sync.update(
        set_up.store, set_up.inventory, clock, set_up.complete_seconds,
        set_up.ports_seconds)
    LOG.debug('vswitch-modeler: inventory: %s', outcome)
    return None


@_or_problem('no plan of migrations', exceptions.StoreError)
def rebalance(set_up, clock, monotonic, progress=None):
    """Make a plan of migrations, if configured and due.

    :param set_up: :class:`SetUp`
    :param clock: callable, returns seconds UTC
    :param monotonic: callable, returns monotonic seconds
    :param progress: None, or callable(done, total)
    :returns: None, or the problem in words
    """
    if set_up.rebalancer is not None:
        set_up.rebalancer.plan(set_up.store, set_up.driver, clock,
                               monotonic, progress)
    return None


@_or_problem('the policies of hosts in the store stay as they are')
def update_fleet(set_up, clock):
    """Update the data about the fleet in the store.

    :param set_up: :class:`SetUp`
    :param clock: callable, returns seconds UTC
    :returns: None, or the problem in words; the data are unchanged then
    :raises StoreError: if the store cannot be read or written
    """
    if set_up.fleet is None:
        return None
    policies = set_up.fleet.update(set_up.store, clock)
    if policies.problems:
        host, problem = sorted(policies.problems.items())[0]
        return (f'{len(policies.problems)} hosts have no policy, {host} among '
                f'them: {problem}')
    return None


def check_hosts(set_up):
    """Return which hosts with a stored profile Nova does not have, or None.

    :param set_up: :class:`SetUp`
    :raises StoreError: if the store cannot be read
    """
    if set_up.fleet is None:
        return None
    return fleet.hosts_not_in_nova(set_up.store,
                                   set_up.store.host_profiles())


@_or_problem('profiles of hosts stay as they are')
def update_hosts(set_up):
    """Write the profiles of hosts that Neutron's agents imply.

    Profiles from another source are kept.

    :param set_up: :class:`SetUp`
    :returns: None, or the problem in words; the profiles are unchanged then
    :raises StoreError: if the store cannot be read or written
    """
    from_agents = set_up.discovery
    if from_agents is None:
        return None
    profiles = from_agents.profiles()
    steps = host_discovery.apply(set_up.store, discovery.propose(
        host_discovery.read_agents(from_agents.neutron), profiles,
        discovery.parse_mapping(from_agents.mapping, profiles)))
    written = [step.host for step in steps
               if step.action in ('new', 'changed')]
    if written:
        LOG.info('vswitch-modeler: profiles of %d hosts were discovered, %s '
                 'among them', len(written), written[0])
    return None


def check_schedulers(set_up, clock):
    """Return the problem of the schedulers' workers in words, or None.

    :param set_up: :class:`SetUp`
    :param clock: callable, returns seconds UTC
    :raises StoreError: if the store cannot be read
    """
    if set_up.fleet is None:
        return None
    now, workers = clock(), set_up.store.workers()
    for worker in self_check.reporting_workers(workers, now):
        problem = self_check.options_problem(
            set_up.fleet.options, worker.state.get('options') or {},
            f'nova.conf of {worker.host}')
        if problem is not None:
            return problem
    return self_check.workers_problem(workers, set_up.store.modelers(), now)


def update_priors(set_up, clock):
    """Update the priors by the models and the inventory.

    :param set_up: :class:`SetUp`
    :param clock: callable, returns seconds UTC
    :raises StoreError: if the store cannot be read or written
    """
    outcome = priors.update(
        set_up.store, clock, set_up.settings.min_samples,
        set_up.member_seconds, set_up.inventory is not None)
    LOG.debug('vswitch-modeler: priors: %s', outcome)


def stays_until(set_up, began, problem):
    """Return the time up to which the hosts of instances are known, or None.

    :param set_up: :class:`SetUp`
    :param began: when the reading of the inventory began, seconds UTC
    :param problem: result of :func:`update_inventory`
    """
    if set_up.inventory is None or problem:
        return None
    # Changes in Nova become visible after a short delay.
    return began - instance_sync.OVERLAP_SECONDS


@_or_problem('error budgets stay as they are', exceptions.StoreChanged,
             answer=lambda problem: (None, problem))
def update_budgets(set_up, clock, newest, **values):
    """Update the error budgets, if configured.

    :param set_up: :class:`SetUp`
    :param clock: callable, returns seconds UTC
    :param newest: time of the newest counted sample, or None
    :param values: other arguments of :func:`.budgets.update`
    :returns: (:class:`.budgets.Update` or None, None or the problem in words);
        the budgets are unchanged after a problem
    :raises StoreError: if the store cannot be read or written
    """
    if set_up.earned_share is None:
        return None, None
    if set_up.group is not None:
        values['name'] = set_up.group.name.decode()
    update = budgets.update(
        set_up.store, set_up.driver, clock, newest,
        earned_share=set_up.earned_share, predict=set_up.predict, **values)
    LOG.debug('vswitch-modeler: error budgets: %d shares, %d periods '
              'measured, %d unknown', update.shares, update.measured,
              update.unknown)
    return update, None


def words_of(outcome):
    """Return the result of a pass in words.

    :param outcome: :class:`.Outcome`
    """
    ignored = ''.join(
        f', {count} ignored ({kind})'
        for kind, count in outcome.ignored_kinds.items())
    return (f'generation {outcome.generation.number}: '
            f'{outcome.samples} new samples, {outcome.fitted} models fitted, '
            f'{len(outcome.refused)} instances refused, {outcome.waiting} '
            f'wait for a model, {len(outcome.removed)} forgotten, of '
            f'{outcome.instances} instances{ignored} in '
            f'{outcome.seconds:.1f} s')


class Notifier:
    """Notifies systemd of the state of the service, if systemd listens.

    :param environment: environment of the process; NOTIFY_SOCKET is the
        address of systemd's socket
    """

    def __init__(self, environment=None):
        environment = os.environ if environment is None else environment
        address = environment.get('NOTIFY_SOCKET', '')
        # A name in the abstract namespace starts with a zero byte.
        self._address = '\0' + address[1:] if address[:1] == '@' else address

    def notify(self, **values):
        """Send a notification, for example READY=1. Errors are ignored.

        :param values: {name: value} of the notification
        """
        if not self._address:
            return
        text = '\n'.join(f'{name}={str(value)[:2000]}'.replace('\n', ' ')
                         for name, value in values.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM
                               | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1)
                sender.connect(self._address)
                sender.sendall(text.encode())
        except OSError as error:
            LOG.debug('systemd was not notified of %s: %s', text, error)


class _End(BaseException):
    """SIGTERM arrived while nothing was being written.

    Like KeyboardInterrupt, it is not an Exception, so that code which retries
    or reports errors does not catch it.
    """


class Service:
    """Makes passes until a signal ends it.

    SIGTERM and SIGINT end the service immediately, or after a write that is
    under way. After SIGHUP the service reads its configuration again when the
    current pass is over. If telemetry is not configured, the service does the
    tasks that need no telemetry and waits for a new configuration.

    :param load: callable(), returns the :class:`SetUp` of the current
        configuration
    :param notifier: :class:`Notifier`
    :param clock: callable, returns seconds UTC
    :param monotonic: callable, returns monotonic seconds
    :param sleep: callable(seconds), waits, even if a signal arrives
    """

    def __init__(self, load, notifier, clock=time.time,
                 monotonic=time.monotonic, sleep=time.sleep):
        self._load = load
        self._notifier = notifier
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._stopping = False
        self._reloading = False
        self._interruptible = self._interrupted = False
        self._in_pass = False
        self._failures = 0
        # Number of failures that the pause depends on.
        self._attempts = 0
        self._passed = False
        self._failing_since = None
        self._news_at = None
        self._alive_at = None
        self._share = None
        self._metrics = None
        # Current problems, so that each is logged once: {kind: words}.
        self._states = {}
        # Generation for which the priors were updated last.
        self._priors_of = None
        # Ignored resources that were logged.
        self._ignored = set()
        self._heartbeat = heartbeat.Heartbeat(clock, monotonic)
        # SetUp whose store was created, if necessary.
        self._made_store_of = None

    def run(self):
        """Make passes until a signal ends the service.

        :returns: number of passes
        :raises Exception: from ``load``, if the first configuration is invalid
        """
        before = {}
        passes = 0
        set_up = None
        try:
            for number, handler in ((signal.SIGTERM, self._on_end),
                                    (signal.SIGINT, self._on_end),
                                    (signal.SIGHUP, self._on_reload)):
                before[number] = signal.signal(number, handler)
            set_up = self._load()
            self._serve_metrics(set_up)
            self._news_at = self._monotonic()
            LOG.info('vswitch-modeler has started: reads %s every %g s, '
                     'writes %s',
                     set_up.source, set_up.interval_seconds,
                     set_up.store.url)
            self._notifier.notify(READY=1, STATUS='first pass')
            self._report_to(set_up)
            while not self._stopping:
                began = self._monotonic()
                if self._pass(set_up):
                    passes += set_up.driver is not None
                    pause = set_up.interval_seconds - (
                        self._monotonic() - began)
                    self._state(
                        'slow', pause <= 0 and
                        f'a pass took {self._monotonic() - began:.0f} s; '
                        f'expected less than modeler_interval_seconds, '
                        f'{set_up.interval_seconds:g}')
                else:
                    pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS
                                * 2.0 ** min(self._attempts - 1, 20))
                self._wait(pause, set_up.rebalancer)
                if self._reloading and not self._stopping:
                    set_up = self._reloaded(set_up)
        finally:
            self._notifier.notify(STOPPING=1, STATUS='ended')
            self._heartbeat.end()
            if set_up is not None and set_up.rebalancer is not None:
                set_up.rebalancer.end()
            if set_up is not None and set_up.group is not None:
                set_up.group.leave()
            if self._metrics is not None:
                self._metrics.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        LOG.info('vswitch-modeler has ended after %d passes', passes)
        return passes

    # Signals

    def _on_end(self, number, frame):
        self._stopping = True
        if self._interruptible:
            self._interruptible = False
            self._interrupted = True
            raise _End

    def _on_reload(self, number, frame):
        self._reloading = True

    @contextlib.contextmanager
    def _writing(self):
        self._interruptible = False
        self._end_if_interrupted()
        yield

    def _wait(self, seconds, rebalancer=None):
        until = self._monotonic() + seconds
        while not (self._stopping or self._reloading):
            remaining = until - self._monotonic()
            if remaining <= 0:
                return
            self._alive()
            if rebalancer is not None:
                self._rebalance(rebalancer)
            self._sleep(min(remaining, _TICK_SECONDS))

    def _rebalance(self, rebalancer):
        """Check the running migrations, and continue their plan."""
        problem = rebalancer.step(self._monotonic)
        if problem:
            LOG.warning('vswitch-modeler: rebalancing stopped: %s', problem)

    def _end_if_interrupted(self):
        # Python ignores an exception that a signal handler raises while an
        # object is destroyed.
        if self._interrupted:
            raise _End

    def _alive(self, *_):
        """Report to systemd that the service makes progress.

        Called between the steps of a pass and while the service is idle, never
        by a thread or a timer, so that a service that hangs does not report.
        """
        self._end_if_interrupted()
        now = self._monotonic()
        if self._alive_at is None or now - self._alive_at >= 1:
            self._alive_at = now
            self._notifier.notify(WATCHDOG=1)
            self._beat()

    def _beat(self):
        """Write the heartbeat. A signal to end does not wait for it."""
        in_pass, writing = self._in_pass, not self._interruptible
        if in_pass and writing:
            # The pass is writing: the heartbeat would wait for this write.
            return
        self._interruptible = not self._stopping
        try:
            self._heartbeat.beat()
            self._interruptible = in_pass
        except _End:
            self._interruptible = False
            if in_pass:
                raise
            self._interrupted = False

    def _report_to(self, set_up):
        self._heartbeat.report_to(set_up.store, set_up.interval_seconds)

    def _reloaded(self, set_up):
        self._reloading = False
        if set_up.rebalancer is not None:
            # The rebalancer of the new configuration continues the plan.
            set_up.rebalancer.end()
        # The problem may have been solved.
        self._attempts = 0
        self._notifier.notify(RELOADING=1, MONOTONIC_USEC=int(
            time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6))
        try:
            set_up = self._in_group_of(set_up, self._load())
            self._serve_metrics(set_up)
        except (cfg.Error, ValueError, OSError) as error:
            reason = ' '.join(str(error).split())
        except Exception as error:
            # A driver may raise any exception; the old configuration still
            # works.
            reason = _in_words(error)
        else:
            reason = None
        if reason is not None:
            LOG.error('vswitch-modeler: the new configuration is invalid, '
                      'the old one stays in use: %s', reason)
        else:
            LOG.info('vswitch-modeler has read its configuration: %s every '
                     '%g s into %s', set_up.source,
                     set_up.interval_seconds, set_up.store.url)
            self._report_to(set_up)
        self._notifier.notify(READY=1)
        return set_up

    def _in_group_of(self, old, new):
        """Return a new SetUp with the group of the old one if it is equal."""
        if old.group is None:
            return new
        if new.group is not None and new.group.url == old.group.url:
            return dataclasses.replace(new, group=old.group)
        old.group.leave()
        self._share = None
        return new

    # Metrics

    def _serve_metrics(self, set_up):
        if set_up.metrics_at is None:
            if self._metrics is not None:
                self._metrics.close()
            self._state('metrics', None)
            return
        if self._metrics is None:
            self._metrics = metrics.Metrics()
        try:
            self._metrics.serve(*set_up.metrics_at)
        except OSError as error:
            reason = (f'metrics cannot be served at '
                      f'{set_up.metrics_at[0]}:{set_up.metrics_at[1]}: '
                      f'{error}')
        else:
            reason = None
        self._state('metrics', reason)

    # Passes

    def _shared(self, set_up):
        """Return which instances to learn of, for :func:`.learning.run`."""
        if set_up.group is None:
            return None
        store_id = set_up.store.generation().store_id
        try:
            share = set_up.group.share(store_id)
        except exceptions.CoordinationError as error:
            if self._share is None:
                raise
            reason = (f'{" ".join(str(error).split())}; instances stay '
                      f'shared as they were')
        else:
            reason = None
            if self._share is None or self._share.members != share.members:
                LOG.info('vswitch-modeler: %d modelers share the instances',
                         share.members)
            self._share = share
        self._state('sharing', reason)
        return self._share

    def _pass(self, set_up):
        """Make a pass. Return whether it succeeded."""
        # Logged outside the except clauses: inside, oslo.log would add the
        # error to every line.
        failure = outcome = None
        try:
            self._in_pass = True
            self._interruptible = not self._stopping
            if self._made_store_of is not set_up:
                make_store(set_up)
                self._made_store_of = set_up
            learning.check_store_clock(
                set_up.store, self._clock, set_up.settings
            )
            share = self._shared(set_up)
            # One modeler does the tasks that do not concern single instances.
            common = share is None or share(_COMMON)
            began = float(self._clock())
            problem = common and update_inventory(set_up, self._clock)
            self._state('inventory', problem)
            known_until = stays_until(set_up, began, problem) \
                if common else None
            self._notifier.notify(WATCHDOG=1)
            self._state('discovery', common and update_hosts(set_up))
            self._state('fleet', common and update_fleet(set_up,
                                                         self._clock))
            self._state('hosts', common and check_hosts(set_up))
            self._state('schedulers', common and check_schedulers(
                set_up, self._clock))
            self._notifier.notify(WATCHDOG=1)
            if set_up.driver is not None:
                repair.learn_again(set_up.store, self._clock,
                                   set_up.settings, share)
                bounds = fleet.most_kbps(set_up.store)
                outcome = learning.run(
                    set_up.store,
                    set_up.driver,
                    self._clock,
                    set_up.settings,
                    self._alive,
                    self._writing(),
                    share,
                    bounds,
                )
                self._keep_budgets(
                    set_up, outcome.last_time, share=share, common=common,
                    stays_until=known_until, most_kbps=bounds)
            generation = (set_up.store.generation() if outcome is None
                          else outcome.generation)
            if common and generation != self._priors_of:
                update_priors(set_up, self._clock)
                self._priors_of = set_up.store.generation()
            if set_up.driver is not None:
                self._state('rebalancing', common and rebalance(
                    set_up, self._clock, self._monotonic, self._alive))
            self._interruptible = False
        except _End:
            failure = None, None
        except Exception as error:
            # Continue after any error: systemd would start a service that
            # ends again.
            failure = next((name for kind, name in _FAILURES.items()
                            if isinstance(error, kind)), 'unexpected'), error
        finally:
            self._interruptible = self._interrupted = self._in_pass = False
        if failure is None:
            self._recovered()
            if outcome is None:
                self._waits(set_up)
            else:
                self._succeeded(set_up, outcome)
        elif failure[0] is None:
            LOG.info('vswitch-modeler: the pass was stopped; all that it has '
                     'written is complete')
        else:
            self._failed(*failure)
        return failure is None

    def _keep_budgets(self, set_up, newest, **values):
        """Bring the error budgets up to date."""
        self._interruptible = not self._stopping
        update, problem = update_budgets(
            set_up, self._clock, newest, progress=self._alive,
            writing=self._writing, **values)
        self._state('budgets', problem)
        if self._metrics is not None and update is not None \
                and update.budgets is not None:
            self._metrics.budgeted(update.budgets.values())

    def _failed(self, kind, error):
        self._failures += 1
        self._attempts += 1
        if self._failing_since is None:
            self._failing_since = self._monotonic()
        message = (f'pass failed, models stay as they are: '
                   f'{" ".join(str(error).split()) or type(error).__name__}')
        if self._metrics is not None:
            self._metrics.failed(kind)
            self._metrics.waits(kind)
        for other in set(self._states) - {kind} - _LASTING:
            del self._states[other]
        if kind == 'unexpected' and kind not in self._states:
            LOG.error('vswitch-modeler: unexpected %s',
                      type(error).__name__, exc_info=error)
        self._state(kind, message)
        LOG.debug('vswitch-modeler: failure %d in a row: %s', self._failures,
                  message)
        self._notifier.notify(STATUS=message)
        self._heartbeat.waits(message)

    def _waits(self, set_up):
        """Log and report what is not configured."""
        reason = (f'telemetry is not configured, no traffic is learned: '
                  f'{set_up.missing}; then send SIGHUP to vswitch-modeler')
        self._state('waiting', reason)
        if self._metrics is not None:
            self._metrics.waits('configuration')
            self._serve_metrics(set_up)
        # A modeler that waits does not miss new samples.
        self._news_at = self._monotonic()
        self._notifier.notify(STATUS=f'waiting: {reason}', WATCHDOG=1)
        self._heartbeat.waits(reason)

    def _recovered(self):
        if self._failures:
            LOG.info('vswitch-modeler is well again after %d failed passes '
                     'in %.0f s', self._failures,
                     self._monotonic() - self._failing_since)
            self._failures, self._attempts = 0, 0
            self._failing_since = None
            self._states = {kind: text
                            for kind, text in self._states.items()
                            if kind in _LASTING}

    def _succeeded(self, set_up, outcome):
        self._state('waiting', None)
        if self._metrics is not None:
            self._metrics.waits(None)
            self._metrics.succeeded(
                outcome, self._share.members if self._share else 1,
                self._clock())
            self._serve_metrics(set_up)
        now = self._monotonic()
        if outcome.samples:
            self._news_at = now
        quiet = max(QUIET_SECONDS, 3 * set_up.interval_seconds)
        self._state('quiet', now - self._news_at > quiet and (
            f'telemetry {set_up.driver.source} answers and has '
            f'{outcome.instances} instances, but no new sample of any for '
            f'{now - self._news_at:.0f} s'))
        self._state('ahead', outcome.ahead and (
            f'{outcome.ahead} instances have samples later than the clock '
            f'of this machine; no new samples of these instances are read '
            f'until the clock has passed them'))
        self._report_ignored(set_up, outcome.ignored)
        summary = words_of(outcome)
        # The first pass is logged at INFO to show that the service works.
        LOG.log(logging.DEBUG if self._passed else logging.INFO,
                'vswitch-modeler: %s; refused: %s', summary, outcome.reasons)
        self._passed = True
        self._notifier.notify(STATUS=summary, WATCHDOG=1)
        self._heartbeat.passed(summary)

    def _report_ignored(self, set_up, ignored):
        """Log which resources of telemetry are ignored, by creator."""
        self._state('unprotected', set_up.unprotected)
        for reason, count in ignored.items():
            if reason in self._ignored or len(self._ignored) >= _MOST_MAKERS:
                continue
            self._ignored.add(reason)
            LOG.warning('vswitch-modeler: %d resources of telemetry are '
                        'ignored (%s)', count, reason)

    def _state(self, kind, problem):
        """Log when a problem of a kind appears, and when it disappears."""
        if problem and (kind not in self._states or kind in _BY_TEXT
                        and self._states[kind] != problem):
            self._states[kind] = problem
            LOG.warning('vswitch-modeler: %s', problem)
        elif not problem and kind in self._states:
            LOG.info('vswitch-modeler: problem ended: %s',
                     self._states.pop(kind))
