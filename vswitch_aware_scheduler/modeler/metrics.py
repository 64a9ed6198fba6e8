# SPDX-License-Identifier: Apache-2.0
"""What the modeler tells Prometheus of itself.

Numbers only: no uuid, name or URL is ever a label. Nothing listens before
:meth:`Metrics.serve`. Whoever connects gets one answer within a time; of many
connections the oldest is closed, so that the process always has file
descriptors for its own work.
"""

import contextlib
import socket
import socketserver
import threading
from wsgiref import simple_server

from vswitch_aware_scheduler import exceptions

try:
    import prometheus_client
except ImportError:
    prometheus_client = None

__all__ = ['Metrics']

_PREFIX = 'vswitch_modeler'

#: What a modeler can wait for: each is shown, with 0 while it does not.
WAITS = ('configuration', 'telemetry', 'store', 'coordination')

#: Connections to the metrics port that are open at a time.
MAX_CONNECTIONS = 16

#: A connection is closed after so long, whatever has come by then.
CONNECTION_SECONDS = 10.0


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Serves few connections at a time, each for a limited time."""

    daemon_threads = True
    request_queue_size = 128
    # The threads of connections that were shut down end by themselves.
    block_on_close = False

    def __init__(self, address, port, application):
        family, *_, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        self._lock = threading.Lock()
        self._open = {}
        super().__init__(place[:2], _Handler)
        self.set_app(application)

    def process_request(self, request, client_address):
        with self._lock:
            crowded = len(self._open) >= 2 * MAX_CONNECTIONS
            if len(self._open) >= MAX_CONNECTIONS:
                # One that was shut down is open until its thread ends it.
                for oldest in list(self._open)[:-MAX_CONNECTIONS + 1]:
                    _shut_down(oldest)
            if not crowded:
                timer = threading.Timer(CONNECTION_SECONDS, _shut_down,
                                        (request,))
                timer.daemon = True
                self._open[request] = timer
                timer.start()
        if crowded:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request):
        with self._lock:
            timer = self._open.pop(request, None)
        if timer is not None:
            timer.cancel()
        super().shutdown_request(request)

    def close_connections(self):
        """Shut down every connection."""
        with self._lock:
            for request in self._open:
                _shut_down(request)

    def handle_error(self, request, client_address):
        """Stay silent: a client that goes away is no problem of ours."""


def _shut_down(request):
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(simple_server.WSGIRequestHandler):

    timeout = CONNECTION_SECONDS

    def address_string(self):
        return self.client_address[0]

    def log_message(self, *_):
        pass


class Metrics:
    """Counts what passes did, and serves it over HTTP.

    :raises InvalidInput: when prometheus_client is not installed
    """

    def __init__(self):
        if prometheus_client is None:
            raise exceptions.InvalidInput(
                'prometheus_client is not installed, wanted for '
                'modeler_metrics_port')
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
            'Whether the modeler waits, by what for: its configuration, or '
            'what the last pass failed for.', 'kind')
        self.waits(None)
        self._samples = make(
            counter, 'samples', 'New samples that were counted.')
        self._refused_samples = make(
            counter, 'refused_samples',
            'Samples that were read and refused, by reason.', 'reason')
        self._fitted = make(
            counter, 'models_fitted', 'Models that were fitted anew.')
        self._forgotten = make(
            counter, 'instances_forgotten',
            'Instances whose model was removed.')
        self._refused = make(
            gauge, 'instances_refused',
            'Instances that got no new model in the last pass, by reason.',
            'reason')
        self._instances = make(
            gauge, 'instances',
            'Instances that telemetry knows and this modeler learns of.')
        self._waiting = make(
            gauge, 'instances_waiting',
            'Instances that are counted and have no model yet.')
        self._ignored = make(
            gauge, 'ignored',
            'Resources of telemetry that do not count, by reason.', 'reason')
        self._generation = make(
            gauge, 'generation', 'Last generation of the store.')
        self._members = make(
            gauge, 'members', 'Modelers that share the instances.')
        self._multiple = make(
            gauge, 'limit_multiple',
            'By what feedback multiplies the limit of overload, by the limits '
            'of the hosts.', 'hosts')

    def serve(self, address, port):
        """Answer at this address, and at no other any more.

        :raises OSError: when it cannot be listened on
        """
        if (address, port) == self.served_at:
            return
        self.close()
        server = _Server(address, port,
                         prometheus_client.make_wsgi_app(self._registry))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._listener = server, thread
        self.served_at = address, port

    def close(self):
        """Answer no more."""
        if self._listener is not None:
            server, thread = self._listener
            self._listener = self.served_at = None
            server.shutdown()
            server.server_close()
            server.close_connections()
            thread.join()

    def succeeded(self, outcome, members, now):
        """Count a pass.

        :param outcome: :class:`.cycle.Outcome`
        :param members: number of modelers
        :param now: seconds UTC
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

        :param kind: short, such as 'store', or None for nothing
        """
        self._waits.clear()
        for one in {*WAITS, *([kind] if kind else [])}:
            self._waits.labels(one).set(one == kind)

    def corrected(self, multiples):
        """Tell by what limits are multiplied.

        :param multiples: {kind of host: multiple}
        """
        self._multiple.clear()
        for kind, times in multiples.items():
            self._multiple.labels(kind).set(times)

    def failed(self, kind):
        """Count a pass that failed.

        :param kind: short, such as 'store'
        """
        self._failures.labels(kind).inc()
