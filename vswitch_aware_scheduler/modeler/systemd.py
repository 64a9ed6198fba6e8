# SPDX-License-Identifier: Apache-2.0
"""Notifications to systemd, by datagrams of the sd_notify protocol.

The protocol only needs a socket. The package sdnotify has had no release for
years, and oslo.service would add its complete worker framework.
"""

from collections.abc import Mapping
import os
import socket

from vswitch_aware_scheduler.common import logs

__all__ = ['Notifier']

LOG = logs.get_logger(__name__)


class Notifier:
    """Notifies systemd of the state of the service, if systemd listens.

    :param environment: environment of the process; NOTIFY_SOCKET is the
        address of systemd's socket
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        address = environment.get('NOTIFY_SOCKET', '')
        # A name in the abstract namespace starts with a zero byte.
        self._address = '\0' + address[1:] if address[:1] == '@' else address

    def notify(self, **values: object) -> None:
        """Send a notification, for example READY=1. Errors are ignored."""
        if not self._address:
            return
        text = '\n'.join(f'{name}={str(value)[:2000]}'.replace('\n', ' ')
                         for name, value in values.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM
                               | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1)
                sender.connect(self._address)
                sender.sendall(text.encode())
        except OSError as error:
            LOG.debug('systemd was not notified of %s: %s', text, error)
