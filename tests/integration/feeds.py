# SPDX-License-Identifier: Apache-2.0
"""Brings readings of interfaces into real servers, as Ceilometer would."""

import datetime

import requests

from tests.contract import telemetry_counters

_POLICY = 'vswitch-test'


class GnocchiFeed:
    """Publishes to a :class:`.servers.Gnocchi`."""

    def __init__(self, server, methods=('mean', 'rate:mean'),
                 granularity=300, points=8640, settled=True):
        self._server = server
        self._settled = settled
        self._session = requests.Session()
        self._session.auth = ('admin', '')
        self._post('archive_policy', {
            'name': _POLICY, 'back_window': 0,
            'aggregation_methods': list(methods),
            'definition': [{'granularity': granularity, 'points': points}]})
        self._post('resource_type', {
            'name': 'instance_network_interface', 'attributes': {
                'name': {'type': 'string', 'required': False,
                         'max_length': 255},
                'instance_id': {'type': 'uuid', 'required': True}}})

    def _post(self, path, body):
        answer = self._session.post(f'{self._server.url}/v1/{path}',
                                    json=body, timeout=60)
        if answer.status_code >= 300:
            raise RuntimeError(f'{path}: {answer.status_code} {answer.text}')
        return answer

    def publish(self, interfaces, names=telemetry_counters.METRICS):
        """Create the interfaces and bring in their readings."""
        ids = []
        for interface in interfaces:
            ids.append(self._post('resource/instance_network_interface', {
                'id': interface.resource, 'name': interface.tap,
                'instance_id': interface.instance_uuid, 'metrics': {
                    name: {'archive_policy_name': _POLICY}
                    for name in names}}).json()['metrics'])
        for interface, metrics in zip(interfaces, ids):
            stamps = [datetime.datetime.fromtimestamp(
                time, datetime.timezone.utc).isoformat()
                for time in interface.times.tolist()]
            self._post('batch/metrics/measures', {
                metrics[name]: [
                    {'timestamp': stamp, 'value': value} for stamp, value
                    in zip(stamps, interface.counters[:, column].tolist())]
                for column, name in enumerate(telemetry_counters.METRICS)
                if name in metrics})
        if self._settled:
            self._server.settled()


def open_metrics(series):
    """Yield the lines of series in the OpenMetrics format.

    :param series: list of (name, labels, times, values)
    """
    name = None
    for metric, labels, times, values in series:
        if metric != name:
            name = metric
            yield f'# TYPE {metric} unknown\n'
        inside = ','.join(f'{label}="{value}"'
                          for label, value in labels.items())
        for time, value in zip(times.tolist(), values.tolist()):
            yield f'{metric}{{{inside}}} {value!r} {time!r}\n'
    yield '# EOF\n'


def ceilometer_feed(server, interfaces):
    """Post the rates of interfaces to a :class:`.servers.Ceilometer`."""
    session = requests.Session()
    for interface in interfaces:
        for column, name in enumerate(telemetry_counters.METRICS):
            meter = f'{name}.rate'
            samples = [{
                'counter_name': meter, 'counter_type': 'gauge',
                'counter_unit': 'B/s', 'counter_volume': value,
                'resource_id': interface.resource, 'project_id': 'p',
                'user_id': 'u', 'resource_metadata': {},
                'timestamp': datetime.datetime.fromtimestamp(
                    time, datetime.timezone.utc).isoformat()[:19]}
                for time, value in zip(interface.rate_times.tolist(),
                                       interface.rates[:, column].tolist())
                if value == value]
            if not samples:
                continue
            answer = session.post(
                f'{server.url}/v2/meters/{meter}?direct=True', json=samples,
                timeout=120)
            if answer.status_code >= 300:
                raise RuntimeError(f'{answer.status_code} {answer.text}')
