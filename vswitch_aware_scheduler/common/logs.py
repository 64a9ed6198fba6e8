# SPDX-License-Identifier: Apache-2.0
"""The loggers of the modules of this package."""

import logging as python_logging
import traceback
import typing

from oslo_log import log as logging

from vswitch_aware_scheduler.common import plain_text

__all__ = ['escape_all', 'get_logger', 'make_debug']


def get_logger(name: str) -> typing.Any:
    """Return the oslo.log logger of a module, which escapes its messages."""
    logger = logging.getLogger(name)
    # Adding a filter again has no effect.
    logger.logger.addFilter(_escape)
    return logger


def escape_all() -> None:
    """Escape control characters in all lines of the log.

    This includes the lines of libraries, because it applies to the handlers of
    the root logger.
    """
    for handler in python_logging.getLogger().handlers:
        handler.addFilter(_escape)


def make_debug(name: str) -> None:
    """Log all messages of a library at level debug.

    This is for problems that this package reports itself, in one line.
    """
    python_logging.getLogger(name).addFilter(_make_debug)


def _make_debug(record: python_logging.LogRecord) -> bool:
    if record.levelno > python_logging.DEBUG:
        record.levelno = python_logging.DEBUG
        record.levelname = python_logging.getLevelName(record.levelno)
    # The logger has already compared the original level.
    return python_logging.getLogger(record.name).isEnabledFor(record.levelno)


def _escape(record: python_logging.LogRecord) -> bool:
    """Make the message and the traceback of a record printable."""
    try:
        message = record.getMessage()
    except Exception:
        # Handlers report an invalid record; a filter would fail its caller.
        return True
    printable = plain_text.printable(message)
    if printable != message:
        record.msg, record.args = printable, ()
    if record.exc_info and record.exc_info[0] is not None:
        # Formatters use this text if it is set.
        record.exc_text = '\n'.join(map(plain_text.printable, ''.join(
            traceback.format_exception(*record.exc_info)).splitlines()))
    return True
