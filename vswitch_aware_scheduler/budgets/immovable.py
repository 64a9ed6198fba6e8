# SPDX-License-Identifier: Apache-2.0
"""Which instances must not be migrated, and why.

Nova's state and a lock bind an instance to its host, and so do parts of the
host that its flavor reserves. An operator forbids or allows migrations by the
key :data:`.flavor_specs.MIGRATE_EXTRA_SPEC` of a flavor or an aggregate. The
same key in the metadata of an instance, which its tenant sets, counts only if
an option says so. Pure.
"""

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.clients import nova

__all__ = ['why_fixed']

#: States of an instance that can be live migrated.
_STATES = ('active', 'paused')

#: Extra specs that bind instances to parts of their host.
_BINDING = ('pci_passthrough:', 'accel:', 'hw:numa', 'hw:mem_page_size',
            'hw:pmem', 'hw:cpu_realtime', 'hw:mem_encryption',
            'hw:tpm_version', 'resources')
_SHARED_POLICY = 'shared'

_KEY = flavor_specs.MIGRATE_EXTRA_SPEC
_ALLOWED, _NEVER = flavor_specs.MIGRATE_VALUES


def why_fixed(server: nova.NovaServer, aggregates: list[dict],
              heeds_metadata: bool) -> str | None:
    """Return why an instance must not be migrated, or None.

    :param aggregates: dictionaries with metadata and hosts, of all aggregates
    :param heeds_metadata: whether a tenant may forbid migrations
    """
    if server.state not in _STATES:
        return f'its state is {server.state}'
    if server.task is not None:
        return f'its task is {server.task}'
    if server.locked:
        return 'it is locked'
    forbidden = _forbidden(server, aggregates, heeds_metadata)
    if forbidden is not None:
        return forbidden
    for key, value in server.extra_specs.items():
        if key == 'hw:cpu_policy':
            if value.lower() != _SHARED_POLICY:
                return f'its flavor has {key}={value}'
        elif key.startswith(_BINDING):
            return f'its flavor has {key}={value}'
    return None


def _forbidden(server, aggregates, heeds_metadata):
    """Return who forbids the migration in words, or None.

    The flavor decides first, then the aggregates of the host, of which one
    that forbids is enough, then the tenant.
    """
    for where, mappings in (
            ('its flavor', [server.extra_specs]),
            ('an aggregate of its host', [
                aggregate['metadata'] for aggregate in aggregates
                if server.host in aggregate['hosts']]),
            ('its metadata', [server.metadata] if heeds_metadata else [])):
        values = {str(mapping.get(_KEY, '')).strip().lower()
                  for mapping in mappings}
        if _NEVER in values:
            return f'{where} has {_KEY}={_NEVER}'
        if _ALLOWED in values:
            return None
    return None
