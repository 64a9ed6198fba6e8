# SPDX-License-Identifier: Apache-2.0
"""Generates traffic of instances that are busy at the same time, or not.

Each pattern states what its instances have in common. Unlike a recorded trace,
generated traffic has any length, so that results are precise. Pure; the caller
passes the random generator. Parameters and results:
contributor/dependence.rst.
"""

import dataclasses

import numpy as np

__all__ = ['PATTERNS', 'PERIOD_SECONDS', 'Pattern']

PERIOD_SECONDS = 300
_DAY = 86400 // PERIOD_SECONDS

#: Mean number of periods after which a source decides again whether it is on.
_STAY_PERIODS = 4

#: Standard deviation of the logarithm of the rate while on: between instances,
#: and between samples.
_SPREAD, _JITTER = 0.5, 0.3

#: Rate while off, as a share of the rate while on.
_OFF_RATE = 0.02


@dataclasses.dataclass(frozen=True)
class Pattern:
    """What the instances of a fleet have in common.

    Instances are on or off. Each belongs to a group in turn. A group is busy
    or calm, which determines how likely its instances are to be on. Given the
    state of the group, its instances are independent.

    :ivar name: name in reports
    :ivar calm: share of time in which an instance is on while its group is
        calm
    :ivar busy: share of time in which an instance is on while its group is
        busy
    :ivar hours: for each group, the hours of the day from and to which it is
        busy
    :ivar share: without ``hours``, share of time in which all groups are busy,
        in windows at random times
    :ivar window_periods: mean length of such a window in sampling periods
    """

    name: str
    calm: float
    busy: float
    hours: tuple = ()
    share: float = 0.0
    window_periods: int = 24

    def busy_periods(self, rng, periods):
        """Return (groups, periods) bool: whether a group is busy.

        :param rng: numpy.random.Generator
        :param periods: number of sampling periods
        """
        if self.hours:
            hour = np.arange(periods) % _DAY * 24 / _DAY
            return np.array([(hour >= begin) & (hour < end)
                             for begin, end in self.hours])
        begins = self.share / (1 - self.share) / self.window_periods
        busy = np.zeros(periods, dtype=bool)
        at = 0
        while self.share:
            at += rng.geometric(begins)
            end = at + rng.geometric(1 / self.window_periods)
            if at >= periods:
                break
            busy[at:end] = True
            at = end
        return busy[None]

    def levels(self, rng, instances):
        """Return (instances,) median rates in kbit/s while on.

        :param rng: numpy.random.Generator
        :param instances: number of instances
        """
        return 1000 * np.exp(_SPREAD * rng.standard_normal(instances))

    def rates(self, rng, days, levels):
        """Return (instances, periods) random rates in kbit/s.

        :param rng: numpy.random.Generator
        :param days: length in days, from midnight on
        :param levels: (instances,) as returned by :meth:`levels`; the same for
            the past and the future of the same instances
        """
        periods, instances = round(days * _DAY), len(levels)
        busy = self.busy_periods(rng, periods)
        busy = busy[np.arange(instances) % len(busy)].T
        likely = np.where(busy, self.busy, self.calm)
        drawn_on = rng.random((periods, instances)) < likely
        is_redrawn = rng.random((periods, instances)) < 1 / _STAY_PERIODS
        # An instance whose group becomes busy or calm decides at once.
        is_redrawn[1:] |= busy[1:] != busy[:-1]
        is_redrawn[0] = True
        drawn_at = np.maximum.accumulate(
            np.where(is_redrawn, np.arange(periods)[:, None], 0), axis=0)
        on = np.take_along_axis(drawn_on, drawn_at, axis=0)
        rates = levels * np.where(on, 1.0, _OFF_RATE) * np.exp(
            _JITTER * rng.standard_normal((periods, instances)))
        return np.ascontiguousarray(rates.T)


#: By name.
PATTERNS = {pattern.name: pattern for pattern in (
    Pattern('independent', calm=.15, busy=.15),
    Pattern('backup 2 %', calm=.1, busy=1.0, hours=((2, 2.48),)),
    Pattern('backup 5 %', calm=.1, busy=1.0, hours=((2, 3.2),)),
    Pattern('busy 10 %', calm=.1, busy=.6, share=.1),
    Pattern('office hours', calm=.05, busy=.4, hours=((9, 17),)),
    Pattern('three tenants', calm=.03, busy=.9,
            hours=((2, 4), (10, 12), (18, 20))),
)}
