# SPDX-License-Identifier: Apache-2.0
"""A handler that keeps what is logged."""

import logging


class LogRecords(logging.Handler):
    """What was logged since the last look.

    :ivar records: list of (level, message)
    """

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append((record.levelno, record.getMessage()))

    def clear(self):
        self.records = []

    def texts(self, level):
        """Return the messages of one level, oldest first."""
        return [text for levelno, text in list(self.records)
                if levelno == level]

    def messages(self, level=logging.DEBUG):
        """Return the messages of at least a level, oldest first."""
        return [text for levelno, text in list(self.records)
                if levelno >= level]
