# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of vswitch-manage, one module each.

A module has the name of its sub-command and a function ``add_arguments(
parser)``. That adds either arguments and a default ``function``, or commands
below it with :meth:`~vswitch_aware_scheduler.cmd.deferred.Parser.add_command`.
A function takes the arguments and the options of the group
[vswitch_scheduler], prints its answer and returns the exit status. A module is
imported only when its sub-command is called.
"""
