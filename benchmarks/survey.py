#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verdict of a survey on recorded months, beside the truth and evaluate.

The survey plays the last week of a trace. Four fifths of the instances exist
at its begin, the others boot at random times; telemetry begins with the boot.
Nova spreads instances by their number over as many hosts as our method uses on
the whole trace in "evaluate". Printed are, for each fleet and capacity:

HOSTS, OVER     of evaluate: most hosts with our method ("prior"), and its
                overload over the limit
NOVA            the overload of Nova's hosts over the limit, by the trace
                and the boots alone: the truth
ABOVE, SURVEY   hosts above their limit: the truth, and by the survey
SHARE           largest difference of a host's measured share and the truth
SAME .. REFUSED decisions by outcome
LATER           share of hosts that were overloaded within a day, of decisions
                that the plugin would have changed / not have changed

    survey.py --traces DIR --months 2013-7.npz=180000,2013-8.npz=180000
"""

import argparse
import dataclasses
import json
import os
import tempfile
import time

import numpy as np

import _traces
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.cmd.survey import record as records
from vswitch_aware_scheduler.cmd.survey import replay
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import conf
from vswitch_aware_scheduler.fleet import realised
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler.lab.evaluate import protocols
from vswitch_aware_scheduler.lab.evaluate import settings as settings_of
from vswitch_aware_scheduler.lab.evaluate import trace as traces
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.vswitch import profile as switch_profile

_DAY = 86400.0
_DAYS = 7

#: Share of the instances that exist before.
_BEFORE = 0.8


class _SinceBoot(base.Driver):
    """A driver that has samples of each instance since its boot."""

    def __init__(self, driver, boots):
        super().__init__(300.0)
        self._driver, self._boots = driver, boots

    source = property(lambda self: self._driver.source)

    def instances(self):
        return [instance for instance in self._driver.instances()
                if instance.uuid in self._boots]

    def _series(self, start, end, instances, progress):
        for one in self._driver.series(start, end, instances, progress):
            boot = self._boots.get(one.instance_uuid)
            if boot is not None:
                kept = one.times >= boot
                yield dataclasses.replace(one, times=one.times[kept],
                                          rates=one.rates[kept])


def _evaluated(loaded, capacity, configured, seeds):
    """Return the figures of our method in evaluate."""
    chosen = [method for method in methods.make_methods(configured)
              if method.name == 'prior']
    results = protocols.evaluate(protocols.ReplayCase(
        loaded, capacity, configured.overload_probability,
        protocol=protocols.ROLLING, history='arrival'), chosen, seeds,
        None, configured.modeler_half_life_days)
    return results['prior'].figures(configured.overload_probability,
                                    results[protocols.CLAIRVOYANT])


def _record(loaded, begin, end, number, rng):
    """Return the Record of boots that spread instances over hosts."""
    counts = [0] * number
    instances, events = {}, []
    boots = np.sort(np.where(
        rng.random(len(loaded.uuids)) < _BEFORE, begin - _DAY,
        rng.uniform(begin, end, len(loaded.uuids))))
    for time_of, row in zip(boots.tolist(),
                            rng.permutation(len(loaded.uuids))):
        host = int(np.argmin(counts))
        counts[host] += 1
        instance = records.RecordedInstance(
            loaded.uuids[row], None, None, None, 0, 0, f'host{host}')
        instances[instance.uuid] = instance
        events.append(records.Event(time_of, instance, instance.host,
                                    kind=records.BOOT))
    return records.Record(instances, events)


def _truth(loaded, record, capacity, begin, end):
    """Return {host: (t,) whether overloaded, NaN before any instance}."""
    slots = slice(*np.searchsorted(loaded.times, [begin, end - 1e-6]))
    times = loaded.times[slots]
    row_of = {uuid: row for row, uuid in enumerate(loaded.uuids)}
    sums, first = {}, {}
    for event in record.events:
        on = times >= event.time
        sums[event.host] = sums.get(event.host, 0.0) + np.where(
            on, np.nan_to_num(loaded.rates[row_of[event.instance.uuid]][
                slots]), 0.0)
        first.setdefault(event.host, event.time)
    return {host: np.where(times >= first[host], load > capacity, np.nan)
            for host, load in sums.items()}


def _surveyed(path, record, number, capacity, begin, end, configured, group):
    """Return (decisions, {host: measured share})."""
    with tempfile.TemporaryDirectory() as folder:
        url = f'sqlite:///{os.path.join(folder, "survey.sqlite")}'
        migration.sync(url)
        store = model_store.Store(url)
        policy = policy_in_force.pack(admission.HostPolicy(
            switch_profile.SwitchProfile(
                'recorded', saturation_kbps=capacity,
                saturation_dimension='bandwidth'),
            configured.admission_policy, configured.overload_probability,
            prediction_margin=configured.prediction_margin))
        store.write_fleet({'uplink': {}, 'node': {}, 'aggregate': {}, 'host': {
            f'host{host}': {**policy, 'origins': {}}
            for host in range(number)}}, begin)
        driver = _SinceBoot(
            telemetry_file.FileDriver(path),
            {event.instance.uuid: event.time for event in record.events})
        decisions, sums = replay.play(
            store, driver, record,
            np.linspace(begin, end, replay.PASSES + 1),
            wiring.learning_settings(group, True),
            lambda one: wiring.read_fleet(one, group), {})
    return decisions, {
        f'host{host}': replay.overload_share(
            sums.get(f'host{host}'), configured.overload_probability, begin,
            end) for host in range(number)}


def _row(path, capacity, configured, group, options):
    loaded = traces.load(path)
    figures = _evaluated(loaded, capacity, configured, options.seeds)
    end = float(loaded.times[-1] + loaded.period_seconds)
    begin = end - _DAYS * _DAY
    number = max(2, round(options.hosts * figures['hosts']))
    record = _record(loaded, begin, end, number,
                     np.random.default_rng(options.seed))
    decisions, shares = _surveyed(path, record, number, capacity, begin, end,
                                  configured, group)
    limit = configured.overload_probability
    truth = _truth(loaded, record, capacity, begin, end)
    true_shares = {host: float(np.nanmean(over))
                   for host, over in truth.items()}
    outcomes = [decision.outcome for decision in decisions]

    def later(changed):
        judged = [realised.exceeds(decision.overload_afterwards, limit)
                  for decision in decisions
                  if (decision.outcome != replay.SAME) == changed
                  and decision.overload_afterwards is not None]
        return float(np.mean(judged)) if judged else None

    return {
        'fleet': os.path.splitext(os.path.basename(path))[0],
        'saturation_kbps': capacity, 'hosts': number,
        'evaluate_over_limit': figures['overload_over_limit_weighted'],
        'nova_over_limit': float(np.nanmean(np.stack(
            list(truth.values())))) / limit,
        'hosts_above': sum(realised.exceeds(share, limit)
                           for share in true_shares.values()),
        'hosts_above_survey': sum(
            share is not None and realised.exceeds(share, limit)
            for share in shares.values()),
        'largest_difference': max(
            abs(share - true_shares[host]) for host, share in shares.items()
            if share is not None),
        **{outcome: outcomes.count(outcome) for outcome in (
            replay.SAME, replay.ELSEWHERE, replay.REFUSED)},
        'changed_overloaded_later': later(True),
        'same_overloaded_later': later(False)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--months', metavar='FILE=C/...,...',
                        default='2013-8.npz=180000')
    parser.add_argument('--seeds', type=int, default=1,
                        help='orders of evaluate (default: 1)')
    parser.add_argument('--hosts', metavar='X', type=float, default=1.0,
                        help='factor on the number of hosts (default: 1)')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    group = conf.read([os.devnull])[conf.GROUP]
    configured = settings_of.EvaluationSettings.of(group)
    began, rows = time.monotonic(), []
    for word in options.months.split(','):
        name, _, capacities = word.partition('=')
        for capacity in _traces.numbers(capacities.replace('/', ',')):
            rows.append(_row(os.path.join(options.traces, name), capacity,
                             configured, group, options))
    if options.json:
        print(json.dumps({'rows': rows, 'seconds': time.monotonic() - began},
                         indent=2))
        return
    terminal.print_table(
        ['FLEET', 'KBPS', 'HOSTS', 'OVER', 'NOVA', 'ABOVE', 'SURVEY', 'SHARE',
         'SAME', 'ELSEWHERE', 'REFUSED', 'LATER'], [[
             row['fleet'], f'{row["saturation_kbps"]:g}', row['hosts'],
             f'{row["evaluate_over_limit"]:.2f}',
             f'{row["nova_over_limit"]:.2f}', row['hosts_above'],
             row['hosts_above_survey'], f'{row["largest_difference"]:.4f}',
             row['same'], row['elsewhere'], row['refused'],
             ' / '.join('-' if value is None else f'{value:.0%}' for value in (
                 row['changed_overloaded_later'],
                 row['same_overloaded_later']))] for row in rows])
    print(f'{time.monotonic() - began:.0f} s')


if __name__ == '__main__':
    main()
