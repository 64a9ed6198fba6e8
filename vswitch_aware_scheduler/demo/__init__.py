# SPDX-License-Identifier: Apache-2.0
"""One VM list, placed twice by a real Nova, and the traffic replayed.

Run as ``python -m vswitch_aware_scheduler.demo``; the manual's user/demo.rst
tells what it shows and how. Only ``cloud`` imports nova, and it runs in
processes of its own.
"""
