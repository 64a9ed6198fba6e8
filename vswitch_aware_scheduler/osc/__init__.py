# SPDX-License-Identifier: Apache-2.0
"""``openstack vswitch``: the lists of vswitch-manage in OpenStackClient.

``plugin`` is what OpenStackClient loads, ``commands`` are the commands. There
is no API server: the commands read the store, as vswitch-manage does.
"""
