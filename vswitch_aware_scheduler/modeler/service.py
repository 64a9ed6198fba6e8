# SPDX-License-Identifier: Apache-2.0
"""The process of the modeler: signals, waiting, failures, health.

:mod:`.passes` has the steps of a pass, :mod:`.wiring` what the configuration
specifies.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import functools
import signal
import time

from oslo_log import log as logging

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.modeler import heartbeat
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import metrics
from vswitch_aware_scheduler.modeler import passes
from vswitch_aware_scheduler.modeler import systemd
from vswitch_aware_scheduler.modeler import wiring

__all__ = ['FIRST_PAUSE_SECONDS', 'LONGEST_PAUSE_SECONDS', 'QUIET_SECONDS',
           'Service']

LOG = logs.get_logger(__name__)

#: Seconds to wait after a failed pass; doubled after each further failure.
FIRST_PAUSE_SECONDS = 5.0

#: Longest wait, so that the service notices a recovery within this time.
LONGEST_PAUSE_SECONDS = 300.0

#: If telemetry has nothing new for this time and for three passes, this is
#: logged.
QUIET_SECONDS = 3600.0

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

#: Seconds between two checks for signals while the service is idle.
_TICK_SECONDS = 1.0

#: Maximum number of creators of ignored resources that are logged.
_MOST_MAKERS = 100


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
    """

    def __init__(self, load: Callable[[], wiring.SetUp],
                 notifier: systemd.Notifier,
                 clock: Callable[[], float] = time.time,
                 monotonic: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], object] = time.sleep) -> None:
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
        self._news_at: float | None = None
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

    def run(self) -> int:
        """Make passes until a signal ends the service.

        :raises Exception: from ``load``, if the first configuration is invalid
        """
        before: dict = {}
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
            for number, previous in before.items():
                signal.signal(number, previous)
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
        self._heartbeat.report_to(
            set_up.store, set_up.interval_seconds,
            set_up.fleet and set_up.fleet.options)

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
        except wiring.CONFIGURATION_ERRORS as error:
            reason = ' '.join(str(error).split())
        except Exception as error:
            # A driver may raise any exception; the old configuration still
            # works.
            reason = wiring.in_words(error)
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
            self._metrics = metrics.ModelerMetrics()
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
                wiring.make_store(set_up)
                self._made_store_of = set_up
            learning.check_store_clock(
                set_up.store, self._clock, set_up.settings
            )
            one_pass = passes.Pass(
                set_up, self._clock, self._monotonic, self._shared(set_up),
                self._alive, self._writing, self._priors_of)
            one_pass.run(functools.partial(self._end_of_step, one_pass),
                         self._begin_step)
            outcome = one_pass.outcome
            self._priors_of = one_pass.priors_of
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

    def _begin_step(self):
        self._interruptible = not self._stopping
        self._notifier.notify(WATCHDOG=1)

    def _end_of_step(self, one_pass, name, problem):
        self._state(name, problem)
        if name == 'budgets' and self._metrics is not None \
                and one_pass.update is not None \
                and one_pass.update.budgets is not None:
            self._metrics.budgeted(one_pass.update.budgets.values(),
                                   one_pass.set_up.store.vm_times())

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
        self._state('empty', not outcome.instances and not self._share
                    and '; '.join(wiring.why_no_instance(
                        set_up, self._clock)))
        self._state('ahead', outcome.ahead and (
            f'{outcome.ahead} instances have samples later than the clock '
            f'of this machine; no new samples of these instances are read '
            f'until the clock has passed them'))
        self._report_ignored(set_up, outcome.ignored)
        summary = passes.words_of(outcome)
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
