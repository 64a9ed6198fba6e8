# SPDX-License-Identifier: Apache-2.0
"""What a thread of a scheduler remembers of the request that it handles."""

from collections import abc
import dataclasses
import threading
import typing

__all__ = ['RefusedRequest', 'Request']


@dataclasses.dataclass(eq=False)
class RefusedRequest:
    """A request that hosts were refused to."""

    claimed: set = dataclasses.field(default_factory=set)
    withdrawn: bool = False
    failed: bool = False


class Request(threading.local):
    """What happened to the request that a thread handles. Each has its own.

    :ivar judged: (RequestSpec, uuid of the instance, version of the table,
        HostStates, Assessment) of the last judgement
    :ivar filtered: (uuid of the instance, version of the table) of the last
        judgement by the filter
    :ivar demand: (RequestSpec, uuid of the instance, Snapshot, Demand)
    :ivar decisions: {uuid: how the hosts were judged for an instance}
    :ivar missed: whether a claim has waited for the store in vain
    """

    def __init__(self) -> None:
        self.begin(False)

    def begin(self, requesting: bool) -> None:
        """Forget the previous request."""
        self.requesting = requesting
        self.judged: typing.Any = (None,) * 5
        self.filtered: typing.Any = None, None
        self.passing: typing.Any = None
        self.demand: typing.Any = (None,) * 4
        self.claims, self.decisions = {}, {}
        self.refusal: RefusedRequest | None = None
        self.conflicts, self.missed = 0, False

    def host_state(self, provider_uuids: abc.Container[str]) -> typing.Any:
        """Return the judged HostState with one of some providers, or None."""
        return next((
            host_state for host_state in self.judged[3] or ()
            if host_state.uuid in provider_uuids), None)
