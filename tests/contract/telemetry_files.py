# SPDX-License-Identifier: Apache-2.0
"""Writes :class:`.telemetry_driver.Traffic` in the formats of the driver."""

import os
import random

import numpy as np

_GWA_HEADER = ';\t'.join([
    'Timestamp [ms]', 'CPU cores', 'CPU capacity provisioned [MHZ]',
    'CPU usage [MHZ]', 'CPU usage [%]', 'Memory capacity provisioned [KB]',
    'Memory usage [KB]', 'Disk read throughput [KB/s]',
    'Disk write throughput [KB/s]', 'Network received throughput [KB/s]',
    'Network transmitted throughput [KB/s]'])


def write_npz(folder, traffic):
    path = os.path.join(folder, 'trace.npz')
    np.savez_compressed(
        path, vm=np.array(traffic.numbers), t0=traffic.t0,
        dt=traffic.period_seconds,
        rx_KBps=(traffic.ingress_kbps / 8).astype(np.float32),
        tx_KBps=(traffic.egress_kbps / 8).astype(np.float32))
    return path


def write_gwa(folder, traffic, opener=open, suffix='.csv'):
    for number in traffic.numbers:
        path = os.path.join(folder, f'{number}{suffix}')
        with opener(path, 'wt') as stream:
            stream.write(_GWA_HEADER + '\n')
            for time, sent, received in zip(
                    traffic.times, traffic.egress_kbps[number - 1] / 8,
                    traffic.ingress_kbps[number - 1] / 8):
                stream.write(';\t'.join(
                    [str(time), '4', '1.0', '1.0', '1.0', '8388608.0', '1.0',
                     '0.0', '0.0', _cell(received), _cell(sent)]) + '\n')
    return folder


def write_plain(folder, traffic, kpps=False, suffix='.csv', opener=open):
    rows = []
    for number in traffic.numbers:
        for at, time in enumerate(traffic.times):
            cells = [str(number), str(time),
                     _cell(traffic.egress_kbps[number - 1, at]),
                     _cell(traffic.ingress_kbps[number - 1, at])]
            if kpps:
                cells.append(_cell(traffic.kpps[number - 1, at]))
            rows.append(','.join(cells) + '\n')
    # VMs keep the order in which they first appear, rows do not.
    first, rest = rows[::len(traffic.times)], rows
    for row in first:
        rest.remove(row)
    random.Random(7).shuffle(rest)
    path = os.path.join(folder, f'traffic{suffix}')
    with opener(path, 'wt') as stream:
        stream.write('instance,time,egress_kbps,ingress_kbps'
                     + (',kpps' if kpps else '') + '\n')
        stream.writelines(first + rest)
    return path


def _cell(rate):
    return '' if np.isnan(rate) else repr(float(rate))
