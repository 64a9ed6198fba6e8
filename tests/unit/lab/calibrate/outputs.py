# SPDX-License-Identifier: Apache-2.0
"""What programs that measure print."""

import json
import pathlib


def iperf3(name):
    """Return the output of a version of iperf3, without its intervals."""
    return (pathlib.Path(__file__).parent / 'iperf3' / f'{name}.json'
            ).read_text()


def udp(packets, lost, payload, seconds=2.0):
    """Return the parts of iperf3's JSON that tell of a UDP test."""
    sent = {'seconds': seconds, 'bytes': packets * payload,
            'packets': packets, 'lost_packets': lost, 'sender': True}
    received = {**sent, 'bytes': (packets - lost) * payload}
    return json.dumps({
        'start': {'connected': [{'remote_host': '192.0.2.1'}],
                  'test_start': {'protocol': 'UDP', 'blksize': payload}},
        'end': {'sum': sent, 'sum_sent': sent, 'sum_received': received}})


def tcp(sent_bps, received_bps):
    return json.dumps({
        'start': {'test_start': {'protocol': 'TCP'}},
        'end': {'sum_sent': {'seconds': 1.0, 'bits_per_second': sent_bps,
                             'retransmits': 7},
                'sum_received': {'seconds': 1.0,
                                 'bits_per_second': received_bps}}})


VSPERF = ('id,deployment,traffic_type,packet_size,throughput_rx_fps,'
          'throughput_rx_mbps,tunnel_type\n'
          'phy2phy_tput,p2p,rfc2544,64,1000000,512,\n'
          'phy2phy_tput,p2p,rfc2544,1518,500000.0,6072,\n')

SCALABILITY = (
    'throughput_rx_fps,packet_size,id,deployment,stream_count,match_type\n'
    '9900000,64,pvp,pvp,1,L4\n'
    '3100000,64,pvp,pvp,8000,L4\n'
    '1200000,64,pvp,pvp,1000000,L4\n')
