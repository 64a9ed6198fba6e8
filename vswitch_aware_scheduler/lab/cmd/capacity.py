# SPDX-License-Identifier: Apache-2.0
"""The sub-commands ``vswitch-manage capacity``: arguments and answers."""

import argparse

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.lab.capacity import cost_fit
from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab.capacity import measurements
from vswitch_aware_scheduler.lab.capacity import published
from vswitch_aware_scheduler.lab.cmd import arguments as arguments_of
from vswitch_aware_scheduler.lab import stated

__all__ = ['FitCapacity', 'Reproduce']


def _fit_answer(arguments):
    """Fit a table. Return the result of the command as plain data."""
    checks.check('confidence', arguments.confidence, checks.Kind(
        'a number between 0 and 1', lambda value: 0 < value < 1))
    rows = measurements.load_csv(arguments.file)
    options = {'line_kbps': arguments.line_kbps,
               'framing_bytes': arguments.framing_bytes,
               'unit_bytes': arguments.unit_bytes}
    model = cost_fit.fit_capacity(rows, **options)
    left_out = cost_fit.leave_one_out(rows, **options)
    lines = []
    for row, prediction in zip(rows, left_out):
        place = (row.packet_bytes, row.pairs, row.flows, row.encapsulation)
        low, high = model.interval_kbps(*place, arguments.confidence)
        lines.append({
            'packet_bytes': row.packet_bytes, 'pairs': row.pairs,
            'flows': row.flows, 'encapsulation': row.encapsulation,
            'measured_kbps': row.rate_kbps,
            'fitted_kbps': model.rate_kbps(*place), 'low_kbps': low,
            'high_kbps': high, 'limited_by': model.limiting(*place),
            'left_out_kbps': prediction.predicted,
            'left_out_error': prediction.error})
    answer = {'file': arguments.file, 'confidence': arguments.confidence,
              'model': model.to_dict(), 'rows': lines,
              'median_error': cost_fit.median_error(left_out),
              'contradictions': cost_fit.contradictions(rows), 'cpu': None}
    if any(row.cpu_mhz is not None for row in rows):
        cost = cost_fit.fit_cpu(rows)
        answer['cpu'] = {'mhz_per_kpps': cost.mhz_per_kpps,
                         'mhz_per_mbps': cost.mhz_per_mbps,
                         'deviation': cost.deviation}
    return answer


def _fit_tables(answer):
    """Yield (title, header, rows) of a fit as text."""
    rows = []
    for level in ('flow', 'sender', 'switch'):
        cost = answer['model'][level]
        if cost is None:
            continue
        for name, value in cost['packet_us'].items():
            rows.append([level, name, 'us a packet', f'{value:.4g}',
                         *map(terminal.cell, cost['packet_us_limits'][name])])
        rows.append([level, '-', 'ns a byte', f'{cost["byte_ns"]:.4g}',
                     *map(terminal.cell, cost['byte_ns_limits'])])
    yield ('Costs, with limits of 95 % confidence',
           ['LEVEL', 'ENCAPSULATION', 'COST', 'VALUE', 'LOW', 'HIGH'], rows)
    yield (f'Rates in kbit/s, with limits of {answer["confidence"]:.0%}; '
           f'LEFT_OUT is what the other packet sizes predict',
           ['BYTES', 'PAIRS', 'FLOWS', 'ENCAPSULATION', 'MEASURED', 'FITTED',
            'LOW', 'HIGH', 'LIMITED_BY', 'LEFT_OUT', 'ERROR'],
           [[f'{row["packet_bytes"]:g}', row['pairs'], row['flows'],
             row['encapsulation'], f'{row["measured_kbps"]:.0f}',
             f'{row["fitted_kbps"]:.0f}', f'{row["low_kbps"]:.0f}',
             terminal.cell(row['high_kbps'], '.0f'), row['limited_by'],
             terminal.cell(row['left_out_kbps'], '.0f'),
             terminal.cell(row['left_out_error'], '+.1%')]
            for row in answer['rows']])


def _reproduce_answer(arguments):
    """Predict published values. Return the result as plain data."""
    tables = published.tables()
    for name in arguments.table:
        if name not in tables:
            stated.refuse('table', name, f'one of {", ".join(tables)}')
    return {'tables': [
        published.reproduce(table) for name, table in tables.items()
        if name in arguments.table or not arguments.table]}


def _reproduce_tables(answer):
    """Yield (title, header, rows) of the answer as text."""
    for table in answer['tables']:
        title = f'{table["table"]}: {table["source"]}'
        lines = [[line['left_out'], f'{line["packet_bytes"]:g}',
                  line['pairs'], line['flows'], f'{line["measured"]:.4g}',
                  terminal.cell(line['predicted']), line['unit'],
                  terminal.cell(line['error'], '+.1%')]
                 for line in table['rates'] + table['cpu']]
        lines += [['-', f'{line["packet_bytes"]:g}', line['pairs'],
                   line['flows'], f'{line["low"]:.4g} to {line["high"]:.4g}',
                   f'{line["predicted"]:.4g}', 'kbit/s',
                   'within' if line['within'] else 'OUTSIDE']
                  for line in table['statements']]
        yield (title, ['LEFT_OUT', 'BYTES', 'PAIRS', 'FLOWS', 'MEASURED',
                       'PREDICTED', 'UNIT', 'ERROR'], lines)
    yield ('Median absolute error of what was left out',
           ['TABLE', 'LEFT_OUT', 'MEDIAN'],
           [[table['table'], key, terminal.cell(value, '.1%')]
            for table in answer['tables']
            for key, value in table['median_errors'].items()])


class FitCapacity(base.Command):
    """Estimate the cost of a packet from measured rates."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            'file', metavar='FILE', help='CSV with the columns packet_bytes '
            'and rate_kbps, and optionally pairs, flows, encapsulation and '
            'cpu_mhz')
        arguments_of.add_options(
            parser,
            ('--line-kbps', 'C', float, 'rate of the line in kbit/s, if the '
             'line limited some measurements'),
            ('--framing-bytes', 'N', float, 'bytes that the line adds to a '
             'packet (default: %(default)s, for Ethernet around IP packets)',
             cost_model.ETHERNET_FRAMING_BYTES),
            ('--unit-bytes', 'N', float, 'with segmentation offload: bytes '
             'that are processed as one packet (default: 0, no offload)', 0.0),
            ('--confidence', 'P', float, 'confidence level of the printed '
             'limits (default: 0.95)', .95))

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the estimated costs."""
        return _fit_answer(arguments)

    def describe(self, answer: dict) -> None:
        """Print the costs and the rates that follow from them."""
        terminal.print_tables(_fit_tables(answer))
        terminal.print_below(
            f'Relative deviation of a row: '
            f'{answer["model"]["deviation"]:.1%}')
        if answer['median_error'] is not None:
            terminal.print_line(
                f'Median error of what was left out: '
                f'{answer["median_error"]:.1%}')
        terminal.print_remarks('The table contradicts itself',
                               answer['contradictions'])


class Reproduce(base.Command):
    """Compare published measurements with predictions."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('table', metavar='TABLE', nargs='*',
                            help='name of a table (default: all tables)')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the published and the predicted values."""
        return _reproduce_answer(arguments)

    def describe(self, answer: dict) -> None:
        """Print the tables and what contradicts itself."""
        terminal.print_tables(_reproduce_tables(answer))
        for table in answer['tables']:
            terminal.print_remarks(
                f'{table["table"]} contradicts itself, or the model',
                table['contradictions'] + table['remarks'])
