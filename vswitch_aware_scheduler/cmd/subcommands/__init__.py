# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of vswitch-manage.

Each is a class of :mod:`~vswitch_aware_scheduler.cmd.base` and an entry point
of the group ``vswitch_aware_scheduler.commands``. A module is only imported if
one of its sub-commands is called.
"""
