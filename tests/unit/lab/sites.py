# SPDX-License-Identifier: Apache-2.0
"""A site of VXLAN gateways, and variants of it."""

#: Two silos of two racks each; the second has one VLAN domain for both.
SITE = {
    'gateways': {
        'g1': {'interfaces': 4, 'mapping_entries': 10},
        'g2': {'interfaces': 4, 'mapping_entries': 8, 'switch_back': True}},
    'silos': {
        'east': {'interface_groups': {'e1': {'g1': 2}, 'e2': {'g2': 2}}},
        'west': {'interface_groups': {'w': {'g1': [3, 4], 'g2': [4]}}}},
    'tenants': {
        'red': {'networks': {
            'web': {'silos': ['east', 'west']},
            'db': {'silos': ['west'], 'vlans': {'w': 2}, 'vni': 4096}}},
        'blue': {'networks': {'web': {'vlans': {'e1': None, 'w': 7}}}}}}


def changed(path, value):
    """Return the site with something else at a path of keys."""
    def at(data, keys):
        if not keys:
            return value
        return {**data, keys[0]: at(data.get(keys[0], {}), keys[1:])}
    return at(SITE, path)
