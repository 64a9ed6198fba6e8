# SPDX-License-Identifier: Apache-2.0
"""The programs that tests start, and the system's packages that have them.

The one list: a unit test compares it with what ``.ci/install_servers``
installs, and with the programs that the tests and the calibrator name.
"""

from vswitch_aware_scheduler.lab.calibrate import machine

__all__ = ['FROM_INDEX', 'OPTIONAL', 'PACKAGES']

#: Package of Debian and its relatives: what the calibrator needs, and more.
PACKAGES = {
    **machine.PACKAGES,
    'cc': 'build-essential',
    'chromium': 'chromium',
    'etcd': 'etcd-server',
    'initdb': 'postgresql',
    'mariadb-install-db': 'mariadb-server',
    'mariadbd': 'mariadb-server',
    'ovn-sbctl': 'ovn-central',
    'ovsdb-client': 'openvswitch-switch',
    'postgres': 'postgresql',
    'prometheus': 'prometheus',
    'promtool': 'prometheus',
    'rabbitmq-server': 'rabbitmq-server',
    'redis-server': 'redis-server',
    'ssh-keygen': 'openssh-client',
    'sshd': 'openssh-server',
    'victoria-metrics': 'victoria-metrics',
}

#: Come with the requirements of the tests.
FROM_INDEX = frozenset({'gnocchi-metricd', 'gnocchi-upgrade',
                        'keystone-manage', 'neutron-db-manage'})

#: Without these the tests skip, in continuous integration as well: Ceilometer
#: 8 needs an older Python, ZooKeeper a Java runtime.
OPTIONAL = frozenset({'ceilometer-api', 'ceilometer-upgrade', 'zkServer.sh'})
