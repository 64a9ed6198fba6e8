# SPDX-License-Identifier: Apache-2.0
"""Telemetry from Prometheus or a service with its HTTP API, such as Aetos.

The driver uses the endpoints ``/api/v1/series`` and ``/api/v1/query``, and the
names that common exporters give to the counters of interfaces.

Samples are read with their own times, by range selectors such as
``metric{...}[6h]``. A range *query* would return, for each step, the last
sample of up to five minutes before. A failed scrape would then look like a
counter that stood still, and a missing answer like no traffic.
"""

import collections
from collections.abc import Mapping
import dataclasses
import itertools
import math
import re
import typing
import zlib

import numpy as np

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.telemetry import counters as interface_counters
from vswitch_aware_scheduler.telemetry import curves
from vswitch_aware_scheduler.telemetry import exporters
from vswitch_aware_scheduler.telemetry import joining
from vswitch_aware_scheduler.telemetry import prometheus_api
from vswitch_aware_scheduler.telemetry import service
from vswitch_aware_scheduler.telemetry import update_interval

__all__ = ['PrometheusDriver']

LOG = logs.get_logger(__name__)

_UUID = re.compile(r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-'
                   r'[0-9a-f]{12}', re.IGNORECASE)

#: Assumed time between two samples of a series, until an answer shows it.
_FIRST_GUESS_SECONDS = 10.0

#: An exporter that has series of this time is preferred, in seconds.
_RECENT_SECONDS = 3600.0

#: The interval of updates is determined from readings of (hours, number of
#: instances). A longer time is only read if counters change too rarely in a
#: shorter time.
_PROBES = ((3.0, 20), (12.0, 20), (36.0, 10), (math.inf, 1))

#: Series with the times of polls, of a Pushgateway and of node_exporter's
#: textfile collector.
_TIMES_OF_POLLS = ('push_time_seconds', 'node_textfile_mtime_seconds')

#: Maximum length of a pattern that selects values by their last characters.
_LONGEST_PATTERN = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrometheusSettings(service.ServiceSettings):
    """Options of the driver.

    :ivar period_seconds: sampling period of the samples; not shorter than the
        interval in which the counters are polled
    :ivar settle_seconds: time after its end before a period is read
    :ivar names: arguments of :class:`.Names` that replace those of the
        exporter
    :ivar exporter: one of :data:`.EXPORTERS`; None: the one of which the
        server has most instances
    :ivar samples_per_request: approximate number of samples in one request
    :ivar update_interval_seconds: interval at which the exporter updates its
        counters; 0: at each scrape; None: determined from the counters
    :ivar host_names: {value of the last of the host labels, without a port:
        name of the host in Nova}, if the two differ
    """

    settle_seconds: float = 60.0
    names: Mapping[str, typing.Any] | None = None
    exporter: str | None = 'ceilometer'
    samples_per_request: int = 100000
    update_interval_seconds: float | None = None
    host_names: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.fields(service.DRIVER, self, {
            'exporter': checks.one_of(exporters.EXPORTERS, default=None),
            'samples_per_request': checks.whole(),
            'update_interval_seconds': checks.number(default=None)})
        self.names_of(self.exporter or 'ceilometer')

    def names_of(self, exporter: str) -> exporters.Names:
        """Return the names of an exporter, with the replaced ones.

        :raises TypeError: if an argument is unknown
        """
        return dataclasses.replace(exporters.EXPORTERS[exporter],
                                   **(self.names or {}))


class PrometheusDriver(service.ServiceDriver):
    """Telemetry from a Prometheus server, read again in every call."""

    NAME = 'prometheus'
    SERVICE_TYPE = 'metric-storage'
    SETTINGS = PrometheusSettings

    def __init__(self, *arguments: typing.Any, **settings: typing.Any):
        super().__init__(*arguments, **settings)
        # None until the exporter is detected.
        self._exporter = self._settings.exporter
        self._names = self._settings.names_of(
            self._exporter or 'ceilometer') if self._exporter \
            or 'egress_query' in (self._settings.names or {}) else None
        self._names_of: Mapping[str, str | None] | None = None
        self._by_name: dict[str, str] = {}
        self._seen_update = self._settings.update_interval_seconds
        self._interface_count = 0

    @property
    def variant(self) -> str:
        """Name of the exporter, with a number of names of their own."""
        if self._names is None:
            return ''
        if not self._settings.names:
            return self._exporter
        return (f'{self._exporter or "names"} '
                f'{zlib.crc32(repr(self._names).encode()):08x}')

    def instances(self) -> list[base.Instance]:
        """Return the instances that have had series since the oldest time.

        :raises TelemetryError: if Prometheus does not answer
        """
        self._ignored = {}
        with self._client(prometheus_api.PrometheusClient) as client:
            reading = self._reading(client)
            instance_values = reading.instances(None)
            self._interface_count = reading.interface_count
        return [base.Instance(uuid, sorted(values)[0])
                for uuid, values in instance_values]

    def recent(self, since: float) -> set[str]:
        """Return the instances that have had series since a given time.

        :param since: seconds UTC
        :raises TelemetryError: if Prometheus does not answer
        """
        with self._client(prometheus_api.PrometheusClient) as client:
            return {uuid for uuid, _ in self._reading(
                client, since).instances(None)}

    def _reading(self, client, since=-math.inf):
        now = self._clock()
        oldest = now - self._settings.max_age_seconds
        names = self._names
        if names is None:
            numbers = self._numbers(client, now)
            before = self.variant_before.partition(' ')[0]
            best = max(numbers, key=lambda exporter: numbers[exporter] * (
                2 if exporter == before else 1))
            names = self._settings.names_of(best)
            if numbers[best]:
                LOG.info('Telemetry %s: exporter %s, which has the series of '
                         '%d instances', self.source, best, numbers[best])
                self._names, self._exporter = names, best
        return _Reading(client, names, self._period_seconds,
                        self._settings.samples_per_request,
                        min(max(since, oldest), now), now, self._is_home,
                        self._note)

    def _note(self, reason):
        """Count what is not used."""
        self._ignored = {**self._ignored,
                         reason: self._ignored.get(reason, 0) + 1}

    def _numbers(self, client, now):
        """Return {exporter: number of instances that the server has of it}.

        These are instances of the last hour, or of all the time if there are
        none. Numbers above a thousand are not exact.
        """
        numbers = self._numbers_since(client, now - _RECENT_SECONDS, now)
        if not any(numbers.values()):
            numbers = self._numbers_since(
                client, now - self._settings.max_age_seconds, now)
        return numbers

    def _numbers_since(self, client, since, now):
        numbers = {}
        for exporter, names in exporters.EXPORTERS.items():
            numbers[exporter] = len({
                uuid for uuid in map(_uuid, client.values(
                    names.instance_label, names.identity_query
                    or names.egress_query, since, now))
                if uuid and (uuid in self.hosts or not self.hosts)})
            if numbers[exporter] and names.identity_query and not any(
                    client.values(names.select_label, names.egress_query,
                                  since, now)):
                numbers[exporter] = 0
        return numbers

    def facts(self) -> dict[str, typing.Any]:
        """Return {name: value} about the server and the exporter."""
        with self._client(prometheus_api.PrometheusClient) as client:
            now = self._clock()
            numbers = {name: number for name, number in self._numbers(
                client, now).items() if number}
            unusable = {} if numbers else {
                name: why
                for name, (selector, why) in exporters.UNUSABLE.items()
                if client.values('__name__', selector,
                                 now - self._settings.max_age_seconds, now)}
            update = self._seen_update
            configured = self._settings.update_interval_seconds
            if configured is not None:
                reading = self._reading(client)
                last = self._settled()
                update = self._measured_update(
                    reading, reading.instances(None),
                    math.floor((now - self._settings.max_age_seconds)
                               / self._period_seconds), last, last)
            return {
                **client.server(), 'exporter': self._exporter,
                'exporters': numbers, 'unusable': unusable,
                'interfaces': self._interface_count,
                'series': self._interface_count * len(
                    self._names.queries if self._names else ()),
                'update_seconds': update, 'configured': {
                    'period_seconds': self._period_seconds,
                    'update_interval_seconds': configured}}

    def _settled(self):
        """Return the last period that ended long enough ago."""
        return self._bounds(-math.inf, math.inf)[1]

    def _update(self, reading, instance_values, oldest, first, last, start):
        """Return the interval at which counters are updated, in seconds.

        None means that too few readings are available.

        :param oldest: first period that may be used
        :param first: first requested period
        :param last: end of the requested periods, exclusive
        :param start: time of the first requested sample, or -inf
        """
        if self._settings.update_interval_seconds is not None:
            return float(self._settings.update_interval_seconds)
        if not instance_values:
            return 0.0
        if start > -math.inf:
            # The time that was read in the last pass, and a margin.
            high = first + math.ceil(
                _PROBES[0][0] * 900 / self._period_seconds)
        else:
            high = last + 1
        return self._measured_update(reading, instance_values, oldest, high,
                                     last)

    def _measured_update(self, reading, instance_values, oldest, high, last):
        """Return the interval that the counters show, None if too few do.

        :param high: end of the periods of the first attempt
        """
        series = []
        for hours, instances in _PROBES:
            high = min(high, last + 1)
            low = max(oldest, high - math.ceil(
                hours * 3600 / self._period_seconds)) \
                if hours < math.inf else oldest
            if low < high:
                step = max(1, len(instance_values) // instances)
                series = reading.columns(
                    instance_values[::step][:instances], low, high)
            update = update_interval.update_seconds(
                series, period_seconds=self._period_seconds)
            if update is not None:
                return update
            high = last + 1
        return update_interval.guessed_update_seconds(
            series, self._period_seconds, (last + 1) * self._period_seconds)

    def _series(self, start, end, instances, progress):
        if instances is not None and not instances:
            progress(0, 0)
            return
        with self._client(prometheus_api.PrometheusClient) as client:
            reading = self._reading(client)
            instance_values = reading.instances(instances)
            progress(0, len(instance_values))
            first, last, oldest = self._bounds(start, end)
            # Nothing from before the oldest time, except what determines the
            # counters at the start of the first period.
            lowest = max(math.floor(oldest / self._period_seconds), 0)
            first = max(first, lowest)
            update = self._update(reading, instance_values, lowest, first,
                                  last, start)
            if update not in (None, self._seen_update):
                LOG.info('Telemetry %s: counters are updated every %g s '
                         '(0: at each reading)', self.source, update)
            self._seen_update = update
            if update is None:
                # No period is old enough.
                first, update = last, 0.0
            margin = math.ceil(curves.margin_seconds(
                self._period_seconds, update) / self._period_seconds)
            begin = max(
                0, first - max(margin, joining.PERIODS_BEFORE))
            # Readings that complete the last period and are old enough.
            finish = min(last + 1 + margin, self._settled() + 1)
            done = 0
            for shard in reading.shards(instance_values, begin, finish):
                counters = self._without_outages(
                    reading, reading.counters(shard, begin, finish), begin,
                    finish) if first < last else {}
                for uuid, _ in shard:
                    links = counters.get(uuid, {})
                    if uuid in self.hosts:
                        self._leave_out_others(links, self.hosts[uuid])
                    parts, complete = _parts(
                        links, reading.counter_count,
                        self._period_seconds, update,
                        finish * self._period_seconds)
                    yield interface_counters.instance_series(
                        uuid, self._period_seconds, start,
                        min(end, last * self._period_seconds), parts, oldest,
                        complete)
                    done += 1
                    progress(done, len(instance_values))

    def _without_outages(self, reading, counters, begin, finish):
        """Remove readings of sources that repeated their last poll.

        All instances of a host have one source, and possibly all hosts.
        """
        sources = {None: {}}
        for uuid, links in counters.items():
            for hosts in links.values():
                for key, columns in hosts.items():
                    for source in (key[-1], None):
                        sources.setdefault(source, {}).setdefault(
                            uuid, []).append(columns)
        series = {source: {uuid: [column for columns in parts
                                  for column in columns.values()]
                           for uuid, parts in instances.items()}
                  for source, instances in sources.items()}
        stills = {source: found for source, instances in series.items()
                  if (found := joining.standstills(instances))}
        polls = reading.polls(sorted(filter(None, stills)), begin, finish) \
            if stills else {}
        for source, found in stills.items():
            if source is None and polls:
                continue
            for still in found:
                if not joining.is_outage(still, series[source],
                                         polls.get(source, ())):
                    continue
                LOG.debug('Telemetry %s: %s repeated its last values from '
                          '%.0f to %.0f', self.source,
                          http.shown(source or 'all hosts'), still.begin,
                          still.end)
                for columns in itertools.chain(*sources[source].values()):
                    for number, (times, values) in columns.items():
                        keep = (times <= still.begin) | (times >= still.end)
                        columns[number] = times[keep], values[keep]
        return counters

    def _is_home(self, uuid, label):
        """Whether a label names the host of an instance in Nova."""
        return uuid in self.hosts \
            and self._host_of(label) == self.hosts[uuid]

    def _leave_out_others(self, links, home):
        """Remove readings of other hosts than the host of the instance.

        Readings from before the first reading on this host remain if their
        host no longer reports the instance: it has left that host. If no label
        names this host, readings of hosts that Nova does not know also remain:
        they may be of this host, under another name.

        :param home: host of the instance in Nova
        """
        named = {key: self._host_of(key[-1])
                 for hosts in links.values() for key in hosts}
        at = [times for hosts in links.values()
              for key, columns in hosts.items() if named[key] == home
              for times, _ in columns.values() if times.size]
        begin = min((times[0] for times in at), default=-math.inf)
        now = max((times[-1] - 2 * np.median(np.diff(times))
                   if times.size > 1 else begin for times in at), default=0.0)
        at_home = home in named.values()
        ignored = collections.Counter(self._ignored)
        for link, hosts in list(links.items()):
            for key, columns in list(hosts.items()):
                if named[key] == home or not (at_home or named[key]):
                    continue
                for number, (times, values) in list(columns.items()):
                    early = (times < begin) & (times[-1:] < now)
                    columns[number] = times[early], values[early]
                    if not early.any():
                        del columns[number]
                        label = plain_text.printable(key[-1])[:100]
                        ignored.update([f'host: {label}'])
                if not columns:
                    del hosts[key]
            if not hosts:
                del links[link]
        self._ignored = ignored

    def _host_of(self, value):
        """Return the host of Nova that a label names, or None."""
        name = re.sub(r':\d+$', '', value)
        for label_value in (value, name):
            if label_value in (self._settings.host_names or {}):
                return self._settings.host_names[label_value]
        if name in self._known_hosts:
            return self._known_hosts[name]
        return self._known_hosts.get(name.partition('.')[0])

    @property
    def _known_hosts(self):
        """{host, or its part before the first dot if unique: host in Nova}."""
        if self._names_of is not self.hosts:
            hosts = set(filter(None, self.hosts.values()))
            short = collections.Counter(
                host.partition('.')[0] for host in hosts)
            self._by_name = {host.partition('.')[0]: host for host in hosts
                             if short[host.partition('.')[0]] == 1}
            self._by_name.update({host: host for host in hosts})
            self._names_of = self.hosts
        return self._by_name


def _parts(links, count, period_seconds, update, until):
    """Return the parts of an instance, and whether they are complete.

    :param links: {interface: {host: {number of the query: (times, values)}}}
    :param count: number of counters of an interface
    :param update: interval at which the counters are updated, in seconds
    :param until: end of the time that was read, seconds UTC
    """
    parts, complete = [], True
    for _, hosts in sorted(links.items()):
        # If a counter is missing, the others are a lower bound.
        reported = {number for columns in hosts.values() for number in columns}
        numbers = list(range(count)) if len(reported) == count \
            else sorted(reported & {0, 1})
        of_hosts = [columns for _, columns in sorted(hosts.items())
                    if numbers and columns.keys() >= set(numbers)]
        if len(of_hosts) > 1:
            of_hosts = joining.continued(of_hosts, update)
        readings = [
            interface_counters.together([columns[number] for number in (
                numbers if len(numbers) > 1 else numbers * 2)],
                period_seconds) for columns in of_hosts]
        if not readings:
            complete = False
            continue
        part = interface_counters.from_counters(readings, period_seconds,
                                                update, until)
        for column in set(range(count)) - set(numbers):
            part.rates[:, min(column, 2)] = math.nan
        parts.append(part)
    return parts, complete


class _Reading:
    """The state of one reading of a server.

    :param period_seconds: length of a period
    :param samples_per_request: approximate number of samples in one request
    :param since: start of the time, seconds UTC
    :param now: end of the time, seconds UTC
    :param is_home: callable(uuid, value of the last host label), returns
        whether Nova has the instance on that host
    :param note: callable(reason), counts what cannot be used
    """

    def __init__(self, client, names, period_seconds, samples_per_request,
                 since, now, is_home, note):
        self._client = client
        self._names = names
        self._period_seconds = period_seconds
        self._samples_per_request = samples_per_request
        self._since = since
        self._now = now
        self._is_home = is_home
        self._note = note
        #: {values of the identity labels: uuids that have them}, or None.
        self._identities = None
        self._spans = {}
        #: Number of series of sent bytes, one for each interface.
        self.interface_count = 0
        self._sample_seconds = _FIRST_GUESS_SECONDS
        self._lists = service.Division(
            is_complete=True, smaller=_longer_ends)
        self._queries = service.Division()
        # A selector is sent in the URL or in the body, where quotation marks
        # and bars are encoded.
        self._characters = client.selector_characters

    @property
    def counter_count(self):
        """Number of counters of an interface."""
        return len(self._names.queries)

    def instances(self, instance_uuids):
        """Return [(instance uuid, values of the select label)], by uuid.

        :param instance_uuids: collection of uuids, or None for all
        """
        names = self._names
        if names.identity_query:
            self._identities = {}
            for labels in self._series(
                    names.identity_query, names.identity_labels[0],
                    {names.instance_label, *names.identity_labels}):
                uuid = _uuid(labels.get(names.instance_label))
                if uuid:
                    self._identities.setdefault(_values(
                        labels, names.identity_labels), set()).add(uuid)
        values_by_uuid = {}
        for labels in self._series(
                names.egress_query, names.select_label,
                {names.select_label, names.instance_label,
                 *names.identity_labels}):
            value = labels.get(names.select_label)
            uuids = self._uuids_of(labels) if value else ()
            self.interface_count += bool(uuids)
            for uuid in uuids:
                if instance_uuids is None or uuid in instance_uuids:
                    values_by_uuid.setdefault(uuid, set()).add(value)
        return sorted(values_by_uuid.items())

    def _series(self, query, label, names):
        """Yield the labels of all series of a query.

        :param query: selector of the series
        :param label: label by whose values the list can be divided
        """
        def ask(ends, _low, _high, divisible):
            selector = query if ends == ['.*'] \
                else _with_pattern(query, label, '|'.join(ends))
            return self._client.series(selector, self._since, self._now,
                                       names, divisible)

        for answer in self._lists.answers(ask, ['.*']):
            yield from answer

    def _uuids_of(self, labels):
        """Return the uuids of the instances that a series may be of."""
        if self._identities is None:
            uuid = _uuid(labels.get(self._names.instance_label))
            return {uuid} if uuid else set()
        return self._identities.get(
            _values(labels, self._names.identity_labels), set())

    def _owners(self, labels, first, last):
        """Return [(uuid, begin, end)]: whose readings those of a series are.

        A name may be that of several instances. If one was there after the
        other, the time decides, else Nova's record of their host. Otherwise
        nobody has the readings.

        :param first: first period
        :param last: end of the periods, exclusive
        """
        uuids = self._uuids_of(labels)
        if len(uuids) < 2:
            return [(uuid, -math.inf, math.inf) for uuid in uuids]
        names = self._names
        key = _values(labels, names.identity_labels)
        at = key, first, last
        if at not in self._spans:
            self._spans[at] = self._find_owners(key, sorted(uuids), _values(
                labels, names.host_labels)[-1], first, last)
        return self._spans[at]

    def _find_owners(self, key, uuids, host, first, last):
        label = self._names.identity_labels[0]
        seen = {}
        for labels, times, _ in self._all_samples(
                self._names.identity_query, label, key[:1], first, last):
            uuid = _uuid(labels.get(self._names.instance_label))
            if uuid and times.size and _values(
                    labels, self._names.identity_labels) == key:
                low, high = seen.get(uuid, (math.inf, -math.inf))
                seen[uuid] = min(low, times[0]), max(high, times[-1])
        spans = sorted((*span, uuid) for uuid, span in seen.items())
        if all(one[1] < other[0] for one, other in zip(spans, spans[1:])):
            begins = [-math.inf, *(span[0] for span in spans[1:]), math.inf]
            return [(uuid, begin, end) for (*_, uuid), begin, end
                    in zip(spans, begins, begins[1:])]
        at_home = [uuid for uuid in uuids if self._is_home(uuid, host)]
        if len(at_home) == 1:
            return [(at_home[0], -math.inf, math.inf)]
        self._note(f'name: {http.shown(key[0], 100)} of the instances '
                   f'{" and ".join(uuids)}')
        return []

    def shards(self, instance_values, first, last):
        """Divide the list of instances into parts for one query each.

        :param first: first period
        :param last: end of the periods, exclusive
        """
        periods = max(1, min(last - first, self._longest(1)))
        return service.batches(instance_values, lambda item: [
            sum(len(_quoted(value)) + 1 for value in item[1])
            / self._characters,
            len(item[1]) * periods * self._samples_per_period()
            / self._samples_per_request])

    def _samples_per_period(self):
        return max(1.0, self._period_seconds / self._sample_seconds)

    def _longest(self, series):
        """Return for how many periods one query may request these series."""
        return max(1, int(self._samples_per_request
                          / (series * self._samples_per_period())))

    def counters(self, shard, first, last, queries=None):
        """Return the readings of the given periods.

        :param shard: list of (instance uuid, values of the select label)
        :param first: first period
        :param last: end of the periods, exclusive
        :param queries: number of queries to make, None: all
        :returns: {uuid: {interface: {host: {number of the query: (times,
            values)}}}}
        """
        instance_uuids = {uuid for uuid, _ in shard}
        values = sorted({value for _, values in shard for value in values})
        pieces = {}
        for number, query in enumerate(self._names.queries[:queries]):
            for labels, times, readings in self._all_samples(
                    query, self._names.select_label, values, first, last):
                for uuid, begin, end in self._owners(labels, first, last):
                    if uuid not in instance_uuids:
                        continue
                    inside = (times >= begin) & (times < end)
                    pieces.setdefault(uuid, {}).setdefault(
                        _values(labels, self._names.interface_labels), {}
                    ).setdefault(
                        _values(labels, self._names.host_labels), {}
                    ).setdefault(number, {}).setdefault(
                        tuple(sorted(labels.items())), []).append(
                        (times[inside], readings[inside]))
        return {uuid: self._joined(uuid, links)
                for uuid, links in pieces.items()}

    def _joined(self, uuid, links):
        """Return the counters of an instance, from the pieces of its series.

        An interface that cannot be decided has no host.
        """
        counters = {}
        for interface, hosts in links.items():
            for host, columns in hosts.items():
                joined = joining.join({
                    number: {labels: joining.usable(
                        *map(np.concatenate, zip(*parts)))
                        for labels, parts in series.items()}
                    for number, series in columns.items()})
                if joined.undecided:
                    self._note(f'interface: {uuid}: the values of its series '
                               f'neither agree nor differ')
                for place, counter in enumerate(joined.counters):
                    by_host = counters.setdefault((interface, place), {})
                    if not joined.undecided:
                        by_host[host] = counter
        return counters

    def polls(self, hosts, first, last):
        """Return {host label: columns of the times of the source's polls}.

        :param hosts: values of the last host label
        """
        label, polls = self._names.host_labels[-1], {}
        for name in _TIMES_OF_POLLS:
            for labels, *column in self._all_samples(
                    name, label, hosts, first, last):
                polls.setdefault(labels.get(label), {}).setdefault(
                    tuple(sorted(labels.items())), []).append(column)
        return {host: [joining.usable(*map(np.concatenate, zip(*pieces)))
                       for pieces in series.values()]
                for host, series in polls.items()}

    def columns(self, shard, first, last):
        """Return [(times, values)] of the bytes of all interfaces.

        :param shard: list of (instance uuid, values of the select label)
        :param first: first period
        :param last: end of the periods, exclusive
        """
        return [column for links in self.counters(
            shard, first, last, queries=2).values()
            for hosts in links.values() for columns in hosts.values()
            for column in columns.values()]

    def _all_samples(self, query, label, values, first, last):
        """Yield (labels, times, values) in requests of a limited size."""
        begin = 0
        while begin < len(values):
            part = values[begin:begin + min(len(values),
                                            self._queries.most_items)]
            low = first
            while low < last:
                high = min(last, low + self._longest(len(part)))
                yield from self._samples(query, label, part, low, high)
                low = high
            begin += len(part)

    def _samples(self, query, label, values, low, high):
        """Yield (labels, times, values) of the given periods."""
        def ask(values, low, high, divisible):
            series = self._client.samples(
                _with_values(query, label, values),
                low * self._period_seconds, high * self._period_seconds,
                divisible)
            densest = max((len(times) for _, times, _ in series), default=0)
            # With at most one sample the interval is unknown: request more
            # next time.
            seconds = (high - low) * self._period_seconds / densest \
                if densest > 1 else 2 * self._sample_seconds
            self._sample_seconds = min(seconds, self._period_seconds)
            return series

        for answer in self._queries.answers(ask, values, low, high):
            yield from answer


def _uuid(text):
    match = _UUID.search(text or '')
    return base.normalised_uuid(match[0]) if match else None


def _values(labels, names):
    return tuple(labels.get(name, '') for name in names)


def _longer_ends(pattern):
    """Return patterns that divide the values of a pattern by a character.

    :param pattern: ``.*`` and the last characters of values, or complete
        values, as a regular expression
    """
    if not pattern.startswith('.*') or len(pattern) > _LONGEST_PATTERN:
        return []
    end = pattern[2:]
    return [f'.*{character}{end}' for character in (
        *'0123456789abcdef', '[^0-9a-f]')] + [end] * bool(end)


def _quoted(value):
    """Return a label's value for a regular expression of PromQL.

    The function first escapes special characters of regular expressions, then
    special characters of strings.
    """
    pattern = re.sub(r'([\\.+*?()|\[\]{}^$])', r'\\\1', value)
    return pattern.replace('\\', '\\\\').replace('"', '\\"') \
        .replace('\n', '\\n')


def _with_values(selector, label, values):
    """Return a selector, limited to series with one of the values."""
    return _with_pattern(selector, label, '|'.join(map(_quoted, values)))


def _with_pattern(selector, label, pattern):
    matcher = f'{label}=~"{pattern}"'
    name, brace, conditions = selector.partition('{')
    inside = conditions.rpartition('}')[0].strip().rstrip(',') if brace else ''
    return f'{name}{{{inside + "," if inside else ""}{matcher}}}'
