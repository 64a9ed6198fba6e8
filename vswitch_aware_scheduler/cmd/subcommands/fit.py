# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage fit: fit traffic models to telemetry."""

import argparse
import collections
import time

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['Fit']


class Fit(base.Show):
    """Fit traffic models to telemetry and write them to the store."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('--telemetry', metavar='DRIVER', default='file',
                            help='name of a telemetry driver (default: file)')
        context.add_file_arguments(parser)
        context.add_times(parser, 'samples', 'all samples')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Fit models to all series of a telemetry driver, and write them."""
        conf = self.conf
        began = time.monotonic()
        if None not in (arguments.start, arguments.end) \
                and arguments.start >= arguments.end:
            raise exceptions.InvalidInput(
                thing='start', seen=f'{arguments.start:.15g}',
                expected='a time before the end, which is '
                f'{arguments.end:.15g}, in seconds since 1970')
        driver = context.telemetry_driver(arguments, self.all_options)
        target = context.open_or_make_store(conf)
        names = {item.uuid: item.name for item in driver.instances()}
        instants = sampled.Instants(target.secret())
        measured, models, unmodelled, refused = [], [], [], []
        refused_samples = rate_series.Refused()

        def refuse(instance_uuid, reason, error):
            refused.append({'instance_uuid': instance_uuid,
                            'name': names.get(instance_uuid), 'reason': reason,
                            'detail': str(error)})

        with terminal.progress('fitting') as progress:
            for series in driver.series(arguments.start, arguments.end,
                                        progress=progress):
                # The load that it counts with otherwise is unknown here.
                series = series.at_least()
                refused_samples += series.refused
                reason = _refusal(series, conf.min_samples)
                try:
                    counts = estimate.count_transitions(series, instants)
                except exceptions.NotEnoughSamples as error:
                    refuse(series.instance_uuid, reason, error)
                    continue
                measured.append((series.instance_uuid, series.refused, reason,
                                 counts))
        for (instance_uuid, refused_counts, reason, its_counts), model in zip(
                measured, estimate.fit_models(
                    [counts for *_, counts in measured],
                    min_samples=conf.min_samples,
                    keys=[uuid for uuid, *_ in measured])):
            provenance = {'refused': refused_counts,
                          'source': arguments.telemetry,
                          'name': names.get(instance_uuid)}
            if isinstance(model, exceptions.NotEnoughSamples):
                refuse(instance_uuid, reason, model)
                unmodelled.append(store.Unmodelled(instance_uuid, its_counts,
                                                   **provenance))
                continue
            models.append(store.StoredModel.from_counts(
                instance_uuid, model, its_counts, **provenance))
        generation = _write_models(target, conf, models, unmodelled)
        if not models:
            context.say('no instance has a history to fit a model to: nothing '
                        'was written')
            self.status = 1
        return {
            'source': driver.source, 'store': target.url,
            'generation': generation.number, 'instances': len(names),
            'fitted': len(models), 'refused': len(refused),
            'reasons': dict(collections.Counter(
                item['reason'] for item in refused)),
            'refused_instances': refused,
            'refused_samples': refused_samples.to_dict(),
            'priors': sum(prior.instance_uuid is None
                          for prior in target.priors().values()),
            'seconds': round(time.monotonic() - began, 3)}

    def for_people(self, answer: dict) -> dict:
        """Return the answer without the list of refused instances."""
        return {name: value for name, value in answer.items()
                if name not in ('refused_instances', 'seconds')}


def _write_models(target, conf, models, unmodelled):
    """Write the fitted models and the resulting priors together.

    :param unmodelled: counts of other instances; a model of such an instance
        in the store is kept
    :returns: Generation
    """
    if not models:
        return target.generation()
    points = target.resume_points()
    unmodelled = [record for record in unmodelled
                  if record.instance_uuid not in points
                  or not points[record.instance_uuid].modelled]
    _, changed, removed = priors.plan(
        target, time.time(), conf.min_samples, models=models,
        unmodelled=unmodelled)
    return target.write(models, unmodelled=unmodelled, priors=changed,
                        remove_priors=removed)


def _refusal(series, min_samples):
    if not len(series):
        return 'no usable sample'
    if len(series) < min_samples:
        return f'fewer than {min_samples} samples'
    return 'no traffic'
