# SPDX-License-Identifier: Apache-2.0
"""Error budgets of hosts and uplinks, and the migrations that they pay for.

A host may be overloaded for the share E of its time, the configured overload
probability. In each second in which it is in use and measured, it earns 0.6 E
seconds of overload, up to what it earns in 30 days. It spends the time of its
avoidable overload: the sum of its instances exceeds a limit that no instance
exceeds alone. A host with a negative balance is in debt. New instances use it
last, and those of projects that spent its budget only if no other host passes,
unless it has spent at most what it earned in the last three days.
An uplink has a budget for the instances of all hosts behind it.

* ``rules`` is this arithmetic. ``accounts`` applies it in a modeler's pass to
  the rates of ``measuring``, and ``settlement`` charges overload to the
  instances that made it.
  ``packed`` stores the sums of hosts, and ``deviation`` compares predicted
  with measured overload.
* ``proposal`` proposes live migrations away from hosts in debt: ``plan_input``
  reads the fleet, ``relief`` selects moves, and
  ``destinations`` judges them as the filter does.
* ``executor`` executes a plan, for ``rebalancer`` (the modeler), the command
  ``vswitch-manage rebalance`` and ``watcher``. ``effects`` records the effect.

The records are those of ``store.budgets`` and ``store.plans``.
Operators read admin/error_budget.rst. Derivation: reference/rebalance.rst.
"""
