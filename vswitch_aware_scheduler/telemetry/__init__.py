# SPDX-License-Identifier: Apache-2.0
"""Drivers that read traffic samples.

A driver is a class with an entry point in the group :data:`DRIVER_GROUP` that
implements :class:`.base.Driver`. The drivers know the formats of their
sources. They use no models, no store and no CONF.
"""

import inspect
import typing

from stevedore import driver as stevedore_driver
from stevedore import named

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.telemetry import base

__all__ = ['DRIVER_GROUP', 'available_drivers', 'load_driver']

#: Entry point group of the drivers.
DRIVER_GROUP = 'vswitch_aware_scheduler.telemetry'


def available_drivers() -> list[str]:
    """Return the sorted names of the registered drivers. Imports none."""
    manager = named.NamedExtensionManager(DRIVER_GROUP, names=[])
    return sorted(set(manager.entry_points_names()))


def load_driver(name: str, **options: typing.Any) -> base.Driver:
    """Return a new driver, which has not opened anything yet.

    :param name: name of the entry point, for example 'file'
    :param options: arguments of the driver's constructor
    :raises TelemetryError: if no such driver is registered, if it cannot be
        imported, or if it does not accept the options
    :raises InvalidInput: if the driver rejects the value of an option
    """
    names = available_drivers()
    if name not in names:
        raise exceptions.TelemetryError(
            thing='telemetry driver', value=name,
            expected=plain_text.one_of(name, names))
    try:
        factory = stevedore_driver.DriverManager(DRIVER_GROUP, name).driver
    except Exception as error:
        # The module of a driver may raise any exception when it is imported,
        # usually because the client library of an extra is not installed.
        raise exceptions.TelemetryError(
            f'telemetry driver {name!r} cannot be loaded: '
            f'{type(error).__name__}: {error}; expected an importable driver. '
            f'Some drivers need an extra of this package') from error
    signature = inspect.signature(factory)
    try:
        signature.bind(**options)
    except TypeError as error:
        needed, optional = [], []
        for parameter in signature.parameters.values():
            (needed if parameter.default is parameter.empty
             else optional).append(parameter.name)
        raise exceptions.TelemetryError(
            f'telemetry driver {name!r}: options are '
            f'{", ".join(sorted(options)) or "none"}; expected '
            f'{", ".join(needed) or "none"}'
            + (f', and optionally {", ".join(optional)}' if optional else '')
        ) from error
    return factory(**options)
