# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks on recorded traffic share."""

import os

from vswitch_aware_scheduler.traffic import model

#: The product's default for an instance of which nothing is known.
DEFAULT_LAW = model.TrafficModel.on_off(
    4000, 4000, on_seconds=900, off_seconds=10000).law


def add_argument(parser):
    """Add --traces, the folder where the traffic lies."""
    parser.add_argument('--traces', metavar='DIR',
                        default=os.environ.get('VSWITCH_TRACES'),
                        help='default: VSWITCH_TRACES of the environment')
