# SPDX-License-Identifier: Apache-2.0
"""Published tables of measurements, and how well the model reproduces them.

Reads only ``published.yaml`` and prints nothing. Derivation:
reference/capacity.rst, "Published tables".
"""

import dataclasses
from importlib import resources

import yaml

from vswitch_aware_scheduler.lab.capacity import cost_fit
from vswitch_aware_scheduler.lab.capacity import cost_model

__all__ = ['PublishedTable', 'reproduce', 'tables']

#: Relative tolerance of statements in words.
_ROUNDED = 1e-3


@dataclasses.dataclass(frozen=True)
class PublishedTable:
    """One table of a document.

    :ivar leave_out: attributes of a Measurement; for each value of such an
        attribute, its rows are predicted from all other rows
    :ivar statements: list of the statements of the document in words, as
        :func:`reproduce` returns them, and ``payload_bytes``, which the rates
        count of a packet
    :ivar fit_line: False if the limit of packets and the limit of the line
        coincide in the rows; the fit then ignores the line
    :ivar cpu: {name: (idle MHz, MHz by row, whether senders are included)}
    """

    name: str
    source: str
    measurements: tuple
    leave_out: tuple
    statements: tuple
    remarks: tuple
    options: dict
    fit_line: bool
    cpu: dict


def tables() -> dict:
    """Return {name: :class:`PublishedTable`} of the published tables."""
    content = resources.files(__package__).joinpath(
        'published.yaml').read_bytes()
    return {name: _table(name, entry)
            for name, entry in yaml.safe_load(content).items()}


def _table(name, entry):
    rows = []
    for (pairs, flows), column in zip(entry.get('settings', [[1, 1]]),
                                      entry.get('columns', [])):
        rows.extend(
            cost_model.Measurement(size, gbps * 1e6, pairs, flows)
            for size, gbps in zip(entry['sizes'], column))
    for size, pairs, flows, gbps in entry.get('rows', []):
        rows.append(cost_model.Measurement(size, gbps * 1e6, pairs, flows))
    statements = tuple(
        {'packet_bytes': size, 'pairs': pairs, 'flows': flows,
         'low': low * 1e6, 'high': high * 1e6, 'words': text,
         'payload_bytes': own_size[0] if own_size else size}
        for size, pairs, flows, low, high, text, *own_size
        in entry.get('statements', []))
    return PublishedTable(
        name, entry['source'], tuple(rows), tuple(entry.get('leave_out', ())),
        statements, tuple(entry.get('remarks', ())),
        {'line_kbps': entry['line_gbps'] * 1e6,
         'framing_bytes': entry.get('framing_bytes',
                                    cost_model.ETHERNET_FRAMING_BYTES)},
        entry.get('fit_line', True),
        {label: (cpu['idle_mhz'], tuple(cpu['mhz']), cpu['senders'])
         for label, cpu in entry.get('cpu', {}).items()})


def reproduce(table):
    """Return measured and predicted values and errors, as plain data.

    :returns: dict: ``rates`` and ``cpu`` have one entry for each prediction,
        ``median_errors`` has a number for each attribute of ``leave_out`` and
        each name of ``cpu``, ``statements`` compares the model with the
        statements of the document, ``contradictions`` and ``remarks`` are
        lists of sentences, ``model`` is the fit to all rows
    """
    rows = table.measurements
    answer = {'table': table.name, 'source': table.source, 'rates': [],
              'cpu': [], 'median_errors': {}, 'statements': [],
              'contradictions': cost_fit.contradictions(rows),
              'remarks': list(table.remarks), 'model': None}
    for key in table.leave_out:
        predictions = cost_fit.leave_one_out(rows, key, **table.options)
        answer['rates'].extend(
            _line(key, prediction) for prediction in predictions)
        answer['median_errors'][key] = cost_fit.median_error(predictions)
    for label, (idle_mhz, mhz, senders) in table.cpu.items():
        predictions = _leave_out_cpu(
            [dataclasses.replace(row, cpu_mhz=value)
             for row, value in zip(rows, mhz)], idle_mhz, senders)
        answer['cpu'].extend(
            _line(label, prediction) for prediction in predictions)
        answer['median_errors'][label] = cost_fit.median_error(predictions)
    if rows:
        options = dict(table.options)
        if not table.fit_line:
            options['line_kbps'] = None
        model = dataclasses.replace(
            cost_fit.fit_capacity(rows, **options),
            line_kbps=table.options['line_kbps'])
        answer['model'] = model.to_dict()
    else:
        # Only statements: the line alone.
        model = cost_model.CapacityModel(None, None, None, **table.options)
    for statement in table.statements:
        line = dict(statement)
        payload_bytes = line.pop('payload_bytes')
        line['predicted'] = model.rate_kbps(
            line['packet_bytes'], line['pairs'], line['flows']
        ) * payload_bytes / line['packet_bytes']
        # The statements are rounded.
        line['within'] = line['low'] * (1 - _ROUNDED) <= line['predicted'] \
            <= line['high'] * (1 + _ROUNDED)
        answer['statements'].append(line)
    return answer


def _line(key, prediction):
    row = prediction.measurement
    return {'left_out': key, 'packet_bytes': row.packet_bytes,
            'pairs': row.pairs, 'flows': row.flows,
            'measured': prediction.measured,
            'predicted': prediction.predicted, 'unit': prediction.unit,
            'error': prediction.error}


def _leave_out_cpu(rows, idle_mhz, senders):
    predictions = []
    for row in rows:
        cost = cost_fit.fit_cpu(
            [other for other in rows if other is not row], idle_mhz,
            senders)
        predictions.append(cost_fit.CostPrediction(
            row, row.cpu_mhz,
            cost.mhz(row.rate_kbps, row.packet_bytes, row.pairs), 'MHz'))
    return predictions
