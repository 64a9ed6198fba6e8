# SPDX-License-Identifier: Apache-2.0
"""Strategies that do what a test says, in the closed loop."""

import numpy as np

from vswitch_aware_scheduler.lab.evaluate import closed_loop
from vswitch_aware_scheduler.lab.evaluate import measures
from vswitch_aware_scheduler.lab.evaluate import packing


class First(packing.FirstFit):
    """Takes all on the first host."""

    def learn(self, known):
        pass

    def admitted(self, instance):
        return np.ones(len(self.residents), dtype=bool)

    def predicted(self):
        return np.arange(len(self.residents)) / 10


def first_fit(count, fits):
    """Return the instances of each host by the definition of first-fit.

    :param fits: callable(instances), whether a host may have them all
    """
    hosts = []
    for row in range(count):
        host = next((host for host in hosts if fits([*host, row])), None)
        if host is None:
            hosts.append([row])
        else:
            host.append(row)
    return hosts


class Script(closed_loop.Strategy):
    """Moves what it is given at a bin; remembers what it saw."""

    def __init__(self, moves=()):
        self.moves = dict(moves)
        self.seen = []
        self.done = []

    def decide(self, fleet):
        self.seen.append((fleet.end, fleet.judged_end,
                          fleet.overload[0, :fleet.judged_end].sum()))
        for move in self.moves.get(fleet.judged_end, ()):
            self.done.append(fleet.move(*move))


def replay(rates, arrivals, strategy, known=None, capacity=10.0,
           seed=1, departures=None, **conditions):
    rates = np.array(rates, dtype=float)
    replayed = closed_loop.FleetReplay(
        First(), strategy, closed_loop.TraceTraffic(
            rates if known is None else known, rates,
            (np.array(arrivals), np.full(len(rates), packing.STAYS)
             if departures is None else np.array(departures)), 300.0),
        capacity, closed_loop.Conditions(**conditions),
        np.random.default_rng(seed))
    replayed.advance(None, np.argsort(arrivals, kind='stable').tolist(),
                     rates.shape[1])
    replayed.evaluated = rates, capacity
    return replayed


def judged(replayed):
    """Return the Judgement of a Replay."""
    rates, capacity = replayed.evaluated
    return measures.judge(replayed.packer.stays, rates, capacity, 300.0,
                          migrations=replayed.migrations)
