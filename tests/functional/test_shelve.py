# SPDX-License-Identifier: Apache-2.0
"""Shelving gives the room back, unshelving asks for it anew."""

from tests.functional import base


class ShelveTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_an_unshelved_vm_counts_with_its_learned_model(self):
        self.flags(shelved_offload_time=0)
        self.describe_hosts(1000, 600)
        whole = self.of(1000)
        server = self.boot(whole, 'host1')
        self._shelve_server(server)
        self.wait_for(lambda: not self._lists(server['id']),
                      'no host to list the server')
        self.read_record()
        other = self.boot(whole, 'host1')
        # By its flavor it fits nowhere.
        self.action(server, 'unshelve')
        self._wait_for_server_parameter(server, {
            'status': 'SHELVED_OFFLOADED', 'OS-EXT-STS:task_state': None})
        # By what it is known to do it fits the second.
        self.learn(server['id'], egress_kbps=500)
        self._unshelve_server(server)
        self.assertEqual('host2', self.host_of(server))
        self.room('host2', 100)
        self.boot_refused(whole)
        self.delete(other)
        self.boot(whole, 'host1')
