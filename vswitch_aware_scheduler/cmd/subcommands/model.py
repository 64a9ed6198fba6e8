# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage model: print stored traffic models."""

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import instants as sampled

__all__ = ['SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'print stored traffic models'


def add_arguments(parser):
    """Add the sub-commands of ``model``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    show = parser.add_command('show', 'print the model of one instance',
                              _show)
    show.add_argument('instance', metavar='UUID',
                      help='uuid of an instance, or its name in the list')
    output.add_list_arguments(parser.add_command(
        'list', 'list the stored models', _list), 'host', 'project')


def _show(arguments, conf):
    record = instances.find_model(context.open_store(conf), arguments.instance)
    model, counts = record.model, record.counts
    correlation = counts and counts.correlation
    if output.print_answer(arguments, {
            'instance_uuid': record.instance_uuid, 'name': record.name,
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
            'sample_correlation': correlation,
            'window_start': record.window_start,
            'window_end': record.window_end,
            'samples': round(record.samples),
            'refused': record.refused.rounded().to_dict(),
            'source': record.source,
            'updated_at': record.updated_at,
            'format_version': record.format_version}):
        return 0
    refused = {name: count for name, count
               in record.refused.rounded().to_dict().items() if count}

    def rates_text(values):
        packets = (f'{rates.number(values[2])} kpps' if model.packets_known
                   else 'packets unknown')
        return (f'egress {rates.number(values[0])} kbit/s, '
                f'ingress {rates.number(values[1])} kbit/s, {packets}')

    terminal.print_fields([
        ('Instance', record.instance_uuid), ('Name', record.name or '-'),
        ('Source', record.source), ('Sampling', _sampling(counts)),
        ('Window', f'{terminal.time(record.window_start)} to '
                   f'{terminal.time(record.window_end)}'),
        ('Samples', f'{record.samples:.0f}, refused '
         f'{record.refused.rounded().total}'
         + terminal.counted(refused)),
        ('Updated', terminal.time(record.updated_at)),
        ('Format version', record.format_version),
        ('Mean', rates_text(model.mean)),
        ('Peak', rates_text(model.peak)),
        ('Left out', _left_out(counts)),
        ('Together', 'independent of others: too few samples at the instants'
         if model.at_instants is None else
         f'sampled at {model.sampled_instants} of {sampled.INSTANTS} '
         f'instants')])
    states = range(len(model.rates))
    terminal.print_below(
        'States: rates, mean sojourn time, long-run share of time '
        '(stationary law)')
    terminal.print_table(
        ['STATE', 'EGRESS_KBPS', 'INGRESS_KBPS', 'KPPS', 'SOJOURN_SECONDS',
         'STATIONARY'],
        [[i, *rates.cells(model.rates[i], model.packets_known),
          rates.number(model.sojourn_seconds[i]), f'{model.stationary[i]:.6f}']
         for i in states])
    terminal.print_below(
        'Jump matrix: probability that a state (row) is followed by '
        'another (column)')
    terminal.print_table(
        ['STATE', *map(str, states)],
        [[i, *(f'{p:.4f}' for p in model.jump[i])] for i in states])
    return 0


def _sampling(counts):
    """Return how often the traffic was measured and what this may hide."""
    if counts is None:
        return '-'
    period = f'means over {rates.number(counts.period_seconds)} s'
    correlation = counts.correlation
    if correlation is None:
        return period
    text = f'{period}, correlation of successive samples {correlation:.2f}'
    if correlation >= estimate.LEAST_CORRELATION:
        return text
    return (f'{text}: rates change within '
            f'{rates.number(counts.period_seconds)} s, and may be above the '
            f'peak for shorter times')


def _left_out(counts):
    """Return which samples the model does not count with."""
    if counts is None or counts.supported == counts.bins.size:
        return '-'
    samples = counts.samples[counts.supported:].sum()
    return (f'{samples:.0f} samples of up to '
            f'{rates.number(counts.peaks[-1, 0])} kbit/s: such rates occurred '
            f'on one day only')


def _list(arguments, conf):
    target = context.open_store(conf)
    models = sorted(target.models(), key=lambda item: (
        item.name is None, output.natural(item.name or ''),
        item.instance_uuid))
    placements = target.placements()

    def placed(item, name):
        return getattr(placements.get(item.instance_uuid), name, None)

    # The peaks of egress and ingress may belong to different states.
    rows = [{
        'instance_uuid': item.instance_uuid, 'name': item.name,
        'samples': round(item.samples),
        'mean': rates.by_name(item.mean, rates.packets_known(item)),
        'peak': rates.by_name(item.peak, rates.packets_known(item)),
        'window_start': item.window_start,
        'window_end': item.window_end, 'source': item.source,
        'refused': item.refused.rounded().to_dict(),
        'updated_at': item.updated_at, **{
            name: placed(item, name)
            for name in ('host', 'flavor', 'project')}} for item in models]
    column = output.Column
    output.print_list(arguments, rows, [
        column('INSTANCE', 'instance_uuid'), column('NAME', 'name'),
        column('SAMPLES', 'samples'),
        column('MEAN EGRESS', 'mean.egress_kbps'),
        column('MEAN INGRESS', 'mean.ingress_kbps'),
        column('PEAK EGRESS', 'peak.egress_kbps'),
        column('PEAK INGRESS', 'peak.ingress_kbps'),
        column('FROM', 'window_start_iso'), column('TO', 'window_end_iso'),
        *(column(name.upper(), name)
          for name in (('host', 'project') if placements else ()))],
        'models', 'models; rates in kbit/s')
    return 0
