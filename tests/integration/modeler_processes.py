# SPDX-License-Identifier: Apache-2.0
"""Modelers as processes of their own, and what can go wrong around them."""

import contextlib
import faulthandler
import itertools
import logging
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from unittest import mock

from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler.modeler import service
from vswitch_aware_scheduler.modeler import systemd

#: Longest wait for what should happen, seconds.
PATIENCE = 60

# Forked: what a test has made is there, and a start takes no time.
_fork = multiprocessing.get_context('fork')


class Clock:
    """A clock that the test sets and every process reads."""

    def __init__(self, now):
        self._now = _fork.Value('d', now, lock=False)

    def __call__(self):
        return self._now.value

    def set(self, now):
        self._now.value = now


class Modeler:
    """A service in a process.

    :param make: returns a :class:`.wiring.SetUp`; called in the process
    :param clock: :class:`Clock`
    :param log: path of the file that it logs to
    """

    def __init__(self, make, clock, log):
        self._arguments = make, clock, log
        self.process = None

    def start(self):
        # The child writes where it is from its first line on.
        with open(self._arguments[2] + '.stacks', 'w') as stream:
            faulthandler.register(signal.SIGUSR2, stream)
            self._start()
            faulthandler.unregister(signal.SIGUSR2)

    def _start(self):
        self.process = _fork.Process(target=_serve, args=self._arguments)
        self.process.start()

    def kill(self):
        self.process.kill()
        self.process.join()

    def stacks(self):
        """Return where each thread of the process is, as text."""
        if not self.process.is_alive():
            return f'ended with {self.process.exitcode}'
        os.kill(self.process.pid, signal.SIGUSR2)
        time.sleep(.5)
        with open(self._arguments[2] + '.stacks') as stream:
            return stream.read() or 'blocks its signals'

    def end(self):
        """End it by SIGTERM; return its exit status."""
        self.process.terminate()
        self.process.join(PATIENCE)
        return self.process.exitcode


def _serve(make, clock, log):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter('%(levelname)s %(message)s'))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # A test does not wait as long as an operator.
    with mock.patch.object(service, 'FIRST_PAUSE_SECONDS', .2), \
            mock.patch.object(service, 'LONGEST_PAUSE_SECONDS', 1), \
            mock.patch.object(service, '_TICK_SECONDS', .02), \
            mock.patch.object(membership, 'PATIENCE_SECONDS', 4):
        service.Service(make, systemd.Notifier({}), clock).run()


class Proxy:
    """Stands before a server, in a process of its own.

    :param port: of the server
    :param second_port: of the server after :meth:`fail_over`
    :param in_turn: whether until then each second connection is to it, too
    :ivar port: to connect to
    """

    GOOD, STANDS_STILL, TALKS_NONSENSE, ENDS = range(4)

    def __init__(self, port, second_port=None, in_turn=False):
        self._target = _fork.Value('i', port, lock=False)
        self._second_port = second_port
        self._others = itertools.cycle([False, in_turn])
        self._mode = _fork.Value('i', self.GOOD, lock=False)
        self._after = _fork.Value('q', 0, lock=False)
        #: Bytes that came from the server while all was good.
        self.passed = _fork.Value('q', 0, lock=False)
        self._listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._process = _fork.Process(target=self._run, daemon=True)
        self._process.start()
        self._listener.close()

    def close(self):
        self._process.kill()
        self._process.join()

    def spoil(self, mode, after=0):
        """Be bad when so many more bytes have come from the server."""
        self._after.value = self.passed.value + after
        self._mode.value = mode

    def heal(self):
        self._mode.value = self.GOOD

    def fail_over(self):
        """Connect who comes from now on to the second server."""
        self._target.value = self._second_port

    def _bad(self):
        mode = self._mode.value
        return mode if self.passed.value >= self._after.value else self.GOOD

    def _run(self):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            client, _ = self._listener.accept()
            port = self._second_port if next(self._others) \
                else self._target.value
            threading.Thread(target=self._serve, args=(client, port),
                             daemon=True).start()

    def _serve(self, client, port):
        with client, contextlib.suppress(OSError):
            if self._bad() == self.ENDS:
                return
            with socket.create_connection(('127.0.0.1', port), 10) as server:
                threading.Thread(target=self._forward, args=(client, server),
                                 daemon=True).start()
                self._answer(server, client)

    @staticmethod
    def _forward(client, server):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server, client):
        while True:
            server.settimeout(None)
            # Small, so that what is cut is cut anywhere.
            data = server.recv(512)
            if not data:
                return
            bad = self._bad()
            if bad == self.ENDS:
                return
            while self._bad() == self.STANDS_STILL:
                time.sleep(.02)
                bad = self.GOOD
            if bad == self.TALKS_NONSENSE:
                data = random.Random(len(data)).randbytes(len(data))
            else:
                self.passed.value += len(data)
            client.sendall(data)


def wait_for(condition, what):
    """Return what a condition returns once it is true."""
    limit = time.monotonic() + PATIENCE
    while not (result := condition()):
        if time.monotonic() > limit:
            raise AssertionError(f'in {PATIENCE} s not: {what}')
        time.sleep(.05)
    return result


def lines(log, *levels):
    """Return the lines of a log, those of some levels alone."""
    if not os.path.exists(log):
        return []
    with open(log) as stream:
        return [line.strip() for line in stream
                if not levels or line.split(' ', 1)[0] in levels]
