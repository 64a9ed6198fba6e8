# SPDX-License-Identifier: Apache-2.0
"""Generated traffic of instances that are busy together, or not.

Each pattern states what its instances have in common. Unlike a recorded trace
it can be as long as wanted, so that what is realised is known well. Pure;
randomness comes from the generator that is given.

Parameters and results: contributor/dependence.rst.
"""

import dataclasses

import numpy as np

__all__ = ['PATTERNS', 'PERIOD_SECONDS', 'Pattern']

PERIOD_SECONDS = 300
_DAY = 86400 // PERIOD_SECONDS

#: A source decides again whether it is on after so many periods on average.
_STAY_PERIODS = 4

#: Standard deviation of the logarithm of the rate while on: from instance to
#: instance, and from sample to sample.
_SPREAD, _JITTER = 0.5, 0.3

#: Rate while off, of that while on.
_OFF_RATE = 0.02


@dataclasses.dataclass(frozen=True)
class Pattern:
    """What the instances of a fleet have in common.

    Instances are on or off. Each belongs to a group, in turn; a group is busy
    or calm, and that decides how likely its instances are to be on. Given
    that, they are independent.

    :ivar name: as in reports
    :ivar calm: share of time on while the group is calm
    :ivar busy: share of time on while it is busy
    :ivar hours: a pair for each group: hours of the day, from and to, at which
        it is busy
    :ivar share: without ``hours``, share of time in which all are busy, in
        windows at random times
    :ivar window_periods: mean length of such a window, in sampling periods
    """

    name: str
    calm: float
    busy: float
    hours: tuple = ()
    share: float = 0.0
    window_periods: int = 24

    def busy_periods(self, rng, periods):
        """Return (groups, periods) bool: which group is busy when."""
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
        """Return (instances,) median kbit/s while on."""
        return 1000 * np.exp(_SPREAD * rng.standard_normal(instances))

    def rates(self, rng, days, levels):
        """Return (instances, periods) rates in kbit/s, a random path.

        :param rng: numpy.random.Generator
        :param days: how long, from midnight on
        :param levels: as :meth:`levels` returns them; the same ones for the
            past and the future of the same instances
        """
        periods, instances = round(days * _DAY), len(levels)
        busy = self.busy_periods(rng, periods)
        busy = busy[np.arange(instances) % len(busy)].T
        likely = np.where(busy, self.busy, self.calm)
        draws = rng.random((periods, instances)) < likely
        again = rng.random((periods, instances)) < 1 / _STAY_PERIODS
        # Who becomes busy or calm decides at once.
        again[1:] |= busy[1:] != busy[:-1]
        again[0] = True
        decided = np.maximum.accumulate(
            np.where(again, np.arange(periods)[:, None], 0), axis=0)
        on = np.take_along_axis(draws, decided, axis=0)
        rates = levels * np.where(on, 1.0, _OFF_RATE) * np.exp(
            _JITTER * rng.standard_normal((periods, instances)))
        return np.ascontiguousarray(rates.T)


#: By name.
PATTERNS = {one.name: one for one in (
    Pattern('independent', calm=.15, busy=.15),
    Pattern('backup 2 %', calm=.1, busy=1.0, hours=((2, 2.48),)),
    Pattern('backup 5 %', calm=.1, busy=1.0, hours=((2, 3.2),)),
    Pattern('busy 10 %', calm=.1, busy=.6, share=.1),
    Pattern('office hours', calm=.05, busy=.4, hours=((9, 17),)),
    Pattern('three tenants', calm=.03, busy=.9,
            hours=((2, 4), (10, 12), (18, 20))),
)}
