# SPDX-License-Identifier: Apache-2.0
"""Drivers that bring traffic samples in.

A driver is a class registered under the entry point group
:data:`DRIVER_GROUP` that keeps the contract of :class:`.base.Driver`. This
package knows the form of a source; it knows nothing of models, of the store
or of CONF.
"""

import inspect

from stevedore import driver as stevedore_driver
from stevedore import named

from vswitch_aware_scheduler import exceptions

__all__ = ['DRIVER_GROUP', 'available_drivers', 'load_driver']

#: Entry point group of the drivers.
DRIVER_GROUP = 'vswitch_aware_scheduler.telemetry'


def available_drivers():
    """Return the sorted names of the registered drivers; imports none."""
    manager = named.NamedExtensionManager(DRIVER_GROUP, names=[])
    return sorted(set(manager.entry_points_names()))


def load_driver(name, **options):
    """Return a new driver, which has opened nothing yet.

    :param name: as registered, 'file' for instance
    :param options: arguments of the driver's constructor
    :returns: a :class:`.base.Driver`
    :raises TelemetryError: when no such driver is registered, when it cannot
        be imported, or when it takes no such options
    :raises InvalidInput: when the driver refuses the value of an option
    """
    names = available_drivers()
    if name not in names:
        raise exceptions.TelemetryError(
            f'telemetry driver is {name!r}, wanted one of those registered: '
            f'{", ".join(names) or "there is none"}')
    try:
        factory = stevedore_driver.DriverManager(DRIVER_GROUP, name).driver
    except Exception as error:
        # Whatever the module of a driver raises while it is imported, most
        # often because the client library of an extra is not installed.
        raise exceptions.TelemetryError(
            f'telemetry driver {name!r} cannot be loaded: '
            f'{type(error).__name__}: {error}; wanted an importable driver, '
            f'which may need an extra of this package') from error
    signature = inspect.signature(factory)
    try:
        signature.bind(**options)
    except TypeError as error:
        needed, others = [], []
        for one in signature.parameters.values():
            (needed if one.default is one.empty else others).append(one.name)
        raise exceptions.TelemetryError(
            f'telemetry driver {name!r}: options are '
            f'{", ".join(sorted(options)) or "none"}; expected '
            f'{", ".join(needed) or "none"}'
            + (f', and optionally {", ".join(others)}' if others else '')
        ) from error
    return factory(**options)
