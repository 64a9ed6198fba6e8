# SPDX-License-Identifier: Apache-2.0
"""What a source of telemetry has, and what is wrong with it.

One function for all drivers, whose result commands print and a service logs.
It reads lists and the samples of three instances, whatever the size of the
source.
"""

from collections.abc import Mapping
import dataclasses
import math
import typing

import numpy as np

from vswitch_aware_scheduler.telemetry import base

__all__ = ['Example', 'Findings', 'examine']

#: Number of instances whose samples are read.
_EXAMPLES = 3

#: Time of the samples that are read, seconds.
_SECONDS = 6 * 3600.0

#: Number of instances that are named.
_NAMED = 5

#: {kind of what a driver ignores: what to do}
_MENDS = {
    'name': 'let the exporters of the instances have different values of '
            'identity_labels',
    'interface': 'set interface_labels to labels that distinguish the '
                 'interfaces'}


@dataclasses.dataclass(frozen=True)
class Example:
    """An instance with the mean of its samples of the last hours.

    :ivar uuid: uuid of the instance
    :ivar name: its name in the source
    :ivar samples: number of samples
    :ivar egress_kbps: mean rate, or None without samples
    :ivar ingress_kbps: mean rate, or None without samples
    """

    uuid: str
    name: str
    samples: int
    egress_kbps: float | None
    ingress_kbps: float | None


@dataclasses.dataclass(frozen=True)
class Findings:
    """The result of :func:`examine`.

    :ivar facts: as :meth:`.base.Driver.facts` returns them
    :ivar instances: number of instances that the source has
    :ivar in_nova: number of them that Nova has, None without an inventory
    :ivar nova_only: number of instances of Nova that the source does not have,
        None without an inventory
    :ivar examples: list of :class:`Example`
    :ivar ignored: {reason: number} of what does not count
    :ivar problems: list of sentences, each with what to do
    """

    source: str
    facts: dict[str, typing.Any]
    instances: int
    in_nova: int | None
    nova_only: int | None
    examples: list[Example]
    ignored: dict[str, int]
    problems: list[str]

    def to_dict(self) -> dict[str, typing.Any]:
        """Return the findings as plain data."""
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """Return the findings as lines of text, the problems first."""
        facts = self.facts
        lines = [*self.problems, f'source: {self.source}']
        if 'server' in facts:
            lines.append(f'server: {facts["server"]}' + ''.join(
                f', {name} = {value}'
                for name, value in facts.get('limits', {}).items()))
        if 'exporters' in facts:
            lines.append('exporters: ' + (', '.join(
                f'{name} ({number} instances)' for name, number
                in facts['exporters'].items()) or 'none of the known ones')
                + f'; in use: {facts.get("exporter") or "none"}')
        if 'interfaces' in facts:
            lines.append(f'series: {facts["series"]} of {facts["interfaces"]} '
                         f'interfaces')
        lines.append(f'instances: {self.instances}' + (
            '' if self.in_nova is None else
            f', of which Nova has {self.in_nova}; {self.nova_only} instances '
            f'of Nova have no telemetry'))
        if facts.get('update_seconds') is not None:
            seconds = facts['update_seconds']
            lines.append('update interval of the counters: ' + (
                f'{seconds:g} s' if seconds else 'each reading') + ''.join(
                f', {name} = {"not set" if value is None else value}'
                for name, value in facts.get('configured', {}).items()))
        lines += [
            f'{example.name} ({example.uuid}): ' + (
                f'egress {example.egress_kbps:.4g} kbit/s, ingress '
                f'{example.ingress_kbps:.4g} kbit/s, {example.samples} '
                f'samples in {_SECONDS / 3600:g} hours'
                if example.samples else 'no sample')
            for example in self.examples]
        lines += [f'ignored: {count} ({reason})'
                  for reason, count in self.ignored.items()]
        return lines


def examine(driver: base.Driver, now: float,
            in_nova: Mapping[str, str | None] | None = None) -> Findings:
    """Return the :class:`Findings` about a driver's source.

    :param now: seconds UTC
    :param in_nova: {uuid: host} of the instances of Nova, or None if they are
        not known
    :raises TelemetryError: if the source cannot be read
    """
    if in_nova is not None:
        driver.hosts = {uuid: host for uuid, host in in_nova.items() if host}
    instances = driver.instances()
    has = {instance.uuid: instance.name for instance in instances}
    counted = sorted(has if in_nova is None else has.keys() & in_nova.keys())
    recent = driver.recent(now - _SECONDS)
    active = counted if recent is None \
        else [uuid for uuid in counted if uuid in recent] or counted
    chosen = active[::max(1, len(active) // _EXAMPLES)][:_EXAMPLES]
    examples = [_example(series, has[series.instance_uuid])
                for series in driver.series(
                    now - _SECONDS, math.nextafter(now, math.inf), chosen)
                ] if chosen else []
    facts = driver.facts()
    missing = [] if in_nova is None else sorted(in_nova.keys() - has.keys())
    return Findings(
        driver.source, facts, len(has),
        None if in_nova is None else len(counted),
        None if in_nova is None else len(missing), examples,
        dict(driver.ignored),
        _problems(driver, facts, has, counted, in_nova, missing, examples))


def _missing_problems(in_nova, missing, counted):
    """Return which instances of Nova have no telemetry, and why.

    If no instance of a host has telemetry, the host is the reason.
    """
    seen = {in_nova[uuid] for uuid in counted}
    silent, shown = {}, {}
    for uuid in missing:
        host = in_nova[uuid] or 'unknown host'
        (shown if host in seen else silent).setdefault(host, []).append(uuid)
    return [
        f'{sum(map(len, hosts.values()))} of {len(in_nova)} instances of Nova '
        f'have no telemetry: {_some(sum(hosts.values(), []))}: {why}: '
        f'{_some(sorted(hosts))}'
        for hosts, why in (
            (silent, 'no instance of their hosts has any: check that the '
                     'exporter runs there and is scraped'),
            (shown, 'other instances of their hosts have some: check that '
                    'these instances run, and that the exporter sees their '
                    'interfaces, on')) if hosts]


def _some(names):
    return ', '.join(names[:_NAMED]) + (
        ' and others' if len(names) > _NAMED else '')


def _example(series, name):
    rates = np.asarray(series.rates)
    means = rates[:, :2].mean(axis=0).tolist() if len(rates) else (None, None)
    return Example(series.instance_uuid, name, len(rates), *means)


def _problems(driver, facts, has, counted, in_nova, missing, examples):
    """Return what is wrong, in sentences that name the option to change."""
    problems = []
    others = {name: number for name, number
              in facts.get('exporters', {}).items()
              if name != facts.get('exporter')}
    if not has and in_nova == {}:
        return problems
    if not has:
        problems.append(f'telemetry {driver.source} has no instance' + (
            f' of exporter {facts["exporter"]}' if facts.get('exporter')
            else ''))
        if others:
            problems.append(
                'telemetry has instances of exporter '
                + ', '.join(f'{name} ({number})'
                            for name, number in others.items())
                + f': remove the option exporter, or set exporter = '
                f'{max(others, key=others.__getitem__)}')
        elif 'exporters' in facts:
            problems += [f'telemetry has series of {name}, which cannot be '
                         f'used: {why}'
                         for name, why in facts['unusable'].items()]
            problems.append(
                'telemetry has no series of a known exporter: check the url, '
                'that the exporter is scraped, or set egress_query, '
                'instance_label and the other names of your exporter')
        else:
            problems.append('check the url and the credentials, and that '
                            'the interfaces of instances are measured')
        return problems
    if in_nova is not None and not counted:
        problems.append(
            f'Nova has none of the {len(has)} instances of telemetry: check '
            f'that both belong to the same cloud, and instance_label')
    elif missing:
        problems += _missing_problems(in_nova, missing, counted)
    if examples and not any(example.samples for example in examples):
        problems.append(
            f'the instances {", ".join(e.uuid for e in examples)} have no '
            f'sample in the last {_SECONDS / 3600:g} hours: check the '
            f'exporter, and period_seconds')
    for kind, mend in _MENDS.items():
        reasons = [reason for reason in driver.ignored
                   if reason.startswith(f'{kind}:')]
        if reasons:
            problems.append(f'{reasons[0]}'
                            + (' and others' if len(reasons) > 1 else '')
                            + f': not learned: {mend}')
    update, period = facts.get('update_seconds'), driver.period_seconds
    configured = facts.get('configured', {}).get('update_interval_seconds')
    if None not in (update, configured) \
            and abs(update - configured) > 0.1 * max(update, configured):
        problems.append(
            f'counters are updated every {update:g} s, and '
            f'update_interval_seconds is {configured:g}: remove '
            f'update_interval_seconds, or set it to {update:g}')
    if update and period and update > 1.01 * period:
        problems.append(
            f'counters are updated every {update:g} s, and period_seconds is '
            f'{period:g}: set period_seconds = {update:g}')
    return problems
