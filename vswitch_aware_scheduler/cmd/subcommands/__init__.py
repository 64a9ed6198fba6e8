# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of vswitch-manage, one module each.

A module has the name of its sub-command and a function
``add_arguments(parser)``. That function adds arguments and a default
``function``, or further sub-commands with
:meth:`~vswitch_aware_scheduler.cmd.deferred.Parser.add_command`. A
``function`` has the arguments and the options of the group [vswitch_scheduler]
as parameters, prints its answer and returns the exit status. A module is only
imported if its sub-command is called.
"""
