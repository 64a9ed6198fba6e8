# SPDX-License-Identifier: Apache-2.0
"""Exports the metrics of the modeler to Prometheus.

All values are numbers: a uuid, name or URL is never a label. No port is opened
before :meth:`Metrics.serve`.
"""

from collections.abc import Collection, Iterable

from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import metrics_server
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler import store as model_store

try:
    import prometheus_client
except ImportError:
    prometheus_client = None

__all__ = ['ModelerMetrics']

_PREFIX = 'vswitch_modeler'

#: What a modeler can wait for. Each is exported, with 0 while the modeler does
#: not wait for it.
WAITS = ('configuration', 'telemetry', 'store', 'coordination')

#: {name: (kind, help text, labels)} of the metrics, which the manual prints.
METRICS = {
    'pass_seconds': (
        'summary', 'Passes that succeeded, and how long they took.'),
    'last_success_timestamp_seconds': (
        'gauge', 'When the last pass that succeeded ended, seconds UTC.'),
    'failures': ('counter', 'Passes that failed, by kind.', 'kind'),
    'waiting': (
        'gauge', 'Whether the modeler waits, by cause: its configuration, or '
        'the cause of the failure of the last pass.', 'kind'),
    'samples': ('counter', 'New samples that were counted.'),
    'refused_samples': (
        'counter', 'Samples that were read and refused, by reason.', 'reason'),
    'models_fitted': ('counter', 'Number of fits of models.'),
    'instances_forgotten': ('counter', 'Instances whose model was removed.'),
    'instances_refused': (
        'gauge', 'Instances that got no new model in the last pass, by '
        'reason.', 'reason'),
    'instances': (
        'gauge', 'Instances in telemetry whose models this modeler fits.'),
    'instances_waiting': (
        'gauge', 'Instances with samples but without a model yet.'),
    'ignored': (
        'gauge', 'Resources in telemetry that are ignored, by reason.',
        'reason'),
    'generation': ('gauge', 'Last generation of the store.'),
    'members': ('gauge', 'Modelers that share the instances.'),
    'error_budgets': (
        'gauge', 'Number of error budgets, by kind (host or uplink).', 'kind'),
    'error_budgets_in_debt': (
        'gauge', 'Number of negative error budgets, by kind (host or uplink).',
        'kind'),
    'error_budget_left_seconds': (
        'gauge', 'Remaining seconds of overload in the error budgets, '
        'negative in debt: least and mean, by kind (host or uplink).',
        'kind', 'of'),
    'error_budget_burn_rate': (
        'gauge', 'Overload in a window (1h, 6h, 72h) divided by the limit: '
        'most and mean of the error budgets, by kind (host or uplink).',
        'kind', 'of', 'window'),
    'error_budget_unknown_ratio': (
        'gauge', 'Share of the time in use that was not measured, of all '
        'error budgets, by kind (host or uplink).', 'kind'),
    'error_budget_overspent_seconds': (
        'gauge', 'Seconds of overload that hosts in debt have spent more than '
        'they have earned, by kind (host or uplink).', 'kind'),
    'vm_overload_ratio': (
        'gauge', 'Share of the time of instances in which the host was '
        'overloaded and the instance itself did not exceed the capacity: '
        'maximum of the hosts (since their budgets began), and maximum and '
        'mean of the projects (in the last seven days).', 'by', 'of'),
    'host_predictions': (
        'gauge', 'Hosts whose predicted overload was compared with '
        'measurements, by measured: as_predicted, more or less. More and less '
        'contradict the prediction.', 'measured'),
}


class ModelerMetrics:
    """Counts the results of passes, and serves them over HTTP.

    :raises InvalidInput: if prometheus_client is not installed
    """

    def __init__(self):
        if prometheus_client is None:
            raise exceptions.NotInstalled(
                thing='modeler_metrics_port', library='prometheus_client',
                extra='metrics')
        self._registry = prometheus_client.CollectorRegistry()
        self._listener = None
        #: (address, port) that is listened on, or None.
        self.served_at = None

        kinds = {'counter': prometheus_client.Counter,
                 'gauge': prometheus_client.Gauge,
                 'summary': prometheus_client.Summary}
        self._of = {
            name: kinds[kind](f'{_PREFIX}_{name}', text, labels,
                              registry=self._registry)
            for name, (kind, text, *labels) in METRICS.items()}
        self.waits(None)

    def serve(self, address: str, port: int) -> None:
        """Serve the metrics at an address, instead of an earlier address.

        :raises OSError: if the address cannot be used
        """
        if (address, port) == self.served_at:
            return
        self.close()
        self._listener = metrics_server.Listener(
            address, port, prometheus_client.make_wsgi_app(self._registry))
        self.served_at = address, port

    def close(self) -> None:
        """Close the port."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            self.served_at = None
            listener.close()

    def succeeded(self, outcome: learning.Outcome, members: int,
                  now: float) -> None:
        """Count a successful pass."""
        self._of['pass_seconds'].observe(outcome.seconds)
        self._of['last_success_timestamp_seconds'].set(now)
        self._of['samples'].inc(outcome.samples)
        for reason, count in outcome.refused_samples.to_dict().items():
            self._of['refused_samples'].labels(reason).inc(count)
        self._of['models_fitted'].inc(outcome.fitted)
        self._of['instances_forgotten'].inc(len(outcome.removed))
        self._of['instances_refused'].clear()
        for reason, count in outcome.reasons.items():
            self._of['instances_refused'].labels(reason).set(count)
        self._of['instances'].set(outcome.instances)
        self._of['instances_waiting'].set(outcome.waiting)
        self._of['generation'].set(outcome.generation.number)
        self._of['members'].set(members)
        self._of['ignored'].clear()
        for kind, count in outcome.ignored_kinds.items():
            self._of['ignored'].labels(kind).set(count)

    def waits(self, kind: str | None) -> None:
        """Report what the modeler waits for."""
        self._of['waiting'].clear()
        for label in {*WAITS, *([kind] if kind else [])}:
            self._of['waiting'].labels(label).set(label == kind)

    def budgeted(self, budgets: Iterable[model_store.ErrorBudget],
                 vm_times: Collection[model_store.VMTime] = ()) -> None:
        """Report the error budgets."""
        of_kind = {}
        for budget in budgets:
            of_kind.setdefault(budget.kind, []).append(budget)
        for name in ('error_budgets', 'error_budgets_in_debt',
                     'error_budget_left_seconds', 'error_budget_burn_rate',
                     'error_budget_unknown_ratio',
                     'error_budget_overspent_seconds', 'vm_overload_ratio'):
            self._of[name].clear()
        for kind, its_budgets in of_kind.items():
            self._set_kind(kind, its_budgets)
        of_hosts = of_kind.get(model_store.HOST, ())
        projects = model_store.of_projects(vm_times).values()
        for by, of, value in (
                ('host', 'most', _most_overload(of_hosts)),
                ('project', 'most', _most_overload(projects)),
                ('project', 'mean',
                 sum(time.overload_seconds for time in projects)
                 / max(sum(time.seconds for time in projects), 1.0))):
            self._of['vm_overload_ratio'].labels(by, of).set(value)
        compared = [budget.prediction for budget in of_hosts
                    if budget.prediction.seconds]
        against = [prediction.deviations for prediction in compared
                   if prediction.contradicted]
        for result, count in (
                ('as_predicted', len(compared) - len(against)),
                ('more', sum(deviations > 0 for deviations in against)),
                ('less', sum(deviations < 0 for deviations in against))):
            self._of['host_predictions'].labels(result).set(count)

    def _set_kind(self, kind, budgets):
        """Report the error budgets of a kind."""
        balances = [budget.balance for budget in budgets]
        unknown = sum(budget.unknown_seconds for budget in budgets)
        measured = sum(budget.measured_seconds for budget in budgets)
        for name, labels, value in (
                ('error_budgets', (), len(budgets)),
                ('error_budgets_in_debt', (),
                 sum(budget.in_debt for budget in budgets)),
                ('error_budget_left_seconds', ('least',), min(balances)),
                ('error_budget_left_seconds', ('mean',),
                 sum(balances) / len(balances)),
                ('error_budget_unknown_ratio', (),
                 unknown / max(unknown + measured, 1.0)),
                ('error_budget_overspent_seconds', (),
                 -sum(min(balance, 0.0) for balance in balances))):
            self._of[name].labels(kind, *labels).set(value)
        for window in rules.WINDOWS:
            rates = [budget.burn.get(str(window), 0.0) for budget in budgets]
            for of, rate in (('most', max(rates)),
                             ('mean', sum(rates) / len(rates))):
                self._of['error_budget_burn_rate'].labels(
                    kind, of, f'{window // 3600}h').set(rate)

    def failed(self, kind: str) -> None:
        """Count a pass that failed."""
        self._of['failures'].labels(kind).inc()


def _most_overload(times):
    return max((time.vm_overload_share for time in times), default=0.0)
