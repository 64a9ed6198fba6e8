# SPDX-License-Identifier: Apache-2.0
"""What programs that measure print."""

import json


def udp(packets, lost, payload, seconds=2.0):
    """Return the parts of iperf3's JSON that tell of a UDP test."""
    total = {'seconds': seconds, 'bytes': packets * payload,
             'packets': packets, 'lost_packets': lost}
    return json.dumps({
        'start': {'test_start': {'protocol': 'UDP'}},
        'end': {'sum': total, 'sum_sent': total, 'sum_received': total}})


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
