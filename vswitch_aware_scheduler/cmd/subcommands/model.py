# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage model: prints stored traffic models."""

import argparse

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler.traffic import estimate

__all__ = ['List', 'Show']

_column = base.Column


class Show(base.Show):
    """Print the model of one instance."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('instance', metavar='SERVER',
                            help='uuid of an instance, or its name in the '
                                 'list')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the model and where it comes from."""
        record = instances.find_model(self.store, arguments.instance)
        model, counts = record.model, record.counts
        return {
            'instance_uuid': record.instance_uuid,
            'name': self.store.names([record.instance_uuid]).get(
                record.instance_uuid, record.name),
            'states': len(model.rates), 'rates': model.rates.tolist(),
            'jump': model.jump.tolist(),
            'sojourn_seconds': model.sojourn_seconds.tolist(),
            'stationary': model.stationary.tolist(),
            'sampled_instants': model.sampled_instants,
            'left_out_samples': counts and float(
                counts.samples[counts.supported:].sum()),
            'mean': rates.by_name(model.mean.tolist(), model.packets_known),
            'peak': rates.by_name(model.peak.tolist(), model.packets_known),
            'packets_known': model.packets_known,
            'period_seconds': counts and counts.period_seconds,
            'sample_correlation': counts and counts.correlation,
            'window_start': record.window_start,
            'window_end': record.window_end,
            'samples': round(record.samples),
            'refused': record.refused.rounded().to_dict(),
            'source': record.source,
            'updated_at': record.updated_at,
            'format_version': record.format_version}

    def for_people(self, answer: dict) -> dict:
        """Return the fields with the states of the model as one list."""
        answer = {**answer, 'states': [
            {**rates.by_name(state, answer['packets_known']),
             'sojourn_seconds': sojourn, 'stationary': share}
            for state, sojourn, share in zip(
                answer['rates'], answer['sojourn_seconds'],
                answer['stationary'])]}
        for name in ('rates', 'sojourn_seconds', 'stationary',
                     'packets_known'):
            del answer[name]
        if (answer['sample_correlation'] or 1) < estimate.LEAST_CORRELATION:
            answer['remark'] = (
                f'rates change within {answer["period_seconds"]:g} s, and may '
                f'be above the peak for shorter times')
        return answer


class List(base.List):
    """Print the stored models."""

    rows_key = 'models'
    below = 'models'
    filters = ('host', 'project')
    columns = [
        _column('INSTANCE', 'instance_uuid'), _column('NAME', 'name'),
        _column('SAMPLES', 'samples'),
        _column('MEAN EGRESS', 'mean.egress_kbps'),
        _column('MEAN INGRESS', 'mean.ingress_kbps'),
        _column('PEAK EGRESS', 'peak.egress_kbps'),
        _column('PEAK INGRESS', 'peak.ingress_kbps'),
        _column('FROM', 'window_start_iso'), _column('TO', 'window_end_iso')]

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the models, with the place of each instance."""
        names = instances.names(self.store)
        models = sorted(self.store.models(), key=lambda item: (
            item.instance_uuid not in names,
            base.natural(names.get(item.instance_uuid, '')),
            item.instance_uuid))
        placements = self.store.placements()
        if placements:
            self.columns = [*self.columns, _column('HOST', 'host'),
                            _column('PROJECT', 'project')]
        # The peaks of egress and ingress may belong to different states.
        return {'models': [{
            'instance_uuid': item.instance_uuid,
            'name': names.get(item.instance_uuid),
            'samples': round(item.samples),
            'mean': rates.by_name(item.mean, rates.packets_known(item)),
            'peak': rates.by_name(item.peak, rates.packets_known(item)),
            'window_start': item.window_start,
            'window_end': item.window_end, 'source': item.source,
            'refused': item.refused.rounded().to_dict(),
            'updated_at': item.updated_at, **{
                name: getattr(placements.get(item.instance_uuid), name, None)
                for name in ('host', 'flavor', 'project')}}
            for item in models]}
