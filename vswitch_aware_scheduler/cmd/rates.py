# SPDX-License-Identifier: Apache-2.0
"""Keys of the three rates of a traffic model in JSON.

These are egress in kbit/s, ingress in kbit/s and packets per millisecond
(kpps), in this order.
"""

__all__ = ['NAMES', 'by_name', 'packets_known']

#: Keys of the three rates in JSON.
NAMES = ('egress_kbps', 'ingress_kbps', 'kpps')


def by_name(values: list[float], with_packets: bool = True) -> dict:
    """Return {name: rate} for JSON.

    :param values: the three rates
    :param with_packets: whether the packet rate is known; otherwise it is None
    """
    rates = dict(zip(NAMES, values))
    return rates if with_packets else {**rates, 'kpps': None}


def packets_known(summary):
    """Return whether the packet rate of a model was measured.

    :param summary: :class:`~vswitch_aware_scheduler.store.ModelSummary`
    """
    return summary.peak[2] > 0 or not any(summary.peak[:2])
