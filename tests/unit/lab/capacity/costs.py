# SPDX-License-Identifier: Apache-2.0
"""Measurements of a switch whose costs are known."""

import math

from vswitch_aware_scheduler.lab.capacity import cost_model

SIZES = (88, 100, 250, 500, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 8000)


def row(size, packet_us, pairs=1, flows=1, **others):
    """Return the Measurement of a packet that takes so many microseconds."""
    return cost_model.Measurement(size, 8e3 * size / packet_us, pairs, flows,
                                  **others)


def table(sender, switch, pairs=(1, 2, 4, 8), sizes=SIZES, noise=None,
          deviation=.05):
    """Return rows of a switch with known costs (us, ns a byte)."""
    rows = []
    for count in pairs:
        for size in sizes:
            time = max((sender[0] + sender[1] * size / 1e3) / count,
                       switch[0] + switch[1] * size / 1e3)
            if noise is not None:
                time *= math.exp(noise.normal(0, deviation))
            rows.append(row(size, time, count))
    return rows
