# SPDX-License-Identifier: Apache-2.0
"""How rebalancing is set up, as plain values. Pure."""

import dataclasses

from vswitch_aware_scheduler.budgets import cost
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions

__all__ = ['ADVISE', 'CHECK_SECONDS', 'EXECUTE', 'LEAST_KBPS', 'OFF',
           'RebalanceSettings', 'SEPARATE', 'SWITCH']

OFF, ADVISE, EXECUTE = 'off', 'advise', 'execute'

SEPARATE, SWITCH = 'separate', 'switch'

#: Time between two plans, and between two checks whether a host is in debt.
CHECK_SECONDS = 900.0

#: Migrations through the virtual switch need this bandwidth, in kbit/s.
LEAST_KBPS = 1e6

#: A network of its own has this bandwidth where nothing says which.
_SEPARATE_KBPS = 1e7

#: A migration through the virtual switch has this share of the capacity.
_SHARE = 0.2


@dataclasses.dataclass(frozen=True)
class RebalanceSettings:
    """Values of the options ``rebalance_*``, which describe them.

    These have no option:

    :ivar downtime_seconds: longest downtime of a migration, as by default of
        the option live_migration_downtime of nova-compute
    """

    mode: str = OFF
    network: str = SWITCH
    link_kbps: float | None = None
    dirty_kbps: float = 80000.0
    downtime_seconds: float = 0.5
    copy_disks: bool = False
    checks: int = 2
    most_moves: int = 10
    parallel: int = 1
    cool_down_hours: float = 24.0
    tenant_veto: bool = False

    @property
    def churn(self) -> relief.Churn:
        """The limits on the number of moves, as :class:`.relief.Churn`."""
        return relief.Churn(self.cool_down_hours * 3600.0, self.most_moves)

    @property
    def is_separate(self) -> bool:
        """Whether migrations have a network of their own."""
        return self.network == SEPARATE

    def kbps(self, capacity_kbps: float) -> float:
        """Return the bandwidth of a migration."""
        if self.link_kbps is not None:
            return self.link_kbps
        return _SEPARATE_KBPS if self.is_separate else _SHARE * capacity_kbps

    def cost_of(self, server: nova.NovaServer,
                capacity_kbps: float) -> cost.MigrationCost:
        """Return the :class:`.cost.MigrationCost` of a server."""
        mebibytes = server.shape.memory_mib
        if self.copy_disks:
            mebibytes += 1024 * server.shape.disk_gib
        return cost.migration(mebibytes, self.dirty_kbps,
                              self.kbps(capacity_kbps), self.downtime_seconds)

    def check_network(self, capacity_kbps: float, memory_mib: float) -> None:
        """Check that migrations may be executed.

        :raises InvalidInput: when the network is too slow
        """
        link_kbps = self.kbps(capacity_kbps)
        if self.is_separate or link_kbps >= LEAST_KBPS:
            return
        hours = memory_mib * cost.KBIT_PER_MIB / link_kbps / 3600
        raise exceptions.InvalidInput(
            f'network of migrations: {link_kbps:g} kbit/s of the virtual '
            f'switch; expected {LEAST_KBPS:g} kbit/s or more, or a separate '
            f'network: the migration of {memory_mib / 1024:.3g} GiB would '
            f'load both hosts for {hours:.1f} hours. Set rebalance_network '
            f'to separate, or rebalance_link_kbps')
