# SPDX-License-Identifier: Apache-2.0
"""A reader of the metrics that a process serves."""

import socket
import urllib.request

from prometheus_client import parser


def free_ports(number=1):
    """Return the first of so many ports in a row that are free."""
    while True:
        with socket.socket() as listener:
            listener.bind(('127.0.0.1', 0))
            first = listener.getsockname()[1]
        if first + number > 65535:
            continue
        try:
            for port in range(first, first + number):
                with socket.socket() as listener:
                    listener.bind(('127.0.0.1', port))
            return first
        except OSError:
            continue


def parsed(text):
    """Return {(name, label values): value}, names without our prefixes."""
    return {(sample.name.removeprefix('vswitch_modeler_')
             .removeprefix('vswitch_scheduler_'),
             *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.name.endswith('_created')}


def scraped(port):
    """Return what a server answers at a port, as parsed() does."""
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics',
                                timeout=30) as answer:
        return parsed(answer.read().decode())
