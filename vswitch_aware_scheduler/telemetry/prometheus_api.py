# SPDX-License-Identifier: Apache-2.0
"""Requests to the HTTP API of Prometheus."""

from collections.abc import Collection
import contextlib
import re
import typing

import numpy as np

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import service

__all__ = ['PrometheusClient']

#: Maximum length of a selector in the URL of a GET, and in the body of a POST.
_GET_CHARACTERS = 3000
_POST_CHARACTERS = 100000


class PrometheusClient(http.Client):
    """Requests to the HTTP API."""

    @property
    def selector_characters(self) -> int:
        """Return the maximum number of characters of values in a selector."""
        return _GET_CHARACTERS if self._behind_keystone() \
            else _POST_CHARACTERS

    def _behind_keystone(self):
        # Aetos only supports GET.
        auth = self._access.auth
        return auth is not None and auth['auth_type'] != 'http_basic'

    def _items(self, description, path, parameters, keys, read, divisible,
               method='POST', marks=('warnings', 'isPartial')):
        """Send a request, and return ``read(item)`` of each item of a list.

        :param keys: keys that lead to the list in the ``data`` of the answer
        :param marks: members of an answer that is not complete
        """
        def checked(answer):
            if answer['status'] != 'success':
                raise ValueError(f'status {answer["status"]!r}')
            # Such an answer covers only a part of the data, for example
            # because a remote store is down. It is not used, and the next pass
            # reads the same periods again.
            for mark in marks:
                if answer.get(mark):
                    raise ValueError(f'{mark} {answer[mark]!r}')
            content = answer['data']
            if keys and content['resultType'] != 'matrix':
                raise ValueError(f'resultType {content["resultType"]!r}')
            for key in keys:
                content = content[key]
            return service.require_list(content)

        if self._behind_keystone():
            method = 'GET'
        arguments = {'params' if method == 'GET' else 'data': parameters}
        return self.json(
            description, method, f'/api/v1/{path}',
            'an answer of Prometheus without warnings',
            checked, (('data', *keys), read), divisible, **arguments)[0]

    def series(self, selector: str, start: float, end: float,
               names: Collection[str], divisible: bool
               ) -> list[dict[str, str]]:
        """Return the labels of the series that existed in a period of time.

        :param start: seconds UTC
        :param end: seconds UTC
        """
        def read(labels):
            return {name: _text(labels[name]) for name in names
                    if name in labels}

        return self._items(
            f'series of {http.shown(selector)}', 'series',
            {'match[]': selector, 'start': f'{start:.3f}',
             'end': f'{end:.3f}'}, (), read, divisible)

    def values(self, label: str, selector: str, start: float, end: float
               ) -> list[str]:
        """Return the values of a label, about a thousand at most.

        :param start: seconds UTC
        :param end: seconds UTC
        """
        try:
            return self._items(
                f'values of {label} of {http.shown(selector)}',
                f'label/{label}/values',
                {'match[]': selector, 'start': f'{start:.3f}',
                 'end': f'{end:.3f}', 'limit': '1000'}, (), _text, False,
                method='GET', marks=('isPartial',))
        except http.Refusal as refusal:
            if refusal.status != 404:
                raise
            # A server without this request.
            labels = self.series(selector, start, end, {label}, False)
            return sorted({found[label] for found in labels if label in found})

    def server(self) -> dict[str, typing.Any]:
        """Return {'server': what answers, 'limits': {name: value}}."""
        def get(path):
            with contextlib.suppress(exceptions.TelemetryError):
                return self.json(path, 'GET', path, 'facts about the server',
                                 lambda answer: answer['data'])[0]
            return {}

        build = get('/api/v1/status/buildinfo')
        flags = get('/api/v1/status/flags')
        name = build.get('application') or (
            'Prometheus' if 'storage.tsdb.path' in flags else
            'a server with the API of Prometheus')
        return {
            'server': f'{name} {build.get("version", "")}'.strip(),
            'limits': {name: value for name, value in sorted(flags.items())
                       if name.startswith(('query.', 'storage.remote.read'))
                       and re.search('max|timeout|limit', name)}}

    def samples(self, selector: str, start: float, end: float,
                divisible: bool
                ) -> list[tuple[dict[str, str], np.ndarray, np.ndarray]]:
        """Return [(labels, times, values)], ``start <= times < end``.

        A series without usable readings, such as a native histogram, has no
        times and values.

        :param start: seconds UTC
        :param end: seconds UTC
        """
        def read(series):
            labels = {str(name): _text(value)
                      for name, value in series['metric'].items()}
            readings = series.get('values', ())
            times = service.numbers([_at(reading, 0) for reading in readings])
            values = service.numbers([_at(reading, 1)
                                      for reading in readings])
            inside = (times >= start) & (times < end)
            return labels, times[inside], values[inside]

        # The range of Prometheus 2 includes both of its ends, that of
        # Prometheus 3 only the later one. To work with both, the range starts
        # and ends one millisecond earlier.
        milliseconds = round((end - start) * 1000)
        return self._items(
            f'samples of {http.shown(selector)}', 'query',
            {'query': f'{selector}[{milliseconds}ms]',
             'time': f'{end - .001:.3f}'}, ('result',), read, divisible)


def _text(value):
    return value if isinstance(value, str) else repr(value)


def _at(reading, number):
    """Return one of the two values of a reading, or None if missing."""
    if isinstance(reading, list) and len(reading) == 2:
        return reading[number]
    return None
