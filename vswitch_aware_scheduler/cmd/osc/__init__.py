# SPDX-License-Identifier: Apache-2.0
"""``openstack vswitch``: the lists of vswitch-manage in OpenStackClient.

OpenStackClient loads ``plugin``; ``commands`` has the commands. There is no
API server: like vswitch-manage, the commands read the store.
"""
