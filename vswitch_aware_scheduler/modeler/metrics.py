# SPDX-License-Identifier: Apache-2.0
"""Exports the metrics of the modeler to Prometheus.

All values are numbers: a uuid, name or URL is never a label. No port is opened
before :meth:`Metrics.serve`.
"""

from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import metrics_server
from vswitch_aware_scheduler import store as model_store

try:
    import prometheus_client
except ImportError:
    prometheus_client = None

__all__ = ['Metrics']

_PREFIX = 'vswitch_modeler'

#: What a modeler can wait for. Each is exported, with 0 while the modeler does
#: not wait for it.
WAITS = ('configuration', 'telemetry', 'store', 'coordination')


class Metrics:
    """Counts the results of passes, and serves them over HTTP.

    :raises InvalidInput: if prometheus_client is not installed
    """

    def __init__(self):
        if prometheus_client is None:
            raise exceptions.InvalidInput(
                'modeler_metrics_port: set, but prometheus_client is not '
                'installed; install vswitch_aware_scheduler[metrics]')
        self._registry = prometheus_client.CollectorRegistry()
        self._listener = None
        #: (address, port) that is listened on, or None.
        self.served_at = None

        def make(kind, name, text, *labels):
            return kind(f'{_PREFIX}_{name}', text, labels,
                        registry=self._registry)

        counter, gauge = prometheus_client.Counter, prometheus_client.Gauge
        self._passes = make(
            prometheus_client.Summary, 'pass_seconds',
            'Passes that succeeded, and how long they took.')
        self._last = make(
            gauge, 'last_success_timestamp_seconds',
            'When the last pass that succeeded ended, seconds UTC.')
        self._failures = make(
            counter, 'failures', 'Passes that failed, by kind.', 'kind')
        self._waits = make(
            gauge, 'waiting',
            'Whether the modeler waits, by cause: its configuration, or the '
            'cause of the failure of the last pass.', 'kind')
        self.waits(None)
        self._samples = make(
            counter, 'samples', 'New samples that were counted.')
        self._refused_samples = make(
            counter, 'refused_samples',
            'Samples that were read and refused, by reason.', 'reason')
        self._fitted = make(
            counter, 'models_fitted', 'Number of fits of models.')
        self._forgotten = make(
            counter, 'instances_forgotten',
            'Instances whose model was removed.')
        self._refused = make(
            gauge, 'instances_refused',
            'Instances that got no new model in the last pass, by reason.',
            'reason')
        self._instances = make(
            gauge, 'instances',
            'Instances in telemetry whose models this modeler fits.')
        self._waiting = make(
            gauge, 'instances_waiting',
            'Instances with samples but without a model yet.')
        self._ignored = make(
            gauge, 'ignored',
            'Resources in telemetry that are ignored, by reason.', 'reason')
        self._generation = make(
            gauge, 'generation', 'Last generation of the store.')
        self._members = make(
            gauge, 'members', 'Modelers that share the instances.')
        self._budgets = make(
            gauge, 'error_budgets',
            'Number of error budgets, by kind (host or uplink).', 'kind')
        self._in_debt = make(
            gauge, 'error_budgets_in_debt',
            'Number of negative error budgets, by kind (host or uplink).',
            'kind')
        self._left = make(
            gauge, 'error_budget_left_seconds',
            'Remaining seconds of overload in the error budgets, negative in '
            'debt: minimum and mean, by kind (host or uplink).', 'kind', 'of')
        self._burn_rate = make(
            gauge, 'error_budget_burn_rate',
            'Overload in a time window divided by the limit: maximum and mean '
            'of the error budgets, by kind (host or uplink).', 'kind', 'of',
            'window')
        self._unmeasured = make(
            gauge, 'error_budget_unknown_ratio',
            'Share of the time in use that was not measured, of all error '
            'budgets, by kind (host or uplink).', 'kind')
        self._overspent = make(
            gauge, 'error_budget_overspent_seconds',
            'Seconds of overload that hosts in debt have spent more than they '
            'have earned, by kind (host or uplink).', 'kind')
        self._vm_overload = make(
            gauge, 'vm_overload_ratio',
            'Share of the time of instances in which the host was overloaded '
            'and the instance itself did not exceed the capacity: maximum of '
            'the hosts (since their budgets began), and maximum and mean of '
            'the projects (in the last seven days).', 'by', 'of')
        self._predictions = make(
            gauge, 'host_predictions',
            'Hosts whose predicted overload was compared with measurements, '
            'by measured: as_predicted, more or less. More and less '
            'contradict the prediction.', 'measured')

    def serve(self, address, port):
        """Serve the metrics at an address, instead of an earlier address.

        :param address: IP address to listen on
        :param port: TCP port
        :raises OSError: if the address cannot be used
        """
        if (address, port) == self.served_at:
            return
        self.close()
        self._listener = metrics_server.Listener(
            address, port, prometheus_client.make_wsgi_app(self._registry))
        self.served_at = address, port

    def close(self):
        """Close the port."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            self.served_at = None
            listener.close()

    def succeeded(self, outcome, members, now):
        """Count a successful pass.

        :param outcome: :class:`.Outcome`
        :param members: number of modelers
        :param now: current time, seconds UTC
        """
        self._passes.observe(outcome.seconds)
        self._last.set(now)
        self._samples.inc(outcome.samples)
        for reason, count in outcome.refused_samples.to_dict().items():
            self._refused_samples.labels(reason).inc(count)
        self._fitted.inc(outcome.fitted)
        self._forgotten.inc(len(outcome.removed))
        self._refused.clear()
        for reason, count in outcome.reasons.items():
            self._refused.labels(reason).set(count)
        self._instances.set(outcome.instances)
        self._waiting.set(outcome.waiting)
        self._generation.set(outcome.generation.number)
        self._members.set(members)
        self._ignored.clear()
        for kind, count in outcome.ignored_kinds.items():
            self._ignored.labels(kind).set(count)

    def waits(self, kind):
        """Report what the modeler waits for.

        :param kind: short text such as 'store', or None if it does not wait
        """
        self._waits.clear()
        for label in {*WAITS, *([kind] if kind else [])}:
            self._waits.labels(label).set(label == kind)

    def budgeted(self, budgets, vm_times=()):
        """Report the error budgets.

        :param budgets: iterable of :class:`.ErrorBudget`
        :param vm_times: list of :class:`.VMTime`
        """
        of_kind = {}
        for budget in budgets:
            of_kind.setdefault(budget.kind, []).append(budget)
        for metric in (self._budgets, self._in_debt, self._left,
                       self._burn_rate, self._unmeasured, self._overspent,
                       self._vm_overload):
            metric.clear()
        for kind, its_budgets in of_kind.items():
            self._budgets.labels(kind).set(len(its_budgets))
            self._in_debt.labels(kind).set(
                sum(budget.in_debt for budget in its_budgets))
            balances = [budget.balance for budget in its_budgets]
            self._left.labels(kind, 'least').set(min(balances))
            self._left.labels(kind, 'mean').set(sum(balances) / len(balances))
            for window in rules.WINDOWS:
                rates = [
                    budget.burn.get(str(window), 0.0) for budget in its_budgets
                ]
                labels = self._burn_rate.labels
                window_name = f'{window // 3600}h'
                labels(kind, 'most', window_name).set(max(rates))
                labels(kind, 'mean', window_name).set(sum(rates) / len(rates))
            unknown = sum(budget.unknown_seconds for budget in its_budgets)
            measured = sum(budget.measured_seconds for budget in its_budgets)
            self._unmeasured.labels(kind).set(
                unknown / max(unknown + measured, 1.0))
            self._overspent.labels(kind).set(
                -sum(min(balance, 0.0) for balance in balances))

        projects = model_store.of_projects(vm_times)
        of_hosts, of_projects = ([time.vm_overload_share for time in times]
                                 for times in (of_kind.get(
                                     model_store.HOST, ()), projects.values()))
        for by, of, value in (
                ('host', 'most', max(of_hosts, default=0.0)),
                ('project', 'most', max(of_projects, default=0.0)),
                ('project', 'mean',
                 sum(time.overload_seconds for time in projects.values())
                 / max(sum(time.seconds for time in projects.values()), 1.0))):
            self._vm_overload.labels(by, of).set(value)
        compared = [budget.prediction
                    for budget in of_kind.get(model_store.HOST, ())
                    if budget.prediction.seconds]
        against = [prediction.deviations for prediction in compared
                   if prediction.contradicted]
        for result, count in (
                ('as_predicted', len(compared) - len(against)),
                ('more', sum(deviations > 0 for deviations in against)),
                ('less', sum(deviations < 0 for deviations in against))):
            self._predictions.labels(result).set(count)

    def failed(self, kind):
        """Count a pass that failed.

        :param kind: short text such as 'store'
        """
        self._failures.labels(kind).inc()
