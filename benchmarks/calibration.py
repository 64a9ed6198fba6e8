#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures overload and hosts of methods on recorded traffic.

Evaluates each fleet alone (--after: also after each other fleet), with both
protocols, limits .01 and .003, and three capacities. Prints the measures of
vswitch-manage evaluate and their means over the cases. Settings are those of a
configuration, by default as shipped.

    calibration.py --traces DIR --methods ours,onoff

DIR has two traces that ``vswitch-manage evaluate`` can read. To evaluate
another estimator, write a file that defines METHODS, a list of
evaluate.methods.Method:

    calibration.py --traces DIR --variants mine.py --methods mine
"""

import runpy
import sys

import _traces
from vswitch_aware_scheduler.lab.evaluate import methods


def main():
    parser = _traces.parser(__doc__, 'ours')
    parser.add_argument('--variants', metavar='PATH',
                        help='Python file that defines METHODS')
    parser.add_argument('--protocols', metavar='NAME,...',
                        default='static,rolling')
    options = parser.parse_args()
    if not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to calibrate')
        return 0
    settings = _traces.settings(options.config_file)
    available = methods.make_methods(settings)
    if options.variants:
        available += runpy.run_path(options.variants)['METHODS']
    _traces.main(options, _traces.choose(available, options.methods), settings)
    return 0


if __name__ == '__main__':
    sys.exit(main())
