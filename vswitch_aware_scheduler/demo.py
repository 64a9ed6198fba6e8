# SPDX-License-Identifier: Apache-2.0
"""The demo: ``python -m vswitch_aware_scheduler.demo``."""

from vswitch_aware_scheduler.lab.demo import __main__ as _demo

if __name__ == '__main__':
    raise SystemExit(_demo.main())
