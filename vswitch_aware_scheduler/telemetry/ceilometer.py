# SPDX-License-Identifier: Apache-2.0
"""Telemetry from the Ceilometer v2 API, which OpenStack removed in Queens.

The driver reads the statistics of the meters ``network.outgoing.bytes.rate``,
``network.incoming.bytes.rate`` and the same of packets. The queries are those
of python-ceilometerclient 2.9, its last release. Ceilometer has computed these
rates from two samples; the counters are not available.

The API can select one resource or all resources, but not a list. Each
interface therefore needs a request, whose answer contains all periods.
"""

import dataclasses
import math
import re

import numpy as np

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.telemetry import counters
from vswitch_aware_scheduler.telemetry import service

__all__ = ['CeilometerDriver']

_BYTES = ('network.outgoing.bytes.rate', 'network.incoming.bytes.rate')
_PACKETS = ('network.outgoing.packets.rate', 'network.incoming.packets.rate')

# Ceilometer names an interface <domain>-<instance uuid>-<device>.
_RESOURCE = re.compile(
    r'(.*?)-?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})'
    r'-.+', re.IGNORECASE | re.DOTALL)

#: Maximum number of periods in a request: on an SQL database the server makes
#: a query for each of them, also for those without samples.
_MAX_PERIODS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CeilometerSettings(service.ServiceSettings):
    """Options of the driver.

    :ivar period_seconds: period of the statistics and of the samples; not
        shorter than the polling interval of Ceilometer, by default 600 s
    """

    period_seconds: float = 600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period_seconds % 1:
            raise exceptions.InvalidInput(
                thing='telemetry driver: period_seconds',
                value=self.period_seconds, expected='a whole number')


class CeilometerDriver(service.ServiceDriver):
    """Telemetry from a Ceilometer API server, read again in every call."""

    NAME = 'ceilometer'
    SERVICE_TYPE = 'metering'
    SETTINGS = CeilometerSettings

    def instances(self) -> list[base.Instance]:
        """Return the instances that have had samples since the oldest time.

        :raises TelemetryError: if Ceilometer does not answer
        """
        with self._client(_CeilometerClient) as client:
            instance_links = self._interfaces(client, None)
        return [base.Instance(uuid, links[0].domain or uuid)
                for uuid, links in instance_links]

    def _series(self, start, end, instances, progress):
        if instances is not None and not instances:
            progress(0, 0)
            return
        with self._client(_CeilometerClient) as client:
            instance_links = self._interfaces(client, instances)
            progress(0, len(instance_links))
            first, last, oldest = self._bounds(start, end)
            first = max(first, math.floor(oldest / self._period_seconds), 0)
            # Unlike for a counter, no later sample is needed: a period has its
            # rate when it is over.
            last += end == math.inf
            begin = max(0, first - counters.GRACE_PERIODS)
            for done, (uuid, links) in enumerate(instance_links, 1):
                parts = [self._part(client, link, begin, last)
                         for link in links] if first < last else []
                yield counters.instance_series(
                    uuid, self._period_seconds, start,
                    min(end, last * self._period_seconds), parts, oldest)
                progress(done, len(instance_links))

    def _interfaces(self, client, instance_uuids):
        """Return [(instance uuid, [_Interface])], sorted by uuid."""
        since = self._clock() - self._settings.max_age_seconds
        links = {}
        for meter in (*_BYTES, *_PACKETS):
            for resource, span in client.resources(meter, since):
                match = _RESOURCE.fullmatch(resource)
                uuid = match and base.normalised_uuid(match[2])
                if match and uuid and (
                        instance_uuids is None or uuid in instance_uuids):
                    links.setdefault(resource, _Interface(
                        resource, uuid, match[1])).meters[meter] = span
        links_by_uuid = {}
        for resource in sorted(links):
            link = links[resource]
            # Packets alone do not give the traffic. If one direction is
            # missing, its rate is unknown.
            if set(_BYTES) & set(link.meters):
                links_by_uuid.setdefault(link.instance_uuid, []).append(link)
        return sorted(links_by_uuid.items())

    def _part(self, client, link, first, last):
        """Return the :class:`.Part` of an interface."""
        meters = list(_BYTES)
        if set(_PACKETS) <= set(link.meters):
            meters += _PACKETS
        values_of_meters = []
        for meter in meters:
            values = {}
            if meter in link.meters:
                # Start at the first sample. The last one may have a successor
                # by now.
                begin = link.meters[meter] // self._period_seconds
                for low in range(max(first, int(begin)), last,
                                 _MAX_PERIODS):
                    values.update(client.statistics(
                        meter, link.resource, self._period_seconds, low,
                        min(low + _MAX_PERIODS, last)))
            values_of_meters.append(values)
        periods = np.array(sorted(set().union(*values_of_meters)),
                           dtype=np.int64)
        columns = [np.array([values.get(period, math.nan)
                             for period in periods.tolist()])
                   for values in values_of_meters]
        rates = np.zeros((periods.size, 3))
        rates[:, 0] = columns[0] * counters.KBPS_PER_BYTE
        rates[:, 1] = columns[1] * counters.KBPS_PER_BYTE
        if len(columns) == 4:
            rates[:, 2] = (columns[2] + columns[3]) \
                * counters.KPPS_PER_PACKET
        return counters.from_rates(periods, rates)


@dataclasses.dataclass
class _Interface:
    """A network interface of an instance in Ceilometer.

    :ivar meters: {meter: time of its first sample}
    """

    resource: str
    instance_uuid: str
    domain: str
    meters: dict[str, float] = dataclasses.field(default_factory=dict)


class _CeilometerClient(http.Client):
    """Requests to the API, with the queries of ceilometerclient."""

    def __enter__(self):
        options = service.import_client('ceilometerclient.v2.options',
                                        'ceilometer', self._source)
        super().__enter__()
        # The client of the library is not used, because it parses each answer
        # completely, however large.
        self._build_url = options.build_url
        return self

    def resources(self, meter, since):
        """Return [(id, time of its first sample)] since a given time.

        :param since: time in seconds UTC
        """
        def read(item):
            resource = service.require_text(item['groupby']['resource_id'])
            begin = service.seconds(item['duration_start'])
            # If the time of the first sample is unknown, start at ``since``.
            return resource, since if math.isnan(begin) else begin

        return self._statistics(
            f'resources of meter {meter}', meter,
            [_query('timestamp', 'ge', service.iso_time(since))],
            read, ['groupby=resource_id'])

    def statistics(self, meter, resource, period_seconds, first, last):
        """Return {period: mean rate}; periods without a sample are absent.

        A rate that is no number is NaN.

        :param period_seconds: length of a period
        :param first: first period
        :param last: end of the periods, exclusive
        """
        def read(item):
            seconds = service.seconds(item['period_start'])
            value, = service.numbers([item.get('avg')])
            if not math.isfinite(seconds):
                return None, math.nan
            period = round(seconds / period_seconds)
            if not first <= period < last \
                    or abs(period * period_seconds - seconds) > 1:
                return None, math.nan
            return period, float(value) if math.isfinite(value) else math.nan

        rates = dict(self._statistics(
            f'statistics of meter {meter} of {http.shown(resource)}',
            meter,
            [_query('resource_id', 'eq', resource),
             _query('timestamp', 'ge',
                    service.iso_time(first * period_seconds)),
             _query('timestamp', 'lt',
                    service.iso_time(last * period_seconds))],
            read, [f'period={int(period_seconds)}']))
        rates.pop(None, None)
        return rates

    def _statistics(self, description, meter, query, read, parameters):
        url = self._build_url(f'/v2/meters/{meter}/statistics', query,
                              parameters)
        return self.json(description, 'GET', url, 'statistics of Ceilometer',
                         service.require_list, ((), read))[0]


def _query(field, operator, value):
    return {'field': field, 'op': operator, 'value': value}
