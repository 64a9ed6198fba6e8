# SPDX-License-Identifier: Apache-2.0
"""Telemetry from Gnocchi, where Ceilometer publishes its samples.

The driver uses the API of Gnocchi 4 through gnocchiclient. It reads resources
of the type ``instance_network_interface`` with the metrics
``network.outgoing.bytes``, ``network.incoming.bytes`` and the same of packets,
which are counters that only rise.

Gnocchi stores points at a *granularity* and, for each point, the aggregates of
the metric's *archive policy*. ``rate:mean`` is the mean rise between two
measures, not a rate: it is divided by the time between two measures. If the
policy has no ``rate:mean``, the differences of the counter are used. Many
interfaces are requested together, and the sum over the interfaces of an
instance is computed here (:mod:`.counters` explains why).
"""

import collections
from collections.abc import Collection
import contextlib
import dataclasses
import math
import re
import typing

import numpy as np

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.telemetry import counters
from vswitch_aware_scheduler.telemetry import curves
from vswitch_aware_scheduler.telemetry import service
from vswitch_aware_scheduler.telemetry import update_interval

__all__ = ['AGGREGATIONS', 'GnocchiDriver']

LOG = logs.get_logger(__name__)

_text = service.require_text

#: Aggregations of a counter that can be used, the best first.
AGGREGATIONS = ('rate:mean', 'last', 'max', 'mean', 'min')

_BYTES = ('network.outgoing.bytes', 'network.incoming.bytes')
_PACKETS = ('network.outgoing.packets', 'network.incoming.packets')

_PAGE = 1000
#: Maximum number of pages of one list: 10 million resources.
_MAX_PAGES = 10000

#: Up to this number of requested instances, only their resources are listed,
#: and metrics are requested interface by interface.
_FEW = 200

#: Number of interfaces and of periods that show the distance of measures.
_PROBED = 10
_PROBED_PERIODS = 48

#: Maximum number of points of one metric in a request.
_MAX_POINTS_OF_METRIC = 20000


#: Number of additional periods that are read before and after the requested
#: ones. They show whether polls were late.
_BEFORE = 2 * curves.AGGREGATES_AROUND
_AFTER = curves.AGGREGATES_AROUND + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class GnocchiSettings(service.ServiceSettings):
    """Options of the driver.

    :ivar period_seconds: granularity of the points, and sampling period
    :ivar settle_seconds: time after its end during which a point may change
    :ivar max_age_seconds: older samples are rejected; None: no limit
    :ivar interval_seconds: time between two measures of a metric, by which
        ``rate:mean`` is divided; None: determined for each archive policy by
        comparing ``rate:mean`` with the counter, and ``period_seconds`` if the
        policy has no counter
    :ivar aggregation: one of :data:`AGGREGATIONS`, or 'auto' for the first one
        that the archive policies of an interface have
    :ivar points_per_request: approximate number of points in one request
    :ivar resource_type: type of the resources of interfaces
    :ivar trusted_creators: list of creators whose resources count: ids of
        projects or of users, ``user:project``, or user names of basic
        authentication. None: the project that the driver authenticates for, or
        its user in basic mode
    """

    max_age_seconds: float | None = None
    interval_seconds: float | None = None
    aggregation: str = 'auto'
    points_per_request: int = 200000
    resource_type: str = 'instance_network_interface'
    trusted_creators: Collection[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.fields(service.DRIVER, self, {
            'interval_seconds': checks.number(above=True, default=None),
            'aggregation': checks.one_of(('auto', *AGGREGATIONS)),
            'points_per_request': checks.whole(),
            'trusted_creators': checks.Kind(
                'a list', lambda names: not isinstance(names, str))})


class GnocchiDriver(service.ServiceDriver):
    """Telemetry from a Gnocchi server, read again in every call."""

    NAME = 'gnocchi'
    SERVICE_TYPE = 'metric'
    SETTINGS = GnocchiSettings

    def __init__(self, *arguments: typing.Any, **settings: typing.Any):
        super().__init__(*arguments, **settings)
        self._seen: dict[str, float] = {}

    def facts(self) -> dict[str, typing.Any]:
        """Return {name: value} about the polls that were seen."""
        return {'server': self.source, 'update_seconds': max(
            self._seen.values(), default=None)}

    def instances(self) -> list[base.Instance]:
        """Return the instances with interfaces in Gnocchi.

        :raises TelemetryError: if Gnocchi does not answer
        """
        with self._client(_GnocchiClient) as client:
            trusted = self._trusted(client)
            instance_links = self._resources(client, None, trusted)
            self._ignored = self._count_untrusted(client, trusted)
        return [base.Instance(uuid, links[0].domain, _metadata(links))
                for uuid, links in instance_links]

    def _series(self, start, end, instances, progress):
        with self._client(_GnocchiClient) as client:
            trusted = self._trusted(client)
            instance_links = self._resources(client, instances, trusted)
            progress(0, len(instance_links))
            self._learn_policies(client, instance_links, _are_few(instances),
                                 trusted is not None)
            _, last, oldest = self._bounds(start, end)
            self._learn_intervals(client, instance_links, last)
            first = self._first(instance_links, start)
            # The following points show whether polls were late.
            settled = self._bounds(-math.inf, math.inf)[1]
            finish = min(last + _AFTER, settled)
            if first is not None and last <= start / self._period_seconds:
                finish = first  # no period is requested
            done, division = 0, service.Division()
            for shard in self._shards(instance_links, first, finish):
                answers = self._read(client, division, shard, first, finish)
                update = self._update(shard, answers)
                for uuid, links in shard:
                    measured = [link for link in links
                                if set(_BYTES) & set(link.metrics)]
                    parts = [self._part(link, answers[link.id], update,
                                        finish * self._period_seconds)
                             for link in measured if link.id in answers]
                    yield counters.instance_series(
                        uuid, self._period_seconds, start,
                        min(end, last * self._period_seconds), parts, oldest,
                        complete=len(parts) == len(measured))
                    done += 1
                    progress(done, len(instance_links))

    # Resources and metrics.

    def _trusted(self, client):
        """Return the trusted creators, or None to trust everybody.

        With Gnocchi's default policy, every user of the cloud may create
        resources of any instance.
        """
        if self._settings.trusted_creators:
            return frozenset(self._settings.trusted_creators)
        auth = self._access.auth or {}
        creator = {'gnocchi-basic': auth.get('user'),
                   'gnocchi-noauth': auth.get('project_id'),
                   'none': None}.get(auth.get('auth_type', ''), '')
        if creator == '' and auth:
            creator = client.attempt(
                'project of auth_type', 'a project',
                client.session.get_project_id)
        return frozenset([creator]) if creator else None

    def _resources(self, client, instance_uuids, trusted):
        """Return [(instance uuid, [_Interface])], sorted by uuid."""
        if instance_uuids is not None and not instance_uuids:
            return []
        # A list with one type, because Gnocchi does not accept "true" as a
        # search.
        search: typing.Any = {'!=': {'instance_id': None}}
        if _are_few(instance_uuids):
            search = {'in': {'instance_id': sorted(instance_uuids or ())}}
        if trusted is not None:
            search = {'and': [search, _made_by(trusted)]}
        links_by_uuid = {}
        for item in client.pages(
                'list of interfaces',
                f'v1/search/resource/{self._settings.resource_type}', search,
                _Interface.from_answer):
            if item.instance_uuid is None or not item.is_made_by(trusted):
                continue
            if instance_uuids is None or item.instance_uuid in instance_uuids:
                links_by_uuid.setdefault(item.instance_uuid, []).append(item)
        for links in links_by_uuid.values():
            links.sort(key=lambda link: link.id)
        return sorted(links_by_uuid.items())

    def _count_untrusted(self, client, trusted):
        """Return {reason: number} of resources with an untrusted creator.

        Only the first page is read, to limit the effort.
        """
        if trusted is None:
            return {}
        try:
            interfaces = client.page(
                'list of interfaces of others',
                f'v1/search/resource/{self._settings.resource_type}',
                {'and': [{'!=': {'instance_id': None}},
                         {'not': _made_by(trusted)}]},
                _Interface.from_answer, {'limit': _PAGE, 'sort': 'id:asc'})
        except exceptions.TelemetryError as error:
            LOG.debug('Telemetry %s: resources of others cannot be counted: '
                      '%s', self.source, error)
            return {}
        return collections.Counter(
            f'creator: {plain_text.printable(interface.creator)[:100]}'
            for interface in interfaces if not interface.is_made_by(trusted))

    def _learn_policies(self, client, instance_links, by_interface,
                        by_creator):
        """Determine which aggregation of each interface can be read.

        :param by_interface: whether to request the metrics of each interface,
            because these interfaces are few
        :param by_creator: whether metrics of other creators are omitted
        """
        links = [link for _, links in instance_links for link in links
                 if set(_BYTES) & set(link.metrics)]
        kind = self._settings.resource_type
        if by_interface:
            metrics = (metric for link in links for metric in client.metrics(
                f'metrics of interface {link.id}',
                f'v1/resource/{kind}/{link.id}/metric'))
        else:
            creators = [{'creator': creator} for creator in sorted(
                {link.creator for link in links})] if by_creator else [{}]
            queries = [{'name': name, **creator}
                       for name in (*_BYTES, *_PACKETS)
                       for creator in creators]
            metrics = (metric for query in queries for metric in client.pages(
                f'list of metrics {query["name"]}', 'v1/metric', None,
                _Metric.from_answer, query))
        policies = {metric.id: metric for metric in metrics}
        coarse, methods, usable = {}, set(), 0
        aggregation = self._settings.aggregation
        for link in links:
            names = [name for name in (*_BYTES, *_PACKETS)
                     if link.metrics.get(name) in policies]
            # Packets only count if both directions are counted.
            link.names = names if len(names) == 4 \
                else [name for name in names if name in _BYTES]
            if not link.names:
                continue
            link_metrics = [policies[link.metrics[name]]
                            for name in link.names]
            if not all(self._period_seconds in metric.granularities
                       for metric in link_metrics):
                for metric in link_metrics:
                    coarse[metric.policy] = metric.granularities
                continue
            shared = set.intersection(
                *(set(metric.methods) for metric in link_metrics))
            methods |= shared
            for method in AGGREGATIONS if aggregation == 'auto' \
                    else (aggregation,):
                if method in shared:
                    link.aggregation = method
                    link.policy = link_metrics[0].policy
                    link.counter = next((
                        name for name in AGGREGATIONS[1:] if name in shared),
                        None)
                    link.points = max(
                        metric.granularities[self._period_seconds]
                        for metric in link_metrics)
                    usable += 1
                    break
        if usable < len(links):
            self._report_unusable(usable, len(links), coarse, methods)

    def _learn_intervals(self, client, instance_links, last):
        """Determine the time between two measures of each archive policy.

        ``rate:mean`` is the mean rise between two measures, whatever their
        distance. The counter shows the rate. Both together show the distance.
        If measures are further apart than periods, the counter is read.

        :param last: end of the requested periods, exclusive
        """
        by_policy = {}
        for _, links in instance_links:
            for link in links:
                if link.aggregation == 'rate:mean':
                    by_policy.setdefault(
                        (link.policy, tuple(link.names), link.counter),
                        []).append(link)
        for (policy, names, counter), links in by_policy.items():
            seconds = self._settings.interval_seconds
            if seconds is None and counter:
                step = max(1, len(links) // _PROBED)
                seconds = self._measured_interval(
                    client, [link.id for link in links[::step][:_PROBED]],
                    names, counter, last)
            seconds = seconds or self._period_seconds
            if self._seen.get(policy) != seconds:
                LOG.info('Telemetry %s: archive policy %s: measures every '
                         '%g s', self.source, policy, seconds)
            self._seen[policy] = seconds
            is_rare = seconds > 1.01 * self._period_seconds
            if is_rare and not counter:
                LOG.warning(
                    'Telemetry %s: archive policy %s: measures every %g s and '
                    'only rate:mean; expected period_seconds = %g, or an '
                    'aggregation of the counter', self.source, policy,
                    seconds, seconds)
            for link in links:
                link.interval_seconds = seconds
                if is_rare:
                    link.aggregation = counter

    def _measured_interval(self, client, ids, names, counter, last):
        """Return the distance of measures in seconds, None without traffic."""
        names = [name for name in names if name in _BYTES]
        first = max(0, last - _PROBED_PERIODS)
        try:
            rises, counts = (client.measures(
                self._settings.resource_type, ids, names, aggregation,
                self._period_seconds, first, last, False)
                for aggregation in ('rate:mean', counter))
        except http.TooLarge:
            return None
        intervals = []
        for link, metrics in rises.items():
            for name in names:
                periods, rise = metrics[name]
                at, count = counts.get(link, {}).get(name, ((), ()))
                # The time of the first rise is unknown, and a reset has none.
                if len(at) < 4 or len(periods) < 4 \
                        or (np.diff(count) < 0).any() or (rise < 0).any():
                    continue
                inside = (periods > at[0]) & (periods <= at[-1])
                rate = (count[-1] - count[0]) / (
                    (at[-1] - at[0]) * self._period_seconds)
                if rate > 0 and inside.any():
                    intervals.append(float(rise[inside].mean() / rate))
        if not intervals:
            return None
        seconds = float(np.median(intervals))
        return update_interval.configured_seconds(seconds, 0.1 * seconds)

    def _report_unusable(self, usable, total, coarse, methods):
        """Log that some interfaces cannot be read, or raise if none can.

        :param usable: number of interfaces that can be read
        :param total: number of all interfaces
        :param coarse: {archive policy without the granularity: granularities}
        :param methods: set of the aggregations that the interfaces have
        """
        details = []
        if coarse:
            details.append(
                'archive policies without that granularity: ' + '; '.join(
                    f'{name} has '
                    f'{", ".join(f"{g:g}" for g in sorted(granularities))}'
                    for name, granularities in sorted(coarse.items())))
        details.append(
            f'aggregations seen: {", ".join(sorted(methods)) or "none"}')
        problem = (f'{total - usable} of {total} interfaces have no '
                   f'{self._settings.aggregation} aggregation of bytes at '
                   f'granularity {self._period_seconds:g} s '
                   f'({"; ".join(details)})')
        expected = ('a granularity and an aggregation that the archive '
                    'policies have')
        if not usable:
            raise exceptions.TelemetryError(
                thing=f'telemetry {self.source}', seen=problem,
                expected=expected)
        LOG.warning('Telemetry %s: %s; expected %s; the driver reads no '
                    'samples of these', self.source, problem, expected)

    # Measures.

    def _first(self, instance_links, start):
        """Return the first period to request; None: the first that exists.

        It is early enough for the first requested period to have predecessors.
        """
        if start > -math.inf:
            rates = all(link.aggregation == 'rate:mean'
                        for _, links in instance_links for link in links)
            return max(0, math.ceil(min(start, http.TIME_RANGE[1])
                                    / self._period_seconds)
                       - (counters.GRACE_PERIODS + 1 if rates else _BEFORE))
        points = max((link.points for _, links in instance_links
                      for link in links), default=0)
        if points <= _MAX_POINTS_OF_METRIC:
            return None
        return max(0, math.floor(
            self._clock() / self._period_seconds) - points)

    def _shards(self, instance_links, first, last):
        """Divide the list of instances into parts for one request each."""
        def points(item):
            return [sum(len(link.names) * max(1, link.points if first is None
                        else min(link.points, last + 1 - first))
                        for link in item[1] if link.aggregation)
                    / self._settings.points_per_request]

        return service.batches(instance_links, points)

    def _read(self, client, division, shard, first, last):
        """Return {interface id: {metric name: (periods, values)}}."""
        groups = {}
        for _, links in shard:
            for link in links:
                if link.aggregation:
                    groups.setdefault(
                        (link.aggregation, tuple(link.names)),
                        []).append(link.id)
        # One more point completes the last period.
        end = last + 1
        if first is not None and end <= first + 1:
            nothing = np.empty(0, np.int64), np.empty(0)
            return {link.id: dict.fromkeys(link.names, nothing)
                    for _, links in shard for link in links
                    if link.aggregation}
        cuts = [first] if first is None else list(
            range(first, end, _MAX_POINTS_OF_METRIC))
        pieces_by_link = {}
        for (aggregation, names), ids in sorted(groups.items()):
            for low, high in zip(cuts, [*cuts[1:], end]):
                answer = self._measures(client, division, ids, names,
                                        aggregation, low, high)
                for link, metrics in answer.items():
                    pieces = pieces_by_link.setdefault(link, {})
                    for name, piece in metrics.items():
                        pieces.setdefault(name, []).append(piece)
        # An interface that was deleted after it was listed has no answer, or
        # only for a part of the time.
        return {link: {name: tuple(map(np.concatenate, zip(*pieces)))
                       for name, pieces in metrics.items()}
                for link, metrics in pieces_by_link.items()
                if all(len(pieces) == len(cuts)
                       for pieces in metrics.values())}

    def _measures(self, client, division, ids, names, aggregation, low, high):
        """Return the measures of some interfaces, as far as they can be read.

        A request that is too large is divided, down to one interface.
        """
        answers = {}
        for answer in division.answers(
                lambda ids, _low, _high, divisible: client.measures(
                    self._settings.resource_type, ids, names, aggregation,
                    self._period_seconds, low, high, divisible), ids):
            answers.update(answer)
        return answers

    def _update(self, shard, answers):
        """Return the interval of polls that change their place, else 0.

        This is an interval shorter than a period, or one with sometimes two
        polls in a period.
        """
        if self._settings.interval_seconds is not None \
                and self._settings.interval_seconds < self._period_seconds:
            return float(self._settings.interval_seconds)
        series = [
            (periods * self._period_seconds, values)
            for _, links in shard for link in links
            if link.id in answers and link.aggregation != 'rate:mean'
            for periods, values in answers[link.id].values()]
        update = update_interval.update_seconds(series) or 0.0
        # Longer intervals are caused by traffic, or leave periods empty. The
        # mean of two polls is half an interval later than one poll.
        return min(2 * update, self._period_seconds) \
            if update < 1.25 * self._period_seconds else 0.0

    def _part(self, link, answer, update, until):
        """Return the :class:`.Part` of an interface.

        :param until: end of the requested time, seconds UTC
        """
        columns = [(periods * self._period_seconds, values)
                   for periods, values in (answer[name]
                                           for name in link.names)]
        if len(columns) == 1:
            # The other direction is unknown.
            columns *= 2
        readings = counters.together(columns, self._period_seconds)
        if link.aggregation == 'rate:mean':
            part = counters.from_increments(
                np.round(readings.times[:, 0] / self._period_seconds).astype(
                    np.int64), readings.counters, link.interval_seconds)
        else:
            part = counters.from_counters(
                [counters.AggregatedReadings(readings.times,
                                             readings.counters)],
                self._period_seconds, update, until)
        if part.began is None and link.started_at is not None:
            # A counter that was read once has no increment.
            part = dataclasses.replace(part, began=math.floor(
                link.started_at / self._period_seconds))
        if len(link.names) == 1:
            part.rates[:, 1 - _BYTES.index(link.names[0])] = math.nan
        return part


def _made_by(trusted):
    """Return the search expression for resources of trusted creators.

    A creator is ``user:project`` with keystone, or the name of a user.
    """
    return {'or': [condition for creator in sorted(trusted) for condition in (
        {'=': {'creator': creator}}, {'like': {'creator': f'%:{creator}'}},
        {'like': {'creator': f'{creator}:%'}})]}


def _metadata(links):
    """Return Gnocchi's metadata of an instance, from its interfaces."""
    metadata = {}
    if links[0].project_id:
        metadata['project_id'] = links[0].project_id
    ends = [link.ended_at for link in links]
    if None not in ends:
        metadata['ended_at'] = max(ends)
    return metadata


def _are_few(instance_uuids):
    return instance_uuids is not None and len(instance_uuids) <= _FEW


@dataclasses.dataclass
class _Interface:
    """A network interface of an instance in Gnocchi.

    :ivar started_at: time of the creation, seconds UTC, or None
    :ivar ended_at: time of the deletion, or None while it is there
    :ivar metrics: {name of a metric: its id}
    :ivar counter: an aggregation of the counter, or None
    """

    id: str
    instance_uuid: str | None
    domain: str | None
    project_id: str | None
    started_at: float | None
    ended_at: float | None
    creator: str
    metrics: dict[str, str]
    names: list[str] = dataclasses.field(default_factory=list)
    aggregation: str | None = None
    policy: str | None = None
    counter: str | None = None
    interval_seconds: float | None = None
    points: int = 0

    @classmethod
    def from_answer(cls, item):
        uuid = base.normalised_uuid(item['instance_id'])
        # Ceilometer names an interface <domain>-<instance uuid>-<device>.
        domain = str(item['original_resource_id']).partition(f'-{uuid}')[0]
        # A resource has many metrics, of which four are used.
        return cls(_text(item['id']), uuid, domain or uuid,
                   item.get('project_id'), _time_or_none(
                       item.get('started_at')),
                   _time_or_none(item.get('ended_at')),
                   item.get('creator') or '',
                   {name: _text(item['metrics'][name])
                    for name in (*_BYTES, *_PACKETS)
                    if name in item['metrics']})

    def is_made_by(self, trusted):
        """Whether the creator is trusted. If ``trusted`` is None, all are.

        :param trusted: set of trusted creators, or None to trust everybody
        """
        user, _, project = self.creator.partition(':')
        return trusted is None or bool(
            trusted & {self.creator, user, project} - {''})


class _Metric(typing.NamedTuple):
    """The archive policy of a metric.

    ``granularities`` is {granularity in seconds: number of points}.
    """

    id: str
    policy: str
    granularities: dict[float, int]
    methods: list[str]

    @classmethod
    def from_answer(cls, item):
        policy = item['archive_policy']
        return cls(_text(item['id']), _text(policy['name']),
                   {_granularity(entry['granularity']): int(entry['points'])
                    for entry in policy['definition']},
                   [_text(entry) for entry in policy['aggregation_methods']])


def _time_or_none(value):
    seconds = service.seconds(value)
    return None if math.isnan(seconds) else seconds


def _granularity(value):
    """Return the seconds of a number or of a text such as 1 day, 0:05:00."""
    if isinstance(value, (int, float)):
        return float(value)
    match = re.fullmatch(
        r'(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)', value)
    if match is None:
        raise ValueError(f'granularity is {value!r}')
    days, hours, minutes, seconds = match.groups()
    return (int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60
            + float(seconds))


class _GnocchiClient(http.Client):
    """Requests to the API, through gnocchiclient's own HTTP client."""

    def __enter__(self):
        client_exceptions, gnocchi_client = (
            service.import_client(name, 'gnocchi', self._source)
            for name in ('gnocchiclient.exceptions',
                         'gnocchiclient.v1.client'))
        super().__enter__()
        options = self.adapter_options()
        self.adapter = gnocchi_client.Client(
            session=self.session, adapter_options=options).api
        self.no_connection += (client_exceptions.ConnectionFailure,
                               client_exceptions.ConnectionTimeout,
                               client_exceptions.UnknownConnectionError)
        return self

    def page(self, description, path, search, read, parameters):
        """Return the results of ``read`` for the items of one page.

        :param search: search expression of a POST, or None for a GET
        :param read: callable(item), converts one item of the answer
        :param parameters: {name: value} of the query of the URL
        :raises TooLarge: if the answer is too large
        """
        arguments = {'params': parameters}
        if search is not None:
            arguments['json'] = search
        return self.json(
            description, 'GET' if search is None else 'POST', path,
            'a list of Gnocchi', service.require_list, ((), read),
            **arguments)[0]

    def pages(self, description, path, search, read, parameters=None):
        """Yield the items of all pages of a list.

        :param search: search expression of a POST, or None for a GET
        :param read: callable(item), converts one item of the answer
        :param parameters: {name: value} of the query of the URL, or None
        """
        marker, ids_seen, limit = None, set(), _PAGE
        for _ in range(_MAX_PAGES):
            query = {**(parameters or {}), 'limit': limit, 'sort': 'id:asc'}
            if marker is not None:
                query['marker'] = marker
            try:
                items = self.page(description, path, search, read, query)
            except http.TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            new = [item for item in items if item.id not in ids_seen]
            yield from new
            # The server may return fewer items than requested. Only an empty
            # page is certainly the end.
            if not items:
                return
            if not new:
                raise self.failure(
                    description, f'the same page twice (marker {marker})',
                    'the next page')
            marker = items[-1].id
            ids_seen.update(item.id for item in new)
        raise self.failure(description, f'more than {_MAX_PAGES} pages',
                           'fewer')

    def metrics(self, description, path):
        """Return the metrics of a resource; none if it no longer exists."""
        try:
            answer, _ = self.json(
                description, 'GET', path, 'a list of metrics',
                lambda answer: [_Metric.from_answer(item)
                                for item in answer])
        except http.Refusal as refusal:
            if refusal.status != 404:
                raise
            return []
        return answer

    def measures(self, resource_type, ids, names, aggregation, granularity,
                 first, last, divisible):
        """Return {interface id: {metric name: (periods, values)}}.

        :param aggregation: one of :data:`AGGREGATIONS`
        :param granularity: length of a period in seconds
        :param first: first period, None: the first that exists
        :param last: end of the periods, exclusive
        """
        def read(group):
            """Return {interface: {metric: points}} of one group of the answer.

            Interfaces that were not requested or lack data are omitted.
            """
            by_link = {}
            for link, metrics in group['measures']['measures'].items():
                if link in wanted_ids:
                    with contextlib.suppress(LookupError, TypeError):
                        by_link[link] = {
                            name: _points(metrics[name][aggregation],
                                          granularity) for name in names}
            return by_link

        def check(answer):
            if not isinstance(answer, list):
                raise TypeError(f'{type(answer).__name__} for a list of '
                                f'groups')
            return {link: metrics for by_link in answer
                    for link, metrics in by_link.items()}

        wanted_ids = set(ids)
        parameters = {'groupby': 'instance_id',
                      'granularity': f'{granularity:.15g}',
                      'stop': service.iso_time(last * granularity)}
        if first is not None:
            parameters['start'] = service.iso_time(first * granularity)
        try:
            answer, _ = self.json(
                f'measures of {len(ids)} interfaces', 'POST',
                'v1/aggregates', 'measures of Gnocchi', check, ((), read),
                divisible, params=parameters,
                json={'operations': ['metric', *([name, aggregation]
                                                 for name in names)],
                      'search': {'in': {'id': list(ids)}},
                      'resource_type': resource_type})
        except http.Refusal as refusal:
            # Gnocchi's answer if none of them exists any more.
            if refusal.status == 404 and 'does not exist' in refusal.body:
                return {}
            raise
        return answer


def _points(points, granularity):
    """Return (periods, values) of Gnocchi's points of a metric.

    A point with an invalid time or value is omitted.
    """
    points = [point for point in points
              if isinstance(point, list) and len(point) == 3
              and point[1] == granularity]
    if not points:
        return np.empty(0, np.int64), np.empty(0)
    stamps, _, texts = zip(*points)
    times, values = _times(stamps), service.numbers(texts)
    low, high = http.TIME_RANGE
    usable = (times >= low) & (times < high) & np.isfinite(values)
    periods = np.floor(times[usable] / granularity + 1e-9).astype(np.int64)
    # Sorted, without duplicates.
    periods, first = np.unique(periods, return_index=True)
    return periods, values[usable][first]


def _times(stamps):
    """Return seconds UTC of times in Gnocchi's format, NaN if invalid."""
    try:
        if all(stamp.endswith('+00:00') for stamp in stamps):
            return np.array([stamp[:-6] for stamp in stamps],
                            'datetime64[us]').astype(np.int64) / 1e6
    except (AttributeError, OverflowError, ValueError):
        pass
    return np.array([
        service.seconds(stamp) if str(stamp).endswith('+00:00') else math.nan
        for stamp in stamps])
