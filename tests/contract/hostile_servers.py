# SPDX-License-Identifier: Apache-2.0
"""Servers on the loopback interface that never come to an end of an answer.

Each of :data:`DRIPS` is a way to send a byte now and then, for ever, so that
no wait for the next byte is ever long.
"""

import contextlib
import gzip
import itertools
import socket
import threading
import time
import zlib

import fixtures

#: Time between two pieces of an answer, seconds.
PAUSE_SECONDS = .01


_OK = b'HTTP/1.1 200 OK\r\n'
_CHUNKED = _OK + b'Transfer-Encoding: chunked\r\n'


def _endless(piece, *first):
    """Return a function: the first pieces, then one piece for ever."""
    return lambda: itertools.chain(first, itertools.repeat(piece))


def _chunk(content):
    return b'%x\r\n%s\r\n' % (len(content), content)


def _empty_blocks(wrap):
    compressor = zlib.compressobj(wbits=wrap)
    encoding = b'gzip' if wrap > 15 else b'deflate'
    yield _CHUNKED + b'Content-Encoding: ' + encoding + b'\r\n\r\n'
    while True:
        piece = compressor.flush(zlib.Z_FULL_FLUSH)
        if piece:
            yield _chunk(piece)
        # A flush of nothing gives nothing but the first time.
        block = b'\x00\x00\x00\xff\xff'
        yield _chunk(block)


#: {what never ends: function that returns the pieces of an answer}
DRIPS = {
    'body': _endless(b' ', _OK + b'Content-Length: 1000000\r\n\r\n['),
    'body without a length': _endless(b' ', _OK + b'\r\n[]'),
    'status line': _endless(b'O', b'HTTP/1.1 200 '),
    'header': _endless(b'a', _OK + b'X-Header: '),
    'trailer': _endless(b'A: b\r\n', _CHUNKED + b'\r\n',
                        b'2\r\n[]\r\n0\r\n'),
    '100 Continue': _endless(b'HTTP/1.1 100 Continue\r\n\r\n'),
    'chunk size': _endless(b'0', _CHUNKED + b'\r\n2\r\n[]\r\n'),
    'chunk extension': _endless(b'x', _CHUNKED + b'\r\n2;a='),
    'chunks': _endless(_chunk(b' '), _CHUNKED + b'\r\n'),
    'empty gzip blocks': lambda: _empty_blocks(31),
    'empty deflate blocks': lambda: _empty_blocks(15),
    'empty gzip members': _endless(
        _chunk(gzip.compress(b'')),
        _CHUNKED + b'Content-Encoding: gzip\r\n\r\n'),
    'error body': _endless(
        b'!', b'HTTP/1.1 503 Busy\r\nContent-Length: 1000000\r\n\r\n')}


class DrippingServer(fixtures.Fixture):
    """Sends the pieces of an answer to every request, one at a time.

    :param pieces: name of one of the DRIPS, or a function that returns an
        iterator of bytes
    :param pause_seconds: between two pieces; 0: as fast as they are read
    """

    def __init__(self, pieces, pause_seconds=PAUSE_SECONDS):
        super().__init__()
        self._pieces = DRIPS.get(pieces, pieces)
        self._pause_seconds = pause_seconds

    def _setUp(self):
        self._ended = threading.Event()
        self._connections = 0
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = self._listener.getsockname()[1]
        self.url = f'http://127.0.0.1:{self.port}'
        self._threads = []
        accepting = threading.Thread(target=self._accept, daemon=True)
        accepting.start()
        self.addCleanup(self._end, accepting)

    def connections_of(self, attempts):
        """Return how many connections there were, after so many attempts.

        :param attempts: how many have to be accepted, a minute at most
        """
        end = time.monotonic() + 60
        while self._connections < attempts and time.monotonic() < end:
            time.sleep(.01)
        return self._connections

    def _end(self, accepting):
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections += 1
                thread = threading.Thread(target=self._serve,
                                          args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            connection.recv(2 ** 16)
            for piece in self._pieces():
                if self._ended.is_set():
                    return
                connection.sendall(piece)
                if self._pause_seconds:
                    time.sleep(self._pause_seconds)


def handshake():
    """Yield a TLS record of a handshake that never ends."""
    yield bytes([22, 3, 3, 0x3f, 0xff, 2, 0, 0x3f, 0xfb])
    yield from itertools.repeat(b'\0')
