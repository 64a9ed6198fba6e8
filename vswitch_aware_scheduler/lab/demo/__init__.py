# SPDX-License-Identifier: Apache-2.0
"""Places one list of VMs with a real Nova, and replays the traffic.

Run it as ``python -m vswitch_aware_scheduler.demo``; user/demo.rst explains
the result. Only ``cloud`` imports nova, in separate processes.
"""
