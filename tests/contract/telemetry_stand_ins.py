# SPDX-License-Identifier: Apache-2.0
"""Stand-ins, at the wire, for the servers that drivers ask.

Each answers the part of an API that a driver uses, in the form that the real
server was seen to answer in; ``tests/integration`` runs the same suite
against the real ones. Faults can be put before the answers.
"""

import collections
import contextlib
import datetime
import functools
import http.server
import json
import math
import re
import threading
import time
import urllib.parse
import uuid

import fixtures
import numpy as np

from tests.contract import telemetry_counters


class StandIn(fixtures.Fixture):
    """An HTTP server on the loopback interface.

    :ivar faults: what happens to the next requests, one each: None for
        nothing, or a callable that takes the handler and the answer
    :ivar requests: (method, path, parameters, body) of all requests
    """

    def _setUp(self):
        self.faults = []
        self.requests = []
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'
            # Headers and a short body are sent together. What follows would
            # otherwise wait 40 ms for the client's acknowledgement.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_GET(self):
                stand_in._handle(self)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), Handler)
        self._server.daemon_threads = True
        # A client that does not read to the end is no problem here.
        self._server.handle_error = lambda *_: None
        self.port = self._server.server_address[1]
        self.url = f'http://127.0.0.1:{self.port}'
        thread = threading.Thread(
            target=self._server.serve_forever, args=(.02,), daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self._server.server_close)
        self.addCleanup(self._server.shutdown)

    def _handle(self, handler):
        length = int(handler.headers.get('Content-Length') or 0)
        body = handler.rfile.read(length)
        path, _, query = handler.path.partition('?')
        parameters = urllib.parse.parse_qs(query, keep_blank_values=True)
        if handler.headers.get('Content-Type', '').startswith(
                'application/x-www-form-urlencoded'):
            parameters.update(urllib.parse.parse_qs(body.decode()))
            body = b''
        self.requests.append((handler.command, path, parameters, body))
        status, answer = self.answer(
            handler.command, path, parameters,
            json.loads(body) if body else None)
        fault = self.faults.pop(0) if self.faults else None
        with contextlib.suppress(ConnectionError):
            if fault is None:
                send(handler, status, b'' if answer is None
                     else json.dumps(answer).encode())
            else:
                fault(handler, status, answer)

    def answer(self, method, path, parameters, body):
        raise NotImplementedError


class OpenStack(StandIn):
    """Services below one URL, each asked for its versions first.

    Those are no requests, and have no faults.

    :ivar most: largest number of items on a page of a list
    """

    most = 1000

    def _handle(self, handler):
        # Neutron's is asked for at the root.
        path = handler.path.rstrip('/') or '/v2.0'
        if path not in _VERSIONS:
            return super()._handle(handler)
        version = {**_VERSIONS[path], 'status': 'CURRENT', 'links': [
            {'rel': 'self', 'href': f'{self.url}{path}/'}]}
        send(handler, 200, json.dumps(
            {'version': version} if path == '/v2.1'
            else {'versions': [version]}).encode())

    def _page(self, kind, parameters, items):
        limit = min(int(parameters['limit'][0]), self.most)
        first = 0
        if 'marker' in parameters:
            first = 1 + [item['id'] for item in items].index(
                parameters['marker'][0])
        page = {kind: items[first:first + limit]}
        if len(items) > first + limit:
            page[f'{kind}_links'] = [{'rel': 'next', 'href': 'anywhere'}]
        return 200, page


_VERSIONS = {
    '/v2.1': {'id': 'v2.1', 'version': '2.104', 'min_version': '2.1'},
    '/v2.0': {'id': 'v2.0'},
    '/placement': {'id': 'v1.0', 'max_version': '1.39',
                   'min_version': '1.0'}}


# Faults

def send(handler, status, body, headers=(), length=None):
    handler.send_response(status)
    handler.send_header('Content-Type', 'application/json')
    handler.send_header('Content-Length',
                        str(len(body) if length is None else length))
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def status(code, body=b'no', headers=()):
    def fault(handler, _status, _answer):
        send(handler, code, body, headers)
    return fault


def body(content):
    """Answer with other content, and success."""
    def fault(handler, _status, _answer):
        send(handler, 200, content)
    return fault


def changed(change):
    """Answer with what a function makes of the answer."""
    def fault(handler, code, answer):
        send(handler, code, json.dumps(change(answer)).encode())
    return fault


def cut(handler, code, answer):
    """Break off in the middle of the answer."""
    content = json.dumps(answer).encode()
    send(handler, code, content[:len(content) // 2], length=len(content))
    handler.close_connection = True


def closed(handler, _status, _answer):
    """Close the connection without an answer."""
    handler.close_connection = True


def silent(seconds):
    """Say nothing for so long."""
    def fault(handler, _status, _answer):
        time.sleep(seconds)
        handler.close_connection = True
    return fault


@functools.lru_cache(100_000)
def _iso(seconds):
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).isoformat()


def _seconds(text):
    moment = datetime.datetime.fromisoformat(text)
    return moment.replace(tzinfo=datetime.timezone.utc).timestamp()


class Gnocchi(StandIn):
    """Gnocchi 4.7, of interfaces that Ceilometer publishes."""

    def __init__(self, interfaces, methods=('mean', 'rate:mean'),
                 granularity=300, max_limit=1000):
        super().__init__()
        self.max_limit = max_limit
        self.granularity = granularity
        #: {resource id: Interface}, and what of it a test may change.
        self.interfaces = {}
        self.methods = {}
        self.metrics = {}
        self.ended = {}
        self.creators = collections.defaultdict(lambda: 'ceilometer:service')
        for interface in interfaces:
            resource = str(uuid.uuid5(uuid.NAMESPACE_URL, interface.resource))
            self.interfaces[resource] = interface
            self.methods[resource] = list(methods)
            self.metrics[resource] = {
                name: str(uuid.uuid5(uuid.UUID(resource), name))
                for name in telemetry_counters.METRICS}

    def answer(self, method, path, parameters, body):
        if path == '/v1/search/resource/instance_network_interface':
            return 200, self._page(parameters, [
                self._resource(resource) for resource in self.interfaces
                if self._matches(body, resource)])
        if path == '/v1/metric':
            return 200, self._page(parameters, [
                metric for resource in self.interfaces
                for metric in self._metrics(resource)
                if metric['name'] in parameters['name']
                and self.creators[resource] in parameters.get(
                    'creator', [self.creators[resource]])])
        match = re.fullmatch(
            '/v1/resource/instance_network_interface/(.*)/metric', path)
        if match:
            if match[1] not in self.interfaces:
                return 404, 'Resource does not exist'
            return 200, self._metrics(match[1])
        if path == '/v1/aggregates':
            return self._aggregates(parameters, body)
        return 404, 'not found'

    def _page(self, parameters, items):
        items = sorted(items, key=lambda item: item['id'])
        if 'marker' in parameters:
            items = [item for item in items
                     if item['id'] > parameters['marker'][0]]
        return items[:min(int(parameters['limit'][0]), self.max_limit)]

    def _matches(self, search, resource):
        (operator, condition), = search.items()
        if operator in ('and', 'or'):
            return {'and': all, 'or': any}[operator](
                [self._matches(operand, resource) for operand in condition])
        if operator == 'not':
            return not self._matches(condition, resource)
        (attribute, value), = condition.items()
        actual = {'id': resource, 'creator': self.creators[resource],
                  'instance_id': self.interfaces[resource].instance_uuid}[
                      attribute]
        if operator == 'like':
            return re.fullmatch(re.escape(value).replace('%', '.*'),
                                actual) is not None
        return {'in': lambda: actual in value, '!=': lambda: actual != value,
                '=': lambda: actual == value}[operator]()

    def _resource(self, resource):
        interface = self.interfaces[resource]
        return {'id': resource, 'type': 'instance_network_interface',
                'original_resource_id': interface.resource,
                'name': interface.tap,
                'instance_id': interface.instance_uuid, 'project_id': None,
                'started_at': _iso(next(iter(interface.times), 0)),
                'ended_at': self.ended.get(resource),
                'creator': self.creators[resource],
                'metrics': self.metrics[resource]}

    def _metrics(self, resource):
        minutes = self.granularity // 60
        return [{'id': id_, 'name': name, 'resource_id': resource,
                 'archive_policy': {
                     'name': 'policy', 'back_window': 0,
                     'definition': [{'granularity': f'0:{minutes:02}:00',
                                     'timespan': '30 days, 0:00:00',
                                     'points': 8640}],
                     'aggregation_methods': self.methods[resource]}}
                for name, id_ in self.metrics[resource].items()]

    def _aggregates(self, parameters, body):
        step = int(parameters['granularity'][0])
        if step != self.granularity:
            return 400, 'Granularities are missing'
        start = _seconds(parameters['start'][0]) \
            if 'start' in parameters else -np.inf
        stop = _seconds(parameters['stop'][0])
        groups = {}
        for resource in body['search']['in']['id']:
            if resource not in self.interfaces:
                continue
            interface = self.interfaces[resource]
            measures = groups.setdefault(
                interface.instance_uuid, {}).setdefault(resource, {})
            for name, method in body['operations'][1:]:
                if name not in self.metrics[resource]:
                    continue
                if method not in self.methods[resource]:
                    return 404, 'Metrics with unknown aggregation'
                measures[name] = {method: [
                    [_iso(time), float(step), value] for time, value
                    in self._points(interface, name, method, step)
                    if start <= time < stop]}
        if not groups:
            return 404, "Metric ['network.outgoing.bytes'] does not exist"
        return 200, [{'group': {'instance_id': instance},
                      'measures': {'measures': measures}}
                     for instance, measures in groups.items()]

    @staticmethod
    def _points(interface, name, method, step):
        values = interface.counters[:, telemetry_counters.METRICS.index(name)]
        times = interface.times
        if method.startswith('rate:'):
            times, values = times[1:], np.diff(values)
        points = {}
        for at, value in zip(times.tolist(), values.tolist()):
            points.setdefault(at // step * step, []).append(value)
        pick = {'mean': _mean, 'rate:mean': _mean, 'max': max, 'min': min,
                'last': lambda values: values[-1]}[method]
        return [(at, float(pick(values))) for at, values in points.items()]


def _mean(values):
    return math.fsum(values) / len(values)


def ceilometer_series(interfaces):
    """Return [(name, labels, times, values)] as Ceilometer exports them."""
    return [('ceilometer_' + metric.replace('.', '_'),
             {'resource': interface.resource, 'vm_instance': 'host-1',
              'instance': 'compute-1:9101', 'job': 'ceilometer'},
             interface.times, interface.counters[:, column])
            for column, metric in enumerate(telemetry_counters.METRICS)
            for interface in interfaces]


def libvirt_series(interfaces, exporter='inovex'):
    """Return [(name, labels, times, values)] as libvirt exporters do."""
    name, label = {
        'inovex': ('libvirt_domain_openstack_info', 'instance_id'),
        'tinkoff': ('libvirt_domain_info_meta', 'uuid')}[exporter]
    where = {'instance': 'compute-1:9177', 'job': 'libvirt'}
    traffic = [(f'libvirt_domain_interface_stats_{counter}_total',
                {'domain': tap.domain, 'target_device': tap.tap, **where},
                tap.times, tap.counters[:, column])
               for column, counter in enumerate((
                   'transmit_bytes', 'receive_bytes', 'transmit_packets',
                   'receive_packets'))
               for tap in interfaces]
    return traffic + [
        (name, {'domain': tap.domain, label: tap.instance_uuid, **where},
         tap.times, np.ones(len(tap.times)))
        for tap in interfaces if not tap.device]


def _direct(name, label, tap_label, series):
    """Return series as exporters make them whose counters have the uuid."""
    return [(name.format(way=way, kind=kind),
             {label: tap.instance_uuid, 'domain': tap.domain,
              tap_label: tap.tap, 'instance': 'compute-1:9177'},
             tap.times, tap.counters[:, column])
            for column, (way, kind) in enumerate((
                ('transmit', 'bytes'), ('receive', 'bytes'),
                ('transmit', 'packets'), ('receive', 'packets')))
            for tap in series]


_LIBVIRT = 'libvirt_domain_interface_stats_{way}_{kind}_total'
#: What exporters serve that cannot be used.
UNUSABLE_SHAPES = {
    'a libvirt exporter without uuids': lambda interfaces: [
        row for row in libvirt_series(interfaces)
        if not row[0].endswith('info')],
    'node_exporter': lambda interfaces: [
        (f'node_network_{way}_bytes_total',
         {'device': tap.tap, 'instance': 'compute-1:9100'}, tap.times,
         tap.counters[:, column]) for tap in interfaces
        for column, way in enumerate(('transmit', 'receive'))],
    'openstack-exporter': lambda interfaces: [
        ('openstack_nova_server_status',
         {'id': tap.instance_uuid, 'status': 'ACTIVE'}, tap.times,
         0 * tap.times) for tap in interfaces],
    'KubeVirt': lambda interfaces: [
        (f'kubevirt_vmi_network_{way}_bytes_total', {'name': tap.domain},
         tap.times, tap.counters[:, column]) for tap in interfaces
        for column, way in enumerate(('transmit', 'receive'))],
    'the exporter of Ceilometer before October 2024': lambda interfaces: [
        (f'{name}_total', *row)
        for name, *row in ceilometer_series(interfaces)],
}

#: What each exporter is known to serve.
SHAPES = {
    'ceilometer': ceilometer_series,
    'ceilometer-pushgateway': lambda interfaces: [
        (name.removeprefix('ceilometer_'),
         {'resource_id': labels['resource'], 'user_id': 'u',
          'project_id': 'p', 'job': 'ceilometer'}, *data)
        for name, labels, *data in ceilometer_series(interfaces)],
    'libvirt-inovex': libvirt_series,
    'libvirt-tinkoff': lambda interfaces: libvirt_series(
        interfaces, 'tinkoff'),
    'libvirt-zhangjianweibj': lambda interfaces: _direct(
        _LIBVIRT, 'instanceId', 'target_device', interfaces),
    'libvirt-kumina': lambda interfaces: _direct(
        _LIBVIRT, 'uuid', 'target_device', interfaces),
    'libvirtd-vexxhost': lambda interfaces: [
        (name.replace('transmit', 'tx').replace('receive', 'rx'), *data)
        for name, *data in _direct(
            'libvirtd_domain_net_{way}_{kind}', 'uuid', 'interface',
            interfaces)],
}


class Prometheus(StandIn):
    """The HTTP API of Prometheus, of series that are given.

    :ivar limit: None, or callable(characters of the selector, selected
        series), returns whether a server refuses the request
    :ivar refusal: (status, body) of such a refusal
    :ivar marks: members added to each answer
    """

    def __init__(self, series, max_samples=50000000):
        super().__init__()
        self.series = series
        self.max_samples = max_samples
        self.limit = None
        self.refusal = 422, {'status': 'error', 'error': 'too much'}
        self.marks = {}

    def answer(self, method, path, parameters, body):
        if path == '/api/v1/series':
            selected = self._found(parameters['match[]'][0],
                                   float(parameters['start'][0]),
                                   float(parameters['end'][0]))
            if self.limit and self.limit(parameters['match[]'][0], selected):
                return self.refusal
            return 200, self._success([labels for labels, _, _ in selected])
        match = re.fullmatch('/api/v1/label/(.*)/values', path)
        if match:
            return 200, self._success(sorted({
                labels[match[1]] for labels, _, _ in self._found(
                    parameters['match[]'][0], float(parameters['start'][0]),
                    float(parameters['end'][0])) if match[1] in labels}))
        if path == '/api/v1/query':
            match = re.fullmatch(r'(.*)\[(\d+)ms\]',
                                 parameters['query'][0], re.DOTALL)
            end = float(parameters['time'][0])
            selected = self._found(match[1], end - int(match[2]) / 1000, end)
            if self.limit and self.limit(match[1], selected):
                return self.refusal
            if sum(len(times) for _, times, _ in selected) > self.max_samples:
                return 422, {
                    'status': 'error', 'errorType': 'execution',
                    'error': 'query processing would load too many samples '
                             'into memory in query execution'}
            return 200, self._success({'resultType': 'matrix', 'result': [
                {'metric': labels, 'values': [
                    [time, repr(value)] for time, value
                    in zip(times.tolist(), values.tolist())]}
                for labels, times, values in selected]})
        return 404, {'status': 'error'}

    def _success(self, data):
        return {'status': 'success', 'data': data, **self.marks}

    def _found(self, selector, start, end):
        name, _, rest = selector.partition('{')
        matchers = re.findall(r'(\w+)(=~|=)"((?:[^"\\]|\\.)*)"', rest)
        selected = []
        for metric, labels, times, values in self.series:
            if metric != name:
                continue
            for label, operator, value in matchers:
                value = re.sub(r'\\(.)', r'\1', value)
                pattern = value if operator == '=~' else re.escape(value)
                if not re.fullmatch(pattern, labels.get(label, '')):
                    break
            else:
                inside = (times >= start) & (times <= end)
                if inside.any():
                    selected.append(({'__name__': metric, **labels},
                                     times[inside], values[inside]))
        return selected


class Ceilometer(StandIn):
    """Statistics of the Ceilometer v2 API, as 8.1 answers them."""

    def __init__(self, interfaces):
        super().__init__()
        self.interfaces = interfaces

    def answer(self, method, path, parameters, body):
        match = re.fullmatch('/v2/meters/(.*).rate/statistics', path)
        if not match:
            return 404, {'error_message': 'not found'}
        column = telemetry_counters.METRICS.index(match[1])
        conditions = {
            (field, operator): value for field, operator, value in zip(
                parameters['q.field'], parameters['q.op'],
                parameters['q.value'])}
        start = _seconds(conditions.get(('timestamp', 'ge'), '1970-01-01'))
        end = _seconds(conditions.get(('timestamp', 'lt'), '2100-01-01'))
        answer = []
        for interface in self.interfaces:
            resource = interface.resource
            if conditions.get(('resource_id', 'eq'), resource) != resource:
                continue
            times, values = interface.rate_times, interface.rates[:, column]
            inside = (times >= start) & (times < end) & ~np.isnan(values)
            times, values = times[inside], values[inside]
            if 'groupby' in parameters and times.size:
                answer.append(self._statistics(
                    times, values, None, 0, {'resource_id': resource}))
            if 'period' in parameters:
                step = int(parameters['period'][0])
                numbers = (times - start) // step
                begins = np.flatnonzero(np.diff(numbers, prepend=np.nan))
                for number, *of_period in zip(
                        numbers[begins].tolist(),
                        np.split(times, begins[1:]),
                        np.split(values, begins[1:])):
                    answer.append(self._statistics(
                        *of_period, start + number * step, step, None))
        return 200, answer

    @staticmethod
    def _statistics(times, values, start, period, groupby):
        def stamp(seconds):
            return _iso(seconds)[:-6]

        times, values = times.tolist(), values.tolist()
        start = times[0] if start is None else start
        return {'count': len(times), 'avg': _mean(values),
                'min': min(values), 'max': max(values),
                'sum': math.fsum(values), 'unit': 'B/s', 'period': period,
                'groupby': groupby, 'period_start': stamp(start),
                'period_end': stamp(start + period),
                'duration_start': stamp(times[0]),
                'duration_end': stamp(times[-1])}
