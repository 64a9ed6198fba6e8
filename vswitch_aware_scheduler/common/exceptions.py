# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this project, in one tree.

::

    VSwitchError
    ├── InvalidInput (also a ValueError)
    │   ├── NotInList            a name is not among those of a list
    │   ├── NotInstalled         an optional library is not installed
    │   ├── InvalidModel         a traffic model or a capacity is invalid
    │   └── InvalidSeries        samples do not form a rate series
    ├── MappingTableFull         the table of a VXLAN gateway is too small
    ├── NotEnoughSamples         a history is too short to fit a model
    ├── TelemetryError           a driver cannot deliver the requested data
    │   └── TelemetryNotConfigured  no option names the source of the samples
    ├── NothingMeasured          no instance or host has measured traffic
    ├── CalibrationError         the capacity of a switch cannot be measured
    ├── CoordinationError        modelers cannot divide the instances
    ├── ClockError               two clocks differ
    ├── SurveyError              a cloud cannot be surveyed
    └── StoreError               the store cannot be read or written
        ├── StoreChanged         another process has changed the data
        ├── StoreDamaged         an indispensable row is damaged
        ├── StoreInterrupted     the database has ended a transaction
        ├── StoreMissing         the store or its schema does not exist
        └── StoreVersionError    the schema or a record has another version

A message has the form ``<thing>: <value seen>; expected <what is legal>``,
then what to do, if that is not obvious. Parts of a message may come from users
of the cloud, so str() escapes all characters that cannot be printed: see
:mod:`.plain_text`.
"""

from vswitch_aware_scheduler.common import plain_text


class VSwitchError(Exception):
    """Base of all errors of this project.

    :param message: text, or None to format ``msg_fmt`` with the values
    :param values: values of ``msg_fmt``; ``value`` instead of ``seen``: its
        repr, shortened, or 'not given' for None
    """

    msg_fmt = '{thing}: {seen}; expected {expected}'

    def __init__(self, message: object = None, **values: object) -> None:
        if message is None:
            if 'value' in values:
                value = values['value']
                values['seen'] = 'not given' if value is None \
                    else plain_text.brief(value)
            message = self.msg_fmt.format(**values)
        super().__init__(message)

    def __str__(self) -> str:
        return plain_text.one_line(super().__str__())


class InvalidInput(VSwitchError, ValueError):
    """A value is invalid."""


class NotInList(InvalidInput):
    """A name is not among those that a command prints."""

    msg_fmt = '{thing}: {seen}; expected {expected} that "{command}" prints'


class NotInstalled(InvalidInput):
    """A library of an extra of this package is not installed."""

    msg_fmt = ('{thing} needs {library}, which is not installed; install '
               'vswitch_aware_scheduler[{extra}]')


class InvalidModel(InvalidInput):
    """A traffic model, or a query to one, is invalid."""


class InvalidSeries(InvalidInput):
    """Samples do not form a rate series."""


class MappingTableFull(VSwitchError):
    """A gateway's table is too small for the required mappings."""


class NotEnoughSamples(VSwitchError):
    """The history of an instance is too short to fit a model."""


class TelemetryError(VSwitchError):
    """A telemetry driver could not deliver the requested data."""


class TelemetryNotConfigured(TelemetryError):
    """No option names the source of traffic samples."""


class NothingMeasured(VSwitchError):
    """A plan needs measured traffic, and none is available."""

    msg_fmt = '{thing} in the store {store}: {seen}; {hint}'


class CalibrationError(VSwitchError):
    """The capacity of a switch could not be measured."""


class CoordinationError(VSwitchError):
    """The instances of this modeler's share cannot be determined."""

    msg_fmt = ('backend of modeler_coordination_url: no response{seen}; '
               'expected the members of a group')


class ClockError(VSwitchError):
    """The clock of this machine differs too much from another clock."""


class SurveyError(VSwitchError):
    """A cloud cannot be surveyed.

    :param status: exit status of the command
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class StoreError(VSwitchError):
    """The store cannot be read or written."""


class StoreChanged(StoreError):
    """Another writer has changed the data on which a write is based."""

    msg_fmt = ('{thing}: changed by another process in the meantime; expected '
               'no change')


class StoreDamaged(StoreError):
    """A table without whose row the store cannot be read is damaged."""

    msg_fmt = ('the table {table} is damaged: {seen}; restore the store from '
               'a backup')


class StoreInterrupted(StoreError):
    """The database has ended a transaction, which may succeed if repeated."""


class StoreMissing(StoreError):
    """There is no store at the URL, or it has no schema."""

    msg_fmt = 'store {store}: {seen}; run "vswitch-manage db sync" to make it'


class StoreVersionError(StoreError):
    """The schema or a record of the store has another version."""

    msg_fmt = '{thing} has version {seen}; expected {expected}'
