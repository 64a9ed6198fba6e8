# SPDX-License-Identifier: Apache-2.0
"""What the drivers that ask a service over HTTP have in common."""

import contextlib
import datetime
import email.utils
import math
import time

import numpy as np

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.telemetry import base

__all__ = ['ServiceDriver', 'iso_time', 'numbers']


class ServiceDriver(base.Driver):
    """A driver that asks a service. Constructors open nothing."""

    #: Name of the driver, for messages.
    NAME = ''

    #: Type of the service in the catalog of keystone.
    SERVICE_TYPE = ''

    def __init__(self, access, period_seconds=300, settle_seconds=0,
                 max_age_seconds=None, clock=time.time, sleep=time.sleep):
        """Remember the options; open nothing.

        :param access: :class:`Access`, or a mapping of its arguments
        :param period_seconds: sampling period to deliver
        :param settle_seconds: what is younger than that is not read yet
        :param max_age_seconds: samples older than that are refused, None:
            none are
        :param clock: returns the time, seconds UTC
        :param sleep: waits seconds
        :raises InvalidInput: when an option has no usable value
        """
        super().__init__(period_seconds)
        if self._period_seconds is None:
            raise exceptions.InvalidInput(
                f'period_seconds of telemetry driver {self.NAME} is None, '
                f'wanted a number above 0')
        if not isinstance(access, http.Access):
            try:
                access = http.Access(**access)
            except TypeError as error:
                raise exceptions.InvalidInput(
                    f'access of telemetry driver {self.NAME}: {error}, '
                    f'wanted the arguments of Access') from None
        for name, value in (('settle_seconds', settle_seconds),
                            ('max_age_seconds', max_age_seconds)):
            if value is not None and not (
                    isinstance(value, (int, float))
                    and 0 <= value < math.inf):
                raise exceptions.InvalidInput(
                    f'{name} of telemetry driver {self.NAME} is {value!r}, '
                    f'wanted a finite number from 0')
        self._access = access
        self._settle_seconds = settle_seconds
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._sleep = sleep
        # Date of the newest answer, and monotonic seconds at that moment.
        self._served = None

    def server_time(self):
        """Return what the clock of the service shows now, or None."""
        if self._served is None:
            return None
        seconds, at = self._served
        return seconds + time.monotonic() - at

    def _hear(self, headers):
        # No such header, or none that is a date.
        with contextlib.suppress(LookupError, TypeError, ValueError,
                                 OverflowError):
            self._served = email.utils.parsedate_to_datetime(
                headers['Date']).timestamp(), time.monotonic()

    @property
    def source(self):
        """Name of the driver and URL of the service."""
        return f'{self.NAME} {self._access.where(self.SERVICE_TYPE)}'

    def _client(self):
        return http.Client(
            self._access,
            self.source,
            self.SERVICE_TYPE,
            sleep=self._sleep,
            on_headers=self._hear,
        )

    def _bounds(self, start, end):
        """Return the periods to read, and the oldest time to trust.

        :returns: (first period, first period no longer wanted, oldest time):
            the periods whose start is wanted and whose end, with the
            reading that closes it, is old enough not to change any more
        """
        now = self._clock()
        period = self._period_seconds
        oldest = -math.inf if self._max_age_seconds is None \
            else now - self._max_age_seconds
        settled = math.floor((now - self._settle_seconds) / period) - 1
        low, high = (min(max(time, http.TIME_RANGE[0]), http.TIME_RANGE[1])
                     for time in (start, end))
        first = math.ceil(low / period)
        last = min(settled, math.ceil(high / period))
        return first, last, oldest


def numbers(values):
    """Return an array of numbers; NaN for each value that is none.

    :param values: list of numbers or texts of numbers
    """
    try:
        return np.array(values).astype(float).reshape(len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(value) for value in values])


def _number(value):
    if isinstance(value, (int, float, str)):
        with contextlib.suppress(ValueError, OverflowError):
            return float(value)
    return math.nan


def iso_time(seconds):
    """Return seconds UTC as the services read them, without an offset."""
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.%f')
