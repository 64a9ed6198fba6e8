# SPDX-License-Identifier: Apache-2.0
"""The fleet of the demo: its traffic, its list of VMs and its hosts.

Generates traffic from published statistics. Converts a trace to models in a
store and to a list of VMs with the code of the product. No nova and no policy.
"""

import csv
import dataclasses
import math
import os

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.traffic import estimate

__all__ = ['CARRYING_SHARE', 'HOST_MIX', 'LearnedTrace', 'MIN_MEAN_KBPS',
           'TraceVm', 'generate_trace', 'host_memory_mb', 'hosts', 'learn',
           'packed_policies', 'split']

#: 10 KB/s: VMs with a smaller rate count as idle, as in the published
#: statistics of GWA-T-12.
MIN_MEAN_KBPS = 80.0

#: A shorter list is filled with the next busiest VMs of a trace.
MIN_VMS = 150

#: Share of the VMs of GWA-T-12 "Rnd" that have traffic.
CARRYING_SHARE = 0.4

_PERIOD_SECONDS = 300
_DAY_SECONDS = 86400
_START = 1375315200      # 2013-08-01T00:00:00Z

#: Switch profiles of the hosts and their shares: test beds 2 and 1 and the
#: two figures of the large servers in "Towards a Method Integrating Virtual
#: Switch Performance Into Data Centre Design".
HOST_MIX = {'ovs-vxlan-microserver': 6 / 24, 'ovs-vxlan-1g': 10 / 24,
            'ovs-vxlan': 6 / 24, 'ovs-flat': 2 / 24}

_MEMORY_STEP_MB = 256 * 1024
_NO_CORES, _NO_MEMORY_MB = 1, 1024


# Published on/off statistics of the generated VMs: Bitbrains GWA-T-12 "Rnd",
# 500 VMs, July and August 2013, VMs with traffic, periods of 300 s. Each VM
# draws its own values, log-normal around the medians.
#: Median probability of a change to on; published .023-.037.
_OFF_TO_ON = 0.031
#: Median probability of a change to off; published .30-.38.
_ON_TO_OFF = 0.34
#: Median of the VMs' mean rates, and deviation of the logarithm.
_MEAN_KBPS, _MEAN_SPREAD = 800.0, 1.5
#: Mean rate of the fleet divided by the number of VMs with traffic; published
#: 0.4-0.65 Gbps for about 200.
_FLEET_KBPS_PER_VM = 2600.0
#: Deviation of the logarithm of the rates of a VM while it is on.
_LEVEL_SPREAD = 0.85
#: Upper bound of all rates; the largest sample is 6.5 Gbps.
_PEAK_KBPS = 6_500_000.0
#: Relative variation of the probability of a change to on over a day.
_DIURNAL = 0.4


@dataclasses.dataclass(frozen=True)
class TraceVm:
    """One VM of the list."""

    uuid: str
    name: str
    vcpus: int
    memory_mb: int


@dataclasses.dataclass(frozen=True, eq=False)
class LearnedTrace:
    """A list of VMs with learned models, and the traffic that followed.

    :ivar vms: list of TraceVm in the order of their requests
    :ivar rates: {uuid: (t, 2) egress_kbps, ingress_kbps} in the second half of
        the period; 0 for missing samples
    :ivar missing_share: share of the replayed samples that are missing in the
        trace
    :ivar start: start of the second half, seconds UTC
    """

    vms: list
    rates: dict
    period_seconds: float
    models: int
    missing_share: float
    start: float


# Generated traffic

def generate_trace(path, rng, carrying=180, days=30):
    """Write a trace with the published statistics, as .npz and CSV.

    :param path: path that ends in .npz; ``vms_<name>.csv`` is written next to
        it
    :param days: length in days, with one sample per 300 s
    """
    total = max(carrying, round(carrying / CARRYING_SHARE))
    periods = int(days * _DAY_SECONDS // _PERIOD_SECONDS)
    kbps = np.empty((total, periods))
    kbps[:carrying] = _carried_kbps(rng, carrying, periods)
    # The other VMs have some kbit/s of background traffic.
    kbps[carrying:] = rng.lognormal(0.0, 1.0, (total - carrying, 1)) \
        * rng.lognormal(0.0, 0.5, (total - carrying, periods))
    kbps = kbps[rng.permutation(total)]
    ingress = rng.beta(4.0, 2.6, (total, 1)) * kbps
    numbers = np.arange(1, total + 1)
    kbps_per_kbytes = telemetry_file.KBPS_PER_KBYTES
    np.savez(path, vm=numbers, t0=_START, dt=_PERIOD_SECONDS,
             rx_KBps=(ingress / kbps_per_kbytes).astype(np.float32),
             tx_KBps=((kbps - ingress) / kbps_per_kbytes).astype(np.float32))
    cores = rng.choice([1, 2, 4, 8], total, p=[0.35, 0.3, 0.25, 0.1])
    memory_gb = cores * rng.choice([2, 4, 8], total, p=[0.4, 0.45, 0.15])
    folder, name = os.path.split(path)
    with open(os.path.join(folder, f'vms_{name[:-len(".npz")]}.csv'), 'w',
              newline='') as stream:
        rows = csv.writer(stream)
        rows.writerow(['vm', 'cpu_cores', 'mem_kb'])
        rows.writerows(zip(numbers.tolist(), cores.tolist(),
                           (memory_gb * 1024 * 1024).tolist()))


def _carried_kbps(rng, count, periods):
    """Return (count, periods) kbit/s, the sum of egress and ingress."""
    def drawn(median, spread):
        return rng.lognormal(math.log(median), spread, count)

    off_to_on = np.minimum(drawn(_OFF_TO_ON, 0.6), 0.5)
    on_to_off = np.minimum(drawn(_ON_TO_OFF, 0.4), 0.95)
    hours = np.arange(periods) * _PERIOD_SECONDS / 3600.0
    swing = 1 + _DIURNAL * np.sin(2 * np.pi * (hours - 8) / 24)
    is_on = rng.random(count) < off_to_on / (off_to_on + on_to_off)
    level = rng.lognormal(0.0, _LEVEL_SPREAD, count)
    shape = np.empty((count, periods))
    for period in range(periods):
        chance = rng.random(count)
        before = is_on
        is_on = np.where(is_on, chance >= on_to_off,
                         chance < off_to_on * swing[period])
        fresh = rng.lognormal(0.0, _LEVEL_SPREAD, count)
        # Each episode has its own rate; the rate while off is one hundredth of
        # it.
        level = np.where(is_on & ~before, fresh, level)
        shape[:, period] = np.where(is_on, level, 0.01)
    shape *= rng.lognormal(0.0, 0.25, shape.shape)
    mean = np.maximum(drawn(_MEAN_KBPS, _MEAN_SPREAD), 1.5 * MIN_MEAN_KBPS)
    mean *= _FLEET_KBPS_PER_VM / mean.mean()
    return np.minimum(shape * (mean / shape.mean(axis=1))[:, None],
                      _PEAK_KBPS)


# From a trace to models and a VM list

def split(series, time: float) -> tuple:
    """Return the parts of a RateSeries before and after a time."""
    first = series.times < time
    return tuple(
        dataclasses.replace(series, times=series.times[part],
                            rates=series.rates[part])
        for part in (first, ~first))


def learn(path, store_url, rng, count=None, progress=None):
    """Fit models to the first half of a trace. Return the LearnedTrace.

    The code of the product is used: the file driver reads, models are fitted
    to transition counts and written to a new store. The VMs of the list are
    selected by the first half only.

    :param rng: numpy Generator, for the order of the list
    :raises TelemetryError: if the trace cannot be read, or has no VM with
        enough samples for a model
    """
    driver = telemetry_file.FileDriver(path)
    instances = {item.uuid: item for item in driver.instances()}
    all_series = [series for series in driver.series(progress=progress)
                  if len(series)]
    if not all_series:
        raise exceptions.TelemetryError(
            f'trace {driver.source}: no instance has a sample')
    start = min(series.times[0] for series in all_series)
    end = max(series.times[-1] + series.period_seconds
              for series in all_series)
    middle = start + (end - start) / 2
    stored, means, earlier, later = [], {}, {}, {}
    for series in all_series:
        uuid = series.instance_uuid
        earlier[uuid], later[uuid] = split(series, middle)
    for uuid, before in earlier.items():
        try:
            counts = estimate.count_transitions(before)
            model = estimate.fit_model(counts, key=uuid)
        except exceptions.NotEnoughSamples:
            continue
        stored.append(store.StoredModel.from_counts(
            uuid, model, counts, refused=before.refused, source='file',
            name=instances[uuid].name))
        means[uuid] = before.rates[:, :2].sum(axis=1).mean()
    if not stored:
        raise exceptions.TelemetryError(
            f'trace {driver.source}: no instance has enough samples in the '
            f'first half for a model')
    migration.sync(store_url)
    store.Store(store_url).write(stored)
    chosen = sorted(means, key=means.get, reverse=True)
    if count is None:
        carrying = sum(mean > MIN_MEAN_KBPS for mean in means.values())
        count = max(carrying, MIN_VMS)
    chosen = sorted(chosen[:count])
    period = float(np.median([series.period_seconds
                              for series in all_series]))
    periods = max(1, int((end - middle) // period))
    # All VMs share the grid, so that their sums refer to the same times.
    grid = packed.Slots(period, round(middle / period), periods)
    rates, samples = {}, 0
    for uuid in chosen:
        vm_rates, is_measured = grid.mean(later[uuid])
        rates[uuid] = vm_rates[:, :2]
        samples += np.count_nonzero(is_measured)
    return LearnedTrace(
        [_vm(instances[chosen[i]]) for i in rng.permutation(len(chosen))],
        rates, period, len(stored), 1 - samples / (len(chosen) * periods),
        middle)


def _vm(instance):
    cores = instance.metadata.get('cpu_cores', 0)
    memory_mb = math.ceil(instance.metadata.get('memory_kb', 0) / 1024)
    return TraceVm(instance.uuid, instance.name, int(cores) or _NO_CORES,
                   memory_mb or _NO_MEMORY_MB)


# Hosts

def hosts(count: int) -> list:
    """Return [(host, profile name)] with the mix of profiles."""
    shares = {name: max(1, math.floor(share * count))
              for name, share in HOST_MIX.items()}
    while sum(shares.values()) < count:
        lacking = max(shares, key=lambda name: HOST_MIX[name] * count
                      - shares[name])
        shares[lacking] += 1
    while sum(shares.values()) > count:
        shares[max(shares, key=shares.get)] -= 1
    # The hosts of a type are distributed evenly among the others, so that a
    # tie that is broken by name favours none.
    by_place = sorted(
        ((position + 0.5) / number * count + order / 10.0, name)
        for order, (name, number) in enumerate(shares.items())
        for position in range(number))
    return [(f'compute{i:02d}', name)
            for i, (_, name) in enumerate(by_place, 1)]


def packed_policies(hosts: list, profiles: dict, admission_policy: str,
                    overload_probability: float) -> dict:
    """Return {host: its facts in the store, of the policy}.

    :param hosts: [(host, profile name)]
    :param profiles: {name: SwitchProfile}
    """
    return {host: {
        **policy_in_force.pack(admission.HostPolicy(
            profiles[name], admission_policy, overload_probability)),
        'origins': {}} for host, name in hosts}


def host_memory_mb(vms: list, host_count: int) -> int:
    """Return the memory of every host: twice the need of the list.

    All hosts are equal, so that a scheduler that uses cores and memory cannot
    distinguish them, and the largest VM fits on each host together with
    others.
    """
    needed_mb = max(2 * sum(vm.memory_mb for vm in vms) / host_count,
                    1.4 * max(vm.memory_mb for vm in vms))
    return math.ceil(needed_mb / _MEMORY_STEP_MB) * _MEMORY_STEP_MB
