# SPDX-License-Identifier: Apache-2.0
"""A pass of the modeler: a list of steps.

The service and ``vswitch-modeler --once`` run the same list. Each step states
what happens if it fails. A failure of the store ends the pass, unless the step
says otherwise: all steps need the store.
"""

import dataclasses
import functools
import typing

from vswitch_aware_scheduler.budgets import accounts
from vswitch_aware_scheduler.clients import neutron
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import self_check
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.modeler import host_discovery
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler.modeler import repair
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.vswitch import discovery

__all__ = ['COMMON', 'Pass', 'STEPS', 'Step', 'words_of']

LOG = logs.get_logger(__name__)

#: Key of the steps that one modeler does for all, if instances are shared.
COMMON = 'inventory'


@dataclasses.dataclass
class Pass:
    """What the steps of a pass use, and what they have found.

    :ivar writing: None, or callable, returns a context manager around a write
    :ivar hosts_known_until: time up to which the hosts of instances are known,
        seconds UTC, or None
    """

    set_up: wiring.SetUp
    clock: typing.Callable
    monotonic: typing.Callable
    share: typing.Callable | None = None
    progress: typing.Callable | None = None
    writing: typing.Callable | None = None
    priors_of: object = None
    hosts_known_until: float | None = None
    outcome: learning.Outcome | None = None
    update: accounts.Update | None = None

    @functools.cached_property
    def is_common(self) -> bool:
        """Whether this modeler does the steps that one does for all."""
        return self.share is None or self.share(COMMON)

    @functools.cached_property
    def most_kbps(self) -> dict[str, float]:
        """{instance uuid: largest possible rate}; see :func:`.most_kbps`."""
        return facts.most_kbps(self.set_up.store)

    def run(self, report: typing.Callable,
            before: typing.Callable = lambda: None) -> None:
        """Run all steps that concern this modeler.

        :param report: callable(name of a step, None or the problem in words)
        :raises VSwitchError: if a step fails without which a pass is of no use
        """
        for step in STEPS:
            if step.needs_telemetry and self.set_up.driver is None:
                continue
            before()
            report(step.name, None if step.is_common and not self.is_common
                   else step.run(self))


class Step(typing.NamedTuple):
    """A step of a pass.

    :ivar function: callable(:class:`Pass`), returns None, or a problem in
        words
    :ivar consequence: effect of an error, in words; None: the error ends the
        pass
    :ivar is_common: whether one modeler does it for all
    :ivar handled: errors of the store that do not end the pass
    """

    name: str
    function: typing.Callable
    consequence: str | None = None
    is_common: bool = True
    needs_telemetry: bool = False
    handled: tuple = ()

    def run(self, one_pass: Pass) -> str | None:
        """Run the step; return None, or the problem in words.

        :raises StoreError: if the store fails and this is not handled
        """
        try:
            return self.function(one_pass)
        except Exception as error:
            if self.consequence is None or (
                    isinstance(error, exceptions.StoreError)
                    and not isinstance(error, self.handled)):
                raise
            return f'{self.consequence}: {wiring.in_words(error)}'


def _update_inventory(one_pass):
    """Update the inventory, if one is configured."""
    set_up, began = one_pass.set_up, float(one_pass.clock())
    if set_up.inventory is None:
        return
    outcome = instance_sync.update(
        set_up.store, set_up.inventory, one_pass.clock,
        set_up.complete_seconds, set_up.ports_seconds)
    LOG.debug('vswitch-modeler: inventory: %s', outcome)
    # Changes in Nova become visible after a short delay.
    one_pass.hosts_known_until = began - instance_sync.OVERLAP_SECONDS


def _update_host_profiles(one_pass):
    """Write the profiles of hosts that Neutron's agents imply.

    Profiles from another source are kept.
    """
    from_agents = one_pass.set_up.discovery
    if from_agents is None:
        return
    profiles = from_agents.profiles()
    steps = host_discovery.apply(one_pass.set_up.store, discovery.propose(
        neutron.read_agents(from_agents.neutron), profiles,
        discovery.parse_mapping(from_agents.mapping, profiles),
        host_discovery.virtual_functions(one_pass.set_up.store)))
    written = [step.host for step in steps
               if step.action in ('new', 'changed')]
    if written:
        LOG.info('vswitch-modeler: profiles of %d hosts were discovered, %s '
                 'among them', len(written), written[0])


def _update_fleet(one_pass):
    """Update the policies of hosts in the store."""
    set_up = one_pass.set_up
    if set_up.fleet is None:
        return None
    policies = set_up.fleet.update(set_up.store, float(one_pass.clock()))
    if policies.problems:
        host, problem = sorted(policies.problems.items())[0]
        return (f'{len(policies.problems)} hosts have no policy, {host} among '
                f'them: {problem}')
    return None


def _check_hosts(one_pass):
    """Return which hosts with a stored profile Nova does not have."""
    set_up = one_pass.set_up
    if set_up.fleet is None:
        return None
    return facts.hosts_not_in_nova(set_up.store,
                                   set_up.store.host_profiles())


def _check_schedulers(one_pass):
    """Return the problem of schedulers' workers and of other modelers."""
    set_up = one_pass.set_up
    if set_up.fleet is None:
        return None
    now, workers = one_pass.clock(), set_up.store.workers()
    modelers = set_up.store.modelers()
    return next(iter(self_check.options_problems(
        set_up.fleet.options, workers, modelers, now)),
        None) or self_check.workers_problem(workers, modelers, now)


def _learn(one_pass):
    """Learn from new samples."""
    set_up = one_pass.set_up
    repair.learn_again(set_up.store, one_pass.clock, set_up.settings,
                       one_pass.share)
    one_pass.outcome = learning.run(
        set_up.store, set_up.driver, one_pass.clock, set_up.settings,
        one_pass.progress, one_pass.writing and one_pass.writing(),
        one_pass.share, one_pass.most_kbps)


def _update_budgets(one_pass):
    """Update the error budgets, if configured."""
    set_up = one_pass.set_up
    if not set_up.budgets:
        return
    name = {} if set_up.group is None else {
        'name': set_up.group.name.decode()}
    one_pass.update = update = accounts.update(
        set_up.store, set_up.driver, one_pass.clock,
        one_pass.outcome.last_time, accounts.ModelerPart(
            common=one_pass.is_common, share=one_pass.share,
            stays_until=one_pass.hosts_known_until,
            most_kbps=one_pass.most_kbps, **name),
        predict=set_up.predict, progress=one_pass.progress,
        writing=one_pass.writing)
    LOG.debug('vswitch-modeler: error budgets: %d instances measured, %d '
              'periods settled', update.instances, update.settled)


def _update_priors(one_pass):
    """Update the priors by the models and the inventory, if models changed."""
    set_up, learned = one_pass.set_up, one_pass.outcome
    if one_pass.priors_of == (set_up.store.generation() if learned is None
                              else learned.generation):
        return
    outcome = priors.update(
        set_up.store, one_pass.clock, set_up.settings.min_samples,
        set_up.member_seconds, set_up.inventory is not None)
    LOG.debug('vswitch-modeler: priors: %s', outcome)
    one_pass.priors_of = set_up.store.generation()


def _plan_migrations(one_pass):
    """Make a plan of migrations, if configured and due."""
    set_up = one_pass.set_up
    if set_up.rebalancer is not None:
        set_up.rebalancer.plan(set_up.store, set_up.driver, one_pass.clock,
                               one_pass.monotonic, one_pass.progress)


#: The steps of a pass, in order.
STEPS = (
    Step('inventory', _update_inventory, 'the inventory stays as it is'),
    Step('discovery', _update_host_profiles,
         'profiles of hosts stay as they are'),
    Step('fleet', _update_fleet,
         'the policies of hosts in the store stay as they are'),
    Step('hosts', _check_hosts),
    Step('schedulers', _check_schedulers),
    Step('learning', _learn, is_common=False, needs_telemetry=True),
    # Budgets and plans are not worth the models of a pass.
    Step('budgets', _update_budgets, 'error budgets stay as they are',
         is_common=False, needs_telemetry=True,
         handled=(exceptions.StoreChanged,)),
    Step('priors', _update_priors),
    Step('rebalancing', _plan_migrations, 'no plan of migrations',
         needs_telemetry=True, handled=(exceptions.StoreError,)))


def words_of(outcome: learning.Outcome) -> str:
    """Return the result of a pass in words."""
    ignored = ''.join(
        f', {count} ignored ({kind})'
        for kind, count in outcome.ignored_kinds.items())
    return (f'generation {outcome.generation.number}: '
            f'{outcome.samples} new samples, {outcome.fitted} models fitted, '
            f'{len(outcome.refused)} instances refused, {outcome.waiting} '
            f'wait for a model, {len(outcome.removed)} forgotten, of '
            f'{outcome.instances} instances{ignored} in '
            f'{outcome.seconds:.1f} s')
