# SPDX-License-Identifier: Apache-2.0
"""Every error this project raises, in one tree.

::

    VSwitchError
    ├── InvalidInput (also a ValueError)
    │   ├── InvalidModel         a traffic model or a capacity is not usable
    │   ├── InvalidSeries        samples that cannot be a rate series
    │   ├── InvalidProfile       a switch profile or a file of them
    │   └── InvalidOverride      aggregate metadata or extra specs
    ├── MappingTableFull         mappings that a gateway has no room for
    ├── NotEnoughSamples         too short a history to fit a model
    ├── TelemetryError           a driver could not answer
    │   └── TelemetryNotConfigured  no option says what a driver should ask
    ├── NothingMeasured          no instance or host has measured traffic
    ├── CalibrationError         a measurement could not be made
    ├── CoordinationError        modelers cannot share the instances
    ├── ClockError               two clocks do not agree
    └── StoreError               the store cannot be read or written
        ├── StoreChanged         another writer came in between
        ├── StoreMissing         there is no store at that URL
        └── StoreVersionError    its schema or a record has another version

A message has the form ``<thing>: <value seen>; expected <what is legal>``,
then what to do, if that is not obvious. Parts of a message may come from users
of the cloud, so str() escapes all characters that cannot be printed: see
:mod:`.plain_text`.
"""

from vswitch_aware_scheduler import plain_text


class VSwitchError(Exception):
    """Base of all errors of this project."""

    def __str__(self):
        return plain_text.one_line(super().__str__())


class InvalidInput(VSwitchError, ValueError):
    """A value is invalid."""


class InvalidModel(InvalidInput):
    """A traffic model, or a query to one, is invalid."""


class InvalidSeries(InvalidInput):
    """Samples do not form a rate series."""


class InvalidProfile(InvalidInput):
    """A switch profile, or a file of them, is invalid."""


class InvalidOverride(InvalidInput):
    """Aggregate metadata or a flavor extra spec is invalid."""


class MappingTableFull(VSwitchError):
    """A gateway's table is too small for the required mappings."""


class NotEnoughSamples(VSwitchError):
    """The history of an instance is too short to fit a model."""


class TelemetryError(VSwitchError):
    """A telemetry driver could not deliver the requested data."""


class TelemetryNotConfigured(TelemetryError):
    """No option names the source of traffic samples.

    An option with an invalid value raises another error. A driver may raise
    this error in its constructor.
    """


class NothingMeasured(VSwitchError):
    """There is no measured traffic that a plan could be made of."""


class CalibrationError(VSwitchError):
    """The capacity of a switch could not be measured."""


class CoordinationError(VSwitchError):
    """The instances of this modeler's share cannot be determined."""


class ClockError(VSwitchError):
    """The clock of this machine and another clock do not agree."""


class StoreError(VSwitchError):
    """The store cannot be read or written."""


class StoreChanged(StoreError):
    """Another writer has changed the data on which a write is based."""


class StoreMissing(StoreError):
    """There is no store at the URL, or it has no schema."""


class StoreVersionError(StoreError):
    """The schema or a record of the store has another version."""
