# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the ``vswitch:*`` keys of aggregate metadata."""

from collections import abc
import contextlib
import dataclasses
import typing

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['Keys', 'PREFIX', 'Stated', 'UPLINK', 'unknown_key',
           'kind_of', 'usable_profile']

#: (aggregate name, its metadata) of several aggregates.
Metadata: typing.TypeAlias = abc.Iterable[tuple[str, abc.Mapping[str, str]]]
#: Aggregate name, key and value.
Item: typing.TypeAlias = tuple[str, str, str]
Profiles: typing.TypeAlias = abc.Mapping[str, vswitch_profile.SwitchProfile]
#: Receives a topic, and the problem or None.
Report: typing.TypeAlias = abc.Callable[[str, str | None], object]

#: Prefix of the keys of aggregates and of the extra specs of flavors.
PREFIX = 'vswitch:'

#: Prefix of the keys of uplinks.
UPLINK = 'vswitch:uplink'


def kind_of(expected: str, fits: abc.Callable[[str], bool]) -> checks.Kind:
    """Return the kind of texts that a function accepts; it may raise."""
    def is_valid(text):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return fits(text)
    return checks.Kind(expected, is_valid)


def unknown_key(thing: str, key: str, text: str, keys: abc.Iterable[str]
                ) -> exceptions.InvalidInput:
    """Return the error about a key that does not exist."""
    return exceptions.InvalidInput(
        thing=f'{thing}{key}', value=text, expected='no key but '
        + ', '.join(keys) + plain_text.nearest(key, keys, PREFIX))


@dataclasses.dataclass(frozen=True)
class Stated:
    """The valid values of the metadata of some aggregates.

    :ivar policy: the most cautious of the admission policies
    :ivar limit: the lowest of the limits of the overload probability
    :ivar margin: the largest of the margins of predictions
    """

    values: dict[str, dict[str, str]]
    profiles: list[str]
    numbers: dict[str, list[str]]
    policy: str
    limit: float
    margin: float


class Keys:
    """Reads the metadata keys with one prefix."""

    def __init__(self, prefix: str, profiles: Profiles, policy: str,
                 overload_probability: float, prediction_margin: float,
                 numbers: abc.Iterable[str], report: Report,
                 others: dict[str, checks.Kind] | None = None) -> None:
        self._profile = prefix + 'profile'
        self._numbers = {prefix + name: name for name in numbers}
        self._policy = prefix + 'admission_policy'
        self._limit = prefix + 'overload_probability'
        self._margin = prefix + 'prediction_margin'
        self._defaults = {self._policy: {policy: None},
                          self._limit: {overload_probability: None},
                          self._margin: {prediction_margin: None}}
        self._report = report
        self._kinds = {
            self._profile: checks.one_of(sorted(profiles)),
            self._policy: checks.one_of(
                (admission.AVERAGE, admission.PROBABILITY)),
            self._limit: kind_of('a number 0..1',
                                 lambda text: 0 <= float(text) <= 1),
            self._margin: kind_of('a number 0.001..1000',
                                  lambda text: .001 <= float(text) <= 1000),
            **{prefix + name: kind for name, kind in (others or {}).items()}}

    def read(self, items: abc.Iterable[Item]) -> Stated:
        """Return the valid values of sorted metadata; report invalid ones."""
        values: dict[str, dict[str, str]] = {}
        for name, key, value in items:
            where = f'aggregate {name}'
            try:
                if key in self._numbers:
                    vswitch_profile.override_number(self._numbers[key], value,
                                                    where)
                elif key in self._kinds:
                    checks.check(f'{where}: {key}', value, self._kinds[key])
                else:
                    raise unknown_key(f'{where}: ', key, value,
                                      [*self._kinds, *self._numbers])
                self._report(f'{where} {key}', None)
            except exceptions.InvalidInput as error:
                self._report(f'{where} {key}', f'{error}; it is ignored')
                continue
            values.setdefault(key, {})[value] = name
        all_values: dict[str, typing.Any] = {**self._defaults, **values}
        return Stated(
            values, sorted(values.get(self._profile, ())),
            {self._numbers[key]: list(texts)
             for key, texts in values.items() if key in self._numbers},
            admission.most_cautious(all_values[self._policy]),
            min(map(float, all_values[self._limit])),
            max(map(float, all_values[self._margin])))


def usable_profile(
        profile: vswitch_profile.SwitchProfile | None,
        numbers: dict[str, list[typing.Any]], where: str, report: Report,
        **others: typing.Any) -> vswitch_profile.SwitchProfile | None:
    """Return a profile with the given numbers, except invalid numbers.

    In alphabetical order, a number that contradicts the profile or another
    number is reported and ignored. Of several values, the smallest applies.
    """
    try:
        usable = vswitch_profile.with_numbers(profile, numbers, where,
                                              **others)
        for key in numbers:
            report(f'{where} {key}', None)
        return usable
    except exceptions.InvalidInput:
        pass
    usable, kept = profile, {}
    for key in sorted(numbers):
        try:
            usable = vswitch_profile.with_numbers(
                profile, {**kept, key: numbers[key]}, where, **others)
            kept[key] = numbers[key]
            report(f'{where} {key}', None)
        except exceptions.InvalidInput as error:
            report(f'{where} {key}', f'{error}; it is ignored')
    return usable
