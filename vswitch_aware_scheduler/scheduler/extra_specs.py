# SPDX-License-Identifier: Apache-2.0
"""Validators of the ``vswitch:`` extra specs, for Nova's flavor API."""

from nova.api.validation.extra_specs import base

from vswitch_aware_scheduler.admission import flavor_specs

__all__ = ['register']


def register() -> list[base.ExtraSpecValidator]:
    """Return the validators of every ``vswitch:`` key."""
    validators = [
        base.ExtraSpecValidator(
            name=key, description=f'Traffic of one instance: {meaning}.',
            value={'type': int, 'min': 0, 'max': flavor_specs.LARGEST})
        for key, meaning in flavor_specs.EXTRA_SPECS.items()]
    validators.append(base.ExtraSpecValidator(
        name=flavor_specs.MODEL_EXTRA_SPEC,
        description='The uuid of an instance whose learned traffic model '
                    'stands for every instance of this flavor.',
        value={'type': str}))
    validators.append(base.ExtraSpecValidator(
        name=flavor_specs.MIGRATE_EXTRA_SPEC,
        description='Whether instances of this flavor may be migrated to keep '
                    'error budgets of hosts.',
        value={'type': str, 'enum': list(flavor_specs.MIGRATE_VALUES)}))
    return validators
