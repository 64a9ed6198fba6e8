# SPDX-License-Identifier: Apache-2.0
"""Exports the metrics of a nova-scheduler worker to Prometheus.

Each worker serves its metrics at its own port, or writes a file for the
textfile collector of node_exporter. Labels have few values: checks, and the
names of at most :data:`MOST_PROFILES` switch profiles. A host, a uuid or a
name that a tenant chooses is never a label. Unless an option enables the
metrics, nothing is counted, served or written. An error never fails a request.
"""

from __future__ import annotations

from collections import abc
import contextlib
import math
import os
import pathlib
import time
import typing

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import metrics_server
from vswitch_aware_scheduler.scheduler import worker_thread

try:
    import prometheus_client
    from prometheus_client import core
except ImportError:
    prometheus_client = None

__all__ = ['Metrics', 'Risk', 'texts']

LOG = logs.get_logger(__name__)

_PREFIX = 'vswitch_scheduler'

#: Seconds between two writings of the file, and the age in seconds after which
#: the file of a worker that has died is removed.
WRITE_SECONDS = 15.0
STALE_SECONDS = 600.0

_COUNTERS = {
    'requests_judged': 'Instances that hosts were judged for.',
    'requests_without_host':
        'Instances for which VSwitchFilter passed no host, without requests '
        'that name their host.',
    'requests_with_avoided_hosts_only':
        'Instances for which only hosts passed that should get no new '
        'instances: hosts in debt, or with a large neighbour.',
    'hosts_judged': 'Hosts that were judged.',
    'hosts_observed': 'Hosts that would have been refused and passed, because '
                      'they are only observed.',
    'hosts_refused': 'Hosts that a check refuses, or would refuse, by the '
                     'first such check.',
    'requests_unjudged':
        'Requests whose hosts all passed unjudged, because of an error, or of '
        'the store with degraded_policy "pass".'}

#: Labels of counters, and all their values. Why hosts pass unjudged: an error
#: in the plugin, or the state of the store with degraded_policy "pass".
_LABELS = {'hosts_refused': ('check', explanation.CHECKS),
           'requests_unjudged': ('why', ('error', 'store'))}

#: Names of the histograms.
DECISION, CLAIM = 'decision_seconds', 'claim_seconds'
_HISTOGRAMS = {DECISION: 'Time that VSwitchFilter took for a request.',
               CLAIM: 'Time that a request waited for a claim.'}

#: Upper bounds of the buckets of the time of a decision, in seconds.
_BUCKETS = (.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1., 5.)

_GAUGES = {
    'degraded': 'Whether the store cannot be read or is stale.',
    'generation': 'Generation of the store in use.',
    'hosts': 'Hosts that this worker knows.',
    'claims': "Placements of this worker that Nova's record does not show "
              'yet.',
    'claims_of_others': "Placements of other workers that Nova's record does "
                        'not show yet.',
    'record_age_seconds': "Age of this worker's record of Nova's instances, "
                          'of the cell that was read longest ago.'}


#: Counters of :attr:`.Claims.counts`.
_CLAIMS = {
    'claims_made': 'Hosts that requests have claimed or tried to claim.',
    'claim_conflicts': 'Hosts that passed the filter and had no room any more '
                       'when a request claimed them.',
    'claim_misses': 'Claims that did not wait for the store.',
    'claims_over_limit': 'Claims that did not wait for the store, and whose '
                         'host was above its limit when the store had them.',
    'claims_elsewhere': 'Claims whose instance Nova placed on another host, '
                        'mostly an alternate.',
    'requests_refused_by_withdrawn_claims':
        'Requests that found no host, maybe because of a claim that was '
        'withdrawn later.'}


#: Maximum number of profiles whose risk is exported, those with the highest
#: risk first. Each name is a time series in Prometheus.
MOST_PROFILES = 50


class Risk(typing.NamedTuple):
    """The predicted overload of the hosts of a switch profile."""

    hosts: int
    mean: float
    highest: float
    above_limit: int


_RISKS = {
    'profile_hosts': ('Hosts with a profile.', 'hosts'),
    'profile_hosts_above_limit': (
        'Hosts whose predicted overload probability is above their limit.',
        'above_limit'),
    'profile_overload_probability_mean': (
        'Mean predicted overload probability of the hosts with a profile.',
        'mean'),
    'profile_overload_probability_highest': (
        'Highest predicted overload probability of the hosts with a profile.',
        'highest')}


def texts() -> dict[str, str]:
    """Return {name: help text} of all metrics, which the manual prints."""
    return {
        **{f'{name}_total': text
           for name, text in {**_COUNTERS, **_CLAIMS}.items()},
        **_HISTOGRAMS, **_GAUGES,
        **{f'{name}{{profile}}': text for name, (text, _) in _RISKS.items()}}


class Metrics:
    """The metrics of one process. The constructor opens nothing."""

    def __init__(self) -> None:
        self._counters = {}      # of prometheus_client, by name
        self._listener: typing.Any = None
        self._thread: worker_thread.WorkerThread | None = None
        self._path = ''
        #: (address, port) that is listened on, or None.
        self.served_at: tuple[str, int] | None = None

    def open(self, conf: typing.Any, report: aggregate_metadata.Report,
             gauges: abc.Callable[[], dict[str, typing.Any]]) -> None:
        """Start to count, if an option enables the metrics.

        :param gauges: returns {name of a gauge: value or None, 'risks': {name
            of a profile: Risk}, 'counts': :attr:`.Claims.counts`}
        """
        port, directory = (conf.scheduler_metrics_port,
                           conf.scheduler_metrics_directory)
        if not port and not directory:
            return
        self._report = report
        if prometheus_client is None:
            report('metrics', 'prometheus_client is not installed; install '
                              'the extra "metrics" of the package')
            return
        registry = prometheus_client.CollectorRegistry()
        counters = _counters(registry)
        registry.register(_Gauges(gauges))
        if port:
            self._serve(conf.scheduler_metrics_address, port,
                        conf.scheduler_metrics_ports, registry)
        if directory:
            self._path = os.path.join(
                directory, f'{_PREFIX}_{os.getpid()}.prom')
            self._thread = worker_thread.WorkerThread(
                'vswitch-metrics', self.step)
            self._registry = registry
            self._thread.start()
        self._counters = counters

    def _serve(self, address, first, number, registry):
        last = min(first + number - 1, 65535)
        application = prometheus_client.make_wsgi_app(registry)
        for port in range(first, last + 1):
            try:
                self._listener = metrics_server.Listener(
                    address, port, application, 'vswitch-metrics-server')
            except OSError as error:
                problem = error
                continue
            self.served_at = address, port
            self._report('metrics', None)
            LOG.info('vswitch: metrics of this worker are at %s:%d', address,
                     port)
            return
        self._report('metrics', (
            f'no port of {address}:{first} to {last} can be listened on: '
            f'{problem}; scheduling goes on'))

    def close(self) -> None:
        """Close the port and remove the file."""
        listener, self._listener = self._listener, None
        if listener is not None:
            self.served_at = None
            listener.close()
        if self._thread is not None:
            self._thread.stop()
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def step(self) -> float:
        """Write the file."""
        try:
            prometheus_client.write_to_textfile(self._path, self._registry)
            _remove_stale(pathlib.Path(self._path).parent)
            problem = None
        except Exception as error:
            problem = f'{type(error).__name__}: {error}; scheduling goes on'
        self._report('metrics file', problem)
        return WRITE_SECONDS

    # What the filter does.

    def judged(self, assessment: admission.Assessment,
               any_passes: bool) -> None:
        """Count how the hosts of a request were judged.

        :param any_passes: also if the request names its host
        """
        if not self._counters:
            return
        self._count('requests_judged')
        self._count('hosts_judged', len(assessment.rows))
        for check, number in explanation.counts(assessment).items():
            self._count('hosts_refused', number, check)
        self._count('hosts_observed', explanation.observed(assessment))
        if not any_passes:
            self._count('requests_without_host')
        elif assessment.only_last:
            self._count('requests_with_avoided_hosts_only')

    def unjudged(self, why: str) -> None:
        """Count a request whose hosts all pass unjudged."""
        self._count('requests_unjudged', 1, why)

    def _count(self, name, number=1, *labels):
        if self._counters:
            counter = self._counters[name]
            (counter.labels(*labels) if labels else counter).inc(number)

    def took(self, name: str, seconds: float) -> None:
        """Record the seconds of a decision or a claim, by its histogram."""
        if self._counters:
            self._counters[name].observe(seconds)


def _counters(registry):
    counters = {}
    for name, text in _COUNTERS.items():
        label, values = _LABELS.get(name, (None, ()))
        counters[name] = prometheus_client.Counter(
            f'{_PREFIX}_{name}', text, [label] if label else [],
            registry=registry)
        # Export a counter that never counted as 0 instead of omitting it.
        for value in values:
            counters[name].labels(value)
    for name, text in _HISTOGRAMS.items():
        counters[name] = prometheus_client.Histogram(
            f'{_PREFIX}_{name}', text, buckets=_BUCKETS, registry=registry)
    return counters


class _Gauges:
    """Computes the values of the gauges when Prometheus reads them."""

    def __init__(self, values):
        self._values = values

    def collect(self):
        """Yield the gauges."""
        values = self._values()
        for name, text in _GAUGES.items():
            value = values[name]
            yield core.GaugeMetricFamily(
                f'{_PREFIX}_{name}', text,
                value=math.nan if value is None else float(value))
        for name, text in _CLAIMS.items():
            yield core.CounterMetricFamily(
                f'{_PREFIX}_{name}', text, value=values['counts'][name])
        risks = sorted(values['risks'].items(),
                       key=lambda item: (-item[1].highest, item[0]))
        for name, (text, field) in _RISKS.items():
            family = core.GaugeMetricFamily(
                f'{_PREFIX}_{name}', text, labels=['profile'])
            for profile, risk in risks[:MOST_PROFILES]:
                family.add_metric([profile], float(getattr(risk, field)))
            yield family

    def describe(self):
        """Return nothing: the registration does not need the values."""
        return []


def _remove_stale(directory):
    oldest = time.time() - STALE_SECONDS
    # Include the temporary files of workers that were killed during a write.
    for path in directory.glob(f'{_PREFIX}_*.prom*'):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
