# SPDX-License-Identifier: Apache-2.0
"""Every option of the project, all in the group ``[vswitch_scheduler]``.

The same group is read from nova.conf by the scheduler and from a file of our
own, or nova.conf again, by the commands. Imports no implementation.
"""

from vswitch_aware_scheduler.conf import opts

__all__ = ['GROUP', 'register_opts']

#: Name of the group.
GROUP = opts.GROUP

register_opts = opts.register_opts
